"""What new users stumbled over: each command typed again, in a narrow terminal and in a pipe."""

from __future__ import annotations

import contextvars
import fcntl
import io
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import typer
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

pytest.importorskip("duckdb")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from gal.cli.app import COMMANDS, PANELS, app, main
from gal.cli.evaluating.simulation import share_done
from gal.cli.learning import Watcher, print_version
from gal.cli.options import known_tasks
from gal.cli.screen.printing import (
    NAMED_HOME,
    ProgressLine,
    Screen,
    as_typed,
    command_line,
    print_table,
    span,
)
from gal.errors import (
    ConfigurationError,
    GALError,
    InvalidInputError,
    InvalidOptionError,
    PrivacyError,
    TaskError,
)
from gal.node.admin.status import begun_state
from gal.node.config.configuration import home_of
from gal.node.holder.doing import AWAY, CONNECTED, FITTING, GREETING, NOT_JOINED, Doing, member_states
from gal.node.runtime.control import starting_process

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


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("Then: gal learn risk --resume", "Then: gal learn --home clinic risk --resume"),
        (
            "(gal learn risk, or gal remove risk NAME)",
            "(gal learn --home clinic risk, or gal remove --home clinic risk NAME)",
        ),
        ("first gal cards add FILE, then all", "first gal cards add --home clinic FILE, then all"),
        ("gal restore --head HEAD", "gal restore --home clinic --head HEAD"),
        ("gal restore FILE", "gal restore FILE"),
        ("do they run (there: gal serve)?", "do they run (there: gal serve)?"),
        ("(there: [bold]gal join[/])", "(there: [bold]gal join[/])"),
        ("gal serve --home elsewhere; gal status", "gal serve --home elsewhere; gal status --home clinic"),
        ("gal cards add x.card --home lab", "gal cards add x.card --home lab"),
        ("gal init NAME, gal simulate", "gal init NAME, gal simulate"),
    ],
)
def test_commands_in_sentences_name_the_node(here: Path, said: str, typed: str) -> None:
    """One node in this folder is found by itself; of two, the command must say which."""
    gal("init", "clinic", "--data", "patients.csv", "--row-id", "patient")
    gal("status", "--home", "clinic")
    assert as_typed(said) == said
    gal("init", "lab", "--data", "patients.csv", "--row-id", "patient")
    gal("status", "--home", "clinic")
    assert as_typed(said) == typed
    monkey = contextvars.copy_context()
    monkey.run(NAMED_HOME.set, None)
    assert monkey.run(as_typed, said) == said


def test_errors_of_nodes_and_hints_are_commands_as_they_must_be_typed(
    two: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ``gal`` itself prints them, not as the node says them: it does not know where they are typed."""

    def said(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["gal", *words])
        with pytest.raises(SystemExit):
            main()
        found = capsys.readouterr()
        return found.out + found.err

    assert "No version yet" not in said("versions", "risk", "--home", "clinic")
    said("invite", "risk", "lab", "--home", "clinic")
    assert "No version yet: gal learn --home clinic risk" in said("versions", "risk", "--home", "clinic")
    assert "nothing to resume of 'risk': gal learn --home clinic risk" in said(
        "learn", "risk", "--resume", "--home", "clinic"
    )
    alone = said("learn", "risk", "--join", "0.1", "--home", "clinic")
    assert "Then: gal learn --home clinic risk" in alone
    assert "(there: gal serve)" in alone
    assert "(there: gal join)" in alone
    empty = said("status", "--home", "lab")
    assert "gal invite --home lab (own), gal join --home lab (of others)" in empty
    monkeypatch.setenv("GAL_HOME", str(two / "clinic"))
    assert "No version yet: gal learn risk" in said("versions", "risk", "--home", "clinic")


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


def test_what_to_type_after_init(here: Path) -> None:
    said = gal("init", "lab", "--data", "patients.csv", "--row-id", "patient").output
    assert f'source = "{here}/patients.csv"' in (here / "lab" / "node.toml").read_text()
    for line in ("gal doctor", "gal cards add OTHER.card", "gal join TASK.invitation", "gal serve"):
        assert f"  {line} --home lab " in said, "still right when the next node is made in this folder"
    assert "Nobody is known yet" in gal("cards", "list").output
    assert home_of() == here / "lab"
    assert command_line("gal", "serve", home=here / "lab") == "gal serve", "it is the only node here"


def test_several_nodes_have_to_be_told_apart(two: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"several nodes here \(clinic, lab\): say which with --home"
    ):
        home_of()
    assert command_line("gal", "serve", home=two / "lab") == "gal serve --home lab"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "gone.csv"], "there is no file 'gone.csv'"),
        (["--data", "patients.csv"], "no column 'id': say with --row-id"),
        (["--data", "patients.csv", "--row-id", "patent"], "Did you mean 'patient'"),
        (["--data", "patients.csv", "--row-id", "patient", "--label", "z"], "say with --label"),
        (["--data", "rows.xls", "--row-id", "id"], "saved as .xlsx or as CSV UTF-8"),
        (["--data", "patients.csv", "--endpoint", "http://store"], "endpoint is for object stores"),
        (["--endpoint", "http://store"], "--data names: give both"),
        (["--region", "eu"], "--data names: give both"),
        (["--table", "patients"], "--data names: give both"),
    ],
)
def test_what_cannot_be_is_said_before_there_is_a_folder(here: Path, words: list[str], said: str) -> None:
    (here / "rows.xls").write_bytes(b"PK")
    with pytest.raises(InvalidInputError, match=said):
        gal("init", "lab", *words)
    assert not (here / "lab").exists()


# What is printed


def printed(table: Table, *, width: int, terminal: bool) -> str:
    text = io.StringIO()
    print_table(table, Console(file=text, width=width, force_terminal=terminal, color_system=None))
    return text.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_never_cuts_a_word(terminal: bool, width: int) -> None:
    table = Table("name", "fingerprint", "a long note", title="all of them")
    table.add_row("local-losses-of-everybody", LONG, "words that may be broken between words " * 3)
    said = printed(table, width=width, terminal=terminal)
    assert "…" not in said
    assert "local-losses-of-everybody" in said
    assert LONG in said
    if terminal and width == 80:
        assert max(map(len, said.splitlines())) <= width, "a block of lines: the fingerprint has its own"
    if not terminal:
        assert len(said.splitlines()) == 6, "a pipe has as much room as it needs"


@pytest.mark.parametrize("width", [70, 72, 74, 80, 100, 200])
def test_words_are_whole_with_and_without_lines_between_columns(width: int) -> None:
    """The longest words need 74 columns side by side, with lines between them 82; else there are blocks."""
    heads = ("table", "what", "in the paper", "rows", "sets", "organizations", "runs")
    rows = [
        (
            "images-ablations",
            "Computation and communication",
            "Tables 1, 10 and 11",
            "12",
            "7",
            "most",
            "1520",
        ),
        ("uci", "Model autonomy", "-", "3", "7", "2, 4, 8", "72"),
    ]
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    out = Screen()
    out.file, out._force_terminal, out.width = io.StringIO(), True, width
    print_table(table, out)
    said = re.sub(r"\x1b\[[\d;]*m", "", out.file.getvalue())
    assert max(map(len, said.splitlines())) <= width
    assert ("│" in said) == (width >= 82)
    found = set(re.sub("[│┃]", " ", said).split())
    assert {word for row in (heads, *rows) for cell in row for word in cell.split()} <= found


def test_rows_are_as_low_as_there_is_room_for() -> None:
    """The first column is not whole at the price of the last one in four lines."""
    table = Table("who guesses", "R2 with messages", "without")
    for _ in range(5):
        table.add_row("the label holder", "0.68 (0.52 to 0.78)", "0.53 (0.31 to 0.66)")
    out = Screen()
    out.file, out._force_terminal, out.width = io.StringIO(), True, 44
    print_table(table, out)
    said = re.sub(r"\x1b\[[\d;]*m", "", out.file.getvalue())
    assert len(said.splitlines()) == 3 + 2 + 2 * 5
    assert "label" in said


def test_the_audit_log_leaves_out_columns_in_which_nothing_stands(two: Path) -> None:
    gal("invite", "risk", "lab", "--home", "clinic")
    said = gal("audit", "--home", "clinic").output
    assert "note" in said
    assert "round" not in said


def test_a_title_and_a_verdict_break_between_words() -> None:
    title = "the gain of 0.0330 by organization, on 442 rows that were not fitted"
    for terminal, width, lines in ((True, 40, 2), (False, 40, 1)):
        out = Screen()
        out.file, out._force_terminal, out.width = io.StringIO(), terminal, width
        print_table(Table("a", title=title), out)
        out.print(f"[bold]{title}[/]")
        said = re.sub(r"\x1b\[[\d;]*m", "", out.file.getvalue()).splitlines()
        assert " ".join(said[:lines]) == " ".join(said[-lines:]) == title


def test_the_audit_log_says_in_words_who_sent_what(two: Path) -> None:
    gal("invite", "risk", "lab", "--home", "clinic")
    said = gal("audit", "--home", "clinic").output
    assert "→" not in said
    assert "done here" in said
    assert "risk: lab" in said
    facts = json.loads(gal("audit", "--home", "clinic", "--json").output)
    assert facts["head"] in said


# Refused


def test_a_head_with_a_slip_is_no_altered_log(two: Path) -> None:
    with pytest.raises(InvalidInputError, match="'nonsense' is no head: one is sha256: and 64 digits"):
        gal("audit", "--home", "clinic", "--head", "nonsense")


def test_more_rounds_than_an_invitation_can_say(two: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"rounds 99999999999 cannot be in an invitation: .*1000000"):
        gal("invite", "risk", "lab", "--home", "clinic", "--rounds", 99999999999)


def test_a_secret_that_is_missing_is_said_before_the_first_learning(two: Path) -> None:
    said = gal("invite", "risk", "lab", "--home", "clinic", "--align", "hashed").output
    assert "this node has no secret for them yet" in said
    assert "data.secret_file" in gal("join", "risk.invitation", "--home", "lab", "--yes").output
    assert "no secret" not in gal("invite", "plain", "lab", "--home", "clinic").output
    Path("alignment.secret").write_text("0" * 64)
    toml = two / "clinic" / "node.toml"
    toml.write_text(toml.read_text().replace("[data]", '[data]\nsecret_file = "../alignment.secret"', 1))
    assert "no secret" not in gal("invite", "other", "lab", "--home", "clinic", "--align", "hashed").output


def test_what_is_no_invitation_says_what_one_is(two: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"is a folder: name the file TASK\.invitation in it"):
        gal("join", ".", "--home", "lab")
    with pytest.raises(
        InvalidInputError, match=r"is not an invitation .*: one is a file that the label holder made"
    ):
        gal("join", "patients.csv", "--home", "lab")


def test_ones_own_card_is_not_added(two: Path) -> None:
    with pytest.raises(InvalidInputError, match="the card of lab itself: hand it to the others"):
        gal("cards", "add", two / "lab" / "lab.card", "--home", "lab")


def test_another_key_says_how_to_replace_a_card(two: Path) -> None:
    gal("init", "lab", "--home", "other")
    with pytest.raises(GALError, match="gal cards add FILE --replace"):
        gal("cards", "add", "other/lab.card", "--home", "clinic")
    gal("cards", "add", "other/lab.card", "--home", "clinic", "--replace")


def test_inviting_again_with_other_options_is_refused(two: Path) -> None:
    gal("invite", "risk", "lab", "--rounds", 4, "--home", "clinic")
    gal("invite", "risk", "lab", "--home", "clinic")
    gal("invite", "risk", "lab", "--rounds", 4, "--home", "clinic")
    for words, said in {
        ("--rounds", "5"): "rounds is 4, not 5",
        ("--seed", "3"): "seed is 0, not 3",
        ("--align", "hashed"): "align is 'plain', not 'hashed'",
        ("-o", "patience=9"): "patience is 'not set', not 9",
    }.items():
        with pytest.raises(InvalidInputError, match=said):
            gal("invite", "risk", "lab", *words, "--home", "clinic")


def test_classes_are_weighed_by_the_label_holder_unless_labels_are_private(two: Path) -> None:
    gal("invite", "risk", "lab", "--home", "clinic", "-o", "class_weight=balanced")
    gal("invite", "other", "lab", "--home", "clinic", "-o", 'class_weight={"1": 4}')
    with pytest.raises(InvalidOptionError, match="'balanced' or a mapping"):
        gal("invite", "wrong", "lab", "--home", "clinic", "-o", "class_weight=even")
    pytest.importorskip("dp_accounting")
    noise = ["--privacy", "randomised-response", "--epsilon", 1, "--classes", "0,1"]
    with pytest.raises(PrivacyError, match="class_weight would tell"):
        gal("invite", "private", "lab", "--home", "clinic", "-o", "class_weight=balanced", *noise)


def test_leaving_and_removing_happen_once(two: Path) -> None:
    gal("invite", "risk", "lab", "--home", "clinic")
    gal("join", "risk.invitation", "--yes", "--home", "lab")
    assert json.loads(gal("leave", "risk", "--home", "lab", "--json").output) == {"left": "risk"}
    with pytest.raises(TaskError, match="left already: gal forget risk"):
        gal("leave", "risk", "--home", "lab")
    removed = json.loads(gal("remove", "risk", "lab", "--home", "clinic", "--json").output)
    assert removed == {"task": "risk", "removed": ["lab"]}
    with pytest.raises(InvalidInputError, match="shop is not in 'risk'; in it are: nobody"):
        gal("remove", "risk", "shop", "--home", "clinic")
    with pytest.raises(InvalidInputError, match="removed from 'risk' already: lab"):
        gal("remove", "risk", "lab", "--home", "clinic")
    forgot = gal("forget", "risk", "--yes", "--home", "clinic", "--json")
    assert json.loads(forgot.output) == {"forgot": "risk", "files": 0}
    assert json.loads(gal("cards", "remove", "lab", "--home", "clinic", "--json").output) == {
        "removed": "lab"
    }


def test_every_command_that_prints_speaks_json() -> None:
    group: Any = typer.main.get_command(app)
    without = []
    for name in COMMANDS:
        command = group.get_command(None, name)
        for one in getattr(command, "commands", {name: command}).values():
            if not any("--json" in parameter.opts for parameter in one.params):
                without.append(one.name)
    assert without == ["serve"], "its log is JSON with --log json"


# Help


def test_commands_stand_under_headings() -> None:
    said = gal("--help").output
    assert sorted(name for names in PANELS.values() for name in names) == sorted(COMMANDS)
    places = [said.index(title) for title in PANELS]
    assert places == sorted(places)
    assert "--install-completion" in said


@pytest.mark.parametrize(
    ("typed", "meant"), [("lern", "learn"), ("train", "learn"), ("log", "audit"), ("trin", "learn")]
)
def test_did_you_mean(typed: str, meant: str) -> None:
    found = gal(typed)
    assert found.exit_code == 2
    assert f"Did you mean gal {meant}?" in found.output


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
    with ProgressLine(every=0.0) as progress:
        progress("part 1 of 5, pooled", 0.1)  # too early to tell how long the rest takes
    with ProgressLine(every=1e6) as progress:
        progress("too soon", 0.5)
    with ProgressLine(every=0.0, quiet=True) as progress:
        progress("not asked for", 0.5)
    said = capsys.readouterr().err
    assert said.startswith("part 2 of 5, assisted (0 s so far, about 0 s left)")
    assert said.splitlines()[1:] == ["part 1 of 5, pooled"]


def test_shares_of_a_simulation_grow() -> None:
    steps = ["part 1 of 2, alone", "part 1 of 2, assisted", "part 1 of 2, assisted, round 5 of at most 10"]
    steps += ["part 1 of 2, pooled", "part 2 of 2, alone", "part 2 of 2, assisted, round 10 of at most 10"]
    shares = [share_done(step) for step in steps]
    assert shares == sorted(shares, key=lambda one: one or 0.0)
    assert shares[4] == 0.5
    assert share_done("confidence intervals") is None
    assert [span(one) for one in (8, 180, 9000)] == ["8 s", "3 min", "2.5 h"]


def watching(text: io.StringIO, *, terminal: bool = False) -> Watcher:
    screen = Screen()
    screen.file, screen.width = text, 80
    screen._force_terminal = terminal
    return Watcher(screen)


@pytest.mark.parametrize("terminal", [False, True])
def test_figures_of_rounds_are_explained_once(terminal: bool) -> None:
    text = io.StringIO()
    watcher = watching(text, terminal=terminal)
    one = {"event": "round", "rounds": 10, "train_loss": 0.5, "rate": 1.0, "weights": {}, "missed": {}}
    for number in (1, 2):
        watcher(one | {"round": number, "loss": "log_loss"})
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text.getvalue()).splitlines()
    assert all(len(line) <= 80 for line in lines) is terminal
    said = " ".join(lines)
    assert said.startswith(
        "Each round: loss (log loss of the rows that are learned from, lower is better), weights ("
    )
    assert said.count("lower is better") == 1
    assert said.index("lower is better") < said.index("round  1: loss 0.5")


def test_what_others_say_is_not_for_this_node(two: Path) -> None:
    """A refusal of the lab names a command for the lab; a hint of this node names this node."""
    text = io.StringIO()
    gal("status", "--home", "clinic")
    watcher = watching(text)
    watcher({"event": "refused", "organization": "lab", "why": "gal cards add FILE, then join again"})
    words = {
        "words": "None.",
        "mechanism": "none",
        "spent": None,
        "budget": None,
        "at_delta": 0,
        "left": None,
    }
    watcher({"event": "privacy"} | words)
    assert "gal cards add FILE, then" in text.getvalue()
    assert "(gal privacy --home clinic shows why)" in text.getvalue()


def test_waiting_is_said_in_a_pipe_and_the_rest_is_estimated() -> None:
    text = io.StringIO()
    updates: list[str] = []
    watcher = watching(text)
    watcher.spinner = SimpleNamespace(update=updates.append)
    watcher({"event": "waiting", "what": "for round 1", "organizations": ["lab"], "seconds": 600})
    watcher({"event": "waiting", "what": "for round 2", "organizations": ["lab"], "seconds": 600})
    assert "waiting for round 1: lab" in text.getvalue()
    assert "for round 2" not in text.getvalue(), "now and then, not always"
    one = {"event": "round", "rounds": 10, "train_loss": 1.0, "rate": 1.0, "weights": {}, "missed": {}}
    for number in (3, 4):
        watcher(one | {"round": number})
    assert updates[0] == "round 3 of at most 10 is done"
    assert updates[1].startswith("round 4 of at most 10 is done, about ")


def test_what_protects_labels_is_explained_once() -> None:
    """Before anything is sent; afterwards only what it cost."""
    text = io.StringIO()
    standing = {"spent": None, "at_delta": 0.0, "budget": None, "left": None}
    privacy = {"mechanism": "none", "epsilon": None, "delta": None, "words": "A whole paragraph."} | standing
    facts = {
        **{"task": "risk", "version": 1, "rounds": 1, "rounds_learned": 1, "n_rows": 3, "seconds": 1.0},
        **{"initial_train_loss": 1.0, "train_loss": 0.5, "track": "assisted", "privacy": privacy},
        **{"contributions": None, "missed": {}, "known_rows": {}, "stopped": "all done"},
    }
    print_version(facts, Console(file=text, width=200))
    assert "A whole paragraph." not in text.getvalue()
    assert "Privacy: none. What was told" in text.getvalue()


# Status


def test_what_members_do_now() -> None:
    members = {
        "lab": "invited",
        "ward": "invited",
        "shop": "invited",
        "bank": "invited",
        "gone": "left: away",
    }
    found = member_states(members, {"lab": False, "ward": True}, ["lab", "ward", "shop"], {"lab", "bank"})
    assert found == {
        **{"lab": FITTING, "ward": CONNECTED, "shop": NOT_JOINED, "bank": AWAY},
        "gone": "left: away",
    }
    assert member_states(members, {}, ["lab", "shop"], set(), {"lab"})["lab"] == GREETING


def test_a_second_learning_says_what_is_learned() -> None:
    doing = Doing()
    doing.note({"event": "round", "version": 1})
    assert doing.facts() is None
    doing.begin("risk")
    doing.note({"event": "round", "version": 2, "round": 3, "rounds": 10})
    assert doing.sentence() == (
        "this node is learning 'risk' already (version 2, 3 of at most 10 rounds are done)"
    )
    doing.end()
    assert doing.facts() is None


def test_a_node_that_starts_is_no_node_that_does_not_run(two: Path) -> None:
    home = two / "lab"
    assert starting_process(home) is None
    assert "does not run" in gal("status", "--home", home).output
    with open(home / "node.lock", "a+", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert starting_process(home) == 0
        lock.write("4711")
        lock.flush()
        assert "starts (process 4711)" in gal("status", "--home", home).output
    assert starting_process(home) is None


def test_a_version_that_was_begun_is_learned_or_interrupted() -> None:
    own: Any = SimpleNamespace(id="a", name="risk", role="label holder")
    learning = {"learning": {"task": "risk", "round": 3, "rounds": 10}}
    assert begun_state(own, None) == "interrupted (gal learn risk --resume)"
    assert begun_state(own, {"learning": None}) == "interrupted (gal learn risk --resume)"
    assert begun_state(own, learning) == "learning, 3 of at most 10 rounds done"
    joined: Any = SimpleNamespace(id="b", name="risk", role="organization")
    assert "does not run" in begun_state(joined, None)
    assert begun_state(joined, {"working": ["b"]}) == "learning: fitting now"
    assert begun_state(joined, {"working": ["a"]}) == "begun; waits to be asked"


def test_what_to_type_next_names_the_node_where_there_are_several(two: Path) -> None:
    gal("invite", "risk", "lab", "--home", "clinic")
    assert "gal serve --home lab" in gal("join", "risk.invitation", "--yes", "--home", "lab").output
    assert "gal serve --home lab" in gal("status", "--home", "lab").output
    assert "gal forget risk --home lab" in gal("leave", "risk", "--home", "lab").output
