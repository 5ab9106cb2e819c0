"""Every script of ``benchmarks`` still runs, in its smallest setting; its figures are for people to read."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest

from benchmark_scripts import BENCHMARKS, load_benchmark
from forked import forking

NEEDS = {"cost": ["lightgbm"], "nodes": ["grpc", "duckdb"], "privacy": ["opendp"]}
"""By script: modules of optional parts."""

Start = Callable[..., ModuleType]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Loads a script, and has it find these words after its name; _ stands for a blank within one of them."""

    def load(name: str, words: str) -> ModuleType:
        for module in NEEDS.get(name, []):
            pytest.importorskip(module, reason=f"{module} is not installed")
        monkeypatch.syspath_prepend(str(BENCHMARKS))  # some take from what lies beside them
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *(one.replace("_", " ") for one in words.split())])
        return load_benchmark(name)

    return load


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        (
            "cost",
            "predict imports --quick --rows 120 --kinds regression",
            r"regression, 120 rows +\d.*\(aim 3\) +\S+ CPU s beside \d(.|\n)*gal --help +\d",
        ),
        pytest.param(
            "accuracy",
            "HEAD --tables Wine --splits 2",
            r"Wine +\d\.\d+ -> +\d\.\d+ +[+-]0\.\d{4} \(0\.\d{4}\)",
            marks=pytest.mark.slow,
        ),
        ("nodes", "bytes --rows 300", r"from an organization +\d"),
        (
            "pieces",
            "run --tables Wine --splits 2 --pieces 9_shrinkage_of_all_steps",
            r"\| 9 shrinkage of all steps \| \d / \d of 1 \|",
        ),
        (
            "pieces",
            "run --tables attack:_reversed_1,000 --splits 1 --rows 200 --pieces 9_shrinkage_of_all_steps",
            r"\| piece \|",
        ),
        ("privacy", "canaries --seeds 1 --sets Wine", r"Wine: \d+ canaries over 1 seeds"),
        (
            "privacy",
            "columns --models ridge --cross-validated",
            r"Diabetes ridge +10 rounds, two +organizations, 4 folds, noise columns 10 +\d",
        ),
    ],
)
@pytest.mark.usefixtures("weak_attackers", "small_forests")
def test_it_runs(
    name: str,
    words: str,
    said: str,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = start(name, words)
    if name == "privacy":
        monkeypatch.setattr(script, "ROUNDS", 2)
        monkeypatch.setattr(script, "EPSILONS", (1.0,))
    starting = {"nodes": sys.modules.get("node_parts.network"), "cost": script}.get(name)
    with forking(*([] if starting is None else [starting])):
        script.main()
    assert re.search(said, capsys.readouterr().out)


def test_pages_are_filled_from_a_folder_only(start: Start) -> None:
    with pytest.raises(SystemExit, match="gal bench all && python"):
        start("results_pages", "").main()


def test_every_piece_can_be_switched_and_has_its_lines(start: Start) -> None:
    """A function that moves to another module must not leave a switch behind."""
    start("pieces", "show")
    switches = import_module("piece_parts.switches")
    for piece in switches.ALL:
        with piece.switched():
            assert (switches.lines_of(piece) is None) == (not piece.code), piece.name
