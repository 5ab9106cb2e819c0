"""Noisy labels and sums over nodes: the same as in one process, paid once, and nothing shows true labels."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal import GALClassifier
from gal.errors import LearningInterruptedError
from gal.models import LinearModel
from gal.privacy import RandomisedResponse
from gal.protocol import decode
from gal.secrecy.terms import SUM
from noisy_labels import EPSILON, RESIDUALS, RESPONSE, FixedNoise, charged, spied
from patience import patient
from small_network import LABEL, ROW_ID, Network, exact, numbers, running

NAMES = ("clinic", "lab", "ward", "bank")
N = 80


def tables(seed: int = 0) -> dict[str, pd.DataFrame]:
    """Everybody's rows; another ``seed``: other labels, all else the same."""
    made = numbers(N, organizations=NAMES)
    y = made["clinic"][LABEL].to_numpy().copy()
    if seed:
        np.random.default_rng(seed).shuffle(y)
    made["clinic"][LABEL] = np.where(y > 0, "yes", "no")
    return made


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Network]:
    with running(Network(tmp_path, tables())) as network:
        network.holder.guard.noise = FixedNoise
        yield network


def predicted(network: Network, task: str, rows: pd.DataFrame) -> list[float]:
    path = network.root / "asked.csv"
    rows[[ROW_ID]].to_csv(path, index=False)
    found = network.holder.predict_file(task, path, join=patient(20.0))
    assert found["missing"] == {}
    return [row["probabilities"]["yes"] for row in found["rows"]]


def in_one_process(network: Network) -> tuple[Any, Any]:
    """The estimator with the same noisy labels, and its table."""
    table = network.tables["clinic"]
    for name in NAMES[1:]:
        table = table.merge(network.tables[name], on=ROW_ID)
    columns = table[[f"{name}_{letter}" for name in NAMES for letter in "ab"]].to_numpy()
    places = {name: [2 * m, 2 * m + 1] for m, name in enumerate(NAMES)}
    mechanism = RandomisedResponse(EPSILON, ["no", "yes"], FixedNoise())
    model = GALClassifier(
        places, rounds=2, privacy=mechanism, secrecy="sums", local_models=LinearModel(), random_state=1
    )
    with pytest.MonkeyPatch.context() as patch:  # a task's seed is a number, not what is drawn from one
        patch.setattr(
            "gal.estimators.check_random_state", lambda _: type("Four", (), {"randint": lambda *_: 4})
        )
        return model.fit(columns, table[LABEL]), columns


def test_the_same_as_in_one_process_in_bulk_and_row_by_row_and_paid_once(net: Network) -> None:
    record = net.invite("same", rounds=2, seed=4, privacy=RESPONSE, secrecy="sums")
    facts = net.learn("same")
    model, columns = in_one_process(net)
    assert exact(net.ensemble(record)) == exact(model.ensemble_)
    assert facts["refitted"]
    assert facts["contributions"].keys() == {"clinic", SUM}
    rows = net.tables["clinic"]
    everything = predicted(net, "same", rows)
    np.testing.assert_array_equal(everything, model.predict_proba(columns)[:, 1])
    assert [predicted(net, "same", rows.iloc[[place]])[0] for place in (0, 7)] == [
        everything[place] for place in (0, 7)
    ]
    assert [(one.n_rows, one.most) for one in charged(net, "same")] == [(N, 1)]
    came = {one.kind for one in net.nodes["clinic"].records.audit.entries() if one.direction == "in"}
    assert {"masked", "opened", "done", "found"} <= came
    assert not {"fitted", "predicted"} & came, "nobody's answer came to her"
    words = " ".join(record.terms.sentences())
    assert "protects her labels with randomised-response (epsilon 1, once" in words
    assert "Secrecy: sums" in words
    net.stop("ward")
    without = net.holder.predict_file("same", net.root / "asked.csv", join=0.2)
    assert (without["degraded"], set(without["missing"])) == (1, {"ward"}), "the mean of the others stands in"


def test_what_resumes_sends_the_same_and_draws_once(net: Network) -> None:
    net.invite("parts", rounds=2, seed=4, privacy=RESPONSE, secrecy="sums")
    noise, stopping = FixedNoise(), threading.Event()
    net.holder.guard.noise = lambda: noise

    def stop(event: Any) -> None:
        if event["event"] == "round" and event["round"] == 1:
            stopping.set()

    with pytest.raises(LearningInterruptedError):
        net.learn("parts", stopping=stopping, on_event=stop)
    net.stop("clinic")
    net.start("clinic")
    net.holder.guard.noise = lambda: noise
    net.learn("parts", resume=True)
    assert noise.drawn == [N]
    model, columns = in_one_process(net)
    record = net.nodes["clinic"].state.find_task("parts")
    assert exact(net.ensemble(record)) == exact(model.ensemble_)
    said = predicted(net, "parts", net.tables["clinic"])
    np.testing.assert_array_equal(said, model.predict_proba(columns)[:, 1])


@pytest.mark.parametrize(("privacy", "times"), [(RESPONSE, 1), (RESIDUALS, 2)], ids=["labels", "residuals"])
def test_rows_that_not_all_know_cost_noise_on_residuals_twice_and_noisy_labels_once(
    privacy: Any, times: int, net: Network
) -> None:
    net.write("ward", net.tables["ward"].iloc[10:])
    net.nodes["ward"].worker.restart()
    record = net.invite("fewer", rounds=1, privacy=privacy, secrecy="sums")
    net.learn("fewer")
    assert sum(one.n_rows for one in charged(net, "fewer") if one.most) == N + (times - 1) * (N - 10)
    assert net.nodes["clinic"].state.statuses(record.id, "label holder") == {1: "abandoned", 2: "finished"}


RANDOM = {"numbers", "number", "of", "content", "terms"}
"""In messages about sums: what is drawn anew, and what follows from the name of the task or of a message."""
KEYS = {"keys", "signatures", "boxes"}


def what_was_sent(
    network: Network, sent: list[tuple[str, str, bytes]], task: str, privacy: Any
) -> tuple[list[Any], set[str]]:
    """From an invitation to a prediction, all but keys and names; and of which kinds it was."""
    del sent[:]
    record = network.invite(task, rounds=2, privacy=privacy, secrecy="sums")
    network.learn(task)
    predicted(network, task, network.tables["clinic"])
    found: list[Any] = []
    for name, kind, data in sent:
        message = decode(data)
        fields = {key: value for key, value in message.fields.items() if key not in RANDOM}
        arrays = {key: one.tobytes() for key, one in message.arrays.items() if key not in KEYS}
        found.append((name, kind, fields, arrays, {key: one.shape for key, one in message.arrays.items()}))
    told = record.terms.model_dump(mode="json")
    return [*found, {key: told[key] for key in told if key not in ("task", "name")}], {one[1] for one in sent}


@pytest.mark.parametrize("privacy", [RESPONSE, RESIDUALS], ids=lambda one: one.mechanism)
def test_other_labels_with_the_same_noise_leave_no_trace(
    privacy: Any, net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, found = spied(net, monkeypatch), []
    for seed in (0, 7):
        net.write("clinic", tables(seed)["clinic"])
        told, kinds = what_was_sent(net, sent, f"task-{seed}", privacy)
        assert kinds == {"begin", "fit", "keys", "share", "sum", "open", "total", "end"}, "no single answer"
        found.append(told)
    assert found[0] == found[1]
