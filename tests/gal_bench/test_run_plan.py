"""Deep runs on another machine: plan here, run there, take here; killed, resumed,
out of time, with other sources.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from test_bench_deep import bench, made_up, run_with

from gal.errors import InvalidInputError
from gal_bench import run_plan as elsewhere
from gal_bench.cache import ROOT, Cache, fingerprint
from gal_bench.cells import Cell, Outcome, Sources
from gal_bench.run_plan import Plan, Record, main, read_plan, read_records, run_plan, take, write_plan

CELLS = [
    Cell("MNIST", 8, "official", seed, models=("Network",), options={"weights": "uniform", "rounds": 3})
    for seed in (0, 1)
] + [Cell("CIFAR10", 8, "official", 0, models=("Network",), disturbance="answers", sigma=5.0)]


class Clock:
    """Seconds that pass only where a run lets them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "results" / "cache")


@pytest.fixture
def plan(tmp_path: Path, cache: Cache) -> Plan:
    write_plan(CELLS, cache, tmp_path / "plan.json")
    return read_plan(tmp_path / "plan.json")


def run(cell: Cell, sources: Sources) -> Outcome:
    return made_up(cell)


# --- the round trip


def test_plan_run_take(tmp_path: Path, cache: Cache, plan: Plan) -> None:
    assert list(plan.cells.values()) == CELLS
    assert list(plan.cells) == [cache.path(cell).name for cell in CELLS]
    out = tmp_path / "outcomes.json"
    run_plan(plan, out, Sources(), run=run)
    assert cache.get(CELLS[0]) is None
    assert take(out, cache) == (3, [])
    for cell in CELLS:
        assert cache.get(cell) == made_up(cell)


def test_the_commands_from_plan_to_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_with(monkeypatch, run)
    plan, out = tmp_path / "plan.json", tmp_path / "outcomes.json"
    part = ("images", "--dataset", "MNIST", "--organizations", "8", "--results", str(tmp_path / "r"))
    planned = bench(*part, "--plan", str(plan))
    assert planned.exit_code == 0, planned.output
    count = len(read_plan(plan).cells)
    assert f"{count} runs in" in planned.output
    assert main([str(plan), str(out), "--data-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"1 of {count}: MNIST, 8 organizations, official, seed 0: gal Network: accuracy 90, " in said
    assert "NVIDIA H200, torch 2.11" in said
    taken = bench(*part, "--take", str(out), "--json")
    assert f"{count} outcomes taken" in taken.stderr
    [facts] = json.loads(taken.stdout)
    assert all(len(one["final"]) == one["seeds"] for one in facts["figures"])
    again = bench(*part, "--plan", str(plan))
    assert "0 runs in" in again.output


def test_sets_on_request_are_not_planned(tmp_path: Path) -> None:
    bench("cases", "--results", str(tmp_path), "--plan", str(tmp_path / "plan.json"))
    sets = {cell.dataset for cell in read_plan(tmp_path / "plan.json").cells.values()}
    assert sets == {"ModelNet40", "PhysioNet stay", "PhysioNet mortality"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("uci", "--plan", "plan.json"), "none is among these"),
        (("images", "--plan", "plan.json", "--deep"), "choose one"),
        (("images", "--take", "nowhere.json"), "nowhere.json"),
    ],
)
def test_nonsense(words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = bench(*words)
    assert isinstance(result.exception, InvalidInputError), result.output
    assert said in str(result.exception)
    assert not (tmp_path / "plan.json").exists()


# --- killed, resumed, failed, out of time


def test_a_kill_loses_one_run_at_most(tmp_path: Path, plan: Plan) -> None:
    out, seen = tmp_path / "outcomes.json", []

    def killed_in_the_second(cell: Cell, sources: Sources) -> Outcome:
        seen.append(cell)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return made_up(cell)

    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, out, Sources(), run=killed_in_the_second)
    assert list(read_records(out)) == list(plan.cells)[:1]
    run_plan(plan, out, Sources(), run=killed_in_the_second)
    assert seen == [CELLS[0], CELLS[1], CELLS[1], CELLS[2]]
    assert list(read_records(out)) == list(plan.cells)


def test_the_file_is_whole_after_every_run(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill while writing leaves the outcomes of before."""
    out = tmp_path / "outcomes.json"
    run_plan(replace(plan, cells=dict(list(plan.cells.items())[:1])), out, Sources(), run=run)
    before = out.read_text(encoding="utf-8")

    def killed(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, out, Sources(), run=run)
    assert out.read_text(encoding="utf-8") == before


def test_an_error_of_one_run_leaves_the_others_alone(tmp_path: Path, cache: Cache, plan: Plan) -> None:
    out = tmp_path / "outcomes.json"

    def no_mnist(cell: Cell, sources: Sources) -> Outcome:
        if cell.dataset == "MNIST":
            raise InvalidInputError("its file is missing")
        return made_up(cell)

    said: list[str] = []
    records = run_plan(plan, out, Sources(), run=no_mnist, say=said.append)
    assert [record.error for record in records.values()] == ["InvalidInputError: its file is missing"] * 2 + [
        ""
    ]
    assert "failed after" in said[1]
    taken, refused = take(out, cache)
    assert taken == 1
    assert "it failed there: InvalidInputError: its file is missing" in refused[0]

    def never(cell: Cell, sources: Sources) -> Outcome:
        raise AssertionError("it was run before")

    assert run_plan(plan, out, Sources(), run=never) == read_records(out)
    again = run_plan(plan, out, Sources(), run=run, again=True)
    assert [record.error for record in again.values()] == [""] * 3


def test_unexpected_errors_leave_a_trace_and_a_broken_device_ends_it(
    tmp_path: Path, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(cell: Cell, sources: Sources) -> Outcome:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    said: list[str] = []
    records = run_plan(plan, tmp_path / "outcomes.json", Sources(), run=broken, say=said.append)
    assert len(records) == 1
    assert said[-1].startswith("stopped: after a CUDA error")
    assert "in broken" in capsys.readouterr().err


def test_no_run_is_started_that_would_not_fit(tmp_path: Path, cache: Cache) -> None:
    clock, out = Clock(), tmp_path / "outcomes.json"
    cells = [replace(CELLS[0], seed=seed) for seed in range(5)]
    write_plan(cells, cache, tmp_path / "plan.json")
    plan, seconds = read_plan(tmp_path / "plan.json"), [30.0, 20.0, 5.0, 5.0, 5.0]

    def slow(cell: Cell, sources: Sources) -> Outcome:
        clock.now += seconds[cell.seed]
        return made_up(cell)

    said: list[str] = []
    # after 30 + 20 s there are 35 left, enough for another 30; after 55 s 30 are left, which just fits; then
    # 25
    records = run_plan(plan, out, Sources(), run=slow, seconds=85.0, clock=clock, say=said.append)
    assert [record.seconds for record in records.values()] == [30.0, 20.0, 5.0, 5.0]
    assert said[-1].startswith("stopped: 1 runs are left")


def test_ctrl_c_in_a_run_is_no_outcome(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(cell: Cell, sources: Sources) -> Outcome:
        raise KeyboardInterrupt

    run_with(monkeypatch, interrupted)
    code = main([str(tmp_path / "plan.json"), str(tmp_path / "outcomes.json")])
    assert code == elsewhere.EXIT_INTERRUPTED
    assert not (tmp_path / "outcomes.json").exists()
    assert "interrupted" in capsys.readouterr().out


def test_exit_codes_and_the_last_line(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def half(cell: Cell, sources: Sources) -> Outcome:
        if cell.dataset == "CIFAR10":
            raise InvalidInputError("no")
        return made_up(cell)

    run_with(monkeypatch, half)
    words = [str(tmp_path / "plan.json"), str(tmp_path / "outcomes.json")]
    assert main(words) == elsewhere.EXIT_FAILED
    assert capsys.readouterr().out.splitlines()[-1] == "2 of 3 runs have outcomes, 1 failed"
    run_with(monkeypatch, run)
    assert main([*words, "--again"]) == 0
    assert main([str(tmp_path / "none.json"), words[1]]) == elsewhere.EXIT_INVALID


# --- what does not fit is refused


def test_a_plan_for_other_sources_is_not_run(tmp_path: Path, plan: Plan) -> None:
    with pytest.raises(InvalidInputError, match=f"for other sources .*here {fingerprint(deep=True)}"):
        run_plan(replace(plan, fingerprint="0" * 16), tmp_path / "outcomes.json", Sources(), run=run)


def write_records(records: dict[str, Record], path: Path) -> None:
    path.write_text(json.dumps({"runs": {name: asdict(record) for name, record in records.items()}}))


def good(cell: Cell) -> Record:
    return Record(cell.to_json(), fingerprint(deep=True), 1.0, made_up(cell).to_json())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fingerprint": "0" * 16}, "it was run with other sources (fingerprint 0000000000000000, here"),
        (
            {"cell": {**CELLS[0].to_json(), "seed": 7}},
            "seed 7: gal Network, weights=uniform, rounds=3: its cell is not",
        ),
        ({"cell": {"dataset": "MNIST"}}, "its cell cannot be read"),
        ({"cell": {**CELLS[0].to_json(), "colour": "red"}}, "its cell cannot be read"),
        ({"outcome": {"metric": "accuracy"}}, "its outcome cannot be read"),
        ({"outcome": {**made_up(CELLS[0]).to_json(), "scores": [0.1, float("nan")]}}, "not all numbers"),
        ({"outcome": {**made_up(CELLS[0]).to_json(), "scores": []}}, "not all numbers"),
        ({"outcome": None, "error": "out of memory"}, "it failed there: out of memory"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_and_the_others_are_taken(
    change: dict[str, Any], said: str, tmp_path: Path, cache: Cache
) -> None:
    names = [cache.path(cell).name for cell in CELLS[:2]]
    records = {names[0]: replace(good(CELLS[0]), **change), names[1]: good(CELLS[1])}
    write_records(records, tmp_path / "outcomes.json")
    taken, refused = take(tmp_path / "outcomes.json", cache)
    assert taken == 1
    assert said in refused[0]
    assert [path.name for path in cache.folder.iterdir()] == [names[1]]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"runs": 1}', '{"runs": [{"cell": {}}]}', '{"runs": {"a": 1}}']
)
def test_files_that_are_something_else(content: str, tmp_path: Path, cache: Cache) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=r"file\.json"):
        read_plan(path)
    with pytest.raises(InvalidInputError, match=r"file\.json"):
        take(path, cache)


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


def on_a_bare_machine(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, "-c", BARE, *words], env=environment, capture_output=True, text=True, check=False
    )


def test_it_starts_without_what_the_tables_need(tmp_path: Path, cache: Cache) -> None:
    """Numpy, scipy, scikit-learn and torch are all that the machine has."""
    write_plan([], cache, tmp_path / "plan.json")
    done = on_a_bare_machine(str(tmp_path / "plan.json"), str(tmp_path / "outcomes.json"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["0 runs to do, 0 done before", "0 of 0 runs have outcomes"]


def test_deep_cells_import_without_what_the_tables_need(tmp_path: Path, plan: Plan) -> None:
    """A run there ends with an outcome or for want of data, never for want of a package that is not there."""
    pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")
    words = ("--data-dir", str(tmp_path / "nothing"), "--seconds", "100")
    done = on_a_bare_machine(str(tmp_path / "plan.json"), str(tmp_path / "outcomes.json"), *words)
    assert done.returncode == elsewhere.EXIT_FAILED, done.stdout + done.stderr
    errors = {record.error for record in read_records(tmp_path / "outcomes.json").values()}
    assert errors
    assert not [error for error in errors if "No module named" in error]
