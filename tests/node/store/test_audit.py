"""The audit log: nothing altered, removed or cut off goes unnoticed; several may append."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forked import Forked
from gal.errors import AuditError, NodeError
from gal.node.store.audit import FIRST, AuditEntry, AuditLog, Total
from patience import patient

START = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that goes one step at a time."""

    def __init__(self, step: timedelta = timedelta(seconds=1)) -> None:
        self.step, self.now = step, START - step

    def __call__(self) -> datetime:
        self.now += self.step
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


@pytest.fixture
def log(path: Path) -> Iterator[AuditLog]:
    with AuditLog(path, clock=Clock()) as log:
        yield log


def fill(log: AuditLog, n: int = 6) -> list[AuditEntry]:
    """Some entries in and out with two peers."""
    return [
        log.append(
            "in" if i % 2 else "out",
            "residual" if i % 2 else "fitted",
            peer="bank" if i < 4 else "insurer",
            task="risk",
            version=1,
            round=i,
            shape=(200, 3),
            digest="sha256:" + "ab" * 32,
            n_bytes=100 + i,
        )
        for i in range(n)
    ]


def tamper(path: Path, *statements: str) -> None:
    """Change the table behind the log's back, without its triggers."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("drop trigger audit_is_not_updated")
        connection.execute("drop trigger audit_is_not_deleted")
        for statement in statements:
            connection.execute(statement)


def test_an_entry_holds_what_was_said(log: AuditLog) -> None:
    first, second = fill(log, 2)
    assert (first.seq, first.previous, second.seq, second.previous) == (1, FIRST, 2, first.hash)
    assert first.time == "2030-01-01T00:00:00.000000+00:00"
    assert (first.direction, first.peer, first.task, first.version) == ("out", "bank", "risk", 1)
    assert (second.round, second.kind, second.shape, second.n_bytes) == (1, "residual", "200x3", 101)
    assert log.entries() == [first, second]


def test_entries_are_selected(log: AuditLog) -> None:
    all_of_them = fill(log)
    other = log.append("own", "forgotten", task="old", note="by the operator")
    assert log.entries(task="risk") == all_of_them
    assert log.entries(peer="insurer") == all_of_them[4:]
    assert log.entries(task="risk", peer="insurer", limit=1) == all_of_them[5:]
    assert log.entries(limit=2) == [all_of_them[-1], other]


def test_a_sound_log_is_verified_and_goes_on_after_a_restart(log: AuditLog, path: Path) -> None:
    assert log.verify().n == 0
    noted = fill(log)[3].hash
    with AuditLog(path, clock=Clock()) as again:
        last = again.append("own", "started")
        verified = again.verify(expected_head=noted)
    assert (verified.n, verified.head) == (7, last.hash)
    assert log.verify(expected_head=last.hash) == verified


def test_summary_counts_messages_and_bytes(log: AuditLog) -> None:
    fill(log)
    assert log.summary() == [
        Total("bank", "risk", "in", "residual", 2, 101 + 103),
        Total("bank", "risk", "out", "fitted", 2, 100 + 102),
        Total("insurer", "risk", "in", "residual", 1, 105),
        Total("insurer", "risk", "out", "fitted", 1, 104),
    ]


@pytest.mark.parametrize("statement", ["update audit set note = 'x'", "delete from audit"])
def test_entries_cannot_be_changed_in_the_normal_way(log: AuditLog, path: Path, statement: str) -> None:
    fill(log)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        with pytest.raises(sqlite3.IntegrityError, match="only added to"):
            connection.execute(statement)
        connection.rollback()
    assert log.verify().n == 6


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        (["update audit set n_bytes = 1 where seq = 3"], "entry 3: its content"),
        (["update audit set hash = 'sha256:00' where seq = 3"], "entry 3: its content"),
        (["update audit set previous = 'sha256:00' where seq = 3"], "entry 3: it, or"),
        (["delete from audit where seq = 3"], "entry 3 was removed"),
        (["delete from audit where seq = 1"], "entry 1 was removed"),
        (
            ["delete from audit where seq = 3", "update audit set seq = seq - 1 where seq > 3"],
            "entry 3: it, or",
        ),
        (
            [
                "update audit set seq = 99 where seq = 3",
                "update audit set seq = 3 where seq = 4",
                "update audit set seq = 4 where seq = 99",
            ],
            "entry 3: it, or",
        ),
        (["delete from audit where seq = 6"], "its end is missing"),
        (["delete from audit"], "its end is missing"),
    ],
)
def test_tampering_is_noticed(log: AuditLog, path: Path, statements: list[str], says: str) -> None:
    fill(log)
    tamper(path, *statements)
    with pytest.raises(AuditError, match=says) as caught:
        log.verify()
    assert "sha256:" in str(caught.value)


FIELDS = sorted({one.name for one in fields(AuditEntry)} - {"seq", "previous", "hash"})


@settings(max_examples=25)
@given(st.sampled_from(FIELDS), st.integers(1, 6), st.integers(1, 10**6))
def test_every_field_is_covered(
    tmp_path_factory: pytest.TempPathFactory, field: str, seq: int, value: int
) -> None:
    path = tmp_path_factory.mktemp("audit") / "state.sqlite"
    with AuditLog(path, clock=Clock()) as log:
        fill(log)
        tamper(path, f"update audit set {field} = {field} || '{value}' where seq = {seq}")
        with pytest.raises(AuditError, match=f"entry {seq}"):
            log.verify()


def test_a_cut_is_noticed_for_good(log: AuditLog, path: Path) -> None:
    entries = fill(log)
    tamper(path, "delete from audit where seq > 4")
    with pytest.raises(AuditError, match="its end is missing"):
        log.verify()
    log.append("own", "started")
    with pytest.raises(AuditError, match="entry 5 was removed") as caught:
        log.verify()
    assert entries[3].hash in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "delete from audit_head",
        "update audit_head set hash = 'sha256:00'",
        "update audit_head set seq = 2",
        "update audit_head set seq = 7",
    ],
)
def test_a_head_that_does_not_fit_is_an_error(log: AuditLog, path: Path, statement: str) -> None:
    fill(log)
    tamper(path, statement)
    with pytest.raises(AuditError, match="its head says"):
        log.verify()


def test_a_log_rewritten_as_a_whole_does_not_have_the_noted_head(tmp_path: Path) -> None:
    heads = []
    for peer in ("bank", "insurer"):
        (tmp_path / peer).mkdir()
        with AuditLog(tmp_path / peer / "state.sqlite", clock=Clock()) as log:
            log.append("out", "fitted", peer=peer)
            heads.append(log.verify().head)
            if peer == "insurer":
                with pytest.raises(AuditError, match="noted earlier"):
                    log.verify(expected_head=heads[0])


def test_any_text_can_be_recorded(log: AuditLog) -> None:
    log.append("in", "hello", note="half a pair \udc80, a line\nand \x00 \u2028")
    assert log.verify().n == 1
    assert "\\udc80" in log.entries()[0].note


def test_a_full_database_says_so_and_keeps_the_chain(log: AuditLog) -> None:
    fill(log)
    with log._database.apart() as db:  # the only one
        pages = db.execute("pragma page_count").fetchone()[0]
    db.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(NodeError, match="free disk space"):
        log.append("out", "fitted", note="x" * 100_000)
    db.execute(f"pragma max_page_count = {pages + 100}")
    log.append("out", "fitted", note="x" * 100_000)
    assert log.verify().n == 7


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(NodeError, match=r"state\.sqlite cannot be opened"):
        AuditLog(path)


APPEND = """
import sys
from pathlib import Path
from gal.node.store.audit import AuditLog
with AuditLog(Path(sys.argv[1])) as log:
    for _ in range(100):
        log.append("out", "fitted", peer="bank")
"""


def test_processes_append_to_one_chain_from_the_very_first_entry(path: Path) -> None:
    command = [sys.executable, "-c", APPEND, str(path)]
    processes = [Forked(command) for _ in range(2)]
    with AuditLog(path) as log:
        for _ in range(100):
            log.append("in", "residual")
        assert [process.wait(timeout=patient(120)) for process in processes] == [0, 0]
        verified = log.verify()
    assert verified.n == 300


def test_the_hash_is_the_one_that_is_documented(log: AuditLog) -> None:
    import hashlib

    entry = fill(log, 1)[0]
    content = [FIRST, 1, entry.time, "out", "bank", "risk", 1, 0, "fitted", "200x3", entry.digest, 100, ""]
    text = json.dumps(content, separators=(",", ":"))
    assert entry.hash == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
