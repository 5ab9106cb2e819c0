"""A witness outside of the folder knows the newest release; what it cannot take does not leave."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gal.errors import NodeError
from gal.node.store.audit import AuditLog
from gal.node.store.audit_head import NOTHING, Head
from gal.node.store.witness import Witness, Witnessed, has_entry


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "elsewhere.witness")


def test_it_knows_the_newest_entry_and_the_newest_release(tmp_path: Path, witness: Witness) -> None:
    with AuditLog(tmp_path / "state.sqlite", witness=witness.path) as audit:
        audit.append("in", "fit", peer="clinic")
        quiet = audit.append("out", "joined", peer="clinic")
        assert witness.read() == Witnessed(Head(2, quiet.hash), NOTHING)
        release = audit.append("out", "fitted", peer="clinic")
        newest = audit.append("in", "fit", peer="clinic")
        assert witness.read() == Witnessed(Head(4, newest.hash), Head(3, release.hash))
        own = audit.append("own", "forgot", note="a row")
        assert witness.read() == Witnessed(Head(5, own.hash), Head(5, own.hash))


def test_one_that_begins_late_knows_what_was_released_before(tmp_path: Path, witness: Witness) -> None:
    with AuditLog(tmp_path / "state.sqlite") as audit:
        release = audit.append("out", "predicted", peer="clinic")
    with AuditLog(tmp_path / "state.sqlite", witness=witness.path) as audit:
        audit.append("in", "predict", peer="clinic")
    seen = witness.read()
    assert seen is not None
    assert seen.release == Head(1, release.hash)


def test_who_is_late_does_not_overwrite_what_is_newer(tmp_path: Path, witness: Witness) -> None:
    with AuditLog(tmp_path / "state.sqlite", witness=witness.path) as audit:
        first, second = (audit.append("out", "fitted") for _ in range(2))
    with closing(sqlite3.connect(tmp_path / "state.sqlite")) as log:
        witness.note(log, Head(1, first.hash))
    assert witness.read() == Witnessed(Head(2, second.hash), Head(2, second.hash))


def test_without_its_witness_nothing_is_recorded_as_done(tmp_path: Path) -> None:
    gone = tmp_path / "not mounted" / "lab.witness"
    with (
        AuditLog(tmp_path / "state.sqlite", witness=gone) as audit,
        pytest.raises(NodeError, match="nothing may leave"),
    ):
        audit.append("out", "fitted", peer="clinic")


def test_one_that_is_damaged_is_no_reason_to_go_on(tmp_path: Path, witness: Witness) -> None:
    witness.path.write_text("something else")
    with (
        AuditLog(tmp_path / "state.sqlite", witness=witness.path) as audit,
        pytest.raises(NodeError, match=r"no witness of an audit log.*move it away"),
    ):
        audit.append("out", "fitted", peer="clinic")


def test_which_entries_a_log_has(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "state.sqlite") as audit:
        entries = [audit.append("out", "fitted") for _ in range(3)]
        audit.trim(entries[:1])
    with closing(sqlite3.connect(tmp_path / "state.sqlite")) as log:
        assert has_entry(log, NOTHING)
        assert has_entry(log, Head(1, entries[0].hash)), "cut off on purpose, and vouched for"
        assert has_entry(log, Head(3, entries[2].hash))
        assert not has_entry(log, Head(3, entries[1].hash))
        assert not has_entry(log, Head(9, entries[2].hash))
