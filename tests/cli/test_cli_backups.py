"""gal backup: the passphrase, what is printed, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("grpc")

from gal.cli.app import app
from gal.errors import InvalidInputError
from gal.node.admin import backup as backups
from gal.node.admin.doctor import _restored
from gal.node.admin.init import init_node
from gal.node.config.configuration import read_configuration

WORDS = "correct horse battery staple"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(backups, "WORK", 2)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("GAL_HOME", raising=False)
    monkeypatch.delenv("GAL_BACKUP_PASSPHRASE", raising=False)
    init_node(tmp_path / "lab", "lab")
    return tmp_path / "lab"


def gal(*words: str | Path) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_node_goes_and_comes_back(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "words").write_text(f"{WORDS}\n")
    file, there = tmp_path / "lab.backup", tmp_path / "there"
    facts = json.loads(gal("backup", file, "--passphrase-file", tmp_path / "words", "--home", home, "--json"))
    assert facts["organization"] == "lab"
    monkeypatch.setenv("GAL_BACKUP_PASSPHRASE", WORDS)
    said = gal("backup", file, "--restore", "--home", there)
    assert "counts as spent" in said
    [finding] = _restored(read_configuration(there))
    assert finding.ok is None
    assert "counts as spent" in finding.message
    assert (there / "key.pem").read_bytes() == (home / "key.pem").read_bytes()
    monkeypatch.setenv("GAL_HOME", str(tmp_path / "third"))
    assert "goes on as before" in gal("backup", file, "--restore", "--head", facts["head"])
    assert list(_restored(read_configuration(tmp_path / "third"))) == []
    assert (tmp_path / "third" / "node.toml").exists()


def test_the_passphrase_is_no_argument_and_is_not_made_up(home: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs a passphrase: --passphrase-file"):
        gal("backup", tmp_path / "lab.backup", "--home", home)
    with pytest.raises(InvalidInputError, match="cannot be read from"):
        gal("backup", tmp_path / "lab.backup", "--home", home, "--passphrase-file", tmp_path / "none")
    assert not (tmp_path / "lab.backup").exists()


def test_what_is_not_said(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAL_BACKUP_PASSPHRASE", WORDS)
    with pytest.raises(InvalidInputError, match="--restore needs --home FOLDER"):
        gal("backup", tmp_path / "lab.backup", "--restore")
    with pytest.raises(InvalidInputError, match="give --restore, too"):
        gal("backup", tmp_path / "lab.backup", "--head", "sha256:" + "1" * 64, "--home", home)
    with pytest.raises(InvalidInputError, match="'nonsense' is no head"):
        gal("backup", tmp_path / "lab.backup", "--restore", "--head", "nonsense", "--home", tmp_path / "new")
    assert not (tmp_path / "new").exists()
