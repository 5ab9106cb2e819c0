"""Online prediction of one task: what applications send, and what they get.

``{"ids": [...]}``, or ``{"rows": [{"id": ..., "column": ...}]}`` where the own columns are not in the source.
"""

from __future__ import annotations

import asyncio
import csv
import json
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gal.alignment import RowIds, row_ids
from gal.errors import GALError, InvalidInputError, TaskError
from gal.node.holder.label_holder import LabelHolder
from gal.node.holder.predicting import NodePrediction
from gal.node.holder.prediction_files import prediction_facts, prediction_rows
from gal.node.source.data import kind_of_ids, refuse_forgotten
from gal.node.store.state import TaskRecord
from gal.node.web.batching import LANES, MOST_ROWS, SharedExchanges
from gal.node.work.confinement import temporary_folder

Answer = tuple[int, dict[str, Any]]
"""Status and content."""


MOST_ASKED = 1_000_000
"""Rows of one request."""


class OnlineTask:
    """Answers requests for predictions of one task, until it is closed."""

    def __init__(self, holder: LabelHolder, task: str, seconds: float) -> None:
        self._holder, self._seconds = holder, seconds
        self._record: TaskRecord = holder.node.state.find_task(task, "label holder")
        if self._record.active == 0:
            name = self._record.name
            raise TaskError(f"the task {name!r} has no finished version: gal learn {name}")
        self.name = self._record.name
        self._kind = self._kind_of_ids()
        self._features: list[str] = holder.node.worker("rows")[0]["features"]
        self._exchanges = SharedExchanges(self._exchange)
        self._threads = ThreadPoolExecutor(LANES, thread_name_prefix="rows")

    def close(self) -> None:
        """Answer what has been asked, and nothing more."""
        self._exchanges.close()
        self._threads.shutdown(cancel_futures=True)

    @property
    def row_id(self) -> str:
        """What the column with the ids is called here."""
        assert self._holder.node.configuration.data is not None
        return self._holder.node.configuration.data.row_id

    def health(self) -> dict[str, Any]:
        """Who is connected, and which version answers."""
        record = self._holder.node.state.get_task(self._record.id)
        return {
            "task": self._record.name,
            "version": 0 if record is None else record.active,
            "connected": sorted(self._holder.node.assistants.present(self._record.id)),
        }

    async def answer(self, asked: dict[str, Any]) -> Answer:
        """The answer to what `parsed` read, counted; nothing here blocks the loop that serves the others."""
        begun, activity = time.perf_counter(), self._holder.node.records.metrics.activity
        status, content = await self._answer(asked)
        if status == 200:
            activity.predicted(time.perf_counter() - begun, content["n_rows"], content["degraded"])
        elif status >= 500:
            activity.not_predicted()
        return status, content

    async def _answer(self, asked: dict[str, Any]) -> Answer:
        try:
            if "rows" in asked or len(asked["ids"]) > MOST_ROWS:
                return await asyncio.get_running_loop().run_in_executor(self._threads, self._alone, asked)
            ids = self._ids(asked["ids"])
            found = await asyncio.wrap_future(self._exchanges.ask(ids))
            return 200, _facts(ids, found)
        except GALError as error:
            return refused(error)

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
            return refused(error)

    def _exchange(self, ids: RowIds, own_rows: Path | None = None) -> NodePrediction:
        # The active version may change under us (gal versions --activate): look each time.
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
        return kind_of_ids(self._holder.node.configuration)


def parsed(body: bytes) -> dict[str, Any]:
    """What is asked for: ids or rows, and of which task."""
    try:
        asked = json.loads(body)
        if b"\\u" in body:  # half a character can be in no file, and in no answer
            json.dumps(asked, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the request is not JSON: {error}") from error
    if not isinstance(asked, dict) or set(asked) - {"task"} not in ({"ids"}, {"rows"}):
        raise InvalidInputError(
            'the request needs {"ids": [...]} or {"rows": [{"id": ..., "column": ...}, ...]}'
        )
    if "ids" in asked and not isinstance(asked["ids"], list):
        raise InvalidInputError("ids must be a list of at least one id")
    if max(map(_length, asked.values())) > MOST_ASKED:
        raise InvalidInputError(f"one request has at most {MOST_ASKED:,} rows: send several")
    if not isinstance(asked.get("task", ""), str):
        raise InvalidInputError("task must be the name of a task")
    return asked


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


def _facts(ids: RowIds, found: NodePrediction) -> dict[str, Any]:
    return prediction_facts(found) | {"predictions": prediction_rows(ids.values.tolist(), found)}


def refused(error: GALError) -> Answer:
    """400 where the request is wrong, 503 where the node cannot answer now."""
    return (400 if isinstance(error, InvalidInputError) else 503), {"error": str(error)}
