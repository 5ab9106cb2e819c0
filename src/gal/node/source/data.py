"""An organization's own rows, read through DuckDB, checked, and returned as views.

Numbers, booleans, dates and times become float64 (dates as days since 1970, times as days); text becomes
categories.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from gal.alignment import RowIds
from gal.errors import (
    AlignmentError,
    ConfigurationError,
    InvalidColumnsError,
    InvalidInputError,
    InvalidLabelsError,
)
from gal.models.parted import PART_ROWS, PartColumn
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.data_source import DataSource
from gal.node.source.compact_columns import IS_DATE, compact, days_of, in_one_piece, truths_of
from gal.node.source.source_reading import SourceReader, typed_row_ids
from gal.node.source.streamed_reading import StreamedReader
from gal.node.store.row_index import forgotten_rows
from gal.node.store.views import frame_of

Kind = Literal["number", "text"]

Stamp = tuple[int, ...]
"""Modification time of a file in nanoseconds, and its size in bytes."""


@dataclass(frozen=True, eq=False)
class Table:
    """An organization's rows: ids, features and, where there is one, the label."""

    organization: str
    ids: RowIds
    columns: Any
    """A pyarrow Table of the features: float64, or sorted dictionaries of text."""
    label: Any
    """A pyarrow ChunkedArray, or None."""
    stamp: Stamp | None
    """Of the file that was read; None for other sources."""

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(self.columns.column_names)

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """The kind of each feature, which a fitted local model expects again."""
        types = {field.name: str(field.type) for field in self.columns.schema}
        return {name: "text" if kind.startswith("dictionary") else "number" for name, kind in types.items()}

    @property
    def dates(self) -> frozenset[str]:
        """Features that are dates."""
        return frozenset(
            one.name for one in self.columns.schema if (one.metadata or {}).get(IS_DATE) is not None
        )

    @cached_property
    def shared_arrays(self) -> tuple[NDArray[np.float64], ...] | None:
        """The features as arrays over the same memory, for single rows; None with text or missing values."""
        columns = self.columns.columns
        if any(str(one.type) != "double" or one.num_chunks != 1 or one.null_count for one in columns):
            return None
        return tuple(one.chunk(0).to_numpy(zero_copy_only=True) for one in columns)

    def __len__(self) -> int:
        return len(self.ids)


def read_source(
    configuration: NodeConfiguration, source: Path | None = None, *, label: bool = True, whole: bool = False
) -> Table:
    """All rows of the source, or of another file with the same columns.

    ``label=False``: without the label, as rows to predict have none. ``whole``: with forgotten rows.
    """
    table = _table(_reader(configuration, source, with_label=label))
    return table if whole else _without_forgotten(configuration, table)


def source_ids(configuration: NodeConfiguration, *, label: bool = False) -> Table:
    """The ids of all rows, and the label if wanted, without features."""
    table = _table(_reader(configuration, features=(), with_label=label, only_ids=True))
    return _without_forgotten(configuration, table)


def read_like(configuration: NodeConfiguration, source: Path, kinds: Mapping[str, Kind]) -> Table:
    """Rows to predict from another file, with exactly these features and kinds, in this order."""
    texts = frozenset(name for name, kind in kinds.items() if kind == "text")
    table = _table(_reader(configuration, source, tuple(kinds), texts=texts))
    check_kinds(table, kinds)
    return table


def read_ids(configuration: NodeConfiguration, source: Path) -> Table:
    """The row ids of another file."""
    try:
        table = _table(_reader(configuration, source, (), with_label=False, only_ids=True))
    except AlignmentError as error:
        raise AlignmentError(f"{str(source)!r}: {error}") from error
    refuse_forgotten(configuration, table.ids, str(source))
    return table


def read_some(configuration: NodeConfiguration, most: int) -> Table:
    """At most ``most`` rows of a streamed source."""
    reader = _streamed(configuration, with_label=True)
    columns = reader.read(most=most)
    if columns.num_rows == 0:
        raise InvalidInputError(f"{reader.whose}: there are no rows; put data into it")
    return _table_of(reader, columns)


def read_rows(
    configuration: NodeConfiguration, wanted: RowIds, kinds: Mapping[str, Kind] | None = None
) -> Table:
    """The rows of a streamed source with these ids, if any.

    ``kinds`` of the features where they are known, since few rows do not show them.
    """
    texts = frozenset(name for name, kind in (kinds or {}).items() if kind == "text")
    reader = _streamed(configuration, texts=texts)
    columns = reader.read(wanted)
    none = None if columns.num_rows else RowIds(wanted.kind, wanted.values[:0])
    return _without_forgotten(configuration, _table_of(reader, columns, none), empty=True)


def kind_of_ids(configuration: NodeConfiguration) -> str:
    """The kind of the row ids, "integer" or "text"; of a streamed source by one row."""
    if data_of(configuration).is_streamed:
        return str(read_some(configuration, 1).ids.kind)
    return str(read_source(configuration, label=False).ids.kind)


def streamed_features(configuration: NodeConfiguration) -> tuple[str, ...]:
    """Names of the features of a streamed source; no row is read."""
    reader = _streamed(configuration)
    reader.read(most=0)
    return tuple(reader.features)


def source_stamp(configuration: NodeConfiguration) -> str | None:
    """The present stamp of a streamed source; None where it is unknown."""
    return _streamed(configuration).stamp()


def _streamed(configuration: NodeConfiguration, **wanted: Any) -> StreamedReader:
    return StreamedReader(configuration.name, data_of(configuration), configuration.home, **wanted)


def _reader(
    configuration: NodeConfiguration,
    source: Path | None = None,
    features: tuple[str, ...] | None = None,
    **wanted: Any,
) -> SourceReader:
    """The reader of the source, or of another file, with these features; ``wanted`` as in `SourceReader`."""
    changed: dict[str, Any] = {} if features is None else {"features": features}
    if source is not None:
        changed |= dict.fromkeys(("sql", "table", "endpoint", "region")) | {"source": Path(source)}
    data = data_of(configuration).model_copy(update=changed)
    return _reader_of(configuration.name, data, configuration.home, **wanted)


def _reader_of(organization: str, data: DataSource, home: Path, **wanted: Any) -> SourceReader:
    kind = StreamedReader if data.is_streamed else SourceReader
    return kind(organization, data, home, **wanted)


def _without_forgotten(configuration: NodeConfiguration, table: Table, *, empty: bool = False) -> Table:
    """The table without forgotten rows; an error where none is left, unless ``empty``."""
    gone = forgotten_rows(configuration.home).among(table.ids.values)
    if not gone.any():
        return table
    kept = np.flatnonzero(~gone)
    if len(kept) == 0 and not empty:
        raise InvalidInputError(f"organization {table.organization!r}: all rows of its source were forgotten")
    chosen = _indices(table, kept)
    label = None if table.label is None else table.label.take(chosen)
    return replace(table, ids=table.ids.take(kept), columns=table.columns.take(chosen), label=label)


def refuse_forgotten(configuration: NodeConfiguration, ids: RowIds, source: str) -> None:
    """InvalidInputError where one of these ids was forgotten here."""
    gone = np.flatnonzero(forgotten_rows(configuration.home).among(ids.values))
    if len(gone):
        raise InvalidInputError(
            f"{source}: {len(gone)} of {len(ids)} rows were forgotten here (gal forget --row), the first is "
            f"in place {gone[0] + 1}: take them out"
        )


def columns_in(configuration: NodeConfiguration, source: Path) -> list[str]:
    """Names of all columns of another file."""
    return _names(_reader(configuration, source))


def columns_of_new(name: str, source: str, location: Mapping[str, str | None]) -> list[str]:
    """Names of all columns of the source of a new organization; ``location``: other keys of [data]."""
    given = {"source": source, "row_id": "any row id", **location}
    try:
        data = DataSource.model_validate(given)
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        shown = "this source" if "://" in source else repr(source)  # an address may have a password
        raise InvalidInputError(f"{shown} cannot be used: {why}") from None
    return _names(_reader_of(name, data, Path.cwd() if data.path is None else data.path.parent))


def _names(reader: SourceReader) -> list[str]:
    reader.check_file()
    return reader.names()


def _table(reader: SourceReader) -> Table:
    """All rows, with the stamp of a file from before the reading."""
    stamp = _file_stamp(reader.data)
    return replace(_table_of(reader, reader.read()), stamp=stamp)


def _table_of(reader: SourceReader, columns: Any, ids: RowIds | None = None) -> Table:
    """The table of a reading; its first column are the ids, unless they are given."""
    ids = typed_row_ids(columns.column(0), reader.data, reader.organization) if ids is None else ids
    found = _label(reader, columns.column(columns.num_columns - 1)) if reader.label else None
    features = list(columns.columns[1 : 1 + len(reader.features)])
    del columns
    compacted = compact(reader.features, features, reader.texts, reader.dates)
    return Table(reader.organization, ids, compacted, found, None)


def stamp_of(configuration: NodeConfiguration) -> Stamp | None:
    """The present stamp of a file; None for other sources."""
    return _file_stamp(data_of(configuration))


def _file_stamp(data: DataSource) -> Stamp | None:
    try:
        found = None if data.path is None else data.path.stat()
    except OSError:
        return None
    return None if found is None or stat.S_ISDIR(found.st_mode) else (found.st_mtime_ns, found.st_size)


def view_of_table(table: Table, positions: NDArray[np.intp] | None = None) -> Any:
    """The features of these rows (default: all), in this order.

    A C-contiguous float64 array (n, d) where all columns are numbers, with NaN for missing values; otherwise
    a pandas frame of float64 and categories. Types and categories do not depend on the rows.
    """
    if positions is not None and table.shared_arrays is not None:
        rows = _checked(table, positions)
        some = np.empty((len(rows), len(table.shared_arrays)))
        for j, values in enumerate(table.shared_arrays):
            some[:, j] = values[rows]
        return some
    columns = table.columns if positions is None else table.columns.take(_indices(table, positions))
    if "text" in table.kinds.values():
        return frame_of(columns)
    view = np.empty((columns.num_rows, columns.num_columns))
    for j, column in enumerate(columns.columns):
        view[:, j] = column.to_numpy()
    return view


def part_columns(table: Table) -> list[PartColumn]:
    """The columns of a partitioned view: numbers, and text with all its values."""
    import pyarrow as pa

    return [
        PartColumn(name, tuple(column.chunk(0).dictionary.to_pylist()))
        if pa.types.is_dictionary(column.type)
        else PartColumn(name)
        for name, column in zip(table.features, table.columns.columns, strict=True)
    ]


def view_in_parts(table: Table, positions: NDArray[np.intp]) -> Iterator[Any]:
    """The same view as pyarrow tables of one partition each: numbers, and codes for text."""
    import pyarrow as pa

    for start in range(0, max(len(positions), 1), PART_ROWS):
        chosen = table.columns.take(_indices(table, positions[start : start + PART_ROWS]))
        columns = [
            pa.concat_arrays(one.chunks).indices
            if pa.types.is_dictionary(one.type) and one.num_chunks
            else one
            for one in chosen.columns
        ]
        yield pa.table(columns, names=list(table.features))


def labels_of(table: Table, positions: NDArray[np.intp] | None = None) -> NDArray[Any]:
    """The labels (n,) of these rows: numbers, booleans, or text as objects; missing ones are an error."""
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
    """InvalidColumnsError where features or their kinds changed since a model was fitted."""
    now = table.kinds
    whose = f"organization {table.organization!r}"
    if list(now) != list(kinds):
        other = [f"{name!r} is gone" for name in kinds if name not in now]
        other += [f"{name!r} is new" for name in now if name not in kinds]
        raise InvalidColumnsError(
            f"{whose}: its columns changed since its models were fitted: "
            f"{', '.join(other) or 'their order'}. Bring them back, or learn a new version"
        )
    for name, kind in kinds.items():
        if now[name] != kind:
            raise InvalidColumnsError(
                f"{whose}: column {name!r} was {kind} when its models were fitted and is {now[name]} now. "
                "Correct the values, or learn a new version"
            )


def data_of(configuration: NodeConfiguration) -> DataSource:
    """The section [data]; an error where there is none."""
    if configuration.data is None:
        raise ConfigurationError(
            "node.toml: there is no section [data]; say there where your rows are (source and row_id)"
        )
    return configuration.data


def _label(reader: SourceReader, column: Any) -> Any:
    """The label in one piece, "true" and "false" as booleans; dates are refused."""
    import pyarrow as pa

    whole = in_one_piece(column)
    coded = whole.dictionary_encode() if pa.types.is_string(whole.type) else None
    if coded is not None and len(coded.dictionary) and days_of(coded) is not None:
        raise InvalidLabelsError(
            f"{reader.whose}: the label {reader.label!r} is a date or a time; a label is a number, a boolean "
            "or text"
        )
    truths = None if coded is None else truths_of(coded)
    return pa.chunked_array([whole if truths is None else truths])


def _indices(table: Table, positions: NDArray[np.intp]) -> Any:
    import pyarrow as pa

    return pa.array(_checked(table, positions))


def _checked(table: Table, positions: NDArray[np.intp]) -> NDArray[np.int64]:
    chosen = np.asarray(positions, dtype=np.int64)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= len(table)):
        raise InvalidInputError(
            f"organization {table.organization!r}: positions of rows must be from 0 to {len(table) - 1}, "
            f"got {chosen.min()} to {chosen.max()}"
        )
    return chosen
