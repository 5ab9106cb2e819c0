"""Disturbed local models: what noise they add, where, and what GAL's weights make of them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.svm import SVR

from gal import GALClassifier, GALRegressor
from gal.assembling import grouped
from gal.models import as_local_model, check_local_model
from gal.privacy import PaperInterval, PaperLaplace
from gal_bench.runs.disturbances import DisturbedModel, half

Floats = NDArray[Any]


def disturbed(model: Any, kind: Any, sigma: float = 1.0, random_state: int = 0) -> DisturbedModel:
    return DisturbedModel(model, kind, sigma, mechanism=PaperInterval(), random_state=random_state)


def signal(n: int = 200, n_outputs: int = 3) -> tuple[Floats, Floats]:
    """Columns (n, 4) and a residual (n, K) that they all but determine."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    residual = X @ rng.normal(size=(4, n_outputs)) + 0.01 * rng.normal(size=(n, n_outputs))
    return X, residual.astype(np.float32)


def correlation(a: Floats, b: Floats) -> float:
    return float(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1])


class Recording:
    """A model that keeps what it was fitted to; all copies of a list are that list."""

    class Log(list[Any]):
        def __deepcopy__(self, memo: dict[int, Any]) -> Recording.Log:
            return self

    def __init__(self) -> None:
        self.seen = Recording.Log()

    def fit(self, X: Any, y: Any) -> None:
        self.seen.append((X, np.array(y)))

    def predict(self, X: Any) -> Floats:
        return np.asarray(X)[:, 0]


@pytest.mark.parametrize("kind", ["residual", "mechanism", "nothing"])
def test_what_happens_before_the_fit_keeps_the_contract(kind: Any) -> None:
    check_local_model(DisturbedModel(Ridge(), kind, mechanism=PaperLaplace()))


# --- what noise


@pytest.mark.parametrize("sigma", [0.0, 0.5, 5.0])
def test_answers_have_noise_of_this_size_drawn_anew_in_every_call(sigma: float) -> None:
    X, residual = signal(n=4000)
    clean = Ridge().fit(X, residual).predict(X)
    model = disturbed(Ridge(), "answers", sigma).fit(X, residual)
    first, second = (model.predict(X) - clean for _ in range(2))
    assert np.mean(first) == pytest.approx(0.0, abs=5 * sigma / np.sqrt(12_000))
    assert np.std(first) == pytest.approx(sigma, rel=0.04)
    if sigma:
        assert abs(correlation(first, second)) < 0.05
        again = disturbed(Ridge(), "answers", sigma).fit(X, residual)
        np.testing.assert_array_equal(again.predict(X) - clean, first)


def test_the_model_inside_is_fitted_to_a_noisy_residual() -> None:
    X, residual = signal(n=4000, n_outputs=1)
    inside = Recording()
    for seed in (0, 1):
        disturbed(inside, "residual", 5.0, seed).fit(X, residual)
    noise = [received - residual[:, 0] for _, received in inside.seen]
    assert inside.seen[0][0] is X
    assert np.std(noise[0]) == pytest.approx(5.0, rel=0.06)
    assert abs(correlation(*noise)) < 0.08
    fitted = disturbed(Ridge(), "residual").fit(X, residual)
    np.testing.assert_array_equal(fitted.predict(X), fitted.predict(X))


@pytest.mark.parametrize("frame", [False, True])
def test_columns_are_standard_normal_and_keep_their_names(frame: bool) -> None:
    X, residual = signal(n=4000, n_outputs=1)
    index = np.arange(4000)[::-1]
    given: Any = pd.DataFrame(100 * X + 7, columns=list("abcd"), index=index) if frame else X
    inside = Recording()
    disturbed(inside, "columns").fit(given, residual)
    [(columns, received)] = inside.seen
    assert isinstance(columns, type(given))
    if frame:
        assert list(columns) == list("abcd")
        pd.testing.assert_index_equal(columns.index, given.index)
    np.testing.assert_array_equal(received, residual[:, 0])
    np.testing.assert_allclose(np.mean(columns, axis=0), 0, atol=0.08)
    np.testing.assert_allclose(np.std(columns, axis=0), 1, atol=0.06)
    assert abs(correlation(np.asarray(columns), np.asarray(given))) < 0.05


def received(residual: Floats, seed: int = 0) -> Floats:
    """What two organizations get that a mechanism with this seed protects."""
    inside = Recording()
    for random_state in (1, 2):
        model = DisturbedModel(
            inside, "mechanism", mechanism=PaperLaplace(), seed=seed, random_state=random_state
        )
        model.fit(np.zeros((len(residual), 1)), residual)
    one, other = np.split(np.column_stack([y for _, y in inside.seen]), 2, axis=1)
    np.testing.assert_array_equal(one, other)
    return np.asarray(one)


def test_all_organizations_see_the_same_noise_of_a_mechanism() -> None:
    _, residual = signal(n=2000)
    noise = [received(residual, seed) - residual for seed in (0, 1)]
    assert np.std(noise[0]) > 1
    assert abs(correlation(*noise)) < 0.5  # what is clipped is the same in both


@pytest.mark.parametrize("model", [Ridge(), SVR()])
def test_a_measured_model_says_the_same(model: Any) -> None:
    X, residual = signal()
    metered = DisturbedModel(model).fit(X, residual)
    plain: Any = as_local_model(model, 3)
    plain.fit(X, residual)
    np.testing.assert_array_equal(metered.predict(X), plain.predict(X))
    assert metered.fit_seconds_ > 0
    if isinstance(model, Ridge):
        assert metered.stored_bytes_ == len(pickle.dumps(Ridge().fit(X, residual)))


# --- in the engine

ORGANIZATIONS = {f"organization {index}": [f"x{4 * index + one}" for one in range(4)] for index in range(4)}


@pytest.mark.parametrize("classes", [False, True], ids=["numbers", "classes"])
@pytest.mark.parametrize("options", [{}, {"preset": "paper"}], ids=["default", "paper"])
@pytest.mark.parametrize(("kind", "sigma"), [("answers", 5.0), ("residual", 10.0), ("columns", 1.0)])
def test_weights_are_less_for_the_disturbed(
    classes: bool, options: dict[str, Any], kind: str, sigma: float
) -> None:
    """In round 1, over five draws of the noise: by luck a noisy fit may come out well once."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(150, 16)), columns=[f"x{index}" for index in range(16)])
    score = X.to_numpy() @ rng.choice([-1.0, 1.0], size=16) + 0.3 * rng.normal(size=150)
    y = np.digitize(score, [-1.5, 1.5]) if classes else score
    noisy = half(ORGANIZATIONS)
    models = {
        name: DisturbedModel(Ridge(), kind, sigma) if name in noisy else Ridge()  # type: ignore[arg-type]
        for name in ORGANIZATIONS
    }
    draws = []
    for seed in range(5):
        make = GALClassifier if classes else GALRegressor
        model = make(ORGANIZATIONS, local_models=models, rounds=1, random_state=seed, **grouped(options))
        model.fit(X, y)
        draws.append(model.rounds_[0].weights)
    draws = [
        weights for weights in draws if len(weights) > 1
    ]  # where the noise harms, no organization is used
    assert len(draws) >= 4
    on_noisy, on_good = (
        np.mean([weights[name] for weights in draws for name in ORGANIZATIONS if (name in noisy) == asked])
        for asked in (True, False)
    )
    assert on_noisy < 0.7 * on_good
