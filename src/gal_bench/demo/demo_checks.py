"""Checks of the demo: the same learning in one process, and what alone and pooled would give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.core.algorithm import learn, predict
from gal.core.prediction import final_output
from gal.core.requests import FitRequest, PredictRequest, Terms
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.engine.labels import regression_labels
from gal.engine.options import Options
from gal.engine.organization import Organization
from gal.engine.task_making import make_task
from gal.node.agreement.request_arrays import role_arrays, shared_rows
from gal.node.holder.shared_rows import SharedRows, fill_unknown

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass
class InOneProcess:
    """Organizations that know some of the rows, asked one after another by function calls."""

    tables: Mapping[str, pd.DataFrame]
    """By organization: its columns, with row ids as index."""

    def run(self, ids: NDArray[Any], y: Floats, new: NDArray[Any], rounds: int) -> tuple[Ensemble, Floats]:
        """Learn these rows, the label holder being the last organization, and predict the new ones."""
        names = list(self.tables)
        labels = regression_labels(y, Options(rounds=rounds, closing=False))
        task = make_task(labels, names, Options(rounds=rounds, closing=False), label_holder=names[-1], seed=0)
        known = {name: np.isin(ids, self.tables[name].index) for name in names}
        views = {name: self._view(name, ids[known[name]]) for name in names}
        self._members = {name: Organization(name, view) for name, view in views.items()}
        ensemble = self._learn(task, known)
        return ensemble, self._predict(ensemble, new)

    def _view(self, name: str, ids: NDArray[Any]) -> Floats:
        return np.ascontiguousarray(self.tables[name].loc[ids].to_numpy(dtype=np.float64))

    def _learn(self, task: Task, known: Mapping[str, Bools]) -> Ensemble:
        steps = learn(task)
        try:
            requests = next(steps)
            while True:
                requests = steps.send(
                    [
                        {name: self._fit(name, task, one, known[name]) for name in one.organizations}
                        for one in requests
                        if isinstance(one, FitRequest)
                    ]
                )
        except StopIteration as end:
            ensemble: Ensemble = end.value
            return ensemble

    def _fit(self, name: str, task: Task, request: FitRequest, known: Bools) -> Any:
        """One organization's fitted values of all rows: its mean stands in for rows that it does not know."""
        rows = shared_rows(role_arrays(task.rows), known)
        asked = task.terms.rows_for(request).fit
        part = replace(request, residual=request.residual[np.flatnonzero(known[asked])])
        terms = Terms(rows, task.terms.n_outputs, task.terms.rounds, task.terms.seed)
        values = self._members[name].fit(part, terms)
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


def left_out_scores(
    table: pd.DataFrame, y: Floats, parts: Mapping[str, list[str]], train: Any, test: Any, rounds: int
) -> tuple[float, float, str]:
    """R2 on the test rows of the label holder (the first) alone and of the best
    pooled model, and which that is.
    """
    from gal.evaluate.baselines import METHODS
    from gal.evaluate.metrics import r2

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
    alone, pooled = (r2(y[test], np.asarray(one.predict(table.iloc[test]))) for one in fitted.values())
    return alone, pooled, str(fitted["pooled"].chosen_)
