"""The private refit over nodes: the same as in one process, and nothing that is sent shows it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gal.node.label_holder.labels.label_guard
from gal import GALClassifier
from gal.assembling import grouped
from gal.errors import (
    TaskError,
)
from gal.models import LinearModel
from gal.node.label_holder.stacker_files import OWN_FILE, write_own_stacker
from gal.node.store.stored_versions import OWN_STACKER
from gal.privacy import RandomisedResponse
from gal.privacy.refit import stacked
from noisy_labels import (
    EPSILON,
    RESPONSE,
    FixedNoise,
    labelled,
    spied,
)
from small_network import LABEL, QUICKLY, ROW_ID, Network, exact, running


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A clinic that holds labels and a lab that helps, with noise that tests can foresee."""
    with running(Network(tmp_path_factory.mktemp("net"), labelled())) as network:
        network.holder.guard.noise = FixedNoise
        yield network


def same_as_in_one_process(network: Network, lab_model: Any, **options: Any) -> dict[str, Any]:
    """With the same noisy labels, learning and predicting over nodes is what the
    estimator does, to the last bit.
    """
    record = network.invite("same", rounds=3, seed=4, privacy=RESPONSE, **options)
    facts = network.learn("same")
    table = network.tables["clinic"].merge(network.tables["lab"], on=ROW_ID)
    parts = {"clinic": ["clinic_a", "clinic_b"], "lab": ["lab_a", "lab_b"]}
    columns = table[[*parts["clinic"], *parts["lab"]]].to_numpy()
    places = {"clinic": [0, 1], "lab": [2, 3]}
    models = {"clinic": LinearModel(), "lab": lab_model}
    mechanism = RandomisedResponse(EPSILON, ["no", "yes"], FixedNoise())
    model = GALClassifier(
        places, rounds=3, privacy=mechanism, local_models=models, random_state=1, **grouped(options)
    )
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # a task's seed is a number, not what an estimator draws from one
        patch.setattr(
            "gal.estimators.check_random_state", lambda _: type("Four", (), {"randint": lambda *_: 4})
        )
        model.fit(columns, table[LABEL])
    assert exact(network.ensemble(record)) == exact(model.ensemble_)
    table[[ROW_ID]].to_csv(network.root / "all.csv", index=False)
    rows = network.holder.predict_file("same", network.root / "all.csv")["rows"]
    said = [row["probabilities"]["yes"] for row in rows]
    np.testing.assert_array_equal(said, model.predict_proba(columns)[:, 1])
    assert [row["prediction"] for row in rows] == model.predict(columns).tolist()
    return facts


def test_learning_and_refit_are_the_same_as_in_one_process(net: Network) -> None:
    facts = same_as_in_one_process(net, LinearModel())
    assert facts["refitted"]
    assert facts["private_true_loss"] < facts["public_true_loss"]


def test_with_validation_rows_the_refit_is_on_rows_that_were_never_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over nodes as in one process: a memorizer is right only in rows whose residuals were sent."""
    seen = list[int]()
    monkeypatch.setattr("gal.privacy.refit.ENOUGH", 50)

    def spied(labels: Any, base: Any, folds: Any, rows: Any, *more: Any, **named: Any) -> Any:
        seen.append(len(rows))
        return stacked(labels, base, folds, rows, *more, **named)

    monkeypatch.setattr("gal.privacy.refit.stacked", spied)
    with running(Network(tmp_path, in_turns(200))) as network:
        network.holder.guard.noise = FixedNoise
        n, asked = len(network.tables["clinic"]), {"validation_fraction": 0.3}
        same_as_in_one_process(network, LinearModel(), fitted="held-out", **asked)
    n_kept = 2 * round(0.3 * n)
    assert seen == [n_kept, n_kept]


def in_turns(n: int = 2000) -> dict[str, pd.DataFrame]:
    """Labels that come in turns along the clinic's first column, in a large table."""
    tables = labelled()
    rng = np.random.default_rng(8)
    for name in tables:
        columns = {f"{name}_a": rng.normal(size=n), f"{name}_b": rng.normal(size=n)}
        tables[name] = pd.DataFrame({ROW_ID: np.arange(n), **columns})
    along = np.digitize(tables["clinic"]["clinic_a"], [-1.0, 0.0, 0.9])
    tables["clinic"][LABEL] = np.array(["no", "yes", "no", "yes"])[along]
    return tables


@pytest.mark.usefixtures("small_forests")
def test_in_large_tables_the_refit_has_an_own_model_that_is_closed(tmp_path: Path) -> None:
    with running(Network(tmp_path, in_turns())) as network:
        network.holder.guard.noise = FixedNoise
        facts = same_as_in_one_process(network, LinearModel())
        assert facts["refitted"]
        assert facts["private_true_loss"] < 0.75 * facts["public_true_loss"]
        assert OWN_STACKER not in facts
        [path] = (tmp_path / "clinic" / "tasks").rglob(OWN_FILE)
        assert not list((tmp_path / "lab").rglob(OWN_FILE))
        asked = network.root / "all.csv"
        before = network.holder.predict_file("same", asked)["rows"]
        kept = path.read_bytes()
        path.write_bytes(b"nothing")
        network.holder.predictor.close()
        with pytest.raises(TaskError, match=r"stacker of your own model in version 1.*is missing or"):
            network.holder.predict_file("same", asked)
        path.write_bytes(kept)
        assert network.holder.predict_file("same", asked)["rows"] == before


@pytest.mark.usefixtures("small_forests")
@pytest.mark.parametrize("written", [False, True])
def test_what_resumes_after_the_end_has_the_same_stacker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:

    def dies(*given: Any) -> None:
        if written:
            write_own_stacker(*given)
        raise KeyboardInterrupt

    with running(Network(tmp_path, in_turns())) as network:
        network.holder.guard.noise = FixedNoise
        network.invite("whole", rounds=2, seed=4, privacy=RESPONSE)
        network.learn("whole")
        network.invite("parts", rounds=2, seed=4, privacy=RESPONSE)
        with monkeypatch.context() as patch:
            patch.setattr("gal.node.label_holder.learning.learning.write_own_stacker", dies)
            with pytest.raises(KeyboardInterrupt):
                network.learn("parts")
        network.stop("clinic")
        network.start("clinic")
        sent = spied(network, monkeypatch)
        network.learn("parts")
        # Nothing is asked again; who has not come back by then hears of the end with the next version.
        assert [kind for _, kind, _ in sent] in ([], ["end"])
        assert len(list((tmp_path / "clinic" / "tasks").rglob(OWN_FILE))) == 2
        asked = network.root / "all.csv"
        network.tables["clinic"][[ROW_ID]].to_csv(asked, index=False)
        whole, parts = (network.holder.predict_file(task, asked)["rows"] for task in ("whole", "parts"))
        assert whole == parts


@pytest.mark.parametrize("took", [3.0, 7.0])
def test_with_a_pause_the_end_does_not_tell_how_long_the_private_track_took(
    net: Network, monkeypatch: pytest.MonkeyPatch, took: float
) -> None:
    clock, slept = [100.0], list[float]()
    module = import_module("gal.node.label_holder.learning.learning")
    own = module.Learning._own_model

    def slow(learning: Any) -> Any:
        clock[0] += took
        return own(learning)

    timing = {"monotonic": lambda: clock[0], "sleep": slept.append}
    monkeypatch.setattr(module, "time", SimpleNamespace(**vars(time) | timing))
    monkeypatch.setattr(module.Learning, "_own_model", slow)
    net.invite(f"paused-{took:g}", rounds=1, privacy=RESPONSE)
    net.learn(f"paused-{took:g}", patience=replace(QUICKLY, pause=30.0))
    assert slept == [30.0 - took]


def test_a_private_refit_that_fails_does_not_show(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = spied(net, monkeypatch)

    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("these labels are too hard")

    monkeypatch.setattr(gal.node.label_holder.labels.label_guard, "refit_privately", fails)
    net.invite("hard", rounds=1, privacy=RESPONSE)
    facts = net.learn("hard")
    assert not facts["refitted"]
    assert facts["refit_problem"] == "ValueError: these labels are too hard"
    assert [kind for _, kind, _ in sent] == ["begin", *["fit"] * 5, "end"]  # the task, and without each part
    assert net.nodes["clinic"].state.find_task("hard").active == 1


def test_the_end_is_sent_before_the_true_labels_are_read(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Organizations cannot observe how long the refit takes, or whether it fails."""
    sent, seen = spied(net, monkeypatch), []
    learning = import_module("gal.node.label_holder.learning.learning")
    for owner, name in ((learning.Learning, "_own_model"), (learning, "refit_facts")):
        before = getattr(owner, name)

        def noting(*given: Any, name: str = name, before: Any = before) -> Any:
            seen.append((name, [kind for _, kind, _ in sent]))
            return before(*given)

        monkeypatch.setattr(owner, name, noting)
    net.invite("order", rounds=1, privacy=RESPONSE)
    net.learn("order")
    everything = ["begin", *["fit"] * 5, "end"]
    assert seen == [("_own_model", everything), ("refit_facts", everything)]
    assert [kind for _, kind, _ in sent] == everything
