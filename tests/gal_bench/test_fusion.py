"""Fused networks: what parties could learn who shared everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

import torch

from gal.models.deep import Inputs, cnn_body, lstm_body, mlp_body
from gal.models.deep.training import Training
from gal.models.sequences import Sequences
from gal_bench.baselines.fusion import FusedNetworks

Floats = NDArray[np.float64]
FUSIONS: tuple[Any, ...] = ("features", "outputs")


def small(inputs: Inputs) -> Any:
    """Bodies with other numbers of features for every kind of view."""
    if inputs.kind == "images":
        return cnn_body(inputs, widths=(4, 8))
    if inputs.kind in {"sequences", "codes"}:
        return lstm_body(inputs, hidden=6, embedding=3)
    return mlp_body(inputs, hidden=10)


def model(fuse: Any = "features", *, classes: bool = True, seed: int = 0, **options: Any) -> FusedNetworks:
    how: dict[str, Any] = {"epochs": 20, "batch_size": 20, "learning_rate": 0.1, **options}
    return FusedNetworks(
        fuse, classes=classes, network=small, training=Training(**how), device="cpu", random_state=seed
    )


def halves(n: int = 160) -> tuple[dict[str, Any], Floats]:
    """Two tables, and a number to which each of them says half."""
    rng = np.random.default_rng(0)
    views = {"bank": rng.normal(size=(n, 2)), "shop": rng.normal(size=(n, 3))}
    return views, 10 + 3 * (views["bank"][:, 0] + views["shop"][:, 2])


def wards(n: int = 120) -> tuple[dict[str, Any], Floats]:
    """Sequences, codes, images and a table."""
    rng = np.random.default_rng(0)
    steps = Sequences(rng.normal(size=(n, 3, 2)), rng.integers(1, 4, size=n))
    codes = Sequences(rng.integers(0, 4, size=(n, 2)), np.full(n, 2))
    images = rng.normal(size=(n, 1, 4, 4))
    columns = rng.normal(size=(n, 3))
    y = (
        np.tanh(steps.values[:, 0, 0])
        + 0.5 * codes.values[:, 1]
        + 2 * images.mean(axis=(1, 2, 3))
        + columns[:, 0]
    )
    return {"ward": steps, "coder": codes, "camera": images, "desk": columns}, y


def rows_of(views: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    return {name: view[rows] for name, view in views.items()}


# --- both kinds learn what needs all views


@pytest.mark.parametrize("fuse", FUSIONS)
def test_classes_that_need_both_views(fuse: Any) -> None:
    views, y = halves()
    labels = np.digitize(y, [8.0, 12.0])
    train, test = np.arange(120), np.arange(120, 160)
    fused = model(fuse).fit(rows_of(views, train), labels[train])
    said = fused.predict(rows_of(views, test))
    assert said.shape == (40, 3)
    np.testing.assert_allclose(said.sum(axis=1), 1.0, rtol=1e-6)
    assert (said >= 0).all()
    right = np.mean(said.argmax(axis=1) == labels[test])
    assert right > 0.8
    for name in views:
        alone = model(fuse).fit({name: views[name][train]}, labels[train])
        assert np.mean(alone.predict({name: views[name][test]}).argmax(axis=1) == labels[test]) < right - 0.1


@pytest.mark.parametrize("fuse", FUSIONS)
@pytest.mark.parametrize("classes", [True, False])
def test_views_of_different_kinds(fuse: Any, classes: bool) -> None:
    views, y = wards()
    labels = (y > np.median(y)).astype(int) if classes else y
    fused = model(fuse, classes=classes, optimizer="adam", learning_rate=0.02).fit(views, labels)
    said = fused.predict(views)
    if classes:
        assert np.mean(said.argmax(axis=1) == labels) > 0.8
    else:
        assert np.mean((said - y) ** 2) < 0.4 * np.var(y)
    np.testing.assert_allclose(fused.predict(rows_of(views, np.arange(7))), said[:7], rtol=1e-4, atol=1e-5)


def test_intermediate_fusion_is_a_mean_of_features_and_one_shared_layer() -> None:
    views, y = wards(40)
    fused = model("features", epochs=1).fit(views, (y > 1).astype(int))
    module = fused.module_
    assert tuple(module.head.weight.shape) == (2, 10)
    with torch.no_grad():
        inputs = [
            torch.as_tensor(views["ward"].values, dtype=torch.float32),
            torch.as_tensor(views["ward"].lengths),
            torch.as_tensor(views["coder"].values),
            torch.as_tensor(views["coder"].lengths),
            torch.as_tensor(views["camera"], dtype=torch.float32),
            torch.as_tensor(views["desk"], dtype=torch.float32),
        ]
        places = [(0, 2), (2, 4), (4, 5), (5, 6)]
        features = [body(*inputs[a:b]) for body, (a, b) in zip(module.bodies, places, strict=True)]
        expected = module.head(sum(features) / 4).softmax(dim=1)
    assert {tuple(one.shape) for one in features} == {(40, 10)}
    np.testing.assert_allclose(fused.predict(views), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_late_fusion_is_a_mean_of_outputs() -> None:
    views, y = halves(40)
    fused = model("outputs", classes=False, epochs=1).fit(views, y)
    assert fused.module_.head is None
    with torch.no_grad():
        outputs = [
            body(torch.as_tensor(view, dtype=torch.float32))[:, 0].numpy()
            for body, view in zip(fused.module_.bodies, views.values(), strict=True)
        ]
    expected = np.mean(outputs, axis=0) * y.std() + y.mean()
    np.testing.assert_allclose(fused.predict(views), expected, rtol=1e-4)


# --- seeds, order, failures


def test_absolute_error_goes_to_the_median() -> None:
    views = {"a": np.zeros((90, 1)), "b": np.zeros((90, 1))}
    y = np.repeat([0.0, 0.0, 9.0], 30)
    training = Training(epochs=60, batch_size=90, learning_rate=0.05, optimizer="adam")
    fused = FusedNetworks("outputs", classes=False, loss="absolute_error", training=training, device="cpu")
    assert fused.fit(views, y).predict(views).mean() < 0.5
