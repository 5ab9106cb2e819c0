"""Nodes whose model is fitted on a Dask cluster: sandboxed processes, and a cluster that is killed.

What is learned is what one process learns without a cluster, bit for bit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs the extra 'node', which is not installed")

from gal import Organization
from gal.extras import require
from gal.models import LinearModel
from gal.models.cluster import ClusterModel
from patience import LONGEST, until
from real_nodes import HOLDER, Network, text_of

require("dask", "these tests")

from distributed import Client  # noqa: E402
from test_fits import started  # noqa: E402

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default::ResourceWarning"),
]
SLOW: Any = {"model": "random_forest", "options": {"n_estimators": 300}, "shards": 2}
"""Two parts of the rows, each a fit that takes seconds."""
LOOPBACK = ("--host", "127.0.0.1", "--no-dashboard")


class ByHand:
    """A scheduler and two workers as the page on clusters starts them."""

    def __init__(self, folder: Path) -> None:
        self._facts, self._all = str(folder / "scheduler.json"), list[Any]()
        self.scheduler = self._started("scheduler", "--port", "0")
        self.workers = [self._started("worker", "--nthreads", "1", "--no-nanny") for _ in range(2)]
        with self.client() as client:
            client.wait_for_workers(2, timeout=LONGEST)
            self.address = client.scheduler.address

    def client(self) -> Any:
        return Client(scheduler_file=self._facts, set_as_default=False, timeout=LONGEST)

    def _started(self, kind: str, *words: str) -> Any:
        process = started(kind, *words, "--scheduler-file", self._facts, *LOOPBACK)
        self._all.append(process)
        return process

    def again(self) -> None:
        """A scheduler behind the same address, and two workers."""
        Path(self._facts).unlink()
        self.scheduler = self._started("scheduler", "--port", self.address.rpartition(":")[2])
        self.workers = [self._started("worker", "--nthreads", "1", "--no-nanny") for _ in range(2)]

    def fitting(self) -> int:
        """Waits for a fit; the process of the worker that is in the middle of one."""
        with self.client() as client:
            pids, found = client.run(os.getpid), list[int]()

            def look() -> bool:
                tasks = client.processing().items()
                found[:] = [pids[one] for one, keys in tasks if any("_work" in key for key in keys)]
                return bool(found)

            until(look, "a fit on the cluster")
            return found[0]

    def close(self) -> None:
        for one in self._all:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
            one.wait(LONGEST)


class Forests(Network):
    """The lab fits forests, on a cluster over nodes and without one in this process."""

    def use(self, scheduler: str) -> None:
        model = f'scheduler = "{scheduler}"\nmodel = "random_forest"\nshards = 2\n'
        model += "options = { n_estimators = 300 }"
        path = self.home("lab") / "node.toml"
        before = path.read_text(encoding="utf-8")
        written = before.replace('use = "linear"\n', f'use = "cluster"\n\n[model.options]\n{model}\n')
        assert written != before
        path.write_text(written, encoding="utf-8")

    def members(self) -> list[Organization]:
        models: Any = {"lab": ClusterModel(**SLOW)}
        return [Organization(name, self.view(name), models.get(name, LinearModel())) for name in self.names]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ByHand]:
    found = ByHand(tmp_path)
    yield found
    found.close()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Forests]:
    options = {"stacking": False, "cross_validation": 0}
    with Forests(tmp_path / "nodes", ("lab", "hospital"), rounds=3, n_rows=400, options=options) as found:
        yield found


def test_a_worker_killed_in_the_middle_of_a_round_is_nothing_that_others_notice(
    cluster: ByHand, network: Forests
) -> None:
    network.use(cluster.address)
    network.serve(HOLDER, "lab", "hospital")
    learning = network.beside(network.learn)
    os.kill(cluster.fitting(), signal.SIGKILL)
    learning.result()
    assert network.missed() == {1: {}, 2: {}, 3: {}}
    network.check_same()


def test_a_scheduler_killed_in_the_middle_is_that_organization_s_missed_round(
    cluster: ByHand, network: Forests
) -> None:
    network.use(cluster.address)
    network.serve(HOLDER, "lab", "hospital")
    learning = network.beside(network.learn)
    cluster.fitting()
    os.killpg(cluster.scheduler.pid, signal.SIGKILL)
    learning.result()
    missed = network.missed()
    assert list(missed) == [1, 2, 3]
    late = [round for round, who in missed.items() if "lab" in who]
    assert late, missed
    assert all(set(who) <= {"lab"} for who in missed.values())
    assert all("model-failed" in missed[round]["lab"] for round in late), missed  # why, its own log says
    said = network.running["lab"].said()
    assert f"the scheduler {cluster.address} cannot be reached" in said, said[-3000:]
    assert network.dead() == []
    cluster.again()
    learning = network.beside(lambda: network.learn(anew=True))
    learning.result()
    expected, _ = network.expected()
    assert text_of(network.ensemble(2)) == text_of(expected)
