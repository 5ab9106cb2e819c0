"""Predictions of many rows: asked for in batches, kept in a file as the answers come, written in order.

Whatever the number of rows, only the answers to one batch are in memory, here and at the organizations. Which
rows go together is drawn by lot: rows in the order of the file would tell what that order tells, and a lot
looks like all rows, so that answers are compared with those of learning as ever.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds
from gal.errors import InvalidInputError, TaskError
from gal.node.holder.predicting import NodePrediction
from gal.node.holder.prediction_files import csv_header, prediction_facts, whole_csv, write_rows

BATCH = 200_000
"""Rows that are asked for together."""

SPENT = ("refused (budget-spent)", "refused (privacy-budget-spent)")
"""How it begins why an organization predicts no more: asking it again changes nothing."""

Ask = Callable[[RowIds], NodePrediction]


def predict_in_batches(
    ids: RowIds, ask: Ask, out: Path, row_id: str, rng: np.random.Generator, *, go_on: bool = False
) -> dict[str, Any]:
    """Ask for all rows, batch by batch, and write the predictions to a CSV file; the facts of all.

    Where an organization predicts no more today and rows are left, TaskError says so at once, unless it is to
    ``go_on`` without it.
    """
    told = _Told()
    predictions, degraded = np.empty((0, 0)), np.empty(0, dtype=np.bool_)
    for positions in _lots(len(ids), rng, out):
        found = ask(ids.take(positions))
        if told.last is None:
            predictions = _on_disk(out, np.dtype(np.float64), len(ids), found.prediction.shape[1])
            degraded = _on_disk(out, np.dtype(np.bool_), len(ids), 1)[:, 0]
        predictions[positions], degraded[positions] = found.prediction, found.degraded
        told.hear(found)
        if not go_on and told.n_rows < len(ids):
            _refuse_degrading(found.missing, told.n_rows - len(positions), len(ids))
    assert told.last is not None
    with whole_csv(out) as file:
        _write(file, row_id, ids, predictions, degraded, told.last)
    return told.facts(len(ids))


def _refuse_degrading(missing: Mapping[str, str], n_before: int, n_rows: int) -> None:
    """TaskError where a budget is spent: all other rows would be predicted without that organization."""
    spent = {name: why for name, why in missing.items() if why.startswith(SPENT)}
    if spent:
        said = "; ".join(f"{name} {why}" for name, why in spent.items())
        raise TaskError(
            f"{said} Of {n_rows:,} rows {n_before:,} were predicted, and nothing is written. Predict so many "
            f"rows a day, or go on without {', '.join(spent)} for the others, which are marked degraded: "
            "gal predict with --go-on"
        )


def _on_disk(out: Path, kind: np.dtype[Any], n_rows: int, width: int) -> NDArray[Any]:
    """An array (n, width) in a file without a name beside ``out``, gone with the array."""
    try:
        with tempfile.TemporaryFile(dir=out.parent) as file:
            os.posix_fallocate(file.fileno(), 0, n_rows * width * kind.itemsize)  # full disks are said now
            return np.memmap(file, dtype=kind, mode="r+", shape=(n_rows, width))
    except OSError as error:
        raise InvalidInputError(f"{str(out)!r} cannot be written: {error.strerror or error}") from error


def _lots(n_rows: int, rng: np.random.Generator, out: Path) -> Iterator[NDArray[np.intp]]:
    """Positions of all rows in lots of at most `BATCH`; their order lies in a file without a name."""
    kind: np.dtype[Any] = np.dtype(np.uint32 if n_rows < 1 << 32 else np.int64)
    order = np.asarray(_on_disk(out, kind, n_rows, 1)[:, 0])
    for start in range(0, n_rows, BATCH):
        order[start : start + BATCH] = np.arange(start, min(start + BATCH, n_rows), dtype=kind)
    rng.shuffle(order)
    for start in range(0, n_rows, BATCH):
        yield np.sort(order[start : start + BATCH]).astype(np.intp)


def _write(
    file: io.TextIOWrapper,
    row_id: str,
    ids: RowIds,
    predictions: NDArray[np.float64],
    degraded: NDArray[np.bool_],
    like: NodePrediction,
) -> None:
    csv_header(file, row_id, like)
    for start in range(0, len(ids), BATCH):
        rows = slice(start, start + BATCH)
        said = replace(like, prediction=np.asarray(predictions[rows]), degraded=np.asarray(degraded[rows]))
        write_rows(file, ids.values[rows].tolist(), said)


@dataclass
class _Told:
    """What is said of all batches together."""

    last: NodePrediction | None = None
    n_batches: int = 0
    n_rows: int = 0
    n_degraded: int = 0
    missing: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """By organization: why it did not answer, and for how many rows, batch by batch."""
    unknown: dict[str, int] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)
    drifted: dict[str, float] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    def hear(self, found: NodePrediction) -> None:
        """One batch more."""
        self.last, self.n_batches = found, self.n_batches + 1
        self.n_rows += len(found.degraded)
        self.n_degraded += int(found.degraded.sum())
        for name, why in found.missing.items():
            self.missing.setdefault(name, []).append((why, len(found.degraded)))
        _add(self.unknown, found.unknown)
        _add(self.outside, found.outside)
        for name, apart in found.drifted.items():
            self.drifted[name] = max(apart, self.drifted.get(name, 0.0))
        self.changed |= set(found.changed)

    def facts(self, n_rows: int) -> dict[str, Any]:
        """As `prediction_facts` has them."""
        assert self.last is not None
        return prediction_facts(self.last) | {
            "n_rows": n_rows,
            "degraded": self.n_degraded,
            "missing": {name: self._why(heard) for name, heard in self.missing.items()},
            "unknown": self.unknown,
            "outside": self.outside,
            "drifted": self.drifted,
            "changed": sorted(self.changed),
        }

    def _why(self, heard: list[tuple[str, int]]) -> str:
        why, rows = heard[0][0], sum(count for _, count in heard)
        return why if len(heard) == self.n_batches else f"{why}, for {rows:,} of the rows"


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count
