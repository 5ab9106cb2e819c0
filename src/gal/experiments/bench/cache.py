"""Outcomes on disk, one JSON file per run: an interrupted bench goes on where it stopped.

A file's name is a digest of the cell, of the sources of everything that decides an outcome, and of the
versions of numpy, scipy and scikit-learn: after a change of any of them the run is done again, and no old
number stands beside new ones. (Comments and docstrings do not count.) Deep runs have sources of their own, so that work on networks leaves the other
tables alone; they come from several machines, so their outcomes say on what they were computed, and versions
are no part of their names.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

from gal.experiments.bench.cells import Cell, Outcome
from gal.experiments.bench.code_text import code_text

ROOT = Path(__file__).parents[2]
COMMON = (
    "core",
    "models",
    "baselines",
    "privacy",
    "closing.py",
    "columns.py",
    "drivers.py",
    "estimators.py",
    "finished.py",
    "initial.py",
    "labels.py",
    "organization.py",
    "parts.py",
    "tasks.py",
    "experiments/disturbances.py",
    "experiments/metrics.py",
    "experiments/bench/local_models.py",
)
"""Sources that decide every outcome, but for those of ``DEEP_ONLY``; tables, figures and commands do not."""
TABULAR_ONLY = (
    "experiments/datasets.py",
    "experiments/partitions.py",
    "experiments/splits.py",
    "experiments/bench/mechanisms.py",
    "experiments/bench/tabular_cells.py",
)
LEAK_ONLY = ("privacy/leakage", "experiments/bench/leak_cells.py")
"""Sources that decide only what the leak meter finds."""
NEVER = (
    "privacy/answers.py",
    "privacy/ledger.py",
    "privacy/row_blocks.py",
    "privacy/statements.py",
)
"""Of packages named here, what no run of a table uses but for words: charging, and what nodes do."""
DEEP_ONLY = (
    "baselines/fusion.py",
    "models/deep",
    "models/sequences.py",
    "experiments/images.py",
    "experiments/medical",
    "experiments/rendering.py",
    "experiments/shapes.py",
    "experiments/view_sets.py",
    "experiments/bench/deep_cells.py",
    "experiments/bench/deep_models.py",
)


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
    return code_text(path.read_text(encoding="utf-8")).encode()


def deciding_files(*, deep: bool = False, leak: bool = False) -> list[Path]:
    """All sources that decide the outcomes of deep or of other runs, or of those whose leak is measured, in order."""
    own = set(_files(DEEP_ONLY if deep else TABULAR_ONLY)) | set(_files(LEAK_ONLY if leak else ()))
    common = set(_files(COMMON)) - set(_files((*DEEP_ONLY, *LEAK_ONLY, *NEVER)))
    return sorted(own | common)


def _files(names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        place = ROOT / name
        yield from place.rglob("*.py") if place.is_dir() else [place] * place.is_file()


class Cache:
    """A folder of outcomes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, cell: Cell) -> Path:
        """Where this cell's outcome is kept."""
        text = json.dumps([cell.to_json(), fingerprint(deep=cell.deep, leak=cell.leak)], sort_keys=True)
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
        write_whole(self.path(cell), json.dumps(stored, indent=1))


def write_whole(path: Path, text: str) -> None:
    """Write a file so that whoever reads it, even after a crash, finds the old text or the new one."""
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
