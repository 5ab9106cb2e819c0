"""Predictions for people: as plain data, as a CSV file, and how good they are."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from gal.errors import InvalidInputError, NodeError
from gal.node.holder.predicting import NodePrediction
from gal.node.store.files import whole_file


def score_of(found: NodePrediction, y: Any) -> dict[str, Any]:
    """Accuracy of classes, or R2 of numbers, and how many rows were degraded."""
    said = np.asarray(found.most_probable(), dtype=object if found.classes is not None else np.float64)
    if found.classes is not None:
        return {"accuracy": float(np.mean(said == y)), "degraded": int(found.degraded.sum())}
    spread = float(((y - y.mean()) ** 2).sum())
    error = float(((y - said) ** 2).sum()) / spread if spread else float("nan")
    return {"r2": 1 - error, "degraded": int(found.degraded.sum())}


def prediction_facts(found: NodePrediction) -> dict[str, Any]:
    """What people want to know of a prediction besides the numbers."""
    return {
        "version": found.version,
        "n_rows": len(found.degraded),
        "degraded": int(found.degraded.sum()),
        "missing": dict(found.missing),
        "unknown": dict(found.unknown),
        "outside": dict(found.outside),
        "drifted": dict(found.drifted),
        "changed": list(found.changed),
    }


def prediction_rows(ids: list[Any], found: NodePrediction) -> list[dict[str, Any]]:
    """One mapping per row: id, prediction, probabilities where there are
    classes, and whether it is degraded.
    """
    said = found.most_probable()
    rows: list[dict[str, Any]] = [
        {"id": one, "prediction": value, "degraded": bool(weak)}
        for one, value, weak in zip(ids, said, found.degraded, strict=True)
    ]
    if found.classes is not None:
        for row, probabilities in zip(rows, found.prediction.tolist(), strict=True):
            row["probabilities"] = dict(zip(map(str, found.classes), probabilities, strict=True))
    return rows


def prediction_text(row_id: str, ids: list[Any], found: NodePrediction) -> str:
    """Predictions as the text of a CSV file: the same in a file and on the screen."""
    text = io.StringIO()
    csv_header(text, row_id, found)
    write_rows(text, ids, found)
    return text.getvalue()


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


def csv_header(file: TextIO, row_id: str, found: NodePrediction) -> None:
    """The names of the columns."""
    classes = [] if found.classes is None else [f"probability_{one}" for one in found.classes]
    csv.writer(file, lineterminator="\n").writerow([row_id, "prediction", *classes, "degraded"])


def write_rows(file: TextIO, ids: list[Any], found: NodePrediction) -> None:
    """A line for each row."""
    columns: list[Any] = [ids]
    if found.classes is not None:
        columns.append(found.most_probable())
    columns += found.prediction.T.tolist()
    columns.append(found.degraded.astype(np.int64).tolist())
    # All at once: millions of rows take longer to be written than to be predicted.
    csv.writer(file, lineterminator="\n").writerows(zip(*columns, strict=True))
