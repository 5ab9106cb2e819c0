"""A state folder of format 3 is opened under the present names, once."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from gal.core.state import Ensemble, ensemble_of, plain
from gal.node.store.state import State, TaskRecord
from gal.node.store.stored_versions import LearnedVersion, LearningOutcome, StoredStacker
from small_terms import small_terms

TASK = "a" * 32
NAMES = {
    "stacking": "closing",
    "secure_aggregation": "secrecy",
    "stacker": "closing",
    "own_stacker": "own_closing",
    "shrinkage": "trust",
}


def write_format_3(folder: Path) -> LearnedVersion:
    """A version with a stacker, as format 3 named it; the same in present names."""
    outcome = LearningOutcome(
        ensemble=plain(Ensemble(("bank",), "bank", (0.0,), 1, (), (), 1.0, 1.0, shrinkage=0.5)),
        classes=None,
        loss="squared",
        finished="",
        seconds=0.0,
        known_rows={},
        unknown_rows={},
        stacker=StoredStacker(digest="sha256:1", share=0.5, validation_loss=1.0),
    )
    version = LearnedVersion(
        status="finished",
        n_rows=1,
        n_without_label=0,
        started="",
        privacy={},
        outcome=outcome,
        refit={"own_stacker": "sha256:2"},
    )
    options = {"options": {"stacking": False}, "secure_aggregation": {"members": []}}
    state = State(folder)
    state.add_task(
        TaskRecord(TASK, "risk", "label holder", "bank", small_terms(TASK, "risk", "bank"), options)
    )
    state.put_version(TASK, 1, version)
    for name in ("stacker.gal", "own-stacker.gal"):
        (state.folder(TASK, 1).parent / name.replace("stacker", "closing")).write_text(name)
    state.close()
    with sqlite3.connect(folder / "state.sqlite") as db:
        for table, column in (("tasks", "options"), ("versions", "facts")):
            [(text,)] = db.execute(f"SELECT {column} FROM {table}").fetchall()
            for new, old in NAMES.items():
                text = text.replace(f'"{new}"', f'"{old}"')
            db.execute(f"UPDATE {table} SET {column} = ?", (text,))
        db.execute("PRAGMA user_version = 3")
    db.close()
    return version


@pytest.mark.parametrize("times", [1, 2])
def test_options_facts_and_files_have_the_present_names(tmp_path: Path, times: int) -> None:
    expected = write_format_3(tmp_path)
    for _ in range(times):
        state = State(tmp_path)
        [task], version = state.tasks(), state.learned_version(TASK, 1)
        assert task.options == {"options": {"stacking": False}, "secure_aggregation": {"members": []}}
        assert version is not None
        assert version.outcome is not None
        assert expected.outcome is not None
        assert (version.outcome.stacker, version.refit) == (expected.outcome.stacker, expected.refit)
        assert ensemble_of(version.outcome.ensemble).shrinkage == 0.5
        for name in ("stacker.gal", "own-stacker.gal"):
            assert (state.folder(TASK, 1).parent / name).read_text() == name
        state.close()


def test_an_upgrade_that_is_interrupted_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_format_3(tmp_path)
    monkeypatch.setattr("gal.node.store.format_3.FILES", {"closing.gal": "no/such/folder"})
    with pytest.raises(OSError, match="No such file"):
        State(tmp_path)
    with sqlite3.connect(tmp_path / "state.sqlite") as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert "secrecy" in json.loads(db.execute("SELECT options FROM tasks").fetchone()[0])
    db.close()
