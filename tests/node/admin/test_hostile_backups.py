"""Files that say they are backups: no node comes of them, nothing is written elsewhere, it is said why."""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from gal.errors import GALError
from gal.node.admin import sealed
from gal.node.admin.restore import bring_back
from gal.node.admin.sealed import SealedWriter

WORDS = "correct horse battery staple"
FACTS = {"organization": "x", "time": "2026-01-01T00:00:00+00:00", "software": "x", "seq": 1, "head": "x"}
NODE = b'name = "x"\n[data]\nsource = "x.csv"\nrow_id = "id"\n[model]\nuse = "linear"\n'


@pytest.fixture(autouse=True)
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "WORK", 2)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def written(path: Path, parts: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    """A backup with these parts, sealed as it should be: who made it knows the passphrase."""
    with path.open("wb") as file:
        writer = SealedWriter(file, WORDS)
        with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
            for one, data in parts:
                one.size = len(data)
                tar.addfile(one, io.BytesIO(data))
        writer.close()
    return path


def whole(**changed: bytes | None) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The parts of a backup, some of them others, or left out."""
    parts = {
        "backup.json": json.dumps(FACTS).encode(),
        "state.sqlite": b"",
        "node.toml": NODE,
    }
    given = {"facts": "backup.json", "state": "state.sqlite", "node": "node.toml"}
    for name, data in changed.items():
        parts.pop(given[name])
        if data is not None:
            parts[given[name]] = data
    return [(member(name), data) for name, data in parts.items()]


def another_database(path: Path) -> bytes:
    with sqlite3.connect(path) as made:
        made.execute("create table tasks (x)")
        made.execute("create table audit (x)")
        made.execute("pragma user_version = 2")
    made.close()
    return path.read_bytes()


def refused(backup: Path, home: Path) -> str:
    with pytest.raises(GALError) as error:
        bring_back(backup, home, WORDS)
    assert not (home / "node.toml").exists()
    return str(error.value)


@pytest.mark.parametrize(
    "part",
    [
        member("../../outside/x"),
        member("a/../../../outside/x"),
        member("outside", tarfile.SYMTYPE, "/etc"),
        member("outside", tarfile.LNKTYPE, "../../x"),
        member("outside", tarfile.CHRTYPE),
        member("outside", tarfile.FIFOTYPE),
        member(".restoring/x"),
        member("node.lock"),
    ],
    ids=lambda one: f"{one.name} {one.type!r}",
)
def test_nothing_is_written_outside_of_the_folder(tmp_path: Path, part: tarfile.TarInfo) -> None:
    backup = written(tmp_path / "x.backup", [(part, b""), *whole()])
    refused(backup, tmp_path / "new" / "home")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["new", "x.backup"]
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["home"]


@pytest.mark.parametrize("name", ["node.toml", "backup.json"])
def test_a_file_of_gaps_is_not_read(tmp_path: Path, name: str) -> None:
    """A terabyte in 512 bytes."""
    gaps = member("x")
    gaps.pax_headers = {
        **{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
        **{"GNU.sparse.name": name, "GNU.sparse.realsize": str(10**12)},
    }
    rest = [(one, data) for one, data in whole() if one.name != name]
    backup = written(tmp_path / "x.backup", [(gaps, b"1\n0\n0\n".ljust(512, b"\0")), *rest])
    assert "no file of a node" in refused(backup, tmp_path / "home")


def test_nor_at_a_place_that_it_names(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere" / "x"
    backup = written(tmp_path / "x.backup", [(member(str(place)), b""), *whole()])
    refused(backup, tmp_path / "home")
    assert not place.parent.exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"facts": None},
        {"facts": b"[" * 100_000},
        {"facts": b"\xff"},
        {"facts": b"{}"},
        {"facts": json.dumps(FACTS | {"more": 1}).encode()},
        {"facts": json.dumps(FACTS | {"seq": [1]}).encode()},
        {"facts": json.dumps(FACTS | {"seq": 10**30}).encode()},
        {"facts": json.dumps(FACTS | {"time": None, "head": {"a": 1}}).encode()},
        {"facts": json.dumps(FACTS | {"head": "\ud800"}).encode()},
        {"state": b"junk" * 1000},
        {"state": b"SQLite format 3\x00" + b"\xff" * 5000},
        {"node": None},
        {"node": b"\xff\xfe"},
        {"node": b"a = " + b"[" * 100_000},
        {"node": b'name = "../../x"\n'},
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_is_no_node_is_refused_in_a_sentence(tmp_path: Path, changed: dict[str, bytes | None]) -> None:
    said = refused(written(tmp_path / "x.backup", whole(**changed)), tmp_path / "home")
    assert "\n" not in said.strip()
    assert len(said) < 2000


def test_another_database_is_no_memory_of_a_node(tmp_path: Path) -> None:
    state = another_database(tmp_path / "other.sqlite")
    refused(written(tmp_path / "x.backup", whole(state=state)), tmp_path / "home")
