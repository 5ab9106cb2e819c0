"""What a simulation decides, from its intervals alone."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from gal.evaluate.comparing.intervals import Interval


class Verdict(StrEnum):
    """Whether assistance helps, as far as the rows can tell."""

    GAIN = "gain"
    """Assistance is better than without: the whole interval of the gain is above 0. No tuned model on the
    label holder's columns reaches as much.
    """
    NO_GAIN = "no gain"
    """Neither assistance nor pooling brings anything that can be told from chance."""
    UNCLEAR = "unclear"
    """Pooling brings something beyond chance; what assistance brings may be chance, or is less than what a
    tuned model on the label holder's columns reaches.
    """
    HARM = "harm"
    """Assistance is worse than without: the whole interval of the gain is below 0."""


EXIT_CODES: Mapping[Verdict, int] = {
    Verdict.GAIN: 0,
    Verdict.NO_GAIN: 10,
    Verdict.UNCLEAR: 11,
    Verdict.HARM: 12,
}
"""How ``gal simulate`` ends: 0 where assistance helps, from 10 on another answer; errors are below 10."""


def verdict_of(gain: Interval, pooling_gain: Interval, *, beats_tuned: bool = True) -> Verdict:
    """From paired differences; ``beats_tuned``: whether assistance reaches more than a tuned model alone.

    >>> verdict_of(Interval(0.01, -0.01, 0.03), Interval(0.02, -0.01, 0.05))
    <Verdict.NO_GAIN: 'no gain'>
    """
    if gain.low > 0:
        return Verdict.GAIN if beats_tuned else Verdict.UNCLEAR
    if gain.high < 0:
        return Verdict.HARM
    return Verdict.UNCLEAR if pooling_gain.low > 0 else Verdict.NO_GAIN


__all__ = ["EXIT_CODES", "Verdict", "verdict_of"]
