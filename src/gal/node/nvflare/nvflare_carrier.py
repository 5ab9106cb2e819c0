"""NVFlare as a carrier: a parcel is a task for one client, its answer the task's result."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable

from gal.errors import LinkLostError
from gal.node.nvflare.settings import PARCEL, TASK


class NVFlareCarrier:
    """Asks the clients of a running job; their names are those of the label holder's cards."""

    def __init__(self, controller: Controller, engine: Any) -> None:
        self._controller, self._engine = controller, engine

    def present(self) -> Collection[str]:
        """Clients of the job, less those that NVFlare holds for dead."""
        names = {str(one.name) for one in self._engine.get_clients()}
        return sorted(name for name in names if not self._controller.get_client_disconnect_time(name))

    def ask(self, name: str, data: bytes, deadline: float) -> bytes:
        """The result of a task for this client alone."""
        came, results = threading.Event(), []

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:  # noqa: ARG001
            results.append(client_task.result)
            client_task.result = None  # NVFlare would keep it for the life of the task
            came.set()

        def done(task: Task, fl_ctx: FLContext) -> None:  # noqa: ARG001
            came.set()

        content = Shareable()
        content[PARCEL] = data
        task = Task(
            TASK, content, timeout=math.ceil(deadline), result_received_cb=received, task_done_cb=done
        )
        with self._engine.new_context() as fl_ctx:
            self._controller.send(task, fl_ctx, targets=[name])
            if not came.wait(deadline):
                self._controller.cancel_task(task, fl_ctx=fl_ctx)
        if not results:
            raise LinkLostError(f"{name} did not answer within {deadline:g} s, or its site is gone")
        return _parcel(name, results[0])


def _parcel(name: str, result: Any) -> bytes:
    code = result.get_return_code() if isinstance(result, Shareable) else "no result"
    answer = result.get(PARCEL) if code == ReturnCode.OK else None
    if not isinstance(answer, bytes):
        raise LinkLostError(f"{name} answered {code} to NVFlare: its log says why")
    return answer
