"""What people are told of a simulation: no share and no helper where there may be only chance, in no line."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.linear_model import Ridge

from gal.cli.simulation import print_simulation
from gal.evaluate import Simulation, Verdict, simulate
from gal.evaluate.reporting.facts import ReportFacts
from gal.evaluate.reporting.simulated import (
    NOTHING,
    answer_in_words,
    facts_of_simulation,
)
from gal.evaluate.reporting.writing import page_of
from report_pages import ReadPage

pytestmark = pytest.mark.usefixtures("few_trees")

NUMBER_OF_PERCENT = re.compile(r"\d+ ?% of the")


@pytest.fixture(scope="module")
def noise() -> Simulation:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(150, 4)), columns=list("abcd"))
    table["y"] = np.where(table["a"] + rng.normal(size=150) > 0, "yes", "no")
    parts = {"mine": ["a"], "theirs": ["b", "c"], "others": ["d"]}
    return simulate(table, "y", parts, folds=3, rounds=2, local_models=Ridge())


def printed(found: Simulation) -> str:
    out = io.StringIO()
    print_simulation(found, Console(file=out, width=500, highlight=False))
    return out.getvalue()


def page(found: Simulation) -> ReadPage:
    facts: ReportFacts = facts_of_simulation(found)
    return ReadPage(page_of(facts, "now"))


def test_of_noise_nothing_is_claimed_in_any_line(noise: Simulation) -> None:
    assert noise.verdict is Verdict.NO_GAIN
    assert noise.covered is None
    assert noise.contributions is not None
    for one in noise.contributions.by_organization.values():
        assert one.low <= 0
    for said in (printed(noise), page(noise).words):
        assert NOTHING in said
        assert "pooling gain" not in said
        assert "as good as pooled" not in said
        assert NUMBER_OF_PERCENT.search(said) is None
        assert "may be chance" in said
    facts = noise.to_json()
    assert facts["verdict"] == "no gain"
    assert facts["covered"] is None
    found = facts["contributions"]["by_organization"]
    assert "helped" not in {one["verdict"] for one in found.values()}


def test_what_is_wrong_with_the_table_stands_beside_the_answer() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"id": [*range(90), *range(10)], "one": 1, "a": rng.normal(size=100)})
    table["y"] = table["a"] + rng.normal(size=100)
    parts = {"mine": ["a"], "theirs": ["one"]}
    found = simulate(table, "y", parts, folds=2, rounds=1, local_models=Ridge())
    words = page(found).words
    places = [words.find(one) for one in (answer_in_words(found), "constant", "duplicated ids", "Scores")]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("verdict", "begins"),
    [(Verdict.GAIN, "Yes: with assistance"), (Verdict.UNCLEAR, "Not clear"), (Verdict.HARM, "No")],
)
def test_the_answer_follows_from_the_verdict(noise: Simulation, verdict: Verdict, begins: str) -> None:
    assert answer_in_words(replace(noise, verdict=verdict)).startswith(begins)
