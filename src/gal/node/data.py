"""An organization's own rows: read through DuckDB from CSV, Parquet or SQL, checked, and handed out as views.

Numbers, booleans, dates and times become float64 (dates and times as days, since 1970 where they have a date); text
becomes categories. Nothing here is sent anywhere.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds, row_ids
from gal.errors import ConfigurationError, InvalidColumnsError, InvalidInputError, InvalidLabelsError
from gal.node.configuration import DataSource, NodeConfiguration
from gal.node.views import Blocks, frame_of, load_view, save_view

Kind = Literal["number", "text"]
Stamp = tuple[int, int]
"""Time of the last change in nanoseconds, and size in bytes."""

NUMBERS = {
    *("tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint"),
    *("uhugeint", "float", "double", "decimal", "boolean", "null", "bignum"),
}
TIMES = {
    *("date", "time", "interval", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"),
    *("timestamp with time zone", "time with time zone"),
}
TEXTS = {"varchar", "enum", "uuid"}
"""Types of DuckDB by their ids, and what becomes of them."""

MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"),
    *("N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""What stands for a missing value in a CSV file; the same as in pandas, and so in ``gal simulate``."""

GUESSED = ("BIGINT", "DOUBLE", "TIME", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "VARCHAR")
"""Types that a column of a CSV file may turn out to have. DuckDB's own booleans would make true of "yes"."""
TRUTHS = {"true": True, "false": False}
"""A text column of these only, in upper or lower case, is boolean, as in pandas."""

SNIFFED = 100_000
"""Rows of a CSV file from which types are guessed; all rows, at several times the memory, only where that fails."""
BATCH = 100_000
"""Rows that come from DuckDB at once."""
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


def read_source(configuration: NodeConfiguration, source: Path | None = None, *, label: bool = True) -> Table:
    """All rows of the organization's source, or of another file with the same columns.

    ``label=False`` leaves the label out: rows to predict have none.
    """
    data = _data_of(configuration) if source is None else _elsewhere(configuration, source)
    return _table(_Reader(configuration.name, data, configuration.home, with_label=label))


def read_like(configuration: NodeConfiguration, source: Path, kinds: Mapping[str, Kind]) -> Table:
    """Rows to predict from another file: exactly these features, in this order and of these kinds, no label."""
    data = _elsewhere(configuration, source, tuple(kinds))
    texts = frozenset(name for name, kind in kinds.items() if kind == "text")
    table = _table(_Reader(configuration.name, data, configuration.home, with_label=False, texts=texts))
    check_kinds(table, kinds)
    return table


def read_ids(configuration: NodeConfiguration, source: Path, *, label: bool = False) -> Table:
    """Only the row ids, and the label if it is wanted, of another file; its other columns are not looked at."""
    data = _elsewhere(configuration, source, ())
    return _table(_Reader(configuration.name, data, configuration.home, with_label=label, only_ids=True))


def columns_in(configuration: NodeConfiguration, source: Path) -> list[str]:
    """Names of all columns of another file."""
    reader = _Reader(
        configuration.name, _elsewhere(configuration, source), configuration.home, with_label=False
    )
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


def _table(reader: _Reader) -> Table:
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


def view_of(table: Table, positions: NDArray[np.intp] | None = None) -> Any:
    """The features of these rows (default: all), in this order.

    A C-contiguous float64 array (n, d) where all columns are numbers, NaN where a value is missing; otherwise a pandas
    frame of float64 and categories. Types and categories are the same whatever rows are taken.
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
        return view_of(table, positions)
    starts = range(0, len(positions), BATCH)
    shape = len(positions), table.columns.num_columns
    return Blocks(shape, (view_of(table, positions[start : start + BATCH]) for start in starts))


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
            f"{whose}: its columns changed since its models were fitted: {', '.join(other) or 'their order'}. "
            "Bring them back, or learn a new version"
        )
    for name, kind in kinds.items():
        if now[name] != kind:
            raise InvalidColumnsError(
                f"{whose}: column {name!r} was {kind} when its models were fitted and is {now[name]} now. "
                "Correct the values, or learn a new version"
            )


class _Reader:
    """One reading of a source: which columns there are, which are wanted, and their values."""

    def __init__(
        self,
        organization: str,
        data: DataSource,
        home: Path,
        *,
        with_label: bool,
        texts: frozenset[str] = frozenset(),
        only_ids: bool = False,
    ) -> None:
        """``texts``: features that are text whatever their values look like."""
        self.organization, self.data, self.home = organization, data, home
        self.texts, self.only_ids = texts, only_ids
        self.label = data.label if with_label else None
        self.features: list[str] = []
        self.what = "sql" if data.source is None else repr(str(data.source))

    def read(self) -> Any:
        """A pyarrow Table: row id, features, and the label if there is one."""
        import duckdb

        self.check_file()
        is_csv = self.data.source is not None and not _is_parquet(self.data.source)
        # Errors while rows come in are OSErrors of Arrow with DuckDB's words.
        try:
            return self._read(SNIFFED)
        except (duckdb.Error, OSError) as error:
            if not is_csv:
                raise self._unreadable(error) from error
        try:
            return self._read(-1)
        except (duckdb.Error, OSError) as error:
            raise self._unreadable(self._broken_row() or error) from error

    def _broken_row(self) -> Exception | None:
        """What DuckDB says of the rows themselves, with the line, where all columns are text."""
        import duckdb

        columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in self._header())
        try:
            with self._connected() as connection:
                query = f"SELECT * FROM read_csv({self._csv_options()}, auto_detect = false, columns = {{{columns}}})"
                connection.sql(f"SELECT count(*) FROM ({query})").fetchall()
        except duckdb.Error as error:
            found: Exception = error
            return found
        return None

    def _read(self, sniffed: int) -> Any:
        import pyarrow as pa

        with self._connected() as connection:
            relation = connection.sql(self._query(sniffed))
            if relation is None:
                raise InvalidInputError(
                    f"organization {self.organization!r}: sql is no query that returns rows"
                )
            types = self._checked_types(relation)
            batches = relation.project(", ".join(self._selected(types))).to_arrow_reader(BATCH)
            rows = pa.Table.from_batches(map(_owned, batches), batches.schema)
        if rows.num_rows == 0:
            raise InvalidInputError(
                f"organization {self.organization!r}: {self.what} has no rows; put data into it"
            )
        return rows

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        import duckdb

        database = self.data.database
        try:
            connection = duckdb.connect(
                ":memory:" if database is None else str(database), read_only=database is not None
            )
        except duckdb.Error as error:
            raise InvalidInputError(
                f"organization {self.organization!r}: the database {str(database)!r} cannot be opened: {_first(error)}"
            ) from error
        with connection:
            connection.execute("SET file_search_path = $1", [str(self.home)])
            connection.execute("SET autoinstall_known_extensions = false")  # a query downloads nothing
            yield connection

    def _query(self, sniffed: int) -> str:
        source = self.data.source
        if source is None:
            return str(self.data.sql).strip().rstrip(";")
        if _is_parquet(source):
            return f"SELECT * FROM read_parquet({_text(str(source))})"
        texts = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in self._read_as_text())
        as_text = f", types = {{{texts}}}" if texts else ""
        missing = ", ".join(_text(one) for one in MISSING)
        types = ", ".join(_text(one) for one in GUESSED)
        return (
            f"SELECT * FROM read_csv({self._csv_options()}, sample_size = {sniffed}, nullstr = [{missing}], "
            f"auto_type_candidates = [{types}]{as_text})"
        )

    def _csv_options(self) -> str:
        """The file and how it is written. DuckDB guesses only types: it would skip first rows that look odd to it."""
        return (
            f"{_text(str(self.data.source))}, header = true, delim = {_text(self._delimiter())}, "
            """quote = '"', escape = '"', skip = 0, comment = '', null_padding = false"""
        )

    def _read_as_text(self) -> list[str]:
        """Columns whose leading zeros are kept; only those that exist can be asked for."""
        wanted = self.texts | ({self.data.row_id} if self.data.row_id_type is not None else set())
        return [name for name in self._header() if name in wanted]

    def check_file(self) -> None:
        """A file that is not there, empty, or has two columns of one name."""
        for path in (self.data.source, self.data.database):
            if path is not None and not path.is_file():
                raise InvalidInputError(
                    f"organization {self.organization!r}: there is no file {str(path)!r}; "
                    "correct [data] in node.toml (paths are relative to its folder)"
                )
        source = self.data.source
        if source is None:
            return
        if source.stat().st_size == 0:
            raise InvalidInputError(
                f"organization {self.organization!r}: {self.what} is empty; put data into it"
            )
        self._refuse_repeated(self.names())

    def names(self) -> list[str]:
        """Names of all columns of the file."""
        source = self.data.source
        assert source is not None
        return _parquet_names(source) if _is_parquet(source) else self._header()

    def _header(self) -> list[str]:
        """Column names of the CSV file, as they are there; DuckDB would rename a second one."""
        source = self.data.source
        assert source is not None
        try:
            with source.open(encoding="utf-8-sig", newline="") as file:
                return next(csv.reader(file, delimiter=self._delimiter()), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise InvalidInputError(
                f"organization {self.organization!r}: {self.what} is no CSV file in UTF-8: {error}"
            ) from error

    def _delimiter(self) -> str:
        """What the header has most of. Guessing from all rows, as DuckDB does, hides a broken row."""
        source = self.data.source
        assert source is not None
        with source.open("rb") as file:
            header = file.readline(2**20).decode("utf-8", errors="replace")
        return max(",;\t|", key=header.count)

    def _refuse_repeated(self, names: Sequence[str]) -> None:
        seen: dict[str, str] = {}
        for name in names:
            if name.casefold() in seen:
                other = seen[name.casefold()]
                how = (
                    "is there twice"
                    if name == other
                    else f"differs from {other!r} only in upper and lower case"
                )
                raise InvalidColumnsError(
                    f"organization {self.organization!r}, {self.what}: column {name!r} {how}; rename one of them"
                )
            seen[name.casefold()] = name

    def _checked_types(self, relation: Any) -> dict[str, Any]:
        """DuckDB's type of every column; sets the features."""
        self._refuse_repeated(relation.columns)
        types = dict(zip(relation.columns, relation.types, strict=True))
        wanted = [(self.data.row_id, "row_id")]
        wanted += [(one, "features") for one in self.data.features if self.data.features != "all"]
        wanted += [(self.label, "label")] if self.label else []
        for name, key in wanted:
            if name not in types:
                raise InvalidColumnsError(self._no_column(name, key, list(types)))
        reserved = {self.data.row_id, self.data.label}
        self.features = list(
            [one for one in types if one not in reserved]
            if self.data.features == "all"
            else self.data.features
        )
        if not self.features and not self.only_ids:
            raise InvalidColumnsError(
                f"organization {self.organization!r}, {self.what}: no column is left to be a feature beside the row id"
                f"{' and the label' if self.data.label else ''}; there are {_listed(list(types))}"
            )
        return types

    def _no_column(self, name: str, key: str, known: list[str]) -> str:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        meant = f"Did you mean {close[0]!r}? " if close else ""
        return (
            f"organization {self.organization!r}, {self.what}: there is no column {name!r}. {meant}"
            f"There are {_listed(known)}. Correct data.{key} in node.toml"
        )

    def _selected(self, types: Mapping[str, Any]) -> Iterator[str]:
        """What is selected: row id, features as numbers or text, label."""
        row_id = _quoted(self.data.row_id)
        if types[self.data.row_id].id == "uuid" or self._becomes_text(types[self.data.row_id]):
            row_id = f"CAST({row_id} AS VARCHAR)"
        yield f"{row_id} AS row_id"
        for name in self.features:
            yield f"{self._as_feature(name, types[name])} AS {_quoted(name)}"
        if self.label:
            yield f"{self._as_label(self.label, types[self.label])} AS label_of_rows"

    def _becomes_text(self, kind: Any) -> bool:
        """Ids that are to be text; floats must be whole first, or 7 would become "7.0"."""
        return self.data.row_id_type == "text" and kind.id not in {"float", "double", "decimal", "blob"}

    def _as_feature(self, name: str, kind: Any) -> str:
        column = _quoted(name)
        if kind.id in NUMBERS:
            return f"CAST({column} AS {'VARCHAR' if name in self.texts else 'DOUBLE'})"
        if kind.id in TIMES:
            return f"epoch({column}) / 86400.0"
        if kind.id in TEXTS and str(kind) != "JSON":
            return f"CAST({column} AS VARCHAR)"
        raise InvalidColumnsError(
            f"organization {self.organization!r}, {self.what}: column {name!r} has the type {kind}, which cannot be a "
            "feature. Leave it out of data.features, or make numbers or text of it with sql"
        )

    def _as_label(self, name: str, kind: Any) -> str:
        column = _quoted(name)
        if kind.id in {"boolean", "tinyint", "smallint", "integer", "bigint", "float", "double"}:
            return column
        if kind.id in {"enum", "uuid", "varchar"}:
            return f"CAST({column} AS VARCHAR)"
        if kind.id in NUMBERS:
            return f"CAST({column} AS DOUBLE)"
        raise InvalidLabelsError(
            f"organization {self.organization!r}, {self.what}: the label {name!r} has the type {kind}; "
            "a label is a number, a boolean or text"
        )

    def _unreadable(self, error: Exception) -> InvalidInputError:
        todo = "Correct the query" if self.data.source is None else "Correct the file"
        return InvalidInputError(
            f"organization {self.organization!r}: {self.what} cannot be read: {_first(error)}. {todo}"
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
            f"organization {organization!r}, row ids {data.row_id!r}: {column[wrong].as_py()!r:.80} in row {wrong + 1} is "
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


def _owned(batch: Any) -> Any:
    """A copy of DuckDB's batch: each of its columns can be let go of by itself, DuckDB's only all together."""
    import pyarrow as pa

    return pa.record_batch([pa.concat_arrays([one]) for one in batch.columns], schema=batch.schema)


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
    order = pc.sort_indices(coded.dictionary)
    places = np.empty(len(order), dtype=np.int32)
    places[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    codes = pa.array(places).take(coded.indices)
    return pa.DictionaryArray.from_arrays(codes, coded.dictionary.take(order))


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


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in {".parquet", ".pq"}


def _parquet_names(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInputError(f"{str(path)!r} is no Parquet file: {_first(error)}") from error


def _listed(names: list[str], most: int = 30) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _first(error: Exception) -> str:
    """What DuckDB says first; the rest repeats its options."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:3])[:300].rstrip(".") if lines else type(error).__name__


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


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
    "save_view",
    "stamp_of",
    "view_in_blocks",
    "view_of",
]
