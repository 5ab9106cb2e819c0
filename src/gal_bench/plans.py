"""Runs elsewhere, as files: the plan says what is to be run, the outcomes what came of it.

Both are JSON, and nothing here needs more than the standard library. A run is known by the name of its file
in the cache, which is a digest of its cell and of the sources: outcomes of other sources do not fit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gal.errors import InvalidInputError
from gal_bench.cache import Cache, fingerprint, replace_text
from gal_bench.cells import Cell, Outcome


@dataclass(frozen=True)
class Plan:
    """What is to be run, in order."""

    fingerprint: str
    """Of the sources that the plan is for."""
    cells: dict[str, Cell]
    """By the name of their file in the cache."""


@dataclass(frozen=True)
class Record:
    """What came of a run: an outcome, or an error."""

    cell: dict[str, Any]
    fingerprint: str
    """Of the sources that ran."""
    seconds: float
    """All of it, with reading the data."""
    outcome: dict[str, Any] | None = None
    error: str = ""


def write_plan(cells: Iterable[Cell], cache: Cache, path: Path) -> None:
    """Write these cells down for another machine."""
    runs = [{"file": cache.path(cell).name, "words": cell.words, "cell": cell.to_json()} for cell in cells]
    _write(path, {"fingerprint": fingerprint(deep=True), "runs": runs})


def read_plan(path: Path) -> Plan:
    """What ``write_plan`` wrote."""
    content = _read(path)
    try:
        cells = {str(run["file"]): Cell.from_json(run["cell"]) for run in content["runs"]}
        return Plan(str(content["fingerprint"]), cells)
    except (KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{str(path)!r} is no plan: expected a file that gal bench --plan wrote with this version "
            f"({error!r})"
        ) from error


def write_records(records: Mapping[str, Record], path: Path) -> None:
    """Write what came of the runs, all or nothing."""
    _write(path, {"runs": {name: asdict(record) for name, record in records.items()}})


def read_records(path: Path) -> dict[str, Record]:
    """What ``write_records`` wrote, by the name of the file in the cache."""
    content = _read(path)
    try:
        return {name: Record(**record) for name, record in content["runs"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"{str(path)!r} holds no outcomes: expected a file that gal_bench.run_plan wrote ({error!r})"
        ) from error


@dataclass(frozen=True)
class Taken:
    """What became of the records of a file."""

    taken: int
    refused: list[str]
    """Why, one sentence each."""


def take(path: Path, cache: Cache) -> Taken:
    """Put the outcomes of runs elsewhere into the cache, but for those that do not fit."""
    taken, refused = 0, []
    for name, record in read_records(path).items():
        try:
            cell, outcome = _checked(name, record, cache)
        except ValueError as error:
            refused.append(str(error))
        else:
            cache.put(cell, outcome)
            taken += 1
    return Taken(taken, refused)


def _checked(name: str, record: Record, cache: Cache) -> tuple[Cell, Outcome]:
    """The cell and its outcome; a ValueError says why they cannot be taken."""
    try:
        cell = Cell.from_json(record.cell)
        words = cell.words
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: its cell cannot be read ({error!r})") from error
    here = fingerprint(deep=cell.deep)
    if record.outcome is None:
        raise ValueError(f"{words}: it failed there: {record.error}")
    if record.fingerprint != here:
        raise ValueError(
            f"{words}: it was run with other sources (fingerprint {record.fingerprint}, here {here}): make "
            "a new plan"
        )
    if cache.path(cell).name != name:
        raise ValueError(f"{words}: its cell is not the one that was planned as {name}")
    try:
        outcome = Outcome(**record.outcome)
        finite = bool(outcome.scores) and all(math.isfinite(score) for score in outcome.scores)
    except TypeError as error:
        raise ValueError(f"{words}: its outcome cannot be read ({error})") from error
    if not finite:
        raise ValueError(f"{words}: its scores are not all numbers: {outcome.scores}")
    return cell, outcome


def _write(path: Path, content: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(content, indent=1))
    except OSError as error:
        raise InvalidInputError(f"{str(path)!r} cannot be written: {error}") from error


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{str(path)!r} cannot be read as JSON: {error}") from error
