"""What the learner reaches beside an earlier commit, on the same splits: differences with standard errors.

    python benchmarks/accuracy.py 1a90835e                        # all honest tables below 50,000 rows
    python benchmarks/accuracy.py 1a90835e --tables QSAR "xor 3,000" --splits 8
    python benchmarks/accuracy.py 1a90835e --interactions --tables "xor 3,000"

The earlier commit is checked out into a folder of its own. Each learning is a fresh process with one thread
and all defaults, without interaction probes unless asked for. Log loss for classes and 1 - R2 for numbers, on
rows that were not learned from; positive is better than before. Tables are those of ``pieces.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from piece_parts.tables import FIRST_SPLIT, TABLES

HERE = Path(__file__).resolve().parents[1]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SMALLER_THAN = 50_000
LEARN = """
import inspect, json, pickle, sys, time, warnings
warnings.simplefilter("ignore")
from sklearn.metrics import log_loss, r2_score
from gal import GALClassifier, GALRegressor
kind, seed, probes, X, y, X_test, y_test, organizations = pickle.load(sys.stdin.buffer)
estimator = GALRegressor if kind == "numbers" else GALClassifier
if inspect.signature(estimator).parameters["interactions"].default == "auto":  # earlier words
    probes = "auto" if probes else "off"
model = estimator(organizations, interactions=probes, random_state=seed)
cpu = time.process_time()
model.fit(X, y)
cpu = time.process_time() - cpu
if kind == "numbers":
    loss = 1 - r2_score(y_test, model.predict(X_test))
else:
    loss = log_loss(y_test, model.predict_proba(X_test), labels=model.classes_)
print(json.dumps({"loss": loss, "cpu": cpu}))
"""


def learn(sources: Path, what: tuple[Any, ...]) -> dict[str, float]:
    """Loss and CPU seconds of one learning with the package in this folder."""
    done = subprocess.run(
        [sys.executable, "-c", LEARN],
        input=pickle.dumps(what),
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(sources)},
        check=True,
        stdout=subprocess.PIPE,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compare(earlier: Path, name: str, splits: Sequence[int], *, interactions: bool) -> str:
    """One line: the table, losses, the paired difference and CPU."""
    pairs = []
    for split in splits:
        table, kind = TABLES[name].draw(FIRST_SPLIT + split), TABLES[name].kind
        rows = (table.X, table.y, table.X_test, table.y_test, table.organizations)
        what = (kind, split, interactions, *rows)
        pairs.append([learn(sources, what) for sources in (earlier, HERE / "src")])
    before, now = (np.array([pair[side]["loss"] for pair in pairs]) for side in (0, 1))
    cpu = [np.mean([pair[side]["cpu"] for pair in pairs]) for side in (0, 1)]
    gain = before - now
    error = gain.std(ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else float("nan")
    return (
        f"{name:28} {before.mean():8.4f} -> {now.mean():8.4f}   {gain.mean():+.4f} ({error:.4f})   "
        f"CPU s {cpu[0]:7.2f} -> {cpu[1]:7.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="beside an earlier commit")
    parser.add_argument("commit")
    parser.add_argument("--tables", nargs="+", choices=TABLES)
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--interactions", action="store_true")
    args = parser.parse_args()
    honest = [name for name, one in TABLES.items() if not one.attack and one.rows < SMALLER_THAN]
    splits = range(args.first, args.first + args.splits)
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", args.commit, "src"], cwd=HERE, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        for name in args.tables or honest:
            line = compare(Path(folder) / "src", name, splits, interactions=args.interactions)
            print(line, flush=True)


if __name__ == "__main__":
    main()
