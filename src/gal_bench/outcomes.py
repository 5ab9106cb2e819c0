"""Outcomes on disk, one line of JSON per run: an interrupted bench resumes.

A line counts while everything that may decide an outcome is as it was: the cell, the sources (without
comments and docstrings) and the versions of numpy, scipy and scikit-learn. Outcomes of deep runs stay
whatever changes, with the commit that made them: a GPU's hours are not lost because a source file moved.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gal_bench.cells import Cell, Outcome

ROOT = Path(__file__).parents[1]
"""Where the packages lie."""
KEPT = Path(__file__).with_name("kept.jsonl")
"""Outcomes of deep runs that the tables in docs show."""
DECIDING = ("gal", "gal_bench/baselines", "gal_bench/runs", "gal_bench/data")
APART = (
    *("gal/cli/", "gal/node/", "gal/transport/", "gal/protocol/", "gal/alignment/", "gal/storage/"),
    *("gal/evaluate/reporting/", "gal/learner/observing.py", "gal/errors.py", "gal/warnings.py"),
    *("gal/models/deep/", "gal_bench/runs/deep", "gal_bench/data/sources.py", "gal_bench/data/images.py"),
    *("gal_bench/data/shapes.py", "gal_bench/data/physionet.py"),
)
"""No run of a table of columns uses these, or they decide nothing: words, what is stored."""


def deciding_files() -> list[Path]:
    """The sources that may decide the outcome of a run that is not deep."""
    found = sorted(path for folder in DECIDING for path in (ROOT / folder).rglob("*.py"))
    return [one for one in found if not one.relative_to(ROOT).as_posix().startswith(APART)]


@cache
def fingerprint() -> str:
    """Digest of the deciding sources and of library versions."""
    digest = hashlib.sha256()
    for path in deciding_files():
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.value = ""  # a docstring computes nothing
        digest.update(f"{path.relative_to(ROOT).as_posix()} {ast.dump(tree)}".encode())
    for library in ("numpy", "scipy", "scikit-learn"):
        digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()[:16]


class Outcomes:
    """The outcomes of a file, to which new ones are added, and the kept ones."""

    def __init__(self, path: Path, *, commit: str | None = None, anew: bool = False) -> None:
        """``commit``: of new deep outcomes; by default that of the checkout. ``anew``: without kept ones."""
        self.path, self._commit = path, commit
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:  # a line that was cut off ends here
            if file.tell() and path.read_bytes()[-1:] != b"\n":
                file.write(b"\n")
        self._found: dict[str, Outcome] = {}
        for line in [*([] if anew else _lines(KEPT)), *_lines(path)]:
            try:
                cell, outcome = Cell.from_json(line["cell"]), Outcome(**line["outcome"])
            except (KeyError, TypeError):  # of a version with other fields
                continue
            if cell.deep or line.get("sources") == fingerprint():
                self._found[repr(cell)] = outcome

    def get(self, cell: Cell) -> Outcome | None:
        """The outcome of this cell, if it was run."""
        return self._found.get(repr(cell))

    def put(self, cell: Cell, outcome: Outcome) -> Outcome:
        """Add a line; the outcome as it is kept."""
        line: dict[str, Any] = {"cell": _short(cell)}
        if cell.deep:
            outcome = replace(outcome, commit=current_commit() if self._commit is None else self._commit)
        else:
            line["sources"] = fingerprint()
        line["outcome"] = outcome.to_json()
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, sort_keys=True) + "\n")
        self._found[repr(cell)] = outcome
        return outcome


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _short(cell: Cell) -> dict[str, Any]:
    """Without what is as it is by default, so that a new field of a cell leaves old lines readable."""
    plain = Cell(dataset="", organizations=0, protocol="", seed=0).to_json()
    needed = ("dataset", "organizations", "protocol", "seed")
    return {name: value for name, value in cell.to_json().items() if name in needed or value != plain[name]}


@cache
def current_commit() -> str:
    """The commit of the sources; empty outside a checkout."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    try:
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
