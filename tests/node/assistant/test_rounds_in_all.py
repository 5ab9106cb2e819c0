"""How many fits an organization answers for one label holder, over all its tasks and versions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from gal.clock import utc_now
from gal.errors import RefusedError
from gal.node.assistant.request_checks import RequestChecks
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.policy import Policy
from gal.node.config.requests import IncomingRequest
from gal.node.store.state import State
from gal.protocol import Message

VERSION = {"rounds": 9, "without": (30,), "n_fit": 30, "n_outputs": 1, "fewest": 30}


def asked(task: str, peer: str = "clinic", part: int | None = None, own: bool = False) -> IncomingRequest:
    residual = np.ones((30, 1), dtype=np.float32)
    fields = {"round": 1, "part": part}
    message = Message("fit", task * 32, 1, "x", fields, {"residual": residual})
    return IncomingRequest(peer, message, b"", "", own)


def test_they_are_counted_over_tasks_and_restarts(tmp_path: Path) -> None:
    """Folds of a cross-validation count, too: the label holder chooses the residual of each."""
    version = cast(Any, type("V", (), VERSION))
    configuration = NodeConfiguration(name="lab", policy=Policy(rounds_per_label_holder=5), home=tmp_path)
    with closing(State(tmp_path)) as state:
        checks = RequestChecks(configuration, state, utc_now)
        for task in ("a", "b"):
            checks.fit(asked(task), version)
            checks.fit(asked(task, part=0), version)
    with closing(State(tmp_path)) as state:
        checks = RequestChecks(configuration, state, utc_now)
        checks.fit(asked("c"), version)
        for part in (None, 0):
            with pytest.raises(RefusedError, match=r"accepts 5 fits.*'rounds_per_label_holder'") as refused:
                checks.fit(asked("c", part=part), version)
            assert refused.value.code == "rounds-spent"
        checks.fit(asked("d", peer="shop"), version)
        checks.fit(asked("e", peer="lab", own=True), version)
