"""What the organizations of a label holder's tasks do now, and for whom its node waits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gal.node.holder.assistants import Assistants
from gal.node.store.state import State

FITTING = "fitting"
CONNECTED = "joined, connected"
AWAY = "not connected"
GREETING = "connected, about to say what it joined"
NOT_JOINED = "connected, has not joined (there: gal join)"


def members_now(state: State, assistants: Assistants, task: str) -> dict[str, str]:
    """By organization of an own task: what it does now; who has left stays as it is on record."""
    sent = [one for one in assistants.unanswered() if one.sent and one.encoded.message.task == task]
    there = dict.fromkeys(assistants.connected(), NOT_JOINED)
    there |= dict.fromkeys(assistants.greeting(), GREETING)
    there |= dict.fromkeys(assistants.present(task), CONNECTED)
    there |= {one.organization: FITTING for one in sent if there.get(one.organization) == CONNECTED}
    members = state.members(task)
    return {name: there.get(name, AWAY) if known == "invited" else known for name, known in members.items()}


def waited_for(
    state: State, assistants: Assistants, learning: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Organizations that have not answered, or are not there yet; with what, since when, and seconds left."""
    now, here = time.time(), set(assistants.connected())
    asking = None if learning is None else learning["asking"]
    left = None if asking is None else max(0.0, asking["since"] + asking["seconds"] - now)
    oldest: dict[str, dict[str, Any]] = {}

    def add(name: str, what: str, round: int, since: float, seconds_left: float | None) -> None:
        facts = {"organization": name, "what": what, "round": round, "for_seconds": now - since}
        oldest.setdefault(name, facts | {"seconds_left": seconds_left, "connected": name in here})

    for one in sorted(assistants.unanswered(), key=lambda one: one.since):
        asked = one.encoded.message
        ends = None if asked.kind == "predict" else left
        add(one.organization, asked.kind, int(asked.fields.get("round") or 0), one.since, ends)
    if learning is not None and asking is not None:
        joined = set(assistants.present(state.find_task(learning["task"], "label holder").id))
        for name in set(asking["organizations"] or ()) - joined:
            add(name, "join" if name in here else "connect", 0, asking["since"], left)
    return [oldest[name] for name in sorted(oldest)]
