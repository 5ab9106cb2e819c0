"""Outcomes of deep runs that stay: a figure measured on a GPU is not lost because a source file moved.

``kept.jsonl`` beside this file has one line per run, with the commit whose sources made it. A table shows the
outcome of today's sources where the cache has one, else the kept one, and says which commit that was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from gal.errors import InvalidInputError
from gal_bench.cache import Cache, replace_text
from gal_bench.cells import Cell, Outcome

FILE = Path(__file__).with_name("kept.jsonl")


def read_kept(path: Path = FILE) -> dict[str, Outcome]:
    """By ``repr`` of the cell; each outcome has the commit that made it."""
    return {repr(cell): outcome for cell, outcome in _lines(path)}


def keep(cells: Iterable[Cell], cache: Cache, commit: str, path: Path = FILE) -> int:
    """Write down what the cache has of these cells; it takes the place of
    older outcomes. How many changed.
    """
    known = {repr(cell): (cell, outcome) for cell, outcome in _lines(path)} if path.exists() else {}
    found = [(cell, cache.get(cell)) for cell in cells if cell.deep]
    fresh = {
        repr(cell): (cell, replace(outcome, commit=outcome.commit or commit))
        for cell, outcome in found
        if outcome is not None and not _same(outcome, known.get(repr(cell)))
    }
    replace_text(path, "".join(_line(*one) for _, one in sorted((known | fresh).items())))
    return len(fresh)


def _same(outcome: Outcome, known: tuple[Cell, Outcome] | None) -> bool:
    """Whether it is the one that was kept before, so that its commit stays."""
    return known is not None and replace(outcome, commit="") == replace(known[1], commit="")


def _line(cell: Cell, outcome: Outcome) -> str:
    return json.dumps({"cell": _short(cell.to_json()), "outcome": outcome.to_json()}, sort_keys=True) + "\n"


def _short(values: Mapping[str, object]) -> dict[str, object]:
    """Without what is as it is by default, so that a new field of a cell leaves old lines readable."""
    plain = Cell(dataset="", organizations=0, protocol="", seed=0).to_json()
    needed = ("dataset", "organizations", "protocol", "seed")
    return {name: value for name, value in values.items() if name in needed or value != plain[name]}


def _lines(path: Path) -> Iterable[tuple[Cell, Outcome]]:
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            line = json.loads(text)
            yield Cell.from_json(line["cell"]), Outcome(**line["outcome"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"{str(path)!r}, line {number} holds no outcome: {error!r}") from error
