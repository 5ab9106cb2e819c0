"""Contributions, for people: the own part apart, words for each."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from test_cli_learning import FACTS

from gal.cli.learning import print_version
from gal.cli.simulation import print_simulation
from gal.core.contributions import NOTHING, Contribution, Contributions
from gal.core.state import plain
from gal.evaluate import Interval, Simulation, Verdict
from gal.evaluate.reporting.facts import contributions_section
from gal.evaluate.reporting.learned import gained_by

HELPED, IDLE = Contribution(0.08, 0.06, 0.1, "helped"), Contribution(0.001, -0.002, 0.003, "no gain")
FOUND = Contributions(
    by_organization={"telecom": HELPED, "chancer": IDLE},
    own=0.2,
    gain=Contribution(0.081, 0.06, 0.1, "helped"),
    rows="validation",
    n_rows=400,
)


def said(write: Any, *arguments: Any) -> str:
    out = io.StringIO()
    console = Console(file=out, width=300, highlight=False)
    write(*[console if one is Console else one for one in arguments])
    return out.getvalue()


def test_where_nobody_helped_it_is_said() -> None:
    idle = replace(FOUND, by_organization={"chancer": IDLE}, gain=IDLE)
    words = " ".join(map(str, contributions_section(idle, "AUC", "bank")))
    assert "No organization helped" in words
    assert "bank's own part: 0.200 of AUC. What the others add to it may be chance" in words


def test_a_version_has_its_contributions() -> None:
    facts = FACTS | {"contributions": plain(FOUND), "loss": "log_loss", "label_holder": "clinic"}
    words = said(print_version, facts, Console)
    assert "clinic's own part: 0.200 of log loss" in words
    assert "helped" in words
    assert gained_by(facts["contributions"]) == "telecom 99%, chancer 1% (no gain)"
    assert "noisy labels" not in words
    standing = {"epsilon": 1.0, "delta": 0.0, "spent": 1.0, "budget": None, "left": None, "at_delta": 0.0}
    private = facts | {"privacy": {"mechanism": "randomised-response", "words": "Noise.", **standing}}
    assert "Judged on the noisy labels" in said(print_version, private, Console)


def test_a_version_that_nothing_validates_says_so() -> None:
    training = plain(replace(FOUND, rows="training"))
    assert "do not pay by it" in said(
        print_version, FACTS | {"contributions": training, "loss": "squared"}, Console
    )
    assert gained_by(None) == ""
    assert "nobody" in gained_by(plain(replace(FOUND, gain=NOTHING)))


@pytest.mark.parametrize(
    ("rounds", "used", "expected"),
    [
        ((0, 0), (False, False), "Nothing was learned that holds for other rows"),
        ((3, 2), (True, False), "In 1 of 2 splits of the cross-validation no organization helped"),
        ((3, 2), (True, True), ""),
    ],
)
def test_a_simulation_says_where_nothing_validated(
    rounds: tuple[int, ...], used: tuple[bool, ...], expected: str
) -> None:
    score = Interval(0.5, 0.4, 0.6)
    found = Simulation(
        metric="auc",
        alone=score,
        assisted=score,
        pooled=score,
        gain=Interval(0.0, -0.1, 0.1),
        pooling_gain=Interval(0.0, -0.1, 0.1),
        verdict=Verdict.NO_GAIN,
        contributions=None,
        label_holder="bank",
        organizations={"bank": ["a"], "shop": ["b"]},
        target="y",
        rows=10,
        predicted_rows=10,
        seconds=1.0,
        pooled_model="linear model",
        rounds_used=rounds,
        assistance_used=used,
    )
    words = said(print_simulation, found, Console)
    assert expected in words
    assert ("Nothing was learned" in words) == (rounds == (0, 0))


def printed_version(**changes: Any) -> str:
    out = io.StringIO()
    print_version(FACTS | {"label_holder": "clinic"} | changes, Console(file=out, width=500, highlight=False))
    return out.getvalue()


def test_a_loss_above_that_of_its_rounds_is_explained() -> None:
    """A cross-validation keeps a share of all steps: the version is not where its rounds ended."""
    found = plain(replace(FOUND, rows="cross-validation"))
    curve = {"used": 2, "train": [9.0, 3.0, 1.5, 1.4], "validation": [9.0, 4.0, 3.0, 3.1]}
    said = printed_version(contributions=found, loss="log_loss", learning=curve)
    assert "went from 9.000 to 2.000. With whole steps it would be 1.500, as in its rounds; of them" in said
    assert "whole steps" not in printed_version(
        contributions=found, loss="log_loss", learning=curve, train_loss=1.5
    )
