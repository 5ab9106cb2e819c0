"""How a link speaks of its end: who hangs up in order, as after every learning, is no warning."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("grpc")

from threading import Event, Semaphore, current_thread

from gal.errors import LinkLostError
from gal.node.assistant import links
from gal.node.assistant.links import Link
from gal.node.journal.logs import open_log
from gal.protocol import Message
from patience import patient


class Ending:
    """A stream that ends with these words."""

    software, version = "gal-learn", 2

    def __init__(self, why: str) -> None:
        self._why = why

    def receive(self) -> Any:
        raise LinkLostError(self._why)

    def close(self) -> None:
        pass


def said_of(why: str) -> str:
    """What is logged of a stream that ends so, and of the next that does not come about."""
    text, tried = io.StringIO(), Event()
    metrics = SimpleNamespace(connected=lambda peer, there: None)
    quotas = SimpleNamespace(why_spent=lambda peer: None)
    log = open_log(None, to=text)
    records = SimpleNamespace(log=log, metrics=metrics, quotas=quotas, send=lambda stream, one: None)
    records.is_limited = lambda peer: None
    policy = SimpleNamespace(largest_message=1000)
    service = SimpleNamespace(
        configuration=SimpleNamespace(policy=policy),
        state=SimpleNamespace(tasks=lambda role: []),
        moves=lambda: False,
    )
    streams = [Ending(why)]

    def dial(peer: str) -> Any:
        if streams:
            return streams.pop()
        if "cannot be reached" in link.problem:
            tried.set()
        raise LinkLostError(f"{peer} cannot be reached")

    made: Callable[..., Any] = Link
    link = made("clinic", service, records, dial)
    assert tried.wait(patient(30))
    link.close()
    return text.getvalue()


def test_who_hangs_up_in_order_is_no_warning() -> None:
    said = said_of("clinic closed the stream")
    assert "link ended" in said
    assert "warning" not in said


def test_a_link_that_breaks_is_one() -> None:
    said = said_of("the network broke")
    assert "link lost" in said
    assert "no link" in said


class Asking:
    """A stream on which predictions are asked for, each after the one before was answered."""

    software, version, peer = "gal-learn", 2, "clinic"

    def __init__(self, n: int) -> None:
        self._left, self.answered = n, Semaphore(1)
        self.done = Event()

    def receive(self) -> Any:
        assert self.answered.acquire(timeout=patient(30))
        if self._left == 0:
            self.done.set()
            raise LinkLostError("clinic closed the stream")
        self._left -= 1
        return SimpleNamespace(message=Message("predict", "0" * 32, 1), data=b"", digest="", n_bytes=500)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("seconds", "beside"), [(1e6, [True, False, False]), (0.0, [True, True, True])])
def test_only_predictions_that_are_quick_are_answered_where_they_are_received(
    monkeypatch: pytest.MonkeyPatch, seconds: float, beside: list[bool]
) -> None:
    """Another one must not wait for a slow one, nor a fit."""
    monkeypatch.setattr(links, "QUICK", seconds)
    stream, threads = Asking(3), list[str]()
    metrics = SimpleNamespace(
        connected=lambda peer, there: None, answered=lambda peer: stream.answered.release()
    )
    records = SimpleNamespace(
        log=open_log(None, to=io.StringIO()),
        metrics=metrics,
        quotas=SimpleNamespace(why_spent=lambda peer: None),
        send=lambda stream, one: None,
        is_limited=lambda peer: None,
        entered=lambda peer, received: 0.0,
    )
    service = SimpleNamespace(
        configuration=SimpleNamespace(policy=SimpleNamespace(largest_message=1000)),
        state=SimpleNamespace(tasks=lambda role: []),
        moves=lambda: False,
        answer=lambda asked: threads.append(current_thread().name),
    )
    made: Callable[..., Any] = Link
    link = made("clinic", service, records, lambda peer: stream)
    assert stream.done.wait(patient(30))
    link.close()
    assert [name != "link clinic" for name in threads] == beside
