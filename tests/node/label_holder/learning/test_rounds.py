"""Learning over nodes equals learning in process, also where organizations are missing."""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gal
from gal.errors import LearningInterruptedError, TaskError
from gal.node.admin.membership import forget
from gal.node.runtime.web.node_facts import node_facts
from gal.node.store.state import TaskRecord
from patience import LONGEST, patient
from small_network import LABEL, QUICKLY, ROW_ID, Network, exact, numbers, running

pytestmark = pytest.mark.usefixtures("small_forests")

MODELS = {"clinic": 'use = "linear"', "lab": 'use = "tabular"', "ward": 'use = "ridge"'}
SECRET = 'secret_file = "alignment.secret"\n'

PLAIN: dict[str, Any] = {"cross_validation": 0, "validation_fraction": 0.0}
"""Few rows do not convince a validation; without it, all rounds are used."""

OPTIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "held-out": {"fitted": "held-out"},
    "cross-validated": {"cross_validation": 3},
    "paper": {"preset": "paper"},
    "absolute error": {"loss": "absolute_error"},
}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Three organizations with three kinds of models, and one secret."""
    root = tmp_path_factory.mktemp("numbers")
    tables = numbers()
    made = Network(root, tables, models=MODELS, more={f"{name} data": SECRET for name in tables})
    for name in tables:
        path = root / name / "alignment.secret"
        path.write_bytes(b"a secret that all of them share")
        path.chmod(0o600)
    with running(made):
        yield made


def same_as_in_process(network: Network, task: str, alignment: str = "plain", **options: Any) -> TaskRecord:
    """Learn over nodes and in process; models and predictions of all rows
    must be the same, to the last bit.
    """
    record = network.invite(task, alignment=alignment, **options)
    network.wait_until_joined(record)  # longer than learning waits: no organization may be missing
    facts = network.learn(task)
    assert facts["missed"] == {}
    expected, members = network.in_process(**options)
    assert exact(network.ensemble(record)) == exact(expected)
    assert facts["status"] == "finished"
    assert facts["rounds"] == expected.n_rounds
    assert facts["train_loss"] == expected.train_loss
    assert not any(facts["unknown_rows"].values())
    ids = network.tables["clinic"][ROW_ID]
    path = network.root / f"{task}.csv"
    ids.to_frame().to_csv(path, index=False)
    network.holder.predict_file(task, path, out=network.root / f"{task}-out.csv")
    with (network.root / f"{task}-out.csv").open(encoding="utf-8", newline="") as file:
        written = [*csv.DictReader(file)]
    assert [row[ROW_ID] for row in written] == [str(one) for one in ids]
    assert {row["degraded"] for row in written} == {"0"}
    output = gal.predict(expected, members).output
    found = network.holder.predictor.predict(
        network.nodes["clinic"].state.find_task(task), table_ids(network, ids)
    )
    np.testing.assert_array_equal(found.output, output)
    if facts["classes"] is None:
        assert [float(row["prediction"]) for row in written] == output[:, 0].tolist()
    return record


def table_ids(network: Network, ids: Any) -> Any:
    from gal.alignment import row_ids

    return row_ids(list(ids), "clinic", network.nodes["clinic"].name)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_over_nodes_is_in_process(network: Network, options: dict[str, Any]) -> None:
    task = "o" + "-".join(f"{key}.{value}" for key, value in options.items())
    same_as_in_process(network, task.replace("_", "-"), rounds=3, seed=5, **options)


def classes(kind: str, n: int = 120) -> dict[str, pd.DataFrame]:
    """Text columns and missing values, and classes of this kind that need them."""
    tables = numbers(n)
    rng = np.random.default_rng(1)
    score = tables["clinic"][LABEL].to_numpy()
    town = rng.choice(["north", "south, east", "öst"], size=n)
    score = score + np.where(town == "öst", 2.0, 0.0)
    tables["clinic"].insert(1, "town", town)
    tables["clinic"].loc[::7, "town"] = None
    tables["clinic"].loc[::5, "clinic_a"] = np.nan
    tables["lab"].loc[tables["lab"][ROW_ID] % 6 == 0, "lab_b"] = np.nan
    names = {
        "text": ["early", "late", "none"],
        "two": ["no", "yes"],
        "numbers": [0, 1],
        "truths": [False, True],
    }
    chosen = np.array(names[kind], dtype=object)
    edges = np.quantile(score, np.linspace(0, 1, len(chosen) + 1)[1:-1])
    tables["clinic"][LABEL] = chosen[np.digitize(score, edges)]
    return tables


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Text columns, missing values, trees, and a model that moves."""
    models = {
        "clinic": 'use = "tabular"',
        "lab": 'use = "tabular"',
        "ward": 'use = "moving_models:Drifting"\noptions = { n_features = 5 }\n'
        'trusted = ["moving_models.Drifting"]',
        "shop": 'use = "gradient_boosting"\noptions = { n_estimators = 5 }',
    }
    tables = classes("text")
    shop = tables["ward"].rename(columns={"ward_a": "shop_a", "ward_b": "shop_b"})
    network = Network(tmp_path_factory.mktemp("mixed"), tables | {"shop": shop * [1, -1, 2]}, models=models)
    with running(network):
        yield network


@pytest.mark.parametrize("kind", ["text", "two", "numbers", "truths"])
def test_classes_text_and_missing_values(mixed: Network, kind: str) -> None:
    mixed.write("clinic", classes(kind)["clinic"])
    record = same_as_in_process(mixed, f"of-{kind}", rounds=2, seed=2)
    learned = mixed.nodes["clinic"].state.learned_version(record.id, 1)
    assert learned is not None
    assert learned.outcome is not None
    known = learned.outcome.classes
    assert known is not None
    assert known == sorted({*mixed.tables["clinic"][LABEL]})
    rows = pd.read_csv(mixed.root / f"of-{kind}-out.csv")
    names = [f"probability_{one}" for one in known]
    np.testing.assert_allclose(rows[names].sum(axis=1), 1)
    assert {*rows["prediction"]} <= {*known}


def test_many_rows_hold_some_out(tmp_path: Path) -> None:
    with running(Network(tmp_path, numbers(2100, organizations=("clinic", "lab")))) as network:
        record = same_as_in_process(network, "large", rounds=2)
        assert record.terms.fitted == "held-out"


# Rows that one organization does not know, and organizations that are not there


def test_rows_that_one_does_not_know(tmp_path: Path) -> None:
    tables = numbers(100)
    tables["lab"] = tables["lab"].iloc[:80]
    gone = set(tables["clinic"][ROW_ID]) - set(tables["lab"][ROW_ID])
    with running(Network(tmp_path, tables)) as network:
        record = network.invite("some", rounds=2, **PLAIN)
        events: list[Any] = []
        facts = network.learn("some", on_event=events.append)
        assert facts["unknown_rows"] == {"clinic": 0, "lab": 20, "ward": 0}
        assert facts["known_rows"] == {"clinic": 100, "lab": 80, "ward": 100}
        said = [one for one in events if one["event"] == "rows" and one["organization"] == "lab"]
        assert [(one["known"], one["unknown"]) for one in said] == [(80, 20)]
        assert facts["contributions"]["by_organization"]["lab"]["value"] > 0
        network.tables["clinic"][[ROW_ID]].to_csv(tmp_path / "all.csv", index=False)
        found = network.holder.predict_file("some", tmp_path / "all.csv")
        assert found["unknown"] == {"lab": 20}
        assert found["missing"] == {}
        assert {row["id"] for row in found["rows"] if row["degraded"]} == gone
        assert_mean_stands_in(network, record, gone)


def assert_mean_stands_in(network: Network, record: TaskRecord, gone: set[int]) -> None:
    """Both in learning and in prediction the mean over known rows stands in:
    the train loss can be had again.
    """
    ensemble = network.ensemble(record)
    ids = network.tables["clinic"][ROW_ID]
    found = network.holder.predictor.predict(
        network.nodes["clinic"].state.find_task(record.name), table_ids(network, ids)
    )
    y = network.tables["clinic"][LABEL].to_numpy()
    loss = float(np.mean((y - found.output[:, 0]) ** 2)) / 2
    assert loss == pytest.approx(ensemble.train_loss, rel=1e-5)
    assert sorted(ids[found.degraded]) == sorted(gone)


# Stopping, resuming, versions


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Network]:
    with running(Network(tmp_path, numbers(60, organizations=("clinic", "lab", "ward")))) as network:
        yield network


def stopped(network: Network, task: str) -> None:
    """Learn until round 2."""
    stopping = threading.Event()

    def stop(event: Any) -> None:
        if event["event"] == "round" and event["round"] == 2:
            stopping.set()

    with pytest.raises(LearningInterruptedError, match=f"gal learn {task} resumes it"):
        network.learn(task, on_event=stop, stopping=stopping)


def test_stopped_and_resumed_is_the_same(pair: Network) -> None:
    record = pair.invite("stopped", rounds=4)
    stopped(pair, "stopped")
    pair.stop("clinic", "lab")
    pair.start("clinic", "lab")
    events: list[Any] = []
    assert pair.learn("stopped", on_event=events.append)["version"] == 1
    assert (events[0]["event"], events[0]["version"]) == ("resumed", 1)
    assert exact(pair.ensemble(record)) == exact(pair.in_process(rounds=4)[0])


@pytest.mark.parametrize("harm", ["gone", "damaged", "another request"])
def test_a_reply_that_counts_and_is_not_as_it_was_ends_the_version(pair: Network, harm: str) -> None:
    record = pair.invite("harmed", rounds=3)
    stopped(pair, "harmed")
    reply = next((pair.root / "clinic" / "tasks" / record.id).rglob("reply-*-lab.arrow"))
    if harm == "gone":
        reply.unlink()
    elif harm == "damaged":
        reply.write_bytes(reply.read_bytes()[:-1])
    else:
        with pair.nodes["clinic"].state.transaction() as db:
            db.execute("UPDATE replies SET request = 'sha256:0' WHERE organization = 'lab'")
    said = "differ from the stored ones" if harm == "another request" else "is gone or damaged here"
    with pytest.raises(TaskError, match=rf"{said}.*gal learn harmed --anew"):
        pair.learn("harmed")
    assert pair.learn("harmed", anew=True)["missed"] == {}


def test_two_learnings_at_once_are_one_too_many(pair: Network) -> None:
    pair.invite("once", rounds=2)
    pair.invite("twice", rounds=2)
    errors: list[str] = []
    states: list[Any] = []

    def second(event: Any) -> None:
        if event["event"] == "round" and event["round"] == 1:
            with pytest.raises(TaskError) as error:
                pair.learn("twice")
            errors.append(str(error.value))
            states.append(node_facts(pair.nodes["clinic"]))

    assert pair.learn("once", on_event=second)["rounds_learned"] == 2
    assert len(errors) == 1
    assert errors[0].startswith("this node is learning 'once' (version 1, 1 of at most 2 rounds are")
    assert (states[0]["learning"]["task"], states[0]["learning"]["round"]) == ("once", 1)
    assert node_facts(pair.nodes["clinic"])["learning"]["state"] == "finished"
    members = [member for task in states[0]["tasks"] for member in task["members"].values()]
    assert "invited" not in members, "the running node knows what they do"
    assert pair.learn("twice")["rounds_learned"] == 2


def test_a_new_version_of_new_rows(pair: Network) -> None:
    record = pair.invite("grows", rounds=2)
    pair.learn("grows")
    for name, table in numbers(90).items():
        pair.write(name, table)
    facts = pair.learn("grows")
    assert (facts["version"], facts["n_rows"]) == (2, 90)
    assert exact(pair.ensemble(record, 2)) == exact(pair.in_process(rounds=2)[0])
    pair.tables["clinic"].to_csv(pair.root / "labelled.csv", index=False)
    pair.nodes["clinic"].state.set_active(record.id, 1)
    assert pair.holder.predict_file("grows", pair.root / "labelled.csv")["version"] == 1


def test_one_forgets_during_learning(pair: Network) -> None:
    """What it held is gone at once and stays gone; the others go on, and so does its node."""
    record = pair.invite("forgets", rounds=3, **PLAIN)
    other = pair.invite("kept", rounds=1, **PLAIN)
    pair.learn("kept")
    assistants, waited_for = pair.nodes["clinic"].assistants, set[str]()

    def forget_it(event: Any) -> None:
        if event["event"] == "waiting":
            waited_for.update(event["organizations"])
        if event["event"] == "round" and event["round"] == 1:
            assert forget(pair.root / "lab", "forgets") > 0
            assistants.wait_for(lambda: "lab" in assistants.declining(record.id), LONGEST)
            waited_for.clear()

    patience = replace(QUICKLY, deadline=patient(5))
    assert pair.learn("forgets", on_event=forget_it, patience=patience)["missed"] == {"lab": [2, 3]}
    assert waited_for == set(), "it has said that it takes no part"
    state = pair.nodes["lab"].state
    assert not (pair.root / "lab" / "tasks" / record.id).exists()
    assert state.get_task(record.id) is None
    assert state.answers(record.id, 1) == []
    assert state.versions(record.id) == {}
    assert [one.name for one in state.tasks()] == [other.name]
    assert pair.learn("kept")["missed"] == {}


def test_two_label_holders_help_each_other(tmp_path: Path) -> None:
    """Each learns its own task at the same time as it assists the other."""
    tables = numbers(60, organizations=("clinic", "lab"))
    tables["lab"][LABEL] = tables["lab"]["lab_a"] ** 2
    with running(Network(tmp_path, tables, holders=("clinic", "lab"))) as network:
        records = {name: network.invite("both", holder=name, rounds=3) for name in tables}
        failures: list[BaseException] = []

        def learn(name: str) -> None:
            try:
                network.learn("clinic/both" if name == "clinic" else "lab/both", holder=name)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=learn, args=(name,)) for name in tables]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        for name, record in records.items():
            expected = network.in_process(holder=name, rounds=3)[0]
            assert exact(network.ensemble(record)) == exact(expected)
