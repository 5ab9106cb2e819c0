"""A database or a lake as batches of the wanted columns, cast by DuckDB.

After a lost connection the reading starts anew, as a database may restart under a node.
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
"""Seconds before each retry of a lost source."""

LOST = re.compile(
    r"connection refused|starting up|shutting down|closed the connection|terminating connection"
    r"|no connection to|connection reset|could not receive|could not send|server crash|connection not open"
    r"|eof detected|broken pipe|couldn't connect|could not connect|network_connection|curlcode",
    re.IGNORECASE,
)
"""Messages of drivers for a source that may come back."""

REFUSED = re.compile(
    r"password|authentication|no pg_hba|role .* does not exist|access.?denied|forbidden", re.I
)
"""Messages of drivers for a user without access."""


class StreamedReader(SourceReader):
    """Streamed rows: all, some, or those with wanted ids."""

    def __init__(self, organization: str, data: DataSource, home: Path, **wanted: Any) -> None:
        super().__init__(organization, data, home, **wanted)
        self._supply: AdbcSource | Lake = (
            AdbcSource(organization, data) if data.is_database else Lake(organization, data)
        )
        table = f", table {data.table!r}" if data.table else ""
        self.what = f"{str(data.source)!r}{table}"
        self.whose = f"organization {organization!r}, {self.what}"

    def check_file(self) -> None:
        refuse_repeated(self.whose, self.names())

    def names(self) -> list[str]:
        return self._attempted(lambda supply: list(supply.schema.names))

    def stamp(self) -> str | None:
        """Changes with the source; None where that is unknown."""
        return self._attempted(lambda supply: supply.stamp())

    def read(self, wanted: RowIds | None = None, most: int | None = None) -> Any:
        """A pyarrow Table, possibly empty: row id, features, and the label if wanted."""
        import pyarrow as pa

        def look(supply: AdbcSource | Lake) -> Any:
            with connected() as connection:
                connection.execute("SET threads = 1")  # more would only keep more batches
                types = self.checked_types(connection.from_arrow(supply.schema.empty_table()))
                label = [self.label] if self.label else []
                columns = list(dict.fromkeys([self.data.row_id, *self.features, *label]))
                rows = connection.from_arrow(self._arriving(supply.batches(columns, wanted, most)))
                batches = rows.project(", ".join(self.selected(types))).to_arrow_reader(BATCH)
                chosen = batches if wanted is None else self._chosen(batches, wanted)
                return pa.Table.from_batches(list(chosen), batches.schema)

        return self._attempted(look)

    def _arriving(self, reader: Any) -> Any:
        """The batches of the source, for tests."""
        return reader

    def _chosen(self, batches: Any, wanted: RowIds) -> Iterator[Any]:
        """Rows with wanted ids, among those that the source returned."""
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
        """``look`` at the opened source, with retries where it was lost; InvalidInputError with a remedy."""
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
                if not (waits and LOST.search(str(error)) and not REFUSED.search(str(error))):
                    raise self._unusable(self._supply.describe(error)) from None  # drivers quote the address
            time.sleep(waits.pop(0))

    def _unusable(self, message: str) -> InvalidInputError:
        if REFUSED.search(message):
            password = (
                f"the password in the variable {PASSWORD_VARIABLE}, in data.password_file or in .pgpass"
            )
            keys = "the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            given = password if self.data.is_database else keys
            why = f"refuses this node: {message}. Correct the user, and give {given}"
        elif LOST.search(message):
            tries = 1 + len(WAITS)
            why = f"cannot be reached (tried {tries} times): {message}. Start it, or correct data.source"
        else:
            why = f"cannot be read: {message}. Correct [data] in node.toml, or the source"
        if self.data.is_bucket and self.data.endpoint is None:
            why += ". A store other than Amazon's is named by data.endpoint (gal init: --endpoint)"
        return InvalidInputError(f"organization {self.organization!r}: {self.what} {why}")
