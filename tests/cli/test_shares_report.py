"""Who earned what, for people: own part apart, free riders named, estimates called estimates, money."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from test_cli_learning import FACTS

from gal.cli.evaluating.simulation_report import print_simulation
from gal.cli.learning import _print_earned, print_version, worth_of_facts
from gal.cli.screen.shares_report import number, print_coalitions, print_shares
from gal.cli.versions import _gained
from gal.core.contributing.shares import Coalition, Earned, Shares
from gal.core.state import plain
from gal.evaluate import Interval, Simulation, Verdict

GOOD, NOTHING = Earned(0.08, 0.06, 0.1), Earned(0.001, -0.002, 0.003)
SHARES = Shares(
    rows=400,
    judged_by="validation rows",
    own=0.2,
    own_measured=True,
    gain=0.081,
    by_organization={"telecom": GOOD, "chancer": NOTHING},
    coalitions=(
        Coalition(("chancer",), NOTHING, measured=False),
        Coalition(("telecom",), GOOD, measured=False),
        Coalition(("chancer", "telecom"), Earned(0.081, 0.06, 0.1), measured=True),
    ),
)


def said(write: Any, *arguments: Any) -> str:
    out = io.StringIO()
    console = Console(file=out, width=300, highlight=False)
    write(*[console if one is Console else one for one in arguments])
    return out.getvalue()


def test_shares_in_words() -> None:
    words = said(print_shares, SHARES, "bank", "auc", Console, {"telecom": 800.0, "chancer": 10.0})
    for expected in (
        "bank's own part: 0.200 of auc",
        "400 rows that were not fitted",
        "free rider",
        "helped",
        "800",
    ):
        assert expected in words
    assert "No organization helped" not in words


def test_where_nobody_helped_it_is_said() -> None:
    idle = Shares(400, "validation rows", 0.2, True, 0.0, {"chancer": NOTHING}, SHARES.coalitions)
    assert "No organization helped" in said(print_shares, idle, "bank", "auc", Console)


def test_names_are_whole_at_80_columns() -> None:
    name = "a_laboratory_of_clinical_chemistry_whose_name_has_no_blank_in_it"
    alone = Coalition((name,), GOOD, measured=False)
    shares = replace(SHARES, by_organization={"chancer": NOTHING, name: GOOD}, coalitions=(alone,))
    for terminal in (True, False):
        out = io.StringIO()
        console = Console(file=out, width=80, force_terminal=terminal, highlight=False)
        print_shares(shares, "bank", "auc", console)
        print_coalitions(shares, "auc", console)
        assert out.getvalue().count(name) == 2


def test_an_estimate_is_called_one() -> None:
    words = said(print_coalitions, SHARES, "auc", Console, 100.0)
    lines = {line.split("│")[1].strip(): line for line in words.splitlines() if line.startswith("│")}
    assert "estimate" in lines["telecom"]
    assert "measured" in lines["all of them"]
    assert " 800 " in lines["telecom"]  # 8 points of 100


def test_a_version_says_who_earned_what() -> None:
    facts = FACTS | {"shares": plain(SHARES), "loss": "log_loss", "label_holder": "clinic"}
    words = said(print_version, facts, Console, 10.0)
    assert "clinic's own part: 0.200 of log loss" in words
    assert "what if only some joined" in words
    assert worth_of_facts(facts, 10.0) == pytest.approx({"telecom": 80.0, "chancer": 1.0})
    assert worth_of_facts(facts, None) is None
    assert _gained(facts) == "telecom 99%, chancer 1% (free rider)"
    assert "noisy labels" not in words
    judged = said(_print_earned, facts | {"privacy": {"mechanism": "randomised-response"}}, Console, None)
    assert "Judged on the noisy labels" in judged


def test_a_version_that_nothing_validates_says_so() -> None:
    facts = FACTS | {"shares": None, "contributions_on": "fitted rows"}
    assert "Do not pay by them" in said(print_version, facts, Console)
    assert _gained(facts) == ""
    assert "nobody" in _gained({"shares": plain(SHARES) | {"gain": 0.0}})


def test_numbers_have_no_empty_minus() -> None:
    assert [number(one) for one in (-0.00001, 0.0123, 0.5, -1234.5)] == [
        "0.0000",
        "0.0123",
        "0.500",
        "-1,234.5",
    ]


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
        contributions={},
        shares=None,
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
    shares = plain(replace(SHARES, judged_by="cross-validation"))
    curve = {"used": 2, "train": [9.0, 3.0, 1.5, 1.4]}
    said = printed_version(shares=shares, loss="log_loss", learning=curve)
    assert "Train loss 9 → 2. With whole steps it would be 1.500, as in the rounds above; of them" in said
    assert "whole steps" not in printed_version(
        shares=shares, loss="log_loss", learning=curve, train_loss=1.5
    )
