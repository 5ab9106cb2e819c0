"""Mixtures of columns over nodes: the same as in one process to the last bit, agreed on before, kept and
resumed; who does not want them is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gal
from after_the_rounds import assert_a_restart_changes_nothing, interrupted_twice, outputs
from gal.core.interactions.crossed_answers import SEEDS
from gal.engine.mixed_columns import MixedForest
from gal.errors import RefusedError
from gal.node.store.state import TaskRecord
from small_network import LABEL, ROW_ID, Network, exact, running

pytestmark = pytest.mark.usefixtures("small_forests")

N = 2100
ASKED: dict[str, Any] = {"rounds": 1, "mixtures": 3, "interactions": 1}
NAMES = ("clinic", "lab")


def near_limits(n: int = N) -> dict[str, pd.DataFrame]:
    """A limit at the clinic and two bills at the lab, which matter where they come close to it."""
    rng = np.random.default_rng(0)
    limit, size = rng.normal(size=(2, n))
    tables = {
        "clinic": pd.DataFrame({ROW_ID: 1000 + np.arange(n), "limit": limit}),
        "lab": pd.DataFrame({ROW_ID: 1000 + np.arange(n), "one": size, "two": size + rng.normal(size=n)}),
    }
    odds = 5.0 * (np.abs(size - limit) < 0.7) - 2.5
    tables["clinic"][LABEL] = np.where(rng.random(n) < 1 / (1 + np.exp(-odds)), "yes", "no")
    return tables | {"lab": tables["lab"].sample(frac=1, random_state=1)}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    models = dict.fromkeys(NAMES, 'use = "tabular"')
    with running(Network(tmp_path_factory.mktemp("mixtures"), near_limits(), models=models)) as net:
        yield net


@pytest.fixture(scope="module")
def learned(network: Network) -> tuple[TaskRecord, dict[str, Any]]:
    record = network.invite("mixed", **ASKED)
    network.wait_until_joined(record)
    return record, network.learn("mixed")


def test_it_is_what_one_process_finds(network: Network, learned: Any) -> None:
    record, facts = learned
    ensemble, members = network.in_process(**ASKED)
    assert isinstance(ensemble.crossing, MixedForest)
    assert {name for _, name in ensemble.crossing.crossings.mixtures} == set(NAMES)
    assert facts["crossed"] == ensemble.crossing.share
    assert facts["validation_loss"] == ensemble.crossing.validation_loss
    assert exact(network.ensemble(record)) == exact(ensemble)
    assert outputs(network, record).output.tobytes() == gal.predict(ensemble, members).output.tobytes()


def test_a_restarted_node_reads_it_from_its_file(network: Network, learned: Any) -> None:
    assert_a_restart_changes_nothing(network, learned[0])


def test_interrupted_before_it_is_asked_for_and_while_it_is_learned_it_goes_on(
    network: Network, learned: Any
) -> None:
    expected = exact(network.ensemble(learned[0]))
    for name in ("again", "again-2"):
        record = network.invite(name, **ASKED)
        facts = interrupted_twice(network, record, after=1, within="gal.engine.interactions.learn_mixed")
        if not facts["missed"]:  # a busy machine may miss somebody for a round: that is no other test
            break
    assert facts["missed"] == {}
    assert exact(network.ensemble(record)) == expected


def test_the_terms_say_it(network: Network, learned: Any) -> None:
    terms = learned[0].terms
    assert (terms.signs, terms.mixtures) == (1, 3)
    assert any("3 mixtures of your columns" in said for said in terms.sentences())
    without = terms.model_copy(update={"mixtures": 0})
    assert without.digest != terms.digest
    assert b"mixtures" not in without.canonical()
    assert not any("mixture" in said for said in without.sentences())
    version = network.nodes["lab"].state.version(learned[0].id, 1)
    assert version is not None
    assert version.further == SEEDS + 1 + 3


def test_more_than_was_agreed_is_refused(network: Network, learned: Any) -> None:
    """Further rounds are in the terms: a beginning that names more of them is not begun."""
    node = network.nodes["lab"]
    task = node.state.find_task("mixed")

    class Asked:
        own, peer = False, "clinic"

        def __init__(self, further: int) -> None:
            terms = learned[0].terms
            content = {
                "terms": terms.digest,
                "n_outputs": terms.outputs,
                "rounds": terms.rounds,
                "method": terms.alignment,
                "further": further,
            }
            self.message = type("M", (), {"fields": content, "arrays": {}})

    with pytest.raises(RefusedError, match=r"further rounds 8, asked for 9"):
        node.service._checks.begin(Asked(SEEDS + 1 + 3 + 1), task)  # type: ignore[arg-type]


def test_a_policy_refuses_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An organization that forbids it joins, takes part in the rounds, and its columns are in no mixture."""
    root, more = tmp_path_factory.mktemp("refused"), {"lab": "[policy]\ninteractions = false\n"}
    with running(Network(root, near_limits(), more=more)) as network:
        record = network.invite("mixed", **ASKED)
        network.wait_until_joined(record)
        network.learn("mixed")
        ensemble = network.ensemble(record)
        asked = () if ensemble.crossing is None else ensemble.crossing.crossings.mixtures
        assert all(name == "clinic" for _, name in asked)
