"""Processes killed with signal 9 anywhere: restarted nodes resume, and the model is that of the
undisturbed run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("grpc")

from gal.errors import NodeError
from patience import until
from process_faults import HOLDER_POINTS, NODE_POINTS, WORKER_POINTS
from real_nodes import HOLDER, TASK, Beside, Network

MOST_VERSIONS = 20


def dooms_of(name: str) -> list[str]:
    """Everywhere where an organization, or the process that computes for it, can die."""
    points = HOLDER_POINTS if name == HOLDER else NODE_POINTS
    return [f"node.{point}" for point in points] + [f"worker.{point}" for point in WORKER_POINTS]


class Disturbed:
    """Learns versions of the task while nodes are killed, each at its next place, and restarts them."""

    def __init__(self, network: Network, dooms: Mapping[str, Iterable[str]]) -> None:
        self.network = network
        self._dooms = {name: deque(dooms.get(name, ())) for name in network.names}
        self.deaths: list[str] = []
        """Each killed process, and where: "lab node.fit:2"."""

    @property
    def n_left(self) -> int:
        """How many are still to die."""
        return sum(len(one) for one in self._dooms.values())

    def learn(self, version: int) -> None:
        """Learn a version while processes are killed; at the end all are restarted."""
        for name in self.network.names:
            self._restart(name)
        learning = self.network.beside(self.network.learn)
        while not self._done(learning, version):
            self._bring_back()
            if learning.goes_on:
                continue
            if self._status(version) == "finished":  # it died before it said so
                break
            learning = self.network.beside(self.network.learn)
        for name in self.network.names:
            self._restart(name, doomed=False)
            drafts = [path.name for path in self.network.home(name).rglob("*.part")]
            assert drafts == [], f"{name} keeps what was half-written"

    def _done(self, learning: Beside, version: int) -> bool:
        until(lambda: not learning.goes_on or bool(self._dying()), f"version {version}, or a death")
        if learning.goes_on:
            return False
        try:
            learning.result()
        except NodeError:
            # It can have died after the last step, and then there is nothing to resume.
            until(lambda: bool(self._dying()), "the death of the label holder's node")
            return self._status(version) == "finished"
        return True

    def _status(self, version: int) -> str:
        """What the label holder knows of a version."""
        return (
            self.network.state(HOLDER)
            .statuses(self.network.task_id(), "label holder")
            .get(version, "not begun")
        )

    def _dying(self) -> list[str]:
        """Whose node, or whose process that computes, is dead."""
        running = self.network.running
        return [name for name, one in running.items() if one.died or one.process.poll() is not None]

    def _bring_back(self) -> None:
        for name in self._dying():
            self._restart(name)

    def _restart(self, name: str, *, doomed: bool = True) -> None:
        """Kill a node if it lives, and start it with its next doom; one that
        was not reached stays the next.
        """
        one = self.network.running.get(name)
        if one is not None:
            one.process.kill()
            one.end()
            if one.died:
                self.deaths.append(f"{name} {one.doom}")
            elif one.doom:
                self._dooms[name].appendleft(one.doom)
        doom = self._dooms[name].popleft() if doomed and self._dooms[name] else ""
        self.network.serve(name, doom=doom)


def test_where_only_the_process_that_computes_is_killed_it_is_started_again(tmp_path: Path) -> None:
    with Network(tmp_path) as network:
        network.serve(HOLDER, doom="worker.rename-before:4")
        network.serve("lab", doom="worker.fit:3")
        network.serve("hospital", doom="worker.archive:1")
        assert network.learn()["missed"] == {}
        assert all(one.died for one in network.running.values())
        assert network.dead() == []
        network.check_same()


IN_SHORT = [f"node.{point}" for point in ("fit", "file", "rename-after", "insert", "commit-after", "send")]


@pytest.mark.parametrize(
    ("name", "at", "points"),
    [
        ("lab", 2, dooms_of("lab")),
        (HOLDER, 2, IN_SHORT),
        pytest.param(HOLDER, 1, dooms_of(HOLDER), marks=pytest.mark.slow),
        pytest.param(HOLDER, 3, dooms_of(HOLDER), marks=pytest.mark.slow),
        pytest.param("lab", 5, dooms_of("lab"), marks=pytest.mark.slow),
    ],
)
def test_a_node_killed_at_every_point_in_turn_changes_nothing(
    tmp_path: Path, name: str, at: int, points: list[str]
) -> None:
    dooms = [f"{doom}:{at}" for doom in points]
    with Network(tmp_path) as network:
        disturbed = Disturbed(network, {name: dooms})
        version = 0
        while disturbed.n_left and version < MOST_VERSIONS:
            version += 1
            disturbed.learn(version)
            network.check_same(version)
        assert sorted(disturbed.deaths) == sorted(f"{name} {doom}" for doom in dooms)


def test_gal_learn_is_killed_and_resumed(tmp_path: Path) -> None:
    with Network(tmp_path) as network:
        network.serve(*network.organizations)
        dooms = ["node.file:6", "node.commit-after:6", "node.send:5", "worker.fit:2"]
        first = network.start(HOLDER, "learn", TASK, doom=dooms[0])
        assert first.end() == -9, first.said()
        for doom in dooms[1:3]:
            assert network.start(HOLDER, "learn", TASK, doom=doom).end() == -9
        last = network.start(HOLDER, "learn", TASK, doom=dooms[3])
        assert last.end() == 0, last.said()
        assert last.died
        network.serve(HOLDER)
        network.check_same()


def drawn(name: str, seed: int) -> Iterator[str]:
    """Dooms drawn from all points of an organization, at an early or a later time."""
    rng = np.random.default_rng(seed)
    for _ in range(12):
        yield f"{rng.choice(dooms_of(name))}:{rng.integers(1, 9)}"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_random_kills_of_everybody_change_nothing(tmp_path: Path, seed: int) -> None:
    with Network(tmp_path, organizations=("lab", "hospital", "insurer"), rounds=6) as network:
        drawings = {name: drawn(name, 100 * seed + place) for place, name in enumerate(network.names)}
        disturbed = Disturbed(network, drawings)
        version = 0
        while disturbed.n_left and version < MOST_VERSIONS:
            version += 1
            disturbed.learn(version)
            network.check_same(version)
        assert len(disturbed.deaths) == 48, disturbed.deaths
