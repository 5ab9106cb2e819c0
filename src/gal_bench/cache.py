"""Outcomes on disk, one JSON file per run: an interrupted bench goes on where it stopped.

A file's name is a digest of the cell, of the sources of everything that may decide an outcome, and of the
versions of numpy, scipy and scikit-learn: after a change of any of them the run is done again, and no old
number stands beside new ones. (Comments and docstrings do not count.) Deep runs have sources of their own, so
that work on networks leaves the other tables alone; they come from several machines, so their outcomes say on
what they were computed, and versions are no part of their names.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path

from gal.errors import InvalidInputError
from gal_bench.cells import Cell, Outcome

ROOT = Path(__file__).parents[1]
"""Where the packages lie."""
APART = (
    *("gal/cli/", "gal/node/", "gal/transport/", "gal/protocol/", "gal/alignment/", "gal/storage/"),
    *("gal/evaluate/reporting/", "gal/engine/observing.py", "gal/errors.py", "gal/warnings.py"),
    "gal_bench/data/sources.py",
)
"""No run uses these, or they decide nothing: words, what is stored."""
NETWORKS = (
    *("gal/models/deep/", "gal_bench/runs/deep_", "gal_bench/data/images.py", "gal_bench/data/shapes.py"),
    *("gal_bench/data/physionet.py", "gal_bench/data/view_sets.py"),
)
COLUMNS = (
    *("gal_bench/runs/tabular_cells.py", "gal_bench/runs/mechanisms.py", "gal_bench/data/datasets.py"),
    "gal_bench/data/splits.py",
)
METER = ("gal/privacy/leakage/", "gal_bench/runs/leak_cells.py")
"""What only deep runs use, only runs of columns, only those whose leak is measured."""


@cache
def fingerprint(*, deep: bool = False, leak: bool = False) -> str:
    """Digest of the deciding sources and, but for deep runs, of library versions."""
    digest = hashlib.sha256()
    for path in deciding_files(deep=deep, leak=leak):
        digest.update(path.relative_to(ROOT).as_posix().encode())
        digest.update(_code(path))
    for library in () if deep else ("numpy", "scipy", "scikit-learn"):
        digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()[:16]


@cache
def _code(path: Path) -> bytes:
    return code_text(path.read_text(encoding="utf-8"))


def code_text(source: str) -> bytes:
    """A module without lines that compute nothing (docstrings, comments, empty ones); the same on every
    version of Python.

    >>> code_text('def f(x):\\n    "Adds one."\\n\\n    # not two\\n    return x + 1\\n')
    b'def f(x):\\n    return x + 1'
    """
    lines = source.encode().splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str) and node.end_lineno is not None:
            lines[node.lineno - 1 : node.end_lineno] = [b""] * (node.end_lineno - node.lineno + 1)
    return b"\n".join(line for line in lines if line.strip() and not line.strip().startswith(b"#"))


def deciding_files(*, deep: bool = False, leak: bool = False) -> list[Path]:
    """All sources that decide the outcomes of deep or of other runs, or of those
    whose leak is measured, in order.
    """
    passed_over = (*APART, *(COLUMNS if deep else NETWORKS), *(() if leak else METER))
    folders = ("gal", "gal_bench/baselines", "gal_bench/runs", "gal_bench/data")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sorted(one for one in found if not one.relative_to(ROOT).as_posix().startswith(passed_over))


class Cache:
    """A folder of outcomes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, cell: Cell) -> Path:
        """Where this cell's outcome is kept."""
        decides = [cell.to_json(), fingerprint(deep=cell.deep, leak=cell.leak)]
        text = json.dumps(decides, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    def get(self, cell: Cell) -> Outcome | None:
        """The stored outcome; None where there is none (or a file that is cut off or something else)."""
        try:
            stored = json.loads(self.path(cell).read_text(encoding="utf-8"))
            return Outcome(**stored["outcome"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def put(self, cell: Cell, outcome: Outcome) -> None:
        """Store, all or nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stored = {"cell": cell.to_json(), "outcome": outcome.to_json()}
        replace_text(self.path(cell), json.dumps(stored, indent=1))


def replace_text(path: Path, text: str) -> None:
    """Write a file so that whoever reads it, even after a crash, finds the old text or the new one."""
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


# --- outcomes of deep runs that stay: a figure measured on a GPU is not lost because a source file moved

KEPT = Path(__file__).with_name("kept.jsonl")
"""One line per run, with the commit whose sources made it. A table shows the outcome of the current sources
where the cache has one, else the kept one, and says which commit that was."""


def read_kept(path: Path = KEPT) -> dict[str, Outcome]:
    """By ``repr`` of the cell; each outcome has the commit that made it."""
    return {repr(cell): outcome for cell, outcome in _kept_lines(path)}


def keep(cells: Iterable[Cell], cache: Cache, commit: str, path: Path = KEPT) -> int:
    """Write down what the cache has of these cells; it takes the place of
    older outcomes. How many changed.
    """
    known = {repr(cell): (cell, outcome) for cell, outcome in _kept_lines(path)} if path.exists() else {}
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


def _kept_lines(path: Path) -> Iterable[tuple[Cell, Outcome]]:
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            line = json.loads(text)
            yield Cell.from_json(line["cell"]), Outcome(**line["outcome"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"{str(path)!r}, line {number} holds no outcome: {error!r}") from error
