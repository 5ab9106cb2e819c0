"""One reading of a source that stays where it is, a database or a lake: batches through DuckDB's casts.

Only the columns that are asked for travel. A connection that is lost is made again, and the reading begins
anew: a database may be restarted under a node.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gal.alignment import Index, RowIds
from gal.errors import InvalidInputError
from gal.extras import require
from gal.node.config.data_source import PASSWORD_VARIABLE, DataSource
from gal.node.source.databases import AdbcSource
from gal.node.source.lakes import Lake
from gal.node.source.source_reading import BATCH, SourceReader, connected, refuse_repeated, typed_row_ids

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

    def check_file(self) -> None:
        """A source that is not there, or has two columns of one name."""
        refuse_repeated(self.whose, self.names())

    def names(self) -> list[str]:
        """Names of all columns of the source."""
        return self._attempted(lambda supply: list(supply.schema.names))

    def stamp(self) -> str | None:
        """Another one whenever the source has changed; None where that is not known."""
        return self._attempted(lambda supply: supply.stamp())

    def read(self, wanted: RowIds | None = None, most: int | None = None) -> Any:
        """A pyarrow Table: row id, features, and the label if there is one; it may have no rows."""
        import pyarrow as pa

        def look(supply: AdbcSource | Lake) -> Any:
            with connected() as connection:
                connection.execute("SET threads = 1")  # of one stream, more would only keep more batches
                types = self.checked_types(connection.from_arrow(supply.schema.empty_table()))
                label = [self.label] if self.label else []
                columns = list(dict.fromkeys([self.data.row_id, *self.features, *label]))
                rows = connection.from_arrow(self._arriving(supply.batches(columns, wanted, most)))
                batches = rows.project(", ".join(self.selected(types))).to_arrow_reader(BATCH)
                chosen = batches if wanted is None else self._chosen(batches, wanted)
                return pa.Table.from_batches(list(chosen), batches.schema)

        return self._attempted(look)

    def _arriving(self, reader: Any) -> Any:
        """The batches as they come from the source; tests look at them."""
        return reader

    def _chosen(self, batches: Any, wanted: RowIds) -> Iterator[Any]:
        """The rows with the wanted ids, of those that the source could not leave out itself."""
        index = Index(wanted.values) if len(wanted) else None
        for batch in batches:
            if batch.num_rows == 0 or index is None:
                continue
            ids = typed_row_ids(batch.column(0), self.data, self.organization)
            if ids.kind != wanted.kind:
                continue
            there = np.flatnonzero(index.positions(ids.values) >= 0)
            yield batch if len(there) == batch.num_rows else batch.take(there)

    def _attempted(self, look: Callable[[AdbcSource | Lake], Result]) -> Result:
        """Look at the opened source, once more where it was lost meanwhile; an error that says what to do."""
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
                with self._supply.opened() as supply:
                    return look(supply)
            except foreign as error:
                said = self._supply.said(error)
                if not (waits and LOST.search(str(error)) and not REFUSED.search(str(error))):
                    raise self._unusable(said) from None  # drivers may quote the address they were given
            time.sleep(waits.pop(0))

    def _unusable(self, said: str) -> InvalidInputError:
        """Why rows cannot be had, and what to do."""
        if REFUSED.search(said):
            password = (
                f"the password in the variable {PASSWORD_VARIABLE}, in data.password_file or in .pgpass"
            )
            keys = "the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            given = password if self.data.is_database else keys
            why = f"does not let this node in: {said}. Correct the user, and give {given}"
        elif LOST.search(said):
            why = (
                f"cannot be reached (tried {1 + len(WAITS)} times): {said}. Start it, or correct data.source"
            )
        else:
            why = f"cannot be read: {said}. Correct [data] in node.toml, or the source"
        if self.data.is_bucket and self.data.endpoint is None:
            why += ". A store other than Amazon's is named by data.endpoint (gal init: --endpoint)"
        return InvalidInputError(f"organization {self.organization!r}: {self.what} {why}")
