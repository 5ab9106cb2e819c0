"""An organization's own rows: read through DuckDB from CSV, Parquet or SQL, checked, and handed out as views.

Numbers, booleans, dates and times become float64 (dates and times as days, since 1970 where they have a
date); text becomes categories. Nothing here is sent anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from gal.alignment import RowIds, row_ids
from gal.errors import ConfigurationError, InvalidColumnsError, InvalidInputError, InvalidLabelsError
from gal.node.config.configuration import DataSource, NodeConfiguration
from gal.node.source.source_reading import BATCH, SourceReader
from gal.node.store.forgotten import forgotten_now, read_forgotten
from gal.node.store.views import Blocks, frame_of, load_view, save_view

Kind = Literal["number", "text"]
Stamp = tuple[int, int]
"""Time of the last change in nanoseconds, and size in bytes."""

TRUTHS = {"true": True, "false": False}
"""A text column of these only, in upper or lower case, is boolean, as in pandas."""

LARGE_COLUMN = 1 << 20
"""Bytes of a column whose pieces are given back to the operating system as soon as it is whole."""


@dataclass(frozen=True, eq=False)
class Table:
    """An organization's rows: ids, feature columns and, where it has one, the label."""

    organization: str
    ids: RowIds
    columns: Any
    """A pyarrow Table of the features: float64, or text as a dictionary with sorted values."""
    label: Any
    """A pyarrow ChunkedArray, or None."""
    stamp: Stamp | None
    """Of the file that was read, to notice changes; None where a query names its own files."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the feature columns, in their order."""
        return tuple(self.columns.column_names)

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each feature is: what a fitted local model expects to get again."""
        return {field.name: _kind_of(field.type) for field in self.columns.schema}

    @property
    def is_numeric(self) -> bool:
        """Whether all features are numbers."""
        return all(kind == "number" for kind in self.kinds.values())

    def __len__(self) -> int:
        return len(self.ids)


def read_source(
    configuration: NodeConfiguration, source: Path | None = None, *, label: bool = True, whole: bool = False
) -> Table:
    """All rows of the organization's source, or of another file with the same columns.

    ``label=False`` leaves the label out: rows to predict have none. Rows that were forgotten are left out,
    unless ``whole``.
    """
    data = _data_of(configuration) if source is None else _elsewhere(configuration, source)
    table = _table(SourceReader(configuration.name, data, configuration.home, with_label=label))
    if whole:
        return table
    return without_rows(table, read_forgotten(configuration.home).among(table.ids.values.tolist()))


def without_rows(table: Table, left_out: NDArray[np.bool_]) -> Table:
    """The table without these rows; it is itself where there are none of them."""
    if not left_out.any():
        return table
    kept = np.flatnonzero(~left_out)
    if len(kept) == 0:
        raise InvalidInputError(f"organization {table.organization!r}: all rows of its source were forgotten")
    chosen = _indices(table, kept)
    label = None if table.label is None else table.label.take(chosen)
    return replace(table, ids=table.ids.take(kept), columns=table.columns.take(chosen), label=label)


def read_like(configuration: NodeConfiguration, source: Path, kinds: Mapping[str, Kind]) -> Table:
    """Rows to predict from another file: exactly these features, in this
    order and of these kinds, no label.
    """
    data = _elsewhere(configuration, source, tuple(kinds))
    texts = frozenset(name for name, kind in kinds.items() if kind == "text")
    table = _table(SourceReader(configuration.name, data, configuration.home, with_label=False, texts=texts))
    check_kinds(table, kinds)
    return table


def read_ids(configuration: NodeConfiguration, source: Path, *, label: bool = False) -> Table:
    """Only the row ids, and the label if it is wanted, of another file; its
    other columns are not looked at.
    """
    data = _elsewhere(configuration, source, ())
    table = _table(
        SourceReader(configuration.name, data, configuration.home, with_label=label, only_ids=True)
    )
    refuse_forgotten(configuration, table.ids, str(source))
    return table


def refuse_forgotten(configuration: NodeConfiguration, ids: RowIds, where: str) -> None:
    """An error where one of these ids was forgotten here: nobody is asked about it."""
    gone = np.flatnonzero(forgotten_now(configuration.home).among(ids.values.tolist()))
    if len(gone):
        raise InvalidInputError(
            f"{where}: {len(gone)} of {len(ids)} rows were forgotten here (gal forget-row), the first is in "
            f"place {gone[0] + 1}: take them out"
        )


def columns_in(configuration: NodeConfiguration, source: Path) -> list[str]:
    """Names of all columns of another file."""
    reader = SourceReader(
        configuration.name, _elsewhere(configuration, source), configuration.home, with_label=False
    )
    reader.check_file()
    return reader.names()


def csv_or_parquet_columns(source: Path) -> list[str]:
    """Names of all columns of a file that is no organization's source yet."""
    try:
        data = DataSource.model_validate({"source": str(source), "row_id": "any row id"})
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InvalidInputError(f"{str(source)!r} cannot be used: {why}") from None
    reader = SourceReader("new", data, source.parent, with_label=False)
    reader.check_file()
    return reader.names()


def _elsewhere(
    configuration: NodeConfiguration, source: Path, features: tuple[str, ...] | None = None
) -> DataSource:
    """The section [data], but of another file, with these features."""
    changed: dict[str, Any] = {"source": Path(source), "sql": None, "database": None}
    return _data_of(configuration).model_copy(
        update=changed if features is None else changed | {"features": features}
    )


def _table(reader: SourceReader) -> Table:
    organization, data = reader.organization, reader.data
    stamp = _stamp(data)
    columns = reader.read()
    ids = row_ids(_typed_ids(columns.column(0), data, organization), organization, data.row_id)
    found = _label(columns.column(columns.num_columns - 1)) if reader.label else None
    features = list(columns.columns[1 : 1 + len(reader.features)])
    del columns
    return Table(organization, ids, _compact(reader.features, features, reader.texts), found, stamp)


def stamp_of(configuration: NodeConfiguration) -> Stamp | None:
    """The stamp that the source has now; None where it is not known or there is no file."""
    return _stamp(_data_of(configuration))


def view_of_table(table: Table, positions: NDArray[np.intp] | None = None) -> Any:
    """The features of these rows (default: all), in this order.

    A C-contiguous float64 array (n, d) where all columns are numbers, NaN where a value is missing; otherwise
    a pandas frame of float64 and categories. Types and categories are the same whatever rows are taken.
    """
    chosen = None if positions is None else _indices(table, positions)
    if table.is_numeric:
        view = np.empty((len(table) if chosen is None else len(chosen), table.columns.num_columns))
        for j, column in enumerate(table.columns.columns):
            view[:, j] = _floats(column if chosen is None else column.take(chosen))
        return view
    return frame_of(table.columns if chosen is None else table.columns.take(chosen))


def view_in_blocks(table: Table, positions: NDArray[np.intp]) -> Any:
    """The same view to be written to a file: an array comes block by block, and is never whole in memory."""
    if not table.is_numeric:
        return view_of_table(table, positions)
    starts = range(0, len(positions), BATCH)
    shape = len(positions), table.columns.num_columns
    return Blocks(shape, (view_of_table(table, positions[start : start + BATCH]) for start in starts))


def labels_of(table: Table, positions: NDArray[np.intp] | None = None) -> NDArray[Any]:
    """The labels (n,) of these rows: numbers, booleans, or text as objects; a missing one is an error."""
    whose = f"organization {table.organization!r}"
    if table.label is None:
        raise InvalidLabelsError(f"{whose} has no label: name its column under [data] as label")
    label = table.label if positions is None else table.label.take(_indices(table, positions))
    if label.null_count:
        first = int(label.is_null().to_numpy().argmax())
        id_of_it = table.ids.values[[first if positions is None else positions[first]]].tolist()[0]
        raise InvalidLabelsError(
            f"{whose}: {label.null_count} of {len(label)} rows have no label, the first has the id "
            f"{id_of_it!r:.80}. Fill it in, or leave them out"
        )
    return np.asarray(label.to_numpy())


def check_kinds(table: Table, kinds: Mapping[str, Kind]) -> None:
    """An error where the features are not those, of the same kinds, that a model was fitted on."""
    now = table.kinds
    whose = f"organization {table.organization!r}"
    if list(now) != list(kinds):
        other = [f"{name!r} is gone" for name in kinds if name not in now]
        other += [f"{name!r} is new" for name in now if name not in kinds]
        raise InvalidColumnsError(
            f"{whose}: its columns changed since its models were fitted: "
            f"{', '.join(other) or 'their order'}. "
            "Bring them back, or learn a new version"
        )
    for name, kind in kinds.items():
        if now[name] != kind:
            raise InvalidColumnsError(
                f"{whose}: column {name!r} was {kind} when its models were fitted and is {now[name]} now. "
                "Correct the values, or learn a new version"
            )


def _data_of(configuration: NodeConfiguration) -> DataSource:
    if configuration.data is None:
        raise ConfigurationError(
            "node.toml: there is no section [data]; say there where your rows are (source and row_id)"
        )
    return configuration.data


def _stamp(data: DataSource) -> Stamp | None:
    path = data.source or data.database
    try:
        found = path.stat() if path else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if found else None


def _typed_ids(column: Any, data: DataSource, organization: str) -> Any:
    """The ids as the type that was asked for; text that is no whole number is refused, not rounded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if data.row_id_type == "text" and not is_text:
        return row_ids(column, organization, data.row_id).values.astype(np.str_).astype(object)
    if data.row_id_type != "integer" or not is_text:
        return column
    whole = pc.match_substring_regex(pc.utf8_trim_whitespace(column), r"^[+-]?[0-9]{1,18}$")
    wrong = pc.index(whole, False).as_py()
    if wrong >= 0:
        raise InvalidColumnsError(
            f"organization {organization!r}, row ids {data.row_id!r}: {column[wrong].as_py()!r:.80} in row "
            f"{wrong + 1} is "
            'no whole number. Correct it, or set row_id_type = "text"'
        )
    return pc.utf8_ltrim(pc.utf8_trim_whitespace(column), "+").cast(pa.int64())


def _compact(names: Sequence[str], columns: list[Any], texts: frozenset[str]) -> Any:
    """Each column in one piece, so that one row is found at once; text as codes of sorted values.

    Takes the columns out of the list, letting go of each: there are never two copies of all.
    """
    import pyarrow as pa

    made = []
    for name in names:
        column = pa.concat_arrays(columns.pop(0).chunks)
        if column.nbytes > LARGE_COLUMN:  # what is free is not always given back
            pa.default_memory_pool().release_unused()
        made.append(_as_categories(column, name in texts) if pa.types.is_string(column.type) else column)
    return pa.table(made, names=list(names))


def _as_categories(column: Any, stays_text: bool) -> Any:
    """Text as a dictionary in sorted order; without any text, missing numbers unless it is to stay text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count == len(column) and not stays_text:
        return pa.nulls(len(column), pa.float64())
    coded = column.dictionary_encode()
    truths = None if stays_text else _truths(coded)
    if truths is not None:
        return truths.cast(pa.float64())
    days = None if stays_text else _days(coded)
    if days is not None:
        return days
    order = pc.sort_indices(coded.dictionary)
    places = np.empty(len(order), dtype=np.int32)
    places[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    codes = pa.array(places).take(coded.indices)
    return pa.DictionaryArray.from_arrays(codes, coded.dictionary.take(order))


def _days(coded: Any) -> Any:
    """Text of dates or times that DuckDB left as they are, as days; None for other text."""
    import pyarrow as pa

    some = coded.dictionary[:20].to_pylist()
    if not all(one.strip()[:1].isdigit() for one in some):
        return None
    import pandas as pd

    from gal.engine.written_dates import days_of_text

    if days_of_text(pd.Series(some, dtype=object)) is None:  # before all of them are looked at
        return None
    days = days_of_text(pd.Series(coded.dictionary.to_pylist(), dtype=object))
    return None if days is None else pa.array(days, pa.float64()).take(coded.indices)


def _truths(coded: Any) -> Any:
    """Text of "true" and "false" only, given as a dictionary, as booleans; None for other text."""
    import pyarrow as pa

    if len(coded.dictionary) > 6:
        return None
    values = [TRUTHS.get(one.casefold()) for one in coded.dictionary.to_pylist()]
    return None if None in values or not values else pa.array(values, pa.bool_()).take(coded.indices)


def _label(column: Any) -> Any:
    """The label in one piece; "true" and "false" are booleans."""
    import pyarrow as pa

    whole = pa.concat_arrays(column.chunks)
    truths = _truths(whole.dictionary_encode()) if pa.types.is_string(whole.type) else None
    return pa.chunked_array([whole if truths is None else truths])


def _kind_of(arrow_type: Any) -> Kind:
    import pyarrow as pa

    return "text" if pa.types.is_dictionary(arrow_type) else "number"


def _indices(table: Table, positions: NDArray[np.intp]) -> Any:
    import pyarrow as pa

    chosen = np.asarray(positions, dtype=np.int64)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= len(table)):
        raise InvalidInputError(
            f"organization {table.organization!r}: positions of rows must be from 0 to {len(table) - 1}, "
            f"got {chosen.min()} to {chosen.max()}"
        )
    return pa.array(chosen)


def _floats(column: Any) -> NDArray[np.float64]:
    return np.asarray(column.to_numpy(), dtype=np.float64)


__all__ = [
    "Kind",
    "Stamp",
    "Table",
    "check_kinds",
    "columns_in",
    "labels_of",
    "load_view",
    "read_ids",
    "read_like",
    "read_source",
    "refuse_forgotten",
    "save_view",
    "stamp_of",
    "view_in_blocks",
    "view_of_table",
    "without_rows",
]
