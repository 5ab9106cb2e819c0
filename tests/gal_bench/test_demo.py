"""The demo: its parts, the whole of it with real processes and a kill, and (slow) Ctrl-C."""

from __future__ import annotations

import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import forked
from gal.node.worker.sandbox import landlock_version
from gal_bench.demo import four_nodes
from gal_bench.demo.checks import InOneProcess, gain_interval, labels_from, n_reconstructed
from gal_bench.demo.confined import can_reach
from gal_bench.demo.four_nodes import (
    HOLDER,
    LABEL,
    OTHERS,
    PARTS,
    REPORT,
    VICTIM,
    RoundPrinter,
    spread_patients,
)
from gal_bench.demo.processes import Processes
from patience import patient

PROGRAM = [sys.executable, "-c", "from gal.cli import main; main()"]


# The data


def test_no_organization_has_columns_of_another_or_labels_of_new_patients() -> None:
    patients = spread_patients()
    for name, columns in PARTS.items():
        assert list(patients.rows_of(name).columns) == [*columns, *([LABEL] if name == HOLDER else [])]
    new = set(patients.table.index[patients.new])
    assert not new & set(patients.rows_of(HOLDER).index)
    assert len(patients.rows_of(HOLDER)) + len(new) == 442


# The checks


@pytest.fixture(scope="module")
def learned_again() -> tuple[InOneProcess, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two rounds of all organizations, in one process: who learned, positions of rows, and labels."""
    patients = spread_patients()
    one = InOneProcess({name: patients.table[PARTS[name]] for name in (*OTHERS, HOLDER)})
    y = patients.y[patients.learned]
    one.run(patients.learned, y, patients.new[:1], 2)
    return one, patients.learned, y


def test_labels_follow_from_residuals_and_not_from_noise(learned_again: Any) -> None:
    one, _, y = learned_again
    assert labels_from(one.residuals[0][:, 0], y) == len(y)
    noisy = one.residuals[0][:, 0] + np.random.default_rng(0).normal(size=len(y))
    assert labels_from(noisy, y) < len(y) / 10


def test_a_column_follows_from_fitted_values_and_not_from_noise(learned_again: Any) -> None:
    one, ids, y = learned_again
    assert n_reconstructed(one, "insurer", ids, y) == 1
    rng = np.random.default_rng(0)
    noisy = [values + rng.normal(size=values.shape) for values in one.fitted["insurer"]]
    other = replace(one, fitted={"insurer": noisy})
    assert n_reconstructed(other, "insurer", ids, y) == 0


def test_a_gain_that_is_not_there_has_an_interval_around_zero() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=110)
    low, high = gain_interval(y, y + rng.normal(size=110), y + rng.normal(size=110))
    assert low < 0 < high
    assert gain_interval(y, np.zeros(110), y)[0] > 0.9


def ended(round: int, loss: float) -> dict[str, Any]:
    return {"event": "round", "round": round, "train_loss": loss, "initial": {"train_loss": 8.0}}


def test_a_kill_is_said_after_the_rounds_that_ended_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, coming, joined = list[str](), iter([2, 3]), itertools.count()
    rounds = RoundPrinter(said.append, lambda: None)
    rounds(ended(1, 4.0))
    started = SimpleNamespace(poll=lambda: None)
    processes: Any = SimpleNamespace(homes={VICTIM: tmp_path}, start=lambda *_: started)

    def sleep(_: float) -> None:
        for round in itertools.islice(coming, 1):
            rounds(ended(round, 2.0))

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(four_nodes, "_times_joined", lambda _: next(joined))
    assert four_nodes._restart(processes, {}, rounds, said.append)["round"] == 3
    assert [line.split(":")[0].strip() for line in said[:4]] == [f"round {t}" for t in range(4)]
    assert said[4].startswith("The lab's node is killed after round 3")


# Processes


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


def test_a_process_ends_with_its_lifeline() -> None:
    """As when the demo is killed itself, and cannot end the others."""
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
    assert note == {"command": "--version", "closed": True, "tried": 1, "reached": []}
    assert can_reach(places["shop"])  # this process has no sandbox: the try is a real one


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
    assert facts["killed"]["organization"] == "lab"
    assert facts["revealed"] == {
        **{"labels": 332, "of_labels": 332, "columns": 7, "of_columns": 7},
        "known_rows": 40,
    }
    assert 0 < facts["gain"][0] < facts["assisted"] - facts["alone"] < facts["gain"][1]
    assert set(facts["contributions"]["by_organization"]) == set(PARTS) - {"clinic"}
    assert set(facts["left"]) == set(PARTS)
    assert all(one["to"] == ["clinic"] for name, one in facts["left"].items() if name != "clinic")
    if landlock_version():
        assert facts["separated"]["by"] == "landlock"
        assert facts["separated"]["refused"] == facts["separated"]["tried"] > 0
    assert str(folder) == facts["folder"]


def test_the_report_answers_with_the_figures_of_the_demo(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, facts = kept
    assert facts["report"] == str(folder / REPORT)
    page = (folder / REPORT).read_text(encoding="utf-8")
    assert f"is {facts['assisted']:.3f} instead of {facts['alone']:.3f}" in page
    assert "can work out all 332 labels" in page
    assert page.count("residuals, one per row") == 3  # to each partner


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
