"""Refitting all coefficients: better on the search rows, checked on others, never negative."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import nnls

from core_problems import LOSSES, Floats, labels
from gal.core.corrective import Coefficients, refit
from gal.core.line_search import mean_loss
from gal.core.losses import Loss, SquaredError

Fitted = list[dict[str, NDArray[np.float32]]]
START: Coefficients = ({"a": 0.02, "b": 0.02}, {"a": 0.02})


def rounds_of(loss: Loss, seed: int = 0, n: int = 120) -> tuple[Floats, Floats, Fitted]:
    """Two rounds: ``a`` and ``b`` point to the labels, ``b`` missed the second."""
    rng = np.random.default_rng(seed)
    y = labels(loss, n, rng)
    initial = loss.initial(y)[None, :]
    residual = loss.pseudo_residual(y, np.tile(initial, (n, 1)))

    def answer() -> NDArray[np.float32]:
        return (residual + rng.normal(size=residual.shape)).astype(np.float32)

    return y, initial, [{"a": answer(), "b": answer()}, {"a": answer()}]


def output_of(initial: Floats, fitted: Fitted, coefficients: Coefficients) -> Floats:
    moves = [
        counts[name] * replies[name].astype(float)
        for replies, counts in zip(fitted, coefficients, strict=True)
        for name in counts
    ]
    return np.asarray(initial + np.sum(moves, axis=0))


@pytest.mark.parametrize("name", LOSSES)
def test_a_refit_lowers_the_loss_and_stays_positive(name: str) -> None:
    loss = LOSSES[name]
    y, initial, fitted = rounds_of(loss)
    found = refit(loss, y, initial, fitted, START, search=np.arange(120), validation=np.arange(0))
    assert found is not None
    assert all(value > 0 for counts in found for value in counts.values())
    before, after = (mean_loss(loss, y, output_of(initial, fitted, each)) for each in (START, found))
    assert after < before - 1e-3


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("weighted", [False, True])
def test_squared_error_agrees_with_nonnegative_least_squares(unit: float, weighted: bool) -> None:
    y, initial, fitted = rounds_of(SquaredError())
    fitted[1]["c"] = (fitted[0]["b"][::-1] - y).astype(np.float32)  # wants a negative coefficient, gets none
    start = tuple({name: unit * count for name, count in counts.items()} for counts in START)
    weight = np.random.default_rng(1).uniform(size=120) if weighted else np.ones(120)
    search, validation = np.arange(90), np.arange(90, 120)
    found = refit(
        SquaredError(),
        unit * y,
        unit * initial,
        fitted,
        start,
        search=search,
        validation=validation,
        sample_weight=weight if weighted else None,
    )
    assert found is not None
    keys = [(t, name) for t, replies in enumerate(fitted) for name in replies]
    columns = np.array([fitted[t][name][search, 0] for t, name in keys], dtype=float).T
    root = np.sqrt(weight[search])
    expected, _ = nnls(root[:, None] * columns, root * (y - initial)[search, 0])
    got = [found[t].get(name, 0.0) / unit for t, name in keys]
    np.testing.assert_allclose(got, expected, atol=2e-5)
    assert "c" not in found[1]


def test_a_refit_that_validates_worse_is_refused() -> None:
    y, initial, fitted = rounds_of(SquaredError())
    search, validation = np.arange(60), np.arange(60, 120)
    y[validation] = initial - (output_of(initial, fitted, START) - initial)[validation]  # the other way
    assert refit(SquaredError(), y, initial, fitted, START, search=search, validation=validation) is None


def test_without_validation_rows_noise_is_not_refitted() -> None:
    """Cross-validation over the search rows sees that more of pure noise does not help."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(40, 1))
    noise: Fitted = [{"a": rng.normal(size=(40, 1)).astype(np.float32)} for _ in range(15)]
    none: Coefficients = ({},) * 15
    initial = y.mean(axis=0, keepdims=True)
    assert (
        refit(SquaredError(), y, initial, noise, none, search=np.arange(40), validation=np.arange(0)) is None
    )


def test_too_few_rows_to_cross_validate() -> None:
    y, initial, fitted = rounds_of(SquaredError(), n=9)
    assert (
        refit(SquaredError(), y, initial, fitted, START, search=np.arange(9), validation=np.arange(0)) is None
    )


def test_rows_of_no_weight_cannot_make_a_part_empty() -> None:
    y, initial, fitted = rounds_of(SquaredError(), n=600)
    weight = (np.arange(600) % 5 == 0).astype(float)  # the same rhythm as the cross-validation
    found = refit(
        SquaredError(),
        y,
        initial,
        fitted,
        START,
        search=np.arange(600),
        validation=np.arange(0),
        sample_weight=weight,
    )
    assert found is not None


def test_an_initial_output_by_row() -> None:
    y, _, fitted = rounds_of(SquaredError())
    initial = np.random.default_rng(5).normal(size=y.shape)
    everything = np.arange(120)
    found = refit(
        SquaredError(), y, initial, fitted, START, search=everything[::2], validation=everything[1::2]
    )
    assert found is not None
    rows = everything[1::2]
    before, after = (
        mean_loss(SquaredError(), y[rows], output_of(initial, fitted, each)[rows]) for each in (START, found)
    )
    assert after < before
