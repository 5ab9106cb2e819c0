"""SQLite files that several processes open: who reads, who waits, and what is kept."""

from __future__ import annotations

import sqlite3
import stat
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gal.sqlite_files import connect, whole_transaction, write_ahead
from patience import LONGEST


def test_it_waits_for_who_has_the_file(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "x.sqlite", isolation_level=None, check_same_thread=False)
    late = sqlite3.connect(tmp_path / "x.sqlite", isolation_level=None, timeout=0)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        write_ahead(late, 0)
    threading.Timer(0.05, other.execute, ["COMMIT"]).start()
    write_ahead(late, LONGEST)
    assert late.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()
    late.close()


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.touch(mode=0o644)
    connect(path, timeout=LONGEST).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("durable", "level"), [(True, 2), (False, 1)])
def test_a_durable_one_waits_for_the_disk(tmp_path: Path, durable: bool, level: int) -> None:
    with closing(connect(tmp_path / "x.sqlite", timeout=LONGEST, durable=durable)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (level,)


def test_all_of_a_transaction_is_kept_or_nothing(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "x.sqlite", timeout=LONGEST)) as connection:
        connection.execute("CREATE TABLE numbers (number)")
        with suppress(ZeroDivisionError), whole_transaction(connection):
            connection.execute("INSERT INTO numbers VALUES (1)")
            raise ZeroDivisionError
        with whole_transaction(connection):
            connection.execute("INSERT INTO numbers VALUES (2)")
        assert connection.execute("SELECT number FROM numbers").fetchall() == [(2,)]


def test_a_reader_sees_one_state_and_keeps_no_writer_waiting(tmp_path: Path) -> None:
    with (
        closing(connect(tmp_path / "x.sqlite", timeout=0)) as reader,
        closing(connect(tmp_path / "x.sqlite", timeout=0)) as writer,
    ):
        writer.execute("CREATE TABLE numbers (number)")
        with whole_transaction(reader, writing=False):
            assert reader.execute("SELECT count(*) FROM numbers").fetchone() == (0,)
            with whole_transaction(writer):
                writer.execute("INSERT INTO numbers VALUES (1)")
            assert reader.execute("SELECT count(*) FROM numbers").fetchone() == (0,)
        with (
            whole_transaction(reader),
            pytest.raises(sqlite3.OperationalError, match="locked"),
            whole_transaction(writer),
        ):
            pass
