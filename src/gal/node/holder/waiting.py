"""For whom a label holder's node waits now, and how long yet."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gal.node.holder.assistants import Assistants
from gal.node.store.state import State


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
