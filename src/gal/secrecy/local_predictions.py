"""Predicting from sums in one process: each organization adds up its own rounds, then all of them are added.

The label holder gets one number per row and output for all others together, whatever the number of rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.replies import Answers
from gal.core.requests import PredictRequest
from gal.core.state import ByName, Ensemble
from gal.engine.assisted_model import AssistedModel, Unasked
from gal.engine.drivers import Driver, ask_to_predict, open_driver
from gal.engine.organization import Organization
from gal.errors import InvalidInputError, InvalidOptionError, RefusedError
from gal.secrecy.contents import added_rounds, prediction_unit
from gal.secrecy.masks import sha256_of
from gal.secrecy.messages import plain_bytes
from gal.secrecy.summing import LocalCircle, count
from gal.secrecy.terms import SUM, Sums

Floats = NDArray[np.float64]


def added_up(ensemble: Ensemble) -> Ensemble:
    """The same model as one round, in which everybody has added up its own rounds already."""
    asked = ensemble.asked()
    means = {name: tuple(mean_total(ensemble, name)) for name in asked}
    rounds = tuple(replace(done, mean_fitted=ByName(means)) for done in ensemble.rounds[:1])
    return replace(ensemble, coefficients=(ByName(dict.fromkeys(asked, 1.0)),), rounds=rounds)


def mean_total(ensemble: Ensemble, name: str) -> Floats:
    """What an organization, or all in the sum together, added in learning on average, shape (K,)."""
    total = np.zeros(ensemble.n_outputs)
    for counts, done in zip(ensemble.coefficients, ensemble.rounds, strict=False):
        total += counts.get(name, 0.0) * np.asarray(done.mean_fitted.get(name, 0.0))
    return total


def predict_sums(
    ensemble: Ensemble,
    organizations: Mapping[str, Organization],
    views: Mapping[str, Any],
    n_rows: int,
    driver: Driver,
    unknown: Mapping[str, NDArray[np.bool_]] | None = None,
) -> Answers:
    """What everybody adds to F^T, for the model that ``added_up`` makes of this one.

    Who dropped out is stood in for by the mean of what a member of the sum added in learning; the label
    holder does not know its own mean. Of a row that one of them does not know nobody's answer is added up:
    the mean of all stands in.
    """
    unknown = unknown or {}
    lost = _lost(ensemble, views)
    asked = tuple(sorted({*ensemble.summed, *ensemble.asked()} - {SUM, *lost}))
    request = PredictRequest(ensemble.asked_rounds, asked, ensemble.track)
    said = ask_to_predict(ensemble, organizations, views, driver, request, unknown)
    shape = n_rows, ensemble.n_outputs
    parts = {name: _own_rounds(ensemble, name, values) for name, values in said.items()}
    failed = sorted(name for name, part in parts.items() if part is None)
    if failed:
        raise InvalidInputError(f"{failed[0]} could not answer: {said[failed[0]]}")
    together = {name: part for name, part in parts.items() if name in ensemble.summed and part is not None}
    lacking = np.zeros(n_rows, dtype=np.bool_)
    for name in together:
        lacking |= unknown.get(name, False)
    for part in together.values():  # of a row that one alone knows, the sum would be its answer
        part[lacking] = 0.0
    total = _total(ensemble, Sums(len(lost)), together, shape) / len(ensemble.summed)
    mean, gone = mean_total(ensemble, SUM) / len(ensemble.summed), set(ensemble.summed) - set(together)
    absent = np.where(lacking, len(ensemble.summed), len(gone))
    total = np.where(lacking[:, None], 0.0, total) + absent[:, None] * mean
    values = {SUM: total[None].astype(np.float32)}
    degraded = absent > 0
    holder = ensemble.label_holder
    if holder is not None and holder in ensemble.asked():
        own = parts.get(holder)
        rows = np.full(n_rows, own is None) | unknown.get(holder, False)
        own_part = np.zeros(shape) if own is None else own
        values[holder] = np.where(rows[:, None], mean_total(ensemble, holder), own_part)[None].astype(
            np.float32
        )
        degraded = degraded | rows
    missing = {name: "did not answer" for name in asked if name not in parts}
    return Answers(values, missing, degraded)


def _own_rounds(ensemble: Ensemble, name: str, values: Any) -> Floats | None:
    """What an organization makes of its answers (rounds, n, K): their sum as the rounds count, 0 where it
    knows nothing; None where it failed.
    """
    if not isinstance(values, np.ndarray):
        return None
    counted = SUM if name in ensemble.summed else name
    return added_rounds([counts.get(counted, 0.0) for counts in ensemble.coefficients], values)


def _total(ensemble: Ensemble, sums: Sums, together: Mapping[str, Floats], shape: tuple[int, ...]) -> Floats:
    rates = [counts.get(SUM, 0.0) for counts in ensemble.coefficients]
    circle = LocalCircle.of(ensemble.summed, sums)
    units = ensemble.summed_units[: len(rates)] or [1.0] * len(rates)  # files of before have none
    unit = prediction_unit(rates, units)
    content = sha256_of(plain_bytes(["predict", rates, list(shape)]))
    said = np.stack([together[name] for name in sorted(together)], axis=1)
    rows = [sha256_of(one.tobytes()) for one in said]  # the same in every batch, as the ids of nodes are
    try:
        total, _ = circle.add_up(together, content, unit, partial(count, None), rows)
    except RefusedError as error:
        raise InvalidInputError(f"the sum of the others cannot be opened: {error}") from error
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
        with open_driver("joblib", self.n_jobs) as run:
            return predict_sums(
                self.learned, self.organizations, views, int(table.shape[0]), run, unasked.rows
            )

    def staged(self, table: Any, answers: Answers) -> Iterator[Floats]:  # noqa: ARG002
        """Not known: everybody adds up its own rounds first."""
        raise InvalidOptionError(
            "with secrecy='sums' everybody adds up its own rounds first, so that there are no predictions "
            "after each round: use predict"
        )
