"""The demo: its parts, the whole of it with real processes and a kill, and (slow) Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import forked
import gal
from gal.cli.demo import demo, print_demo
from gal.errors import InvalidInputError, NodeError
from gal.node.work.sandbox import landlock_version
from gal_bench.demo.confined import can_reach
from gal_bench.demo.demo_checks import InOneProcess
from gal_bench.demo.four_nodes import (
    HOLDER,
    LABEL,
    PARTS,
    VICTIM,
    DemoFacts,
    Killed,
    Separated,
    _Round,
    check_empty,
    spread_patients,
    what_left,
)
from gal_bench.demo.processes import Processes
from patience import patient

PROGRAM = [sys.executable, "-c", "from gal.cli import main; main()"]


# The data


def test_nobody_holds_columns_of_another_or_labels_of_new_patients() -> None:
    patients = spread_patients()
    for name, columns in PARTS.items():
        assert list(patients.rows_of(name).columns) == [*columns, *([LABEL] if name == HOLDER else [])]
    new = set(patients.table.index[patients.new])
    assert not new & set(patients.rows_of(HOLDER).index)
    assert len(patients.rows_of(HOLDER)) + len(new) == 442


def test_only_one_organization_does_not_know_everybody() -> None:
    patients = spread_patients()
    everybody = set(patients.table.index)
    unknown = {name: everybody - set(patients.rows_of(name).index) for name in PARTS if name != HOLDER}
    assert [name for name, missing in unknown.items() if missing] == [VICTIM]
    assert unknown[VICTIM] & set(patients.table.index[patients.new])  # prediction meets unknown rows, too
    assert unknown[VICTIM] & set(patients.rows_of(HOLDER).index)


# The checks


def test_the_check_in_one_process_is_what_gal_learn_does() -> None:
    patients = spread_patients()
    order = [*(name for name in PARTS if name != HOLDER), HOLDER]
    tables = {name: patients.table[PARTS[name]] for name in order}
    ids, learned, new = patients.table.index.to_numpy(), patients.learned, patients.new
    ensemble, output = InOneProcess(tables).run(ids[learned], patients.y[learned], ids[new], 3)
    members = [
        gal.Organization(name, np.ascontiguousarray(tables[name].to_numpy()[learned])) for name in order
    ]
    expected = gal.learn(
        patients.y[learned], members, kind="regression", label_holder=HOLDER, rounds=3, seed=0
    )
    views = {name: np.ascontiguousarray(tables[name].to_numpy()[new]) for name in order}
    assert ensemble == expected
    assert (output == gal.predict(expected, members, views).output[:, 0]).all()


def test_rows_that_nobody_misses_change_the_check() -> None:
    """It would notice a learning that ignores who knows whom."""
    patients = spread_patients()
    full = {name: patients.table[PARTS[name]] for name in PARTS}
    some = full | {"lab": full["lab"].iloc[np.sort(patients.known["lab"])]}
    ids = patients.table.index.to_numpy()
    outputs = [
        InOneProcess(tables).run(ids[patients.learned], patients.y[patients.learned], ids[patients.new], 2)[1]
        for tables in (full, some)
    ]
    assert not np.array_equal(outputs[0], outputs[1])


# What is told


@pytest.fixture
def facts() -> DemoFacts:
    audit = {
        "n": 9,
        "summary": [
            {"direction": "out", "peer": "clinic", "kind": "fitted", "messages": 5, "n_bytes": 1000},
            {"direction": "out", "peer": "clinic", "kind": "joined", "messages": 2, "n_bytes": 80},
            {"direction": "in", "peer": "clinic", "kind": "fit", "messages": 5, "n_bytes": 7777},
        ],
    }
    return DemoFacts(
        alone=0.2,
        assisted=0.45,
        pooled=0.5,
        pooled_model="linear model",
        metric="r2",
        learned_rows=332,
        predicted_rows=110,
        degraded_rows=2,
        unknown_rows={"lab": 10},
        rounds=3,
        rounds_learned=7,
        seconds=30.0,
        learning_seconds=9.5,
        bytes={"sent": 12345, "received": 54321},
        contributions={"clinic": 0.25, "lab": 0.75},
        left={"lab": what_left(audit)},
        killed=Killed("lab", 2, 5, 3, 2.5),
        missed={},
        identical=True,
        separated=Separated("landlock", 75, 75),
        folder=None,
    )


def told(facts: DemoFacts) -> str:
    out = io.StringIO()
    print_demo(facts, Console(file=out, width=200))
    return out.getvalue()


def test_no_command_and_no_name_is_cut(
    facts: DemoFacts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe no line breaks within a sentence; what is to be typed is one line, and can be typed."""
    place = "/tmp/" + "a folder " * 12
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("gal_bench.demo.four_nodes.run_demo", lambda *_, **__: replace(facts, folder=place))
    demo(keep=None)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("A clinic wants") and line.endswith("mutual TLS.") for line in lines)
    assert any(
        line.startswith("Alone, the clinic") and line.endswith("lab (75%), clinic (25%).") for line in lines
    )
    assert lines.count("") == 3, "parts stand apart"
    [last] = [line for line in lines if "gal audit" in line]
    assert shlex.split(last.partition("Look around: ")[2]) == ["gal", "audit", "--home", f"{place}/lab"]


def test_what_left_counts_only_what_left(facts: DemoFacts) -> None:
    assert facts.left["lab"].messages == {"fitted": 5, "joined": 2}
    assert sum(facts.left["lab"].n_bytes.values()) == 1080
    assert "7,777" not in told(facts)


def test_the_facts_in_words(facts: DemoFacts) -> None:
    text = told(facts)
    for words in (
        "83% of the way",
        "with 3 of 5 fits done",
        "back after 2.5 s",
        "No round was missed",
        "bit for bit",
        "75 times",
    ):
        assert words in text


def test_bad_news_is_told(facts: DemoFacts) -> None:
    worse = replace(
        facts, killed=None, identical=False, separated=Separated("nothing", 75, 0), missed={"lab": [2]}
    )
    text = told(worse)
    for words in ("before anybody could be killed", "please report it", "has no Landlock", "0 of 75"):
        assert words in text
    assert "It missed the rounds [2]" in told(replace(facts, missed={"lab": [2]}))


def test_facts_are_plain(facts: DemoFacts) -> None:
    plain = json.loads(json.dumps(facts.to_json()))
    assert plain["alone"] < plain["assisted"] < plain["pooled"]
    assert plain["killed"]["fits_done"] == 3


# When it kills


@pytest.mark.parametrize(
    ("round", "asked", "done", "expected"),
    [(1, 5, 2, False), (2, 5, 0, False), (2, 5, 1, True), (2, 5, 4, True), (2, 5, 5, False), (6, 5, 0, True)],
)
def test_it_kills_inside_a_round(round: int, asked: int, done: int, expected: bool) -> None:
    assert _Round(round, asked, done).in_a_fit is expected


# Processes


def test_an_empty_folder_is_needed(tmp_path: Path) -> None:
    check_empty(tmp_path)
    check_empty(tmp_path / "new")
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(InvalidInputError, match="not an empty folder"):
            check_empty(place)


def homes(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / name for name in ("bank", "shop")}
    for home in found.values():
        home.mkdir()
        (home / "rows.csv").write_text("id\n1\n")
    return found


def test_processes_end_with_the_demo(tmp_path: Path) -> None:
    waits = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
    with Processes(waits, homes(tmp_path)) as processes:
        started = [processes.start(name, "serve") for name in ("bank", "shop")]
        assert [one.poll() for one in started] == [None, None]
    assert [one.poll() for one in started] == [-signal.SIGKILL, -signal.SIGKILL]


def test_a_process_is_at_home_in_its_folder_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAL_HOME", "/elsewhere")
    script = "import os, sys; print(os.getcwd(), os.environ['GAL_HOME'], *sys.argv[1:])"
    places = homes(tmp_path.resolve())
    with Processes([sys.executable, "-c", script], places) as processes:
        printed = processes.together({name: [["status"]] for name in places})
    bank, shop = map(str, places.values())
    assert printed["bank"] == [f"{bank} {bank} {bank} {shop} -- status\n"]
    assert printed["shop"] == [f"{shop} {shop} {shop} {bank} -- status\n"]


def test_a_failing_command_ends_the_others_and_says_why(tmp_path: Path) -> None:
    script = "import sys, time; sys.exit('no card') if 'join' in sys.argv else time.sleep(600)"
    with Processes([sys.executable, "-c", script], homes(tmp_path)) as processes:
        commands = {"bank": [["join", "x"]], "shop": [["serve"]]}
        with pytest.raises(NodeError, match="'gal join x' failed at bank: no card"):
            processes.together(commands)


def test_nothing_starts_after_the_end(tmp_path: Path) -> None:
    with Processes([sys.executable, "-c", "pass"], homes(tmp_path)) as processes:
        processes.kill_all()
        with pytest.raises(NodeError, match="the demo is ending"):
            processes.run("bank", "serve")


def test_a_process_ends_when_nobody_holds_its_lifeline() -> None:
    """As when the demo is killed itself: then nobody can end the others."""
    script = "import gal_bench.demo.confined as one; one._end_with_parent()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, start_new_session=True)
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(patient(60)) == -signal.SIGKILL


def test_a_process_is_kept_out_of_the_other_folder(tmp_path: Path) -> None:
    if landlock_version() == 0:
        pytest.skip("this kernel has no Landlock")
    places = homes(tmp_path)
    with Processes([sys.executable, "-m", "gal_bench.demo.confined"], places) as processes:
        printed = processes.run("bank", "--version")
    assert printed.startswith("gal-learn")
    [note] = [json.loads(line) for line in (places["bank"] / "confined.jsonl").read_text().splitlines()]
    assert note == {"command": "--version", "closed": True, "tried": ["shop"], "reached": []}
    assert can_reach(places["shop"])  # this process is not shut in: the try is a real one


# The whole


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("demo") / "kept"
    done = forked.run(
        [*PROGRAM, "demo", "--json", "--keep", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_demo(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, facts = kept
    assert facts["alone"] + 0.1 < facts["assisted"]
    assert abs(facts["assisted"] - facts["pooled"]) < 0.05
    assert facts["identical"] is True
    assert facts["missed"] == {}
    killed = facts["killed"]
    assert killed["organization"] == "lab"
    assert killed["round"] >= 2
    assert killed["fits_done"] < killed["fits_asked"]
    assert sum(facts["contributions"].values()) == pytest.approx(1)
    assert set(facts["left"]) == set(PARTS)
    assert all(one["to"] == ["clinic"] for name, one in facts["left"].items() if name != "clinic")
    if landlock_version():
        assert facts["separated"]["by"] == "landlock"
        assert facts["separated"]["refused"] == facts["separated"]["tried"] > 0
    assert str(folder) == facts["folder"]


def test_what_the_demo_keeps_can_be_looked_at(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, facts = kept
    for name in PARTS:
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o700
        done = forked.run(
            [*PROGRAM, "audit", "--home", str(folder / name), "--json"], capture_output=True, check=True
        )
        assert json.loads(done.stdout)["n"] == facts["left"][name]["entries"]
    keys = {(folder / name / "key.pem").read_bytes() for name in PARTS}
    assert len(keys) == len(PARTS)
    assert processes_about(folder) == []


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Nodes of the demo write nowhere else, and a socket's path has to be short."""
    with tempfile.TemporaryDirectory(prefix="gal-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_the_demo_is_interrupted(short_folder: Path, number: signal.Signals) -> None:
    folder = short_folder / "kept"
    command = [*PROGRAM, "demo", "--keep", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "gal learn" in line:
                break
        assert processes_about(folder)
        process.send_signal(number)
        process.stderr.read()  # to its end: it still has something to say
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    until = time.monotonic() + patient(60)
    while processes_about(folder) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes_about(folder) == []


def processes_about(folder: Path) -> list[int]:
    """Processes that name this folder on their command line, or run in it."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            said = (place / "cmdline").read_bytes()
            runs = Path(os.readlink(place / "cwd")).is_relative_to(folder)
        except OSError:
            continue
        named = os.fsencode(folder) in said and b"--keep" not in said
        if (named or runs) and int(place.name) != os.getpid():
            found.append(int(place.name))
    return found
