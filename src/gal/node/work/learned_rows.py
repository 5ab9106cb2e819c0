"""What an organization learned from, kept at home as keyed digests: whether what it serves in predictions is
still that, and of which rows a label holder may hear. Nothing of it leaves but a flag.

**Exchanges.** Whoever has the secret of keyed hashes can hash any id, and would learn from one prediction
whether an organization knows it. So a prediction speaks of rows that the version learned from, and of those
that came in by a further exchange: a prediction that names at least ``min_rows`` known rows which are new.
Any other row is answered as if nobody knew it here, whether that is so or not.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gal.node.store.files import remove_drafts
from gal.node.store.row_index import EXCHANGED, LEARNED, RowIndex, row_index

if TYPE_CHECKING:
    from gal.node.source.data import Table
    from gal.node.store.state import State

FORGOT = "learned-from-forgotten"
"""An empty file: the version learned from a row that was forgotten since."""
KEPT_FILES = frozenset({LEARNED, EXCHANGED, FORGOT})
"""They stay as long as a version predicts."""
KEPT_ANSWERS = "kept-*.arrow"
"""Noisy answers for who asks again."""
KEPT = 4
"""Comparisons of so many versions stay in memory."""
SAMPLE = 20_000
"""So many rows of the source are compared."""
CHANGED = 0.01
"""This share of the rows that were learned from may be corrected before it is a change."""
FEW = 100
"""From fewer rows that predictions asked for nothing is concluded."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Changes:
    """How the rows of today differ from those that a version learned from."""

    n_compared: int = 0
    """Rows of today that were learned from, of those looked at."""
    n_changed: int = 0

    def __bool__(self) -> bool:
        """Whether more rows have other values than are corrected now and then."""
        return self.n_changed > CHANGED * self.n_compared

    def said(self) -> str:
        """In words, for the operator."""
        if not self.n_changed:
            return ""
        return f"{self.n_changed:,} of {self.n_compared:,} rows that it learned from have other values now"


def remember_rows(table: Table, positions: NDArray[np.intp], folder: Path) -> None:
    """Keep what a version learns from, beside its view; a key is drawn for each."""
    (folder / LEARNED).unlink(missing_ok=True)
    index = RowIndex(folder / LEARNED)
    index.add(table.ids.values[positions], _values(index, table, positions))


def compare_rows(table: Table, folder: Path) -> Changes:
    """How the rows of today differ from those learned from; of many, a part is looked at."""
    sample = np.arange(len(table))
    if len(table) > SAMPLE:
        sample = np.sort(np.random.default_rng(len(table)).choice(len(table), SAMPLE, replace=False))
    return _compare(table, sample, folder)


def _compare(table: Table, positions: NDArray[np.intp], folder: Path) -> Changes:
    index = row_index(folder / LEARNED)
    places, learned = index.find(table.ids.values[positions])
    if index.values is None or not learned.any():
        return Changes()
    now = _values(index, table, positions[learned])
    return Changes(int(learned.sum()), int((index.values[places[learned]] != now).sum()))


def _values(index: RowIndex, table: Table, positions: NDArray[np.intp]) -> Any:
    from gal.node.source.data import view_of_table  # only the process that computes reads tables

    return index.of_rows(len(positions), lambda some: view_of_table(table, positions[some]), table.features)


def learned_from(folder: Path, ids: Sequence[str]) -> bool:
    """Whether the version in this folder learned from one of these rows, or from one that was forgotten."""
    return (folder / FORGOT).exists() or bool(row_index(folder / LEARNED).among(ids).any())


def forget_learned(folder: Path, ids: Sequence[str]) -> int:
    """Take rows out of what is kept of a version; how many files were written anew."""
    (folder / FORGOT).touch(mode=0o600)  # before anything goes by which it could be found out again
    return row_index(folder / LEARNED).remove(ids)


def forget_exchanged(folder: Path, ids: Sequence[str]) -> int:
    """Take rows out of those that came in by an exchange; how many files were written anew."""
    return row_index(folder / EXCHANGED).remove(ids)


class LearnedRows:
    """Compares the source with what versions learned from: once for each state of the source."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[Path, tuple[Table, Changes]] = {}
        self._so_far: dict[Path, Changes] = {}

    def changes(self, table: Table, folder: Path, *, whole: bool = True) -> Changes:
        """How the rows of today differ from those that the version in this folder learned from.

        A table that is not ``whole`` has the rows that a prediction asked for: those of all predictions are
        added up, and a few say nothing, since one that was corrected is no change of the data.
        """
        if not whole:
            now = _compare(table, np.arange(len(table)), folder)
            with self._lock:
                before = self._so_far.get(folder, Changes())
                so_far = Changes(before.n_compared + now.n_compared, before.n_changed + now.n_changed)
                self._so_far[folder] = so_far
            return so_far if so_far.n_compared >= FEW else Changes()
        with self._lock:
            found = self._found.get(folder)
        if found is None or found[0] is not table:
            found = table, compare_rows(table, folder)
            with self._lock:
                while len(self._found) >= KEPT:
                    self._found.pop(next(iter(self._found)))
                self._found[folder] = found
        return found[1]

    def forget(self, folder: Path) -> None:
        """Let go of everything of a task (its folder)."""
        with self._lock:
            for kept in (self._found, self._so_far):
                for path in [path for path in kept if folder in (path, *path.parents)]:
                    del kept[path]


class ExchangedRows:
    """Which rows may be spoken of to a label holder, by version."""

    def __init__(self, min_rows: int) -> None:
        self._min_rows, self._lock = min_rows, threading.Lock()

    def spoken_of(self, folder: Path, ids: NDArray[Any], known: Bools) -> Bools:
        """Whether each of these rows may be spoken of; enough new ones are an exchange.

        Where a row is not ``known`` here any id stands in: it is looked for like the others, so that how long
        an answer takes does not tell either. One that is named many times is one row.
        """
        learned = row_index(folder / LEARNED).among(ids)
        with self._lock:
            exchanged = row_index(folder / EXCHANGED)
            heard: Bools = learned | exchanged.among(ids)
            fresh = ids[known & ~heard]
            if len(set(fresh.tolist())) < max(self._min_rows, 1):
                return known & heard
            exchanged.add(fresh)  # on the disk before an answer says so
        return known


# Files that nobody needs


def drop_needless(state: State, task: str, number: int, *, answers: bool = True) -> None:
    """Delete files of an organization's version that has ended, or that never began, but for what predicts;
    ``answers``: those that are kept for who asks again go, too.
    """
    folder, version = state.folder(task, number), state.version(task, number)
    needed: set[str | None] = set()
    if version is not None and version.status != "abandoned":
        needed = {one.model for one in state.answers(task, number)} | KEPT_FILES
        needed |= set() if answers else {path.name for path in folder.glob(KEPT_ANSWERS)}
    for path in folder.iterdir():
        if path.is_file() and path.name not in needed:
            path.unlink(missing_ok=True)


def drop_leftovers(state: State) -> int:
    """Delete what a kill left behind: files of versions that have ended or never began, of tasks that were
    forgotten, and half-written ones; how many. Nothing may be computed meanwhile.
    """
    place = state.home / "tasks"
    before = _n_files(place)
    remove_drafts(place)
    known = {task.id for task in state.tasks()}
    for folder in place.glob("*"):
        if folder.name not in known and folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
    for folder in place.glob("*/*/organization"):
        task, number = folder.parent.parent.name, folder.parent.name
        if number.isdecimal() and state.statuses(task, "organization").get(int(number)) != "begun":
            drop_needless(state, task, int(number), answers=False)
    return before - _n_files(place)


def _n_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))
