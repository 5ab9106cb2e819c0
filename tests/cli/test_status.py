"""``gal status``: the activity of a node."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("grpc")

from gal.cli.status import activity

LAB = {"organization": "lab", "what": "fit", "round": 3, "connected": False}


def running(**more: Any) -> dict[str, Any]:
    """Facts of a node that runs."""
    live = {"pid": 7, "partners": [], "learning": None, "waiting": [], "computing": [], "now": 100.0} | more
    return {
        **{"organization": "clinic", "fingerprint": "sha256:" + "0" * 64, "listens": "127.0.0.1:1"},
        **{"running": live, "tasks": []},
    }


def test_activity_of_a_running_node() -> None:
    live = {
        "now": 100.0,
        "learning": {"task": "risk", "state": "learning", "round": 2, "rounds": 10, "since": 70.0},
        "waiting": [LAB | {"for_seconds": 4.0, "seconds_left": 596.0}],
        "computing": [{"what": "fit", "for": "bank", "task": "churn", "round": 1, "since": 0}],
    }
    assert list(activity(live)) == [
        "learns risk: 2 of at most 10 rounds are done, 30 s so far",
        "waits for lab (fit of round 3) for 4 s, 10 min left; it is not connected",
        "computes for bank: churn (fit of round 1)",
    ]
    assert list(activity(running()["running"])) == []
