"""The rows that somebody asks for, joined with a source as it streams by, straight into the file of a view.

Each batch's rows are written where they belong in the order asked for; the source is never in memory as a
whole, and the view only as pages of its file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment import Index, RowIds
from gal.errors import AlignmentError, InvalidInputError
from gal.node.config.configuration import NodeConfiguration
from gal.node.source.data import Kind, categories_of, data_of, kind_of, typed_row_ids
from gal.node.source.streamed_reading import StreamedReader
from gal.node.store.files import sync_file
from gal.node.store.row_index import RowIndex, forgotten_rows
from gal.node.store.views import ArrowColumns, Blocks, npy_header, save_view

BLOCK = 65_536


@dataclass(frozen=True)
class AskedRows:
    """Rows that a peer asks for."""

    index: Index
    """Of their tokens, in the order asked for."""
    check: Callable[[RowIds], None]
    """An error where ids of our own are of another kind."""
    tokens_of: Callable[[RowIds], NDArray[Any]]
    """What stands for ids of our own in messages."""

    def __len__(self) -> int:
        return len(self.index)


class JoinedRows:
    """What of the asked rows is known, written to a draft beside the view; `save` makes the view of it."""

    def __init__(self, asked: AskedRows, writer: _Writer) -> None:
        self._writer = writer
        self.known = np.zeros(len(asked), dtype=np.bool_)
        self._ids: NDArray[Any] = np.zeros(len(asked), dtype=np.int64)
        self.kinds: Mapping[str, Kind] = {}
        self.dates: frozenset[str] = frozenset()
        """Features that are days since 1970."""

    @property
    def ids(self) -> NDArray[Any]:
        """Ids of the known rows, in the order asked for."""
        return self._ids[self.known]

    def put(self, places: NDArray[np.intp], ids: RowIds, batch: Any) -> None:
        """Rows of a batch, each at its place."""
        if ids.kind == "text" and self._ids.dtype != object:
            self._ids = np.full(len(self._ids), None, dtype=object)
        again = self.known[places]
        if again.any():
            one = ids.values[[int(again.argmax())]].tolist()[0]
            raise AlignmentError(
                f"the source has more than one row with the id {one!r:.80}: keep one row for each id"
            )
        self.known[places] = True
        self._ids[places] = ids.values
        self._writer.put(places, batch)

    def save(self, path: Path) -> None:
        """Write the view of the known rows; it is there in full or not at all."""
        self.kinds = self._writer.save(self.known, path)

    def drop(self) -> None:
        """Leave no draft behind; a view that was saved stays."""
        self._writer.drop()


def join_stream(configuration: NodeConfiguration, asked: AskedRows, folder: Path) -> JoinedRows:
    """Stream the source once, and keep what of it is asked for in a draft in this folder."""
    data = data_of(configuration)
    reader = StreamedReader(configuration.name, data, configuration.home, with_label=False)
    return reader.attempted(lambda: _join(reader, asked, folder, forgotten_rows(configuration.home)))


def _join(reader: StreamedReader, asked: AskedRows, folder: Path, forgotten: RowIndex) -> JoinedRows:
    with reader.stream() as batches:
        writer = _writer(batches.schema, len(asked), folder)
        joined, n_rows = JoinedRows(asked, writer), 0
        try:
            for batch in batches:
                if batch.num_rows == 0:
                    continue
                n_rows += batch.num_rows
                ids = typed_row_ids(batch.column(0), reader.data, reader.organization)
                asked.check(ids)
                places = asked.index.positions(asked.tokens_of(ids))
                places[forgotten.among(ids.values)] = -1
                kept = np.flatnonzero(places >= 0)
                joined.put(places[kept], ids.take(kept), batch.take(kept))
            joined.dates = frozenset(reader.dates)
            if n_rows == 0:
                raise InvalidInputError(f"{reader.whose}: there are no rows; put data into it")
        except BaseException:
            writer.drop()
            raise
    return joined


class _Writer:
    """Where rows are put until it is known which of them there are."""

    def put(self, places: NDArray[np.intp], batch: Any) -> None:
        """Columns of a batch, without the id in its first, at these rows."""
        raise NotImplementedError

    def save(self, known: NDArray[np.bool_], path: Path) -> dict[str, Kind]:
        """Make the view of the known rows; what each column is."""
        raise NotImplementedError

    def drop(self) -> None:
        """Leave nothing behind."""
        raise NotImplementedError


def _writer(schema: Any, n_rows: int, folder: Path) -> _Writer:
    import pyarrow as pa

    fields = list(schema)[1:]
    draft = folder / f"joined.{os.getpid()}.part"
    if all(pa.types.is_float64(one.type) for one in fields):
        return _Numbers(draft, n_rows, [one.name for one in fields])
    return _Columns(draft, n_rows, fields)


class _Numbers(_Writer):
    """All columns are numbers: rows go to their place in what will be the view's own file."""

    def __init__(self, draft: Path, n_rows: int, names: list[str]) -> None:
        self._draft, self._names = draft, names
        self._start = len(npy_header((n_rows, len(names))))
        self._rows: Any = np.memmap(draft, "<f8", "w+", offset=self._start, shape=(n_rows, len(names)))
        draft.chmod(0o600)

    def put(self, places: NDArray[np.intp], batch: Any) -> None:
        block = np.empty((len(places), len(self._names)))
        for j, column in enumerate(batch.columns[1:]):
            block[:, j] = column.to_numpy(zero_copy_only=False)
        self._rows[places] = block

    def save(self, known: NDArray[np.bool_], path: Path) -> dict[str, Kind]:
        there = np.flatnonzero(known)
        if len(there) < len(known):
            for start in range(0, len(there), BLOCK):  # rows only ever move up
                self._rows[start : start + BLOCK][: len(there) - start] = self._rows[
                    there[start : start + BLOCK]
                ]
        self._rows.flush()
        header = npy_header((len(there), len(self._names)))
        assert len(header) == self._start, (header, self._start)
        self._rows = None
        with self._draft.open("r+b") as file:
            file.write(header)
            file.truncate(self._start + 8 * len(there) * len(self._names))
        self._draft.replace(path)
        sync_file(path)
        return dict.fromkeys(self._names, "number")

    def drop(self) -> None:
        self._rows = None
        self._draft.unlink(missing_ok=True)


class _Columns(_Writer):
    """Some columns are text: each column has a place of its own in a draft, text as codes of its values."""

    def __init__(self, draft: Path, n_rows: int, fields: list[Any]) -> None:
        import pyarrow as pa

        self._draft, self._fields = draft, fields
        self._values: Any = np.memmap(draft, "<f8", "w+", shape=(len(fields), n_rows))
        draft.chmod(0o600)
        self._codes: dict[int, dict[str, int]] = {
            j: {} for j, one in enumerate(fields) if not pa.types.is_float64(one.type)
        }

    def put(self, places: NDArray[np.intp], batch: Any) -> None:
        for j, column in enumerate(batch.columns[1:]):
            if j not in self._codes:
                self._values[j, places] = column.to_numpy(zero_copy_only=False)
                continue
            known, coded = self._codes[j], column.dictionary_encode()
            codes = [known.setdefault(one, len(known)) for one in coded.dictionary.to_pylist()]
            found = np.asarray(coded.indices.fill_null(-1))
            self._values[j, places] = np.array([*codes, -1], dtype=np.float64)[found]

    def save(self, known: NDArray[np.bool_], path: Path) -> dict[str, Kind]:
        import pyarrow as pa

        columns = {field.name: self._column(j, known) for j, field in enumerate(self._fields)}
        kinds = {name: kind_of(column.type) for name, column in columns.items()}
        if "text" in kinds.values():
            save_view(ArrowColumns(pa.record_batch(list(columns.values()), names=list(columns))), path)
        else:
            save_view(Blocks((int(known.sum()), len(columns)), _in_rows(list(columns.values()))), path)
        del columns
        self.drop()
        return kinds

    def _column(self, j: int, known: NDArray[np.bool_]) -> Any:
        """A column of the view: float64 with NaN, or categories."""
        import pyarrow as pa

        there = self._values[j] if known.all() else self._values[j][known]
        if j not in self._codes:
            return pa.array(there)
        codes = there.astype(np.int32)
        coded = pa.DictionaryArray.from_arrays(
            pa.array(codes, mask=codes < 0), pa.array(list(self._codes[j]), pa.string())
        )
        made = categories_of(coded, stays_text=False)
        return made if kind_of(made.type) == "text" else pa.array(made.to_numpy(zero_copy_only=False))

    def drop(self) -> None:
        self._values = None
        self._draft.unlink(missing_ok=True)


def _in_rows(columns: list[Any]) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(columns[0]), BLOCK):
        yield np.stack([np.asarray(one[start : start + BLOCK]) for one in columns], axis=1)
