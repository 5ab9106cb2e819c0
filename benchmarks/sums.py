"""What sums cost instead of answers: bytes and seconds of a round, beside plain learning; printed only.

    python benchmarks/sums.py [--rows 200000] [--organizations 3 7] [--rounds 3] [--seeds 5]
    python benchmarks/sums.py --scores [--organizations 3 7] [--seeds 5]

Bytes and differences are those of two learnings in one process, with equal weights and linear models.
``differs`` is the largest difference of two predictions, as a share of the label's spread; ``moved`` is the
same between two plain learnings, one of them of labels that are moved by half a bit of 32. Seconds are what a
sum takes beyond plain learning: of all parties one after another, and of the slowest of them, for whom a
round over a network would wait. They are CPU seconds, so that what else the machine does counts little.

``--scores``: what rounding costs, on rows that nobody learned from: R2 or log loss where it hardly rounds (in
steps of 2^-24 of a unit), and how much it differs on the grid, and in steps of 2^-12 and 2^-8 (means over
seeds).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import train_test_split

from gal import GALClassifier, GALRegressor, Organization, learn, predict
from gal.core.state import Ensemble
from gal.engine.drivers import Traffic
from gal.models.registry import make_model
from gal.secrecy import ring
from gal.secrecy.summing import LocalCircle
from gal.secrecy.terms import Sums

PLAIN: dict[str, Any] = {"weights": "uniform", "closing": False}
COLUMNS = 3
TABLES = {
    "diabetes": load_diabetes,
    "breast cancer": load_breast_cancer,
    "wine": load_wine,
    "digits": load_digits,
}
FINE, STEPS = 2.0**24, (ring.STEPS, 2.0**12, 2.0**8)


def made_up(rows: int, organizations: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A table, and labels of which each organization knows a part."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, COLUMNS * organizations))
    return X, X @ rng.normal(size=X.shape[1]) + rng.normal(size=rows)


def learned(
    X: NDArray[np.float64], y: NDArray[np.float64], rounds: int, **options: Any
) -> tuple[Ensemble, list[Organization], Traffic]:
    """What was learned, by whom, and what moved."""
    members = [
        Organization(f"organization {m}", X[:, m : m + COLUMNS], Ridge(solver="cholesky"))
        for m in range(0, X.shape[1], COLUMNS)
    ]
    traffic = Traffic()
    limits: dict[str, Any] = {"min_rate": None, "patience": None, "fitted": "in-sample"}
    limits |= {"validation_fraction": 0.0, "cross_validation": 0}
    return learn(y, members, rounds=rounds, traffic=traffic, **limits, **options), members, traffic


class Timed:
    """A member that counts the seconds of what it does."""

    def __init__(self, member: Any) -> None:
        self.member, self.seconds = member, 0.0

    def __getattr__(self, name: str) -> Any:
        def timed(*given: Any, **named: Any) -> Any:
            begun = time.process_time()
            try:
                return getattr(self.member, name)(*given, **named)
            finally:
                self.seconds += time.process_time() - begun

        return timed


def seconds_of_a_sum(rows: int, members: int) -> tuple[float, float]:
    """CPU seconds of all parties together, and of the slowest of them, the label holder among them."""
    names = [f"organization {m}" for m in range(members)]
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=(rows, 1)) for name in names}
    circle = LocalCircle.of(names, Sums())
    timed = {name: Timed(member) for name, member in circle.members.items()}
    circle.members = cast(Any, timed)
    begun = time.process_time()
    circle.add_up(values, "content", 1.0)
    all_of_them = time.process_time() - begun
    others = [one.seconds for one in timed.values()]
    return all_of_them, max(all_of_them - sum(others), *others)


def measured(rows: int, organizations: int, rounds: int, seeds: int) -> str:
    """One line: sums beside plain learning; seconds are medians over repeated sums."""
    X, y = made_up(rows, organizations + 1)
    ensemble, members, plain = learned(X, y, rounds, **PLAIN)
    summed, others, sums = learned(X, y, rounds, secrecy="sums")
    differs = np.abs(predict(ensemble, members).output - predict(summed, others).output).max() / y.std()
    half_a_bit = np.random.default_rng(1).uniform(-6e-8, 6e-8, len(y))
    again, same, _ = learned(X, y * (1 + half_a_bit), rounds, **PLAIN)
    moved = np.abs(predict(ensemble, members).output - predict(again, same).output).max() / y.std()
    back, both = sums.received / plain.received, (sums.sent + sums.received) / (plain.sent + plain.received)
    all_of_them, slowest = np.median([seconds_of_a_sum(rows, organizations) for _ in range(seeds)], axis=0)
    return (
        f"{rows:>9,} rows {organizations:>2} organizations   bytes back {back:.3f} x, in all {both:.3f} x   "
        f"all parties {all_of_them:.3f} s, the slowest {slowest:.3f} s   "
        f"differs {differs:.1e}, moved {moved:.1e}"
    )


def score(table: str, model: Any, organizations: int, seed: int, steps: float) -> float:
    """Of a table of scikit-learn, its columns dealt out among the label holder and so many others."""
    ring.STEPS = steps
    X, y = TABLES[table](return_X_y=True)
    parts = np.array_split(np.random.default_rng(seed).permutation(X.shape[1]), organizations + 1)
    places = {f"organization {m}": part.tolist() for m, part in enumerate(parts)}
    numbers = table == "diabetes"
    known, new, y_known, y_new = train_test_split(
        X, y, random_state=seed, test_size=0.3, stratify=None if numbers else y
    )
    kind = GALRegressor if numbers else GALClassifier
    learner = kind(places, local_models=model, secrecy="sums", random_state=seed).fit(known, y_known)
    if numbers:
        return float(r2_score(y_new, learner.predict(new)))
    return float(log_loss(y_new, learner.predict_proba(new)))


def scored(table: str, name: str, organizations: int, seeds: int) -> str:
    """One line: how much a score changes with sums on grids of these steps, with its standard error."""
    model = make_model("any", name)
    fine = np.array([score(table, model, organizations, seed, FINE) for seed in range(seeds)])
    cells = []
    for steps in STEPS:
        change = np.array([score(table, model, organizations, seed, steps) for seed in range(seeds)]) - fine
        cells.append(f"{change.mean():+.4f} ({change.std(ddof=1) / np.sqrt(seeds):.4f})")
    return f"| {table} | {name} | {organizations} | {fine.mean():.4f} | {' | '.join(cells)} |"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 20_000, 200_000])
    parser.add_argument("--organizations", type=int, nargs="+", default=[3, 7], help="that assist")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=5, help="how often each is measured")
    parser.add_argument("--scores", action="store_true", help="what rounding costs")
    asked = parser.parse_args(words)
    if asked.scores:
        for table in TABLES:
            for model in ("linear", "tabular"):
                for organizations in asked.organizations:
                    print(scored(table, model, organizations, asked.seeds), flush=True)
        return
    for rows in asked.rows:
        for organizations in asked.organizations:
            print(measured(rows, organizations, asked.rounds, asked.seeds))


if __name__ == "__main__":
    main()
