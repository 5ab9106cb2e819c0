"""How much the label holder's own work costs: a report, printed; nothing here passes or fails.

    python benchmarks/engine.py [--rows 10000000] [--fit-seconds 1] [--times 5] [--json]

- squared error: one round of the label holder (residual, weights, rate, update, records) against one
  numpy Gram product of the same fitted values, in the same run; both as CPU seconds of all threads, which
  other processes on the machine hardly change; and what of it no round can do without (inner products of the
  fitted values in float64, and the update);
- log loss: passes over the data per line search;
- memory beyond the fitted values, as a multiple of their size;
- a whole BreastCancer run against the 65 CPU-seconds of the authors' loop;
- two organizations with one-second fits, n_jobs=2 against n_jobs=1.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import Ridge

from gal import GALClassifier, GALRegressor
from gal.core.algorithm import learn
from gal.core.line_search import ExactSearch, Line
from gal.core.losses import BinaryLogLoss, Loss, SquaredError
from gal.core.rows import all_rows
from gal.core.steps import moved
from gal.core.task import Task
from gal.core.weights import inner_products

AUTHORS_CPU_SECONDS = 65.0


class BusyFit(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A local model whose fit computes for so many seconds of CPU time."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> BusyFit:
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            sum(range(1000))
        self.inner_ = Ridge().fit(X, y)
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self.inner_.predict(X))


def made_up(
    rows: int, organizations: int, loss: Loss
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float32]]]:
    """Labels, and fitted values of which each carries a part of them."""
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((rows, 1), dtype=np.float32)
    fitted = {}
    for m in range(organizations):
        noise = rng.standard_normal((rows, 1), dtype=np.float32)
        noise *= np.float32(2.0)
        noise += signal
        fitted[f"organization {m}"] = noise
    y = signal.astype(np.float64)
    if isinstance(loss, BinaryLogLoss):
        y = (y + rng.standard_normal((rows, 1)) > 0).astype(np.float64)
    return y, fitted


def one_round(
    loss: Loss, y: NDArray[np.float64], fitted: dict[str, NDArray[np.float32]], rounds: int
) -> float:
    """CPU seconds per round of the label holder, the replies being there at once."""
    task = Task(y, loss, tuple(sorted(fitted)), all_rows(len(y)), rounds=rounds)
    steps = learn(task)
    next(steps)
    started = time.process_time()
    try:
        while True:
            steps.send([fitted])
    except StopIteration:
        return (time.process_time() - started) / rounds


def gram_seconds(fitted: dict[str, NDArray[np.float32]], dtype: type) -> float:
    """CPU seconds of one numpy Gram product of the fitted values, side by side in one array."""
    stacked: NDArray[np.floating] = np.hstack(list(fitted.values())).astype(dtype)
    started, n_products, seconds = time.process_time(), 0, 0.0
    while not seconds:  # small ones are faster than the clock
        stacked.T @ stacked
        n_products, seconds = n_products + 1, time.process_time() - started
    return seconds / n_products


def needed_seconds(y: NDArray[np.float64], fitted: dict[str, NDArray[np.float32]]) -> float:
    """CPU seconds of what no round can do without: inner products in float64, and the update."""
    columns = list(fitted.values())
    started = time.process_time()
    inner_products([*columns, columns[0]])  # the residual is one more
    moved(y, [(0.1, values) for values in columns])
    return time.process_time() - started


def passes_per_search(rows: int, searches: int = 5) -> list[int]:
    """Passes over the data that an exact search takes for log loss."""
    counts: list[int] = []

    class Counting(Line):
        def slope(self, step: float) -> tuple[float, float | None]:
            counts[-1] += 1
            return super().slope(step)

    for seed in range(searches):
        rng = np.random.default_rng(seed)
        direction = rng.standard_normal((rows, 1))
        y = (direction + rng.standard_normal((rows, 1)) * 3 > 0).astype(np.float64)
        counts.append(0)
        ExactSearch()(
            Counting(BinaryLogLoss(), y, 0.3 * rng.standard_normal((rows, 1)), direction * 10.0**-seed)
        )
    return counts


def peak_memory(run: Callable[[], object]) -> int:
    """Bytes that ``run`` allocated at its peak, beyond what was there."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - before


def breast_cancer_cpu() -> float:
    """CPU seconds of a whole run: 8 organizations, Ridge, 10 rounds."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    parts = {f"organization {m}": list(range(3 * m, 30 if m == 7 else 3 * m + 3)) for m in range(8)}
    started = time.process_time()
    GALClassifier(parts, local_models=Ridge()).fit(X, y)
    return time.process_time() - started


def speed_up(fit_seconds: float, rounds: int = 2) -> float:
    """Wall time of one worker over that of two; the workers' start is not counted, their work is."""
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = X.sum(axis=1)
    GALRegressor({"a": [0, 1], "b": [2, 3]}, local_models=Ridge(), n_jobs=2).fit(X, y)  # starts the workers
    seconds = {}
    for n_jobs in (1, 2):
        local = BusyFit(fit_seconds)
        model = GALRegressor(
            {"a": [0, 1], "b": [2, 3]}, local_models=local, rounds=rounds, n_jobs=n_jobs, min_rate=None
        )
        started = time.perf_counter()
        model.fit(X, y)
        seconds[n_jobs] = time.perf_counter() - started
    return seconds[1] / seconds[2]


def report(rows: int, fit_seconds: float, times: int = 5, organizations: int = 8) -> dict[str, Any]:
    """All figures, of times the least of several."""
    y, fitted = made_up(rows, organizations, SquaredError())
    size = sum(values.nbytes for values in fitted.values())
    gram = min(gram_seconds(fitted, np.float32) for _ in range(times))
    exact_gram = min(gram_seconds(fitted, np.float64) for _ in range(times))
    squared = min(one_round(SquaredError(), y, fitted, rounds=2) for _ in range(times))
    needed = min(needed_seconds(y, fitted) for _ in range(times))
    memory = peak_memory(lambda: one_round(SquaredError(), y, fitted, rounds=2))
    labels, fitted = made_up(rows, organizations, BinaryLogLoss())
    log_loss = min(one_round(BinaryLogLoss(), labels, fitted, rounds=1) for _ in range(times))
    log_memory = peak_memory(lambda: one_round(BinaryLogLoss(), labels, fitted, rounds=1))
    cpu = min(breast_cancer_cpu() for _ in range(times))
    return {
        "rows": rows,
        "organizations": organizations,
        "gram_product_seconds": gram,
        "squared_error_round_seconds": squared,
        "squared_error_round_over_gram": squared / gram,
        "squared_error_round_over_gram_in_float64": squared / exact_gram,
        "products_and_update_alone_over_gram": needed / gram,
        "squared_error_memory_over_fitted": memory / size,
        "log_loss_round_seconds": log_loss,
        "log_loss_memory_over_fitted": log_memory / size,
        "log_loss_passes_per_search": passes_per_search(min(rows, 1_000_000)),
        "breast_cancer_cpu_seconds": cpu,
        "breast_cancer_times_less_than_authors": AUTHORS_CPU_SECONDS / cpu,
        "two_jobs_speed_up": speed_up(fit_seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--fit-seconds", type=float, default=1.0, help="of a local fit, one job beside two")
    parser.add_argument("--times", type=int, default=5, help="how often each is timed; the least counts")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = report(arguments.rows, arguments.fit_seconds, arguments.times)
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(
            f"{name.replace('_', ' '):45s} {value:.3g}"
            if isinstance(value, float)
            else f"{name.replace('_', ' '):45s} {value}"
        )


if __name__ == "__main__":
    main()
