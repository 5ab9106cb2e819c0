"""Every script of ``benchmarks`` still runs, in its smallest setting; its figures are for people to read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import forked
from benchmark_scripts import BENCHMARKS, load_benchmark
from forked import forking
from gal_bench.data.view_sets import ViewSet
from patience import LONGEST

SMALLEST = {
    "answer_times": "--asks 3 --sources folder",
    "averaged_parts": "Iris --splits 2 --models Ridge",
    "camera_views": "",
    "cluster": "--rows 3000 --columns 4 --rounds 1",
    "cost": "predict imports --quick --rows 120 --kinds regression",
    "contributions": "--rows 60 --seeds 1",
    "deep_speed": "--rows 32 --batch 8 --organizations 2",
    "default_model": "--quick --sets Wine --candidates no_trees",
    "endpoint": "--rows 300 --clients 2 --single 3 --each 3",
    "fusion": "--organizations 2 --views patches --schedules constant step --epochs 3",
    "growth_nodes": 'point --point ["learned",300,2,2]',
    "interactions": "--rows 300 --tasks xor --signs 2 --seeds 1",
    "lightgbm_dask": "--workers 2 --rows 600 --fits 1",
    "many_splits": "Wine --splits 2 --models Ridge",
    "mutants": "",
    "noise_partners": "--rows 60 --kinds numbers --tables 1",
    "nodes": "bytes --rows 300",
    "pieces": "run --tables Wine --splits 2 --pieces 9_trust_(shrinkage_of_all_steps)",
    "pooled_splits": "Iris Diabetes --splits 2",
    "privacy": "canaries --seeds 1 --sets Wine",
    "private_training": "--sets Diabetes --seeds 1 --rows 200",
    "reference": "fidelity --datasets Wine --organizations 2",
    "remembered_labels": "--sets Diabetes --seeds 100",
    "results_pages": "",
    "wrongly_named": "--sets Diabetes --seeds 1 --tables 1 --models linear",
    "sum_weights": "--sets Wine --models ridge --idle 1 --organizations 2 --seeds 1",
    "sums": "--rows 100 --organizations 3 --rounds 1 --seeds 1",
    "sources": "--rows 2000 --columns 3 --kinds folder",
}
"""By script: the arguments with which it has the least to do; _ stands for a blank within one of them."""

FEWER: dict[str, dict[str, Any]] = {
    "privacy": {f"privacy_parts.{part}.ROUNDS": 2 for part in ("labels", "stacks", "columns", "meter")}
    | {"privacy_parts.labels.EPSILONS": (1.0,), "privacy_parts.stacks.EPSILONS": (2.0,)}
    | {"privacy_parts.columns.TAKEN_APART": 2}
}
"""By script: constants that its arguments do not reach, where less shows as much."""

NEEDS = {
    "answer_times": ["grpc", "duckdb"],
    "camera_views": ["torch"],
    "cost": ["lightgbm"],
    "deep_speed": ["torch"],
    "endpoint": ["grpc", "duckdb", "fastapi"],
    "fusion": ["torch"],
    "growth_nodes": ["grpc", "duckdb"],
    "nodes": ["grpc", "duckdb"],
    "privacy": ["opendp"],
    "private_training": ["dp_accounting"],
    "sums": ["cryptography"],
    "sources": ["duckdb", "pyarrow"],
}
"""By script: modules of optional parts."""

Start = Callable[..., ModuleType]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Loads a script, and has it find these words after its name."""

    def load(name: str, words: str | None = None) -> ModuleType:
        for module in NEEDS.get(name, []):
            pytest.importorskip(module, reason=f"{module} is not installed")
        monkeypatch.syspath_prepend(str(BENCHMARKS))  # some take from what lies beside them
        given = (SMALLEST[name] if words is None else words).split()
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *(one.replace("_", " ") for one in given)])
        return load_benchmark(name)

    return load


def test_every_script_is_here() -> None:
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == set(SMALLEST)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pooled_splits", r"\| SVR \| Iris \| 2 \| \d+\.\d\d \| \d+\.\d\d \| \d+\.\d\d \| [+-]\d"),
        ("averaged_parts", r"\| Ridge \| Iris \| 2 \| \d+\.\d\d \| [+-]\d"),
        ("cost", r"regression, 120 rows +\d.*\(aim 3\) +\S+ CPU s beside \d(.|\n)*gal --help +\d"),
        ("contributions", r"60 rows, sum +noise has"),
        ("deep_speed", r"2 (one by one|side by side), one step: \d+\.\d+ ms"),
        ("default_model", r"Wine +accuracy no trees"),
        ("interactions", r"xor +2 +0\.\d+ +\d"),
        ("many_splits", r"Wine"),
        ("remembered_labels", r"\| Diabetes \| validation rows \| \d+"),
        ("wrongly_named", r"linear . 5 . \d+ . 0 ."),
        ("pieces", r"\| 9 trust \(shrinkage of all steps\) \| \d / \d of 1 \|"),
        ("nodes", r"from an organization +\d"),
        ("private_training", r"\| Diabetes \| 200 \|"),
        ("privacy", r"Wine: 26 canaries over 1 seeds"),
        ("sum_weights", r"\| Wine \| ridge \| 1 \|"),
        ("sums", r"100 rows +3 organizations +bytes back \d"),
        ("sources", r"folder +beginning +\d+\.\d CPU-s"),
    ],
)
@pytest.mark.usefixtures("weak_attackers", "small_forests")
def test_it_runs(
    name: str, said: str, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = start(name)
    for constant, value in FEWER.get(name, {}).items():
        monkeypatch.setattr(constant, value)
    if name == "interactions":  # which wants more rows, unless it is told how many of them validate
        monkeypatch.setattr(script, "learned", partial(script.learned, validation_fraction=0.2))
    starting = {"nodes": sys.modules.get("node_parts.network"), "sources": script, "cost": script}.get(name)
    with forking(*([] if starting is None else [starting])):
        script.main()
    assert re.search(said, capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("paper --seeds 1 --sets Iris", r"Iris +.*\n\* ours is at least as good"),
        ("stack --seeds 2 --sets Iris --model ridge --rows 60", r"Iris: alone 0\.\d+, assisted"),
        ("alone --seeds 2 --sets chance --model ridge --rows 60", r"\| chance \| 0\.\d+ \| 2 \|"),
        ("columns --models ridge", r"Diabetes ridge +50 rounds, two +organizations, 0 parts, noise none +\d"),
        ("curve --seeds 2 --models ridge --labels numbers", r"\| numbers \| ridge \| 30 \| 0\.\d+ \("),
        ("answers", r"\| gradient_boosting \| \d\.\d+, \d\.\d+ \|"),
        ("sums --seeds 1", r"\| gradient_boosting \| a sum of eight \| \d\.\d+, \d\.\d+ \|"),
        ("meter --models ridge --sets Iris", r"\| Iris \| ridge \| epsilon 1 \|"),
    ],
)
@pytest.mark.usefixtures("weak_attackers", "small_forests")
def test_every_part_of_privacy_runs(
    words: str,
    said: str,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = start("privacy", words)
    for constant, value in FEWER["privacy"].items():
        monkeypatch.setattr(constant, value)
    script.main()
    assert re.search(said, capsys.readouterr().out)


def as_a_process(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What a script says that is run by Python itself."""
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *SMALLEST[name].split(), *words]
    return forked.run(command, capture_output=True, text=True, timeout=LONGEST)


def test_the_endpoint_is_asked(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    script = start("endpoint")
    with forking(script, sys.modules["node_parts.network"]):
        script.main()
    assert re.search(r"2 clients: degraded rows +0\b", capsys.readouterr().out)


@pytest.mark.slow
def test_growth_over_nodes_is_measured() -> None:
    """As a process: it takes from the script beside it what both need."""
    for module in NEEDS["growth_nodes"]:
        pytest.importorskip(module, reason=f"{module} is not installed")
    done = as_a_process("growth_nodes")
    assert done.returncode == 0, done.stderr
    assert re.search(r'"beyond": -?\d', done.stdout)


def test_times_of_answers_are_measured() -> None:
    for module in NEEDS["answer_times"]:
        pytest.importorskip(module, reason=f"{module} is not installed")
    done = as_a_process("answer_times", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    kinds = ["predict, hashed", "begin, plain", "predict, psi", "begin, psi"]
    assert list(found) == [f"{one}, folder" for one in kinds]
    assert all(0 <= one["longer"] <= 1 and one["known ms"] > 0 for one in found.values())


def test_the_reference_is_compared_with(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    if "GAL_REFERENCE" not in os.environ:
        pytest.skip("GAL_REFERENCE names no folder with the authors' figures")
    start("reference").main()
    assert "| Wine | 2 | final |" in capsys.readouterr().out


def test_cameras_learn_from_made_up_objects(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The objects themselves take minutes to be read."""
    script = start("camera_views")
    monkeypatch.setattr(script, "load_shapes", lambda name: _made_up_views())
    script.main()
    assert re.findall(r"^ (\d) cameras: \d+\.\d% of the test objects", capsys.readouterr().out, re.M) == [
        "1",
        "2",
    ]


def test_fused_networks_are_watched_after_every_epoch(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = start("fusion")
    monkeypatch.setattr(script, "load_images", lambda *_, masked: _made_up_views())
    script.main()
    line, falling = map(json.loads, capsys.readouterr().out.splitlines())
    unwatched = script.FusedNetworks(
        "features", classes=True, network="cnn", training=_three_epochs(script), device="cpu"
    )
    views = _made_up_views()
    right = unwatched.fit(views.train, views.y_train).predict(views.test).argmax(axis=1) == views.y_test
    assert line["last"] == round(100 * right.mean(), 2) <= line["best"]
    assert 1 <= line["best_epoch"] <= line["epochs"] == 3
    assert falling["schedule"] == "step"


def _three_epochs(script: ModuleType) -> Any:
    """As the script trains."""
    how = script.settings("MNIST", paper=False) | {"schedule": "constant", "weight_decay": 5e-4}
    return script.Training(**how, epochs=3)


def _made_up_views() -> ViewSet:
    rng = np.random.default_rng(0)
    views = {f"camera {m}": rng.normal(size=(24, 1, 16, 16)).astype(np.float32) for m in (1, 2)}
    y = np.arange(24) % 2
    return ViewSet("made up", views, y, views, y, "accuracy")


def test_pages_are_filled_from_a_folder_only(start: Start, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="gal bench all && python"):
        start("results_pages").main()
    with pytest.raises(SystemExit, match="gal bench all && python"):
        start("results_pages", f"{tmp_path} --unknown").main()


def test_nodes_without_arguments_are_all_parts(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = start("nodes", "")
    measured: list[str] = []

    def measure(name: str) -> list[dict[str, Any]]:
        measured.append(name)
        return [{"rows": 1}]

    def parts(rows: Any) -> dict[str, Callable[[], list[dict[str, Any]]]]:
        return {name: partial(measure, name) for name in ("rounds", "memory")}

    monkeypatch.setattr(script, "parts", parts)
    script.main()
    assert measured == ["rounds", "memory"]
    monkeypatch.setattr(sys, "argv", ["nodes.py", "bites"])
    with pytest.raises(SystemExit):
        script.main()
    assert "there is no part bites: choose from rounds, memory" in capsys.readouterr().err


def test_what_bounds_a_step_is_said_beside_its_time(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting kernels wants a GPU; what is made of the counts does not."""
    script = start("deep_speed")
    monkeypatch.setattr(script, "ceilings", lambda: (800.0, 4.0))
    scene = script.Scene(organizations=8)
    lines = script.with_bounds(script.report(scene, 1.5e-3, 0.5e-3), scene, (80.0, 0.4e-3), 1.5e-3)
    assert lines[2] == "one organization, one step: 0.500 ms; 80 kernels that take 0.400 ms"
    assert lines[4] == "  = 2.34 us per kernel"
    assert lines[6] == "arithmetic: 179 GFLOP a step, 14.9% of the ceiling"


def test_a_trainer_at_rest_can_be_warmed_up_again(start: Start) -> None:
    """What recording a step does first, and failed to do after a fit."""
    import torch

    script = start("deep_speed")
    one = script.made(script.Scene(rows=16, batch=8, organizations=1))[0]
    before = {name: value.clone() for name, value in one.module.state_dict().items()}
    one.warm_up()
    assert int(one.done) == 0
    assert all(torch.equal(value, before[name]) for name, value in one.module.state_dict().items())
