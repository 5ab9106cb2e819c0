"""Everything above the carrier is what nodes have: quorum, waiting, drop-outs, resuming, audit, policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from carried import Holder, MemoryCarrier, label_holder, site
from patience import patient, until
from real_nodes import HOLDER, Network, text_of


@pytest.fixture
def carrier() -> Iterator[MemoryCarrier]:
    made = MemoryCarrier()
    yield made
    made.close()


def same(network: Network, holder: Holder) -> None:
    """Ensemble and predictions are those of one process, bit for bit."""
    expected, output = network.expected()
    assert text_of(network.ensemble()) == text_of(expected)
    said = holder.predict(network)
    assert said["degraded"] == 0
    assert [row["prediction"] for row in said["rows"]] == output.tolist()
    network.check_audits()


def test_what_is_learned_is_the_same_bit_for_bit_and_no_port_is_open(
    tmp_path: Path, carrier: MemoryCarrier
) -> None:
    with Network(tmp_path, options={"validation_fraction": 0.2}) as network, ExitStack() as stack:
        for name in network.organizations:
            stack.enter_context(site(carrier, network.home(name), name))
        holder = stack.enter_context(label_holder(carrier, network.home(HOLDER)))
        holder.learn()
        assert holder.node.port is None
        same(network, holder)


def test_who_goes_away_is_missed_and_not_fatal(tmp_path: Path, carrier: MemoryCarrier) -> None:
    with Network(tmp_path, rounds=3) as network, ExitStack() as stack:
        for name in network.organizations:
            stack.enter_context(site(carrier, network.home(name), name))
        holder = stack.enter_context(label_holder(carrier, network.home(HOLDER)))
        holder.after_round = lambda round: carrier.disconnect("lab")
        holder.learn(patience={"deadline": patient(3.0)})
        missed = {one["round"]: dict(one["missed"]) for one in holder.told("round")}
        assert missed[1] == {}
        assert set(missed[2]) == set(missed[3]) == {"lab"}
        assert "did not reply within" in missed[2]["lab"]


def test_a_revoked_card_ends_the_call(tmp_path: Path, carrier: MemoryCarrier) -> None:
    with Network(tmp_path, rounds=2) as network, ExitStack() as stack:
        stack.enter_context(site(carrier, network.home("lab"), "lab"))
        holder = stack.enter_context(label_holder(carrier, network.home(HOLDER)))
        until(lambda: holder.node.assistants.connected() == ["lab"], "the lab to be there")
        (network.home(HOLDER) / "cards" / "lab.card").unlink()
        until(lambda: holder.node.assistants.connected() == [], "the lab to be refused")


def test_a_site_that_revokes_the_label_holders_card_is_gone(tmp_path: Path, carrier: MemoryCarrier) -> None:
    """The other direction: who is no longer trusted is not answered."""
    with Network(tmp_path, rounds=2) as network, ExitStack() as stack:
        stack.enter_context(site(carrier, network.home("lab"), "lab"))
        holder = stack.enter_context(label_holder(carrier, network.home(HOLDER)))
        until(lambda: holder.node.assistants.connected() == ["lab"], "the lab to be there")
        (network.home("lab") / "cards" / f"{HOLDER}.card").unlink()
        until(lambda: holder.node.assistants.connected() == [], "the lab to be gone")
