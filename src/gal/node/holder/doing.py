"""What a label holder's node is doing now, for people who ask: which task, which round, and who fits."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gal.node.holder.assistants import Assistants, Pending
from gal.node.store.state import State

FITTING = "fitting"
CONNECTED = "joined, connected"
AWAY = "not connected"
GREETING = "connected, about to say what it joined"
NOT_JOINED = "connected, has not joined (there: gal join)"


class Doing:
    """The learning that goes on, as its events tell; safe to ask from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[str, Any] | None = None

    def begin(self, task: str) -> None:
        """A task is being learned from now on."""
        with self._lock:
            self._facts = {"task": task, "version": 0, "round": 0, "rounds": 0, "since": time.time()}

    def end(self) -> None:
        """Nothing is being learned any more."""
        with self._lock:
            self._facts = None

    def note(self, event: Mapping[str, Any]) -> None:
        """Something happened in the learning that goes on."""
        with self._lock:
            if self._facts is None:
                return
            self._facts["version"] = event.get("version", self._facts["version"])
            if event["event"] == "round":
                self._facts |= {"round": event["round"], "rounds": event["rounds"]}

    def facts(self) -> dict[str, Any] | None:
        """Task, version, rounds done and at most, and since when; None where nothing is learned."""
        with self._lock:
            return None if self._facts is None else dict(self._facts)

    def sentence(self) -> str:
        """For who wants to learn something else meanwhile."""
        facts = self.facts()
        if facts is None:
            return "this node is learning already"
        done = f", {facts['round']} of at most {facts['rounds']} rounds are done" if facts["round"] else ""
        return f"this node is learning {facts['task']!r} already (version {facts['version']}{done})"


def fitting(unanswered: Iterable[Pending], task: str) -> set[str]:
    """Organizations that were sent a request of the task, and have not answered it yet."""
    return {one.organization for one in unanswered if one.sent and one.encoded.message.task == task}


def member_states(
    members: Mapping[str, str],
    joined: Mapping[str, bool],
    connected: list[str],
    asked: set[str],
    greeting: Collection[str] = (),
) -> dict[str, str]:
    """By organization of a task: what it does now; who has left stays as it is on record."""

    def state(name: str) -> str:
        if name in joined:
            return FITTING if name in asked else CONNECTED
        if name in greeting:
            return GREETING
        return NOT_JOINED if name in connected else AWAY

    return {name: state(name) if known == "invited" else known for name, known in members.items()}


def members_now(state: State, assistants: Assistants, task: str) -> dict[str, str]:
    """By organization of an own task: what it does now."""
    return member_states(
        state.members(task),
        assistants.present(task),
        assistants.connected(),
        fitting(assistants.unanswered(), task),
        assistants.greeting(),
    )
