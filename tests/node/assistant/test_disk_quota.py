"""How much an organization keeps on its disk for one label holder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ByteSize
from test_service import Lab, begin, fit

from gal.clock import utc_now
from gal.errors import RefusedError
from gal.node.assistant import request_checks
from gal.node.assistant.request_checks import RequestChecks
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.policy import Policy
from gal.node.config.requests import IncomingRequest
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


def test_beginning_and_fitting_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_checks, "LOOK_AT_DISK", -1.0)
    lab = Lab(tmp_path, '[policy]\ndisk_per_peer = "1kB"\n')
    rows = lab.ask(begin()).fields["rows"]
    assert lab.refusal(fit(rows)) == lab.refusal(begin(version=2)) == "disk-quota"
    lab.close()
