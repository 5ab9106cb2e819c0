"""What sums rule out among the options of a task, and how everybody is weighed then.

Not in `terms`, which a node that waits imports: options need scipy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.engine.options import Options, is_auto
from gal.errors import InvalidInputError, InvalidOptionError
from gal.secrecy.terms import SUM, Sums


@dataclass(frozen=True)
class EqualWeights:
    """Everybody counts the same, where the answers of ``members`` organizations come as their mean."""

    members: int
    sum_first: bool
    """Whether the sum comes before the label holder's own answer, as their names do."""

    def __call__(
        self,
        residual: NDArray[np.float32],  # noqa: ARG002
        fitted: Sequence[NDArray[np.float32]],
        sample_weight: NDArray[np.float64] | None = None,  # noqa: ARG002
    ) -> NDArray[np.float64]:
        if len(fitted) == 1:
            return np.ones(1)
        both = np.array([self.members, 1.0] if self.sum_first else [1.0, self.members])
        return both / (self.members + 1)


def summed_options(
    sums: Sums, options: Options, holder: str, members: Mapping[str, Any], *, private: bool = False
) -> Options:
    """The options of a task that learns from sums; an error where one asks for single answers.

    ``members``: the organizations that assist, by name. ``private``: labels are protected, and a closing
    model is none of the answers but of what the label holder learns by itself.
    """
    sums.check(len(members))
    if SUM in members or holder == SUM:
        raise InvalidInputError(f"no organization can be called {SUM!r}: the sum has this name")
    weights = options.weights
    if not (is_auto(weights) or (isinstance(weights, str) and weights == "uniform")):
        raise InvalidOptionError(
            f"secrecy='sums' weighs all organizations the same, got weights={weights!r}: other weights need "
            "inner products of single answers. Leave weights away, or pass weights='uniform'"
        )
    if not (is_auto(options.closing) or options.closing is False):
        raise InvalidOptionError(
            f"a stacker learns from single answers, which secrecy='sums' keeps away: leave "
            f"closing away, got closing={options.closing!r}"
        )
    if options.interactions:
        raise InvalidOptionError(
            "interaction probes go to one organization each, which secrecy='sums' rules out: leave "
            f"interactions away, got interactions={options.interactions!r}"
        )
    moving = sorted(name for name, one in members.items() if one.moves)
    if moving:
        raise InvalidOptionError(
            f"the models of {', '.join(moving)} move: they would be asked again after the last round, one by "
            "one, which secrecy='sums' rules out. Give these organizations models that stand still"
        )
    equal = EqualWeights(len(members), sum_first=holder > SUM)
    closing = options.closing if private else False
    return replace(options, rounds=options.usual_rounds, weights=equal, closing=closing)
