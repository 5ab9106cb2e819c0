"""Predicting from sums: each organization adds up its own rounds, then all of them are added.

The label holder gets one number per row and output for all others together, whatever the number of rounds. To
the prediction stage they are one organization, that was asked for one round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.replies import Answers, accept_predicted
from gal.core.requests import PredictRequest
from gal.core.state import ByName, Ensemble
from gal.engine.assisted_model import AssistedModel, Unasked, mean_added
from gal.engine.drivers import Driver, ask_to_predict, open_driver
from gal.engine.organization import Organization
from gal.errors import InvalidInputError, InvalidOptionError, RefusedError
from gal.secrecy.masks import sha256_of
from gal.secrecy.messages import plain_bytes
from gal.secrecy.ring import added_rounds, prediction_unit
from gal.secrecy.summing import LocalCircle
from gal.secrecy.terms import SUM, Sums

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def added_up(ensemble: Ensemble) -> Ensemble:
    """The same model as one round, in which everybody has added up its own rounds already."""
    asked = ensemble.asked()
    means = {name: tuple(mean_added(ensemble, name)) for name in asked}
    rounds = tuple(replace(done, mean_fitted=ByName(means)) for done in ensemble.rounds[:1])
    return replace(ensemble, coefficients=(ByName(dict.fromkeys(asked, 1.0)),), rounds=rounds)


def accept_sum(
    ensemble: Ensemble, own: NDArray[Any] | None, total: Floats, there: Bools, n_members: int
) -> Answers:
    """What everybody adds to F^T, for the model that ``added_up`` makes of this one.

    ``own`` are the answers (rounds, n, K) of the label holder's own organization, with NaN where it does not
    know a row; ``total`` (n, K) is the sum of ``n_members`` in the rows that are ``there``. The mean of what
    was added in learning stands in for what is not known.
    """
    among, added = len(ensemble.summed), added_up(ensemble)
    together = total / among + (among - n_members) * mean_added(ensemble, SUM) / among
    replies = {SUM: np.where(there[:, None], together, np.nan)}
    if own is not None and ensemble.label_holder is not None:
        part = own_rounds(ensemble, ensemble.label_holder, own)
        known = ~np.isnan(own).all(axis=(0, 2))
        replies[ensemble.label_holder] = np.where(known[:, None], part, np.nan)
    request = PredictRequest(added.asked_rounds, added.asked(), added.track)
    answers = accept_predicted(
        added, request, {name: part[None] for name, part in replies.items()}, len(there)
    )
    missing = {name: why for name, why in answers.missing.items() if name != SUM}
    return replace(answers, missing=missing, degraded=answers.degraded | (n_members < among))


def own_rounds(ensemble: Ensemble, name: str, values: NDArray[Any]) -> Floats:
    """What an organization makes of its answers (rounds, n, K): their sum as the rounds count, 0 where it
    knows nothing.
    """
    counted = SUM if name in ensemble.summed else name
    return added_rounds([counts.get(counted, 0.0) for counts in ensemble.coefficients], values)


def predict_sums(
    ensemble: Ensemble,
    organizations: Mapping[str, Organization],
    views: Mapping[str, Any],
    n_rows: int,
    driver: Driver,
    unknown: Mapping[str, Bools] | None = None,
) -> Answers:
    """The same with everybody in one process.

    Of a row that one of the members does not know nobody's answer is added up: the mean of all stands in.
    """
    unknown = unknown or {}
    lost = _lost(ensemble, views)
    asked = tuple(sorted({*ensemble.summed, *ensemble.asked()} - {SUM, *lost}))
    request = PredictRequest(ensemble.asked_rounds, asked, ensemble.track)
    said = ask_to_predict(ensemble, organizations, views, driver, request, unknown)
    failed = sorted(name for name, values in said.items() if not isinstance(values, np.ndarray))
    if failed:
        raise InvalidInputError(f"{failed[0]} could not answer: {said[failed[0]]}")
    together = {name: own_rounds(ensemble, name, said[name]) for name in ensemble.summed if name in said}
    there = np.ones(n_rows, dtype=np.bool_)
    for name in together:
        there &= ~unknown.get(name, np.zeros(n_rows, dtype=np.bool_))
    for part in together.values():  # of a row that one alone knows, the sum would be its answer
        part[~there] = 0.0
    total = _total(ensemble, Sums(len(lost)), together, (n_rows, ensemble.n_outputs))
    return accept_sum(ensemble, said.get(ensemble.label_holder or ""), total, there, len(together))


def _total(ensemble: Ensemble, sums: Sums, together: Mapping[str, Floats], shape: tuple[int, ...]) -> Floats:
    rates = [counts.get(SUM, 0.0) for counts in ensemble.coefficients]
    circle = LocalCircle.of(ensemble.summed, sums)
    units = ensemble.summed_units[: len(rates)] or [1.0] * len(rates)  # files of before have none
    unit = prediction_unit(rates, units)
    content = sha256_of(plain_bytes(["predict", rates, list(shape)]))
    said = np.stack([together[name] for name in sorted(together)], axis=1)
    rows = [sha256_of(one.tobytes()) for one in said]  # the same in every batch, as the ids of nodes are
    try:
        total, _ = circle.add_up(together, content, unit, rows)
    except RefusedError as error:
        wrong = "".join(f". {name}: {reason}" for name, reason in sorted(circle.refused.items()))
        raise InvalidInputError(f"the sum of the others cannot be opened: {error}{wrong}") from error
    return total


def _lost(ensemble: Ensemble, views: Mapping[str, Any]) -> set[str]:
    """Who dropped out of the sum in learning; an error where somebody else is not there."""
    lost = {name for done in ensemble.rounds for name in done.left_out if name in ensemble.summed}
    unasked = sorted(set(ensemble.summed) - set(views) - lost)
    if unasked:
        raise InvalidInputError(
            f"{', '.join(unasked)} not there: with secrecy='sums' a prediction is one sum of everybody, and "
            "another without one of them would give its answer away. Ask when all are there"
        )
    return lost


@dataclass(frozen=True)
class SummedModel(AssistedModel):
    """A model that was learned from sums; ``ensemble`` is what ``added_up`` makes of ``learned``."""

    learned: Ensemble = field(kw_only=True)

    def ask(self, table: Any, unasked: Unasked) -> Answers:
        """What the label holder's own organization adds for these rows, and what all others do together."""
        asked = [name for name in self.organizations if name not in unasked.organizations]
        views = {name: self.columns.view(table, name) for name in asked}
        with open_driver(self.n_jobs) as run:
            return predict_sums(
                self.learned, self.organizations, views, int(table.shape[0]), run, unasked.rows
            )

    def staged(self, table: Any, answers: Answers) -> Iterator[Floats]:  # noqa: ARG002
        """Not known: everybody adds up its own rounds first."""
        raise InvalidOptionError(
            "with secrecy='sums' everybody adds up its own rounds first, so that there are no predictions "
            "after each round: use predict"
        )
