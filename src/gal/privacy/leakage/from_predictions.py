"""What predictions tell whoever gets them: whether a row was learned from, and what its columns are.

A model errs less on rows that it has seen. Whoever knows a row's label and gets its prediction guesses from
the error whether it was among them (Yeom et al. 2018). A prediction is also a function of the row's columns,
of all organizations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from gal.privacy.leakage.reconstruction import Reconstruction, columns_from_answers

Floats = NDArray[np.float64]
RESAMPLES = 300
KNOWN = 50
"""Rows whose columns teach the attacker to read predictions."""
FEWEST = 20
"""Fewer rows teach nothing, and say nothing."""
WHOEVER = "whoever gets predictions"


@dataclass(frozen=True)
class Membership:
    """How well rows that were learned from are told from others: AUC (0.5: by chance), interval of 95 %."""

    auc: float
    low: float
    high: float
    learned: int
    others: int

    def __str__(self) -> str:
        return f"{self.auc:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class PredictionsTell:
    """What could be made of the predictions of one model."""

    membership: Membership
    columns: tuple[Reconstruction, ...] = ()
    """Of all organizations, in rows that were not learned from."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"membership": asdict(self.membership), "columns": [one.to_json() for one in self.columns]}


def membership_from_predictions(learned: Floats, others: Floats, rng: np.random.Generator) -> Membership:
    """From the errors of predictions of rows that were learned from (n,), and of others (m,)."""
    drawn = [
        _auc(rng.choice(learned, len(learned)), rng.choice(others, len(others))) for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Membership(_auc(learned, others), float(low), float(high), len(learned), len(others))


def _auc(smaller: Floats, larger: Floats) -> float:
    """How often one of the first is below one of the second; ties count half."""
    second = np.repeat([False, True], [len(smaller), len(larger)])
    return float(roc_auc_score(second, np.concatenate([smaller, larger])))


def columns_from_predictions(
    output: Floats, views: Mapping[str, Any], rng: np.random.Generator
) -> list[Reconstruction]:
    """How well each column is found in predictions (n, K) of the same rows, some of which are known."""
    n = len(output)
    if n < 2 * FEWEST:
        return []
    known = np.zeros(n, dtype=np.bool_)
    known[rng.choice(n, min(KNOWN, n // 2), replace=False)] = True
    found: list[Reconstruction] = []
    for name, view in views.items():
        answers, nothing = {name: output[:, None, :]}, np.empty((n, 0))
        found += columns_from_answers(answers, {name: view}, nothing, known, rng, by=WHOEVER)
    return found
