"""Old entries of the audit log are cut off: what is left stays provable, and so is what was cut."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gal.errors import AuditError
from gal.node.config.configuration import AuditSection
from gal.node.journal.records import keep_no_longer, trim_audit
from gal.node.store.audit import TRIMMED, AuditLog, export_entries, read_archives
from small_network import quiet

START = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that goes one day at a time."""

    def __init__(self) -> None:
        self.now = START - timedelta(days=1)

    def __call__(self) -> datetime:
        self.now += timedelta(days=1)
        return self.now


@pytest.fixture
def log(tmp_path: Path) -> Iterator[AuditLog]:
    with AuditLog(tmp_path / "state.sqlite", clock=Clock()) as log:
        for number in range(10):
            log.append("in", "fit", peer="bank", round=number)
        yield log


def change(log: AuditLog, *statements: str) -> None:
    """Change the table behind the log's back, without its triggers."""
    with contextlib.closing(sqlite3.connect(log.path)) as connection, connection:
        connection.execute("drop trigger audit_is_not_updated")
        connection.execute("drop trigger audit_is_not_deleted")
        for statement in statements:
            connection.execute(statement)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def test_what_is_left_is_provable_and_goes_on(log: AuditLog) -> None:
    before = log.verify()
    made = log.trim(day(6), None)
    assert made is not None
    assert [one.seq for one in log.entries()] == [7, 8, 9, 10, 11]
    assert (made.kind, made.seq, made.shape) == (TRIMMED, 11, "6")
    log.append("out", "fitted", peer="bank")
    found = log.verify(expected_head=before.head)
    assert (found.n, found.n_trimmed) == (12, 6)
    log.trim(day(9), None)
    assert log.verify().n_trimmed == 9
    with AuditLog(log.path) as again:
        assert again.verify() == log.verify()


def test_nothing_old_is_nothing_done(log: AuditLog) -> None:
    assert log.trim(START, None) is None
    assert log.verify().n == 10


def test_the_newest_entry_stays(log: AuditLog) -> None:
    log.trim(day(1000), None)
    assert [one.seq for one in log.entries()] == [10, 11]
    log.verify()


def test_a_clock_that_was_set_back_does_not_tear_holes(log: AuditLog) -> None:
    """Only the beginning is cut off: an old entry after a young one stays."""
    with AuditLog(log.path, clock=lambda: START) as late:
        late.append("in", "fit")
    log.trim(day(6), None)
    assert [one.seq for one in log.entries()] == [7, 8, 9, 10, 11, 12]
    log.verify()


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("delete from audit where seq <= 7", "entries 1 to 7 are missing"),
        (f"delete from audit where kind = '{TRIMMED}'", "its end is missing"),
        (f"update audit set shape = '8' where kind = '{TRIMMED}'", "not what was written"),
        ("update audit set peer = 'x' where seq = 8", "not what was written"),
        ("delete from audit where seq = 8", "entry 8 was removed"),
    ],
)
def test_more_than_was_cut_off_is_missed(log: AuditLog, statement: str, says: str) -> None:
    log.trim(day(6), None)
    change(log, statement)
    with pytest.raises(AuditError, match=says):
        log.verify()


def test_entries_that_are_gone_without_a_word_are_an_alteration(log: AuditLog) -> None:
    change(log, "delete from audit where seq <= 3")
    with pytest.raises(AuditError, match="entries 1 to 3 are missing"):
        log.verify()


def test_an_alteration_is_not_swept_away(log: AuditLog) -> None:
    change(log, "update audit set peer = 'nobody' where seq = 2")
    with pytest.raises(AuditError, match="altered at entry 2"):
        log.trim(day(6), None)
    assert len(log.entries()) == 10


def test_entries_still_cannot_be_deleted_in_the_normal_way(log: AuditLog) -> None:
    log.trim(day(6), None)
    with (
        contextlib.closing(sqlite3.connect(log.path)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="cannot be deleted"),
    ):
        connection.execute("delete from audit")


def test_an_archive_and_the_log_are_one_chain(log: AuditLog, tmp_path: Path) -> None:
    early = log.entries()[2].hash
    whole = log.entries()
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    log.trim(day(4), first)
    log.trim(day(8), second)
    both = log.verify(archived=read_archives([first, second]), expected_head=early)
    assert (both.n, both.n_trimmed) == (12, 0)
    assert [*read_archives([first, second])] == whole[:8]
    assert log.verify(archived=read_archives([second])).n_trimmed == 4
    with pytest.raises(AuditError, match="give their archive, too"):
        log.verify(expected_head=early)
    with pytest.raises(AuditError, match="altered at entry"):
        log.verify(archived=read_archives([first]))
    second.write_text(second.read_text().replace('"bank"', '"shop"', 1))
    with pytest.raises(AuditError, match="altered at entry 5"):
        log.verify(archived=read_archives([first, second]))


def test_an_archive_is_not_overwritten_and_then_nothing_is_cut(log: AuditLog, tmp_path: Path) -> None:
    path = tmp_path / "there.jsonl"
    path.write_text("mine")
    with pytest.raises(AuditError, match="already"):
        log.trim(day(4), path)
    assert (path.read_text(), len(log.entries())) == ("mine", 10)


@pytest.mark.parametrize("text", ["{}", "no json", "[]", '{"seq": 1}'])
def test_a_file_that_is_no_archive_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(AuditError, match=r"x\.jsonl is no archive"):
        list(read_archives([path]))
    with pytest.raises(AuditError, match="is no archive"):
        list(read_archives([tmp_path / "nowhere"]))
    export_entries([], tmp_path / "empty.jsonl")
    assert list(read_archives([tmp_path / "empty.jsonl"])) == []


def test_a_node_keeps_as_many_days_as_it_is_told(log: AuditLog, tmp_path: Path) -> None:
    keep_no_longer(AuditSection(), log, quiet(), lambda: day(10)).set()
    assert len(log.entries()) == 10
    wanted = AuditSection(keep_days=3, archive=str(tmp_path / "archive"))  # type: ignore[arg-type]
    trim_audit(wanted, log, quiet(), day(10))
    assert [one.seq for one in log.entries()] == [8, 9, 10, 11]
    [archive] = (tmp_path / "archive").iterdir()
    assert log.verify(archived=read_archives([archive])).n_trimmed == 0


def test_a_log_that_was_altered_is_said_and_not_cut(log: AuditLog) -> None:
    change(log, "update audit set peer = 'nobody' where seq = 2")
    trim_audit(AuditSection(keep_days=3), log, quiet(), day(10))
    assert len(log.entries()) == 10
