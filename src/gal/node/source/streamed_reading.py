"""One reading of a source that stays where it is, a database or a lake: batches through DuckDB's casts.

Only the columns that are asked for travel. A connection that is lost is made again, and the reading begins
anew: a database may be restarted under a node.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gal.alignment import RowIds
from gal.errors import InvalidInputError
from gal.extras import require
from gal.node.config.data_source import PASSWORD_VARIABLE, DataSource
from gal.node.source.databases import AdbcSource
from gal.node.source.lakes import Lake
from gal.node.source.source_reading import BATCH, SourceReader, refuse_repeated

Result = TypeVar("Result")

WAITS = (0.5, 2.0, 5.0)
"""Seconds before a lost source is tried again."""

LOST = re.compile(
    r"connection refused|starting up|shutting down|closed the connection|terminating connection"
    r"|no connection to|connection reset|could not receive|could not send|server crash|connection not open"
    r"|eof detected|broken pipe|couldn't connect|could not connect|network_connection|curlcode",
    re.IGNORECASE,
)
"""What drivers say of a source that is gone, and may come back."""

REFUSED = re.compile(
    r"password|authentication|no pg_hba|role .* does not exist|access.?denied|forbidden", re.I
)
"""What they say to a user that they do not let in."""


class StreamedReader(SourceReader):
    """Rows that come as a stream: all of them, some, or those with the ids that are wanted."""

    def __init__(self, organization: str, data: DataSource, home: Path, **wanted: Any) -> None:
        """``wanted``: which columns, as `SourceReader` takes it."""
        super().__init__(organization, data, home, **wanted)
        self._supply: AdbcSource | Lake = (
            AdbcSource(organization, data) if data.is_database else Lake(organization, data)
        )
        table = f", table {data.table!r}" if data.table else ""
        self.what = f"{str(data.source)!r}{table}"
        self.whose = f"organization {organization!r}, {self.what}"
        self.n_read = 0
        """Rows that came from the source in all readings."""

    def check_file(self) -> None:
        """A source that is not there, or has two columns of one name."""
        refuse_repeated(self.whose, self.names())

    def names(self) -> list[str]:
        """Names of all columns of the source."""
        return self._look(lambda opened: list(opened.schema.names))

    def stamp(self) -> str | None:
        """Another one whenever the source has changed; None where that is not known."""
        return self._look(lambda opened: opened.stamp())

    def _look(self, at: Callable[[AdbcSource | Lake], Result]) -> Result:
        def look() -> Result:
            with self._supply.opened() as opened:
                return at(opened)

        return self.attempted(look)

    def read(self, wanted: RowIds | None = None, most: int | None = None) -> Any:
        """A pyarrow Table: row id, features, and the label if there is one; it may have no rows."""
        import pyarrow as pa

        def look() -> Any:
            with self.stream(wanted, most) as batches:
                return pa.Table.from_batches(list(batches), batches.schema)

        return self.attempted(look)

    @contextmanager
    def stream(self, wanted: RowIds | None = None, most: int | None = None) -> Iterator[Any]:
        """A reader of batches with the row id, features and label, as `SourceReader` selects them."""
        with self._supply.opened() as opened, self._connected() as connection:
            connection.execute("SET threads = 1")  # of one stream, more would only keep more batches
            relation = connection.from_arrow(opened.schema.empty_table())
            types = self.checked_types(relation)
            selected = ", ".join(self.selected(types))
            columns = dict.fromkeys([self.data.row_id, *self.features, *([self.label] if self.label else [])])
            if wanted is not None and not opened.takes(wanted):
                wanted = None  # all ids have to be looked at
            batches = self._counted(opened.batches([*columns], wanted, most))
            yield connection.from_arrow(batches).project(selected).to_arrow_reader(BATCH)

    def _counted(self, reader: Any) -> Any:
        import pyarrow as pa

        def batches() -> Iterator[Any]:
            for batch in reader:
                self.n_read += batch.num_rows
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    def attempted(self, do: Callable[[], Result]) -> Result:
        """Do it, and once more where the source was lost meanwhile; an error that says what to do."""
        import duckdb
        import pyarrow as pa

        foreign: tuple[type[BaseException], ...] = (duckdb.Error, pa.ArrowException, OSError)
        if self.data.is_database:
            require("postgresql", "reading PostgreSQL")
            from adbc_driver_manager import Error

            foreign = (*foreign, Error)
        waits = list(WAITS)
        while True:
            try:
                return do()
            except foreign as error:
                said = self._supply.said(error)
                if not (waits and LOST.search(str(error)) and not REFUSED.search(str(error))):
                    raise self._unusable(said) from None  # drivers may quote the address they were given
            time.sleep(waits.pop(0))

    def _unusable(self, said: str) -> InvalidInputError:
        """Why rows cannot be had, and what to do."""
        if REFUSED.search(said):
            keys = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            password = (
                f"the password in the variable {PASSWORD_VARIABLE}, in a file (data.password_file) or in"
            )
            given = f"{password} .pgpass" if self.data.is_database else f"the keys in {keys}"
            why = f"does not let this node in: {said}. Correct the user, and give {given}"
        elif LOST.search(said):
            why = f"cannot be reached (tried {1 + len(WAITS)} times): {said}. Start it, or correct "
            why += self.data.to_correct()
        else:
            why = f"cannot be read: {said}. Correct {self.data.to_correct(all_of_it=True)}, or the source"
        if self.data.is_bucket and self.data.endpoint is None:
            why += ". A store other than Amazon's is named by --endpoint (gal init), or by endpoint in [data]"
        return InvalidInputError(f"organization {self.organization!r}: {self.what} {why}")
