"""What an organization learned from, kept at home: whether what it serves in predictions is still that.

Of each column its share of missing values, range, quantiles or categories; and of each row a keyed digest,
since a column whose values are shuffled looks as before. Nothing of it leaves but a flag.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment.ordering import ordered_parts
from gal.alignment.siphash import KEY_BYTES, digests_of_integers, digests_of_texts, digests_of_words
from gal.node.store.files import remove_drafts, whole_file, write_whole

if TYPE_CHECKING:
    from gal.node.source.data import Table
    from gal.node.store.state import State

ROWS, COLUMNS = "learned-rows.npy", "learned-columns.json"
EXCHANGED = "exchanged-rows.bin"
"""Digests of rows that came in after learning, see ``exchanged_rows.py``."""
KEPT_FILES = frozenset({ROWS, COLUMNS, EXCHANGED})
"""They stay as long as a version predicts."""
KEPT_ANSWERS = "kept-*.arrow"
"""Noisy answers for who asks again."""
BLOCK = 65_536
KEPT = 4
"""Comparisons of so many versions stay in memory."""
SAMPLE = 20_000
"""So many rows of the source are compared; columns are summed up by as many."""
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_VALUES = 10_000
"""A column of text with more different values has no list of them."""
CHANGED = 0.01
"""This share of the rows that were learned from may be corrected before it is a change."""
FEW = 100
"""From fewer rows that predictions asked for nothing is concluded."""
SIPHASH = "siphash-2-4"
"""How digests are made; versions of before this was said have BLAKE2b's."""
APART = 0.15
"""Shares that differ by more, and by more than chance, are a change."""

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Changes:
    """How the rows of today differ from those that a version learned from."""

    n_compared: int = 0
    """Rows of today that were learned from, of those looked at."""
    n_changed: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)
    """By column: in what it differs."""

    @property
    def rows_changed(self) -> bool:
        """Whether more rows have other values than are corrected now and then."""
        return self.n_changed > CHANGED * self.n_compared

    def __bool__(self) -> bool:
        return self.rows_changed or bool(self.columns)

    def said(self) -> str:
        """In words, for the operator: it may name columns and categories."""
        parts = [f"{name}: {what}" for name, what in self.columns.items()]
        if self.n_changed:
            parts.insert(
                0,
                f"{self.n_changed:,} of {self.n_compared:,} rows that it learned from have other values now",
            )
        return "; ".join(parts)


def remember_rows(ids: NDArray[Any], view: Any, names: tuple[str, ...], folder: Path) -> None:
    """Keep what a version learns from, beside its view; a key is drawn for each."""
    facts: dict[str, Any] = {"key": secrets.token_bytes(32).hex(), "digests": SIPHASH}
    keyed = _Keyed(facts)
    unordered = folder / f"{ROWS}.unordered.part"  # which is removed, should a crash leave it
    with whole_file(unordered) as draft:
        for start in range(0, len(ids), BLOCK):
            some = np.empty((len(ids[start : start + BLOCK]), 2), dtype=np.uint64)
            some[:, 0] = keyed.ids(ids[start : start + BLOCK])
            some[:, 1] = keyed.rows(_rows(view, slice(start, start + BLOCK)), names)
            draft.write(some.data)
    try:
        _write_in_order(unordered, folder / ROWS)
    finally:
        unordered.unlink()
    facts["columns"] = _summary(_rows(view, _some_of(len(ids))), names)
    write_whole(folder / COLUMNS, json.dumps(facts).encode())


def _write_in_order(draft: Path, path: Path) -> None:
    """The digests in order of those of the ids; in memory there is only a part of them."""
    found = _mapped(draft)
    with whole_file(path) as file:
        for places, _ in ordered_parts(found[:, 0]):
            file.write(np.ascontiguousarray(found[places]).data)


def _mapped(path: Path) -> Hashes:
    """Digests of ids and rows, shape (n, 2), that stay in their file."""
    if path.stat().st_size == 0:
        return np.zeros((0, 2), dtype=np.uint64)
    return np.memmap(path, dtype=np.uint64, mode="r").reshape(-1, 2)


def _rows(view: Any, rows: Any) -> Any:
    """Rows of a view: of an array, or of a frame."""
    return view[rows] if isinstance(view, np.ndarray) else view.iloc[rows]


def compare_rows(table: Table, folder: Path) -> Changes:
    """How the rows of today differ from those learned from; nothing is known of versions of before."""
    found = _kept(folder)
    if found is None:
        return Changes()
    facts, kept = found
    keyed, sample = _Keyed(facts), _some_of(len(table))
    n_compared = n_changed = 0
    if len(kept):
        places, learned = _find(kept, keyed.ids(table.ids.values[sample]))
        now = keyed.rows(_view(table, sample[learned]), table.features)
        n_compared, n_changed = int(learned.sum()), int((kept[places[learned], 1] != now).sum())
    columns = _summary(_view(table, sample), table.features)
    told = {
        name: _difference(facts["columns"][name], one)
        for name, one in columns.items()
        if name in facts["columns"]
    }
    return Changes(n_compared, n_changed, {name: what for name, what in told.items() if what})


def learned_from(folder: Path, ids: Sequence[str]) -> bool:
    """Whether the version in this folder learned from one of these rows; yes where that is not known."""
    found = hashes_by_version(folder, ids)
    return found is None or bool(found[1].any())


def hashes_by_version(folder: Path, ids: Sequence[str]) -> tuple[Hashes, NDArray[np.bool_]] | None:
    """Digests of these ids by a version's key, and which it learned from; None for versions of before."""
    found = _kept(folder)
    if found is None:
        return None
    hashes = _Keyed(found[0]).texts([one.encode() for one in ids], b"id")
    if len(found[1]) == 0:
        return hashes, np.zeros(len(hashes), dtype=np.bool_)
    return hashes, _find(found[1], hashes)[1]


def forget_learned(folder: Path, ids: Sequence[str], table: Table | None) -> int:
    """Take rows out of what is kept of a version; how many files were written anew.

    Columns are summed up again from the rows of today (``table``, without the forgotten ones) that are as
    they were in learning; without any of them nothing more is known of columns.
    """
    found = _kept(folder)
    if found is None:
        for name in KEPT_FILES:
            (folder / name).unlink(missing_ok=True)
        return 2
    facts, kept = found
    keyed = _Keyed(facts)
    kept = kept[~np.isin(kept[:, 0], keyed.texts([one.encode() for one in ids], b"id"))]
    columns: dict[str, dict[str, Any]] = {}
    if table is not None and len(kept):
        every = np.arange(len(table))
        places, learned = _find(kept, keyed.ids(table.ids.values))
        now = keyed.rows(_view(table, every[learned]), table.features)
        same = every[learned][kept[places[learned], 1] == now]
        columns = _summary(_view(table, same[_some_of(len(same))]), table.features) if len(same) else {}
    write_whole(folder / ROWS, np.ascontiguousarray(kept))
    write_whole(folder / COLUMNS, json.dumps(facts | {"columns": columns}).encode())
    return 2


def _kept(folder: Path) -> tuple[dict[str, Any], Hashes] | None:
    """Columns and rows that are kept of a version; None for versions of before."""
    try:
        facts = json.loads((folder / COLUMNS).read_bytes())
        return facts, _mapped(folder / ROWS)
    except (OSError, ValueError):
        return None


def _find(kept: Hashes, ids: Hashes) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where each id is among the kept rows, and whether it is there."""
    places = np.minimum(np.searchsorted(kept[:, 0], ids), len(kept) - 1)
    return places, kept[places, 0] == ids


class LearnedRows:
    """Compares the source with what versions learned from: once for each state of the source."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[Path, tuple[Table, Changes]] = {}
        self._so_far: dict[Path, tuple[int, int]] = {}

    def changes(self, table: Table, folder: Path) -> Changes:
        """How the rows of today differ from those that the version in this folder learned from."""
        with self._lock:
            found = self._found.get(folder)
        if found is None or found[0] is not table:
            found = table, compare_rows(table, folder)
            with self._lock:
                while len(self._found) >= KEPT:
                    self._found.pop(next(iter(self._found)))
                self._found[folder] = found
        return found[1]

    def changes_so_far(self, table: Table, folder: Path) -> Changes:
        """The same from the rows that predictions asked for, added up: a source that is not read as a whole.

        A few rows say nothing: one that was corrected is no change of the data.
        """
        found = _kept(folder) if len(table) else None
        n_compared, n_changed = self._so_far.get(folder, (0, 0))
        if found is not None and len(found[1]):
            keyed = _Keyed(found[0])
            places, learned = _find(found[1], keyed.ids(table.ids.values))
            now = keyed.rows(_view(table, np.flatnonzero(learned)), table.features)
            n_compared += int(learned.sum())
            n_changed += int((found[1][places[learned], 1] != now).sum())
            with self._lock:
                self._so_far[folder] = n_compared, n_changed
        return Changes(n_compared, n_changed) if n_compared >= FEW else Changes()

    def forget(self, folder: Path) -> None:
        """Let go of everything of a task (its folder)."""
        with self._lock:
            self._so_far = {
                path: one for path, one in self._so_far.items() if folder not in (path, *path.parents)
            }
            self._found = {
                path: one for path, one in self._found.items() if folder not in (path, *path.parents)
            }


def _some_of(n_rows: int) -> NDArray[np.intp]:
    """Positions of at most `SAMPLE` of so many rows, spread over all, in their order."""
    if n_rows <= SAMPLE:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(n_rows).choice(n_rows, SAMPLE, replace=False))


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


# Digests


class _Keyed:
    """Digests by the key of a version: of ids, of values that are text, and of rows, by keys of their own."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._key, self._by_siphash = bytes.fromhex(facts["key"]), facts.get("digests") == SIPHASH

    def texts(self, texts: Sequence[bytes], what: bytes) -> Hashes:
        """Of texts, of which those of other kinds (``what``) have other digests."""
        if self._by_siphash:
            return digests_of_texts(texts, self._part(what))
        made = [hashlib.blake2b(text, digest_size=8, key=self._key, person=what).digest() for text in texts]
        return np.frombuffer(b"".join(made), dtype=np.uint64)

    def ids(self, ids: NDArray[Any]) -> Hashes:
        """Of ids: of a number as of the text of it."""
        if self._by_siphash and ids.dtype.kind == "i":
            return digests_of_integers(ids, self._part(b"id"))
        return self.texts([str(one).encode() for one in ids.tolist()], b"id")

    def rows(self, view: Any, names: tuple[str, ...]) -> Hashes:
        """Of the values of each row; text by what it says, since its codes depend on all other values."""
        if len(view) == 0:
            return np.zeros(0, dtype=np.uint64)
        bits = np.empty((len(view), len(names)), dtype=np.uint64)
        for j, name in enumerate(names):
            column: Any = view[:, j] if isinstance(view, np.ndarray) else view[name]
            if isinstance(view, np.ndarray) or getattr(column.dtype, "categories", None) is None:
                numbers = np.asarray(column, dtype=np.float64) + 0.0  # no -0.0
                bits[:, j] = np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
            else:
                values = self.texts([str(one).encode() for one in column.cat.categories], b"value")
                codes = column.cat.codes.to_numpy()
                bits[:, j] = np.append(values, np.uint64(0))[codes]
        if self._by_siphash:
            return digests_of_words(bits, self._part(b"row"))
        return self.texts([row.tobytes() for row in bits], b"row")

    def _part(self, what: bytes) -> bytes:
        return hashlib.blake2b(key=self._key, person=what, digest_size=KEY_BYTES).digest()


def _view(table: Table, positions: NDArray[np.intp]) -> Any:
    from gal.node.source.data import view_of_table  # only the process that computes reads tables

    return view_of_table(table, positions)


# Columns


def _summary(view: Any, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """By column: how many rows, the share that is missing, and range and quantiles, or categories."""
    found = {}
    for j, name in enumerate(names):
        column = view[:, j] if isinstance(view, np.ndarray) else view[name]
        if not isinstance(view, np.ndarray) and getattr(column.dtype, "categories", None) is not None:
            found[name] = _text_summary(column)
            continue
        numbers = np.asarray(column, dtype=np.float64)
        there = numbers[np.isfinite(numbers)]
        facts: dict[str, Any] = {"rows": len(numbers), "missing": 1 - len(there) / max(len(numbers), 1)}
        if len(there):
            facts["quantiles"] = np.quantile(there, SHARES, method="closest_observation").tolist()
            facts["range"] = [float(there.min()), float(there.max())]
            facts["at"] = [
                [float((there < one).mean()), float((there <= one).mean())] for one in facts["quantiles"]
            ]
            facts["values"] = np.quantile(
                there, np.linspace(0, 1, 201), method="closest_observation"
            ).tolist()
        found[name] = facts
    return found


def _text_summary(column: Any) -> dict[str, Any]:
    there = column.dropna().astype(str)
    values = there.value_counts(normalize=True)
    values = values[values > 0]
    kept = values.to_dict() if len(values) <= MOST_VALUES else None
    return {"rows": len(column), "missing": 1 - len(there) / max(len(column), 1), "categories": kept}


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In what a column differs, in words; empty where it does not, or where chance would do."""
    if not before["rows"] or not now["rows"]:
        return ""
    enough = APART + 1.95 / np.sqrt(min(before["rows"], now["rows"]))
    if abs(now["missing"] - before["missing"]) > enough:
        return f"{now['missing']:.0%} missing, {before['missing']:.0%} in learning"
    if before.get("categories") is not None and now.get("categories") is not None:
        new = {one: share for one, share in now["categories"].items() if one not in before["categories"]}
        if sum(new.values()) > enough:
            return (
                f"{sum(new.values()):.0%} are of {len(new)} categories that are new, such as "
                f"{next(iter(new))!r:.40}"
            )
        moved = {one: now["categories"].get(one, 0.0) - share for one, share in before["categories"].items()}
        most = max(moved, key=lambda one: abs(moved[one]), default="")
        if most and abs(moved[most]) > enough:
            return (
                f"{most!r:.40} in {before['categories'][most] + moved[most]:.0%}, "
                f"{before['categories'][most]:.0%} in learning"
            )
        return ""
    if "values" not in before or "values" not in now:
        return ""
    values = np.asarray(now["values"])
    outside = float(((values < before["range"][0]) | (values > before["range"][1])).mean())
    if outside > enough:
        return f"{outside:.0%} are outside of {before['range'][0]:.4g} to {before['range'][1]:.4g}"
    for one, share, (below, at_most) in zip(before["quantiles"], SHARES, before["at"], strict=True):
        least, most_now = float((values < one).mean()), float((values <= one).mean())
        if max(least - at_most, below - most_now) > enough:
            return f"distributed otherwise: {share:.0%} were at most {one:.4g}, {most_now:.0%} are now"
    return ""
