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
from gal.evaluate import Interval, Simulation, Verdict, simulate
from gal.evaluate.reporting.facts import ReportFacts
from gal.evaluate.reporting.simulated import (
    NOTHING,
    answer_in_words,
    details_in_words,
    facts_of_simulation,
)
from gal.evaluate.reporting.writing import page_of
from report_pages import ReadPage

pytestmark = pytest.mark.usefixtures("few_trees")

NUMBER_OF_PERCENT = re.compile(r"\d+ ?% of the")


@pytest.fixture(scope="module")
def noise() -> Simulation:
    rng = np.random.default_rng(3)
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
        assert "helped on" not in said or "no organization helped" in said
        assert "pooling gain" not in said
        assert "as good as pooled" not in said
        assert NUMBER_OF_PERCENT.search(said) is None
        assert "may be chance" in said
    facts = noise.to_json()
    assert facts["verdict"] == "no gain"
    assert facts["covered"] is None
    found = facts["contributions"]["by_organization"]
    assert "helped" not in {one["verdict"] for one in found.values()}


@pytest.mark.parametrize(
    ("gain", "pooling", "wanted"),
    [
        (
            Interval(0.1, 0.05, 0.15),
            Interval(0.2, 0.1, 0.3),
            "That is 50% of the pooling gain, and no column",
        ),
        (Interval(0.3, 0.2, 0.4), Interval(0.2, 0.1, 0.3), "That is as good as pooled, and no column"),
        (Interval(0.3, 0.2, 0.4), Interval(0.2, -0.1, 0.5), "may be chance: no share of it is known"),
    ],
)
def test_a_share_of_the_pooling_gain_in_words(
    noise: Simulation, gain: Interval, pooling: Interval, wanted: str
) -> None:
    assisted = replace(noise.alone, value=noise.alone.value + gain.value)
    found = replace(noise, gain=gain, pooling_gain=pooling, verdict=Verdict.GAIN, log_losses=None)
    found = replace(found, assisted=assisted, alone_tuned=noise.alone)
    for said in (printed(found), page(found).words):
        assert wanted in said
        assert "Yes: with assistance" in said
    assert not re.search(r"1\d\d ?%", " ".join(details_in_words(found)))


def test_other_verdicts_in_words(noise: Simulation) -> None:
    pooling = Interval(0.2, 0.1, 0.3)
    unclear = replace(noise, verdict=Verdict.UNCLEAR, pooling_gain=pooling)
    assert answer_in_words(unclear).startswith("Not clear")
    assert "Pooling all columns would add 0.200 (95 % confidence: 0.100 to 0.300)." in details_in_words(
        unclear
    )
    harm = replace(noise, verdict=Verdict.HARM)
    assert "assistance does harm" in answer_in_words(harm)
    tuned = replace(unclear, alone_tuned=Interval(0.99, 0.98, 1.0), alone_tuned_model="linear model")
    assert "local model" not in " ".join(details_in_words(tuned)), "its score may be higher by chance"
    tuned = replace(tuned, gain=pooling)
    wanted = "A tuned linear model on the columns of mine alone reaches 0.990: take it as the local model"
    assert wanted in " ".join(details_in_words(tuned))
    alone = replace(noise, organizations={"mine": ["a"]})
    assert answer_in_words(alone).startswith("Nobody else takes part")


def test_what_is_wrong_with_the_table_stands_beside_the_answer() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"id": [*range(90), *range(10)], "one": 1, "a": rng.normal(size=100)})
    table["y"] = table["a"] + rng.normal(size=100)
    parts = {"mine": ["a"], "theirs": ["one"]}
    found = simulate(table, "y", parts, folds=2, rounds=1, local_models=Ridge())
    words = page(found).words
    places = [words.find(one) for one in (answer_in_words(found), "constant", "duplicated ids", "How well")]
    assert -1 not in places
    assert places == sorted(places)
