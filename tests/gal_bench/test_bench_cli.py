"""``gal bench`` on the command line: what it prints, and what it says to nonsense."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gal.cli.app import app
from gal.cli.screen import ProgressLine
from gal.errors import InvalidInputError
from gal_bench.command import running


def bench(*words: str) -> Any:
    return CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, ["bench", *words])


def refused(*words: str) -> str:
    """The sentence; ``main`` makes it exit code 2."""
    result = bench(*words)
    assert isinstance(result.exception, InvalidInputError), result.output
    return str(result.exception)


SMALL = ("rates", "--dataset", "Iris", "--seeds", "1", "--protocol", "per seed", "--jobs", "1")


def test_the_list() -> None:
    printed = bench("--list").output
    assert "Model autonomy" in printed
    facts = json.loads(bench("--list", "--json").output)
    assert [one["name"] for one in facts][:2] == ["uci", "local-losses"]
    assert all(one["runs"] > 0 for one in facts)


def test_a_small_bench_from_nothing_and_from_the_cache(tmp_path: Path) -> None:
    first = bench(*SMALL, "--results", str(tmp_path))
    assert first.exit_code == 0, first.output
    assert "4 organizations" in first.output or "Iris" in first.output
    assert (tmp_path / "rates-per-seed-Iris-1-seeds.csv").exists()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    again = bench(*SMALL, "--results", str(tmp_path), "--json")
    [facts] = json.loads(again.stdout)
    assert facts["table"] == "rates"
    assert len(facts["figures"]) == 3
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == before


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
        (("rates", "--organizations", "2"), "nothing is left"),
        (("scale", "--organizations", "4"), "nothing is left"),
        ((*SMALL[:-1], "0"), "--jobs"),
    ],
)
def test_nonsense(words: tuple[str, ...], said: str) -> None:
    assert said in refused(*words)


def test_results_must_be_a_folder_that_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "can be written to" in refused(*SMALL, "--results", str(tmp_path / "file"))


def test_missing_files_are_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GAL_DATA", raising=False)
    monkeypatch.delenv("GAL_REFERENCE", raising=False)
    words = ("rates", "--dataset", "QSAR", "--protocol", "per seed", "--results", str(tmp_path))
    assert "--data-dir" in refused(*words)
    words = ("rates", "--dataset", "Iris", "--protocol", "paper", "--results", str(tmp_path))
    assert "GAL_REFERENCE" in refused(*words)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("content", ["garbage", "no keys"])
def test_a_split_that_is_none(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "splits_paper"
    folder.mkdir()
    for seed in range(4):
        path = folder / f"Iris_M4_seed{seed}.npz"
        if content == "garbage":
            path.write_text("garbage")
        else:
            np.savez(path, x=np.zeros(3))
    monkeypatch.setenv("GAL_REFERENCE", str(tmp_path))
    words = ("rates", "--dataset", "Iris", "--protocol", "paper", "--results", str(tmp_path / "r"))
    assert "Iris, 4 organizations, paper" in refused(*words)


def test_progress_in_a_pipe_is_whole_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody sees a bar there, and at its end a name was cut."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(running, "ProgressLine", partial(ProgressLine, every=0.0))
    what = "progression, 4 organizations, per seed, seed 3: " + "a long name " * 6
    with running._progress(quiet=False) as say:
        say(1, 4, what)
        say(4, 4, "the last")
    said = capsys.readouterr().err.splitlines()
    assert said == [f"1 of 4 runs: {what}", "4 of 4 runs: the last"]
    with running._progress(quiet=True) as say:
        say(1, 4, what)
    assert capsys.readouterr().err == ""


# --- rows and tables of one's own

PAGE = Path(__file__).parents[2] / "docs/results/rerun.md"
OWN = re.compile(r"<!-- own: (?P<path>[^ ]+) -->\n```toml\n(?P<text>.*?)```", re.DOTALL)
OUTPUT = re.compile(r"<!-- own output -->\n```\n(?P<text>.*?)```", re.DOTALL)


def test_the_worked_example_prints_what_its_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for found in OWN.finditer(text):
        Path(found["path"]).parent.mkdir(parents=True, exist_ok=True)
        Path(found["path"]).write_text(found["text"])
    done = bench("mine", "--rows", "rows", "--jobs", "1")
    assert done.exit_code == 0, f"{done.exception}\n{done.output}"
    said = OUTPUT.search(text)
    assert said is not None
    figures_said = re.findall(r"\d+\.\d \(\d+\.\d\)", said["text"])
    assert len(figures_said) == 3
    assert all(figure in done.stdout for figure in figures_said), done.stdout
