"""What the organizations of a label holder's tasks do now, and for whom her node waits."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from gal.node.holder.assistants import Assistants
from gal.node.store.state import State

FITTING = "fitting"
CONNECTED = "joined, connected"
AWAY = "not connected"
GREETING = "connected, about to say what it joined"
NOT_JOINED = "connected, has not joined (there: gal join)"


def learning_sentence(learning: Mapping[str, Any] | None) -> str:
    """What goes on, for who wants to learn something else meanwhile."""
    if learning is None:
        return "this node is learning already"
    done = (
        f", {learning['round']} of at most {learning['rounds']} rounds are done" if learning["round"] else ""
    )
    return f"this node is learning {learning['task']!r} already (version {learning['version']}{done})"


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
    asked = {
        one.organization for one in assistants.unanswered() if one.sent and one.encoded.message.task == task
    }
    here = assistants.present(task), assistants.connected(), asked, assistants.greeting()
    return member_states(state.members(task), *here)


def waited_for(
    state: State, assistants: Assistants, learning: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Organizations that have not answered, or are not there yet; with what, since when, and seconds left."""
    now = time.time()
    asking = None if learning is None else learning["asking"]
    left = None if asking is None else max(0.0, asking["since"] + asking["seconds"] - now)
    here = set(assistants.connected())
    oldest: dict[str, dict[str, Any]] = {}
    for pending in sorted(assistants.unanswered(), key=lambda one: one.since):
        message = pending.encoded.message
        oldest.setdefault(
            pending.organization,
            {
                "organization": pending.organization,
                "what": message.kind,
                "round": int(message.fields.get("round") or 0),
                "for_seconds": now - pending.since,
                "seconds_left": None if message.kind == "predict" else left,
                "connected": pending.organization in here,
            },
        )
    if learning is not None and asking is not None:
        joined = set(assistants.present(state.find_task(learning["task"], "label holder").id))
        for name in set(asking["organizations"] or ()) - joined - set(oldest):
            oldest[name] = {
                "organization": name,
                "what": "connect" if name not in here else "join",
                "round": 0,
                "for_seconds": now - asking["since"],
                "seconds_left": left,
                "connected": name in here,
            }
    return [oldest[name] for name in sorted(oldest)]
