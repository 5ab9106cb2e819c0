"""A model that was learned with assistance: its organizations, and the use of their replies.

F^T(x) = F^0(x) + the sum of the organizations' replies; a stacker or private refit of the label holder, where
there is one, takes the same replies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gal.core.coalition_values import StoredReplies
from gal.core.passes import added_by_name
from gal.core.prediction import (
    answers_by_round,
    final_output,
    first_output,
    probe_answers,
    stacked_output,
    staged_outputs,
)
from gal.core.replies import LocalPredictions
from gal.core.state import Ensemble
from gal.errors import InvalidInputError, LocalModelError
from gal.learner.columns import DividedColumns, row_mask
from gal.learner.drivers import drive_prediction, open_driver
from gal.learner.initial import ScoreColumn
from gal.learner.organization import Organization

if TYPE_CHECKING:  # learning and predicting with arrays do without pandas
    import pandas as pd

Floats = NDArray[np.float64]


class Unasked(NamedTuple):
    """Organizations that do not reply, and rows that others do not know."""

    organizations: frozenset[str] = frozenset()
    rows: Mapping[str, NDArray[np.bool_]] = {}


@dataclass(frozen=True)
class AssistedModel:
    """What prediction needs of the label holder, and the organizations with their fitted models."""

    ensemble: Ensemble
    organizations: Mapping[str, Organization]
    columns: DividedColumns
    initial: str | ScoreColumn
    """F^0: a word, for all rows the same, or a column."""
    refit: Any = None
    """A ``gal.privacy.refit.PrivateRefit``, which takes the place of the sum under a privacy guarantee."""
    n_jobs: int | None = None

    def ask(self, table: Any, unasked: Unasked) -> LocalPredictions:
        """The organizations' replies for these rows; an error where one of them fails."""
        names = [name for name in self.ensemble.requested() if name not in unasked.organizations]
        answers = self._replies(self.ensemble, table, names, unasked.rows)
        failed = [name for name in answers.missing if name not in unasked.organizations]
        if failed:
            reasons = "; ".join(f"{name} {answers.missing[name]}" for name in failed)
            raise LocalModelError(f"{reasons}. Pass missing={failed} to predict without.")
        return answers

    def output(self, table: Any, answers: LocalPredictions) -> Floats:
        """The outputs (n, K) of the whole model."""
        return self._own(final_output(self.ensemble, answers, self._first(table)), answers, table)

    def staged(self, table: Any, answers: LocalPredictions) -> Iterator[Floats]:
        """The outputs after each round; after the last, those of the whole model."""
        rounds = self.ensemble.n_rounds
        if rounds == 0:
            yield first_output(self.ensemble, len(answers.degraded), self._first(table))
        for done, output in enumerate(staged_outputs(self.ensemble, answers, self._first(table)), 1):
            yield self._own(output, answers, table) if done == rounds else output

    def parts(self, table: Any, answers: LocalPredictions) -> dict[str, Floats]:
        """What each organization adds, as deviation from its own average; "base" has the averages."""
        nothing = np.zeros((len(answers.degraded), self.ensemble.n_outputs))
        added = {name: nothing.copy() for name in self.ensemble.organizations}
        added |= added_by_name(self.ensemble.coefficients, answers_by_round(self.ensemble, answers))
        base = first_output(self.ensemble, len(answers.degraded), self._first(table)).copy()
        for name, part in added.items():
            average = mean_added(self.ensemble, name)
            part -= average
            base += average
        parts = {"base": base, **added}
        own = self.ensemble.stacker, self.ensemble.probes, self.refit
        if any(one is not None for one in own):
            output = final_output(self.ensemble, answers, self._first(table))
            name = "stacker" if self.refit is None else "private refit"
            parts[name] = self._own(output, answers, table) - output
        return parts

    def stored(self, table: Any, answers: LocalPredictions) -> StoredReplies:
        """The answers, from which outputs without some of the organizations are estimated."""
        first = first_output(self.ensemble, len(answers.degraded), self._first(table))
        replies = answers_by_round(self.ensemble, answers)
        parts = added_by_name(self.ensemble.coefficients, replies)
        refitted = None if self.refit is None else self.output(table, answers)
        models = self.ensemble.stacker, self.ensemble.probes, probe_answers(self.ensemble, answers)
        return StoredReplies(first, parts, replies, *models, refitted)

    def _own(self, output: Floats, answers: LocalPredictions, table: Any) -> Floats:
        """F^T as the label holder's own models move it; with privacy, the output of the private refit."""
        if self.refit is None:
            return stacked_output(self.ensemble, answers, output, self._first(table))
        own_output = None
        if self.refit.own is not None:  # its own model predicts from its own columns: nothing is sent
            ensemble: Ensemble = self.refit.own.ensemble
            there = [name for name in ensemble.requested() if name not in answers.missing]
            own_replies = self._replies(ensemble, table, there)
            own_output = stacked_output(ensemble, own_replies, final_output(ensemble, own_replies))
        refitted: Floats = self.refit.output(answers_by_round(self.ensemble, answers), own_output)
        return refitted

    def _replies(
        self,
        ensemble: Ensemble,
        table: Any,
        names: Sequence[str],
        unknown: Mapping[str, NDArray[np.bool_]] | None = None,
    ) -> LocalPredictions:
        views = {name: self.columns.view(table, name) for name in names}
        with open_driver(self.n_jobs) as run:
            return drive_prediction(ensemble, self.organizations, views, int(table.shape[0]), run, unknown)

    def _first(self, table: Any) -> Floats | None:
        return self.initial.output(table) if isinstance(self.initial, ScoreColumn) else None


def mean_added(ensemble: Ensemble, name: str) -> Floats:
    """What an organization, or all in a sum together, added in learning on average, shape (K,)."""
    total = np.zeros(ensemble.n_outputs)
    for counts, done in zip(ensemble.coefficients, ensemble.rounds, strict=False):
        total += counts.get(name, 0.0) * np.asarray(done.mean_fitted.get(name, 0.0))
    return total


def read_missing(missing: Any, organizations: Sequence[str], X: Any) -> Unasked:
    """Read the option ``missing``: names of organizations, or the rows that each does not know."""
    if missing is None:
        return Unasked()
    by_row = dict(missing) if isinstance(missing, Mapping) else {}
    names = set(by_row) if by_row else {missing} if isinstance(missing, str) else set(missing)
    unknown = sorted(names - set(organizations))
    if unknown:
        raise InvalidInputError(
            f"missing names {', '.join(map(repr, unknown))}, but the organizations are "
            f"{', '.join(organizations)}"
        )
    n_rows = int(X.shape[0]) if hasattr(X, "shape") else len(X)
    masks = {name: row_mask(name, rows, n_rows) for name, rows in by_row.items()}
    unasked = {name for name, rows in masks.items() if rows.all()} if by_row else names
    return Unasked(frozenset(unasked), masks)


def frame_of_parts(parts: Mapping[str, Floats], outputs: Sequence[Any], index: Any) -> pd.DataFrame:
    """One column per part (n, 1), or pairs (part, output) where there are several outputs."""
    import pandas as pd

    if parts["base"].shape[1] == 1:
        return pd.DataFrame({name: part[:, 0] for name, part in parts.items()}, index=index)
    return pd.DataFrame(
        {(name, output): part[:, k] for name, part in parts.items() for k, output in enumerate(outputs)},
        index=index,
    )
