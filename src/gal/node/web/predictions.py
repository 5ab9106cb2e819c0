"""Predictions over HTTP: the paths; one task, or all of a label holder's."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from gal.errors import GALError, InvalidInputError, TaskError
from gal.node.holder.label_holder import LabelHolder
from gal.node.web.app import said_error, whole_body
from gal.node.web.online_task import OnlineTask, parsed, refused

_TASK = {"task": {"type": "string", "description": "Which task; needed where the node has several."}}
ASKED: dict[str, Any] = {
    "oneOf": [
        {
            "type": "object",
            "required": ["ids"],
            "properties": _TASK
            | {"ids": {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1}},
        },
        {
            "type": "object",
            "required": ["rows"],
            "properties": _TASK
            | {"rows": {"type": "array", "items": {"type": "object", "required": ["id"]}}},
        },
    ]
}
"""The schema of a request, for programs that read it."""
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": ASKED, "example": {"task": "churn", "ids": [1042, 1043]}},
        },
    },
}


class OnlinePredictions:
    """The tasks of a label holder that predict, each opened when it is first asked for; or ``only`` one."""

    def __init__(self, holder: LabelHolder, seconds: float, only: OnlineTask | None = None) -> None:
        self._holder, self._seconds, self._only = holder, seconds, only
        self._tasks: dict[str, OnlineTask] = {}
        self._opening = threading.Lock()

    def close(self) -> None:
        """Predict no more."""
        for task in self._tasks.values():
            task.close()

    def task(self, name: str | None) -> OnlineTask:
        """The task of this name; without a name the only one that predicts."""
        if self._only is not None:
            if name not in {None, self._only.name}:
                raise InvalidInputError(f"only {self._only.name!r} is served here, asked for {name!r}")
            return self._only
        state = self._holder.node.state
        active = [one.name for one in state.tasks("label holder") if one.active]
        if name is None and len(active) != 1:
            there = ", ".join(active) or "none: gal learn TASK"
            raise InvalidInputError(f'say which task: {{"task": ...}}; those that predict are: {there}')
        try:
            found = state.find_task(name or active[0], "label holder").id
        except TaskError as error:
            raise InvalidInputError(str(error)) from error
        with self._opening:
            if found not in self._tasks:
                self._tasks[found] = OnlineTask(self._holder, found, self._seconds)
            return self._tasks[found]

    async def answer(self, body: bytes, named: str | None) -> tuple[int, dict[str, Any]]:
        """Status and content of the answer."""
        try:
            asked = parsed(body)
            name = named or asked.pop("task", None)
            task = await asyncio.get_running_loop().run_in_executor(None, self.task, name)
        except GALError as error:
            return refused(error)
        return await task.answer(asked)


def add_predictions(app: FastAPI, predictions: OnlinePredictions) -> None:
    """``POST /v1/predict``."""

    @app.post(
        "/v1/predict",
        summary="Predictions of rows by id, or with own columns",
        openapi_extra=BODY,
    )
    async def predict_rows(request: Request, task: str | None = None) -> Response:
        data = await whole_body(request)
        if isinstance(data, Response):
            return data
        status, content = await predictions.answer(data, task)
        return JSONResponse(content, status)


def add_one_task(app: FastAPI, task: OnlineTask) -> None:
    """The paths of before there were several tasks: ``POST /predict`` and ``GET /health``."""

    @app.get("/health", summary="Who is connected, and which version answers")
    async def health() -> dict[str, Any]:
        return task.health()

    @app.post("/predict", summary="As /v1/predict, in JSON", openapi_extra=BODY)
    async def predict_one(request: Request) -> Response:
        data = await whole_body(request)
        if isinstance(data, Response):
            return data
        try:
            asked = parsed(data)
        except InvalidInputError as error:
            return said_error(400, str(error))
        asked.pop("task", None)
        status, content = await task.answer(asked)
        return JSONResponse(content, status)
