"""Nodes of this process that a carrier connects: without a port or a dialer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gal.errors import LinkLostError
from gal.node.label_holder.label_holder import LabelHolder
from gal.node.label_holder.learning.open_version import Patience
from gal.node.runtime.carrier import Called, Pace
from gal.node.runtime.node import Node
from gal.node.store.logs import open_log
from patience import LONGEST, patient
from real_nodes import HOLDER, TASK, Network


class MemoryCarrier:
    """A carrier within one process: organizations can be connected to it and disconnected at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, Callable[[bytes], bytes]] = {}
        self._pool = ThreadPoolExecutor(thread_name_prefix="memory carrier")

    def connect(self, name: str, answer: Callable[[bytes], bytes]) -> None:
        """From now on an organization can be asked."""
        with self._lock:
            self._answers[name] = answer

    def disconnect(self, name: str) -> None:
        """An organization is gone: its replies never come."""
        with self._lock:
            self._answers.pop(name, None)

    def close(self) -> None:
        """Send no more requests."""
        with self._lock:
            self._answers.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def present(self) -> Collection[str]:
        """Names of those that are connected."""
        with self._lock:
            return sorted(self._answers)

    def ask(self, name: str, data: bytes, deadline: float) -> bytes:
        """What an organization answers; LinkLostError where it is gone or late."""
        with self._lock:
            answer = self._answers.get(name)
        if answer is None:
            raise LinkLostError(f"{name} is not connected")
        try:
            found = self._pool.submit(answer, data).result(deadline)
        except TimeoutError:
            raise LinkLostError(f"{name} did not reply within {deadline:g} s") from None
        if name not in self.present():
            raise LinkLostError(f"{name} went away before it had answered")
        return found


QUICK = Pace(look=0.02, idle=0.1, hold=patient(2.0), grace=patient(5.0), hello=patient(5.0), again=0.1)


@contextmanager
def site(carrier: MemoryCarrier, home: Path, name: str) -> Iterator[Node]:
    """The node of an organization, asked over this carrier."""
    called = Called(HOLDER)
    with Node(home, called=called, log=open_log(home, "error")) as node:
        carrier.connect(name, called.answer)
        try:
            yield node
        finally:
            carrier.disconnect(name)


@dataclass
class Holder:
    """A label holder over a carrier, and the events that it saw."""

    node: Node
    work: LabelHolder
    events: list[Mapping[str, Any]] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    after_round: Callable[[int], object] = lambda round: None
    """Called with the number of each round, before the next one is asked for."""

    def learn(self, **options: Any) -> dict[str, Any]:
        patience = Patience(**{"deadline": LONGEST, "join": LONGEST} | options.pop("patience", {}))
        return self.work.learn(
            TASK, patience=patience, on_event=self._note, stopping=self.stopping, **options
        )

    def _note(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)
        if event["event"] == "round":
            self.after_round(event["round"])

    def predict(self, network: Network) -> dict[str, Any]:
        rows = network.root / f"{HOLDER}.csv"
        return self.work.predict_file(TASK, rows, seconds=patient(20.0), join=patient(20.0))

    def told(self, event: str) -> list[Mapping[str, Any]]:
        return [one for one in self.events if one["event"] == event]


@contextmanager
def label_holder(carrier: MemoryCarrier, home: Path) -> Iterator[Holder]:
    """The label holder's node, which asks over this carrier."""
    with Node(home, carrier=carrier, pace=QUICK, dials=False, log=open_log(home, "error")) as node:
        work = LabelHolder(node)
        try:
            yield Holder(node, work)
        finally:
            work.close()
