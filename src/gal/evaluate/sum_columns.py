"""What a sum of answers would tell of each organization in it: tried on a table that has everybody's columns.

Each organization is tried as ``gal join`` tries it at home, but beside the real others instead of pretended
ones: what a label holder finds of its columns in the sum, and what she would find in its answer alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gal.engine.options import local_losses_by_name, option_by_name
from gal.engine.organization import Organization
from gal.errors import InvalidOptionError
from gal.privacy.leakage.own_columns import (
    FEWEST_KNOWN,
    LONGEST,
    MOST_ROWS,
    USUALLY_KNOWN,
    ToldByAnswers,
    own_columns_explained,
)
from gal.secrecy.terms import read_secrecy


@dataclass(frozen=True)
class ToldInSum:
    """What the label holder finds of one organization's columns."""

    organization: str
    in_sum: ToldByAnswers
    """From the sum of everybody's answers."""
    alone: ToldByAnswers
    """From its own answers, if these came as they are."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "organization": self.organization,
            "in_sum": self.in_sum.to_json(),
            "alone": self.alone.to_json(),
        }


def check_summed(secrecy: Any, members: int, options: Mapping[str, Any]) -> None:
    """An error where so many assisting organizations cannot learn from sums, or not like that."""
    sums = read_secrecy(secrecy)
    if sums is None:
        return
    sums.check(members)
    if options.get("preset", "default") != "default":
        raise InvalidOptionError(
            f"what a sum tells is tried with local models that are named, not with those of a preset: leave "
            f"preset={options['preset']!r} away, and name the models in local_models"
        )


def columns_in_sum(
    views: Mapping[str, pd.DataFrame],
    outputs: int,
    options: Mapping[str, Any],
    *,
    parts: int = 0,
    seed: int = 0,
) -> tuple[ToldInSum, ...]:
    """Every assisting organization with its view (rows the same for all), in a sum with all the others.

    ``options`` are those of the estimator: rounds, local models and what they minimise; each of the ``parts``
    of a cross-validation asks for as many fits as the task itself. Nothing where there are too few rows to
    try it on.
    """
    n = len(next(iter(views.values())))
    known = min(USUALLY_KNOWN, n // 2)
    if known < FEWEST_KNOWN:
        return ()
    chosen = np.random.default_rng(seed).permutation(n)[:MOST_ROWS]
    members = _members({name: view.iloc[chosen] for name, view in views.items()}, options)
    fits, found = min(int(options["rounds"]) * (1 + parts), LONGEST), []
    for name, one in members.items():
        others = [other for each, other in members.items() if each != name]
        told, alone = (
            own_columns_explained(one, fits, outputs, n_known=known, beside=beside, seed=seed)
            for beside in (others, [])
        )
        found.append(ToldInSum(name, told, alone))
    return tuple(found)


def _members(views: Mapping[str, pd.DataFrame], options: Mapping[str, Any]) -> dict[str, Organization]:
    """The organizations as the estimator makes them."""
    models, losses = options.get("local_models"), options.get("local_losses")
    names = list(views)
    by_name = option_by_name("local_models", _of(models, names), names)
    minimised = local_losses_by_name(_of(losses, names), names)
    return {
        name: Organization(name, view, by_name[name], local_loss=minimised[name])
        for name, view in views.items()
    }


def _of(option: Any, names: Sequence[str]) -> Any:
    """An option of these organizations, where it is one by name."""
    if not isinstance(option, Mapping):
        return option
    return {name: value for name, value in option.items() if name in names}


__all__ = ["ToldInSum", "check_summed", "columns_in_sum"]
