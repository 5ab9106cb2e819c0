"""Control characters in names are escaped wherever a command prints: tables, sentences, reports, errors."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("duckdb")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from gal.cli.app import main
from gal.cli.screen import escape
from report_pages import ReadPage

NAME, ESCAPED = "col\x1b[31m\u202e\nb", "col\\x1b[31m\\u202e\\nb"
pytestmark = pytest.mark.usefixtures("few_trees", "weak_attackers")


def gal(*words: Any) -> str:
    """Everything that a command prints, also an error or a warning."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", ["gal", *map(str, words)])
        with redirect_stderr(out), suppress(SystemExit):
            main()
    return out.getvalue()


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two columns with such a name, one of them unused, and organizations with such a name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GAL_HOME", raising=False)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", NAME, f"unused {NAME}"])
    frame["id"], frame["y"] = range(60), frame["a"] + frame[NAME]
    frame.to_parquet("table.parquet")
    names = {"me": ["a"], f"you {NAME}": [NAME]}
    lines = [f"{json.dumps(name)} = {json.dumps(columns)}" for name, columns in names.items()]
    Path("o.toml").write_text("\n".join(["[organizations]", *lines]))
    return tmp_path


def check(printed: str, *, there: bool = True) -> None:
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert (ESCAPED in printed) == there, printed


def test_a_simulation_its_report_and_a_first_file_of_organizations(table: Path) -> None:
    given = ["table.parquet", "--target", "y"]
    fast = ["--folds", 1, "--rounds", 1, "--report", "r.html"]
    check(gal("simulate", *given, "--organizations", "o.toml", *fast))
    page = ReadPage(Path("r.html").read_text(encoding="utf-8"))
    check(page.text)
    assert f"not used : unused {ESCAPED}" in page.words
    check(gal("simulate", *given, "--write-organizations", "first.toml"), there=False)
    check(gal("simulate", "table.parquet", "--target", NAME[:-1], "--organizations", "o.toml"))


def test_a_rehearsal(table: Path) -> None:
    check(gal("leakage", "table.parquet", "--target", "y", "--organizations", "o.toml", "--rounds", 1))


def test_nodes_cards_and_tasks(table: Path) -> None:
    check(gal("init", "lab", "--data", "table.parquet", "--label", "z"))
    gal("init", "clinic", "--data", "table.parquet", "--label", "y", "--listen", "127.0.0.1:7443")
    check(gal("init", NAME))
    check(gal("doctor", "--home", "clinic"), there=False)
    check(gal("status", "--home", NAME))
    check(gal("cards", "add", NAME, "--home", "clinic"))
    check(gal("cards", "remove", NAME, "--home", "clinic"))
    for words in (("invite", NAME, "lab"), ("learn", NAME), ("versions", NAME), ("forget", NAME, "--yes")):
        check(gal(*words, "--home", "clinic"))


def test_nothing_within_a_sentence_is_markup() -> None:
    assert escape("[red]a[/] \u00a0b") == "\\[red]a\\[/]  b"
