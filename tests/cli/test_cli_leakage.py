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
from gal.errors import InvalidLabelsError, InvalidOptionError

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
        assert "Noise came from a seed" not in result.stdout

    def test_a_guarantee_is_stated_beside_the_attacks(self, files: tuple[str, str]) -> None:
        result = leakage(files, "--privacy", "randomised-response", "--epsilon", "1")
        assert result.exit_code == 0, result.output
        assert "the guarantee allows 73.1%" in result.stdout
        assert "Randomized response on 2 classes with epsilon 1" in result.stdout
        assert result.stdout.lower().count("noise came from a seed") == 1
        assert "-o classes= was not given, so the table's own was used" in result.stdout

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
            (("--privacy", "paper-laplace", "--epsilon", "1"), InvalidOptionError, "has epsilon"),
            (
                ("--privacy", "laplace-labels", "--epsilon", "1"),
                InvalidOptionError,
                "take randomised-response",
            ),
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
        assert str(result.exception).startswith("all 60 labels are 'ok': there is nothing to protect")
