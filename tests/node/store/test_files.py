"""Files that are there in full or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gal.errors import NodeError
from gal.node.store.files import read_whole, remove_drafts, write_whole
from gal.protocol import digest


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "answer.arrow"
    known = write_whole(path, b"content")
    assert known == digest(b"content")
    assert read_whole(path, known) == b"content"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir()] == [path]


def test_a_damaged_file_is_a_missing_one(tmp_path: Path) -> None:
    path = tmp_path / "model.gal"
    known = write_whole(path, b"content")
    assert read_whole(tmp_path / "other.gal", known) is None
    path.write_bytes(b"conten")
    assert read_whole(path, known) is None
    path.write_bytes(b"Content")
    assert read_whole(path, known) is None
    path.unlink()
    path.mkdir()
    assert read_whole(path, known) is None


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = write_whole(tmp_path / "a", b"old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(NodeError, match=r"No space left on device\. Make room"):
        write_whole(tmp_path / "a", b"new")
    assert read_whole(tmp_path / "a", known) == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_a_crash_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "task" / "1").mkdir(parents=True)
    known = write_whole(tmp_path / "task" / "1" / "answer", b"whole")
    (tmp_path / "task" / "1" / f"answer.{os.getpid()}.part").write_bytes(b"ha")
    remove_drafts(tmp_path)
    assert [path.name for path in (tmp_path / "task" / "1").iterdir()] == ["answer"]
    assert read_whole(tmp_path / "task" / "1" / "answer", known) == b"whole"
    remove_drafts(tmp_path / "nowhere")
