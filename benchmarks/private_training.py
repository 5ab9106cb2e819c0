"""Would it pay to train linear local models with differential privacy, for what answers tell of other rows?

    GAL_DATA=... python benchmarks/private_training.py [--sets Diabetes ...] [--seeds 5] [--rows 20000]

A model that answers for one row has learned from the others. Here an assisting organization's ridge is fitted
from noisy sums: columns are standardised and rows cut to a length, residuals cut at +-3, the sums
x x' and x r get Gaussian noise, and all rounds together cost (epsilon, 1e-6) for one row's columns replaced
by any others (what the row's residual is, the label holder knows). Means and spreads are taken for public,
which favours it. The label holder's own model has no noise: it answers to nobody else.

Printed: R2 or AUC on rows that nobody learned from, alone, with a plain ridge, and with noise; and R2 of the
organization's columns in its answers, found by a label holder who knows 50 rows.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gal import GALClassifier, GALRegressor
from gal.privacy import SeededNoise
from gal.privacy.accounting import gaussian_multiplier
from gal.privacy.leakage import Transcript, columns_from_answers
from gal.privacy.leakage.reconstruction import numbers_of
from gal_bench.data.datasets import load
from gal_bench.data.splits import per_seed

Floats = NDArray[np.float64]
EPSILONS = (16.0, 8.0, 4.0, 2.0, 1.0)
DELTA = 1e-6
ROUNDS = 10
KNOWN = 50
CUT = 3.0
"""Of residuals, whose root mean square is 1."""


class NoisyRidge(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A ridge regression from sums with noise; all ``fits`` together cost (epsilon, 1e-6) for one row.

    The sums x x' and x r of one fit are one Gaussian release: scaled so that each moves by at most 1 when a
    row of length at most ``length`` is replaced, both together move by at most the square root of 2.
    """

    def __init__(self, epsilon: float, fits: int = ROUNDS, seed: int = 0) -> None:
        self.epsilon, self.fits, self.seed = epsilon, fits, seed

    def fit(self, X: Any, y: Any) -> NoisyRidge:
        table, target = np.asarray(X, dtype=np.float64), np.clip(np.ravel(y), -CUT, CUT)
        width = table.shape[1]
        length = math.sqrt(width)
        rows = _cut(table, length)
        noise = SeededNoise([self.seed, round(1e6 * float(np.abs(target).sum()))])
        deviation = gaussian_multiplier(self.epsilon, DELTA, self.fits) * math.sqrt(2)
        squares = math.sqrt(2) * length**2  # how far x x' and x r move
        products = 2 * length * CUT
        upper = np.triu(noise.gaussian(rows.T @ rows, deviation * squares))
        gram = upper + np.triu(upper, 1).T
        sums = noise.gaussian(rows.T @ target, deviation * products)
        least = float(np.linalg.eigvalsh(gram)[0])
        floor = deviation * squares * math.sqrt(width)
        self.coef_ = np.linalg.solve(gram + max(1.0, floor - least) * np.eye(width), sums)
        return self

    def predict(self, X: Any) -> Floats:
        table = np.asarray(X, dtype=np.float64)
        return np.asarray(_cut(table, math.sqrt(table.shape[1])) @ self.coef_, dtype=np.float64)


def _cut(table: Floats, length: float) -> Floats:
    """Rows no longer than this."""
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table * np.minimum(1.0, length / np.maximum(lengths, 1e-12)))


def trained(name: str, seed: int, epsilon: float | None, most: int) -> tuple[float, float]:
    """The score with an assistant whose model has this epsilon (0: there is no assistant), and R2 of its
    columns in its answers.
    """
    data = load(name)
    split = per_seed(data, 2, seed)
    chosen = np.random.default_rng(seed).permutation(len(split.y_train))[:most]
    table = split.X_train.iloc[chosen].select_dtypes("number")
    table, y = table.fillna(table.mean()), split.y_train[chosen]
    holder, lab = split.organizations
    parts = {one: [c for c in split.organizations[one] if c in table] for one in (holder, lab)}
    model = Ridge() if not epsilon else NoisyRidge(epsilon, seed=seed)
    models: dict[str, Any] = {holder: make_pipeline(StandardScaler(), Ridge())}
    models[lab] = make_pipeline(StandardScaler(), model)
    asked = parts if epsilon != 0 else {holder: parts[holder]}
    transcript = Transcript()
    made = (GALClassifier if data.classes else GALRegressor)(
        asked,
        local_models={one: models[one] for one in asked},
        rounds=ROUNDS,
        cross_validation=0,
        validation_fraction=0,
        fitted="in-sample",
        closing=False,
        patience=None,
        random_state=seed,
        on_message=transcript,
    ).fit(table, y)
    test = split.X_test[list(table)].fillna(table.mean())
    if data.classes:
        score = float(roc_auc_score(split.y_test, made.predict_proba(test)[:, 1]))
    else:
        score = float(r2_score(split.y_test, made.predict(test)))
    if epsilon == 0:
        return score, math.nan
    sent = transcript.sent(made.task_rows_, holder)
    rng = np.random.default_rng(seed)
    places = rng.permutation(len(sent.rows))[:1000]
    known = np.arange(len(places)) < KNOWN
    view, own = table[parts[lab]].iloc[sent.rows[places]], numbers_of(table[parts[holder]])[sent.rows[places]]
    read = columns_from_answers({lab: sent.answers[lab][places]}, {lab: view}, own, known, rng)
    return score, float(np.mean([max(0.0, one.with_messages.value) for one in read]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["Diabetes", "QSAR", "CreditDefault"], metavar="SET")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000)
    chosen = parser.parse_args()
    print("| table | rows | alone | plain | " + " | ".join(f"ε = {one:g}" for one in EPSILONS) + " |")
    print("|---|---:|" + "---:|" * (2 + len(EPSILONS)))
    for name in chosen.sets:
        rows = min(chosen.rows, len(per_seed(load(name), 2, 0).y_train))
        cells, told = [], []
        for epsilon in (0, None, *EPSILONS):
            found = np.array([trained(name, seed, epsilon, chosen.rows) for seed in range(chosen.seeds)])
            cells.append(f"{found[:, 0].mean():.3f}")
            told.append("" if epsilon == 0 else f"{found[:, 1].mean():.2f}")
        print(f"| {name} | {rows} | {' | '.join(cells)} |")
        print(f"| columns in its answers | | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
