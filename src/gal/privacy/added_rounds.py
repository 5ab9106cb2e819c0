"""What a label holder keeps of answers for a private refit, where they come as sums.

In a prediction everybody adds up its own rounds, as the public model counts them: there is one number per row
and output for all others together, and another one would be another sum of the same row. So of learning, too,
she uses everybody's rounds added up, and asks for nothing that a prediction would not ask for anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gal.core.cross_validation import Judgement
from gal.core.state import ByName, Progress

Floats32 = NDArray[np.float32]
Fitted = Sequence[Mapping[str, Floats32]]
Counts = Sequence[Mapping[str, float]]


def added_fitted(
    fitted: Fitted, counts: Counts
) -> tuple[list[Mapping[str, Floats32]], list[Mapping[str, float]]]:
    """Fitted values by round as one round, everybody's times what it counts; and that each counts once then.

    Nothing where there are no rounds.
    """
    totals: dict[str, NDArray[np.float64]] = {}
    for said, count in zip(fitted, counts, strict=False):
        for name, times in count.items():
            totals[name] = totals.get(name, 0.0) + times * said[name].astype(np.float64)
    if not totals:
        return [], []
    added = {name: total.astype(np.float32) for name, total in sorted(totals.items())}
    return [added], [dict.fromkeys(added, 1.0)]


def added_progress(progress: Progress) -> Progress:
    """The same learning as one round."""
    fitted, counts = added_fitted(progress.fitted, progress.coefficients)
    return replace(
        progress,
        rounds=progress.rounds[: len(fitted)],
        coefficients=tuple(map(ByName, counts)),
        fitted=tuple(fitted),
    )


def added_judgement(judged: Judgement) -> Judgement:
    """The same for every part of a cross-validation."""
    return replace(judged, reached=tuple(one and added_progress(one) for one in judged.reached))
