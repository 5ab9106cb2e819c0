"""Deep runs on another machine: plan here, run there, bring the cache back; killed, resumed, failed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_bench_deep import bench, made_up, run_with

from gal.errors import InvalidInputError
from gal_bench import run_plan as elsewhere
from gal_bench.cache import ROOT, Cache
from gal_bench.cells import Cell, Outcome, Sources
from gal_bench.run_plan import main, read_plan, run_plan, write_plan

CELLS = [
    Cell("MNIST", 8, "official", seed, models=("Network",), options={"weights": "uniform", "rounds": 3})
    for seed in (0, 1)
] + [Cell("CIFAR10", 8, "official", 0, models=("Network",), disturbance="answers", sigma=5.0)]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    write_plan(CELLS, tmp_path / "plan.json")
    return tmp_path / "plan.json"


def run(cell: Cell, sources: Sources) -> Outcome:
    return made_up(cell)


def test_the_commands_from_plan_to_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_with(monkeypatch, run)
    plan, there, here = tmp_path / "plan.json", tmp_path / "there", tmp_path / "r"
    part = ("images", "--dataset", "MNIST", "--organizations", "8", "--results", str(here))
    planned = bench(*part, "--plan", str(plan))
    assert planned.exit_code == 0, planned.output
    count = len(read_plan(plan))
    assert f"{count} runs in" in planned.output
    assert main([str(plan), str(there), "--data-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"{count} runs to do, 0 done before" in said
    assert "MNIST, 8 organizations, official, seed 0: gal Network: accuracy 90 on NVIDIA H200" in said
    shutil.copytree(there, here / "cache")
    [facts] = json.loads(bench(*part, "--json").stdout)
    assert all(len(one["final"]) == one["seeds"] for one in facts["figures"])
    assert "0 runs in" in bench(*part, "--plan", str(plan)).output


def test_sets_on_request_are_not_planned(tmp_path: Path) -> None:
    bench("cases", "--results", str(tmp_path), "--plan", str(tmp_path / "plan.json"))
    sets = {cell.dataset for cell in read_plan(tmp_path / "plan.json")}
    assert sets == {"ModelNet40", "PhysioNet stay", "PhysioNet mortality"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("uci", "--plan", "plan.json"), "none is among these"),
        (("images", "--plan", "plan.json", "--deep"), "choose one"),
    ],
)
def test_nonsense(words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = bench(*words)
    assert isinstance(result.exception, InvalidInputError), result.output
    assert said in str(result.exception)
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize("content", ["", '{"cells": 1}', '[{"dataset": "MNIST"}]', "[1]"])
def test_files_that_are_no_plan(content: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=r"file\.json' is no plan"):
        read_plan(path)
    assert main([str(path), str(tmp_path)]) == elsewhere.EXIT_INVALID


def test_a_kill_loses_one_run_at_most(tmp_path: Path, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Cell] = []

    def killed_in_the_second(cell: Cell, sources: Sources) -> Outcome:
        seen.append(cell)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return made_up(cell)

    run_with(monkeypatch, killed_in_the_second)
    words, cache = [str(plan), str(tmp_path / "cache")], Cache(tmp_path / "cache")
    assert main(words) == elsewhere.EXIT_INTERRUPTED
    assert [cache.get(cell) for cell in CELLS] == [made_up(CELLS[0]), None, None]
    assert main(words) == 0
    assert seen == [CELLS[0], CELLS[1], CELLS[1], CELLS[2]]
    assert [cache.get(cell) for cell in CELLS] == [made_up(cell) for cell in CELLS]


def test_an_error_of_one_run_leaves_the_others_alone(
    tmp_path: Path, plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_cifar(cell: Cell, sources: Sources) -> Outcome:
        if cell.dataset == "CIFAR10":
            raise InvalidInputError("its file is missing")
        return made_up(cell)

    run_with(monkeypatch, no_cifar)
    words = [str(plan), str(tmp_path / "cache")]
    assert main(words) == elsewhere.EXIT_FAILED
    said = capsys.readouterr().out.splitlines()
    assert said[-2].endswith("failed: InvalidInputError: its file is missing")
    assert said[-1] == "1 runs failed"
    run_with(monkeypatch, run)
    assert main(words) == 0
    assert "1 runs to do, 2 done before" in capsys.readouterr().out


def test_unexpected_errors_leave_a_trace_and_a_broken_device_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(cell: Cell, sources: Sources) -> Outcome:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    run_with(monkeypatch, broken)
    assert run_plan(CELLS, Cache(tmp_path), Sources()) == CELLS[:1]
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("stopped: after a CUDA error")
    assert "in broken" in said.err


# --- on a machine where little is installed

BARE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pandas", "pydantic", "rich", "typer", "skops", "matplotlib", "grpc"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from gal_bench.run_plan import main
sys.exit(main(sys.argv[1:]))
"""


def test_numpy_scipy_scikit_learn_and_torch_are_all_that_the_machine_needs(
    tmp_path: Path, plan: Path
) -> None:
    """A run there ends with an outcome or for want of data, never for want of a package that is not there."""
    pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")
    words = (str(plan), str(tmp_path / "cache"), "--data-dir", str(tmp_path / "nothing"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", BARE, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == elsewhere.EXIT_FAILED, done.stdout + done.stderr
    assert done.stdout.count("failed: MissingDataError") == 3, done.stdout + done.stderr
