"""One reading of a file of rows through DuckDB."""

from __future__ import annotations

import csv
import difflib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np

from gal.alignment import RowIds, row_ids
from gal.errors import InvalidColumnsError, InvalidInputError, InvalidLabelsError
from gal.models.reading.written_numbers import THOUSANDTH
from gal.node.config.data_source import DataSource
from gal.storage.spreadsheets import is_spreadsheet, read_spreadsheet
from gal.storage.text_files import Written, leading_zeros, opened_text, written

NUMBERS = {
    *("tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint"),
    *("uhugeint", "float", "double", "decimal", "boolean", "null", "bignum"),
}

TIMES = {
    *("date", "time", "interval", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"),
    *("timestamp with time zone", "time with time zone"),
}

CLOCKS = {"time", "interval", "time with time zone"}
"""Types without a date."""

TEXTS = {"varchar", "enum", "uuid"}
"""Ids of DuckDB types, by the kind of feature that they become."""

MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"),
    *("N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""Missing values in a CSV file, as in pandas and so in ``gal simulate``."""

GUESSED = ("BIGINT", "DOUBLE", "VARCHAR")
"""Types to guess for CSV columns. DuckDB would read "yes" as true, and 12.10.22 as the date 2012-10-22."""

SNIFFED = 100_000
"""Rows of a CSV file for guessing types; where that fails all rows, at several times the memory."""

SHEET = "rows_of_the_sheet"
"""The name of a spreadsheet's rows in DuckDB."""

BATCH = 100_000
"""Rows of a batch from DuckDB."""


class SourceReader:
    """One reading of a source: its columns and their values."""

    def __init__(
        self,
        organization: str,
        data: DataSource,
        home: Path,
        *,
        with_label: bool = False,
        texts: frozenset[str] | None = None,
        only_ids: bool = False,
    ) -> None:
        """``texts``: features that are text even if their values look like numbers; None: found out."""
        self.organization, self.data, self.home = organization, data, home
        self.texts, self.only_ids = texts or frozenset(), only_ids
        self._zeros_looked_for = texts is not None or only_ids
        self.label = data.label if with_label else None
        self.features: list[str] = []
        self.dates: set[str] = set()
        """Features that are dates in the source."""
        self.what = repr(str(data.source))
        self.whose = f"organization {organization!r}, {self.what}"
        self._rewritten: IO[bytes] | None = None

    @property
    def _file(self) -> Path:
        assert self.data.path is not None
        return self.data.path

    def read(self) -> Any:
        """A pyarrow Table: row id, features, and the label if wanted."""
        import duckdb

        self.check_file()
        # Errors within rows are OSErrors of Arrow with DuckDB's message.
        try:
            return self._read(SNIFFED)
        except (duckdb.Error, OSError) as error:
            if not _is_csv(self._file):
                raise self._unreadable(error) from error
        self._written = written(self._file, whole=True)
        try:
            return self._read(-1)
        except (duckdb.Error, OSError) as error:
            try:  # as text: a broken row is an error that names its line
                with connected() as connection:
                    connection.sql(f"SELECT count(*) FROM (SELECT * FROM {self._all_as_text()})").fetchall()
            except duckdb.Error as broken:
                raise self._unreadable(broken) from error
            raise self._unreadable(error) from error

    def _read(self, sniffed: int) -> Any:
        with connected() as connection:
            if is_spreadsheet(self._file):
                connection.register(SHEET, self._sheet)
            relation = connection.sql(self._query(sniffed))
            types = self.checked_types(relation)
            if codes := self._codes_among(connection, types):
                self.texts |= codes
                types = self.checked_types(relation := connection.sql(self._query(sniffed)))
            rows = relation.project(", ".join(self.selected(types))).to_arrow_table(BATCH)
        if rows.num_rows == 0:
            raise InvalidInputError(f"{self.whose} has no rows; put data into it")
        return rows

    def _codes_among(self, connection: Any, types: Mapping[str, Any]) -> frozenset[str]:
        """Features of a CSV file with leading zeros, such as postal codes, which are no numbers."""
        path, declared = self._file, self.data.columns
        if self._zeros_looked_for or not _is_csv(path):
            return frozenset()
        self._zeros_looked_for = True
        maybe = [
            name for name in self.features if types[name].id in NUMBERS and declared.get(name) != "number"
        ]
        if not maybe or not leading_zeros(path, self._written):
            return frozenset()
        digits = ", ".join(f"avg(regexp_full_match(trim({quoted(name)}), '0[0-9]+')::INT)" for name in maybe)
        (found,) = connection.sql(f"SELECT {digits} FROM {self._all_as_text()}").fetchall()
        return frozenset(name for name, share in zip(maybe, found, strict=True) if (share or 0) > THOUSANDTH)

    def _query(self, sniffed: int) -> str:
        source = self._file
        if _is_parquet(source):
            return f"SELECT * FROM read_parquet({_text(str(source))})"
        if is_spreadsheet(source):
            return f"SELECT * FROM {SHEET}"
        # Text columns keep leading zeros; DuckDB refuses names that do not exist.
        kept = self.texts | ({self.data.row_id} if self.data.row_id_type is not None else set())
        texts = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in self._header() if name in kept)
        as_text = f", types = {{{texts}}}" if texts else ""
        missing, types = (", ".join(map(_text, some)) for some in (MISSING, GUESSED))
        return (
            f"SELECT * FROM read_csv({self._csv_options()}, sample_size = {sniffed}, nullstr = [{missing}], "
            f"auto_type_candidates = [{types}]{as_text})"
        )

    def _all_as_text(self) -> str:
        """The CSV file with all columns as text."""
        columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in self._header())
        return f"read_csv({self._csv_options()}, auto_detect = false, columns = {{{columns}}})"

    def _csv_options(self) -> str:
        """The file and its dialect: when DuckDB guesses the dialect, it may skip the first rows."""
        how = self._written
        if self._rewritten is None and how.encoding != "utf-8-sig":
            self._rewritten = _as_utf_8(self._file, how, self.home)
        path = str(self._file) if self._rewritten is None else self._rewritten.name
        decimal = ", decimal_separator = ','" if how.decimal == "," else ""
        quotes = """quote = '"', escape = '"', skip = 0, comment = '', null_padding = false"""
        return f"{_text(path)}, header = true, delim = {_text(how.delimiter)}, {quotes}{decimal}"

    def check_file(self) -> None:
        """InvalidInputError for a missing or empty file, or two columns with one name."""
        if not self._file.is_file():
            raise InvalidInputError(
                f"organization {self.organization!r}: there is no file {self.what}; correct [data] in "
                "node.toml (paths are relative to its folder)"
            )
        if self._file.stat().st_size == 0:
            raise InvalidInputError(f"{self.whose} is empty; put data into it")
        refuse_repeated(self.whose, self.names())

    def names(self) -> list[str]:
        """Names of all columns of the file."""
        if is_spreadsheet(self._file):
            return list(self._sheet.columns)
        return _parquet_names(self._file) if _is_parquet(self._file) else self._header()

    @cached_property
    def _sheet(self) -> Any:
        return read_spreadsheet(self._file)

    def _header(self) -> list[str]:
        """Column names of the CSV file; DuckDB would rename a repeated one."""
        try:
            with opened_text(self._file, self._written) as file:
                return next(csv.reader(file, delimiter=self._written.delimiter), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise InvalidInputError(f"{self.whose} is no CSV file: {error}") from error

    @cached_property
    def _written(self) -> Written:
        """The dialect of the CSV file. Guessing from all rows, as DuckDB does, hides a broken row."""
        return written(self._file)

    def checked_types(self, relation: Any) -> dict[str, Any]:
        """The DuckDB type of every column; sets the features."""
        refuse_repeated(self.whose, relation.columns)
        types = dict(zip(relation.columns, relation.types, strict=True))
        wanted = [(self.data.row_id, "row_id")]
        wanted += [(one, "features") for one in self.data.features if self.data.features != "all"]
        wanted += [(self.label, "label")] if self.label else []
        for name, key in wanted:
            if name not in types:
                close = difflib.get_close_matches(name, list(types), n=1, cutoff=0.5)
                meant = f"Did you mean {close[0]!r}? " if close else ""
                raise InvalidColumnsError(
                    f"{self.whose}: there is no column {name!r}. {meant}There are {listed(list(types))}. "
                    f"Correct data.{key} in node.toml"
                )
        reserved = {self.data.row_id, self.data.label}
        others = [one for one in types if one not in reserved]
        self.features = others if self.data.features == "all" else list(self.data.features)
        if not self.features and not self.only_ids:
            raise InvalidColumnsError(
                f"{self.whose}: no column is left to be a feature beside the row id"
                f"{' and the label' if self.data.label else ''}; there are {listed(list(types))}"
            )
        return types

    def selected(self, types: Mapping[str, Any]) -> Iterator[str]:
        """The SELECT list: row id, features as numbers or text, label."""
        row_id, kind = quoted(self.data.row_id), types[self.data.row_id].id
        # Floats must be whole first, or 7 would become "7.0".
        becomes_text = self.data.row_id_type == "text" and kind not in {"float", "double", "decimal", "blob"}
        if kind == "uuid" or becomes_text:
            row_id = f"CAST({row_id} AS VARCHAR)"
        yield f"{row_id} AS row_id"
        for name in self.features:
            yield f"{self._as_feature(name, types[name])} AS {quoted(name)}"
        if self.label:
            yield f"{_as_label(self.whose, self.label, types[self.label])} AS label_of_rows"

    def _as_feature(self, name: str, kind: Any) -> str:
        column = quoted(name)
        if kind.id in NUMBERS:
            return f"CAST({column} AS {'VARCHAR' if name in self.texts else 'DOUBLE'})"
        if kind.id in TIMES:
            if kind.id not in CLOCKS:
                self.dates.add(name)
            return f"epoch({column}) / 86400.0"
        if kind.id in TEXTS and str(kind) != "JSON":
            return f"CAST({column} AS VARCHAR)"
        raise InvalidColumnsError(
            f"{self.whose}: column {name!r} has the type {kind}, which cannot be a "
            "feature. Leave it out of data.features, or make numbers or text of it with sql"
        )

    def _unreadable(self, error: Exception) -> InvalidInputError:
        return InvalidInputError(f"{self.whose} cannot be read: {first_words(error)}. Correct the file")


@contextmanager
def connected() -> Iterator[Any]:
    import duckdb

    with duckdb.connect(":memory:") as connection:
        connection.execute("SET autoinstall_known_extensions = false")  # nothing is downloaded
        yield connection


def typed_row_ids(column: Any, data: DataSource, organization: str) -> RowIds:
    """The ids in a column, of the configured type; text that is no integer is refused, not rounded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if data.row_id_type == "text" and not is_text:
        column = row_ids(column, organization, data.row_id).values.astype(np.str_).astype(object)
    if data.row_id_type == "integer" and is_text:
        whole = pc.match_substring_regex(pc.utf8_trim_whitespace(column), r"^[+-]?[0-9]{1,18}$")
        wrong = pc.index(whole, False).as_py()
        if wrong >= 0:
            raise InvalidColumnsError(
                f"organization {organization!r}, row ids {data.row_id!r}: {column[wrong].as_py()!r:.80} in "
                f'row {wrong + 1} is no whole number. Correct it, or set row_id_type = "text"'
            )
        column = pc.utf8_ltrim(pc.utf8_trim_whitespace(column), "+").cast(pa.int64())
    return row_ids(column, organization, data.row_id)


def _as_label(owner: str, name: str, kind: Any) -> str:
    column = quoted(name)
    if kind.id in {"boolean", "tinyint", "smallint", "integer", "bigint", "float", "double"}:
        return column
    if kind.id in {"enum", "uuid", "varchar"}:
        return f"CAST({column} AS VARCHAR)"
    if kind.id in NUMBERS:
        return f"CAST({column} AS DOUBLE)"
    raise InvalidLabelsError(
        f"{owner}: the label {name!r} has the type {kind}; a label is a number, a boolean or text"
    )


def _is_csv(path: Path) -> bool:
    return not _is_parquet(path) and not is_spreadsheet(path)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in {".parquet", ".pq"}


def _parquet_names(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInputError(f"{str(path)!r} is no Parquet file: {first_words(error)}") from error


def refuse_repeated(owner: str, names: Sequence[str]) -> None:
    """InvalidColumnsError where names differ at most in upper and lower case."""
    seen: dict[str, str] = {}
    for name in names:
        if name.casefold() in seen:
            other = seen[name.casefold()]
            how = (
                "is there twice" if name == other else f"differs from {other!r} only in upper and lower case"
            )
            raise InvalidColumnsError(f"{owner}: column {name!r} {how}; rename one of them")
        seen[name.casefold()] = name


def listed(names: list[str], most: int = 30) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def first_words(error: Exception) -> str:
    """The start of a message of DuckDB; the rest repeats its options."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:3])[:300].rstrip(".") if lines else type(error).__name__


def _as_utf_8(path: Path, form: Written, home: Path) -> IO[bytes]:
    """A temporary copy of a text file in UTF-8."""
    place = home / "tmp"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        made = tempfile.NamedTemporaryFile(dir=place, suffix=".csv")  # noqa: SIM115
        with opened_text(path, form) as file:
            while block := file.read(1 << 20):
                made.write(block.encode())
        made.flush()
    except OSError as error:
        raise InvalidInputError(
            f"{str(place)!r} cannot be written: {error.strerror or error}. Make room on the disk, or make "
            "the folder writable"
        ) from error
    return made


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
