"""Gradient assistance weights: laws, and other solvers as oracles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from gal.core.local_losses import LOCAL_LOSSES, LocalLoss, PowerLoss
from gal.core.weights import (
    AssistanceWeights,
    ExactWeights,
    Fitted,
    SoftmaxAdamWeights,
    UniformWeights,
    assistance_weights,
    combine,
    inner_products,
    simplex_quadratic,
)
from gal.errors import InvalidOptionError

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

local_losses = pytest.mark.parametrize("loss", LOCAL_LOSSES)
seeds = given(seed=st.integers(0, 10_000))


def answers(
    seed: int, *, n: int = 60, n_outputs: int = 1, m: int | None = None
) -> tuple[Floats32, list[Floats32]]:
    """A residual and fitted values of mixed quality: better, worse, shrunk, alike."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 9)) if m is None else m
    residual = rng.standard_t(3, size=(n, n_outputs))
    common = rng.normal(size=residual.shape)
    fitted = [
        rng.uniform(0, 1.5) * residual
        + rng.uniform(0, 1) * common
        + rng.uniform(0, 1) * rng.normal(size=(n, 1))
        for _ in range(m)
    ]
    return residual.astype(np.float32), [values.astype(np.float32) for values in fitted]


def objective(
    loss: LocalLoss,
    residual: Floats32,
    fitted: Sequence[Floats32],
    weights: Floats,
    rows: Floats | None = None,
) -> float:
    error = residual.astype(float) - np.tensordot(weights, np.array(fitted, dtype=float), axes=1)
    per_row = loss.value(error).sum(axis=1)
    return float(np.average(per_row, weights=rows))


def slsqp(
    loss: LocalLoss, residual: Floats32, fitted: Sequence[Floats32], rows: Floats | None = None
) -> float:
    """The lowest value another solver finds, from several starts."""
    part = np.array(fitted, dtype=float)
    weight = np.ones(len(residual)) if rows is None else rows
    weight = weight / weight.sum()

    def slope(weights: Floats) -> Floats:
        error = residual.astype(float) - np.tensordot(weights, part, axes=1)
        return np.asarray(-np.tensordot(part, weight[:, None] * loss.gradient(error), axes=2))

    m = len(fitted)
    found = [
        minimize(
            lambda weights: objective(loss, residual, fitted, weights, rows),
            start,
            jac=slope,
            method="SLSQP",
            bounds=[(0, 1)] * m,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(m)},
            options={"ftol": 1e-14, "maxiter": 500},
        ).fun
        for start in (np.full(m, 1 / m), np.eye(m)[0])
    ]
    return float(min(found))


@pytest.mark.parametrize("method", ["exact", "uniform", "softmax_adam"])
@local_losses
@settings(max_examples=5)
@seeds
def test_weights_lie_on_the_simplex(method: str, loss: str, seed: int) -> None:
    residual, fitted = answers(seed)
    weights = assistance_weights(method, loss)(residual, fitted)
    assert weights.shape == (len(fitted),)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@settings(max_examples=10)
@seeds
def test_permuting_organizations_permutes_weights(seed: int) -> None:
    residual, fitted = answers(seed)
    order = np.random.default_rng(seed).permutation(len(fitted))
    find = ExactWeights()
    weights = find(residual, fitted)
    permuted = find(residual, [fitted[index] for index in order])
    np.testing.assert_allclose(permuted, weights[order], atol=1e-5)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@settings(max_examples=5)
@seeds
def test_weights_do_not_depend_on_the_unit(scale: float, seed: int) -> None:
    residual, fitted = answers(seed)
    find, factor = ExactWeights(), np.float32(scale)
    scaled = find(residual * factor, [values * factor for values in fitted])
    np.testing.assert_allclose(scaled, find(residual, fitted), atol=1e-5)


@settings(max_examples=10)
@seeds
def test_duplicates_share_evenly(seed: int) -> None:
    residual, fitted = answers(seed, m=3)
    weights = ExactWeights()(residual, [*fitted, fitted[0], fitted[1]])
    np.testing.assert_allclose(weights[:2], weights[3:], atol=1e-5)


def test_who_cannot_be_told_apart_counts_the_same() -> None:
    residual, fitted = answers(0, m=4)
    find = ExactWeights()
    np.testing.assert_array_equal(find(residual, [0 * values for values in fitted]), np.full(4, 0.25))
    np.testing.assert_array_equal(find(residual, fitted[:1]), [1.0])
    np.testing.assert_array_equal(UniformWeights()(residual, fitted), np.full(4, 0.25))


def test_a_huge_answer_does_not_spoil_the_choice_among_the_others() -> None:
    residual, (good, poor, noise) = answers(1, m=3)
    good, poor = 0.9 * residual, 0.1 * residual
    weights = ExactWeights()(residual, [good, poor, 1e6 * noise])
    np.testing.assert_allclose(weights, [1, 0, 0], atol=1e-5)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), n_outputs=st.sampled_from([1, 3]), weighted=st.booleans())
def test_least_squares_agrees_with_slsqp(seed: int, n_outputs: int, weighted: bool) -> None:
    residual, fitted = answers(seed, n_outputs=n_outputs)
    rows = np.random.default_rng(seed).uniform(0, 3, size=len(residual)) if weighted else None
    weights = ExactWeights()(residual, fitted, rows)
    reached, squares = objective(PowerLoss(2.0), residual, fitted, weights, rows), PowerLoss(2.0)
    assert reached <= slsqp(squares, residual, fitted, rows) * (1 + 1e-7)


def test_integer_row_weights_are_repetitions() -> None:
    residual, fitted = answers(5, m=4)
    times = np.random.default_rng(5).integers(0, 4, size=len(residual))
    repeated = [np.repeat(values, times, axis=0) for values in (residual, *fitted)]
    find = ExactWeights()
    np.testing.assert_allclose(
        find(residual, fitted, times.astype(float)), find(repeated[0], repeated[1:]), atol=1e-4
    )


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("power", [1.0, 2.0])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_softmax_adam_is_the_authors_optimiser(power: float, n_outputs: int) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra deep")
    residual, fitted = answers(3, n_outputs=n_outputs, m=4)
    target, values = torch.tensor(residual.astype(float)), torch.tensor(np.array(fitted, dtype=float))
    logits = torch.nn.Parameter(torch.full((4,), 0.25, dtype=torch.float64))
    adam = torch.optim.Adam([logits], lr=0.1, weight_decay=5e-4)
    distance = torch.nn.functional.mse_loss if power == 2 else torch.nn.functional.l1_loss
    for _ in range(100):
        adam.zero_grad()
        distance((logits.softmax(0)[:, None, None] * values).sum(0), target).backward()
        adam.step()
    expected = logits.softmax(0).detach().numpy()
    assert expected.max() - expected.min() > 0.2  # the optimiser has gone somewhere
    found = SoftmaxAdamWeights(PowerLoss(power))(residual, fitted)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_combine_and_gram_are_sums_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.core.passes.BLOCK_ENTRIES", 16)  # several blocks
    residual, fitted = answers(2, n_outputs=3, m=3)
    weights, rows = np.array([0.2, 0.0, 0.8]), np.random.default_rng(0).uniform(size=len(residual))
    double = [values.astype(float) for values in fitted]
    np.testing.assert_allclose(combine(weights, fitted), 0.2 * double[0] + 0.8 * double[2], rtol=1e-14)
    expected = [[np.sum(rows[:, None] * a * b) for a in double] for b in double]
    np.testing.assert_allclose(inner_products(fitted, rows), expected, rtol=1e-12)


def test_methods_by_name() -> None:
    own: AssistanceWeights = UniformWeights()
    assert assistance_weights("exact", "l4") == ExactWeights()
    assert assistance_weights("softmax_adam", "l1") == SoftmaxAdamWeights(PowerLoss(1.0))
    assert assistance_weights(own) is own
    with pytest.raises(InvalidOptionError, match="exact, uniform, softmax_adam, got 'best'"):
        assistance_weights("best")


# The pull towards equal weights


@pytest.mark.parametrize("shrinkage", [0.5, 10.0])
@pytest.mark.parametrize("weighted", [False, True])
@settings(max_examples=10)
@seeds
def test_the_pull_is_relative_to_what_an_organization_alone_explains(
    shrinkage: float, weighted: bool, seed: int
) -> None:
    """A regression on each organization alone says what it explains; the distance to
    equal weights costs that much.
    """
    residual, fitted = answers(seed, n_outputs=2)
    rows = np.random.default_rng(seed).uniform(0.1, 3, size=len(residual)) if weighted else None
    root = np.ones((len(residual), 1)) if rows is None else np.sqrt(rows)[:, None]
    target = (root * residual).reshape(-1)
    columns = np.array([(root * values).reshape(-1) for values in fitted])
    explained = []
    for column in columns:
        rest = target - column * (target @ column / (column @ column))
        explained.append(target @ target - rest @ rest)
    m = len(fitted)

    def cost(weights: Floats) -> float:
        error = target - weights @ columns
        return float(error @ error + shrinkage * np.mean(explained) * np.sum((weights - 1 / m) ** 2))

    found = minimize(
        cost,
        np.full(m, 1 / m),
        method="SLSQP",
        bounds=[(0, 1)] * m,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    weights = ExactWeights(shrinkage=shrinkage)(residual, fitted, rows)
    assert cost(weights) <= found.fun * (1 + 1e-8)


def test_the_pull_does_not_depend_on_the_unit_of_the_residual() -> None:
    residual, fitted = answers(7, m=4)
    small = [np.float32(1e-4) * one for one in (residual, *fitted)]
    pulled = ExactWeights(shrinkage=10.0)
    np.testing.assert_allclose(pulled(small[0], small[1:]), pulled(residual, fitted), rtol=1e-4)


def test_a_constant_zero_reply_explains_nothing() -> None:
    """It does not weaken the shrinkage of the others towards equal weights."""
    residual, (one, other) = answers(3, m=2)
    silent = np.zeros_like(one)
    weights = ExactWeights(shrinkage=1.0)(residual, [one, other, silent])
    assert np.isfinite(weights).all()
    assert weights[2] > 0  # the pull is towards equal weights, its own too
    equal = ExactWeights(shrinkage=1.0)(residual, [silent, silent])
    np.testing.assert_array_equal(equal, [0.5, 0.5])


# Sums that are taken once


def test_replies_whose_products_are_known_are_not_summed_again() -> None:
    residual, fitted = answers(12, m=3)
    rows = np.random.default_rng(1).uniform(0, 2, size=len(residual))
    once = Fitted(fitted, residual, rows)
    expected = ExactWeights()(residual, fitted, rows)
    np.testing.assert_array_equal(ExactWeights()(residual, once, None), expected)
    other = residual[::-1].copy()  # another residual: the sums are of no use
    np.testing.assert_array_equal(ExactWeights()(other, once, None), ExactWeights()(other, fitted))


@pytest.mark.parametrize("seed", range(4))
def test_duplicates_together_weigh_what_one_of_them_would(seed: int) -> None:
    residual, (one, other) = answers(seed, m=2)
    find = ExactWeights()
    alone, shared = find(residual, [one, other]), find(residual, [one, other, one, one])
    np.testing.assert_allclose(shared[0] + shared[2] + shared[3], alone[0], atol=1e-3)


@pytest.mark.parametrize("m", [5, 16, 40])
@pytest.mark.parametrize("most", [True, False])
def test_no_other_weights_on_the_simplex_are_better(m: int, most: bool) -> None:
    """Of few organizations and of many, whether most have a weight or few."""
    rng = np.random.default_rng(m)
    columns = rng.normal(size=(5 * m, m))
    hessian = columns.T @ columns
    linear = hessian @ (rng.random(m) / m if most else rng.normal(size=m))
    found = simplex_quadratic(hessian, linear)
    slope = hessian @ found - linear
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    assert slope @ found - slope.min() < 1e-8 * np.abs(slope).max()  # the gap to any vertex
    assert (np.count_nonzero(found) > m / 2) == most
