"""``gal bench`` on the command line: what it prints, and what it says to nonsense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench_runs import deep_runs_by, made_up
from gal.cli.app import app
from gal.errors import InvalidInputError, MissingExtraError

SMALL = ("rates", "--dataset", "Iris", "--seeds", "1", "--protocol", "per seed", "--jobs", "1")


def bench(*words: str) -> Any:
    return CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, ["bench", *words])


def refused(*words: str) -> str:
    """The sentence; ``main`` makes it exit code 2."""
    result = bench(*words)
    assert isinstance(result.exception, InvalidInputError), result.output
    return str(result.exception)


def test_the_list() -> None:
    assert "Model autonomy" in bench("--list").output


def test_a_small_bench_from_nothing_and_from_stored_outcomes(tmp_path: Path) -> None:
    first = bench(*SMALL, "--results", str(tmp_path))
    assert first.exit_code == 0, first.output
    assert "4 organizations" in first.output or "Iris" in first.output
    assert (tmp_path / "rates-per-seed-Iris-1-seeds.csv").exists()
    before = (tmp_path / "outcomes.jsonl").read_text()
    assert bench(*SMALL, "--results", str(tmp_path)).exit_code == 0
    assert (tmp_path / "outcomes.jsonl").read_text() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a table"),
        (("uic",), "no table 'uic'; there are: uci"),
        (("privcay",), "Did you mean 'privacy'?"),
        (("uci", "--dataset", "Cars"), "no data set 'Cars'"),
        (("uci", "--protocol", "mine"), "no protocol 'mine'"),
        (("uci", "--dataset", "Adult"), "nothing is left"),
        (("uci", "--dataset", "Iris", "--organizations", "8"), "nothing is left"),
        (("scale", "--organizations", "4"), "nothing is left"),
        ((*SMALL[:-1], "0"), "--jobs"),
        ((*SMALL, "--results", __file__), "cannot be written to"),
    ],
)
def test_nonsense(words: tuple[str, ...], said: str) -> None:
    assert said in refused(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rates", "--dataset", "QSAR", "--protocol", "per seed"), "--data-dir"),
        (("rates", "--dataset", "Iris", "--protocol", "paper"), "GAL_REFERENCE"),
    ],
)
def test_missing_files_are_named_before_anything_runs(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GAL_DATA", raising=False)
    monkeypatch.delenv("GAL_REFERENCE", raising=False)
    assert said in refused(*words, "--results", str(tmp_path))
    assert (tmp_path / "outcomes.jsonl").read_text() == ""


# --- deep tables


def test_deep_runs_here_and_planned_are_of_sets_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    deep_runs_by(monkeypatch, lambda cell, sources: made_up(cell))
    words = ("cases", "--anew", "--results", str(tmp_path), "--seeds", "1")  # a part has no pictures
    plan = ("--plan", str(tmp_path / "plan.json"))
    assert "21 runs in" in bench(*words, *plan).output
    planned = json.loads((tmp_path / "plan.json").read_text())["cells"]
    assert {one["dataset"] for one in planned} == {"ModelNet40", "PhysioNet stay", "PhysioNet mortality"}
    result = bench(*words, "--deep", "--dataset", "ModelNet40", "--dataset", "MIMICM")
    assert result.exit_code == 0, result.output
    assert "7 deep runs to do here" in result.output
    assert "14 runs in" in bench(*words, *plan).output
    assert "not run" in bench(*words).output


def test_without_torch_deep_runs_are_refused_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = bench("images", "--deep", "--results", str(tmp_path))
    assert isinstance(result.exception, MissingExtraError)
    assert "pip install 'gal-learn[deep]'" in str(result.exception)
