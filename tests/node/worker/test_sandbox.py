"""A sandboxed process reads and writes allowed paths only (real Landlock).

Run as a program, this file shuts itself in, makes every check there, and prints what each came to.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import gal
from gal.errors import NodeError
from gal.node.worker import sandbox
from gal.node.worker.sandbox import landlock_version, restrict_files

landlock = pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")


def refused(action: Callable[[], object]) -> None:
    """The action has to end with a PermissionError."""
    with pytest.raises(PermissionError):
        action()


def check_own_folder_works(home: Path, other: Path, data: Path) -> None:
    assert "2.5" in (home / "file.csv").read_text()
    (home / "new").mkdir()
    (home / "new" / "a").write_text("long enough")
    (home / "new" / "a").rename(home / "b")
    (home / "b").write_text("short")
    (home / "b").unlink()


def check_another_folder_is_refused(home: Path, other: Path, data: Path) -> None:
    refused((other / "file.csv").read_text)
    refused(lambda: list(other.iterdir()))
    refused(lambda: (other / "file.csv").write_text("x"))
    refused((other / "file.csv").unlink)
    refused((other / "new").mkdir)
    refused(lambda: list(home.parent.iterdir()))


def check_data_is_read_and_not_written(home: Path, other: Path, data: Path) -> None:
    assert "2.5" in (data / "file.csv").read_text()
    refused(lambda: (data / "file.csv").write_text("x"))
    refused(lambda: (data / "new").write_text("x"))
    refused((data / "file.csv").unlink)


def check_ways_around_it_are_refused(home: Path, other: Path, data: Path) -> None:
    (home / "link").symlink_to(other / "file.csv")
    refused((home / "link").read_text)
    refused(Path(f"/proc/self/root{other}/file.csv").read_text)
    refused(Path(f"/proc/self/cwd/{other.name}/file.csv").read_text)
    with pytest.raises(OSError, match=r"cross-device|[Pp]ermission"):
        os.link(other / "file.csv", home / "hard")
    program = home / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    refused(lambda: subprocess.run([str(program)]))


def check_children_are_restricted_too(home: Path, other: Path, data: Path) -> None:
    def child(path: Path) -> subprocess.CompletedProcess[str]:
        read = "import sys; print(open(sys.argv[1]).read())"
        return subprocess.run([sys.executable, "-c", read, str(path)], capture_output=True, text=True)

    assert "2.5" in child(home / "file.csv").stdout
    outside = child(other / "file.csv")
    assert outside.returncode != 0
    assert "PermissionError" in outside.stderr


def check_temporary_files_and_devices(home: Path, other: Path, data: Path) -> None:
    with tempfile.NamedTemporaryFile() as file:
        assert Path(file.name).is_relative_to(home.resolve())
    with open(os.devnull, "w") as nothing:
        nothing.write("x")
    multiprocessing.Lock()


def check_sqlite_with_wal(home: Path, other: Path, data: Path) -> None:
    database = sqlite3.connect(home / "state.sqlite")
    database.execute("pragma journal_mode = wal")
    database.execute("create table numbers (x)")
    with database:
        database.execute("insert into numbers values (1)")
    assert (home / "state.sqlite-wal").exists()
    database.close()


def check_later_threads_are_restricted(home: Path, other: Path, data: Path) -> None:
    came: list[str] = []

    def look() -> None:
        try:
            came.append((other / "file.csv").read_text())
        except PermissionError:
            came.append("refused")

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert came == ["refused"]


def check_it_has_to_come_before_threads(home: Path, other: Path, data: Path) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        with pytest.raises(NodeError, match="before it starts threads"):
            restrict_files([home])
    finally:
        end.set()
        thread.join()


CHECKS = {name: check for name, check in list(globals().items()) if name.startswith("check_")}


def main(home: Path, other: Path, data: Path) -> None:
    """Shut this process in and print, for each check, "passed" or a traceback, as JSON."""
    assert restrict_files([home], [data])
    outcomes = {}
    for name, check in CHECKS.items():
        try:
            check(home, other, data)
            outcomes[name] = "passed"
        except BaseException:
            outcomes[name] = traceback.format_exc()
    print(json.dumps(outcomes))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the checks came to, in a process started where all three folders lie: the worst place."""
    from patience import patient  # not found where this file runs as a program

    above = tmp_path_factory.mktemp("organizations")
    folders = [above / name for name in ("home", "other", "data")]
    for folder in folders:
        folder.mkdir()
        (folder / "file.csv").write_text("row,x\n1,2.5\n2,3.5\n")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(above), str(Path(gal.__file__).parents[1])]),
    }
    command = [sys.executable, "-W", "error", __file__, *map(str, folders)]
    done = subprocess.run(
        command, cwd=above, env=environment, capture_output=True, text=True, timeout=patient(120)
    )
    assert done.returncode == 0, done.stderr
    assert (folders[1] / "file.csv").read_text() == (folders[2] / "file.csv").read_text()
    found: dict[str, str] = json.loads(done.stdout)
    return found


@landlock
@pytest.mark.parametrize("name", CHECKS)
def test_sandboxed(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == "passed", outcomes[name]


def test_without_landlock_it_says_so_and_restricts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "sys", SimpleNamespace(platform="darwin"))
    assert restrict_files([tmp_path]) is False
    assert not (tmp_path / "tmp").exists()


@landlock
def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="nowhere"):
        restrict_files([tmp_path / "nowhere"])


@pytest.mark.parametrize(("version", "n_rights"), [(1, 13), (2, 14), (3, 15), (4, 15), (5, 16), (7, 16)])
def test_each_version_knows_its_rights(version: int, n_rights: int) -> None:
    assert sandbox._rights_of(version).bit_count() == n_rights


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
