"""``gal leakage`` as a person and as a script meet it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gal.cli.app import app
from gal.cli.leakage import chosen_mechanisms
from gal.errors import InvalidInputError, InvalidLabelsError, InvalidOptionError
from gal.privacy import LaplaceLabels, PaperLaplace, RandomisedResponse

PARTS = """
label_holder = "bank"
[organizations]
bank = { columns = ["income"], model = "ridge" }
shop = { columns = ["basket", "age"], model = "ridge" }
"""

pytestmark = pytest.mark.usefixtures("weak_attackers", "few_penalties")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    rng = np.random.default_rng(0)  # so few rows that there is no cross-validation
    table = pd.DataFrame(rng.normal(size=(60, 3)), columns=["income", "basket", "age"])
    table["bought"] = np.where(table["income"] + 2 * table["basket"] > rng.normal(size=60), "yes", "no")
    table["spent"] = table["income"] + table["basket"] + rng.normal(size=60)
    table.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "parts.toml").write_text(PARTS)
    return str(tmp_path / "table.csv"), str(tmp_path / "parts.toml")


def leakage(files: tuple[str, str], *more: str, target: str = "bought") -> Any:
    words = ["leakage", files[0], "--target", target, "--organizations", files[1], "--rounds", "2", *more]
    return CliRunner().invoke(app, words, env={"COLUMNS": "200"})


class TestForPeople:
    def test_without_protection_it_is_loud(self, files: tuple[str, str]) -> None:
        result = leakage(files)
        assert result.exit_code == 0, result.output
        assert "EVERY ASSISTANT KNOWS EVERY TRAINING LABEL AFTER ROUND 1" in result.stdout
        assert "without a mechanism" in result.stdout
        assert "pretended" not in result.stdout
        assert "sum over rounds" in result.stdout
        assert result.stdout.startswith("EVERY ASSISTANT")
        assert "Noise came from a seed" not in result.stdout

    def test_a_guarantee_is_stated_beside_the_attacks(self, files: tuple[str, str]) -> None:
        result = leakage(files, "--privacy", "randomised-response", "--epsilon", "1")
        assert result.exit_code == 0, result.output
        assert "the guarantee allows 73.1%" in result.stdout
        assert "Randomised response on 2 classes with epsilon 1" in result.stdout
        assert result.stdout.lower().count("noise came from a seed") == 1
        assert "-o classes= was not given, so it is the table's own" in result.stdout

    def test_a_column_that_names_rows_is_no_feature(self, files: tuple[str, str]) -> None:
        pd.read_csv(files[0]).assign(key=[f"k{row}" for row in range(60)]).to_csv(files[0], index=False)
        words = ["leakage", files[0], "--target", "bought", "--rounds", "1", "--json"]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        (facts,) = json.loads(result.stdout)
        features = {column for columns in facts["organizations"].values() for column in columns}
        assert features == {"age", "basket", "income", "spent"}

    def test_columns_are_read_as_people_write_them(self, files: tuple[str, str]) -> None:
        """Ridge, which takes numbers only, learns from text that is numbers; attacks look at these."""
        clean = json.loads(leakage(files, "--json").stdout)[0]
        table = pd.read_csv(files[0])
        table.assign(basket=table["basket"].map("{:.17f} kg".format)).to_csv(files[0], index=False)
        result = leakage(files, "--json")
        assert result.exit_code == 0, result.output
        np.testing.assert_allclose(json.loads(result.stdout)[0]["utility"], clean["utility"])

    def test_without_organizations_it_says_that_they_are_pretended(self, files: tuple[str, str]) -> None:
        words = ["leakage", files[0], "--target", "bought", "--rounds", "1"]
        result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.output
        assert "divided among pretended ones" in result.stdout

    def test_bounds_of_the_table_are_not_public(self, files: tuple[str, str]) -> None:
        more = ("--privacy", "laplace-labels", "--epsilon", "1", "--rounds", "1")
        assert "a real task needs a public one" in leakage(files, *more, target="spent").stdout
        result = leakage(files, *more, "-o", "lower=-9", "-o", "upper=9", target="spent")
        assert result.exit_code == 0, result.output
        assert "a real task needs a public one" not in result.stdout

    def test_several_stand_side_by_side(self, files: tuple[str, str]) -> None:
        more = ("--privacy", "randomised-response", "--privacy", "paper-laplace", "--epsilon", "0.5")
        result = leakage(files, *more, "-o", 'classes=["no", "yes", "maybe"]', "-o", "alpha=2")
        assert result.exit_code == 0, result.output
        assert "randomised-response epsilon 0.5" in result.stdout
        assert "strongest attack" in result.stdout
        assert "the table's own" not in result.stdout


def test_for_machines(files: tuple[str, str]) -> None:
    bounds = ("-o", "lower=-9", "-o", "upper=9")
    result = leakage(
        files, "--privacy", "laplace-labels", "--epsilon", "2", *bounds, "--json", target="spent"
    )
    assert result.exit_code == 0, result.output
    (facts,) = json.loads(result.stdout)
    assert facts["metric"] == "r2"
    assert facts["leak"]["epsilon"] == 2.0
    assert facts["leak"]["numbers"]
    assert facts["leak"]["exceeding"] == []


class TestErrors:
    @pytest.mark.parametrize(
        ("more", "error", "words"),
        [
            (("--privacy", "magic"), InvalidOptionError, "no privacy mechanism 'magic'"),
            (("--privacy", "randomised-response"), InvalidOptionError, "needs epsilon"),
            (("--privacy", "randomised-response", "--epsilon", "0"), InvalidOptionError, "epsilon must be"),
            (("--privacy", "paper-laplace", "--epsilon", "1"), InvalidOptionError, "has epsilon"),
            (("--epsilon", "1"), InvalidOptionError, "none of the mechanisms none has epsilon"),
            (
                ("--privacy", "laplace-labels", "--epsilon", "1"),
                InvalidOptionError,
                "take randomised-response",
            ),
            (
                ("--privacy", "randomised-response", "--epsilon", "1", "-o", "lower=0"),
                InvalidOptionError,
                "has lower",
            ),
            (("-o", "magic=1"), InvalidOptionError, "has magic"),
        ],
    )
    def test_options(
        self, files: tuple[str, str], more: tuple[str, ...], error: type[Exception], words: str
    ) -> None:
        result = leakage(files, *more)
        assert isinstance(result.exception, error), result.output
        assert words in str(result.exception)

    def test_numbers_are_no_classes(self, files: tuple[str, str]) -> None:
        result = leakage(files, "--privacy", "randomised-response", "--epsilon", "1", target="spent")
        assert "take laplace-labels or gaussian-labels" in str(result.exception)

    def test_one_class(self, files: tuple[str, str]) -> None:
        pd.read_csv(files[0]).assign(bought="ok").to_csv(files[0], index=False)
        result = leakage(files)
        assert isinstance(result.exception, InvalidLabelsError), result.output
        assert str(result.exception).startswith("all 60 labels are 'ok': there is nothing to give away")

    def test_infinite_labels(self, files: tuple[str, str]) -> None:
        table = pd.read_csv(files[0])
        table.loc[3, "spent"] = np.inf
        table.to_csv(files[0], index=False)
        result = leakage(files, target="spent")
        assert isinstance(result.exception, InvalidLabelsError), result.output
        assert "1 of 60 values of 'spent' are infinite" in str(result.exception)

    def test_labels_outside_of_the_bounds(self, files: tuple[str, str]) -> None:
        more = ("--privacy", "laplace-labels", "--epsilon", "1", "-o", "lower=0", "-o", "upper=1")
        result = leakage(files, *more, target="spent")
        assert isinstance(result.exception, InvalidLabelsError)
        assert "outside of the public bounds" in str(result.exception)

    def test_columns(self, files: tuple[str, str], tmp_path: Path) -> None:
        assert "no column 'x' to predict" in str(leakage(files, target="x").exception)
        other = tmp_path / "other.toml"
        other.write_text('[organizations]\nbank = ["income"]\nshop = ["nothing"]\n')
        result = leakage((files[0], str(other)))
        assert isinstance(result.exception, InvalidInputError)
        assert "no column 'nothing'" in str(result.exception)


class TestWhatIsCompared:
    def test_each_takes_what_it_knows(self) -> None:
        several, y = ["none", "randomised-response", "paper-laplace"], np.array(["a", "b"] * 5)
        made = chosen_mechanisms(several, [0.5, 2.0], y, {"alpha": 4.0})
        assert made == {
            "none": None,
            "randomised-response epsilon 0.5": RandomisedResponse(0.5, ["a", "b"]),
            "randomised-response epsilon 2": RandomisedResponse(2.0, ["a", "b"]),
            "paper-laplace": PaperLaplace(4.0),
        }

    def test_numbers_take_their_bounds_from_the_table(self) -> None:
        y = np.linspace(-3.0, 8.0, 50)
        made = chosen_mechanisms(["laplace-labels"], [1.0], y, {"upper": 10.0})
        assert made == {"laplace-labels epsilon 1": LaplaceLabels(1.0, -3.0, 10.0)}
