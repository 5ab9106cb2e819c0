"""A label holder who asks not in order to learn, but to take an organization's columns away.

She may choose any residual. Every answer is a mixture of the organization's columns; enough of them span
what a linear model sees. How much of the columns is in the answers is measured from outside: columns are
regressed on the answers over half of the rows, and compared with what that gives on the other half.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV

from gal.core.requests import FitRequest, Terms
from gal.core.rows import assign_rows
from gal.engine.organization import Organization
from gal_bench.adversaries.attacked_tasks import MODELS
from gal_bench.data.splits import Split

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AskingPlan:
    """How she asks."""

    n_answers: int
    chosen: bool
    """Residuals at random, each as good as new; otherwise what is left of the labels after each answer."""
    noise: float = 0.0
    """On answers, in standard deviations of the answer itself."""


ASKINGS: Mapping[str, AskingPlan] = {
    "honest residuals, 5 answers": AskingPlan(5, chosen=False),
    "chosen residuals, 5 answers": AskingPlan(5, chosen=True),
    "chosen residuals, 50 answers": AskingPlan(50, chosen=True),
    "chosen, 50 answers, noise a tenth of them": AskingPlan(50, chosen=True, noise=0.1),
    "chosen, 50 answers, noise three times them": AskingPlan(50, chosen=True, noise=3.0),
}
"""Fifty is what policy.max_rounds allows of a version; noise is what privacy.answer_noise adds."""


def stolen_share(split: Split, model: str, asking: AskingPlan, seed: int) -> float:
    """The share of the variance of the columns that the answers give away, from 0 to 1."""
    name = list(split.organizations)[-1]
    columns = split.X_train[split.organizations[name]].to_numpy(float)
    answers = _answers(Organization(name, columns, MODELS[model]()), _residual(split), asking, seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(columns))
    known, unknown = order[: len(order) // 2], order[len(order) // 2 :]
    guess = RidgeCV(np.logspace(-6, 3, 10)).fit(answers[known], columns[known])
    left = ((columns[unknown] - guess.predict(answers[unknown]).reshape(len(unknown), -1)) ** 2).sum()
    spread = ((columns[unknown] - columns[known].mean(axis=0)) ** 2).sum()
    return float(np.clip(1 - left / spread, 0.0, 1.0))


def _residual(split: Split) -> Floats:
    y = np.asarray(split.y_train, dtype=np.float64)
    return np.asarray((y - y.mean()) / y.std())


def _answers(one: Organization, residual: Floats, asking: AskingPlan, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    rows: Any = assign_rows(len(residual), rng, fitted="in-sample")
    terms, found = Terms(rows, 1, asking.n_answers, seed), []
    for round in range(1, asking.n_answers + 1):
        sent = rng.normal(size=len(residual)) if asking.chosen else residual
        request = FitRequest(round, sent[:, None].astype(np.float32), (one.name,))
        said = one.fit(request, terms)[:, 0].astype(np.float64)
        residual = residual - 0.5 * said
        found.append(said + asking.noise * said.std() * rng.normal(size=len(said)))
    return np.column_stack(found)
