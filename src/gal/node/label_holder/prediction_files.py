"""Predictions as plain data, as a CSV file, and of many rows in batches."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds
from gal.errors import InvalidInputError, NodeError
from gal.node.label_holder.predicting import NodePrediction
from gal.node.store.files import whole_file

BATCH = 200_000
"""Rows of one request."""


def prediction_facts(found: NodePrediction) -> dict[str, Any]:
    """The version, numbers of rows, and what was missing."""
    facts = {"version": found.version, "n_rows": len(found.degraded), "degraded": int(found.degraded.sum())}
    by_name = {name: dict(getattr(found, name)) for name in ("missing", "unknown", "outside", "drifted")}
    return facts | by_name


def prediction_rows(ids: list[Any], found: NodePrediction) -> list[dict[str, Any]]:
    """One mapping per row: id, prediction, probabilities of classes, and whether it is degraded."""
    rows: list[dict[str, Any]] = [
        {"id": one, "prediction": value, "degraded": bool(weak)}
        for one, value, weak in zip(ids, found.most_probable(), found.degraded, strict=True)
    ]
    if found.classes is not None:
        for row, probabilities in zip(rows, found.prediction.tolist(), strict=True):
            row["probabilities"] = dict(zip(map(str, found.classes), probabilities, strict=True))
    return rows


def predict_in_batches(
    ids: RowIds, predict: Callable[[RowIds], NodePrediction], rng: np.random.Generator
) -> NodePrediction:
    """Predict many rows, `BATCH` in one request: no organization has more of them in memory.

    Batches are drawn at random: the order of a file may reveal labels, and a random batch is distributed as
    all rows are, so that its values compare with those of learning.
    """
    order = rng.permutation(len(ids))
    positions = [np.sort(order[start : start + BATCH]) for start in range(0, len(ids), BATCH)]
    done = [predict(ids.take(some)) for some in positions]
    back = np.argsort(np.concatenate(positions))

    def together(values: Callable[[NodePrediction], NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([values(one) for one in done])[back]

    def names(of: str) -> list[str]:
        return list(dict.fromkeys(name for one in done for name in getattr(one, of)))

    def unknown_to(name: str) -> NDArray[np.bool_]:
        return together(lambda one: one.unknown_rows.get(name, np.zeros(len(one.degraded), dtype=np.bool_)))

    def why_missing(name: str) -> str:
        without = [one for one in done if name in one.missing]
        why, n_rows = without[0].missing[name], sum(len(one.degraded) for one in without)
        return why if len(without) == len(done) else f"{why}, for {n_rows:,} of the rows"

    return replace(
        done[-1],
        output=together(lambda one: one.output),
        prediction=together(lambda one: one.prediction),
        degraded=together(lambda one: one.degraded),
        missing={name: why_missing(name) for name in names("missing")},
        unknown_rows={name: unknown_to(name) for name in names("unknown_rows")},
        outside={name: sum(one.outside.get(name, 0) for one in done) for name in names("outside")},
        drifted={name: max(one.drifted.get(name, 0.0) for one in done) for name in names("drifted")},
    )


@contextmanager
def whole_csv(out: Path) -> Iterator[io.TextIOWrapper]:
    """A CSV file: written whole or not at all, readable as the user's other files are."""
    try:
        with whole_file(out, mode=0o666) as binary:
            file = io.TextIOWrapper(binary, encoding="utf-8", newline="")
            yield file
            file.detach()  # flushes, and leaves the file open for its own context
    except NodeError as error:
        why = getattr(error.__cause__, "strerror", None) or error
        raise InvalidInputError(f"{str(out)!r} cannot be written: {why}") from error


def write_predictions(file: TextIO, row_id: str, ids: list[Any], found: NodePrediction) -> None:
    """A line of column names, and one for each row."""
    classes = [] if found.classes is None else [f"probability_{one}" for one in found.classes]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([row_id, "prediction", *classes, "degraded"])
    for start in range(0, len(ids), BATCH):  # in batches: rows take longer to be written than predicted
        some = found.at(np.arange(start, min(start + BATCH, len(ids))))
        columns: list[Any] = [ids[start : start + BATCH]]
        if some.classes is not None:
            columns.append(some.most_probable())
        columns += some.prediction.T.tolist()
        columns.append(some.degraded.astype(np.int64).tolist())
        writer.writerows(zip(*columns, strict=True))
