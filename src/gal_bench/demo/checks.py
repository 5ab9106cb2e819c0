"""Checks of the demo: learning in one process, scores alone and pooled, attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.core.state import Ensemble
from gal.functional import predict
from gal.learner.drivers import drive_learning
from gal.learner.labels import regression_labels
from gal.learner.options import Options
from gal.learner.organization import Organization
from gal.learner.task_making import make_task

Floats = NDArray[np.float64]
KNOWN_ROWS = 40
"""Rows whose columns the label holder knows when it attacks fitted values."""
WORKED_OUT = 0.99
"""R2 from which a column counts as worked out."""
RESAMPLES = 2000
ENDS = (0.025, 0.975)


@dataclass
class InOneProcess:
    """Organizations that reply in this process; the last one is the label holder."""

    tables: Mapping[str, pd.DataFrame]
    """By organization: its columns of all rows."""
    residuals: list[Floats] = field(default_factory=list)
    """As sent in each round, of all learned rows."""
    fitted: dict[str, list[Floats]] = field(default_factory=dict)
    """As the label holder received them, by organization; those of all folds too."""

    def run(
        self, learned: NDArray[Any], y: Floats, new: NDArray[Any], rounds: int
    ) -> tuple[Ensemble, Floats]:
        """Learn the rows at these positions, and predict the new ones."""
        options = Options(rounds=rounds, stacking=False)
        members = {name: Organization(name, view) for name, view in self._views(learned).items()}
        task = make_task(
            regression_labels(y, options), list(members), options, label_holder=list(members)[-1], seed=0
        )
        ensemble = drive_learning(task, members, on_message=self._note)
        return ensemble, predict(ensemble, list(members.values()), self._views(new)).output[:, 0]

    def _views(self, rows: NDArray[Any]) -> dict[str, Floats]:
        return {
            name: np.ascontiguousarray(table.to_numpy(dtype=np.float64)[rows])
            for name, table in self.tables.items()
        }

    def _note(self, requests: Sequence[Any], replies: Sequence[Mapping[str, Any]]) -> None:
        for request, received in zip(requests, replies, strict=True):
            if request.track == "assisted":
                for name, values in received.items():
                    self.fitted.setdefault(name, []).append(np.asarray(values, dtype=np.float64))
                if request.fold is None and len(self.residuals) < request.round:
                    self.residuals.append(request.residual.astype(np.float64))


# --- what attacks find in plain residuals and fitted values


def revealed(one: InOneProcess, learned: NDArray[Any], y: Floats) -> dict[str, int]:
    """How many labels a partner works out exactly from the residuals of round 1 and two labels that it knows;
    how many columns the label holder works out from fitted values and some rows that it knows.
    """
    *partners, _ = one.tables
    return {
        "labels": labels_from(one.residuals[0][:, 0], y),
        "of_labels": len(y),
        "columns": sum(n_reconstructed(one, name, learned, y) for name in partners),
        "of_columns": sum(one.tables[name].shape[1] for name in partners),
        "known_rows": KNOWN_ROWS,
    }


def labels_from(residual: Floats, y: Floats) -> int:
    """The number of labels on the straight line through two known labels, drawn from a residual."""
    low, high = int(np.argmin(residual)), int(np.argmax(residual))
    slope = (y[high] - y[low]) / (residual[high] - residual[low])
    return int((np.abs(y[low] + slope * (residual - residual[low]) - y) < 0.5).sum())


def n_reconstructed(one: InOneProcess, name: str, learned: NDArray[Any], y: Floats) -> int:
    """The number of columns of an organization that the label holder reconstructs from its fitted values."""
    from gal.privacy.leakage import columns_from_replies

    known, rng = np.zeros(len(learned), dtype=np.bool_), np.random.default_rng(0)
    known[rng.permutation(len(learned))[:KNOWN_ROWS]] = True
    *_, holder = one.tables.values()
    own = np.column_stack([holder.iloc[learned].to_numpy(dtype=np.float64), y])
    values = {name: np.stack(one.fitted[name], axis=1)}
    found = columns_from_replies(values, {name: one.tables[name].iloc[learned]}, own, known, rng)
    return sum(column.with_messages.value >= WORKED_OUT for column in found)


# --- scores


def baseline_predictions(
    table: pd.DataFrame, y: Floats, parts: Mapping[str, list[str]], train: Any, test: Any, rounds: int
) -> tuple[Floats, Floats, str]:
    """Predictions for the test rows: the label holder (the first) alone, the best pooled model; its name."""
    from gal_bench.baselines import METHODS

    made: Any = {
        name: METHODS[name](classes=False, organizations=dict(parts), rounds=rounds, random_state=0)
        for name in ("alone", "pooled")
    }
    fitted = {name: one.fit(table.iloc[train], y[train]) for name, one in made.items()}
    alone, pooled = (np.asarray(one.predict(table.iloc[test])) for one in fitted.values())
    return alone, pooled, str(fitted["pooled"].chosen_)


def gain_interval(y: Floats, alone: Floats, assisted: Floats) -> tuple[float, float]:
    """95 % bootstrap interval of how much higher R2 is with assistance; both on the same resamples."""
    from gal.evaluate.metrics import r2

    drawn = np.random.default_rng(0).integers(0, len(y), (RESAMPLES, len(y)))
    low, high = np.quantile([r2(y[rows], assisted[rows]) - r2(y[rows], alone[rows]) for rows in drawn], ENDS)
    return float(low), float(high)
