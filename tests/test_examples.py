"""The examples run as they stand, without warnings, and say what they are meant to say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import forked

RUN = """
import runpy, sys, warnings
warnings.simplefilter("error")
runpy.run_path(sys.argv[1], run_name="__main__")
"""
ROOT = Path(__file__).resolve().parent.parent
SAID = {
    "own_models_and_losses.py": "without lab  mean error",
    "save_and_explain.py": "of the patients that were not fitted",
}


def test_every_example_is_tried() -> None:
    assert {one.name for one in (ROOT / "examples").glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", RUN, str(ROOT / "examples" / name)]
    done = forked.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert SAID[name] in done.stdout
    assert not list(tmp_path.iterdir())  # it leaves nothing behind
