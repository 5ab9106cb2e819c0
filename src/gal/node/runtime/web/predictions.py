"""Predictions over HTTP for a label holder's own applications.

An exchange with the organizations costs about the same for one row as for a hundred, so requests that arrive
while exchanges are under way share the next one. A single request does not wait.
"""

from __future__ import annotations

import asyncio
import csv
import tempfile
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from gal.node.label_holder.predicting import NodePrediction, prediction_facts, prediction_rows
from gal.node.runtime.web.app import error_reply, whole_body
from gal.node.source.data import kind_of_ids, refuse_forgotten
from gal.node.store.files import temporary_folder

LANES = 2
"""Exchanges at a time, so that one with a slow organization does not block the others."""
MOST_SHARED = 4096
"""Rows of a shared exchange; a larger request has one of its own."""
MOST_ROWS = 1_000_000
"""Rows of one request."""
FORM = '{"ids": [...]} or {"rows": [{"id": ..., "column": ...}, ...]}'


class PredictionRequest(BaseModel):
    """Rows by id, or with the own columns where the source does not have them."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"example": {"task": "churn", "ids": [1042, 1043]}}
    )

    task: str | None = Field(None, description="Which task; needed where the node has several.")
    ids: Annotated[list[Any], Field(min_length=1, max_length=MOST_ROWS)] | None = None
    rows: Annotated[list[Any], Field(min_length=1, max_length=MOST_ROWS)] | None = None

    @model_validator(mode="after")
    def _check_ids_or_rows(self) -> PredictionRequest:
        if (self.ids is None) == (self.rows is None):
            raise ValueError(f"the request needs {FORM}")
        if not all(isinstance(row, dict) and "id" in row for row in self.rows or ()):
            raise ValueError('rows must be objects with an "id" each')
        return self


SCHEMA = {"application/json": {"schema": PredictionRequest.model_json_schema()}}


def parsed(body: bytes) -> PredictionRequest:
    """Parse a request; InvalidInputError names what is wrong."""
    try:
        return PredictionRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidInputError(f"{place or 'the request'}: {first['msg']}; it must be {FORM}") from None


Exchange = Callable[[RowIds], NodePrediction]


class SharedExchanges:
    """Exchanges of one event loop for ids of one kind, shared by requests that wait together."""

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
            task = loop.create_task(self._exchange_all())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await found

    async def _exchange_all(self) -> None:
        """One exchange after the other, each for all requests that wait."""
        while self._waiting:
            together, n_rows = list[tuple[RowIds, asyncio.Future[NodePrediction]]](), 0
            while self._waiting and n_rows < MOST_SHARED:
                ids, future = self._waiting.popleft()
                if not future.done():
                    together.append((ids, future))
                    n_rows += len(ids)
            if not together:
                continue
            ids, places = merged([ids for ids, _ in together])
            try:
                found = await asyncio.get_running_loop().run_in_executor(self._threads, self._exchange, ids)
            except Exception as error:  # the error of an exchange is that of each of its requests
                for _, future in together:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), positions in zip(together, places, strict=True):
                if not future.done():
                    future.set_result(found if len(together) == 1 else found.at(positions))


def merged(requests: list[RowIds]) -> tuple[RowIds, list[NDArray[np.intp]]]:
    """The union of ids, and the positions of each request's ids in it.

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
    """Predictions of the active version of one task."""

    def __init__(self, holder: LabelHolder, task_id: str, seconds: float) -> None:
        self._holder, self._node, self._id, self._seconds = holder, holder.node, task_id, seconds
        self._kind = kind_of_ids(self._node.configuration)
        self._features: list[str] = self._node.worker("rows")[0]["features"]
        self._exchanges = SharedExchanges(self._exchange)
        self._threads = ThreadPoolExecutor(LANES, thread_name_prefix="rows")

    def close(self) -> None:
        self._exchanges.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def predict(self, request: PredictionRequest) -> dict[str, Any]:
        """The reply to a request; nothing here blocks the event loop."""
        if request.rows is not None or len(request.ids or ()) > MOST_SHARED:
            loop = asyncio.get_running_loop()
            ids, found = await loop.run_in_executor(self._threads, self._predict_apart, request)
        else:
            ids = self._ids(request.ids or [])
            found = await self._exchanges.ask(ids)
        return prediction_facts(found) | {"predictions": prediction_rows(ids.values.tolist(), found)}

    def _predict_apart(self, request: PredictionRequest) -> tuple[RowIds, NodePrediction]:
        """An exchange for one request, with own columns or many rows."""
        if request.rows is None:
            ids = self._ids(request.ids or [])
            return ids, self._exchange(ids)
        ids, rows, name = self._ids([row["id"] for row in request.rows]), request.rows, self._node.name
        lacking = [name for name in self._features if not any(name in row for row in rows)]
        if lacking:
            raise InvalidInputError(f"rows lack the own columns {', '.join(lacking)}: give them, or only ids")
        data, place = self._node.configuration.data, temporary_folder(self._node.configuration.home)
        assert data is not None
        with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="", encoding="utf-8", dir=place) as file:
            writer = csv.writer(file)
            writer.writerow([data.row_id, *self._features])
            for number, row in enumerate(rows):  # numbers as ids: the file is read with other options
                values = (row.get(name) for name in self._features)
                writer.writerow([number, *("" if value is None else value for value in values)])
            file.flush()
            found = self._exchange(ids, Path(file.name))
        if name in found.missing:
            raise InvalidInputError(f"the values of these rows cannot be used: {name} {found.missing[name]}")
        return ids, found

    def _exchange(self, ids: RowIds, own_rows: Path | None = None) -> NodePrediction:
        # The active version may change meanwhile (gal versions --activate): look each time.
        record = self._node.state.get_task(self._id)
        if record is None:
            raise TaskError("this task was forgotten")
        return self._holder.predictor.predict(record, ids, own_rows=own_rows, seconds=self._seconds)

    def _ids(self, given: list[Any]) -> RowIds:
        ids = row_ids(given, self._node.name, "ids of the request")
        if ids.kind != self._kind:
            raise InvalidInputError(
                f"ids must be {self._kind}, got {ids.kind}: as in the label holder's own data"
            )
        refuse_forgotten(self._node.configuration, ids, "ids of the request")
        return ids


class OnlinePredictions:
    """All tasks of a label holder that predict, each opened with its first request."""

    def __init__(self, holder: LabelHolder, seconds: float) -> None:
        self._holder, self._seconds = holder, seconds
        self._tasks: dict[str, OnlineTask] = {}
        self._opening = asyncio.Lock()

    def close(self) -> None:
        for task in self._tasks.values():
            task.close()

    async def reply(self, body: bytes, task: str | None) -> Response:
        """Predictions, status 400 for a wrong request, or 503 where the node cannot predict now."""
        begun, activity = time.perf_counter(), self._holder.node.records.activity
        try:
            request = parsed(body)
            found = await (await self._task(task or request.task)).predict(request)
        except InvalidInputError as error:
            return error_reply(400, str(error))
        except GALError as error:
            activity.prediction_failed()
            return error_reply(503, str(error))
        activity.predicted(time.perf_counter() - begun, found["n_rows"], found["degraded"])
        return JSONResponse(found)

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
    body = {"requestBody": {"required": True, "content": SCHEMA}}

    @app.post("/v1/predict", summary="Predictions of rows by id, or with own columns", openapi_extra=body)
    async def predict_rows(request: Request, task: str | None = None) -> Response:
        data = await whole_body(request)
        return data if isinstance(data, Response) else await predictions.reply(data, task)
