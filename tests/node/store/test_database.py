"""A SQLite file that many threads use: few connections, each for one thread at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from gal.errors import NodeError
from gal.node.store.database import Database


def test_a_transaction_within_another_is_part_of_it(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.sqlite")
    with database.transaction() as db:
        db.execute("CREATE TABLE numbers (one INTEGER)")

    def write_and_fail() -> None:
        with database.transaction():
            with database.transaction() as inner:
                inner.execute("INSERT INTO numbers VALUES (1)")
            raise ValueError("after the inner one")

    with pytest.raises(ValueError, match="after the inner one"):
        write_and_fail()
    with database.reading() as db:
        assert db.execute("SELECT count(*) FROM numbers").fetchone()[0] == 0


def numbers(path: Path) -> Database:
    database = Database(path)
    with database.transaction() as db:
        db.execute("CREATE TABLE IF NOT EXISTS numbers (number)")
    return database


def test_what_is_committed_by_itself_is_not_part_of_a_transaction(tmp_path: Path) -> None:
    database = numbers(tmp_path / "numbers.sqlite")
    with database.transaction(), pytest.raises(NodeError, match="has to end first"), database.apart():
        pass
    with database.apart() as db:
        db.execute("INSERT INTO numbers VALUES (1)")
    with database.reading() as db:
        assert db.execute("SELECT count(*) FROM numbers").fetchone()[0] == 1
