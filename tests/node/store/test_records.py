"""What enters and leaves is written down first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gal.errors import LinkLostError, NodeError
from gal.node.store.activity import Activity
from gal.node.store.audit import AuditLog
from gal.node.store.records import Records
from gal.protocol import VERSIONS, Encoded, Message, prepare
from small_network import quiet

TASK = "0" * 32
DIGEST = "sha256:" + "0" * 64
FIT = prepare(
    Message(
        "fit",
        TASK,
        2,
        "3.0",
        {"rows": DIGEST, "track": "assisted", "round": 3, "part": None},
        {"residual": np.ones((4, 1), dtype=np.float32)},
    )
)


class FakeStream:
    """Records what was sent, and how long the audit log was at that moment."""

    peer, version = "lab", max(VERSIONS)

    def __init__(self, audit: AuditLog, fails: bool = False) -> None:
        self.audit, self.fails = audit, fails
        self.sent: list[tuple[Encoded, int]] = []

    def send(self, encoded: Encoded) -> None:
        if self.fails:
            raise LinkLostError("gone")
        self.sent.append((encoded, len(self.audit.entries())))


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    metrics = Activity()
    with AuditLog(tmp_path / "state.sqlite") as audit:
        yield Records(audit, quiet(), metrics)


def test_what_leaves_is_written_down_before(records: Records) -> None:
    stream: Any = FakeStream(records.audit)
    records.send(stream, FIT)
    assert [(one.digest, before) for one, before in stream.sent] == [(FIT.digest, 1)]
    [entry] = records.audit.entries()
    assert (entry.direction, entry.peer, entry.task, entry.version, entry.round) == ("out", "lab", TASK, 2, 3)
    assert (entry.kind, entry.digest, entry.n_bytes) == ("fit", FIT.digest, FIT.data.size)
    assert "4" in entry.shape


def test_what_was_meant_to_leave_stays_on_record(records: Records) -> None:
    stream: Any = FakeStream(records.audit, fails=True)
    with pytest.raises(LinkLostError):
        records.send(stream, FIT)
    assert len(records.audit.entries()) == 1


def test_what_cannot_be_written_down_does_not_leave(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream: Any = FakeStream(records.audit)

    def full(*_: Any, **__: Any) -> None:
        raise NodeError("the disk is full")

    monkeypatch.setattr(AuditLog, "append_each", full)
    with pytest.raises(NodeError, match="full"):
        records.send(stream, FIT)
    assert stream.sent == []


def test_what_leaves_for_several_is_written_down_for_all_before(records: Records) -> None:
    streams: Any = [FakeStream(records.audit, fails=fails) for fails in (False, True, False)]
    problems = records.send_each(streams, FIT)
    assert [type(one) for one in problems] == [type(None), LinkLostError, type(None)]
    assert [[before for _, before in one.sent] for one in streams] == [[3], [], [3]]
    assert [one.digest for one in records.audit.entries()] == [FIT.digest] * 3
    assert records.audit.verify().n == 3


def test_what_cannot_be_recorded_is_sent_to_no_peer(records: Records) -> None:
    streams: Any = [FakeStream(records.audit), FakeStream(records.audit)]
    with sqlite3.connect(records.audit.path) as db:
        db.execute(
            "create trigger full before insert on audit when new.seq = 2 "
            "begin select raise(abort, 'full'); end"
        )
    problems = records.send_each(streams, FIT)
    assert all(isinstance(one, NodeError) for one in problems)
    assert [one.sent for one in streams] == [[], []]
    assert records.audit.entries() == []  # all, or nothing


def test_what_is_refused(records: Records) -> None:
    records.refused("clinic", "not-joined", "x" * 2000)
    [refused] = records.audit.entries()
    assert refused.note.startswith("not-joined: xxx")
    assert len(refused.note) == 500
    assert records.audit.verify().n == 1
