"""How a simulation reads the columns of a table: printed first, in its JSON and report, overruled."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

from gal.cli.app import app
from gal.errors import InvalidInputError
from gal.evaluate import simulate
from gal.evaluate.profile import models_with_kinds, readable_target, used_columns
from gal.models import TabularModel

pytestmark = pytest.mark.usefixtures("few_trees")

PARTS = {"telco": ["tenure", "plan"], "bank": ["customer_id", "income", "used", "since", "zip"]}


def churn(n: int = 300) -> pd.DataFrame:
    """Customers of whom the bank knows what counts, in words of people."""
    rng = np.random.default_rng(0)
    income, used = rng.lognormal(10.5, 0.5, n), rng.uniform(0, 100, n)
    chance = 1 / (1 + np.exp(-2.0 * (np.log(income) - 10.5) - 0.04 * (used - 50)))
    return pd.DataFrame(
        {
            "tenure": rng.integers(1, 72, n),
            "plan": rng.choice(["basic", "plus"], n),
            "customer_id": rng.permutation(n) + 10_000,
            "income": [f"${one:,.2f}" for one in income],
            "used": [f"{one:.1f}%" for one in used],
            "since": (pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(n), unit="D")).strftime(
                "%d.%m.%Y"
            ),
            "zip": [f"{one:05}" for one in rng.integers(1000, 1010, n)],
            "churned": (rng.random(n) < chance).astype(int),
        }
    )


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    churn().to_csv(tmp_path / "churn.csv", index=False)
    text = "[organizations]\n" + "".join(
        f"{name} = {json.dumps(columns)}\n" for name, columns in PARTS.items()
    )
    (tmp_path / "o.toml").write_text(text)
    paths = [str(tmp_path / "churn.csv"), "--target", "churned", "--organizations", str(tmp_path / "o.toml")]
    return ["simulate", *paths, "--folds", "1", "--rounds", "3"]


def test_columns_are_shown_before_anything_is_learned() -> None:
    steps: list[str] = []
    found = simulate(
        churn(),
        "churned",
        PARTS,
        folds=1,
        rounds=3,
        on_step=lambda step, _: steps.append(step),
        on_columns=lambda columns: steps.append(", ".join(one.column.kind for one in columns)),
    )
    assert steps[0] == "number, category, id, number, number, date, category"
    assert found.assisted.value > found.alone.value + 0.1
    (remark,) = found.profile
    assert (remark.kind, remark.columns) == ("id-like", ("customer_id",))
    assert "is left out" in remark.words
    zips = found.to_json()["columns"][-1]
    assert {name: zips[name] for name in ("name", "organization", "kind", "missing", "declared")} == {
        **{"name": "zip", "organization": "bank", "kind": "category", "missing": 0.0, "declared": False}
    }
    assert len(zips["examples"]) == 3


def test_people_machines_and_the_report_are_told(files: list[str], tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, files)
    assert shown.exit_code == 0, shown.output
    said, result = shown.output.split("Predicting 'churned'")
    assert result
    (line,) = [one for one in said.splitlines() if "income" in one]
    assert re.search(r"income.*bank.*number.*\$[\d,.]+, .*made numbers", line)
    assert "Numbers as they are: tenure." in said
    report = tmp_path / "r.html"
    told = CliRunner().invoke(app, [*files, "--json", "--column", "zip=number", "--report", str(report)])
    assert told.exit_code == 0, told.output
    zips = json.loads(told.stdout)["columns"][-1]
    assert (zips["kind"], zips["declared"]) == ("number", True)
    page = report.read_text(encoding="utf-8")
    assert "Columns of the table" in page
    assert "number (from --column)" in page


def test_wrong_words_about_columns_are_errors(files: list[str]) -> None:
    for option, words in (
        ("zip", "expected NAME=kind"),
        ("zip=zip", "no kind is called"),
        ("zap=text", "'zap'"),
    ):
        result = CliRunner().invoke(app, [*files, "--column", option])
        assert isinstance(result.exception, InvalidInputError)
        assert words in str(result.exception)


def test_plain_numbers_are_one_line_and_control_characters_are_escaped(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 40)), columns=[f"x{one}" for one in range(40)])
    table["bad\x1b[31mname"] = ["a\x07b", "c"] * 30
    table["unused\x1b]0;x"] = 1
    table["y"] = table["x0"]
    table.to_csv(tmp_path / "t.csv", index=False)
    columns = json.dumps([name for name in table.columns if name[0] in "xb" and name != "x0"])
    (tmp_path / "o.toml").write_text(f'[organizations]\nme = ["x0"]\n"you\\u001b[2J" = {columns}\n')
    options = ["--target", "y", "--organizations", str(tmp_path / "o.toml"), "--folds", "1", "--rounds", "1"]
    result = CliRunner().invoke(app, ["simulate", str(tmp_path / "t.csv"), *options])
    assert "Predicting 'y'" in result.output, result.output
    assert "\x1b" not in result.output
    for name in ("you\\x1b[2J", "unused\\x1b]0;x"):
        assert name in result.output, "names of organizations and of unused columns, too"
    assert "\x07" not in result.output
    assert "bad\\x1b[31mname" in result.output
    assert "Numbers as they are: x0, x1," in result.output
    assert " and 28 more." in result.output


def test_other_models_get_numbers_and_the_default_is_told() -> None:
    frame = churn()
    columns = used_columns(frame, PARTS, {"zip": "text"})
    X, models = models_with_kinds(frame.drop(columns="churned"), columns, {"bank": Ridge()})
    assert isinstance(models["bank"], Ridge)
    assert models["telco"].kinds == {"plan": "category"}
    assert X["income"].dtype == np.float64
    assert X["since"].iloc[0] == (pd.Timestamp("2020-01-01") - pd.Timestamp(0)).days
    _, models = models_with_kinds(
        frame.drop(columns="churned"), columns, TabularModel(alpha=3.0, kinds={"used": "text"})
    )
    assert models["bank"].alpha == 3.0
    told = {**models["telco"].kinds, **models["bank"].kinds}
    assert (told["used"], told["zip"], told["customer_id"]) == ("text", "text", "id")
    numbers = frame[["tenure"]]
    assert models_with_kinds(numbers, used_columns(numbers, {"one": ["tenure"]}), None) == (numbers, None)


def test_a_target_of_money_or_dates_is_numbers() -> None:
    money = pd.Series([f"${one:,.2f}" for one in np.arange(30) * 1234.5])
    assert readable_target(money).tolist() == [one * 1234.5 for one in range(30)]
    days = pd.Series(pd.date_range("1970-01-02", periods=30))
    for dates in (days, days.dt.strftime("%d.%m.%Y")):
        assert readable_target(dates).tolist() == list(range(1, 31))
    for classes in (["yes", "no"] * 15, ["$1", "$2"] * 15, [1, 2, 3], [f"c{one}" for one in range(30)]):
        assert readable_target(pd.Series(classes)).tolist() == classes


def test_numbers_of_shops_that_are_text_are_learned_as_they_are_shown() -> None:
    rng = np.random.default_rng(0)
    at, x = rng.integers(0, 120, 1500), rng.normal(size=1500)
    shop = rng.choice(9000, 120, replace=False)[at] + 1000
    y = rng.normal(size=120)[at] + 0.3 * x + 0.3 * rng.normal(size=1500)
    for shops in (shop, shop.astype(str)):
        table = pd.DataFrame({"x": x, "shop": shops, "y": y})
        found = simulate(table, "y", {"bank": ["x"], "chain": ["shop"]}, folds=2)
        assert found.assisted.value > 0.7
        assert found.columns[1].column.done == "numbers, and each a category"
