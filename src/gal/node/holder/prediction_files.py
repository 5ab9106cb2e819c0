"""Predictions for people: as plain data, as a CSV file, and how good they are."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from gal.errors import InvalidInputError
from gal.node.holder.predicting import NodePrediction


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
    }


def prediction_rows(ids: list[Any], found: NodePrediction) -> list[dict[str, Any]]:
    """One mapping per row: id, prediction, probabilities where there are classes, and whether it is degraded."""
    said = found.most_probable()
    rows: list[dict[str, Any]] = [
        {"id": one, "prediction": value, "degraded": bool(weak)}
        for one, value, weak in zip(ids, said, found.degraded, strict=True)
    ]
    if found.classes is not None:
        for row, probabilities in zip(rows, found.prediction.tolist(), strict=True):
            row["probabilities"] = dict(zip(map(str, found.classes), probabilities, strict=True))
    return rows


def write_predictions(out: Path, row_id: str, ids: list[Any], found: NodePrediction) -> None:
    """Predictions as a CSV file: written whole or not at all."""
    classes = [] if found.classes is None else [f"probability_{one}" for one in found.classes]
    draft = out.with_name(out.name + ".part")
    try:
        _write_rows(draft, [row_id, "prediction", *classes, "degraded"], ids, found)
        draft.replace(out)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise InvalidInputError(f"{str(out)!r} cannot be written: {error.strerror or error}") from error


def _write_rows(path: Path, header: list[str], ids: list[Any], found: NodePrediction) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for place, (one, value) in enumerate(zip(ids, found.most_probable(), strict=True)):
            more = found.prediction[place].tolist() if found.classes is not None else []
            values = value if isinstance(value, list) else [value]
            writer.writerow([one, *values, *more, int(found.degraded[place])])
