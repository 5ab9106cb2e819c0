"""Checks of the demo: the same learning in one process, scores alone and pooled, what attacks find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.core.algorithm import predict
from gal.core.prediction import final_output
from gal.core.requests import FitRequest, PredictRequest, Terms
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.engine.drivers import drive_learning
from gal.engine.labels import regression_labels
from gal.engine.options import Options
from gal.engine.organization import Organization
from gal.engine.task_making import make_task
from gal.node.agreement.request_arrays import role_arrays, shared_rows
from gal.node.holder.shared_rows import SharedRows, fill_unknown

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
KNOWN_ROWS = 40
"""Rows whose columns the label holder knows when it attacks fitted values."""
WORKED_OUT = 0.99
"""R2 from which a column counts as worked out."""
RESAMPLES = 2000
ENDS = (0.025, 0.975)


@dataclass
class InOneProcess:
    """Organizations that know some of the rows, asked one after another by function calls."""

    tables: Mapping[str, pd.DataFrame]
    """By organization: its columns, with row ids as index."""
    residuals: list[Floats] = field(default_factory=list)
    """As sent in each round, of all learned rows."""
    fitted: dict[str, list[Floats]] = field(default_factory=dict)
    """As the label holder received them, by organization; those of all folds too."""

    def run(self, ids: NDArray[Any], y: Floats, new: NDArray[Any], rounds: int) -> tuple[Ensemble, Floats]:
        """Learn these rows, the label holder being the last organization, and predict the new ones."""
        names = list(self.tables)
        labels = regression_labels(y, Options(rounds=rounds, closing=False))
        task = make_task(labels, names, Options(rounds=rounds, closing=False), label_holder=names[-1], seed=0)
        known = {name: np.isin(ids, self.tables[name].index) for name in names}
        views = {name: self._view(name, ids[known[name]]) for name in names}
        self._members = {name: Organization(name, view) for name, view in views.items()}

        def asking(_: Any, __: Any, ___: Any, requests: Sequence[Any]) -> list[Mapping[str, Any]]:
            return [
                {name: self._fit(name, task, one, known[name]) for name in one.organizations}
                for one in requests
            ]

        ensemble = drive_learning(task, self._members, asking=asking)
        return ensemble, self._predict(ensemble, new)

    def _view(self, name: str, ids: NDArray[Any]) -> Floats:
        return np.ascontiguousarray(self.tables[name].loc[ids].to_numpy(dtype=np.float64))

    def _fit(self, name: str, task: Task, request: FitRequest, known: Bools) -> Any:
        """One organization's fitted values of all rows: its mean stands in for rows that it does not know."""
        rows = shared_rows(role_arrays(task.rows), known)
        asked = task.terms.rows_for(request).fit
        part = replace(request, residual=request.residual[np.flatnonzero(known[asked])])
        terms = Terms(rows, task.terms.n_outputs, task.terms.rounds, task.terms.seed)
        values = self._members[name].fit(part, terms)
        if request.track == "assisted":
            self.fitted.setdefault(name, []).append(np.asarray(values, dtype=np.float64))
            if request.part is None and len(self.residuals) < request.round:
                self.residuals.append(request.residual.astype(np.float64))
        return fill_unknown(values, SharedRows(known, ""), task.rows)

    def _predict(self, ensemble: Ensemble, new: NDArray[Any]) -> Floats:
        steps = predict(ensemble, len(new))
        request = next(steps)
        replies = {name: self._values(name, request, new) for name in request.organizations}
        try:
            steps.send(replies)
        except StopIteration as end:
            return final_output(ensemble, end.value)[:, 0]
        raise AssertionError("a prediction asks once")

    def _values(self, name: str, request: PredictRequest, new: NDArray[Any]) -> Any:
        known = np.isin(new, self.tables[name].index)
        said = self._members[name].predict(request, 1, self._view(name, new[known]))
        values = np.full((len(request.rounds), len(new), 1), np.nan, dtype=np.float32)
        values[:, known] = said
        return values


@dataclass(frozen=True)
class Revealed:
    """What attacks find in plain residuals and fitted values."""

    labels: int
    """Labels that a partner works out exactly from the residuals of round 1 and two labels that it knows."""
    of_labels: int
    columns: int
    """Columns that the label holder works out from fitted values and some rows that it knows."""
    of_columns: int
    known_rows: int


def revealed(one: InOneProcess, ids: NDArray[Any], y: Floats, holder: str) -> Revealed:
    """Attack what the organizations sent while they learned these rows."""
    partners = [name for name in one.tables if name != holder]
    found = [worked_out(one, name, ids, y, holder) for name in partners]
    n_columns = sum(one.tables[name].shape[1] for name in partners)
    return Revealed(labels_from(one.residuals[0][:, 0], y), len(y), sum(found), n_columns, KNOWN_ROWS)


def labels_from(residual: Floats, y: Floats) -> int:
    """How many whole labels follow from a residual by a straight line through two labels that are known."""
    low, high = int(np.argmin(residual)), int(np.argmax(residual))
    slope = (y[high] - y[low]) / (residual[high] - residual[low])
    return int((np.abs(y[low] + slope * (residual - residual[low]) - y) < 0.5).sum())


def worked_out(one: InOneProcess, name: str, ids: NDArray[Any], y: Floats, holder: str) -> int:
    """How many columns of an organization the label holder works out from its fitted values."""
    from gal.privacy.leakage import columns_from_answers

    there = np.isin(ids, one.tables[name].index)
    rows, rng = ids[there], np.random.default_rng(0)
    known = np.zeros(len(rows), dtype=np.bool_)
    known[rng.permutation(len(rows))[:KNOWN_ROWS]] = True
    own = np.column_stack([one.tables[holder].loc[rows].to_numpy(dtype=np.float64), y[there]])
    values = {name: np.stack(one.fitted[name], axis=1)}
    found = columns_from_answers(values, {name: one.tables[name].loc[rows]}, own, known, rng)
    return sum(column.with_messages.value >= WORKED_OUT for column in found)


def baseline_predictions(
    table: pd.DataFrame, y: Floats, parts: Mapping[str, list[str]], train: Any, test: Any, rounds: int
) -> tuple[Floats, Floats, str]:
    """Predictions for the test rows: the label holder (the first) alone, the best pooled model; its name."""
    from gal_bench.baselines import METHODS

    names = {name: list(columns) for name, columns in parts.items()}
    setting: dict[str, Any] = {
        "classes": False,
        "organizations": names,
        "label_holder": next(iter(names)),
        "rounds": rounds,
        "random_state": 0,
    }
    fitted: dict[str, Any] = {
        name: METHODS[name](**setting).fit(table.iloc[train], y[train]) for name in ("alone", "pooled")
    }
    alone, pooled = (np.asarray(one.predict(table.iloc[test])) for one in fitted.values())
    return alone, pooled, str(fitted["pooled"].chosen_)


def gain_interval(y: Floats, alone: Floats, assisted: Floats) -> tuple[float, float]:
    """95 % bootstrap interval of how much higher R2 is with assistance; both on the same resamples."""
    from gal.evaluate.metrics import r2

    drawn = np.random.default_rng(0).integers(0, len(y), (RESAMPLES, len(y)))
    low, high = np.quantile([r2(y[rows], assisted[rows]) - r2(y[rows], alone[rows]) for rows in drawn], ENDS)
    return float(low), float(high)
