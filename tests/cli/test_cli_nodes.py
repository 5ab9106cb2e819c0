"""The commands about nodes, as a person and as a script meet them: real homes, real
processes, documented exit codes.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from forked import Forked
from gal import Organization, Validation, learn
from gal.cli.app import main
from gal.core.state import plain
from gal.models import LinearModel
from gal.node.store.state import State
from patience import LONGEST, patient, until
from ports import free_port
from report_pages import ReadPage, check_harmless

PROGRAM = [sys.executable, "-c", "from gal.cli.app import main; main()"]


class Said(NamedTuple):
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def facts(self) -> Any:
        """What was printed for machines: JSON and nothing else."""
        return json.loads(self.out)


def gal(*words: Any, code: int = 0, answer: str = "") -> Said:
    """Run a command in this process; ``code`` is how it must end."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", ["gal", *map(str, words)])
        patch.setattr(sys, "stdin", io.StringIO(answer))
        patch.setenv("COLUMNS", "200")
        with redirect_stderr(io.StringIO()) as err:
            try:
                main()
                status: Any = 0
            except SystemExit as end:
                status = end.code
    said = Said(int(status or 0), out.getvalue(), err.getvalue())
    assert said.code == code, said
    if code in {2, 3} and said.err.startswith("error:"):
        assert len(said.err.strip().splitlines()) == 1, said.err
    return said


def serve(home: Path) -> subprocess.Popen[bytes]:
    """A node in a process of its own, once it takes commands."""
    process = Forked([*PROGRAM, "serve", "--home", str(home)], stderr=subprocess.DEVNULL)
    wait(lambda: (home / "control.sock").exists() or process.poll() is not None)
    assert process.poll() is None
    return process


def end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> int:
    if process.poll() is None:
        process.send_signal(how)
    try:
        return process.wait(patient(30))
    finally:
        process.kill()


def wait(ready: Callable[[], bool], seconds: float = LONGEST) -> None:
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until
        time.sleep(0.05)


class Town:
    """A clinic that learns and a lab that helps; the clinic's path is too long for a socket."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clinic, self.lab = root / ("long " * 24).strip() / "clinic", root / "lab"
        self.clinic.parent.mkdir(parents=True)
        assert len(os.fsencode(self.clinic)) > 100, "longer than the path of a socket may be"
        rng = np.random.default_rng(0)
        X = rng.normal(size=(90, 4))
        y = X[:, 0] + 2 * X[:, 2] + 0.1 * rng.normal(size=90)
        ids = np.arange(90) + 500
        self.table = pd.DataFrame({"patient": ids, "age": X[:, 0], "bp": X[:, 1], "risk": y})
        self.table[:80].to_csv(root / "clinic.csv", index=False)
        pd.DataFrame({"patient": ids, "s1": X[:, 2], "s2": X[:, 3]}).to_csv(root / "lab.csv", index=False)
        self.said: dict[str, Said] = {}
        self.found()

    def found(self) -> None:
        port = free_port()
        given = ["--row-id", "patient", "--json"]
        where = ["--label", "risk", "--listen", f"127.0.0.1:{port}"]
        data = {name: ["--data", self.root / f"{name}.csv"] for name in ("clinic", "lab")}
        self.said["clinic"] = gal("init", "clinic", "--home", self.clinic, *data["clinic"], *given, *where)
        self.said["lab"] = gal("init", "lab", "--home", self.lab, *data["lab"], *given)
        cards = {"lab": self.lab / "lab.card", "clinic": self.clinic / "clinic.card"}
        self.said["card"] = gal("cards", "add", cards["lab"], "--home", self.clinic, "--json")
        gal("cards", "add", cards["clinic"], "--home", self.lab)
        for home in (self.clinic, self.lab):
            text = (home / "node.toml").read_text()
            (home / "node.toml").write_text(text.replace('use = "tabular"', 'use = "linear"'))
        self.invite("risk")
        gal("join", self.root / "risk.invitation", "--home", self.lab, "--yes")

    def invite(self, task: str) -> None:
        out = ["--out", self.root / f"{task}.invitation", "-o", "cross_validation=0"]
        words = ["invite", task, "lab", "--home", self.clinic, "--rounds", 2, *out, "--json"]
        self.said[f"invite {task}"] = gal(*words)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """The lab runs all the time; the first version was learned without a running clinic."""
    made = Town(tmp_path_factory.mktemp("a town with spaces"))
    lab = serve(made.lab)
    try:
        made.said["learn"] = gal("learn", "risk", "--home", made.clinic, "--json")
        yield made
    finally:
        assert end(lab) == 0


# Making a node


def test_a_new_node_for_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = gal("init", "shop")
    assert "shop.card" in said.out
    assert "gal doctor" in said.out
    assert (tmp_path / "shop" / "node.toml").is_file()
    assert "there is a node in" in gal("init", "shop", code=2).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a/b"], "a/b"),
        (["shop", "--listen", "nowhere"], "host:port"),
        (["shop", "--listen", "127.0.0.1:99999"], "99999"),
    ],
)
def test_nodes_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in gal("init", *words, code=2).err
    assert [*tmp_path.rglob("key.pem")] == []


def test_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GAL_HOME", raising=False)
    commands = [["status"], ["audit"], ["learn", "t"], ["predict", "t", "x.csv"], ["versions", "t"]]
    commands += [["invite", "t", "lab"], ["join", "x"], ["forget", "t", "--yes"], ["serve"]]
    commands += [["versions", "t", "--activate", "1"], ["cards", "rotate"]]
    for words in commands:
        said = gal(*words, code=2)
        assert "gal init" in said.err or "node.toml" in said.err, (words, said)
        assert [*tmp_path.iterdir()] == [], words


def test_the_home_from_the_environment(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAL_HOME", str(town.clinic))
    assert gal("status", "--json").facts["organization"] == "clinic"
    assert gal("status", "--json", "--home", town.lab).facts["organization"] == "lab"


# Cards


def test_cards(town: Town, tmp_path: Path) -> None:
    listed = gal("cards", "list", "--home", town.clinic, "--json").facts
    assert listed == {"lab": {"fingerprint": town.said["lab"].facts["fingerprint"], "address": None}}
    assert "lab" in gal("cards", "list", "--home", town.clinic).out
    gal("init", "shop", "--home", tmp_path / "shop")
    gal("cards", "add", tmp_path / "shop" / "shop.card", "--home", town.clinic, "--name", "store")
    assert "store" in gal("cards", "list", "--home", town.clinic, "--json").facts
    before = gal("status", "--home", tmp_path / "shop", "--json").facts["fingerprint"]
    rotated = gal("cards", "rotate", "--home", tmp_path / "shop", "--json").facts
    assert rotated["fingerprint"] != before
    gal("cards", "add", rotated["card"], "--home", town.clinic, "--name", "store", "--replace")
    assert "The card of store was removed" in gal("cards", "remove", "store", "--home", town.clinic).out
    assert "store" in gal("cards", "remove", "store", "--home", town.clinic, code=3).err
    (tmp_path / "x.card").write_text("no card")
    assert "x.card" in gal("cards", "add", tmp_path / "x.card", "--home", town.clinic, code=3).err
    assert "gone.card" in gal("cards", "add", tmp_path / "gone.card", "--home", town.clinic, code=3).err


# Looking


def test_doctor(town: Town, tmp_path: Path) -> None:
    said = gal("doctor", "--home", town.lab, "--json")  # the clinic does not run, and need not
    assert [one["message"] for one in said.facts if one["ok"] is False] == []
    (tmp_path / "gone.csv").write_text("id,x\n1,2\n")
    gal("init", "shop", "--home", tmp_path / "shop", "--data", tmp_path / "gone.csv", "--row-id", "id")
    (tmp_path / "gone.csv").unlink()
    said = gal("doctor", "--home", tmp_path / "shop", code=2)
    assert "gone.csv" in said.out
    assert "to do:" in said.out
    (tmp_path / "shop" / "node.toml").write_text('name = "shop"\nsurprise = 1\n')
    assert "surprise" in gal("doctor", "--home", tmp_path / "shop", code=2).out
    assert "surprise" in gal("status", "--home", tmp_path / "shop", code=2).err


def test_status(town: Town) -> None:
    facts = gal("status", "--home", town.lab, "--json").facts
    assert facts["running"]["organization"] == "lab"
    task = facts["tasks"][0]
    assert (task["name"], task["role"], task["label_holder"]) == ("risk", "organization", "clinic")
    assert "runs" in gal("status", "--home", town.lab).out
    facts = gal("status", "--home", town.clinic, "--json").facts
    assert facts["running"] is None
    assert facts["tasks"][0]["state"] == "predicts with version 1"
    assert "does not run" in gal("status", "--home", town.clinic).out


def test_audit(town: Town) -> None:
    facts = gal("audit", "--home", town.lab, "--json", "--last", 0).facts
    kinds = [one["kind"] for one in facts["entries"]]
    assert kinds[0] == "joined"
    assert {"begin", "begun", "fit", "fitted", "end", "done"} <= set(kinds)
    assert facts["n"] == len(kinds)
    said = gal("audit", "--home", town.lab).out
    assert "verified" in said
    assert "fitted" in gal("audit", "--home", town.lab, "--summary").out
    only = gal("audit", "--home", town.lab, "--task", "risk", "--peer", "clinic", "--json").facts["entries"]
    assert "entries about: clinic" in gal("audit", "--home", town.lab, "--peer", "gone", code=2).err
    assert {one["peer"] for one in only} == {"clinic"}
    gal("audit", "--home", town.lab, "--head", facts["head"])
    assert gal("audit", "--home", town.lab, "--head", "sha256:" + "1" * 64, code=3).err
    assert "no task is called 'rsk'" in gal("audit", "--home", town.lab, "--task", "rsk", code=3).err


# Tasks


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["other", "shop"], 2, "no card of shop; known are: lab"),
        (["../x", "lab"], 2, "../x"),
        (["other", "clinic"], 2, "clinic"),
        (["other", "lab", "-o", "kind=guess"], 2, "kind must be"),
        (["other", "lab", "--align", "guess"], 2, "--align"),
        (["other", "lab", "--rounds", "0"], 2, "rounds"),
        (["other", "lab", "-o", "surprise=1"], 2, "surprise"),
        (["other", "lab", "-o", "rounds"], 2, "name=value"),
        (["other", "lab", "-o", "validation_fraction=5"], 2, "validation_fraction"),
        (["other", "lab", "-o", "stacking=true"], 2, "stack"),
        (["other"], 2, "ORGANIZATIONS"),
    ],
)
def test_invitations_that_cannot_be(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said.lower() in gal("invite", *words, "--home", town.clinic, code=code).err.lower()
    assert [*tmp_path.iterdir()] == []
    assert "other" not in gal("status", "--home", town.clinic).out


def test_an_organization_without_a_port_cannot_invite(town: Town) -> None:
    assert "[listen]" in gal("invite", "own", "clinic", "--home", town.lab, code=3).err


def test_joining(town: Town, tmp_path: Path) -> None:
    town.invite("stay")
    path = town.root / "stay.invitation"
    said = gal("join", path, "--home", town.lab, answer="n\n", code=1)
    assert "at most 2 rounds" in said.out
    assert "Not joined" in said.out
    assert "stay" not in {one["name"] for one in gal("status", "--home", town.lab, "--json").facts["tasks"]}
    assert gal("join", path, "--home", town.lab, "--yes", "--json").facts["label_holder"] == "clinic"
    assert "there is no file" in gal("join", tmp_path / "gone", "--home", town.lab, code=2).err
    (tmp_path / "x").write_text("{}")
    assert "not an invitation" in gal("join", tmp_path / "x", "--home", town.lab, code=2).err
    said = gal("join", path, "--home", town.clinic, "--yes", code=2)
    assert "is an invitation of clinic itself: send it to the organizations" in said.err


def test_withdrawing_and_forgetting_happen_once(town: Town) -> None:
    town.invite("gone")
    gal("join", town.root / "gone.invitation", "--home", town.lab, "--yes")
    withdraw = ["invite", "gone", "lab", "--withdraw", "--home", town.clinic]
    assert "shop is not in 'gone'" in gal(*withdraw[:2], "shop", *withdraw[3:], code=2).err
    assert "lab removed" in gal(*withdraw).out
    assert "removed from 'gone' already: lab" in gal(*withdraw, code=2).err
    assert gal("forget", "gone", "--home", town.lab, answer="n\n", code=1)
    assert "Forgot gone" in gal("forget", "gone", "--home", town.lab, "--yes").out
    states = {one["name"]: one["state"] for one in gal("status", "--home", town.lab, "--json").facts["tasks"]}
    assert states["gone"] == "left", "until the label holder has been told"
    again = gal("forget", "gone", "--home", town.lab, "--yes", "--json").facts
    assert again == {"forgot": "gone", "files": 0}
    assert "no task is called 'gone'" in gal("forget", "gone", "--home", town.lab, "--yes", code=3).err
    notes = [one["note"] for one in gal("audit", "--home", town.lab, "--json").facts["entries"]]
    assert any(note.startswith("gone: ") for note in notes)


def test_learning_for_machines(town: Town) -> None:
    facts = town.said["learn"].facts
    assert (facts["task"], facts["version"], facts["status"], facts["n_rows"]) == ("risk", 1, "finished", 80)
    assert set(facts["contributions"]["by_organization"]) == set(facts["known_rows"]) - {"clinic"}
    assert "round  1" in town.said["learn"].err


def test_real_processes_learn_what_one_process_does(town: Town) -> None:
    """To the last bit: same views, models, seed and threads."""
    state = State(town.clinic)
    try:
        learned = state.learned_version(state.find_task("risk").id, 1)
    finally:
        state.close()
    assert learned is not None
    assert learned.outcome is not None
    lab = pd.read_csv(town.root / "lab.csv")[:80]
    members = [
        Organization("clinic", town.table[:80][["age", "bp"]].to_numpy(), LinearModel()),
        Organization("lab", lab[["s1", "s2"]].to_numpy(), LinearModel()),
    ]
    expected = learn(town.table[:80]["risk"].to_numpy(), members, rounds=2, validation=Validation(folds=0))
    assert json.dumps(learned.outcome.ensemble, sort_keys=True) == json.dumps(plain(expected), sort_keys=True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["rsk"], 3, "no own task is called 'rsk'; the own tasks here: risk"),
        (["risk", "--deadline", "0"], 2, "deadline"),
        (["risk", "--quorum", "-1"], 2, "quorum"),
        (["risk", "--wait", "x"], 2, "wait"),
    ],
)
def test_learning_that_cannot_be(town: Town, words: list[str], code: int, said: str) -> None:
    assert said in gal("learn", *words, "--home", town.clinic, code=code).err


def test_who_does_not_listen_learns_nothing(town: Town) -> None:
    said = gal("learn", "risk", "--home", town.lab, code=3)  # its node runs, and knows no such command
    assert "[listen]" in said.err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_learning_that_is_interrupted(town: Town, how: signal.Signals) -> None:
    """It waits for one who has not joined, says so, and ends cleanly when told to."""
    town.invite(f"waits-{how.name}")
    words = [*PROGRAM, "learn", f"waits-{how.name}", "--home", str(town.clinic)]
    with Forked(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait((town.clinic / "control.sock").exists)
            process.send_signal(how)
            out, err = process.communicate(timeout=patient(60))
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted" in err
    assert out == ""
    gal("forget", f"waits-{how.name}", "--home", town.clinic, "--yes")


@pytest.fixture(scope="module")
def running(town: Town) -> Iterator[Town]:
    """The clinic runs, too."""
    process = serve(town.clinic)
    try:
        town.table.drop(columns="risk").to_csv(town.root / "new.csv", index=False)
        yield town
    finally:
        assert end(process, signal.SIGINT) == 0


def test_a_home_runs_once(running: Town) -> None:
    assert "already runs" in gal("serve", "--home", running.clinic, code=3).err


def test_doctor_finds_nothing(running: Town) -> None:
    for home in (running.lab, running.clinic):
        assert all(one["ok"] is not False for one in gal("doctor", "--home", home, "--json").facts)


def test_versions(running: Town) -> None:
    """New rows, a second version and rollback, all through the running node."""
    running.table.to_csv(running.root / "clinic.csv", index=False)
    report = running.root / "report.html"
    said = gal("learn", "risk", "--home", running.clinic, "--quorum", "2")
    assert "version 2" in said.out
    assert "90 rows" in said.out
    assert "there were no validation rows" in said.out
    activate = ["versions", "risk", "--home", running.clinic, "--activate"]
    gal(*activate, 2)
    found = gal("versions", "risk", "--home", running.clinic, "--json").facts
    assert found["active"] == 2
    assert [one["status"] for one in found["versions"].values()] == ["finished", "finished"]
    assert "active" in gal("versions", "risk", "--home", running.clinic, "--report", report).out
    page = ReadPage(report.read_text(encoding="utf-8"))
    check_harmless(page)
    assert "2 (active)" in page.words
    assert "residuals, one per row and output" in page.words
    assert "version 1 now, instead of 2" in gal(*activate, 1).out
    before = gal("audit", "--home", running.clinic, "--json").facts["n"]
    assert "version 1 already: nothing changes" in gal(*activate, 1).out
    assert gal("audit", "--home", running.clinic, "--json").facts["n"] == before
    assert "no finished version 7" in gal(*activate, 7, code=3).err
    predicted = gal("predict", "risk", running.root / "new.csv", "--home", running.clinic, "--json").facts
    assert predicted["version"] == 1
    assert "lab: connected" in gal("status", "--home", running.clinic).out


def test_ids_that_come_twice_are_refused_with_the_name_of_their_file(running: Town, tmp_path: Path) -> None:
    first = (running.root / "new.csv").read_text().splitlines()
    (tmp_path / "twice.csv").write_text("\n".join([*first, first[1]]))
    said = gal("predict", "risk", tmp_path / "twice.csv", "--home", running.clinic, code=2).err
    assert "twice.csv" in said
    assert "1 row has an id that another row has too" in said


def test_predicting_to_a_file_and_to_the_screen(running: Town, tmp_path: Path) -> None:
    words = ["predict", "risk", running.root / "new.csv", "--home", running.clinic]
    facts = gal(*words, "--json").facts
    assert (facts["n_rows"], facts["degraded"], facts["missing"]) == (90, 0, {})
    said = gal(*words, "--out", tmp_path / "out.csv")
    assert "90 predictions" in said.err
    written = pd.read_csv(tmp_path / "out.csv")
    assert written["prediction"].tolist() == pytest.approx([row["prediction"] for row in facts["rows"]])
    assert gal(*words).out == (tmp_path / "out.csv").read_text()
    assert "gone" in gal(*words, "--out", tmp_path / "gone" / "out.csv", code=2).err
    rows = (running.root / "new.csv").read_text().splitlines()
    (tmp_path / "one.csv").write_text("\n".join(rows[:2]))
    one = gal("predict", "risk", tmp_path / "one.csv", "--home", running.clinic)
    assert "\n1 prediction, version 1; 0 are degraded." in f"\n{one.err}"
    (tmp_path / "unknown.csv").write_text(f"{rows[0]}\n{re.sub('^[^,]*', '987654', rows[1])}\n")
    unknown = gal("predict", "risk", tmp_path / "unknown.csv", "--home", running.clinic)
    assert "\n1 prediction, version 1; 1 is degraded." in f"\n{unknown.err}"


def test_forgetting_beside_a_running_node(running: Town) -> None:
    running.invite("brief")
    gal("join", running.root / "brief.invitation", "--home", running.lab, "--yes")
    assert gal("learn", "brief", "--home", running.clinic, "--json").facts["version"] == 1
    for home in (running.lab, running.clinic):
        gal("forget", "brief", "--home", home, "--yes")
    words = ["predict", "brief", running.root / "new.csv", "--home", running.clinic]
    assert "no own task is called 'brief'" in gal(*words, code=3).err
    homes = (running.lab, running.clinic)
    until(lambda: all("brief" not in gal("status", "--home", home).out for home in homes), "word of it")
