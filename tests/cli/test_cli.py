"""The command line as a person and as a script meet it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import forked
from gal.cli.app import app, main
from gal.evaluate import Verdict
from gal.evaluate.comparing import EXIT_CODES
from gal.extras import require
from patience import patient
from report_pages import ReadPage

pytestmark = pytest.mark.usefixtures("few_trees")

PARTS = """
label_holder = "bank"
[organizations]
bank = ["income"]
shop = { columns = ["basket", "town"], model = "ridge" }
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": rng.normal(size=120), "basket": rng.normal(size=120)})
    table["town"] = rng.integers(0, 3, size=120)
    table["bought"] = np.where(table["income"] + 2 * table["basket"] > rng.normal(size=120), "yes", "no")
    table.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "parts.toml").write_text(PARTS)
    return tmp_path / "table.csv", tmp_path / "parts.toml"


def simulate(files: tuple[Path, Path], *more: str, target: str = "bought") -> list[str]:
    return [
        "simulate",
        str(files[0]),
        "--target",
        target,
        "--organizations",
        str(files[1]),
        "--folds",
        "2",
        *more,
    ]


def test_simulate_for_machines(files: tuple[Path, Path]) -> None:
    result = CliRunner().invoke(app, simulate(files, "--json"))
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["metric"] == "auc"
    assert 0.5 < facts["alone"] < facts["assisted"] <= 1
    for name in ("alone", "assisted", "pooled", "gain"):
        low, high = facts["intervals"][name]
        assert low <= facts[name] <= high
    assert facts["gain"] == pytest.approx(facts["assisted"] - facts["alone"])
    shop = facts["contributions"]["by_organization"]["shop"]
    assert shop["value"] == pytest.approx(facts["gain"])
    assert shop["verdict"] == "helped"
    assert facts["profile"] == []
    assert facts["assistance_used"] == [True] * 2


def test_a_report_beside_what_is_printed(files: tuple[Path, Path]) -> None:
    path = files[0].with_name("report.html")
    result = CliRunner().invoke(app, simulate(files, "--json", "--report", str(path)))
    assert result.exit_code == 0, result.output
    assert "Would assistance help" in ReadPage(path.read_text(encoding="utf-8")).words
    assert "The report is in" in result.stderr
    wrong = CliRunner().invoke(app, simulate(files, "--report", "report.pdf"))
    assert "must end in .html" in str(wrong.exception)


def test_simulate_says_what_to_look_at(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"key": [f"k{place}" for place in range(80)], "one": 1, "y": rng.normal(size=80)})
    table.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "parts.toml").write_text('[organizations]\nbank = ["one"]\nshop = ["key"]\n')
    paths = tmp_path / "table.csv", tmp_path / "parts.toml"
    result = CliRunner().invoke(app, simulate(paths, target="y"))
    assert result.exit_code == EXIT_CODES[Verdict.NO_GAIN] == 10, result.output
    said = " ".join(result.output.split())
    for words in ("constant: one", "id-like: key", "No organization has a significant contribution"):
        assert words in said


def test_the_exit_code_is_the_verdict(files: tuple[Path, Path]) -> None:
    table = pd.read_csv(files[0]).assign(basket=np.random.default_rng(1).normal(size=120))
    table.to_csv(files[0], index=False)
    result = CliRunner().invoke(app, simulate(files, "--json"))
    facts = json.loads(result.stdout)
    assert result.exit_code == EXIT_CODES[Verdict(facts["verdict"])]
    assert facts["verdict"] != "gain"
    assert facts["covered"] is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": "bougth"}, "no column 'bougth' to predict. Did you mean 'bought'?"),
        (
            {"parts": "[organizations]\nbank = ['incme']"},
            "organization 'bank': no column 'incme' in the table. Did you mean 'income'?",
        ),
        ({"parts": "[organizations"}, "not a TOML file"),
        (
            {"parts": "[organizations.bank]\ncolumns = ['income']\nmodel = 'rigde'"},
            "no local model is called 'rigde'. Did you mean 'ridge'?",
        ),
        (
            {"parts": "label_holder = 'bnk'\n[organizations]\nbank = ['income']"},
            "none of the organizations bank. Did you mean 'bank'?",
        ),
        ({"parts": "[organizations]\nbank = ['bought']"}, "which is the column to predict"),
        ({"more": ["--folds", "100"]}, "use --folds 58, or leave it out"),
        ({"more": ["--metric", "r2"]}, "these labels are text"),
        ({"parts": "[organizations]\n'[/you]' = ['q']"}, "organization '[/you]': no column 'q'"),
        ({"parts": "[organizations.bank]\ncolumns = ['income']\nmodle = 'svr'"}, "modle"),
        ({"table": ""}, "cannot be read as a table, it is empty: its first line must name the columns"),
    ],
)
def test_nonsense_gets_one_sentence(
    files: tuple[Path, Path],
    change: dict[str, object],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "parts" in change:
        files[1].write_text(str(change["parts"]))
    if "table" in change:
        files[0].write_text(str(change["table"]))
    more = change.get("more", [])
    assert isinstance(more, list)
    arguments = simulate(files, *more, target=str(change.get("target", "bought")))
    monkeypatch.setattr(sys, "argv", ["gal", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = " ".join(capsys.readouterr().err.split())
    assert said in error
    assert "Traceback" not in error


def test_the_demo_wants_an_empty_folder(tmp_path: Path) -> None:
    require("node", "the demo")  # without it that is what it says
    (tmp_path / "letter.txt").write_text("mine")
    done = forked.run(
        [sys.executable, "-c", "from gal.cli import main; main()", "demo", "--keep", str(tmp_path)],
        capture_output=True, text=True, timeout=patient(240), check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "not an empty folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.startswith("gal-learn ")
