"""Links of an organization: every stream gets an announcement of its own."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from gal.node.assistant.links import Link
from gal.node.store.state import TaskRecord
from gal.protocol import Encoded
from small_terms import small_terms

TASK = "a" * 32


def test_a_stream_that_opens_during_an_announcement_gets_one_too() -> None:
    """The label holder sends no request over a stream before it knows the joined tasks."""
    link: Any = Link.__new__(Link)
    task = TaskRecord(TASK, "risk", "organization", "clinic", small_terms(TASK, "risk"))
    sent: list[tuple[str, str]] = []

    def send(stream: Any, encoded: Encoded) -> None:
        sent.append((stream, encoded.message.fields["tasks"][0]["task"]))
        link._stream = "the second"  # the first one ended, and the link has dialed again

    link.peer, link._stream, link._announced, link._announcing = (
        "clinic",
        "the first",
        (None, ()),
        threading.Lock(),
    )
    link._service = SimpleNamespace(state=SimpleNamespace(tasks=lambda _: [task]), moves=lambda: False)
    link._records = SimpleNamespace(send=send)
    for _ in range(3):
        link.announce()
    assert sent == [("the first", TASK), ("the second", TASK)]
