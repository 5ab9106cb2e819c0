"""A file's log is made although another process has the file in its hands for a moment."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from gal.write_ahead import write_ahead
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
