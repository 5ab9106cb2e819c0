"""How much an organization keeps on its disk for one label holder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from pydantic import ByteSize

from gal.clock import utc_now
from gal.errors import RefusedError
from gal.node.agreement.incoming import IncomingRequest
from gal.node.assistant import request_checks
from gal.node.assistant.request_checks import RequestChecks
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.policy import Policy
from gal.node.store.state import State, TaskRecord
from gal.protocol import Message
from small_terms import small_terms

MINE, OTHERS = "a" * 32, "b" * 32


def asked(peer: str) -> IncomingRequest:
    return IncomingRequest(peer, Message("fit", MINE, 1), b"", "")


def test_what_is_kept_for_a_label_holder_is_counted_over_all_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(tmp_path)
    state.add_task(TaskRecord(MINE, "risk", "organization", "clinic", small_terms(MINE, "risk")))
    state.add_task(TaskRecord(OTHERS, "sales", "organization", "shop", small_terms(OTHERS, "sales")))
    policy = Policy(disk_per_peer=ByteSize(3000))
    configuration = NodeConfiguration(name="lab", policy=policy, home=tmp_path)
    checks = RequestChecks(configuration, state, utc_now)
    monkeypatch.setattr(request_checks, "LOOK_AT_DISK", -1.0)
    checks.disk(asked("clinic"))
    for version in (1, 2):
        (state.folder(MINE, version) / "view.arrow").write_bytes(bytes(1600))
    with pytest.raises(RefusedError, match=r"keeps no more than 3\.0KB for one label") as refused:
        checks.disk(asked("clinic"))
    assert refused.value.code == "disk-quota"
    checks.disk(asked("shop"))  # has its own
    (state.folder(MINE, 1) / "view.arrow").unlink()
    checks.disk(asked("clinic"))
    state.close()


@pytest.mark.parametrize("what", ["begin", "fit"])
def test_beginning_and_fitting_ask(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, one: object) -> None:
        raise RefusedError("disk-quota", "full")

    monkeypatch.setattr(RequestChecks, "disk", full)
    state = State(tmp_path)
    checks = RequestChecks(NodeConfiguration(name="lab", home=tmp_path), state, utc_now)
    task = TaskRecord(MINE, "risk", "organization", "clinic", small_terms(MINE, "risk"))
    residual = np.ones((30, 1), dtype=np.float32)
    version = cast(
        Any, type("V", (), {"rounds": 9, "without": (), "n_fit": 30, "n_outputs": 1, "fewest": 30})
    )
    terms = {"terms": task.terms.digest, "n_outputs": task.terms.outputs, "rounds": 1}
    fields = terms | {"method": task.terms.alignment, "round": 1, "part": None}
    message = Message(what, MINE, 1, "x", fields, {"residual": residual} if what == "fit" else {})
    request = IncomingRequest("clinic", message, b"", "")
    check = partial(checks.begin, request, task) if what == "begin" else partial(checks.fit, request, version)
    with pytest.raises(RefusedError, match="full"):
        check()
    state.close()
