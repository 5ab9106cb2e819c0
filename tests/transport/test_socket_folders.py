"""Sockets lie where only their node looks; what a killed run left goes, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gal.transport.socket_folders import LONGEST_PATH, remove_left, socket_folder


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    (tmp_path / "t").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    return tmp_path / "t"


def test_sockets_of_a_run_that_was_killed_go(tmp_path: Path, elsewhere: Path) -> None:
    folder, temporary = socket_folder(Path("/tmp") / "x" if len(str(tmp_path)) > LONGEST_PATH else tmp_path)
    assert not temporary
    for name in ("inner-1.sock", "http-ab.sock", "notes.txt"):
        (folder / name).touch()
    remove_left(folder)
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["notes.txt"]


def test_where_the_home_folder_has_a_long_name_its_folder_elsewhere_goes(
    tmp_path: Path, elsewhere: Path
) -> None:
    mine, others = tmp_path / ("m" * 100), tmp_path / ("o" * 100)
    found = {path: socket_folder(path) for path in (mine, others)}
    assert all(temporary and path.parent == elsewhere for path, temporary in found.values())
    for path, _ in found.values():
        assert path.stat().st_mode & 0o077 == 0
        (path / "inner-1.sock").touch()
    (tmp_path / "kept").mkdir()
    (elsewhere / f"{found[mine][0].name[:-8]}linked").symlink_to(tmp_path / "kept")
    remove_left(mine)
    assert not found[mine][0].exists()
    assert found[others][0].exists()
    assert (tmp_path / "kept").exists()
