"""What interaction probes bring, what they cost, and what they tell of the label holder's columns.

    python benchmarks/interactions.py [--rows 10000] [--seeds 2] [--tasks xor ring] [--signs 4 12 usual]

Labels hang on columns of two organizations together, or of three. Every organization has four columns, of
which one or two matter. Two tables: the area under the ROC curve on as many rows as were learned from, of the
best there is (the true probabilities), of GAL without and with its closing model, of boosting on pooled
columns, and with so many interaction probes (usual: 10, with three organizations up to 14), with
the megabytes that an assistant received and sent, and CPU seconds. Then, for the number of probes: what an
assistant can read of the label holder's columns from what it received.

    python benchmarks/interactions.py --lost [--rows 8000] [--seeds 3] [--tables Adult]

prints what is lost without probes, which is the default, on made-up tables and on those of ``gal bench
peers``: scores on rows that nobody learned from, and CPU seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import gal
from gal import GALClassifier, GALRegressor, Organization
from gal.engine.drivers import InProcess, Traffic, drive_learning
from gal.engine.labels import class_labels
from gal.engine.options import Options
from gal.engine.task_making import make_task
from gal.privacy.leakage import Transcript, measure_signs
from gal_bench.peers.tables import PeerTable, peer_tables

Floats = NDArray[np.float64]
NAMES = ("alice", "bob", "carol", "dave")
WIDTH = 4
TASKS: dict[str, tuple[int, Callable[..., Floats]]] = {
    "xor": (2, lambda a, b: 4 * np.sign(a[:, 0] * b[:, 0])),
    "product": (2, lambda a, b: 3 * a[:, 0] * b[:, 0]),
    "product and main effects": (2, lambda a, b: 2 * a[:, 0] * b[:, 0] + a[:, 0] + b[:, 0]),
    "ring": (2, lambda a, b: 8.0 * (a[:, 0] ** 2 + b[:, 0] ** 2 < 1.4) - 4),
    "parity, two of hers": (2, lambda a, b: 4 * np.sign(a[:, 0] * a[:, 1] * b[:, 0])),
    "parity, two of his": (2, lambda a, b: 4 * np.sign(a[:, 0] * b[:, 0] * b[:, 1])),
    "xor of assistants": (3, lambda _, b, c: 4 * np.sign(b[:, 0] * c[:, 0])),
    "product of assistants": (3, lambda _, b, c: 3 * b[:, 0] * c[:, 0]),
    "two xors": (3, lambda a, b, c: 2 * np.sign(a[:, 0] * b[:, 0]) + 2 * np.sign(b[:, 1] * c[:, 0])),
    "parity of three": (3, lambda a, b, c: 4 * np.sign(a[:, 0] * b[:, 0] * c[:, 0])),
    "parity of three assistants": (4, lambda _, b, c, d: 4 * np.sign(b[:, 0] * c[:, 0] * d[:, 0])),
    "main effects only": (2, lambda a, b: a[:, 0] + b[:, 0]),
}


@dataclass(frozen=True)
class Made:
    """Views, labels and true log-odds of one task; the first half is learned from."""

    views: list[Floats]
    y: NDArray[np.int64]
    signal: Floats

    @property
    def half(self) -> int:
        return len(self.y) // 2

    def auc(self, output: Any) -> float:
        return float(roc_auc_score(self.y[self.half :], output))


def make(name: str, rows: int, seed: int) -> Made:
    """Draw a task."""
    parties, signal = TASKS[name]
    rng = np.random.default_rng(seed)
    views = [rng.normal(size=(2 * rows, WIDTH)) for _ in range(parties)]
    odds = signal(*views)
    return Made(views, (rng.random(2 * rows) < 1 / (1 + np.exp(-odds))).astype(int), odds)


@dataclass(frozen=True)
class Result:
    """What one way of learning gave."""

    auc: float
    megabytes: float
    seconds: float
    told: str = ""


def learned(made: Made, seed: int, **options: Any) -> Result:
    """Learn from the first half, and judge on the second."""
    names, half = NAMES[: len(made.views)], made.half
    members = {name: Organization(name, view[:half]) for name, view in zip(names, made.views, strict=True)}
    chosen, started = Options(**options), time.process_time()
    task = make_task(class_labels(made.y[:half], chosen), names, chosen, label_holder=names[0], seed=seed)
    traffic, transcript = Traffic(), Transcript()
    ensemble = drive_learning(task, members, InProcess(), traffic=traffic, on_message=transcript)
    seconds = time.process_time() - started
    rest = {name: view[half:] for name, view in zip(names, made.views, strict=True)}
    auc = made.auc(gal.predict(ensemble, list(members.values()), rest).output[:, 0])
    leak = measure_signs(transcript, "bob", {names[0]: made.views[0][:half]}, task.rows, seed=seed)
    told = f"{leak.vectors:2d} {leak.bits:5.1f}   " + " ".join(f"{one.told:.2f}" for one in leak.columns)
    return Result(auc, (traffic.sent + traffic.received) / 1e6 / (len(names) - 1), seconds, told)


def mean(results: list[Result]) -> Result:
    """Over seeds; what was told is that of the first."""
    auc, size, seconds = (
        float(np.mean([getattr(one, key) for one in results])) for key in ("auc", "megabytes", "seconds")
    )
    return Result(auc, size, seconds, results[0].told)


def pooled(made: Made) -> float:
    """Boosting with early stopping on all columns in one place."""
    X = np.hstack(made.views)
    model = HistGradientBoostingClassifier(early_stopping=True, random_state=0)
    return made.auc(model.fit(X[: made.half], made.y[: made.half]).predict_proba(X[made.half :])[:, 1])


def print_accuracy(tasks: list[str], rows: int, seeds: range, signs: list[int]) -> None:
    """One row per task, with what each form brings and costs."""
    forms = "  ".join(f"{f'{_named(one)} probes (MB, s)':>22}" for one in signs)
    print(f"{'task':26} {'Bayes':>6} {'GAL':>6} {'closing (MB, s)':>22} {'pooled':>7}  {forms}")
    for name in tasks:
        drawn = [make(name, rows, seed) for seed in seeds]

        def over(drawn: list[Made] = drawn, **options: Any) -> Result:
            return mean([learned(one, seed, **options) for seed, one in zip(seeds, drawn, strict=True)])

        def cell(one: Result) -> str:
            return f"{one.auc:.3f} ({one.megabytes:6.2f}, {one.seconds:4.1f})".rjust(22)

        bayes = np.mean([one.auc(one.signal[one.half :]) for one in drawn])
        plain, closed = over(closing=False), over()
        crossed = "  ".join(cell(over(interactions=one)) for one in signs)
        best = np.mean([pooled(one) for one in drawn])
        print(f"{name:26} {bayes:6.3f} {plain.auc:6.3f} {cell(closed)} {best:7.3f}  {crossed}", flush=True)


def print_leaks(tasks: list[str], rows: int, signs: list[int]) -> None:
    """What an assistant reads from signs, beside what they bring."""
    print(f"\n{'task':26} {'signs':>5} {'AUC':>6}   vectors, bits a row, R2 of her columns")
    for name in tasks:
        made = make(name, rows, 0)
        for number in signs:
            one = learned(made, 0, interactions=number)
            print(f"{name:26} {_named(number):>5} {one.auc:6.3f}   {one.told}", flush=True)


def made_tables(rows: int, seed: int) -> dict[str, tuple[PeerTable, bool]]:
    """Three tables that hang on two organizations together, or do not, and whether labels are classes."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(2 * rows, 12)), columns=[f"x{j}" for j in range(12)])
    parts = {name: [f"x{j}" for j in range(4 * at, 4 * at + 4)] for at, name in enumerate(NAMES[:3])}
    a, b, c = (X[columns[0]].to_numpy() for columns in parts.values())
    noise, drawn = rng.normal(size=2 * rows), rng.random(2 * rows)
    labels = {
        "classes: sign of a product": (drawn < 1 / (1 + np.exp(-4 * np.sign(a * b)))).astype(int),
        "classes: sum and product": (drawn < 1 / (1 + np.exp(-a - b - 2 * a * b))).astype(int),
        "numbers: sum and product": a + b + c + X["x1"].to_numpy() * X["x5"].to_numpy() + 0.3 * noise,
        "numbers: sum": a + b + c + 0.3 * noise,
    }
    learn, judge = X.iloc[:rows], X.iloc[rows:].reset_index(drop=True)
    return {
        name: (PeerTable(name, "made", parts, learn, y[:rows], judge, y[rows:]), y.dtype.kind != "f")
        for name, y in labels.items()
    }


def print_lost(names: list[str], rows: int, seeds: range) -> None:
    """One line per table: without and with interaction probes, and the mean paired difference."""
    print(f"\n{'table':28} {'measure':8} {'off':>6} {'on':>6}  on - off (standard error)  CPU s off, on")
    drawn: dict[str, list[tuple[PeerTable, bool]]] = {}
    for seed in seeds:
        for name, one in made_tables(rows, seed).items():
            drawn.setdefault(name, []).append(one)
        for name in names:
            table = next(one for one in peer_tables(name, None, seed) if one.split != "alpha 0.1")
            learn, judge = train_test_split(
                np.arange(len(table.y)), train_size=rows, random_state=seed, stratify=table.y
            )
            X, y = table.X, table.y
            cut = replace(table, X=X.iloc[learn], y=y[learn], X_test=X.iloc[judge], y_test=y[judge])
            drawn.setdefault(name, []).append((cut, True))
    for name, tables in drawn.items():
        both = np.array(
            [
                [_scored(one, of, seed) for of in (False, True)]
                for seed, one in zip(seeds, tables, strict=True)
            ]
        )
        off, on = both[:, 0, 0], both[:, 1, 0]
        error = (on - off).std(ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else float("nan")
        cpu = both[:, :, 1].mean(axis=0)
        print(
            f"{name:28} {_measure(*tables[0]):8} {off.mean():6.3f} {on.mean():6.3f}  "
            f"{(on - off).mean():+.4f} ({error:.4f})  {cpu[0]:.1f}, {cpu[1]:.1f}",
            flush=True,
        )


def _measure(table: PeerTable, classes: bool) -> str:
    return "R2" if not classes else "AUC" if len(np.unique(table.y)) == 2 else "accuracy"


def _scored(one: tuple[PeerTable, bool], probed: bool, seed: int) -> tuple[float, float]:
    """Score and CPU seconds of the default estimator, with interaction probes or without."""
    (table, classes), started = one, time.process_time()
    estimator = GALClassifier if classes else GALRegressor
    model = estimator(table.organizations, interactions=probed, random_state=seed).fit(table.X, table.y)
    score = (
        roc_auc_score(table.y_test, model.predict_proba(table.X_test)[:, 1])
        if _measure(table, classes) == "AUC"
        else model.score(table.X_test, table.y_test)
    )
    return float(score), time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--signs", nargs="+", type=_signs, default=[4, 10, True], help="numbers, or usual")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--lost", action="store_true", help="what is lost without probes")
    parser.add_argument("--tables", nargs="*", default=["Adult", "CreditDefault", "Covertype"])
    given = parser.parse_args()
    if given.lost:
        print_lost(given.tables, given.rows, range(given.first, given.first + given.seeds))
        return
    print_accuracy(given.tasks, given.rows, range(given.first, given.first + given.seeds), given.signs)
    leaking = ("xor", "product", "xor of assistants", "parity of three")
    print_leaks([one for one in leaking if one in given.tasks], given.rows, given.signs)


def _signs(text: str) -> int:
    return True if text == "usual" else int(text)


def _named(signs: int) -> str:
    return "usual" if signs is True else str(signs)


if __name__ == "__main__":
    main()
