"""What goes wrong among real nodes, and what the label holder and the
organizations then see: one scenario each.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")

from gal.errors import NodeError
from gal.node.admin.membership import forget
from patience import patient, until
from real_nodes import HOLDER, TASK, Network, Running

ONE_FIT = {"cross_validation": 0, "validation_fraction": 0.0, "patience": None}
"""Options with which a round is one fit at each organization."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Network]]:
    """Makes networks that end with the test."""
    made: list[Network] = []

    def one(**choices: Any) -> Network:
        made.append(Network(tmp_path / str(len(made)), **{"options": ONE_FIT} | choices).__enter__())
        return made[-1]

    yield one
    for network in made:
        network.__exit__()


def serving(network: Network, **environment: str) -> Network:
    """All nodes of a network run."""
    network.serve(*network.names, **environment)
    return network


# Ended by people


def ended_well(one: Running, status: int) -> None:
    assert one.end() == status, one.said()
    assert "Traceback" not in one.said()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_ends_learning_cleanly_and_it_can_be_resumed(
    make: Callable[..., Network], number: signal.Signals
) -> None:
    network = make(paced=[HOLDER])
    network.serve(*network.organizations)
    network.allow(HOLDER, 2)
    learning = network.start(HOLDER, "learn", TASK)
    until(lambda: network.answered("lab") == [1, 2, 3], "round 3")
    learning.process.send_signal(number)
    ended_well(learning, 130)
    assert f"gal learn {TASK}" in learning.said()
    network.allow(HOLDER)
    again = network.start(HOLDER, "learn", TASK)
    ended_well(again, 0)
    network.serve(HOLDER)
    network.check_same()


# Late, gone, stopped


def test_a_node_that_hangs_is_missed_and_takes_part_again(make: Callable[..., Network]) -> None:
    network = serving(make(paced=[HOLDER]))
    network.allow(HOLDER, 1)
    learning = network.beside(lambda: network.learn(deadline=patient(1.5)))
    network.until_round(1)
    network.running["lab"].process.send_signal(signal.SIGSTOP)
    network.allow(HOLDER, 3)
    network.until_round(3)
    assert "lab" in network.missed()[3]
    network.running["lab"].process.send_signal(signal.SIGCONT)
    until(lambda: 3 in network.answered("lab") or 4 in network.answered("lab"), "the lab to go on")
    network.allow(HOLDER)
    learning.result()
    assert network.missed()[4] == {}
    network.check_audits()


def test_who_leaves_in_the_middle_is_not_waited_for_any_more(make: Callable[..., Network]) -> None:
    network = serving(make(paced=[HOLDER, "lab"]))
    network.allow(HOLDER, 2)
    network.allow("lab", 1)
    learning = network.beside(network.learn)
    until(lambda: network.answered("hospital") == [1, 2], "round 2")
    forget(network.home("lab"), TASK)
    network.until_round(2)
    network.allow(HOLDER)
    assert learning.result()["missed"] == {"lab": [2, 3, 4]}
    why = network.missed()[4]["lab"]
    assert why == "has left of its own accord", why
    said = network.predictions()
    assert (said["missing"], said["degraded"]) == (
        {"lab": "has left of its own accord"},
        network.n_rows,
    )
    network.check_audits()


def test_with_too_few_answers_learning_stops_and_goes_on_when_they_are_back(
    make: Callable[..., Network],
) -> None:
    network = serving(make(paced=[HOLDER]))
    network.allow(HOLDER, 1)
    learning = network.beside(lambda: network.learn(deadline=patient(1.0), quorum=3))
    network.until_round(1)
    network.kill("lab")
    network.allow(HOLDER)
    with pytest.raises(NodeError, match=r"the quorum is 3. lab did not reply within [\d.]+ s"):
        learning.result()
    network.serve("lab")
    network.learn()
    network.check_same()


# Disks


def test_a_full_disk_at_an_organization_is_named_and_it_takes_part_again(
    make: Callable[..., Network],
) -> None:
    network = make(paced=[HOLDER])
    flag = network.root / "full"
    network.serve(HOLDER, "hospital")
    network.serve("lab", GAL_FULL_DISK=str(flag))
    network.allow(HOLDER, 1)
    learning = network.beside(network.learn)
    network.until_round(1)
    until(lambda: network.answered("lab") == [1, 2], "round 2")
    flag.touch()
    network.allow(HOLDER, 2)
    until(lambda: network.answered("hospital") == [1, 2, 3], "round 3")
    until(lambda: "disk" in network.running["lab"].said(), "the lab to run out of disk")
    flag.unlink()
    network.allow(HOLDER)
    assert learning.result()["missed"] == {"lab": [3]}
    assert network.missed()[3]["lab"].startswith("refused (disk): lab cannot read or write")
    network.check_audits()


@pytest.mark.parametrize("content", ["", "the database, too"])
def test_a_full_disk_at_the_label_holder_stops_learning_and_it_can_be_resumed(
    make: Callable[..., Network], content: str
) -> None:
    network = make(paced=["lab"])
    flag = network.root / "full"
    network.serve(HOLDER, GAL_FULL_DISK=str(flag))
    network.serve(*network.organizations)
    network.allow("lab", 2)
    learning = network.beside(lambda: network.learn(deadline=patient(4.0)))
    network.until_round(2)
    flag.write_text(content, encoding="ascii")
    network.allow("lab")
    with pytest.raises(NodeError, match=r"(?i)no space|disk"):
        learning.result()
    flag.unlink()
    network.learn()
    network.check_same()
