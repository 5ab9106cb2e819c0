"""What ``gal learn`` says at its end: how good, which version predicts, what each organization added."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from gal.cli.learning import print_version
from gal.core.contributions import NOTHING, Contribution, Contributions
from gal.core.state import plain
from gal.evaluate.reporting.learned import gain_shares

FACTS: dict[str, Any] = {
    "task": "risk",
    "loss": "squared_error",
    "label_holder": "clinic",
    "version": 4,
    "rounds": 3,
    "rounds_learned": 3,
    "n_rows": 100,
    "seconds": 1.0,
    "initial_train_loss": 9.0,
    "train_loss": 2.0,
    "track": "assisted",
    "contributions": None,
    "missed": {},
    "known_rows": {"clinic": 100},
    "stopped": "all rounds are done",
    "initial_validation_loss": 3000.0,
    "alone_validation_loss": 2000.0,
    "assisted_validation_loss": 1864.0,
    "active": 2,
    "why_not_active": "its validated loss is 1864, that of version 2 is 1544",
}


HELPED, IDLE = Contribution(0.08, 0.06, 0.1, "helped"), Contribution(0.001, -0.002, 0.003, "no gain")
FOUND = Contributions(
    by_organization={"telecom": HELPED, "chancer": IDLE},
    own=0.2,
    gain=Contribution(0.081, 0.06, 0.1, "helped"),
    rows="validation",
    n_rows=400,
)


def printed(**changes: Any) -> str:
    out = io.StringIO()
    print_version(FACTS | changes, Console(file=out, width=500, highlight=False))
    return out.getvalue()


def test_which_version_predicts_and_how_good_it_is_beside_alone() -> None:
    said = printed()
    assert "On rows that were not fitted the squared error is 1,864.0, and 2,000.0 alone" in said
    assert "is not active: its validated loss is 1864, that of version 2 is 1544; version 2 stays" in said
    assert "is not active" not in printed(active=4, why_not_active="")


def test_a_version_has_its_contributions() -> None:
    facts: dict[str, Any] = {"contributions": plain(FOUND), "loss": "log_loss"}
    assert "clinic's own part: 0.200 of log loss" in printed(**facts)
    assert gain_shares(facts["contributions"]) == "telecom 99%, chancer 1% (no gain)"
    standing = {"epsilon": 1.0, "delta": 0.0, "spent": 1.0, "budget": None, "left": None, "at_delta": 0.0}
    private = {"privacy": {"mechanism": "randomised-response", "words": "Noise.", **standing}}
    assert "measured on the noisy labels" in printed(**facts, **private)
    assert "do not pay by it" in printed(contributions=plain(replace(FOUND, rows="training")))
    assert gain_shares(None) == ""
    assert "no significant gain" in gain_shares(plain(replace(FOUND, gain=NOTHING)))


def test_a_loss_above_that_of_its_rounds_is_explained() -> None:
    """A cross-validation keeps a share of all steps: the version is not where its rounds ended."""
    facts = {"contributions": plain(replace(FOUND, rows="cross-validation"))}
    facts["learning"] = {"used": 2, "train": [9.0, 3.0, 1.5, 1.4], "validation": [9.0, 4.0, 3.0, 3.1]}
    assert "fell from 9.000 to 2.000. It is above the 1.500 of the last used round" in printed(**facts)
    assert "shrinkage" not in printed(**facts, train_loss=1.5)
