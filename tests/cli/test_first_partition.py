"""``gal simulate --write-organizations``: a first partition that can be edited and is accepted as it is."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from typer.testing import CliRunner

from gal.cli.app import app
from gal.cli.tables import read_organizations
from gal.errors import InvalidInputError

pytestmark = pytest.mark.usefixtures("few_trees")


def simulate(*words: str) -> Any:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(app, ["simulate", *words])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Odd names, ids, and a column that only looks like one."""
    frame = load_diabetes(as_frame=True).frame.head(60)
    frame = frame.rename(columns={"s1": 'blood "total"', "s2": "größe, cm"})
    frame.insert(0, "patient", [f"p{i}" for i in range(60)])
    frame.insert(1, "number", range(60))
    path = tmp_path / "my patients.csv"
    frame.to_csv(path, index=False)
    return path


def test_what_is_written_is_what_simulate_reads(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "organizations.toml"
    done = simulate(str(table), "--target", "target", "--write-organizations", str(out))
    assert done.exit_code == 0, done.exception
    parts = read_organizations(out)
    expected = [name for name in pd.read_csv(table).columns if name not in {"patient", "number", "target"}]
    assert [name for columns in parts.columns.values() for name in columns] == expected
    assert parts.label_holder == "me"
    assert "patient, number" in out.read_text(encoding="utf-8")
    words = shlex.split(done.stdout.splitlines()[-1])[2:]
    assert simulate(*words, "--rounds", "1", "--folds", "2", "--json").exit_code == 0


def test_nothing_is_overwritten(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "organizations.toml"
    out.write_text("mine")
    done = simulate(str(table), "--target", "target", "--write-organizations", str(out))
    assert isinstance(done.exception, InvalidInputError)
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--target", "goal", "--write-organizations", "o.toml"), "no column 'goal'"),
        (("--target", "target"), "--write-organizations FILE.toml makes a first one"),
    ],
)
def test_what_is_missing_is_said(words: tuple[str, ...], said: str, table: Path) -> None:
    assert said in str(simulate(str(table), *words).exception)
