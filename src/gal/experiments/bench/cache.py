"""Outcomes on disk, one JSON file per run: an interrupted bench goes on where it stopped.

A file's name is a digest of the cell, of the sources of everything that decides an outcome, and of the
versions of numpy, scipy and scikit-learn: after a change of any of them the run is done again, and no old
number stands beside new ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

import gal
from gal.experiments.bench.cells import Cell, Outcome

ROOT = Path(gal.__file__).parent
DECIDING = (
    "core",
    "models",
    "baselines",
    "privacy",
    "closing.py",
    "columns.py",
    "drivers.py",
    "estimators.py",
    "initial.py",
    "labels.py",
    "organization.py",
    "parts.py",
    "tasks.py",
    "experiments/datasets.py",
    "experiments/disturbances.py",
    "experiments/metrics.py",
    "experiments/partitions.py",
    "experiments/splits.py",
    "experiments/bench/cells.py",
    "experiments/bench/local_models.py",
)
"""Sources that decide an outcome; tables, figures and commands do not."""


@cache
def fingerprint() -> str:
    """Digest of the deciding sources and library versions."""
    digest = hashlib.sha256()
    for path in deciding_files():
        digest.update(path.relative_to(ROOT).as_posix().encode())
        digest.update(path.read_bytes())
    for library in ("numpy", "scipy", "scikit-learn"):
        digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()[:16]


def deciding_files() -> Iterable[Path]:
    """All files of ``DECIDING``, in order."""
    for name in DECIDING:
        place = ROOT / name
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]


class Cache:
    """A folder of outcomes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, cell: Cell) -> Path:
        """Where this cell's outcome is kept."""
        text = json.dumps([asdict(cell), fingerprint()], sort_keys=True)
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
        path = self.path(cell)
        text = json.dumps({"cell": asdict(cell), "outcome": outcome.to_json()}, indent=1)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
