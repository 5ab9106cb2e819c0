"""Organizations with networks learn together: any views, one body for all rounds,
failures, drivers, saved models.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from numpy.typing import NDArray

from gal.assembling import grouped

pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

from sklearn.linear_model import Ridge
from torch import nn

import gal
from gal import Ensemble, GALClassifier, GALRegressor, Organization, Progress
from gal.core.line_search import mean_loss
from gal.errors import StoredModelError
from gal.learner.drivers import Traffic
from gal.learner.labels import class_labels, regression_labels
from gal.learner.options import Options
from gal.learner.task_making import make_rows
from gal.models.deep import SharedBodyModel, TorchModel, cnn_body, lstm_body, mlp_body
from gal.models.deep.networks import Inputs, WithHead, count_features
from gal.models.sequences import Sequences

Floats = NDArray[np.float64]


def small_body(inputs: Inputs) -> Any:
    if inputs.kind == "images":
        return cnn_body(inputs, widths=(4, 8))
    if inputs.kind in {"sequences", "codes"}:
        return lstm_body(inputs, hidden=6, embedding=3)
    return mlp_body(inputs, hidden=8)


def small_network(inputs: Inputs, n_outputs: int) -> Any:
    body = small_body(inputs)
    return WithHead(body, count_features(body, inputs), n_outputs)


QUICK: dict[str, Any] = {"epochs": 4, "batch_size": 20, "device": "cpu"}


def network(**options: Any) -> TorchModel:
    return TorchModel(small_network, **QUICK | options)


def shared(**options: Any) -> SharedBodyModel:
    return SharedBodyModel(small_body, **QUICK | options)


def views(n: int = 90) -> tuple[dict[str, Any], Floats]:
    """A view of every kind, and a number of which each knows a part."""
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {
        "camera": rng.normal(size=(n, 1, 4, 4)),
        "coder": Sequences(rng.integers(0, 4, size=(n, 2)), np.full(n, 2)),
        "desk": rng.normal(size=(n, 3)),
        "scanner": rng.normal(size=(n, 2, 1, 2, 2)),
        "ward": Sequences(rng.normal(size=(n, 3, 2)), rng.integers(1, 4, size=n)),
    }
    y = (
        2 * made["camera"].mean(axis=(1, 2, 3))
        + 0.5 * made["coder"].values[:, 0]
        + made["desk"][:, 0]
        + made["scanner"][:, 1].mean(axis=(1, 2, 3))
        + np.tanh(made["ward"].values[:, 0, 0])
    )
    return made, y


def columns(models: Sequence[Any], n: int = 80) -> tuple[list[Organization], Floats]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    y = X[:, 0] + np.sin(2 * X[:, 2]) + X[:, 4]
    names = ("a", "b", "c")
    return [Organization(names[m], X[:, 2 * m : 2 * m + 2], one) for m, one in enumerate(models)], y


OPTIONS: dict[str, Any] = {"rounds": 3, "seed": 5, "cross_validation": 0, "validation_fraction": 0.0}


# --- any views, any kind of labels


@pytest.mark.parametrize("local", [network(), shared()], ids=["network", "shared body"])
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_organizations_with_views_of_every_kind_learn_together(local: Any, kind: Any) -> None:
    made, y = views()
    labels = np.digitize(y, np.quantile(y, [0.3, 0.7])) if kind == "classification" else y
    organizations = [Organization(name, view, local) for name, view in made.items()]
    ensemble = gal.learn(labels, organizations, kind=kind, **grouped(OPTIONS))
    assert not any(done.left_out for done in ensemble.rounds)
    assert ensemble.train_loss < 0.8 * ensemble.initial_train_loss
    whole = gal.predict(ensemble, organizations)
    assert not whole.missing
    rows = np.arange(0, 90, 7)
    few = gal.predict(ensemble, organizations, {name: view[rows] for name, view in made.items()})
    np.testing.assert_allclose(few.output, whole.output[rows], rtol=1e-4, atol=1e-4)


def test_weights_of_rows_reach_the_networks() -> None:
    organizations, y = columns([network(), shared(), network()])
    weight = np.where(np.arange(80) % 2 == 0, 0.0, 1.0)
    outputs = []
    for spoiled in (y, np.where(weight == 0, 50.0, y)):
        ensemble = gal.learn(
            spoiled,
            organizations,
            sample_weight=weight,
            algorithm=gal.Algorithm(initial="zero"),
            **grouped(OPTIONS),
        )
        outputs.append(gal.predict(ensemble, organizations).output)
    assert np.abs(outputs[0] - outputs[1])[weight > 0].max() < 5
    unweighted = gal.learn(
        np.where(weight == 0, 50.0, y),
        organizations,
        algorithm=gal.Algorithm(initial="zero"),
        **grouped(OPTIONS),
    )
    assert np.abs(gal.predict(unweighted, organizations).output - outputs[0]).max() > 5


# --- one body for all rounds


@pytest.mark.parametrize("fitted", ["in-sample", "held-out"])
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_prediction_repeats_the_training_outputs(fitted: str, kind: Any) -> None:
    """The loss of F^T, from re-evaluated values, is the label holder's."""
    made, y = views()
    labels = np.digitize(y, np.quantile(y, [0.3, 0.7])) if kind == "classification" else y
    organizations = [Organization(name, view, shared()) for name, view in made.items()]
    traffic = Traffic()
    ensemble = gal.learn(
        labels,
        organizations,
        kind=kind,
        algorithm=gal.Algorithm(fitted=fitted),
        traffic=traffic,
        **grouped(OPTIONS),
    )
    assert len(ensemble.rounds) == 3
    assert _train_loss(ensemble, organizations, labels, kind, fitted) == pytest.approx(
        ensemble.train_loss, rel=1e-5
    )
    outputs = 3 if kind == "classification" else 1
    fit_rows = 90 if fitted == "in-sample" else 81
    assert traffic.trips == 3 + 1  # three rounds, and asking again
    assert traffic.sent == 3 * 4 * fit_rows * outputs * 4  # rounds, others, rows, outputs, bytes
    assert traffic.received == 2 * 3 * 4 * 90 * outputs * 4


def _train_loss(
    ensemble: Ensemble, organizations: list[Organization], labels: Any, kind: str, fitted: str
) -> float:
    chosen = Options(rounds=3, cross_validation=0, validation_fraction=0.0, fitted=fitted)
    known = (class_labels if kind == "classification" else regression_labels)(labels, chosen)
    rows = make_rows(known, chosen, np.random.default_rng(5), cross_validate=False).search
    output = gal.predict(ensemble, organizations).output
    return mean_loss(known.loss, known.y[rows], output[rows])


class MissingOnce(SharedBodyModel):
    """Fails in the second round."""

    def fit_round(self, X: Any, residual: Any, *, round: int, **rest: Any) -> SharedBodyModel:
        if round == 2:
            raise RuntimeError("the GPU is busy")
        return super().fit_round(X, residual, round=round, **rest)


def test_a_missed_round_is_missed_only() -> None:
    organizations, y = columns([shared(), MissingOnce(small_body, **QUICK), network()])
    ensemble = gal.learn(y, organizations, **grouped(OPTIONS))
    assert [list(done.left_out) for done in ensemble.rounds] == [[], ["b"], []]
    assert "the GPU is busy" in ensemble.rounds[1].left_out["b"]
    model: Any = organizations[1].models["assisted", 3][0]
    assert model.rounds_ == (1, 3)
    loss = _train_loss(ensemble, organizations, y, "regression", "in-sample")
    assert loss == pytest.approx(ensemble.train_loss, rel=1e-5)


def test_a_resumed_task_goes_on_from_the_body() -> None:
    organizations, y = columns([shared(), network(), shared()])
    saved: list[Progress] = []
    whole = gal.learn(y, organizations, on_round=saved.append, **grouped(OPTIONS))
    resumed = gal.learn(y, organizations, progress=saved[1], **grouped(OPTIONS))
    assert not any(done.left_out for done in resumed.rounds)
    assert len(resumed.rounds) == len(whole.rounds)
    loss = _train_loss(resumed, organizations, y, "regression", "in-sample")
    assert loss == pytest.approx(resumed.train_loss, rel=1e-5)


# --- failures


DIVERGING: dict[str, Any] = {"learning_rate": 1e30, "clip_norm": None}


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        (network(**DIVERGING), "training diverged: .* lower learning_rate, or set clip_norm"),
        (shared(**DIVERGING), "training diverged: .* lower learning_rate, or set clip_norm"),
        (TorchModel("cnn", **QUICK), "this network takes images, the view is of the kind 'table'"),
        (network(device="gpu"), "device 'gpu' cannot be used here"),
    ],
    ids=["diverging", "diverging body", "for images", "elsewhere"],
)
def test_one_that_fails_is_left_out_and_the_others_go_on(failing: Any, reason: str) -> None:
    organizations, y = columns([network(), failing, shared()])
    ensemble = gal.learn(y, organizations, **grouped(OPTIONS))
    assert len(ensemble.rounds) == 3
    for done in ensemble.rounds:
        assert list(done.left_out) == ["b"]
        assert done.weights["b"] == 0
        assert re.search(reason, done.left_out["b"]), done.left_out["b"]
    assert ensemble.requested() == ("a", "c")
    assert ensemble.train_loss < 0.8 * ensemble.initial_train_loss
    predicted = gal.predict(ensemble, organizations)
    assert not predicted.missing
    assert np.isfinite(predicted.output).all()


# --- drivers


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_drivers_agree(backend: str) -> None:
    outputs, ensembles = [], []
    for n_jobs in (1, 2):
        organizations, y = columns([TorchModel("mlp", **QUICK), SharedBodyModel("mlp", **QUICK), Ridge()])
        options = OPTIONS | {"rounds": 2, "n_jobs": n_jobs}
        with parallel_config(backend):
            ensembles.append(gal.learn(y, organizations, **grouped(options)))
        outputs.append(gal.predict(ensembles[-1], organizations).output)
    assert repr(ensembles[0]) == repr(ensembles[1])
    assert outputs[0].tobytes() == outputs[1].tobytes()


# --- estimators, saved and loaded

PARTS = {"a": [0, 1], "b": [2, 3]}


def numbers(n: int = 80) -> tuple[Floats, Floats]:
    X = np.random.default_rng(0).normal(size=(n, 4))
    return X, X[:, 0] + np.sin(2 * X[:, 2])


def estimator(make: Any, local: Any, **options: Any) -> Any:
    chosen: dict[str, Any] = {"rounds": 2, "cross_validation": 0, "random_state": 0, **options}
    return make(PARTS, local_models=local, **grouped(chosen))


LOCAL = {
    "network": TorchModel(**QUICK),
    "shared body": SharedBodyModel(**QUICK),
    "both": {"a": TorchModel("mlp", **QUICK), "b": SharedBodyModel("mlp", local_loss="l1", **QUICK)},
}


@pytest.mark.parametrize("local", LOCAL.values(), ids=LOCAL.keys())
@pytest.mark.parametrize("make", [GALRegressor, GALClassifier])
def test_a_loaded_estimator_is_the_saved_one(make: Any, local: Any, tmp_path: Path) -> None:
    X, y = numbers()
    model = estimator(make, local).fit(X, y if make is GALRegressor else y > 0)
    model.save(tmp_path / "model.gal")
    again = make.load(tmp_path / "model.gal")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict(X, missing=["b"]), model.predict(X, missing=["b"]))
    if make is GALClassifier:
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert repr(again.get_params()) == repr(model.get_params())
    refitted = again.fit(X, y if make is GALRegressor else y > 0)
    np.testing.assert_array_equal(refitted.predict(X), model.predict(X))


def inside(path: Path) -> tuple[list[str], dict[str, bytes]]:
    """Types that a reader must allow, and the files of the models in it."""
    import skops.io

    with zipfile.ZipFile(path) as archive:
        models = archive.read("models.skops")
    with zipfile.ZipFile(io.BytesIO(models)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return list(skops.io.get_untrusted_types(data=models)), files


@pytest.mark.parametrize("local", LOCAL.values(), ids=LOCAL.keys())
def test_files_hold_numbers_as_safetensors_and_nothing_that_runs(local: Any, tmp_path: Path) -> None:
    from safetensors.torch import load

    X, y = numbers()
    estimator(GALRegressor, local).fit(X, y).save(tmp_path / "model.gal")
    types, files = inside(tmp_path / "model.gal")
    assert types
    assert [name for name in types if not name.startswith("gal.")] == []
    stored = [content for name, content in files.items() if name.endswith(".bin")]
    assert stored
    for content in stored:
        assert "head.weight" in load(content)
    assert not any(content.startswith(b"\x80") for content in files.values())  # how pickles begin
    assert "pickle" not in files["schema.json"].decode().lower()


def test_networks_of_ones_own_must_be_trusted_by_name(tmp_path: Path) -> None:
    X, y = numbers()
    model = estimator(GALRegressor, network()).fit(X, y)
    model.save(tmp_path / "model.gal")
    with pytest.raises(StoredModelError, match=r"test_deep_learning\.small_network"):
        GALRegressor.load(tmp_path / "model.gal")
    again = GALRegressor.load(tmp_path / "model.gal", trusted=["test_deep_learning.small_network"])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    unnamed = estimator(GALRegressor, TorchModel(lambda inputs, n_outputs: nn.Linear(2, n_outputs), **QUICK))
    with pytest.raises(StoredModelError, match="move them to an importable module"):
        unnamed.fit(X, y).save(tmp_path / "other.gal")


def test_files_hold_no_residuals(tmp_path: Path) -> None:
    """Residuals show the labels, and are not needed after learning."""
    X, y = numbers(300)
    estimator(GALRegressor, SharedBodyModel(**QUICK)).fit(X, y).save(tmp_path / "model.gal")
    _, files = inside(tmp_path / "model.gal")
    assert not [name for name in files if name.endswith(".npy")]
