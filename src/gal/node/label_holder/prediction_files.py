"""Predictions for people: as plain data, and as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds
from gal.errors import InvalidInputError, NodeError
from gal.node.label_holder.predicting import NodePrediction
from gal.node.store.files import whole_file

BATCH = 200_000
"""Rows that are asked for together."""


def prediction_facts(found: NodePrediction) -> dict[str, Any]:
    """What people want to know of a prediction besides the numbers."""
    facts = {"version": found.version, "n_rows": len(found.degraded), "degraded": int(found.degraded.sum())}
    by_name = {name: dict(getattr(found, name)) for name in ("missing", "unknown", "outside", "drifted")}
    return facts | by_name


def prediction_rows(ids: list[Any], found: NodePrediction) -> list[dict[str, Any]]:
    """One mapping per row: id, prediction, probabilities of classes, and whether it is degraded."""
    said = found.most_probable()
    rows: list[dict[str, Any]] = [
        {"id": one, "prediction": value, "degraded": bool(weak)}
        for one, value, weak in zip(ids, said, found.degraded, strict=True)
    ]
    if found.classes is not None:
        for row, probabilities in zip(rows, found.prediction.tolist(), strict=True):
            row["probabilities"] = dict(zip(map(str, found.classes), probabilities, strict=True))
    return rows


def predict_in_lots(
    ids: RowIds, ask: Callable[[RowIds], NodePrediction], rng: np.random.Generator
) -> NodePrediction:
    """Ask for many rows, `BATCH` at a time: no organization has more of them in memory.

    Which rows go together is drawn by lot: rows in the order of the file would tell what that order tells,
    and a lot looks like all rows, so that answers are compared with those of learning as ever.
    """
    order, done = rng.permutation(len(ids)), list[tuple[NDArray[np.intp], NodePrediction]]()
    for start in range(0, len(ids), BATCH):
        positions = np.sort(order[start : start + BATCH])
        done.append((positions, ask(ids.take(positions))))
    return NodePrediction.joined(done)


@contextmanager
def whole_csv(out: Path) -> Iterator[io.TextIOWrapper]:
    """A CSV file: written whole or not at all, readable as the user's other files are."""
    try:
        with whole_file(out, mode=0o666) as binary:
            file = io.TextIOWrapper(binary, encoding="utf-8", newline="")
            yield file
            file.detach()  # flushes; whoever opened the file closes it
    except NodeError as error:
        why = getattr(error.__cause__, "strerror", None) or error
        raise InvalidInputError(f"{str(out)!r} cannot be written: {why}") from error


def write_predictions(file: TextIO, row_id: str, ids: list[Any], found: NodePrediction) -> None:
    """The names of the columns, and a line for each row."""
    classes = [] if found.classes is None else [f"probability_{one}" for one in found.classes]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([row_id, "prediction", *classes, "degraded"])
    for start in range(0, len(ids), BATCH):  # many at once: rows take longer to be written than predicted
        some = found.at(np.arange(start, min(start + BATCH, len(ids))))
        columns: list[Any] = [ids[start : start + BATCH]]
        if some.classes is not None:
            columns.append(some.most_probable())
        columns += some.prediction.T.tolist()
        columns.append(some.degraded.astype(np.int64).tolist())
        writer.writerows(zip(*columns, strict=True))
