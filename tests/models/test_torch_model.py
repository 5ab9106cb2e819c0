"""A network as a local model: the contract, views of every kind, seeds, failures, reuse and storing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

import torch
from torch import nn

from gal.errors import InvalidInputError, InvalidOptionError
from gal.models import iter_local_model_checks
from gal.models.deep import ShiftAndFlip, TorchModel, cnn_body, lstm_body, mlp_body
from gal.models.deep.networks import Body, WithHead, count_features
from gal.models.deep.training import Trainer
from gal.models.sequences import Sequences

Floats = NDArray[np.float64]


def with_body(body: Body, inputs: Any, n_outputs: int) -> Any:
    """A small network: a body and an output layer."""
    made = body(inputs)
    return WithHead(made, count_features(made, inputs), n_outputs)


SMALL = {
    "mlp": partial(with_body, partial(mlp_body, hidden=8)),
    "cnn": partial(with_body, partial(cnn_body, widths=(4, 8))),
    "lstm": partial(with_body, partial(lstm_body, hidden=8, embedding=4)),
}


def model(network: Any = SMALL["mlp"], **options: Any) -> TorchModel:
    chosen = {"epochs": 3, "batch_size": 16, "device": "cpu", "random_state": 0, **options}
    return TorchModel(network, **chosen)


def table(n: int = 60) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] - 0.5 * X[:, 1]


# --- the contract


@pytest.mark.parametrize(
    "check",
    [check for _, check in iter_local_model_checks()],
    ids=[name for name, _ in iter_local_model_checks()],
)
def test_the_contract_of_a_local_model_is_kept(check: Callable[[Any], None]) -> None:
    check(TorchModel(epochs=2, batch_size=16, device="cpu"))


# --- views of every kind


def pictures(n: int) -> tuple[Any, Floats]:
    images = np.random.default_rng(0).normal(size=(n, 2, 6, 6))
    return images, images[:, 0].mean(axis=(1, 2)) * 6


def stays(n: int) -> tuple[Any, Floats]:
    """Rows of 1 to 4 steps: the sign of the first column adds up."""
    rng = np.random.default_rng(0)
    steps = Sequences(rng.normal(size=(n, 4, 2)), rng.integers(1, 5, size=n))
    within = np.arange(4) < steps.lengths[:, None]
    return steps, (np.tanh(steps.values[..., 0]) * within).sum(axis=1)


def coded(n: int) -> tuple[Any, Floats]:
    """How often code 3 occurs within a row's length."""
    rng = np.random.default_rng(0)
    steps = Sequences(rng.integers(0, 5, size=(n, 4)), rng.integers(0, 5, size=n))
    within = np.arange(4) < steps.lengths[:, None]
    return steps, ((steps.values == 3) & within).sum(axis=1) * 1.0


def tensors(n: int) -> tuple[Any, Floats]:
    values = np.random.default_rng(0).normal(size=(n, 2, 2, 1, 2))
    return values, values[:, 1].mean(axis=(1, 2, 3)) * 2


EASY: dict[str, tuple[Callable[[int], tuple[Any, Floats]], str, dict[str, Any]]] = {
    "table": (table, "mlp", {"epochs": 20}),
    "images": (pictures, "cnn", {"epochs": 20, "learning_rate": 0.3}),
    "sequences": (stays, "lstm", {"epochs": 40, "optimizer": "adam", "learning_rate": 0.03}),
    "codes": (coded, "lstm", {"epochs": 40, "optimizer": "adam", "learning_rate": 0.03}),
    "other": (tensors, "mlp", {"epochs": 20}),
}


@pytest.mark.parametrize("kind", EASY)
def test_an_easy_target_is_learned(kind: str) -> None:
    make, network, options = EASY[kind]
    X, y = make(160)
    fitted = model(SMALL[network], **options).fit(X, y)
    predicted = fitted.predict(X)
    assert predicted.shape == (160,)
    assert predicted.dtype == np.float32
    assert np.mean((predicted - y) ** 2) < 0.25 * np.var(y)
    assert fitted.inputs_.kind == kind


def test_values_of_sequences_beyond_their_ends_do_not_matter() -> None:
    steps, y = stays(40)
    rng = np.random.default_rng(1)
    changed = steps.values.copy()
    beyond = np.arange(4) >= steps.lengths[:, None]
    changed[beyond] = np.where(rng.random(changed[beyond].shape) < 0.5, np.nan, 1e6)
    other = Sequences(changed, steps.lengths)
    one, two = model(SMALL["lstm"]).fit(steps, y), model(SMALL["lstm"]).fit(other, y)
    np.testing.assert_array_equal(one.predict(steps), two.predict(steps))
    np.testing.assert_array_equal(one.predict(steps), one.predict(other))


def test_rows_without_steps_and_unknown_codes() -> None:
    steps, y = coded(40)
    fitted = model(SMALL["lstm"]).fit(steps, y)
    none = np.zeros(3, dtype=np.int64)
    empty = fitted.predict(Sequences(np.array([[0] * 4, [4] * 4, [1, 2, 3, 4]]), none))
    assert len(set(empty.tolist())) == 1
    full = none + 4
    unknown = fitted.predict(Sequences(np.array([[5, 1, 2, 3], [99, 1, 2, 3], [0, 1, 2, 3]]), full))
    assert len(set(unknown.tolist())) == 1


# --- what cannot be used


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (
            np.array([[1.0], [np.nan]]),
            np.zeros(2),
            "1 values are NaN or infinite, which this network does not accept",
        ),
        (np.zeros((2, 1)), np.zeros(3), r"expected a residual for 2 rows, got shape \(3,\)"),
        (np.zeros((2, 1)), np.zeros((2, 1, 1)), r"expected a residual for 2 rows, got shape \(2, 1, 1\)"),
        (np.zeros((2, 1)), np.array([0.0, np.inf]), "the residual has NaN or infinite values"),
        (np.zeros(3), np.zeros(3), r"rows \(n, \.\.\.\), got shape \(3,\)"),
    ],
)
def test_rows_and_residuals_that_cannot_be_learned_from(X: Any, y: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        model().fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "forest"}, "unknown network 'forest'"),
        ({"network": "cnn"}, "takes images, the view is of the kind 'table'"),
        ({"network": lambda inputs, n_outputs: None}, "must be an nn.Module, got NoneType"),
        ({"local_loss": "l3"}, "unknown local loss 'l3'"),
        ({"device": "gpu"}, "device 'gpu' cannot be used here"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], message: str) -> None:
    X, y = table()
    with pytest.raises(InvalidOptionError, match=message):
        model(**options).fit(X, y)


# --- seeds


@pytest.mark.parametrize("kind", EASY)
def test_predictions_follow_from_the_seed(kind: str) -> None:
    make, network, _ = EASY[kind]
    X, y = make(30)
    predicted = [model(SMALL[network], random_state=seed).fit(X, y).predict(X) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(predicted[0], predicted[1])
    assert not np.allclose(predicted[0], predicted[2])


def test_chance_outside_is_left_alone() -> None:
    X, y = pictures(30)
    torch_before = torch.random.get_rng_state()
    numpy_before = pickle.dumps(np.random.get_state())  # noqa: NPY002
    fitted = model("auto", augment=ShiftAndFlip()).fit(X, y)
    fitted.predict(X)
    pickle.loads(pickle.dumps(fitted))
    assert torch.equal(torch_before, torch.random.get_rng_state())
    assert pickle.dumps(np.random.get_state()) == numpy_before  # noqa: NPY002
    default = model().fit(*table())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        np.testing.assert_array_equal(model().fit(*table()).predict(table()[0]), default.predict(table()[0]))


# --- one trainer for all rounds


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> list[Trainer]:
    """All trainers that are made."""
    made: list[Trainer] = []
    real = Trainer.__init__

    def noting(self: Trainer, *given: Any, **options: Any) -> None:
        made.append(self)
        real(self, *given, **options)

    monkeypatch.setattr(Trainer, "__init__", noting)
    return made


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("weight", [None, np.linspace(0, 1, 60)])
def test_a_trainer_serves_the_rounds_of_a_task(optimizer: str, weight: Any, trainers: list[Trainer]) -> None:
    X, y = table()
    residuals = [np.column_stack([y, -y]), np.column_stack([y**2, y]), np.column_stack([X[:, 2], y])]
    view = model().prepare(X)
    reused = [
        model(optimizer=optimizer, random_state=t).fit(view, residual, weight).predict(X)
        for t, residual in enumerate(residuals)
    ]
    assert len(trainers) == 1
    for t, residual in enumerate(residuals):
        fresh = model(optimizer=optimizer, random_state=t).fit(X, residual, weight)
        np.testing.assert_array_equal(reused[t], fresh.predict(X))
    assert len(trainers) == 4


@pytest.mark.parametrize(
    "other",
    [
        {"epochs": 2},
        {"local_loss": "l1"},
        {"network": "mlp"},
        {"learning_rate": 0.01},
        {"schedule": "constant"},
    ],
)
def test_other_recipes_have_trainers_of_their_own(other: dict[str, Any], trainers: list[Trainer]) -> None:
    X, y = table()
    view = model().prepare(X)
    model().fit(view, y)
    predicted = model(**other).fit(view, y).predict(X)
    assert len(trainers) == 2
    np.testing.assert_array_equal(predicted, model(**other).fit(X, y).predict(X))


class Width:
    """Makes a network; like functions that come and go in the same place of memory, all look alike."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __repr__(self) -> str:
        return "<network>"

    def __call__(self, inputs: Any, n_outputs: int) -> Any:
        return nn.Sequential(nn.Linear(3, self.width), nn.Tanh(), nn.Linear(self.width, n_outputs))


def test_user_networks_have_distinct_recipes() -> None:
    X, y = table()
    view = model().prepare(X)
    for width in (2, 5):
        predicted = model(Width(width)).fit(view, y).predict(X)
        np.testing.assert_array_equal(predicted, model(Width(width)).fit(X, y).predict(X))


# --- storing


def test_a_stored_network_says_the_same() -> None:
    for kind, (make, network, _) in EASY.items():
        X, y = make(20)
        fitted = model(SMALL[network], epochs=1).fit(X, y)
        before = fitted.predict(X)
        for again in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
            np.testing.assert_array_equal(again.predict(X), before, err_msg=kind)
            assert not again.module_.training
            np.testing.assert_array_equal(again.fit(X, y).predict(X), before, err_msg=kind)
        np.testing.assert_array_equal(fitted.predict(X), before)
