"""Columns of a large source in files without a name, mapped: the system may take their memory back.

A source that is read as a whole would otherwise be in memory as a whole, beside the view that is made of it.
The files lie in the node's home folder, and are gone with what was read.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidInputError
from gal.storage.text_files import Written, opened_text

LARGE = 50_000_000
"""Bytes of a table, or of an array, from which on it lies in files."""


def table_of_batches(batches: Iterable[Any], schema: Any, home: Path) -> Any:
    """A pyarrow Table of these batches; of a large one the columns of numbers are mapped."""
    import pyarrow as pa

    kept, size = list[Any](), 0
    rest = iter(batches)
    for batch in rest:
        kept.append(owned(batch))
        size += batch.nbytes
        if size > LARGE:
            return _mapped(kept, rest, schema, home)
    return pa.Table.from_batches(kept, schema)


def owned(batch: Any) -> Any:
    """A copy of DuckDB's batch: each of its columns can be let go of by
    itself, DuckDB's only all together.
    """
    import pyarrow as pa

    return pa.record_batch([pa.concat_arrays([one]) for one in batch.columns], schema=batch.schema)


def on_disk(array: NDArray[Any], home: Path) -> NDArray[Any]:
    """The same array, mapped where it is large and there is room."""
    if array.nbytes <= LARGE:
        return array
    try:
        with _unnamed(home) as file:
            file.write(np.ascontiguousarray(array).data)
            file.flush()
            return np.memmap(file, dtype=array.dtype, mode="r", shape=array.shape)
    except OSError:  # it stays where it is
        return array


def room_on_disk(n: int, kind: np.dtype[Any], home: Path) -> NDArray[Any]:
    """An array (n,) to write into, mapped where it is large and there is room."""
    if n * kind.itemsize <= LARGE:
        return np.empty(n, kind)
    try:
        with _unnamed(home) as file:
            os.posix_fallocate(file.fileno(), 0, n * kind.itemsize)  # a full disk is noticed now
            return np.memmap(file, dtype=kind, mode="r+", shape=(n,))
    except OSError:
        return np.empty(n, kind)


def _mapped(kept: list[Any], rest: Iterable[Any], schema: Any, home: Path) -> Any:
    import pyarrow as pa

    columns = [
        _InFile(one.type, home) if one.type in (pa.float64(), pa.int64()) else _InMemory(one.type)
        for one in schema
    ]
    while kept:
        batch = kept.pop(0)
        for column, values in zip(columns, batch.columns, strict=True):
            column.add(values)
    for batch in rest:
        for column, values in zip(columns, batch.columns, strict=True):
            column.add(values)
    return pa.Table.from_arrays([one.whole() for one in columns], schema=schema)


class _InMemory:
    """A column whose pieces stay as they come."""

    def __init__(self, kind: Any) -> None:
        self._kind, self._pieces = kind, list[Any]()

    def add(self, values: Any) -> None:
        import pyarrow as pa

        self._pieces.append(pa.concat_arrays([values]))

    def whole(self) -> Any:
        import pyarrow as pa

        return pa.chunked_array(self._pieces, self._kind)


class _InFile:
    """A column of numbers whose pieces are written to a file; which are missing is remembered."""

    def __init__(self, kind: Any, home: Path) -> None:
        self._kind, self._home, self._n, self._gaps = kind, home, 0, list[NDArray[np.intp]]()
        try:
            self._file: IO[bytes] = _unnamed(home)
        except OSError as error:
            raise _no_room(home, error) from error

    def add(self, values: Any) -> None:
        if values.null_count:
            self._gaps.append(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)) + self._n)
            values = values.fill_null(0)
        try:
            self._file.write(values.to_numpy(zero_copy_only=False).data)
        except OSError as error:
            raise _no_room(self._home, error) from error
        self._n += len(values)

    def whole(self) -> Any:
        import pyarrow as pa

        with self._file as file:
            try:
                file.flush()
            except OSError as error:
                raise _no_room(self._home, error) from error
            numbers = np.memmap(file, self._kind.to_pandas_dtype(), "r", shape=(self._n,))
        there = None
        if self._gaps:
            known = np.ones(self._n, dtype=np.bool_)
            known[np.concatenate(self._gaps)] = False
            there = pa.py_buffer(np.packbits(known, bitorder="little"))
        return pa.chunked_array([pa.Array.from_buffers(self._kind, self._n, [there, pa.py_buffer(numbers)])])


def as_utf_8(path: Path, how: Written, home: Path) -> IO[bytes]:
    """A text file once more in UTF-8, for as long as what is returned is there."""
    place = home / "tmp"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        made = tempfile.NamedTemporaryFile(dir=place, suffix=".csv")  # noqa: SIM115
        with opened_text(path, how) as file:
            while block := file.read(1 << 20):
                made.write(block.encode())
        made.flush()
    except OSError as error:
        raise _no_room(home, error) from error
    return made


def _unnamed(home: Path) -> IO[bytes]:
    place = home / "tmp"
    place.mkdir(mode=0o700, exist_ok=True)
    return tempfile.TemporaryFile(dir=place, buffering=1 << 20)


def _no_room(home: Path, error: OSError) -> InvalidInputError:
    return InvalidInputError(
        f"a large source is kept in {str(home / 'tmp')!r} while it is used, which cannot be written: "
        f"{error.strerror or error}. Make room on the disk, or make the folder writable"
    )
