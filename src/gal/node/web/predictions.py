"""Predictions over HTTP: the paths, in JSON and in Arrow; one task, or all of a label holder's."""

from __future__ import annotations

import asyncio
import math
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response

from gal.errors import GALError, InvalidInputError, TaskError
from gal.node.config.data_source import FILES
from gal.node.holder.label_holder import LabelHolder
from gal.node.holder.version_facts import finished_versions
from gal.node.web.app import LARGEST, said_error, whole_body
from gal.node.web.arrow_rows import ARROW, arrow_answer, asked_in_arrow
from gal.node.web.online_task import OnlineTask, parsed, refused
from gal.node.work.confinement import temporary_folder

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
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    },
}


MOST_UNPACKED = 4 * LARGEST
"""Bytes of a file that is sent to be compared with, as it is read."""


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

    async def answer(self, body: bytes, named: str | None, *, arrow: bool) -> tuple[OnlineTask | None, Any]:
        """Who answered, and status and content of its answer."""
        loop = asyncio.get_running_loop()
        try:
            if arrow:
                task = await loop.run_in_executor(None, self.task, named)
                asked = await loop.run_in_executor(None, asked_in_arrow, body, task.row_id)
            else:
                asked = parsed(body)
                task = await loop.run_in_executor(None, self.task, named or asked.pop("task", None))
        except GALError as error:
            return None, refused(error)
        return task, await task.answer(asked)


def add_predictions(app: FastAPI, predictions: OnlinePredictions) -> None:
    """``POST /v1/predict``."""

    @app.post(
        "/v1/predict",
        summary="Predictions of rows by id, or with own columns; JSON or Arrow",
        openapi_extra=BODY,
    )
    async def predict_rows(request: Request, task: str | None = None) -> Response:
        data = await whole_body(request)
        if isinstance(data, Response):
            return data
        arrow = request.headers.get("content-type", "").startswith(ARROW)
        answered_by, (status, content) = await predictions.answer(data, task, arrow=arrow)
        if answered_by is None or status != 200 or ARROW not in request.headers.get("accept", ""):
            return JSONResponse(content, status)
        return Response(arrow_answer(content, answered_by.row_id), media_type=ARROW)

    app.state.direct["/v1/predict"] = predict_rows


class Comparisons:
    """How well versions predict the labelled rows of a file that is sent; one comparison at a time."""

    def __init__(self, holder: LabelHolder, seconds: float) -> None:
        self._holder, self._seconds, self._busy = holder, seconds, threading.Lock()

    def __call__(self, data: bytes, name: str, task: str, versions: Sequence[int] | None) -> dict[str, Any]:
        """Scores by version, as ``gal versions --compare`` has them; None for a score that there is not."""
        node = self._holder.node
        record = node.state.find_task(task, "label holder")
        chosen = finished_versions(node.state, record, versions)
        suffix = PurePath(name).suffix.lower()
        if suffix not in FILES:
            raise InvalidInputError(f"the file must end in {', '.join(sorted(FILES))}, got {name!r}")
        if not self._busy.acquire(blocking=False):
            raise TaskError("another comparison goes on: wait until it is done")
        try:
            place = temporary_folder(node.configuration.home)
            with tempfile.NamedTemporaryFile(dir=place, suffix=suffix) as file:
                file.write(data)
                file.flush()
                try:
                    _check_unpacked(Path(file.name))
                    found = self._holder.compare(
                        task, chosen, Path(file.name), seconds=self._seconds, join=self._seconds
                    )
                except GALError as error:  # whoever sent the file knows it by the name that it has there
                    raise InvalidInputError(str(error).replace(file.name, name)) from error
        finally:
            self._busy.release()
        scores = {
            version: {key: value if math.isfinite(value) else None for key, value in one.items()}
            for version, one in found["scores"].items()
        }
        return found | {"scores": scores}


def _check_unpacked(path: Path) -> None:
    """Whether a file that was sent is not many times as large once read; text in Parquet still may be."""
    if path.suffix in {".xlsx", ".xlsm"} and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as parts:
            unpacked = sum(part.file_size for part in parts.infolist())
    elif path.suffix in {".parquet", ".pq"}:
        try:
            facts = pq.read_metadata(path)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidInputError(f"{path} is no Parquet file: {error}") from error
        unpacked = 8 * facts.num_rows * facts.num_columns
    else:
        return
    if unpacked > MOST_UNPACKED:
        raise InvalidInputError(
            f"{path} would take {unpacked:,} bytes once it is read, at most {MOST_UNPACKED:,} do: send fewer "
            "rows, or use gal versions --compare"
        )


def add_comparisons(app: FastAPI, comparisons: Comparisons) -> None:
    """``POST /v1/compare``."""
    file = {"schema": {"type": "string", "format": "binary"}}

    @app.post(
        "/v1/compare",
        summary="How well versions predict the labelled rows of a file, which is the body",
        openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": file}}},
    )
    async def compare(
        request: Request,
        task: Annotated[str, Query(examples=["churn"])],
        name: str = "rows.csv",
        version: Annotated[list[int] | None, Query()] = None,
    ) -> Response:
        data = await whole_body(request)
        if isinstance(data, Response):
            return data
        try:
            return JSONResponse(await asyncio.to_thread(comparisons, data, name, task, version))
        except GALError as error:
            return said_error(400, str(error))


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

    app.state.direct["/predict"] = predict_one
