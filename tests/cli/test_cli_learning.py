"""What ``gal learn`` says at its end: how good, and which version predicts."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from gal.cli.learning import print_version

FACTS: dict[str, Any] = {
    "task": "risk",
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


def printed(**changes: Any) -> str:
    out = io.StringIO()
    print_version(FACTS | changes, Console(file=out, width=500, highlight=False))
    return out.getvalue()


def test_alone_stands_beside_assisted() -> None:
    said = printed(loss="squared_error", label_holder="clinic")
    for words in ("squared error (lower is better)", "before the first round", "clinic alone", "2,000.0"):
        assert words in said
    assert "On rows that were not fitted the squared error is 1,864.0, and 2,000.0 alone" in said


def test_which_version_predicts() -> None:
    said = printed()
    assert (
        "does not predict: its validated loss is 1864, that of version 2 is 1544; version 2 stays active"
        in said
    )
    assert "gal versions risk --activate 4" in said
    assert "does not predict" not in printed(active=4, why_not_active="")
