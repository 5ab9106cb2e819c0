"""What ``gal learn`` says at its end: how good, with whom, and which version predicts."""

from __future__ import annotations

import io
from typing import Any

import pytest
import typer
from rich.console import Console

from gal.cli.app import EXIT_TOO_FEW
from gal.cli.learning import learn_command, print_version

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
    "invited": ["clinic", "lab", "ward"],
    "not_there": {"ward": "has left of its own accord"},
    "too_few": True,
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


def test_which_version_predicts_and_who_was_missing() -> None:
    said = printed()
    assert "ended with 2 of 3 organizations: ward has left of its own accord." in said
    assert (
        "does not predict: its validated loss is 1864, that of version 2 is 1544; version 2 stays active"
        in said
    )
    assert "gal versions risk --activate 4" in said
    assert "does not predict" not in printed(active=4, why_not_active="", not_there={})


@pytest.mark.parametrize(
    ("quorum", "least", "everybody", "too_few"),
    [(None, 0, False, False), ("3", 3, False, True), ("all", 0, True, True)],
)
def test_too_few_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    quorum: str | None,
    least: int,
    everybody: bool,
    too_few: bool,
) -> None:
    asked: dict[str, Any] = {}

    def do(folder: Any, what: str, arguments: dict[str, Any], **how: Any) -> dict[str, Any]:
        asked.update(arguments)
        return FACTS | {"too_few": too_few}

    (tmp_path / "node.toml").write_text('name = "clinic"\n')
    monkeypatch.setattr("gal.node.runtime.commands.do", do)
    if too_few:
        with pytest.raises(typer.Exit) as ended:
            learn_command("risk", quorum=quorum, home=tmp_path)
        assert ended.value.exit_code == EXIT_TOO_FEW == 5
    else:
        learn_command("risk", quorum=quorum, home=tmp_path)
    assert (asked["patience"]["quorum"], asked["patience"]["everybody"]) == (least, everybody)
