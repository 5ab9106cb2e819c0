"""Rows of PostgreSQL through its ADBC driver, streamed as Arrow batches in one read-only transaction.

All queries of one reading see one state of the database. Row ids come from others, so they are bound as
parameters and never part of a query.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from gal.alignment import RowIds
from gal.errors import InvalidInputError
from gal.extras import require
from gal.node.config.data_source import PASSWORD_VARIABLE, DataSource
from gal.node.source.source_reading import quoted

CONNECT_SECONDS = 10
FEW = 10_000
"""Ids that the database looks up; with more, all rows are streamed."""
NUMERIC = {"numeric", "decimal", "number", "bignumeric"}
"""Names of numeric types that ADBC returns as text, because Arrow has none of their size."""

MEANINGS = {
    r'relation ".*" does not exist': "There is no such table",
    r"permission denied": "This user may not read it",
    r"read-only transaction": "A node only reads",
}
"""Messages of databases, and their meaning here."""

TOO_LONG = "canceling statement due to"
NOISE = re.compile(r"(Query was|Detail: Python exception|CONTEXT):?.*|\.? ?SQLSTATE: \w+", re.S)
LAYERS = re.compile(
    r"^.*\[libpq\] (Execution error \[\w+\]: )?|^[A-Z_]+: |^.*Arrow source failed: (\w+: )?", re.S
)
"""What each layer puts around a message of the database."""


class AdbcSource:
    """A database, queried while it is ``opened``."""

    def __init__(self, organization: str, data: DataSource) -> None:
        self.data, self.password = data, read_password(organization, data)
        self._connection: Any = None
        self._cursors: list[Any] = []
        self._fields: Any = None
        """The schema of the driver."""

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """Connect and begin a read-only transaction with a time limit."""
        require("postgresql", "reading PostgreSQL")
        import adbc_driver_postgresql
        from adbc_driver_manager import dbapi

        driver, how = adbc_driver_postgresql._driver_path(), {"uri": self._uri()}
        self._connection, self._cursors = dbapi.connect(driver=driver, db_kwargs=how, autocommit=False), []
        try:
            with self._connection.cursor() as cursor:  # all queries see one state
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                cursor.execute(f"SET LOCAL statement_timeout = {int(1000 * self.data.timeout)}")
            self._fields = self._ask(f"SELECT * FROM {self._rows()} WHERE 1 = 0").schema
            yield self
        finally:
            for one in (*self._cursors, self._connection):
                with suppress(Exception):  # a lost connection cannot be closed
                    one.close()

    def _uri(self) -> str:
        """The address with the password."""
        parts = urlsplit(str(self.data.address))
        own = {"connect_timeout": str(CONNECT_SECONDS), "application_name": "gal"}
        own |= {"keepalives_idle": "30", "tcp_user_timeout": "60000"}
        if self.password is not None:
            own["password"] = self.password
        query = urlencode(own | dict(parse_qsl(parts.query)), quote_via=quote)
        return urlunsplit(parts._replace(query=query))

    @property
    def schema(self) -> Any:
        return self._query_of(self._fields.names)[1]

    def batches(self, columns: Sequence[str], wanted: RowIds | None = None, most: int | None = None) -> Any:
        """A reader of these columns: of all rows, of at most ``most``, or of all that may be wanted."""
        import pyarrow as pa

        query, _ = self._query_of(columns)
        name = self.data.row_id
        kind = self._fields.field(name).type
        # An index does not help with many ids, or where every stored id has to be converted first.
        looks_up = wanted is not None and len(wanted) <= FEW
        if wanted is None or not looks_up or (wanted.kind == "integer" and pa.types.is_string(kind)):
            return self._ask(query if most is None else f"{query} LIMIT {int(most)}")
        values, cast = _comparable(wanted, kind)
        one = f"CAST($1 AS {cast}[])" if cast else "$1"
        bound = pa.array([values.to_pylist()], pa.list_(values.type))
        return self._ask(f"{query} WHERE {quoted(name)} = ANY({one})", bound)

    def stamp(self) -> str | None:
        """Changes with every write to the database."""
        query = "SELECT CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS stamp"
        return str(self._ask(query).read_all().column(0)[0].as_py())

    def describe(self, error: BaseException) -> str:
        """A message of the database in one line, without the password."""
        text = LAYERS.sub("", NOISE.sub("", str(error)))
        if TOO_LONG in text:
            limit = f"{self.data.timeout:g} seconds"
            return f"it took longer than {limit}; raise data.timeout, or ask for less with sql"
        text = " ".join(text.split())
        meant = next((words for pattern, words in MEANINGS.items() if re.search(pattern, text)), "")
        message = f"{meant}: {text}" if meant else text or type(error).__name__
        for one in {self.password or "", quote(self.password or "", safe="")} - {""}:
            message = message.replace(one, "***")
        return message[:400].rstrip(". ")

    def _rows(self) -> str:
        """The FROM clause."""
        if self.data.sql is not None:
            return f"({self.data.sql.strip().rstrip(';')}) AS gal_rows"
        table = str(self.data.table)
        return table if '"' in table else ".".join(map(quoted, table.split(".")))

    def _query_of(self, columns: Sequence[str]) -> tuple[str, Any]:
        """The query for these columns, and their fields; types that Arrow lacks become numbers or text."""
        import pyarrow as pa

        selected, fields = [], []
        for name in columns:
            field, column = self._fields.field(name), quoted(name)
            if (field.metadata or {}).get(b"POSTGRESQL:type") == b"money":
                field, cast = pa.field(name, pa.float64()), f"CAST(CAST({column} AS numeric) AS float8)"
            elif _is_numeric(field.type):
                field, cast = pa.field(name, pa.float64()), f"CAST({column} AS float8)"
            elif _is_opaque(field.type):
                field, cast = pa.field(name, pa.string()), f"CAST({column} AS text)"
            else:
                cast = column
            selected.append(f"{cast} AS {column}")
            fields.append(field)
        return f"SELECT {', '.join(selected)} FROM {self._rows()}", pa.schema(fields)

    def _ask(self, query: str, bound: Any = None) -> Any:
        import pyarrow as pa

        cursor = self._connection.cursor()
        self._cursors.append(cursor)
        cursor.execute(query, None if bound is None else pa.record_batch([bound], names=["0"]))
        return cursor.fetch_record_batch()


def read_password(organization: str, data: DataSource) -> str | None:
    """The password from the environment or a file of node.toml; None: the driver looks for one."""
    if data.password_file is None:
        return os.environ.get(PASSWORD_VARIABLE)
    try:
        password = data.password_file.read_text(encoding="utf-8").strip("\r\n")
        why = "" if password else "it is empty"
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
    if why:
        raise InvalidInputError(
            f"organization {organization!r}: the password of the database cannot be read from "
            f"{str(data.password_file)!r}: {why}. Put it there, readable for this user alone"
        )
    return password


def _comparable(wanted: RowIds, kind: Any) -> tuple[Any, str]:
    """Ids that can be in a column of this type, and the type to cast them to."""
    import pyarrow as pa

    values = wanted.values.tolist()
    if wanted.kind == "text" and str(kind) == "extension<arrow.uuid>":
        texts = [one for one in values if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", one)]
        return pa.array(texts, pa.string()), "uuid"
    if wanted.kind == "text" and not (pa.types.is_integer(kind) or _is_numeric(kind)):
        return pa.array(values, pa.string()), "text" if _is_opaque(kind) else ""
    if wanted.kind == "text":  # of integers: row_id_type = "text"
        values = [int(one) for one in values if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", one)]
    return pa.array(values, pa.int64()), "numeric" if _is_numeric(kind) else ""


def _is_opaque(kind: Any) -> bool:
    """Whether Arrow lacks this type."""
    return getattr(kind, "extension_name", "") == "arrow.opaque"


def _is_numeric(kind: Any) -> bool:
    return _is_opaque(kind) and kind.type_name.lower() in NUMERIC
