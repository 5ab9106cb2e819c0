"""What learning, predicting and importing cost, as ratios: a report, printed; nothing passes or fails.

    python benchmarks/cost.py                           # up to a million rows: about an hour
    python benchmarks/cost.py --quick                   # up to 100,000 rows: some minutes
    python benchmarks/cost.py fit predict --rows 20000  # two parts of it, at this size

Every figure is of a fresh process with one thread: CPU seconds without imports and without making the table,
the least of ``--times``. GAL has its defaults and four organizations with as many columns each, LightGBM 100
trees on all columns. Tables are made up with a seed: normal, uniform, skewed, whole and binary columns, of
which some count in a line, some in a curve, two as a product across organizations, beside noise. A slope is
that of log CPU seconds on log size: 1 is in proportion. Memory is what the process held at most over what it
held with the table and all imports, as a multiple of the table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gal import GALClassifier, GALRegressor

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
KINDS = {"two classes": 2, "regression": 0, "seven classes": 7}
SEED = 36


@dataclass(frozen=True)
class Job:
    """What one process does."""

    rows: int
    columns: int = 10
    classes: int = 2
    organizations: int = 4
    learner: str = "gal"
    interactions: bool = False
    predicted: int = 0
    """Rows to predict, at most so many at a time; 0: only learning is measured."""


@dataclass(frozen=True)
class Taken:
    """What that took."""

    cpu: float
    """Seconds of learning, or of one prediction."""
    wall: float
    memory: float
    """Beyond the table and imports, over the size of the table."""


def make_table(job: Job) -> tuple[Any, Any]:
    """Columns (n, d) and labels; 0 classes: numbers."""
    rng = np.random.default_rng(SEED)
    draws: list[Callable[[int], Any]] = [
        rng.standard_normal,
        rng.random,
        rng.standard_exponential,
        lambda n: rng.integers(0, 20, n),
        lambda n: rng.integers(0, 2, n),
    ]
    X = np.empty((job.rows, job.columns))
    y: Any = rng.standard_normal(job.rows)
    for j in range(job.columns):
        X[:, j] = draws[j % len(draws)](job.rows)
        shaped = (X[:, j] - X[:, j].mean()) / X[:, j].std()
        y += shaped if j % 3 == 0 else np.sin(2 * shaped) if j % 3 == 1 else np.abs(shaped)
    y += X[:, 0] * (X[:, -1] - X[:, -1].mean())  # the first and the last organization know it together
    if job.classes:
        y = np.searchsorted(np.quantile(y, np.arange(1, job.classes) / job.classes), y)
    return X, y


def make_model(job: Job) -> Any:
    """The learner, unfitted."""
    if job.learner == "lightgbm":
        import lightgbm

        kind = lightgbm.LGBMClassifier if job.classes else lightgbm.LGBMRegressor
        return kind(n_estimators=100, n_jobs=1, verbosity=-1)
    ends = np.linspace(0, job.columns, job.organizations + 1).astype(int).tolist()
    parts = {f"organization {m}": slice(*ends[m : m + 2]) for m in range(job.organizations)}
    make = GALClassifier if job.classes else GALRegressor
    return make(parts, interactions=job.interactions, random_state=0)


def measure(job: Job, folder: Path) -> Taken:
    """Do it in this process, on the table of this folder."""
    X, y = (np.load(folder / f"{name}.npy") for name in "Xy")
    model, held = make_model(job), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if job.predicted:
        model.fit(X, y)
        ask = model.predict_proba if job.classes else model.predict
        asked = X[: job.predicted]
        ask(asked)
    times = max(1, 20 // job.predicted) if job.predicted else 1
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        ask(asked) if job.predicted else model.fit(X, y)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held) * 1024
    return Taken(cpu / times, wall / times, more / X.nbytes)


class Report:
    """Figures, each measured in processes of their own."""

    def __init__(self, times: int, rows: Sequence[int], most: int, kinds: Sequence[str]) -> None:
        self.times, self.rows, self.most = times, rows, most
        self.kinds = {kind: KINDS[kind] for kind in kinds}

    def least(self, job: Job, **limits: str) -> Taken:
        """The least of several processes."""
        with tempfile.TemporaryDirectory(prefix="gal-cost-") as folder:
            for name, values in zip("Xy", make_table(job), strict=True):
                np.save(Path(folder, f"{name}.npy"), values)
            command = [sys.executable, __file__, "--job", json.dumps(asdict(job)), "--folder", folder]
            found = [Taken(**json.loads(_said(command, limits or ONE_THREAD))) for _ in range(self.times)]
        return Taken(*(min(getattr(one, name) for one in found) for name in ("cpu", "wall", "memory")))

    def _beside(self, name: str, aim: float, job: Job) -> None:
        gal, lightgbm = self.least(job).cpu, self.least(replace(job, learner="lightgbm")).cpu
        _line(name, gal / max(lightgbm, 1e-4), aim, f"{gal:.4g} CPU s beside {lightgbm:.4g}")

    def fit(self, *, interactions: bool = False) -> None:
        """Learning beside LightGBM's."""
        for kind, classes in self.kinds.items():
            for rows in self.rows:
                aim = 4.0 if interactions else 1.5 if rows > 100_000 else 2.0
                self._beside(f"{kind}, {rows:,} rows", aim, Job(rows, 10, classes, interactions=interactions))

    def interactions(self) -> None:
        """The same with interaction probes, which want 2,000 rows."""
        self.fit(interactions=True)

    def growth(self) -> None:
        """How learning grows: slopes."""
        sizes = [size for size in (10**4, 10**5, 10**6) if size <= self.most] or [self.most // 2, self.most]
        few = Job(min(20_000, self.most), columns=16)
        self._grow("rows", [Job(rows) for rows in sizes], sizes)
        self._grow("organizations", [replace(few, organizations=m) for m in (2, 4, 8, 16)], (2, 4, 8, 16))
        self._grow("classes", [replace(few, classes=k) for k in (3, 9, 27)], (3, 9, 27))

    def _grow(self, name: str, jobs: Sequence[Job], sizes: Sequence[int]) -> None:
        taken = [self.least(job).cpu for job in jobs]
        slope = np.polyfit(np.log(sizes), np.log(np.maximum(taken, 1e-4)), 1)[0]
        said = ", ".join(f"{size:,}: {cpu:.3g}" for size, cpu in zip(sizes, taken, strict=True))
        _line(f"slope with {name}", float(slope), 1.05, f"CPU s of {said}")

    def memory(self) -> None:
        """What learning holds beyond the table."""
        job = Job(self.most, columns=20)
        tables = {"GAL": job, "LightGBM": replace(job, learner="lightgbm")}
        for name, one in tables.items():
            aim = 3.0 if name == "GAL" else math.nan
            _line(f"{name}, {self.most:,} rows x 20", self.least(one).memory, aim, "times the table")

    def predict(self) -> None:
        """One row in milliseconds, and many rows beside LightGBM."""
        for kind, classes in self.kinds.items():
            job = Job(min(20_000, self.most), 10, classes, predicted=1)
            _line(f"{kind}, one row, milliseconds", 1e3 * self.least(job).cpu, 1.0)
            many = replace(job, rows=min(100_000, self.most), predicted=100_000)
            self._beside(f"{kind}, {many.rows:,} rows", 3.0, many)

    def imports(self) -> None:
        """CPU seconds of fresh processes, imports and all."""
        command = "import sys; sys.argv = ['gal', '--help']; from gal.cli import main; main()"
        codes = {"import gal": 0.5, command: 0.5, "from gal import GALClassifier": math.nan}
        for code, aim in (codes | {"import sklearn.ensemble, sklearn.linear_model": math.nan}).items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            for _ in range(self.times):
                _said([sys.executable, "-c", code], ONE_THREAD)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            _line("gal --help" if code == command else code, cpu / self.times, aim, "CPU s")


PARTS = ("fit", "interactions", "growth", "memory", "predict", "imports")


def _line(name: str, figure: float, aim: float, said: str = "") -> None:
    wanted = "" if math.isnan(aim) else f"(aim {aim:g})"
    print(f"  {name:50s} {figure:9.3g} {wanted:10s} {said}".rstrip(), flush=True)


def _said(command: Sequence[str], limits: dict[str, str]) -> str:
    return subprocess.run(
        command, env=os.environ | limits, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; all by default")
    parser.add_argument("--rows", type=int, nargs="+", help="of tables; default 10,000, 100,000 and 300,000")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of labels")
    parser.add_argument("--quick", action="store_true", help="at most 100,000 rows, each measured once")
    parser.add_argument("--times", type=int, default=3, help="processes of which the least counts")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job is not None:
        print(json.dumps(asdict(measure(Job(**json.loads(given.job)), given.folder))))
        return
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    rows = given.rows or ([10_000, 100_000] if given.quick else [10_000, 100_000, 300_000])
    most = max(rows) if given.rows or given.quick else 10**6
    report = Report(1 if given.quick else given.times, rows, most, given.kinds)
    print(f"made-up tables, seed {SEED}; ratios, CPU seconds of one thread")
    for name in given.parts or PARTS:
        part = getattr(report, name)
        print(f"{name}: {part.__doc__}")
        part()


if __name__ == "__main__":
    main()
