"""The stacker over nodes: the same as in one process to the last bit, kept with
its version, resumed, and served.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gal
from after_the_rounds import interrupted_twice, outputs
from gal.core.state import Ensemble
from gal.errors import TaskError
from gal.node.label_holder.stacker_files import FILE
from gal.node.store.state import TaskRecord
from small_network import LABEL, ROW_ID, Network, exact, running

pytestmark = pytest.mark.usefixtures("small_forests")

N, ROUNDS = 2100, 3


def interacting(n: int = N) -> dict[str, pd.DataFrame]:
    """Labels that hang on columns of both together; the rows in another order at the second."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 4))
    y = 2 * X[:, 0] * X[:, 2] + 0.5 * (X[:, 0] + X[:, 2]) + 0.1 * rng.normal(size=n)
    tables = {
        name: pd.DataFrame({ROW_ID: 1000 + np.arange(n), f"{name}_a": X[:, at], f"{name}_b": X[:, at + 1]})
        for name, at in (("clinic", 0), ("lab", 2))
    }
    tables["clinic"][LABEL] = y
    return tables | {"lab": tables["lab"].sample(frac=1, random_state=1)}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    models = dict.fromkeys(("clinic", "lab"), 'use = "tabular"')
    with running(Network(tmp_path_factory.mktemp("stacker"), interacting(), models=models)) as net:
        yield net


@pytest.fixture(scope="module")
def learned(network: Network) -> tuple[TaskRecord, dict[str, Any]]:
    record = network.invite("together", rounds=ROUNDS)
    network.wait_until_joined(record)
    return record, network.learn("together")


@pytest.fixture(scope="module")
def here(network: Network) -> tuple[Ensemble, list[gal.Organization]]:
    """The same in one process."""
    return network.in_process(rounds=ROUNDS)


def test_it_is_the_stacker_of_one_process(
    network: Network, learned: Any, here: tuple[Ensemble, list[gal.Organization]]
) -> None:
    record, facts = learned
    ensemble, members = here
    assert ensemble.stacker is not None
    assert facts["stacker"] == ensemble.stacker.share
    assert facts["validation_loss"] == ensemble.stacker.validation_loss
    assert exact(network.ensemble(record)) == exact(ensemble)
    expected = gal.predict(ensemble, members).output
    assert outputs(network, record).output.tobytes() == expected.tobytes()
    plain, _ = network.in_process(rounds=ROUNDS, stacking=False)
    y = network.tables["clinic"][LABEL].to_numpy()
    sums = gal.predict(plain, members).output[:, 0]
    assert np.square(expected[:, 0] - y).mean() < 0.5 * np.square(sums - y).mean()


def test_an_organization_that_is_gone_leaves_rows_to_the_rounds(
    network: Network, learned: Any, here: Any
) -> None:
    record, _ = learned
    ensemble, members = here
    network.stop("lab")
    try:
        found = outputs(network, record)
    finally:
        network.start("lab")
        network.wait_until_joined(record)
    assert found.degraded.all()
    own = {"clinic": members[0].view}
    assert found.output.tobytes() == gal.predict(ensemble, members, own).output.tobytes()


def test_a_damaged_file_is_said_not_left_out(network: Network, learned: Any) -> None:
    record, _ = learned
    path = network.root / "clinic" / "tasks" / record.id / "1" / FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    network.holder.predictor.close()
    try:
        with pytest.raises(TaskError, match="stacker of version 1"):
            outputs(network, record)
    finally:
        path.write_bytes(whole)


def test_interrupted_and_resumed_it_is_the_same(network: Network, learned: Any, here: Any) -> None:
    """Ended after the first round, and once more while it is fitted: replaying gives the same model."""
    _, _ = learned
    record = network.invite("again", rounds=ROUNDS)
    facts = interrupted_twice(network, record, after=1, within="gal.learner.stacking.Stacking.__call__")
    ensemble, members = here
    assert ensemble.stacker is not None
    assert facts["stacker"] == ensemble.stacker.share
    expected = gal.predict(ensemble, members).output
    assert outputs(network, record).output.tobytes() == expected.tobytes()
