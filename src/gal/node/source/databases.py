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
from typing import Any, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from gal.alignment import RowIds
from gal.errors import InvalidInputError
from gal.extras import require
from gal.node.config.data_source import PASSWORD_VARIABLE, DataSource

CONNECT_SECONDS = 10
FEW = 10_000
"""So many ids are looked for by the database."""
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
    """A database; what can be asked of it is asked while it is ``opened``."""

    def __init__(self, organization: str, data: DataSource) -> None:
        self.data, self.password = data, read_password(organization, data)
        self.took_too_long = False
        self._connection: Any = None
        self._cursors: list[Any] = []
        self._found: Any = None
        """The columns as the driver gives them."""

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """Connect, begin a transaction that only reads, and end whatever has not ended in time."""
        require("postgresql", "reading PostgreSQL")
        import adbc_driver_postgresql
        from adbc_driver_manager import dbapi

        driver, how = adbc_driver_postgresql._driver_path(), {"uri": self._uri()}
        self._connection, self._cursors = dbapi.connect(driver=driver, db_kwargs=how, autocommit=False), []
        timer = threading.Timer(self.data.timeout, self._cancel)
        timer.daemon = True
        try:
            with self._connection.cursor() as cursor:  # nothing is written, and all sees one state
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                cursor.execute(f"SET LOCAL statement_timeout = {int(1000 * self.data.timeout)}")
            timer.start()
            self._found = self._ask(f"SELECT * FROM {self._rows()} WHERE 1 = 0").schema
            yield self
        finally:
            timer.cancel()
            for one in (*self._cursors, self._connection):
                with suppress(Exception):  # a lost connection cannot be closed
                    one.close()

    def _cancel(self) -> None:
        self.took_too_long = True
        for cursor in self._cursors[-1:]:
            with suppress(Exception):
                cursor.adbc_cancel()

    def _uri(self) -> str:
        """The address with the password: not to be shown to anybody."""
        parts = urlsplit(str(self.data.address))
        own = {"connect_timeout": str(CONNECT_SECONDS), "application_name": "gal"}
        own |= {"keepalives_idle": "30", "tcp_user_timeout": "60000"}
        if self.password is not None:
            own["password"] = self.password
        query = urlencode(own | dict(parse_qsl(parts.query)), quote_via=quote)
        return urlunsplit(parts._replace(query=query))

    # What is asked

    @property
    def schema(self) -> Any:
        """The columns as they come."""
        return self._query_of(self._found.names)[1]

    def batches(self, columns: Sequence[str], wanted: RowIds | None = None, most: int | None = None) -> Any:
        """A reader of these columns: of all rows, of at most so many, or of those with wanted ids."""
        import pyarrow as pa

        query, _ = self._query_of(columns)
        if wanted is None or not self._finds(wanted):
            return self._ask(query if most is None else f"{query} LIMIT {int(most)}")
        name = self.data.row_id
        values, cast = _comparable(wanted, self._found.field(name).type)
        one = f"CAST($1 AS {cast}[])" if cast else "$1"
        bound = pa.array([values.to_pylist()], pa.list_(values.type))
        return self._ask(f"{query} WHERE {_quoted(name)} = ANY({one})", bound)

    def _finds(self, wanted: RowIds) -> bool:
        """Whether the database is to find these ids: not where all have to be looked at, since there are many
        (only a query without them streams), or since it would have to change every id first.
        """
        import pyarrow as pa

        is_text = pa.types.is_string(self._found.field(self.data.row_id).type)
        return len(wanted) <= FEW and not (wanted.kind == "integer" and is_text)

    def stamp(self) -> str | None:
        """Another one whenever something was written to the database."""
        asked = "SELECT CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS stamp"
        return str(self._ask(asked).read_all().column(0)[0].as_py())

    def said(self, error: BaseException) -> str:
        """What the database says, in one line and without the password."""
        text = LAYERS.sub("", NOISE.sub("", str(error)))
        if self.took_too_long or TOO_LONG in text:
            limit = f"{self.data.timeout:g} seconds"
            return f"it took longer than {limit}; raise data.timeout, or ask for less with sql"
        text = " ".join(text.split())
        meant = next((words for pattern, words in UNUSABLE.items() if re.search(pattern, text)), "")
        said = f"{meant}: {text}" if meant else text or type(error).__name__
        for one in {self.password or "", quote(self.password or "", safe="")} - {""}:
            said = said.replace(one, "***")
        return said[:400].rstrip(". ")

    def _rows(self) -> str:
        """What rows are selected from."""
        if self.data.sql is not None:
            return f"({self.data.sql.strip().rstrip(';')}) AS gal_rows"
        table = str(self.data.table)
        return table if '"' in table else ".".join(map(_quoted, table.split(".")))

    def _query_of(self, columns: Sequence[str]) -> tuple[str, Any]:
        """The query for these columns, and their fields; types that Arrow lacks come as numbers or text."""
        import pyarrow as pa

        selected, fields = [], []
        for name in columns:
            field, quoted = self._found.field(name), _quoted(name)
            if (field.metadata or {}).get(b"POSTGRESQL:type") == b"money":
                field, cast = pa.field(name, pa.float64()), f"CAST(CAST({quoted} AS numeric) AS float8)"
            elif _is_numeric(field.type):
                field, cast = pa.field(name, pa.float64()), f"CAST({quoted} AS float8)"
            elif _is_opaque(field.type):
                field, cast = pa.field(name, pa.string()), f"CAST({quoted} AS text)"
            else:
                cast = quoted
            selected.append(f"{cast} AS {quoted}")
            fields.append(field)
        return f"SELECT {', '.join(selected)} FROM {self._rows()}", pa.schema(fields)

    def _ask(self, query: str, bound: Any = None) -> Any:
        import pyarrow as pa

        cursor = self._connection.cursor()
        self._cursors.append(cursor)
        cursor.execute(query, None if bound is None else pa.record_batch([bound], names=["0"]))
        return cursor.fetch_record_batch()


def read_password(organization: str, data: DataSource) -> str | None:
    """The password from the environment or the file that node.toml names; None: the driver finds its own."""
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


def _quoted(name: str) -> str:
    """A name as it stands in a query."""
    return '"' + name.replace('"', '""') + '"'


def _comparable(wanted: RowIds, kind: Any) -> tuple[Any, str]:
    """Ids as a column of this type can be compared with: others are none of its own; and what to cast to."""
    import pyarrow as pa

    values = wanted.values.tolist()
    if wanted.kind == "text" and str(kind) == "extension<arrow.uuid>":
        texts = [one for one in values if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", one)]
        return pa.array(texts, pa.string()), "uuid"
    if wanted.kind == "text" and not (pa.types.is_integer(kind) or _is_numeric(kind)):
        return pa.array(values, pa.string()), "text" if _is_opaque(kind) else ""
    if wanted.kind == "text":  # text is made of whole numbers: row_id_type = "text"
        values = [int(one) for one in values if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", one)]
    return pa.array(values, pa.int64()), "numeric" if _is_numeric(kind) else ""


def _is_opaque(kind: Any) -> bool:
    """Whether Arrow lacks this type."""
    return getattr(kind, "extension_name", "") == "arrow.opaque"


def _is_numeric(kind: Any) -> bool:
    return _is_opaque(kind) and kind.type_name.lower() in NUMERIC
