"""The label holder's NVFlare controller: learns or predicts with the node of its home folder.

NVFlare's server runs at the label holder. A parcel is a task of the job for one client, and the reply its
result; no port of a node is opened.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from gal.errors import GALError, InvalidInputError, LinkLostError
from gal.node.label_holder.label_holder import LabelHolder
from gal.node.label_holder.learning.open_version import Patience
from gal.node.runtime.carrier import Pace
from gal.node.runtime.node import Node
from gal.node.runtime.nvflare.settings import PARCEL, TASK, read_settings

PACE = Pace(hold=5.0)
"""Shorter than between nodes: a site does one thing at a time, and ends between two requests."""
ROWS, PREDICTIONS = "rows", "predictions"
"""Folders of the home: files of rows to predict, and their predictions."""


class LabelHolderController(Controller):  # type: ignore[misc]
    """Learns ``task`` with the clients of the job, or predicts the rows of a file for it.

    ``join``, ``deadline`` and ``quorum`` (0: more than half) are those of ``gal learn``. ``predict`` names a
    file in the folder ``rows`` of the home, so that a job cannot have other files read.
    """

    def __init__(
        self,
        task: str,
        join: float = 120.0,
        deadline: float = 600.0,
        quorum: int = 0,
        predict: str = "",
    ) -> None:
        super().__init__()
        self._task, self._predict = task, predict
        self._patience = Patience(float(join), float(deadline), int(quorum))

    def start_controller(self, fl_ctx: FLContext) -> None:
        """The node starts in control_flow."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """The node has ended with control_flow."""

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,
        client_task_id: str,  # noqa: ARG002
        result: Shareable,  # noqa: ARG002
        fl_ctx: FLContext,
    ) -> None:
        self.log_info(fl_ctx, f"the reply of {client.name} came too late ({task_name})")

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Learn or predict; an error ends the job with its sentence."""
        engine: Any = fl_ctx.get_engine()

        def log_event(event: Mapping[str, Any]) -> None:
            self.log_info(fl_ctx, json.dumps(dict(event), default=str))

        try:
            home, _ = read_settings(Path(engine.get_workspace().get_site_config_dir()), None)
            carrier = NVFlareCarrier(self, engine)
            with (
                Node(home, carrier=carrier, dials=False, pace=PACE) as node,
                closing(LabelHolder(node)) as holder,
            ):
                if self._predict:
                    facts = self._predict_file(holder)
                else:
                    how: Any = {"patience": self._patience, "on_event": log_event}
                    facts = holder.learn(self._task, **how, stopping=_Aborted(abort_signal))
                done = "predicted" if self._predict else "learned"
                self.log_info(fl_ctx, f"{done} {self._task}: {json.dumps(facts, default=str)[:2000]}")
        except GALError as error:
            self.system_panic(str(error), fl_ctx)

    def _predict_file(self, holder: LabelHolder) -> dict[str, Any]:
        home = holder.node.configuration.home
        rows, out = home / ROWS / self._predict, home / PREDICTIONS / self._predict
        if Path(self._predict).name != self._predict:
            raise InvalidInputError(
                f"predict must be the name of a file in {home / ROWS}, without folders, got {self._predict!r}"
            )
        out.parent.mkdir(exist_ok=True)
        seconds, join = self._patience.deadline, self._patience.join
        return holder.predict_file(self._task, rows, out, seconds=seconds, join=join)


class _Aborted(threading.Event):
    """Set as soon as NVFlare aborts the job."""

    def __init__(self, signal: Signal) -> None:
        super().__init__()
        self._signal = signal

    def is_set(self) -> bool:
        return bool(self._signal.triggered) or super().is_set()


class NVFlareCarrier:
    """A carrier to the clients of a running job, whose names are those of the label holder's cards."""

    def __init__(self, controller: Controller, engine: Any) -> None:
        self._controller, self._engine = controller, engine

    def present(self) -> Collection[str]:
        """Clients of the job, except those that NVFlare considers dead."""
        names = {str(one.name) for one in self._engine.get_clients()}
        return sorted(name for name in names if not self._controller.get_client_disconnect_time(name))

    def ask(self, name: str, data: bytes, deadline: float) -> bytes:
        """The result of a task for one client."""
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
            raise LinkLostError(f"{name} sent no reply within {deadline:g} s, or its site is gone")
        return _parcel(name, results[0])


def _parcel(name: str, result: Any) -> bytes:
    code = result.get_return_code() if isinstance(result, Shareable) else "no result"
    answer = result.get(PARCEL) if code == ReturnCode.OK else None
    if not isinstance(answer, bytes):
        raise LinkLostError(f"NVFlare reports {code} for {name}: the log of its site says why")
    return answer
