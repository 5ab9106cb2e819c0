"""Liveness and readiness of a node: each check with a sentence for its operator."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gal.errors import GALError
from gal.node.label_holder.holder_node import HolderNode
from gal.node.label_holder.learning.open_version import Patience

LEAST_DISK = 200 << 20
"""Bytes that must be free: a node that cannot log a message does not send it."""


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    said: str


class Health:
    """The checks of one running node; ``links``: the problem of each stream to a label holder."""

    def __init__(self, node: HolderNode, links: Callable[[], Mapping[str, str]]) -> None:
        self._node, self._links = node, links
        self._started = threading.Event()
        self._problem = ""
        threading.Thread(target=self._start, name="first look at the source", daemon=True).start()

    def _start(self) -> None:
        """Have the worker process read the source once."""
        try:
            if self._node.configuration.data is not None:
                self._node.worker("rows")
        except GALError as error:
            self._problem = str(error)
        finally:
            self._started.set()

    def is_alive(self) -> bool:
        """Whether the worker process runs or rests; a killed one is restarted."""
        if self._node.configuration.data is None or self._node.worker.rests:
            return True
        try:
            self._node.worker.start()
        except (GALError, OSError):
            return False
        return self._node.worker.pid is not None

    def checks(self) -> list[Check]:
        """Everything that this node needs to be of use now."""
        return [self._source(), *self._streams(), self._disk()]

    def _source(self) -> Check:
        data = self._node.configuration.data
        if data is None:
            return Check("source", True, "this node has no data of its own")
        file = data.path
        if not self._started.is_set():
            return Check("source", False, "the source is being read for the first time: wait")
        if self._problem:
            return Check("source", False, f"{self._problem}: see gal doctor")
        if file is not None and not os.access(file, os.R_OK):
            return Check("source", False, f"{file.name} cannot be read: see gal doctor")
        return Check("source", True, "the source can be read")

    def _streams(self) -> Iterator[Check]:
        """A quorum of each own task that predicts, and a stream for each joined task."""
        state, assistants = self._node.state, self._node.assistants
        short = []
        for task in state.tasks("label holder"):
            if not task.active:
                continue
            invited = [name for name, status in state.members(task.id).items() if status == "invited"]
            away = sorted(set(invited) - set(assistants.present(task.id)))
            here = len(invited) + 1 - len(away)
            if here < Patience().enough(len(invited) + 1):
                there = f"{here} of {len(invited) + 1} organizations are there"
                short.append(f"{task.name}: {there}, not {', '.join(away)}")
        said = "; ".join(short) or "every task that predicts has its quorum"
        yield Check("quorum", not short, said)
        lost = {peer: why for peer, why in self._links().items() if why}
        said = "; ".join(f"no stream to {peer}: {why}" for peer, why in sorted(lost.items()))
        yield Check("streams", not lost, said or "all streams to label holders are open")

    def _disk(self) -> Check:
        free = free_disk(self._node.configuration.home)
        said = f"{disk_room(free)} are free"
        return Check("disk", free >= LEAST_DISK, said if free >= LEAST_DISK else f"{said}: make room")


def free_disk(home: Path) -> int:
    return shutil.disk_usage(home).free


def disk_room(n_bytes: int) -> str:
    """Bytes in a readable unit.

    >>> disk_room(79_800_000_000), disk_room(936 << 10), disk_room(0)
    ('79.8 GB', '1.0 MB', '0.0 MB')
    """
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"
