"""Rows of PostgreSQL through its ADBC driver: streamed as Arrow batches, in one transaction that only reads.

All that one reading asks (columns, rows, ids) sees one state of the database. Ids of rows are bound as
parameters and never become part of a query: they come from others.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from gal.alignment import RowIds
from gal.errors import InvalidInputError
from gal.extras import require
from gal.node.config.data_source import PASSWORD_VARIABLE, DataSource

CONNECT_SECONDS = 10
NUMERIC = {"numeric", "decimal", "number", "bignumeric"}
"""What databases call numbers that ADBC hands over as text, because Arrow has none of their size."""

UNUSABLE = {
    r'relation ".*" does not exist': "There is no such table",
    r"permission denied": "This user may not read it",
    r"read-only transaction": "A node only reads",
}
"""What some of the words of databases mean here."""

TOO_LONG = "canceling statement due to"
NOISE = re.compile(r"(Query was|Detail: Python exception|CONTEXT):?.*|\.? ?SQLSTATE: \w+", re.S)
LAYERS = re.compile(
    r"^.*\[libpq\] (Execution error \[\w+\]: )?|^[A-Z_]+: |^.*Arrow source failed: (\w+: )?", re.S
)
"""What each layer between the database and us puts around its words."""


class AdbcSource:
    """One connection and transaction; closed with its context."""

    def __init__(self, organization: str, data: DataSource) -> None:
        self.organization, self.data = organization, data
        self.password = read_password(organization, data)
        self.took_too_long = False

    @contextmanager
    def opened(self) -> Iterator[Opened]:
        """Connect, read only, and end whatever has not ended in time."""
        connection = self._connect()
        cursors: list[Any] = []

        def cancel() -> None:
            self.took_too_long = True
            for cursor in cursors[-1:]:
                with suppress(Exception):
                    cursor.adbc_cancel()

        timer = threading.Timer(self.data.timeout, cancel)
        timer.daemon = True
        timer.start()
        try:
            yield Opened(self, connection, cursors)
        finally:
            timer.cancel()
            for one in (*cursors, connection):
                with suppress(Exception):  # a lost connection cannot be closed
                    one.close()

    def _connect(self) -> Any:
        require("postgresql", "reading PostgreSQL")
        import adbc_driver_postgresql
        from adbc_driver_manager import dbapi

        connection = dbapi.connect(
            driver=adbc_driver_postgresql._driver_path(), db_kwargs={"uri": self._uri()}, autocommit=False
        )
        try:
            with connection.cursor() as cursor:  # nothing is written, and all sees one state of the database
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                cursor.execute(f"SET LOCAL statement_timeout = {int(1000 * self.data.timeout)}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _uri(self) -> str:
        """The address with the password: not to be shown to anybody."""
        parts = urlsplit(str(self.data.address))
        given = dict(parse_qsl(parts.query))
        own = {
            "connect_timeout": str(CONNECT_SECONDS),
            "application_name": "gal",
            "keepalives_idle": "30",
            "tcp_user_timeout": "60000",
        }
        if self.password is not None:
            own["password"] = self.password
        return urlunsplit(parts._replace(query=urlencode(own | given, quote_via=quote)))

    # What is asked

    def rows(self) -> str:
        """What rows are selected from."""
        if self.data.sql is not None:
            return f"({self.data.sql.strip().rstrip(';')}) AS gal_rows"
        table = str(self.data.table)
        return table if '"' in table else ".".join(map(self.quoted, table.split(".")))

    def quoted(self, name: str) -> str:
        """A name as it stands in a query."""
        return '"' + name.replace('"', '""') + '"'

    def said(self, error: BaseException) -> str:
        """What the database says, in one line and without the password."""
        text = LAYERS.sub("", NOISE.sub("", str(error)))
        if self.took_too_long or TOO_LONG in text:
            return (
                f"it took longer than {self.data.timeout:g} seconds; raise data.timeout, or ask for less "
                "with sql"
            )
        text = re.sub(r"\s+", " ", text).strip()
        meant = next((words for pattern, words in UNUSABLE.items() if re.search(pattern, text)), "")
        said = f"{meant}: {text}" if meant else text or type(error).__name__
        return without_password(said, self.password)[:400].rstrip(". ")


class Opened:
    """What can be asked in one transaction."""

    def __init__(self, database: AdbcSource, connection: Any, cursors: list[Any]) -> None:
        self._database, self._connection, self._cursors = database, connection, cursors
        self.found: Any = self._ask(f"SELECT * FROM {database.rows()} WHERE 1 = 0").schema
        """The columns as the driver gives them."""

    @property
    def schema(self) -> Any:
        """The columns as they come."""
        return _plain_schema(self._query_of([field.name for field in self.found])[1])

    def batches(self, columns: Sequence[str], wanted: RowIds | None = None, most: int | None = None) -> Any:
        """A reader of these columns: of all rows, of at most so many, or of those with the wanted ids."""

        query, _ = self._query_of(columns)
        if wanted is None:
            return _plain(self._ask(query if most is None else f"{query} LIMIT {int(most)}"))
        where, bound = self._condition(wanted)
        return _plain(self._ask(f"{query} WHERE {where}", bound))

    def takes(self, wanted: RowIds) -> bool:
        """Whether the database itself can find these ids: not where it has to change every id first."""
        import pyarrow as pa

        kind = self.found.field(self._database.data.row_id).type
        return not (wanted.kind == "integer" and pa.types.is_string(kind))

    def stamp(self) -> str | None:
        """Another one whenever something was written to the database."""
        asked = "SELECT CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS stamp"
        return str(self._ask(asked).read_all().column(0)[0].as_py())

    def _query_of(self, columns: Sequence[str]) -> tuple[str, Any]:
        """The query for these columns, and their fields; types that Arrow lacks come as text."""
        import pyarrow as pa

        selected, fields = [], []
        for name in columns:
            field, quoted = self.found.field(name), self._database.quoted(name)
            if _type_name(field) == "money":
                field, quoted = (
                    pa.field(name, pa.float64()),
                    f"CAST(CAST({quoted} AS numeric) AS float8) AS {quoted}",
                )
            elif _is_opaque(field.type) and not _is_numeric(field.type):
                field, quoted = pa.field(name, pa.string()), f"CAST({quoted} AS text) AS {quoted}"
            selected.append(quoted)
            fields.append(field)
        return f"SELECT {', '.join(selected)} FROM {self._database.rows()}", pa.schema(fields)

    def _condition(self, wanted: RowIds) -> tuple[str, list[Any]]:
        """A condition for the wanted ids, with its parameter."""
        import pyarrow as pa

        name = self._database.data.row_id
        values, cast = _comparable(wanted, self.found.field(name).type)
        one = pa.array([values.to_pylist()], pa.list_(values.type))
        quoted = self._database.quoted(name)
        return (f"{quoted} = ANY(CAST($1 AS {cast}[]))" if cast else f"{quoted} = ANY($1)"), [one]

    def _ask(self, query: str, bound: Sequence[Any] | None = None) -> Any:
        import pyarrow as pa

        cursor = self._connection.cursor()
        self._cursors.append(cursor)
        if bound is None:
            cursor.execute(query)
        else:
            cursor.execute(query, pa.record_batch(list(bound), names=[str(i) for i in range(len(bound))]))
        return cursor.fetch_record_batch()


def read_password(organization: str, data: DataSource) -> str | None:
    """The password from the environment or the file that node.toml names; None: the driver finds its own."""
    if data.password_file is None:
        return os.environ.get(PASSWORD_VARIABLE)
    try:
        password = data.password_file.read_text(encoding="utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise InvalidInputError(
            f"organization {organization!r}: the password of the database cannot be read from "
            f"{str(data.password_file)!r}: {why}. Put it there, readable for this user alone"
        ) from None
    if not password:
        raise InvalidInputError(
            f"organization {organization!r}: {str(data.password_file)!r} is empty; put the password of the "
            "database there, readable for this user alone"
        )
    return password


def without_password(text: str, password: str | None) -> str:
    """The text with the password blacked out, as it is and as it stands in an address."""
    for one in {password or "", quote(password or "", safe="")} - {""}:
        text = text.replace(one, "***")
    return text


def _comparable(wanted: RowIds, kind: Any) -> tuple[Any, str]:
    """Ids as a column of this type can be compared with: others are none of its own; and what to cast to."""
    import pyarrow as pa

    values = wanted.values.tolist()
    if wanted.kind == "text":
        if str(kind) == "extension<arrow.uuid>":
            texts = [one for one in values if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", one)]
            return pa.array(texts, pa.string()), "uuid"
        if pa.types.is_integer(kind) or _is_numeric(kind):  # text is made of them: row_id_type = "text"
            values = [int(one) for one in values if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", one)]
        else:
            return pa.array(values, pa.string()), "text" if _is_opaque(kind) else ""
    return pa.array(values, pa.int64()), "numeric" if _is_numeric(kind) else ""


# Types that Arrow lacks


def _is_opaque(kind: Any) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.opaque"


def _is_numeric(kind: Any) -> bool:
    return _is_opaque(kind) and kind.type_name.lower() in NUMERIC


def _type_name(field: Any) -> str:
    return str((field.metadata or {}).get(b"POSTGRESQL:type", b"").decode())


def _plain_schema(schema: Any) -> Any:
    import pyarrow as pa

    return pa.schema([pa.field(one.name, _plain_type(one.type)) for one in schema])


def _plain_type(kind: Any) -> Any:
    """Numbers that come as text are floats; everything else stays as it is."""
    import pyarrow as pa

    return pa.float64() if _is_numeric(kind) else kind


def _plain(reader: Any) -> Any:
    """The same batches; numbers that came as text are numbers, or an error."""
    import pyarrow as pa

    schema = _plain_schema(reader.schema)

    def batches() -> Iterator[Any]:
        for batch in reader:
            columns = [
                _numbers(column, field.name) if _is_numeric(field.type) else column
                for column, field in zip(batch.columns, batch.schema, strict=True)
            ]
            yield pa.record_batch(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _numbers(column: Any, name: str) -> Any:
    import pyarrow as pa

    try:
        return column.storage.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {name!r} has numbers that cannot be read as such: {error}") from error
