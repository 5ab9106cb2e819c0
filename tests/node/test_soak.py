"""A soak: strangers by the thousand at a label holder's port, members that redial, cards that
come and go; learning goes on.

The long one prints what it measured: ``pytest tests/node/test_soak.py -m slow -s``.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flood import flooded, made_by
from gal.errors import NodeError
from gal.node.runtime.process import CRASH_LOG
from gal.transport import Card, CardFolder, card_of, dial, read_card
from live_nodes import LARGEST, SMALL, House, eventually, house
from patience import LONGEST, patient
from real_nodes import HOLDER, Network

DATABASES = 24
"""Descriptors that a learning needs, flood or not: the connections to its databases."""

OWN = 12
"""Sockets of the two organizations that learn, should they have dialed late, and of
the servers that they came to.
"""

pytestmark = pytest.mark.timeout(patient(600))


@dataclass
class Restless:
    """Organizations that dial a label holder, say a word, and hang up, again and again."""

    houses: list[House]
    card: Card
    seed: int
    ending: threading.Event = field(default_factory=threading.Event)
    came: dict[str, int] = field(default_factory=dict)
    refused: int = 0

    def __enter__(self) -> Restless:
        self.threads = [
            threading.Thread(target=self._redial, args=(one,), daemon=True) for one in self.houses
        ]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        for thread in self.threads:
            thread.join(LONGEST)

    def _redial(self, who: House) -> None:
        name = who.identity.name
        chance = random.Random(f"{self.seed} {name}")
        while not self.ending.is_set():
            try:
                stream = dial(
                    self.card,
                    who.identity,
                    cards=who.cards,
                    largest=LARGEST,
                    software="gal",
                    timeout=patient(20),
                )
                stream.send(SMALL)
                self.came[name] = self.came.get(name, 0) + 1
                self.ending.wait(chance.uniform(0, 0.2))
                (stream.close if chance.random() < 0.5 else stream.abandon)()
            except NodeError:
                self.refused += 1
                self.ending.wait(chance.uniform(0, 0.5))


class Fickle:
    """Cards that are revoked and added again while the node runs."""

    def __init__(self, folder: Path, houses: list[House], pause: float) -> None:
        self._cards, self._houses, self._pause = CardFolder(folder), houses, pause
        self._ending = threading.Event()
        self.changes = 0

    def __enter__(self) -> Fickle:
        self._thread = threading.Thread(target=self._change, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(LONGEST)

    def _change(self) -> None:
        while not self._ending.is_set():
            for one in self._houses:
                self._cards.remove(one.identity.name)
                self._ending.wait(self._pause)
                self._cards.add(card_of(one.identity))
                self._ending.wait(self._pause)
                self.changes += 2


def descriptors(process: int, kind: str = "") -> int:
    """How many a process has open, or of those only the sockets."""
    found = 0
    for one in os.listdir(f"/proc/{process}/fd"):
        with suppress(OSError):  # closed meanwhile
            found += os.readlink(f"/proc/{process}/fd/{one}").startswith(kind)
    return found


def memory(process: int) -> float:
    """MB that a process holds."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def soak(
    network: Network, folder: Path, *, restless: int, fickle: int, idle: int, half: int, floods: int
) -> dict[str, float]:
    """Learn under all of it; what was measured. The result is that of an
    undisturbed learning, bit for bit.
    """
    known = CardFolder(network.home(HOLDER) / "cards")
    card = read_card(network.home(HOLDER) / f"{HOLDER}.card")
    houses = [house(folder, f"restless-{number}") for number in range(restless)]
    for one in houses:
        known.add(card_of(one.identity))
        one.cards.add(card)
    network.serve(*network.names)
    process = network.running[HOLDER].process.pid
    with Restless(
        houses, card, seed=0
    ) as warm:  # threads and caches that stay are made before it is measured
        eventually(lambda: len(warm.came) == restless, "everybody came once")
    eventually(lambda: descriptors(process) < 100 + restless, "they have left")
    before, sockets = descriptors(process), descriptors(process, "socket")
    held, started = memory(process), time.monotonic()
    learning = network.beside(network.learn)
    with ExitStack() as stack:
        members = stack.enter_context(Restless(houses, card, seed=1))
        cards = stack.enter_context(Fickle(network.home(HOLDER) / "cards", houses[:fickle], 0.05))
        made = 0
        for number in range(floods):
            with flooded(network.port, idle // floods, half // floods, f"127.0.0.{1 + number % 4}") as flood:
                made += made_by(flood)
        network.allow("lab")
        learning.result()
        steady = [one.identity.name for one in houses[fickle:]]
        eventually(lambda: all(members.came.get(one) for one in steady), "every member got in")
    assert network.dead() == []
    assert not (network.home(HOLDER) / CRASH_LOG).read_text()
    assert made >= 0.9 * (idle + half)
    assert cards.changes > 0
    network.check_same()
    eventually(lambda: descriptors(process, "socket") <= sockets + OWN, "sockets are back")
    eventually(lambda: descriptors(process) <= before + DATABASES, "descriptors are back")
    return {
        "seconds": time.monotonic() - started,
        "strangers": made,
        "dials": sum(members.came.values()),
        "refused dials": members.refused,
        "changes of cards": cards.changes,
        "descriptors before": before,
        "descriptors after": descriptors(process),
        "MB before": held,
        "MB after": memory(process),
    }


def test_learning_goes_on_while_strangers_and_members_come_and_go(tmp_path: Path) -> None:
    with Network(tmp_path / "network", paced=("lab",)) as network:
        soak(network, tmp_path, restless=6, fickle=2, idle=1500, half=500, floods=1)


@pytest.mark.slow
def test_learning_goes_on_in_a_storm(tmp_path: Path) -> None:
    with Network(tmp_path / "network", paced=("lab",)) as network:
        found = soak(network, tmp_path, restless=64, fickle=16, idle=10_000, half=10_000, floods=4)
    print("\n".join(f"{what}: {value:,.0f}" for what, value in found.items()))
    assert found["MB after"] < found["MB before"] + 150
