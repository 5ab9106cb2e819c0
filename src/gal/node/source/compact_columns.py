"""Columns in memory, each in one piece: numbers, or text as codes of sorted values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

TRUTHS = {"true": True, "false": False}
"""A text column with only these values, in any case, is boolean, as in pandas."""

IS_DATE = b"date"
"""The metadata key of columns that were dates."""

LARGE_COLUMN = 1 << 20
"""Bytes of a column whose pieces are returned to the operating system at once."""


def compact(names: Sequence[str], columns: list[Any], texts: frozenset[str], dates: Collection[str]) -> Any:
    """A table with each column in one piece.

    The columns are taken out of the list one by one, so that no second copy of all exists.
    """
    import pyarrow as pa

    made, fields = [], []
    for name in names:
        chunked = columns.pop(0)
        column = in_one_piece(chunked)
        if column.nbytes > LARGE_COLUMN:  # free memory is not always returned
            pa.default_memory_pool().release_unused()
        was_text = pa.types.is_string(column.type)
        made.append(_as_categories(column, name in texts) if was_text else column)
        dated = name in dates or (was_text and _has_dates(column, made[-1]))
        fields.append(pa.field(name, made[-1].type, metadata={IS_DATE: b""} if dated else None))
    return pa.table(made, schema=pa.schema(fields))


def _has_dates(text: Any, made: Any) -> bool:
    """Whether text that became numbers was dates, and not times of a day or booleans."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_float64(made.type) or made.null_count == len(made):
        return False
    first = text[pc.index(pc.is_valid(text), True).as_py()].as_py()
    return any(mark in first for mark in "-/. ") and ":" not in first[:3]


def in_one_piece(chunked: Any) -> Any:
    import pyarrow as pa

    if chunked.num_chunks == 1:  # without a copy: it may be mapped
        return chunked.chunk(0)
    return pa.concat_arrays(chunked.chunks) if chunked.num_chunks else pa.array([], chunked.type)


def _as_categories(column: Any, stays_text: bool) -> Any:
    """Text as a sorted dictionary, or as numbers where it is all missing, booleans or dates."""
    import pyarrow as pa
    import pyarrow.compute as pc

    coded = column.dictionary_encode()
    if coded.null_count == len(coded) and not stays_text:
        return pa.nulls(len(coded), pa.float64())
    truths = None if stays_text else truths_of(coded)
    if truths is not None:
        return truths.cast(pa.float64())
    days = None if stays_text else days_of(coded)
    if days is not None:
        return days
    order = pc.sort_indices(coded.dictionary)
    places = np.empty(len(order), dtype=np.int32)
    places[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    codes = pa.array(places).take(coded.indices)
    return pa.DictionaryArray.from_arrays(codes, coded.dictionary.take(order))


def days_of(coded: Any) -> Any:
    """Dates or times, given as a dictionary of text, as days; None for other text."""
    import pyarrow as pa

    some = coded.dictionary[:20].to_pylist()
    if not all(one.strip()[:1].isdigit() for one in some):
        return None
    import pandas as pd

    from gal.models.reading.written_dates import days_of_text

    if days_of_text(pd.Series(some, dtype=object)) is None:  # before all are parsed
        return None
    days = days_of_text(pd.Series(coded.dictionary.to_pylist(), dtype=object))
    return None if days is None else pa.array(days, pa.float64()).take(coded.indices)


def truths_of(coded: Any) -> Any:
    """Values "true" and "false", given as a dictionary of text, as booleans; None for other text."""
    import pyarrow as pa

    if len(coded.dictionary) > 6:
        return None
    values = [TRUTHS.get(one.casefold()) for one in coded.dictionary.to_pylist()]
    return None if None in values or not values else pa.array(values, pa.bool_()).take(coded.indices)
