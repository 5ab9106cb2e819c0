"""Online prediction of one task: what applications send, and what they get.

``POST /predict`` with ``{"ids": [...]}``, or ``{"rows": [{"id": ..., "column": ...}]}`` where the own columns
are not in the source. ``GET /health`` says who is connected, ``GET /livez`` that the process is alive.
"""

from __future__ import annotations

import asyncio
import csv
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from gal.alignment import RowIds, row_ids
from gal.errors import GALError, InvalidInputError, TaskError
from gal.node.holder.label_holder import LabelHolder
from gal.node.holder.predicting import NodePrediction
from gal.node.holder.prediction_files import prediction_facts, prediction_rows
from gal.node.source.data import read_source, refuse_forgotten
from gal.node.store.state import TaskRecord
from gal.node.web.batching import LANES, MOST_ROWS, SharedExchanges
from gal.node.web.server import HttpServer, is_loopback, listening_socket
from gal.node.web.token import FILE as TOKEN_FILE
from gal.node.work.confinement import temporary_folder

Answer = tuple[int, dict[str, Any]]
"""Status and content."""


class Endpoint:
    """Serves predictions of one task over HTTP, from when it is entered until it is left."""

    def __init__(self, holder: LabelHolder, task: str, listen: str, seconds: float = 5.0) -> None:
        self._holder, self._seconds = holder, seconds
        self._record: TaskRecord = holder.node.state.find_task(task, "label holder")
        if self._record.active == 0:
            raise TaskError(f"the task {task!r} has no finished version: gal learn {task}")
        self._kind = self._kind_of_ids()
        self._features: list[str] = holder.node.worker("rows")[0]["features"]
        self._socket = listening_socket(listen)
        self.port = int(self._socket.getsockname()[1])
        self.scheme = "http" if is_loopback(str(self._socket.getsockname()[0])) else "https"
        self.token_file = holder.node.configuration.home / TOKEN_FILE
        self._exchanges: SharedExchanges | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._server: HttpServer | None = None

    def __enter__(self) -> Self:
        self._exchanges = SharedExchanges(self._exchange)
        self._threads = ThreadPoolExecutor(LANES, thread_name_prefix="rows")
        self._server = HttpServer(self, self._socket, self._holder.node.configuration)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._exchanges is not None
        assert self._threads is not None
        self._server.stop()
        self._exchanges.close()
        self._threads.shutdown(cancel_futures=True)

    def health(self) -> dict[str, Any]:
        """Who is connected, and which version answers."""
        record = self._holder.node.state.get_task(self._record.id)
        return {
            "task": self._record.name,
            "version": 0 if record is None else record.active,
            "connected": sorted(self._holder.node.assistants.present(self._record.id)),
        }

    async def answer(self, body: bytes) -> Answer:
        """The answer to a request; nothing here blocks the loop that serves the others."""
        assert self._exchanges is not None
        try:
            asked = _parsed(body)
            if "rows" in asked or len(asked["ids"]) > MOST_ROWS:
                return await asyncio.get_running_loop().run_in_executor(self._threads, self._alone, asked)
            ids = self._ids(asked["ids"])
            found = await asyncio.wrap_future(self._exchanges.ask(ids))
            return 200, _facts(ids, found)
        except GALError as error:
            return _refused(error)

    def _alone(self, asked: dict[str, Any]) -> Answer:
        """A request with an exchange of its own: with own columns, or large."""
        try:
            with self._rows(asked) as (ids, own_rows):
                found = self._exchange(ids, own_rows)
            own = self._holder.node.name
            if own_rows is not None and own in found.missing:
                raise InvalidInputError(
                    f"the values of these rows cannot be used: {own} {found.missing[own]}"
                )
            return 200, _facts(ids, found)
        except GALError as error:
            return _refused(error)

    def _exchange(self, ids: RowIds, own_rows: Path | None = None) -> NodePrediction:
        # The active version may change under us (gal rollback): look each time.
        record = self._holder.node.state.get_task(self._record.id)
        if record is None:
            raise TaskError(f"the task {self._record.name!r} was forgotten")
        return self._holder.predictor.predict(record, ids, own_rows=own_rows, seconds=self._seconds)

    @contextmanager
    def _rows(self, asked: dict[str, Any]) -> Iterator[tuple[RowIds, Path | None]]:
        """The ids asked for, and a file with the own columns where they were given."""
        if "ids" in asked:
            yield self._ids(asked["ids"]), None
            return
        rows = asked["rows"]
        if not isinstance(rows, list) or not all(isinstance(row, dict) and "id" in row for row in rows):
            raise InvalidInputError('rows must be a list of objects with an "id" each')
        ids = self._ids([row["id"] for row in rows])
        lacking = [name for name in self._features if not any(name in row for row in rows)]
        if lacking:
            raise InvalidInputError(f"rows lack the own columns {', '.join(lacking)}: give them, or only ids")
        place = temporary_folder(self._holder.node.configuration.home)
        with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="", encoding="utf-8", dir=place) as file:
            self._write(file, rows)
            yield ids, Path(file.name)

    def _write(self, file: Any, rows: list[dict[str, Any]]) -> None:
        """Rows are known by their place: ids may look like something else in a file."""
        data = self._holder.node.configuration.data
        assert data is not None
        writer = csv.writer(file)
        writer.writerow([data.row_id, *self._features])
        for place, row in enumerate(rows):
            values = (row.get(name) for name in self._features)
            writer.writerow([place, *("" if value is None else value for value in values)])
        file.flush()

    def _ids(self, given: Any) -> RowIds:
        if not isinstance(given, list) or not given:
            raise InvalidInputError("ids must be a list of at least one id")
        ids = row_ids(given, self._holder.node.name, "ids of the request")
        if ids.kind != self._kind:
            raise InvalidInputError(
                f"ids must be {self._kind}, got {ids.kind}: as in the label holder's own data"
            )
        refuse_forgotten(self._holder.node.configuration, ids, "ids of the request")
        return ids

    def _kind_of_ids(self) -> str:
        return str(read_source(self._holder.node.configuration, label=False).ids.kind)


def _parsed(body: bytes) -> dict[str, Any]:
    """What is asked for: ids, or rows."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the request is not JSON: {error}") from error
    if not isinstance(asked, dict) or set(asked) not in ({"ids"}, {"rows"}):
        raise InvalidInputError(
            'the request needs {"ids": [...]} or {"rows": [{"id": ..., "column": ...}, ...]}'
        )
    if "ids" in asked and not isinstance(asked["ids"], list):
        raise InvalidInputError("ids must be a list of at least one id")
    return asked


def _facts(ids: RowIds, found: NodePrediction) -> dict[str, Any]:
    return prediction_facts(found) | {"predictions": prediction_rows(ids.values.tolist(), found)}


def _refused(error: GALError) -> Answer:
    """400 where the request is wrong, 503 where the node cannot answer now."""
    return (400 if isinstance(error, InvalidInputError) else 503), {"error": str(error)}
