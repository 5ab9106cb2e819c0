"""Noisy labels and sums over nodes: the same as in one process, paid once, and nothing shows true labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from gal import GALClassifier
from gal.assembling import grouped
from gal.models import LinearModel
from gal.node.store.state import TaskRecord
from gal.privacy import RandomisedResponse
from gal.privacy.mechanisms.columns import SUBJECT as COLUMN_SUBJECT
from gal.protocol import decode
from gal.secure_aggregation.terms import SUM
from noisy_labels import COLUMNS, EPSILON, RESPONSE, FixedNoise, charged, spied
from patience import patient
from rounded_alike import rounding_as_nodes
from small_network import LABEL, ROW_ID, Network, exact, numbers, running

NAMES = ("clinic", "lab", "ward", "bank")
N = 60
OPTIONS: dict[str, Any] = {"rounds": 2, "cross_validation": 2}
GRID = 1e-3
"""What rounding on one grid may change in a probability."""
RANDOM = {"numbers", "number", "of", "content", "terms"}
"""In messages about sums: what is drawn anew, and what follows from the name of the task or of a message."""
KEYS = {"keys", "signatures", "boxes"}


class Noisy(FixedNoise):
    """The labels of ``tables()`` with a tenth of them wrong, whatever the labels are: so the others help with
    these labels, and with other ones they do not.
    """

    def randomised_response(self, codes: Any, n_classes: int, keep: float) -> Any:
        """Codes (n,) of all rows."""
        self.drawn.append(len(codes))
        right = (tables()["clinic"][LABEL] == "yes").to_numpy().astype(int)
        return np.where(self.rng.random(len(codes)) < 0.1, 1 - right, right)


class Learned(NamedTuple):
    """A task from its invitation to a prediction."""

    record: TaskRecord
    facts: dict[str, Any]
    said: list[float]
    """Probabilities of all rows."""
    sent: list[Any]
    """To the others, all but keys and names."""
    kinds: set[str]
    """Of these messages."""


def tables(seed: int = 0) -> dict[str, pd.DataFrame]:
    """Everybody's rows, with labels that follow from all columns; another ``seed``: other labels, all else
    the same.
    """
    made = numbers(N, organizations=NAMES)
    y = np.sum([made[name].sort_values(ROW_ID)[f"{name}_a"] for name in NAMES], axis=0)
    if seed:
        np.random.default_rng(seed).shuffle(y)
    made["clinic"][LABEL] = np.where(y > 0, "yes", "no")
    return made


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """One network: a test that changes it puts it back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gal.privacy.refit.PENALTIES", (10.0, 1.0))
        with running(Network(tmp_path_factory.mktemp("net"), tables())) as network:
            yield network


@pytest.fixture(scope="module")
def first(net: Network) -> Learned:
    return learned(net, "first", RESPONSE)


@pytest.fixture(scope="module")
def in_one_process(net: Network) -> tuple[Any, Any]:
    """The estimator with the same noisy labels, and its table."""
    table = tables()["clinic"]
    for name in NAMES[1:]:
        table = table.merge(tables()[name], on=ROW_ID)
    columns = table[[f"{name}_{letter}" for name in NAMES for letter in "ab"]].to_numpy()
    places = {name: [2 * m, 2 * m + 1] for m, name in enumerate(NAMES)}
    mechanism = RandomisedResponse(EPSILON, ["no", "yes"], Noisy())
    model = GALClassifier(
        places,
        privacy=mechanism,
        secure_aggregation="sums",
        local_models=LinearModel(),
        random_state=1,
        **grouped(OPTIONS),
    )
    with pytest.MonkeyPatch.context() as patch:  # a task's seed is a number, not what is drawn from one
        patch.setattr(
            "gal.estimators.check_random_state", lambda _: type("Four", (), {"randint": lambda *_: 4})
        )
        with rounding_as_nodes(lambda name: net.root / name):
            return model.fit(columns, table[LABEL]), columns


@contextmanager
def holding(network: Network, name: str, table: pd.DataFrame) -> Iterator[None]:
    """Other rows of an organization for a while."""
    before = network.tables[name]

    def give(rows: pd.DataFrame) -> None:
        network.write(name, rows)
        network.nodes[name].worker.restart()

    give(table)
    try:
        yield
    finally:  # also where the test skips
        give(before)


def predicted(network: Network, task: str, rows: pd.DataFrame) -> list[float]:
    path = network.root / "asked.csv"
    rows[[ROW_ID]].to_csv(path, index=False)
    found = network.holder.predict_file(task, path, join=patient(20.0))
    assert found["missing"] == {}
    return [row["probabilities"]["yes"] for row in found["rows"]]


def learned(network: Network, task: str, privacy: Any) -> Learned:
    network.holder.guard.noise = Noisy
    with pytest.MonkeyPatch.context() as patch:
        sent = spied(network, patch)
        parts = OPTIONS if privacy is RESPONSE else {"rounds": 2}
        record = network.invite(task, **parts, seed=4, privacy=privacy, secure_aggregation="sums")
        facts = network.learn(task)
        said = predicted(network, task, network.tables["clinic"])
    found: list[Any] = []
    for name, kind, data in sent:
        message = decode(data)
        fields = {key: value for key, value in message.fields.items() if key not in RANDOM}
        arrays = {key: one.tobytes() for key, one in message.arrays.items() if key not in KEYS}
        found.append((name, kind, fields, arrays, {key: one.shape for key, one in message.arrays.items()}))
    told = record.terms.model_dump(mode="json")
    found.append({key: told[key] for key in told if key not in ("task", "name")})
    return Learned(record, facts, said, found, {kind for _, kind, _ in sent})


def test_the_same_as_in_one_process_in_bulk_and_row_by_row_and_paid_once(
    net: Network, first: Learned, in_one_process: tuple[Any, Any]
) -> None:
    model, columns = in_one_process
    assert model.private_refit_.own.used, "the others' sum counts in what is predicted"
    assert exact(net.ensemble(first.record)) == exact(model.ensemble_)
    assert first.facts["refitted"]
    assert first.facts["contributions"]["by_organization"].keys() == {SUM}
    np.testing.assert_allclose(first.said, model.predict_proba(columns)[:, 1], atol=GRID)
    rows = net.tables["clinic"]
    for place in (0, 7):
        assert predicted(net, "first", rows.iloc[[place]]) == [first.said[place]]
    assert [(one.n_rows, one.most) for one in charged(net, "first")] == [(N, 1)]


@pytest.mark.parametrize(("privacy", "times"), [(RESPONSE, 1), (COLUMNS, 2)], ids=["labels", "columns"])
def test_rows_that_not_all_know_cost_noise_for_columns_twice_and_noisy_labels_once(
    privacy: Any, times: int, net: Network
) -> None:
    task = f"fewer-{times}"
    net.holder.guard.noise = Noisy
    with holding(net, "ward", net.tables["ward"].iloc[10:]):
        record = net.invite(task, rounds=1, cross_validation=0, privacy=privacy, secure_aggregation="sums")
        net.learn(task)
    columns = sum(one.n_rows for one in charged(net, task) if one.subject == COLUMN_SUBJECT)
    assert sum(one.n_rows for one in charged(net, task) if one.most) - columns == N
    assert columns == (times - 1) * (2 * N - 10)
    assert net.nodes["clinic"].state.statuses(record.id, "label holder") == {1: "abandoned", 2: "finished"}


@pytest.mark.parametrize("privacy", [RESPONSE, COLUMNS], ids=["labels", "columns"])
def test_other_labels_with_the_same_noise_leave_no_trace(privacy: Any, net: Network, first: Learned) -> None:
    before = first if privacy is RESPONSE else learned(net, "before", privacy)
    with holding(net, "clinic", tables(7)["clinic"]):
        after = learned(net, f"other-{privacy.columns_epsilon}", privacy)
    assert before.kinds == {"begin", "fit", "keys", "share", "sum", "open", "total", "end"}, (
        "no single answer"
    )
    assert before.sent == after.sent
    assert before.said != after.said, "and yet something else is predicted"
