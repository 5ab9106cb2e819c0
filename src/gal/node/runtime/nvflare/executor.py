"""The executor of an organization's NVFlare site: its node, without a port and without dialing.

Cards, joined tasks, policy, limits, audit log and ledger are those of ``gal serve`` in the same home folder,
which must not run at the same time.
"""

from __future__ import annotations

import threading
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from gal.errors import GALError, InvalidMessageError
from gal.node.runtime.carrier import Called
from gal.node.runtime.node import Node
from gal.node.runtime.nvflare.settings import PARCEL, TASK, read_settings


class OrganizationExecutor(Executor):  # type: ignore[misc]
    """Replies to the label holder from START_RUN to END_RUN; takes no arguments from a job."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._node: Node | None = None
        self._called: Called | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            site, engine = fl_ctx.get_identity_name(), fl_ctx.get_engine()
            try:
                local = Path(engine.get_workspace().get_site_config_dir())  # its operator's, not a job's
                home, label_holder = read_settings(local, site)
                called = Called(label_holder)
                node = Node(home, called=called)
                node.__enter__()
                with self._lock:
                    self._node, self._called = node, called
            except GALError as error:
                self.system_panic(f"{site}: {error}", fl_ctx)
        elif event_type == EventType.END_RUN:
            with self._lock:
                ended, self._node, self._called = self._node, None, None
            if ended is not None:
                ended.__exit__(None, None, None)

    def execute(
        self,
        task_name: str,
        shareable: Shareable,
        fl_ctx: FLContext,
        abort_signal: Signal,  # noqa: ARG002
    ) -> Shareable:
        with self._lock:
            called = self._called
        if task_name != TASK or called is None:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        data = shareable.get(PARCEL)
        if not isinstance(data, bytes):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        try:
            answer = called.answer(data)
        except InvalidMessageError as error:
            self.log_error(fl_ctx, f"invalid request of the label holder: {error}")
            return make_reply(ReturnCode.BAD_TASK_DATA)
        reply = make_reply(ReturnCode.OK)
        reply[PARCEL] = answer
        return reply
