"""Crossed residuals over nodes: the same as in one process to the last bit, kept, resumed
and served; who does not want them is left out.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gal
from gal.alignment import row_ids
from gal.core.state import Ensemble
from gal.errors import LearningInterruptedError, RefusedError
from gal.node.agreement.invitations import TaskTerms
from gal.node.store.state import TaskRecord
from gal.node.web.endpoint import Endpoint
from gal.node.web.token import ensure_token
from patience import LONGEST
from small_network import LABEL, ROW_ID, Network, exact, running

pytestmark = pytest.mark.usefixtures("small_forests")

N, ROUNDS = 2100, 2
NAMES = ("clinic", "lab", "shop")
MODELS = dict.fromkeys(NAMES, 'use = "tabular"')


def together(n: int = N) -> dict[str, pd.DataFrame]:
    """Labels that hang on signs of the lab's and the shop's columns together, a little on the clinic's."""
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=(n, 2)) for name in NAMES}
    signal = 4 * np.sign(X["lab"][:, 0] * X["shop"][:, 1]) + X["clinic"][:, 0]
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
    with running(Network(tmp_path_factory.mktemp("crossing"), together(), models=MODELS)) as net:
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


def outputs(network: Network, record: TaskRecord) -> Any:
    """What is predicted of all rows."""
    ids = row_ids(network.tables["clinic"][ROW_ID].to_numpy(), "clinic", "ids")
    fresh = network.nodes["clinic"].state.find_task(record.name)
    return network.holder.predictor.predict(fresh, ids, seconds=LONGEST)


def test_it_is_what_one_process_finds(network: Network, learned: Any, here: Any) -> None:
    record, facts = learned
    ensemble, members = here
    assert ensemble.crossing is not None
    assert set(ensemble.crossing.crossings.organizations) >= {"lab", "shop"}
    assert facts["crossed"] == ensemble.crossing.share
    assert facts["validation_loss"] == ensemble.crossing.validation_loss
    assert exact(network.ensemble(record)) == exact(ensemble)
    expected = gal.predict(ensemble, members).output
    found = outputs(network, record)
    assert found.output.tobytes() == expected.tobytes()
    truth = network.tables["clinic"][LABEL] == "yes"
    assert np.mean((found.output[:, 0] > 0) == truth) > 0.9


def test_online_it_answers_too(network: Network, learned: Any, here: Any) -> None:
    record, _ = learned
    ensemble, members = here
    expected = gal.predict(ensemble, members).output[:2, 0]
    asked = network.tables["clinic"][ROW_ID].tolist()[:2]
    with Endpoint(network.holder, record.name, "127.0.0.1:0", LONGEST) as endpoint:
        request = urllib.request.Request(
            f"http://127.0.0.1:{endpoint.port}/predict",
            json.dumps({"ids": asked}).encode(),
            {"Authorization": f"Bearer {ensure_token(endpoint.token_file.parent)}"},
        )
        with urllib.request.urlopen(request, timeout=LONGEST) as answer:
            said = json.load(answer)["predictions"]
    assert [one["prediction"] for one in said] == ["yes" if value > 0 else "no" for value in expected]


def test_a_restarted_node_reads_it_from_its_file(network: Network, learned: Any) -> None:
    record, _ = learned
    before = outputs(network, record).output
    network.stop("clinic")
    network.start("clinic")
    network.wait_until_joined(record)
    assert outputs(network, record).output.tobytes() == before.tobytes()


def interrupted_twice(
    network: Network, name: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[TaskRecord, dict[str, Any]]:
    """A learning that ends with the random targets, then while the answers are learned from, and goes on."""
    record = network.invite(name, rounds=ROUNDS)
    network.wait_until_joined(record)
    stopping = threading.Event()

    def after_the_rounds(event: Any) -> None:
        if event["event"] == "round" and event["round"] == ROUNDS:
            stopping.set()

    with pytest.raises(LearningInterruptedError):
        network.learn(name, on_event=after_the_rounds, stopping=stopping)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gal.engine.interactions.Interactions.__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            network.learn(name, resume=True)
    return record, network.learn(name, resume=True)


def test_interrupted_before_residuals_are_crossed_it_goes_on(
    network: Network, learned: Any, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _ = learned
    for name in ("again", "again-2"):
        record, facts = interrupted_twice(network, name, monkeypatch)
        if not facts["missed"]:  # a busy machine may miss somebody for a round: that is no other test
            break
    ensemble, members = here
    assert facts["missed"] == {}
    assert exact(network.ensemble(record)) == exact(ensemble)
    assert outputs(network, record).output.tobytes() == gal.predict(ensemble, members).output.tobytes()


def test_who_is_gone_in_prediction_leaves_rows_to_the_rounds(
    network: Network, learned: Any, here: Any
) -> None:
    record, _ = learned
    ensemble, members = here
    network.stop("shop")
    try:
        found = outputs(network, record)
    finally:
        network.start("shop")
        network.wait_until_joined(record)
    assert found.degraded.all()
    there = {one.name: one.view for one in members if one.name != "shop"}
    assert found.output.tobytes() == gal.predict(ensemble, members, there).output.tobytes()


def test_the_terms_say_it_and_a_policy_refuses_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An organization that forbids it joins, takes part in the rounds, and is absent from the crossing."""
    root, more = tmp_path_factory.mktemp("refused"), {"shop": "[policy]\ninteractions = false\n"}
    with running(Network(root, together(), models=MODELS, more=more)) as network:
        record = network.invite("together", rounds=1)
        network.wait_until_joined(record)
        assert record.terms.signs == 12
        assert any("one bit of another's answer" in said for said in record.terms.sentences())
        facts = network.learn("together")
        assert facts["missed"] == {}
        ensemble = network.ensemble(record)
        assert ensemble.crossing is None  # what the lab and the shop know together is not heard
        plain = network.invite("plain", rounds=1, interactions="off")
        assert plain.terms.signs == 0
        assert not any("sign" in said for said in plain.terms.sentences())


def test_terms_of_before_have_the_digest_that_they_had(learned: Any) -> None:
    terms: TaskTerms = learned[0].terms
    plain = terms.model_copy(update={"signs": 0})
    assert plain.digest != terms.digest
    assert b"signs" not in plain.canonical()
    assert b"signs" in terms.canonical()


def test_more_than_was_agreed_is_refused(network: Network, learned: Any) -> None:
    """Further rounds are in the terms: an organization fits no more of them."""
    record, _ = learned
    checks = network.nodes["lab"].service._checks
    version = network.nodes["lab"].state.version(record.id, 1)
    assert version is not None
    assert (version.rounds, version.further) == (ROUNDS, 16)
    n_fit = version.n_fit
    assert version.fewest_crossed < n_fit

    class Asked:
        own, peer = False, "clinic"

        def __init__(self, round: int, **fields: Any) -> None:
            residual = np.ones((n_fit, 1), dtype=np.float32)
            content = {"round": round, "part": None, **fields}
            self.message = type("M", (), {"fields": content, "arrays": {"residual": residual}})

    checks.fit(Asked(ROUNDS + 16, target="crossed"), version)  # type: ignore[arg-type]
    for wrong in (Asked(ROUNDS + 17, target="crossed"), Asked(ROUNDS + 1)):
        with pytest.raises(RefusedError, match="agreed to 2 rounds"):
            checks.fit(wrong, version)  # type: ignore[arg-type]
