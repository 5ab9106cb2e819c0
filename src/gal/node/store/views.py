"""Views as files, so that a restarted node fits the same rows; never pickle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gal.errors import InvalidInputError
from gal.models.parted import START, PartColumn, open_parts, write_parts
from gal.node.store.files import whole_file, write_whole
from gal.storage.rereading import reread

NUMPY = b"\x93NUMPY"
ARROW = b"ARROW1"
PARTED = START[: len(NUMPY)]
"""First bytes of the files."""


def save_view(view: Any, path: Path) -> None:
    """Write a view to ``path``: an array as .npy, a frame of float64 and categories as an Arrow IPC file."""
    import pyarrow as pa

    with whole_file(path, f"the view {str(path)!r}", durably=True) as file:
        if isinstance(view, np.ndarray):
            np.save(file, view, allow_pickle=False)
            return
        columns = [_arrow_column(name, view[name]) for name in view.columns]
        batch = pa.record_batch(columns, names=list(view.columns))
        with pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)  # even without rows, it carries the categories


def save_parts(columns: Sequence[PartColumn], tables: Iterable[Any], path: Path) -> None:
    """Write a view in Parquet partitions beside ``path``, their index, which is written last.

    ``tables``: pyarrow tables of float64 or codes of categories, read one at a time.
    """
    write_parts(path, columns, tables, partial(write_whole, durably=True))


def load_view(path: Path) -> Any:
    """The view in a file, with the same types and categories; arrays and partitions are mapped, not read."""
    try:
        with path.open("rb") as file:
            start = file.read(len(NUMPY))
        if start == NUMPY:
            return reread(lambda: np.load(path, mmap_mode="r", allow_pickle=False))
        if start == ARROW:
            import pyarrow as pa

            with pa.memory_map(str(path)) as mapped:
                return frame_of(pa.ipc.open_file(mapped).read_all())
        if start == PARTED:
            return open_parts(path)
    except (OSError, ValueError) as error:  # Arrow's errors are ValueErrors, too
        raise InvalidInputError(f"the view in {str(path)!r} cannot be read: {error}") from error
    raise InvalidInputError(f"{str(path)!r} is no view: it begins with {start!r}")


def _arrow_column(name: str, column: Any) -> Any:
    import pyarrow as pa

    if column.dtype == np.float64:
        return pa.array(column.to_numpy())  # NaN stays NaN
    if getattr(column.dtype, "categories", None) is None:
        raise InvalidInputError(f"column {name!r} is {column.dtype}; a view has float64 and categories only")
    codes = column.cat.codes.to_numpy().astype(np.int32)
    values = pa.array(column.cat.categories.to_numpy(dtype=object), pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), values, ordered=column.cat.ordered)


def frame_of(table: Any) -> Any:
    """A pandas frame of an Arrow table of float64 and dictionaries; missing numbers are NaN."""
    import pandas as pd

    columns = zip(table.column_names, table.columns, strict=True)
    return pd.DataFrame({name: _pandas_column(column) for name, column in columns}, copy=False)


def _pandas_column(column: Any) -> Any:
    import pandas as pd
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return np.array(column.to_numpy(), dtype=np.float64)
    # All categories stay, also those without a row.
    whole = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    codes = np.asarray(whole.indices.fill_null(-1))
    values = pd.Index(whole.dictionary.to_numpy(zero_copy_only=False), dtype=object)
    return pd.Categorical.from_codes(codes, categories=values, ordered=column.type.ordered)
