"""``gal status`` and ``gal status --watch``: what is said, at 80 columns and in a pipe, and when."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

pytest.importorskip("duckdb")
pytest.importorskip("grpc")

from gal.cli.screen import Screen
from gal.cli.status_report import doing_now, print_status, watch_status
from gal.errors import NodeError
from gal.node.holder.doing import AWAY, CONNECTED, NOT_JOINED

LAB = {"organization": "lab", "what": "fit", "round": 3, "connected": False}


def running(**more: Any) -> dict[str, Any]:
    """Facts of a node that runs."""
    live = {"pid": 7, "links": {}, "connected": []} | more
    return {
        **{"organization": "clinic", "fingerprint": "sha256:" + "0" * 64, "listens": "127.0.0.1:1"},
        **{"running": live, "starting": None, "tasks": []},
    }


class Looks:
    """Answers one after another, then the end."""

    def __init__(self, *found: Any) -> None:
        self.found = list(found)

    def read(self) -> Any:
        one = self.found.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    def wait(self, timeout: float) -> bool:
        return not self.found


def waiting(seconds: float) -> dict[str, Any]:
    return running(waiting=[LAB | {"for_seconds": seconds, "seconds_left": 600 - seconds}])


def test_what_goes_on_is_said_in_sentences() -> None:
    live = {
        "learning": {"task": "risk", "round": 2, "rounds": 10, "since": time.time() - 30},
        "waiting": [LAB | {"for_seconds": 4.0, "seconds_left": 596.0}],
        "computing": [{"what": "fit", "for": "bank", "task": "churn", "round": 1, "since": 0}],
    }
    assert list(doing_now(live)) == [
        "learns risk: 2 of at most 10 rounds are done, 30 s so far",
        "waits for lab (fit of round 3) for 4 s, 10 min left; it is not connected",
        "computes for bank: churn (fit of round 1)",
    ]
    assert list(doing_now({})) == []


def test_who_has_joined_and_who_is_merely_away_is_said_line_by_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = {"name": "risk", "role": "label holder", "label_holder": "clinic", "active": 1, "state": "open"}
    facts = running() | {"tasks": [task | {"members": {"lab": CONNECTED, "ward": AWAY, "shop": NOT_JOINED}}]}
    print_status(facts, Screen(), Path("clinic"))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()[-4:]]
    assert lines[0] == "risk with lab: joined, connected"
    assert lines[1] == "risk with ward: not connected"
    assert lines[2] == "risk with shop: connected, has not joined (there: gal join)"
    assert (
        lines[3]
        == "Who is not connected has not joined yet (there: gal join), or does not run (there: gal serve)."
    )
    facts["tasks"][0]["members"] = {"lab": CONNECTED}
    print_status(facts, Screen(), Path("clinic"))
    assert "Who is not connected" not in capsys.readouterr().out


def test_a_pipe_hears_of_changes_only(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(waiting(1), waiting(2), NodeError("it ends"), NodeError("it ends"), running())
    watch_status(looks.read, Path("clinic"), 0.1, looks, as_json=False)
    said = capsys.readouterr().out
    assert said.count("runs (process 7)") == 2
    assert said.count("waits for lab") == 1
    assert said.count("it ends") == 1


def test_programs_get_a_line_of_json_at_every_change(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(waiting(1), waiting(2), running())
    watch_status(looks.read, Path("clinic"), 0.1, looks, as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(one["running"].get("waiting", [])) for one in lines] == [1, 0]


def test_what_is_wrong_from_the_beginning_is_an_error() -> None:
    looks = Looks(NodeError("no such node"))
    with pytest.raises(NodeError, match="no such node"):
        watch_status(looks.read, Path("clinic"), 0.1, looks, as_json=True)


def test_a_terminal_is_drawn_anew(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    looks = Looks(waiting(1), waiting(2))
    watch_status(looks.read, Path("clinic"), 0.1, looks, as_json=False)
    said = Text.from_ansi(capsys.readouterr().out).plain
    assert "for 1 s" in said
    assert "for 2 s" in said, "seconds count, too"
    assert "Ctrl-C ends it" in said
