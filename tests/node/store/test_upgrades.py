"""State folders of earlier formats are brought up to date; newer ones are not touched."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from test_state import ASSISTED, HELP, LEARNED, RISK, answer, reply

from gal.errors import NodeError
from gal.node.store import upgrades
from gal.node.store.audit import AuditLog
from gal.node.store.restores import Restore
from gal.node.store.state import State
from gal.node.store.upgrades import FORMAT, STEPS

OF_FORMAT_1 = Path(__file__).with_name("state_of_format_1.sql")


def old_folder(home: Path, *, numbered: bool = True) -> Path:
    path = home / "state.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(OF_FORMAT_1.read_text(encoding="utf-8"))
        if not numbered:
            db.execute("PRAGMA user_version = 0")
        db.commit()
    return path


def format_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("numbered", [True, False], ids=["format 1", "without a number"])
def test_a_folder_of_format_1_has_all_that_it_had(tmp_path: Path, numbered: bool) -> None:
    path = old_folder(tmp_path, numbered=numbered)
    with closing(State(tmp_path)) as state:
        assert state.tasks() == [RISK, HELP]
        assert state.members(RISK.id) == {"lab": "invited"}
        assert state.learned_versions(RISK.id) == {1: LEARNED}
        assert state.versions(HELP.id) == {1: ASSISTED}
        assert state.answers(HELP.id, 1) == [answer()]
        assert state.replies(RISK.id, 1).of(1) == [reply()]
        assert state.spend_predictions("clinic", "2026-01-02", 0, 10) == 7
        assert state.restores.unproven() is None
        state.restores.add(Restore("2026-02-01", "2026-01-01", 2, "sha256:1", "lost"))
        assert state.restores.unproven() == Restore("2026-02-01", "2026-01-01", 2, "sha256:1", "lost")
    assert format_of(path) == FORMAT
    (tmp_path / "audit.head").unlink(missing_ok=True)
    with AuditLog(path) as audit:
        assert [one.kind for one in audit.entries()] == ["joined", "fitted"]


def test_every_format_has_a_step_to_the_next() -> None:
    assert sorted(STEPS) == list(range(1, FORMAT))


def test_a_step_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old_folder(tmp_path)

    def fails(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM tasks")
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(upgrades, "STEPS", {1: fails})
    with pytest.raises(NodeError, match="disk full"):
        State(tmp_path)
    assert format_of(path) == 1
    monkeypatch.undo()
    with closing(State(tmp_path)) as state:
        assert state.tasks() == [RISK, HELP]


def test_a_newer_folder_stays_as_it_is(tmp_path: Path) -> None:
    path = old_folder(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    before = path.read_bytes()
    with pytest.raises(NodeError, match=rf"format {FORMAT + 1}.*upgrade gal-learn\. Nothing was changed"):
        State(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT 1 FROM sqlite_master WHERE name = 'restores'").fetchone() is None
    assert format_of(path) == FORMAT + 1
    assert before[:16] == path.read_bytes()[:16]
