"""The label holder's whole memory and disk, searched for a single organization's answers while she learns."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gal
from gal.node.admin.membership import invite, join, read_terms
from gal.node.agreement.sum_messages import own_secret
from gal.secrecy.masking import Ring, draws, from_ring, to_ring
from gal.secrecy.member import CircleMember
from gal.transport import CardFolder, load_identity, read_card
from patience import patient
from real_nodes import HOLDER, TASK, Network, text_of
from rounded_alike import rounding_as_nodes
from searched_memory import found_in, memory_of, pieces, processes_of, standing_still

OTHERS = ("lab", "hospital", "shop")
OPTIONS: dict[str, Any] = {"cross_validation": 0, "validation_fraction": 0.0}
ROUNDS = 3

pytestmark = [
    pytest.mark.timeout(patient(300)),
    pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of another process in /proc"),
]


@dataclass
class Summed(Network):
    """Organizations that agreed to sums, and have each other's cards."""

    drop_outs: int = 0
    models: Mapping[str, str] = field(default_factory=dict)
    """By organization: its local model, where that is no linear one."""

    def _found(self, name: str) -> None:
        super()._found(name)
        path = self.home(name) / "node.toml"
        path.write_text(path.read_text().replace('"linear"', f'"{self.models.get(name, "linear")}"'))

    def invite(self, task: str = TASK) -> None:
        """Open the task; everybody joins."""
        for one, other in permutations(self.organizations, 2):
            CardFolder(self.home(one) / "cards").add(read_card(self.home(other) / f"{other}.card"))
        path, options = self.root / f"{task}.invitation", {"rounds": self.rounds, **self.options}
        agreed: dict[str, Any] = {"kind": "regression", "alignment": "plain", "seed": 0, "purpose": ""}
        invite(
            self.home(HOLDER),
            task,
            list(self.organizations),
            path,
            secrecy="sums",
            drop_outs=self.drop_outs,
            options=options,
            **agreed,
        )
        for name in self.organizations:
            join(self.home(name), *read_terms(self.home(name), path))


class Watched(list[Mapping[str, Any]]):
    """Events of a learning; with each of them all that somebody's processes and files hold is searched."""

    def __init__(self, network: Network, name: str, wanted: Collection[bytes]) -> None:
        super().__init__()
        self._network, self._name, self._wanted = network, name, wanted
        self.found: dict[bytes, set[str]] = {}
        """In which places each of what is wanted was."""

    def append(self, event: Mapping[str, Any]) -> None:
        """Note an event, and search."""
        super().append(event)
        if event["event"] == "round":
            self.search()

    def search(self) -> None:
        """All that is there now, while nothing moves."""
        pids = processes_of(self._network.running[self._name].process.pid)
        with standing_still(pids):
            for pid in pids:
                for blob in memory_of(pid):
                    self._note(blob, "memory")
        for path in self._network.home(self._name).rglob("*"):
            if path.is_file():
                self._note(path.read_bytes(), path.name)

    def _note(self, blob: bytes, where: str) -> None:
        for one in found_in(blob, self._wanted):
            self.found.setdefault(one, set()).add(where)


def rounded(network: Network, name: str, values: NDArray[np.floating], unit: float = 1.0) -> Ring:
    """What an organization adds its masks to: residuals of usual size are written in a unit of 1."""
    secret = own_secret(load_identity(network.home(name), name))
    rows = np.arange(len(values), dtype=np.uint64)
    return to_ring(values, unit, len(OTHERS), partial(draws, secret, rows))


def stored(values: NDArray[np.floating], whole: Ring) -> list[bytes]:
    """Numbers as they would be stored: in 32 bits, in 64, and as whole numbers that can be added up."""
    forms = (values.astype(np.float32), values.astype(np.float64), whole, from_ring(whole, 1.0))
    return [pieces(form) for form in forms]


def summed(answers: Sequence[Ring]) -> list[bytes]:
    """The sum of answers as the label holder may have it, and their mean."""
    total = from_ring(np.sum(answers, axis=0, dtype=np.uint32), 1.0)
    forms = (total, total / len(OTHERS), (total / len(OTHERS)).astype(np.float32))
    return [pieces(form) for form in forms]


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Summed]:
    with Summed(tmp_path, OTHERS, ROUNDS, options=OPTIONS) as made:
        made.serve(*made.names)
        yield made


def single_answers(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, dict[tuple[str, int], NDArray[Any]]]:
    """What each organization answers, in learning and for all rows in prediction: found in this process."""
    found: dict[tuple[str, int], NDArray[Any]] = {}
    answer = CircleMember.answer

    def noting(member: CircleMember, ask: Any, boxes: Any, values: NDArray[Any], **how: Any) -> Any:
        found[member.name, ask.number] = np.array(values)
        return answer(member, ask, boxes, values, **how)

    with monkeypatch.context() as patched, rounding_as_nodes(network.home):
        patched.setattr(CircleMember, "answer", noting)
        members, y = network.members(), network.labels(network.n_rows)
        limits: dict[str, Any] = {"rounds": ROUNDS, "kind": "regression", "secrecy": "sums", **OPTIONS}
        ensemble = gal.learn(y, members, **limits)
        learned = dict(found)
        found.clear()
        gal.predict(ensemble, members)
    assert ensemble.summed_units == (1.0,) * ROUNDS
    return ensemble, learned | {(name, 0): said for (name, _), said in found.items()}


def test_no_single_answer_is_anywhere_at_the_label_holders(
    network: Summed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble, answers = single_answers(network, monkeypatch)
    assert len(answers) == len(OTHERS) * (ROUNDS + 1)
    whole = {(name, number): rounded(network, name, said) for (name, number), said in answers.items()}
    single = {piece: who for who, said in answers.items() for piece in stored(said, whole[who])}
    sums = {
        piece: number
        for number in range(1, ROUNDS + 1)
        for piece in summed([whole[name, number] for name in OTHERS])
    }
    hers = Watched(network, HOLDER, {*single, *sums})
    vars(network)["events"] = hers
    network.learn()
    assert text_of(network.ensemble()) == text_of(ensemble), "what is searched for is what was answered"
    assert network.predictions()["degraded"] == 0
    hers.search()
    assert {single[piece]: places for piece, places in hers.found.items() if piece in single} == {}

    there = {sums[piece]: places for piece, places in hers.found.items() if piece in sums}
    assert there.keys() == {1, 2, 3}, "what is there is found: the sum of every round"
    assert "memory" in set().union(*there.values())
    of_lab = [stored(answers["lab", number], whole["lab", number]) for number in range(ROUNDS + 1)]
    theirs = Watched(network, "lab", {piece for said in of_lab for piece in said})
    theirs.search()
    assert theirs.found, "and at the organization its own answer"
