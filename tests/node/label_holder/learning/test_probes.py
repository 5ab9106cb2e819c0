"""Interaction probes over nodes: the same as in one process to the last bit, kept, resumed
and served; only with the consent of every organization.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gal
from after_the_rounds import interrupted_twice, outputs
from gal.core.probes.kept_probes import SEEDS
from gal.core.state import Ensemble
from gal.errors import RefusedError
from gal.node.runtime.web.privacy_account import privacy_account
from gal.node.store.state import TaskRecord
from small_network import LABEL, ROW_ID, Network, exact, running

pytestmark = pytest.mark.usefixtures("small_forests")

N, ROUNDS = 2100, 2
NAMES = ("clinic", "lab", "shop")
MODELS = dict.fromkeys(NAMES, 'use = "tabular"')
CONSENT = "[policy]\ninteractions = true\n"


def together(n: int = N) -> dict[str, pd.DataFrame]:
    """Labels that hang on signs of columns of all three together, of no two of them."""
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=(n, 2)) for name in NAMES}
    signal = 4 * np.sign(X["lab"][:, 0] * X["shop"][:, 1] * X["clinic"][:, 0])
    tables = {
        name: pd.DataFrame(
            {ROW_ID: 1000 + np.arange(n), f"{name}_a": X[name][:, 0], f"{name}_b": X[name][:, 1]}
        )
        for name in NAMES
    }
    tables["clinic"][LABEL] = np.where(rng.random(n) < 1 / (1 + np.exp(-signal)), "yes", "no")
    return tables | {"lab": tables["lab"].sample(frac=1, random_state=1)}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    root, more = tmp_path_factory.mktemp("probes"), dict.fromkeys(NAMES, CONSENT)
    with running(Network(root, together(), models=MODELS, more=more)) as net:
        yield net


@pytest.fixture(scope="module")
def learned(network: Network) -> tuple[TaskRecord, dict[str, Any]]:
    record = network.invite("together", rounds=ROUNDS, interactions=True)
    network.wait_until_joined(record)
    return record, network.learn("together")


@pytest.fixture(scope="module")
def here(network: Network) -> tuple[Ensemble, list[gal.Organization]]:
    """The same in one process."""
    return network.in_process(rounds=ROUNDS, interactions=True)


def test_it_is_what_one_process_finds(network: Network, learned: Any, here: Any) -> None:
    record, facts = learned
    ensemble, members = here
    assert ensemble.probes is not None
    assert set(ensemble.probes.organizations) == set(NAMES)
    assert any(len(one.signs) > 1 for one in ensemble.probes.vectors)
    assert facts["probes"] == ensemble.probes.share
    assert facts["validation_loss"] == ensemble.probes.validation_loss
    assert exact(network.ensemble(record)) == exact(ensemble)
    expected = gal.predict(ensemble, members).output
    found = outputs(network, record)
    assert found.output.tobytes() == expected.tobytes()
    truth = network.tables["clinic"][LABEL] == "yes"
    assert np.mean((found.output[:, 0] > 0) == truth) > 0.9


def test_the_accounts_show_whose_sign_bits_went_to_whom(network: Network, learned: Any, here: Any) -> None:
    """The label holder knows it of the probes that it keeps; the others only which replies they gave."""
    record, _ = learned
    [sent] = privacy_account(network.root / "clinic", "together")["probes"]
    vectors = here[0].probes.vectors
    pairs = [(sign.organization, one.organization) for one in vectors for sign in one.signs]
    assert sent["most"] == record.terms.probes
    assert {(one["of"], one["to"]): one["probes"] for one in sent["kept"]} == Counter(pairs)
    [given] = privacy_account(network.root / "lab", "together")["probes"]
    assert given["label_holder"] == "clinic"
    assert given["replies"] > SEEDS


def test_learning_resumes_after_interruptions_in_the_probes(
    network: Network, learned: Any, here: Any
) -> None:
    """Learning is interrupted at the random targets, then during stacking, and resumes."""
    _, _ = learned
    for name in ("again", "again-2"):
        record = network.invite(name, rounds=ROUNDS, interactions=True)
        within = "gal.learner.stacking.Stacking.of_table"
        facts = interrupted_twice(network, record, after=ROUNDS, within=within)
        if not facts["missed"]:  # on a busy machine a reply may come too late for a round
            break
    ensemble, members = here
    assert facts["missed"] == {}
    assert exact(network.ensemble(record)) == exact(ensemble)
    assert outputs(network, record).output.tobytes() == gal.predict(ensemble, members).output.tobytes()


def test_who_no_longer_consents_is_left_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An organization whose policy changed after it joined takes part in the rounds; its signs go nowhere.
    The label holder's own policy ends learning.
    """
    root, more = tmp_path_factory.mktemp("changed"), {"clinic": CONSENT, "lab": CONSENT}
    with running(Network(root, together(), models=MODELS, more=more)) as network:
        record = network.invite("together", rounds=1, interactions=True)
        network.wait_until_joined(record)
        facts = network.learn("together")
        assert facts["missed"] == {}
        assert network.ensemble(record).probes is None  # what columns of all three mean together is not found
        network.more["clinic"] = ""
        network.configure("clinic")
        network.stop("clinic")
        network.start("clinic")
        network.wait_until_joined(record)
        with pytest.raises(RefusedError, match="asks for interaction probes, and clinic, the label holder"):
            network.learn("together")
