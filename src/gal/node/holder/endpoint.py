"""Online prediction: a small JSON endpoint for the label holder's own applications.

``POST /predict`` with ``{"ids": [...]}``, or ``{"rows": [{"id": ..., "column": ...}]}`` where the own columns are not in the
source. ``GET /health`` says who is connected. It is for this machine: put it behind your own gateway.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gal.alignment import RowIds, row_ids
from gal.errors import GALError, InvalidInputError, TaskError
from gal.node.holder.label_holder import LabelHolder
from gal.node.holder.prediction_files import prediction_facts, prediction_rows
from gal.node.store.state import TaskRecord
from gal.node.work.confinement import temporary_folder
from gal.protocol.addresses import parse_address

LARGEST = 64 << 20
"""Bytes of one request."""


class Endpoint:
    """Serves predictions of one task over HTTP."""

    def __init__(self, holder: LabelHolder, task: str, listen: str, seconds: float = 5.0) -> None:
        self._holder, self._seconds = holder, seconds
        self._record: TaskRecord = holder.node.state.find_task(task, "label holder")
        if self._record.active == 0:
            raise TaskError(f"the task {task!r} has no finished version: gal learn {task}")
        self._kind = self._kind_of_ids()
        self._features: list[str] = holder.node.worker("rows")[0]["features"]
        host, port = parse_address(listen, "cannot listen there", any_port=True)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._say(
                    *endpoint.health() if self.path == "/health" else (404, _no("GET /health, POST /predict"))
                )

            def do_POST(self) -> None:
                if self.path != "/predict":
                    self.close_connection = True
                    self._say(404, _no("GET /health, POST /predict"))
                    return
                self._say(*endpoint.answer(self._body()))

            def _body(self) -> bytes | None:
                size = self.headers.get("Content-Length", "")
                if not (size.isascii() and size.isdigit()) or int(size) > LARGEST:
                    self.close_connection = True
                    return None
                return self.rfile.read(int(size))

            def _say(self, status: int, facts: Mapping[str, Any]) -> None:
                data = json.dumps(facts).encode() + b"\n"
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: Any) -> None:
                endpoint._holder.node.log.debug("http", said=format % arguments)

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidInputError(f"cannot listen on {listen}: {why}") from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Endpoint:
        threading.Thread(target=self._server.serve_forever, name="endpoint", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def health(self) -> tuple[int, dict[str, Any]]:
        """Who is connected, and which version answers."""
        record = self._holder.node.state.get_task(self._record.id)
        present = sorted(self._holder.node.assistants.present(self._record.id))
        return 200, {
            "task": self._record.name,
            "version": 0 if record is None else record.active,
            "connected": present,
        }

    def answer(self, body: bytes | None) -> tuple[int, dict[str, Any]]:
        """Status and content of the answer to a request."""
        try:
            if body is None:
                raise InvalidInputError(f"the request needs a Content-Length of at most {LARGEST} bytes")
            with self._rows(body) as (ids, own_rows):
                # The active version may change under us (gal rollback): look each time.
                record = self._holder.node.state.get_task(self._record.id)
                if record is None:
                    raise TaskError(f"the task {self._record.name!r} was forgotten")
                found = self._holder.predictor.predict(record, ids, own_rows=own_rows, seconds=self._seconds)
            own = self._holder.node.name
            if own_rows is not None and own in found.missing:
                raise InvalidInputError(
                    f"the values of these rows cannot be used: {own} {found.missing[own]}"
                )
            return 200, prediction_facts(found) | {"predictions": prediction_rows(ids.values.tolist(), found)}
        except InvalidInputError as error:
            return 400, {"error": str(error)}
        except GALError as error:
            return 503, {"error": str(error)}

    @contextmanager
    def _rows(self, body: bytes) -> Iterator[tuple[RowIds, Path | None]]:
        """The ids asked for, and a file with the own columns where they were given."""
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"the request is not JSON: {error}") from error
        if not isinstance(asked, dict) or set(asked) not in ({"ids"}, {"rows"}):
            raise InvalidInputError(
                'the request needs {"ids": [...]} or {"rows": [{"id": ..., "column": ...}, ...]}'
            )
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
        import csv

        data = self._holder.node.configuration.data
        assert data is not None
        writer = csv.writer(file)
        writer.writerow([data.row_id, *self._features])
        for place, row in enumerate(
            rows
        ):  # rows are known by their place: ids may look like something else in a file
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
        return ids

    def _kind_of_ids(self) -> str:
        from gal.node.source.data import read_source

        return str(read_source(self._holder.node.configuration, label=False).ids.kind)


def _no(known: str) -> dict[str, Any]:
    return {"error": f"there is nothing here; known are: {known}"}
