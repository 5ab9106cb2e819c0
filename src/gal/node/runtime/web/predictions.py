"""Predictions over HTTP for a label holder's own applications: what they send, and what they get.

An exchange with the organizations costs about the same for one row as for a hundred. While some are under
way, what comes in is collected, and goes out together when one has ended. A request that comes alone does not
wait.
"""

from __future__ import annotations

import asyncio
import csv
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gal.alignment import RowIds, row_ids
from gal.errors import GALError, InvalidInputError, TaskError
from gal.node.label_holder.label_holder import LabelHolder
from gal.node.label_holder.predicting import NodePrediction
from gal.node.label_holder.prediction_files import prediction_facts, prediction_rows
from gal.node.runtime.web.app import said_error, whole_body
from gal.node.source.data import kind_of_ids, refuse_forgotten
from gal.node.store.files import temporary_folder

LANES = 2
"""Exchanges at a time, so that one that waits for a slow organization does not hold the others up."""
MOST_ROWS = 4096
"""Of one exchange that is shared; a larger request has one of its own."""
MOST_ASKED = 1_000_000
"""Rows of one request."""
FORM = '{"ids": [...]} or {"rows": [{"id": ..., "column": ...}, ...]}'


class Asked(BaseModel):
    """Rows by id, or with the own columns where these are not in the source."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"example": {"task": "churn", "ids": [1042, 1043]}}
    )

    task: str | None = Field(None, description="Which task; needed where the node has several.")
    ids: Annotated[list[Any], Field(min_length=1, max_length=MOST_ASKED)] | None = None
    rows: Annotated[list[Any], Field(min_length=1, max_length=MOST_ASKED)] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Asked:
        if (self.ids is None) == (self.rows is None):
            raise ValueError(f"the request needs {FORM}")
        if not all(isinstance(row, dict) and "id" in row for row in self.rows or ()):
            raise ValueError('rows must be objects with an "id" each')
        return self


BODY = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": Asked.model_json_schema()}}}
}
"""For programs that read how to ask."""


def parsed(body: bytes) -> Asked:
    """What is asked for; InvalidInputError says what is wrong with it."""
    try:
        return Asked.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidInputError(f"{place or 'the request'}: {first['msg']}; it must be {FORM}") from None


Exchange = Callable[[RowIds], NodePrediction]


class SharedExchanges:
    """Answers requests of one event loop for ids of one kind; those that come together share an exchange."""

    def __init__(self, exchange: Exchange, lanes: int = LANES) -> None:
        self._exchange, self._lanes = exchange, lanes
        self._threads = ThreadPoolExecutor(lanes, thread_name_prefix="exchange")
        self._waiting: deque[tuple[RowIds, asyncio.Future[NodePrediction]]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def ask(self, ids: RowIds) -> NodePrediction:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[NodePrediction] = loop.create_future()
        self._waiting.append((ids, found))
        if len(self._under_way) < self._lanes:
            task = loop.create_task(self._answer_all())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await found

    async def _answer_all(self) -> None:
        """One exchange after the other, each for all that have come meanwhile."""
        while self._waiting:
            together, n_rows = list[tuple[RowIds, asyncio.Future[NodePrediction]]](), 0
            while self._waiting and n_rows < MOST_ROWS:
                ids, future = self._waiting.popleft()
                if not future.done():
                    together.append((ids, future))
                    n_rows += len(ids)
            if not together:
                continue
            ids, places = merged([ids for ids, _ in together])
            try:
                found = await asyncio.get_running_loop().run_in_executor(self._threads, self._exchange, ids)
            except Exception as error:  # what goes wrong with it goes wrong for each
                for _, future in together:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), positions in zip(together, places, strict=True):
                if not future.done():
                    future.set_result(found if len(together) == 1 else found.at(positions))


def merged(requests: list[RowIds]) -> tuple[RowIds, list[NDArray[np.intp]]]:
    """All ids, each once, and where those of each request are among them.

    >>> ids, places = merged([RowIds("integer", np.array([7, 3])), RowIds("integer", np.array([3, 9]))])
    >>> ids.values.tolist(), [one.tolist() for one in places]
    ([7, 3, 9], [[0, 1], [1, 2]])
    """
    if len(requests) == 1:
        return requests[0], [np.arange(len(requests[0]))]
    where: dict[object, int] = {}
    places = [
        np.array([where.setdefault(one, len(where)) for one in request.values.tolist()], dtype=np.intp)
        for request in requests
    ]
    values = np.array(list(where), dtype=requests[0].values.dtype)
    return RowIds(requests[0].kind, values), places


class OnlineTask:
    """Predicts with the active version of one task."""

    def __init__(self, holder: LabelHolder, task_id: str, seconds: float) -> None:
        self._holder, self._node, self._id, self._seconds = holder, holder.node, task_id, seconds
        self._kind = kind_of_ids(self._node.configuration)
        self._features: list[str] = self._node.worker("rows")[0]["features"]
        self._exchanges = SharedExchanges(self._exchange)
        self._threads = ThreadPoolExecutor(LANES, thread_name_prefix="rows")

    def close(self) -> None:
        self._exchanges.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def answer(self, asked: Asked) -> dict[str, Any]:
        """The predictions; nothing here blocks the loop that serves the others."""
        if asked.rows is not None or len(asked.ids or ()) > MOST_ROWS:
            loop = asyncio.get_running_loop()
            ids, found = await loop.run_in_executor(self._threads, self._alone, asked)
        else:
            ids = self._ids(asked.ids or [])
            found = await self._exchanges.ask(ids)
        return prediction_facts(found) | {"predictions": prediction_rows(ids.values.tolist(), found)}

    def _alone(self, asked: Asked) -> tuple[RowIds, NodePrediction]:
        """A request with an exchange of its own: with own columns, or large."""
        if asked.rows is None:
            ids = self._ids(asked.ids or [])
            return ids, self._exchange(ids)
        ids, own = self._ids([row["id"] for row in asked.rows]), self._node.name
        with self._own_columns(asked.rows) as file:
            found = self._exchange(ids, file)
        if own in found.missing:
            raise InvalidInputError(f"the values of these rows cannot be used: {own} {found.missing[own]}")
        return ids, found

    def _exchange(self, ids: RowIds, own_rows: Path | None = None) -> NodePrediction:
        # The active version may change under us (gal versions --activate): look each time.
        record = self._node.state.get_task(self._id)
        if record is None:
            raise TaskError("this task was forgotten")
        return self._holder.predictor.predict(record, ids, own_rows=own_rows, seconds=self._seconds)

    @contextmanager
    def _own_columns(self, rows: list[dict[str, Any]]) -> Iterator[Path]:
        """A file with the own columns of these rows, known by their place: ids may look otherwise there."""
        lacking = [name for name in self._features if not any(name in row for row in rows)]
        if lacking:
            raise InvalidInputError(f"rows lack the own columns {', '.join(lacking)}: give them, or only ids")
        data, place = self._node.configuration.data, temporary_folder(self._node.configuration.home)
        assert data is not None
        with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="", encoding="utf-8", dir=place) as file:
            writer = csv.writer(file)
            writer.writerow([data.row_id, *self._features])
            for number, row in enumerate(rows):
                values = (row.get(name) for name in self._features)
                writer.writerow([number, *("" if value is None else value for value in values)])
            file.flush()
            yield Path(file.name)

    def _ids(self, given: list[Any]) -> RowIds:
        ids = row_ids(given, self._node.name, "ids of the request")
        if ids.kind != self._kind:
            raise InvalidInputError(
                f"ids must be {self._kind}, got {ids.kind}: as in the label holder's own data"
            )
        refuse_forgotten(self._node.configuration, ids, "ids of the request")
        return ids


class OnlinePredictions:
    """The tasks of a label holder that predict, each opened when it is first asked for."""

    def __init__(self, holder: LabelHolder, seconds: float) -> None:
        self._holder, self._seconds = holder, seconds
        self._tasks: dict[str, OnlineTask] = {}
        self._opening = asyncio.Lock()

    def close(self) -> None:
        for task in self._tasks.values():
            task.close()

    async def answer(self, body: bytes, task: str | None) -> tuple[int, dict[str, Any]]:
        """Status and content: 400 where the request is wrong, 503 where the node cannot answer now."""
        begun, activity = time.perf_counter(), self._holder.node.records.activity
        try:
            asked = parsed(body)
            found = await (await self._task(task or asked.task)).answer(asked)
        except InvalidInputError as error:
            return 400, {"error": str(error)}
        except GALError as error:
            activity.not_predicted()
            return 503, {"error": str(error)}
        activity.predicted(time.perf_counter() - begun, found["n_rows"], found["degraded"])
        return 200, found

    async def _task(self, name: str | None) -> OnlineTask:
        """The task of this name; without a name the only one that predicts."""
        state = self._holder.node.state
        active = [one.name for one in state.tasks("label holder") if one.active]
        if name is None and len(active) != 1:
            there = ", ".join(active) or "none: gal learn TASK"
            raise InvalidInputError(f'say which task: {{"task": ...}}; those that predict are: {there}')
        try:
            record = state.find_task(name or active[0], "label holder")
        except TaskError as error:
            raise InvalidInputError(str(error)) from error
        if not record.active:
            raise TaskError(f"the task {record.name!r} has no finished version: gal learn {record.name}")
        async with self._opening:
            if record.id not in self._tasks:
                made = asyncio.to_thread(OnlineTask, self._holder, record.id, self._seconds)
                self._tasks[record.id] = await made
            return self._tasks[record.id]


def add_predictions(app: FastAPI, predictions: OnlinePredictions) -> None:

    @app.post("/v1/predict", summary="Predictions of rows by id, or with own columns", openapi_extra=BODY)
    async def predict_rows(request: Request, task: str | None = None) -> Response:
        data = await whole_body(request)
        if isinstance(data, Response):
            return data
        status, content = await predictions.answer(data, task)
        return JSONResponse(content, status) if status == 200 else said_error(status, content["error"])
