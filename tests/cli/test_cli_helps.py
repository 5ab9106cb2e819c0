"""What new users stumbled over: each command typed again, in a narrow terminal and in a pipe."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from rich.table import Table
from typer.testing import CliRunner

pytest.importorskip("duckdb")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from gal.cli.app import COMMANDS, app, command_named
from gal.cli.learning import Watcher
from gal.cli.options import known_tasks
from gal.cli.screen import ProgressLine, Screen, print_table
from gal.errors import (
    ConfigurationError,
    GALError,
    InvalidInputError,
    InvalidOptionError,
    PrivacyError,
    TaskError,
)
from gal.node.runtime.web.node_facts import task_state

LONG = "sha256:" + "0123456789abcdef" * 4


def gal(*words: Any, answer: str = "") -> Any:
    """Run a command in this process; errors of ours come out as they are."""
    found = CliRunner().invoke(app, [str(word) for word in words], input=answer, env={"COLUMNS": "80"})
    if isinstance(found.exception, GALError):
        raise found.exception
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with rows of a lab, in which commands are typed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GAL_HOME", raising=False)
    pd.DataFrame({"patient": range(30), "s1": range(30), "y": [0, 1] * 15}).to_csv(
        "patients.csv", index=False
    )
    return tmp_path


@pytest.fixture
def two(here: Path) -> Path:
    """A clinic that may learn and a lab; they know each other."""
    given = ["--data", "patients.csv", "--row-id", "patient"]
    gal("init", "clinic", *given, "--label", "y", "--listen", "127.0.0.1:7443")
    gal("init", "lab", *given)
    gal("cards", "add", "lab/lab.card", "--home", "clinic")
    gal("cards", "add", "clinic/clinic.card", "--home", "lab")
    return here


# A node is made and found


def test_the_lines_of_readme_work_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the last two, which run until they are ended: the tutorial types those."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GAL_HOME", raising=False)
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    block = readme.split("<!-- node commands: typed by a test -->\n```\n")[1].split("```")[0]
    first, *lines = [shlex.split(line) for line in block.replace("\\\n", "").splitlines()]
    assert first[:2] == ["python", "-c"]
    exec(first[2], {})
    for words in lines[:-2]:
        assert words[0] == "gal"
        assert gal(*words[1:]).exit_code == 0
    assert [words[:2] for words in lines[-2:]] == [["gal", "serve"], ["gal", "learn"]]
    assert "1 known: clinic" in gal("doctor", "--home", "lab").output
    facts = json.loads(gal("status", "--home", "lab", "--json").output)
    assert [one["name"] for one in facts["tasks"]] == [lines[-1][2]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "gone.csv"], "there is no file 'gone.csv'"),
        (["--data", "patients.csv"], "no column 'id': name it with --row-id"),
        (["--data", "patients.csv", "--row-id", "patent"], "Did you mean 'patient'"),
        (["--data", "patients.csv", "--row-id", "patient", "--label", "z"], "name it with --label"),
        (["--data", "rows.xls", "--row-id", "id"], "as .xlsx or as CSV UTF-8"),
        (["--data", "patients.csv", "--endpoint", "http://store"], "endpoint is for object stores"),
        (["--table", "patients"], "--table needs --data"),
    ],
)
def test_what_cannot_be_is_said_before_there_is_a_folder(here: Path, words: list[str], said: str) -> None:
    (here / "rows.xls").write_bytes(b"PK")
    with pytest.raises(InvalidInputError, match=said):
        gal("init", "lab", *words)
    assert not (here / "lab").exists()


# What is printed


def printed(table: Table, *, width: int, terminal: bool) -> str:
    out = Screen()
    out.file, out._force_terminal = io.StringIO(), terminal
    out.width = width if terminal else out.width
    print_table(table, out)
    return re.sub(r"\x1b\[[\d;]*m", "", out.file.getvalue())


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_never_cuts_a_word(terminal: bool, width: int) -> None:
    table = Table("name", "fingerprint", "a long note", title="all of them")
    table.add_row("local-losses-of-everybody", LONG, "words that may be broken between words " * 3)
    said = printed(table, width=width, terminal=terminal)
    assert "…" not in said
    assert "local-losses-of-everybody" in said
    assert LONG in said


# Refused


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["join", ".", "--home", "lab"], InvalidInputError, "is a folder: name the file"),
        (["cards", "add", "lab/lab.card", "--home", "lab"], InvalidInputError, "the card of lab itself"),
        (["cards", "add", "other/lab.card", "--home", "clinic"], GALError, "gal cards add FILE --replace"),
        (["status"], ConfigurationError, r"several nodes here \(clinic, lab\): choose one with --home"),
        (["invite", "risk", "shop", "--withdraw", "--home", "clinic"], TaskError, "no own task"),
        (["forget", "risk", "--row", "1", "--home", "lab"], InvalidInputError, "name a task"),
        (["forget", "--home", "lab"], InvalidInputError, "name a task"),
    ],
)
def test_what_cannot_be_is_an_error(two: Path, words: list[str], error: type[Exception], said: str) -> None:
    gal("init", "lab", "--home", "elsewhere/other")
    (two / "other").mkdir()
    (two / "other" / "lab.card").write_bytes((two / "elsewhere" / "other" / "lab.card").read_bytes())
    with pytest.raises(error, match=said):
        gal(*words)


def test_a_secret_that_is_missing_is_said_before_the_first_learning(two: Path) -> None:
    assert "no secret" in gal("invite", "risk", "lab", "--home", "clinic", "--align", "hashed").output
    assert "data.secret_file" in gal("join", "risk.invitation", "--home", "lab", "--yes").output


def test_inviting_again_with_options_is_refused(two: Path) -> None:
    gal("invite", "risk", "lab", "--rounds", 4, "--home", "clinic")
    gal("invite", "risk", "lab", "--home", "clinic")
    for words in (("--rounds", "5"), ("-o", "seed=3"), ("--align", "hashed")):
        with pytest.raises(InvalidInputError, match=r"its terms do not change: leave .* out"):
            gal("invite", "risk", "lab", *words, "--home", "clinic")


def test_classes_are_weighed_by_the_label_holder_unless_labels_are_private(two: Path) -> None:
    gal("invite", "risk", "lab", "--home", "clinic", "-o", "class_weight=balanced")
    gal("invite", "other", "lab", "--home", "clinic", "-o", 'class_weight={"1": 4}')
    with pytest.raises(InvalidOptionError, match="'balanced' or a mapping"):
        gal("invite", "wrong", "lab", "--home", "clinic", "-o", "class_weight=even")
    pytest.importorskip("dp_accounting")
    noise = ["--privacy", "randomised-response", "--epsilon", 1, "--classes", "0,1"]
    with pytest.raises(PrivacyError, match="class_weight would reveal"):
        gal("invite", "private", "lab", "--home", "clinic", "-o", "class_weight=balanced", *noise)


def test_every_command_that_prints_speaks_json() -> None:
    without = []
    for name in COMMANDS:
        command: Any = command_named(name)
        for one in getattr(command, "commands", {name: command}).values():
            if not any("--json" in parameter.opts for parameter in one.params):
                without.append(one.name)
    assert without == ["serve", "bench"], "a log is JSON with --log json; figures of tables are CSV files"


# Help


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("lern", "learn"), ("train", "learn"), ("log", "audit"), ("trin", "learn")),
        *(("report", "versions"), ("restore", "backup")),
    ],
)
def test_did_you_mean(typed: str, meant: str) -> None:
    found = gal(typed)
    assert found.exit_code == 2
    assert f"Did you mean gal {meant}?" in found.output


@pytest.mark.parametrize("typed", ["restor", "delet", "remov", "leav"])
def test_nothing_destructive_is_suggested_for_a_similar_word(typed: str) -> None:
    found = gal(typed)
    assert found.exit_code == 2
    assert not re.search("Did you mean gal (forget|backup|invite)", found.output)


def test_a_shell_completes_tasks(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert known_tasks("r") == [], "several nodes are here: none is guessed"
    gal("invite", "risk", "lab", "--home", "clinic")
    monkeypatch.chdir(two / "clinic")
    assert known_tasks("r") == ["risk"]
    assert known_tasks("x") == []


# Progress


def test_a_pipe_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine(every=0.0, early=0.0) as progress:
        progress("part 2 of 5, assisted", 0.25)
    with ProgressLine(every=1e6) as progress:
        progress("too soon", 0.5)
    with ProgressLine(every=0.0, quiet=True) as progress:
        progress("not asked for", 0.5)
    said = capsys.readouterr().err
    assert said.startswith("part 2 of 5, assisted (0 s so far, about 0 s left)")
    assert len(said.splitlines()) == 1


def watching(text: io.StringIO, *, terminal: bool = False) -> Watcher:
    screen = Screen()
    screen.file, screen._force_terminal = text, terminal
    screen.width = 80 if terminal else screen.width
    return Watcher(screen)


def test_waiting_is_said_in_a_pipe_now_and_then() -> None:
    text = io.StringIO()
    watcher = watching(text)
    watcher({"event": "waiting", "what": "for round 1", "organizations": ["lab"], "seconds": 600})
    watcher({"event": "waiting", "what": "for round 2", "organizations": ["lab"], "seconds": 600})
    assert "waiting for round 1: lab" in text.getvalue()
    assert "for round 2" not in text.getvalue(), "now and then, not always"


# Status


LEARNING = {"task": "risk", "state": "learning", "round": 3, "rounds": 10}


@pytest.mark.parametrize(
    ("role", "status", "activity", "said"),
    [
        ("label holder", "begun", None, "interrupted (resume it: gal learn risk)"),
        ("label holder", "begun", {"learning": None}, "interrupted (resume it: gal learn risk)"),
        ("label holder", "begun", {"learning": LEARNING}, "learning now, 3 of at most 10 rounds done"),
        ("label holder", "finished", None, "predicts with version 1"),
        ("organization", "begun", None, "being learned; this node does not run (gal serve)"),
        ("organization", "begun", {"computing": [{"task": "risk"}]}, "computing now"),
        ("organization", "begun", {"computing": []}, "being learned"),
    ],
)
def test_what_becomes_of_a_task(role: str, status: str, activity: Any, said: str) -> None:
    task: Any = SimpleNamespace(name="risk", role=role, status="open", active=1)
    assert task_state(task, {1: status}, activity) == said
