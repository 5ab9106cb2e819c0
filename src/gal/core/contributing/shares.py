"""What organizations earned on rows that nobody fitted, as plain data.

Loss is what is shared out: the fall of the mean loss on the rows that validate. The label holder's own part
is what she reaches alone. What the others add to it is shared among them: they add up to the measured gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["helped", "free rider", "unclear", "hurt", "not used"]

SMALL_GAIN, SMALL_WHOLE = 0.1, 0.05
"""Who earned nothing that can be told from chance (or costs a little), and less than this share of the gain
(where that can be told from chance; else of all that was learned), is a free rider; with more it is unclear.
"""

AT_MOST = 2.0
"""So it is where the interval reaches beyond so many times that share: nobody is called a free rider because
rows, or steps of a score, are too few to show what it brings.
"""


@dataclass(frozen=True)
class Earned:
    """A fall of the loss, or a rise of a score, with its 95 % interval: a bootstrap over the rows."""

    value: float
    low: float
    high: float

    def verdict(self, small: float) -> Verdict:
        """In a word; ``small`` is what counts as next to nothing.

        >>> Earned(0.001, -0.002, 0.003).verdict(0.01)
        'free rider'
        """
        if self.low > 0:
            return "helped"
        if self.high < 0 and self.value < -small:
            return "hurt"
        if self.value > max(small, 0.0) or (small > 0 and self.high > AT_MOST * small):
            return "unclear"
        return "free rider"


@dataclass(frozen=True)
class Coalition:
    """What the label holder would gain over alone if only these others joined."""

    organizations: tuple[str, ...]
    gain: Earned
    measured: bool
    """Whether such a model was learned; else it is an estimate from values that came for all together."""


@dataclass(frozen=True)
class Shares:
    """Who earned what, on rows that were not fitted."""

    rows: int
    """How many rows judged."""
    judged_by: Literal["validation rows", "cross-validation"]
    own: float
    """The label holder's own part: from the initial output to her model alone."""
    own_measured: bool
    """Whether she learned alone as well; else her own part is an estimate."""
    gain: float
    """What the others add: from alone to the model that is used, 0 where assistance is not used."""
    by_organization: Mapping[str, Earned]
    """Of the gain, by organization other than hers; they add up to all of it."""
    coalitions: tuple[Coalition, ...]
    """What some of the others would bring: all coalitions of up to six others, some where there are more."""

    @property
    def told_from_chance(self) -> bool:
        """Whether the gain of all others together is above 0 with its whole interval."""
        return bool(self.coalitions) and self.coalitions[-1].gain.low > 0

    def verdicts(self) -> dict[str, Verdict]:
        """In a word, by organization; one hurt where without it much more would be gained.

        Where the gain of all may be chance, nobody helped, and only its own interval says that one hurt. Who
        was never there, or none of whose answers counts, earned exactly nothing: it is no free rider.
        """
        sure = self.told_from_chance
        small = SMALL_GAIN * self.gain if sure else SMALL_WHOLE * (self.own + self.gain)
        found = {name: one.verdict(small) for name, one in self.by_organization.items()}
        everybody = set(self.by_organization)
        for one in self.coalitions:
            left_out = everybody - set(one.organizations)
            if sure and len(left_out) == 1 and one.gain.value - self.gain > max(small, 0.0):
                found[left_out.pop()] = "hurt"
        if not sure:
            found = {name: "unclear" if one == "helped" else one for name, one in found.items()}
        unused = [
            name for name, one in self.by_organization.items() if not (one.value or one.low or one.high)
        ]
        return found | dict.fromkeys(unused, "not used") if self.gain > 0 else found


def shares_of(facts: Mapping[str, Any] | None) -> Shares | None:
    """Shares from what ``gal.core.state.plain`` made of them."""
    if facts is None:
        return None
    coalitions = tuple(
        Coalition(tuple(one["organizations"]), Earned(**one["gain"]), one["measured"])
        for one in facts["coalitions"]
    )
    earned = {name: Earned(**one) for name, one in facts["by_organization"].items()}
    return Shares(**{**facts, "by_organization": earned, "coalitions": coalitions})
