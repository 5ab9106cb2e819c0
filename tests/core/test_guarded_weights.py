"""Answers that cannot be meant to help count nothing; what is honest is weighed as before, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gal.core.weights import PROVEN, SHRINKAGE, ExactWeights, Floats32, GuardedWeights, UniformWeights
from gal.learner.labels import read_labels
from gal.learner.options import Options
from gal.learner.task_making import make_task

SHRUNK = ExactWeights(shrinkage=SHRINKAGE)
GUARDED = GuardedWeights(SHRUNK)


def problem(seed: int = 0, n: int = 200) -> tuple[Floats32, list[Floats32]]:
    """A residual, and three honest answers that each explain some of it."""
    rng = np.random.default_rng(seed)
    parts = rng.normal(size=(3, n, 1))
    residual = parts.sum(axis=0) + 0.5 * rng.normal(size=(n, 1))
    return residual.astype(np.float32), [part.astype(np.float32) for part in parts]


@given(st.integers(0, 1000), st.integers(20, 300))
@settings(max_examples=30)
def test_honest_answers_are_weighed_as_before(seed: int, n: int) -> None:
    residual, fitted = problem(seed, n)
    assume(all(float((one * residual).sum()) > 0 for one in fitted))  # among few rows one may fall against it
    np.testing.assert_array_equal(GUARDED(residual, fitted), SHRUNK(residual, fitted))


def test_the_opposite_counts_nothing_and_the_rest_as_without_it() -> None:
    residual, fitted = problem()
    weights = GUARDED(residual, [*fitted, -fitted[0]])
    assert weights[3] == 0
    np.testing.assert_array_equal(weights[:3], SHRUNK(residual, fitted))
    assert SHRUNK(residual, [*fitted, -fitted[0]])[3] > 0  # it would count without the guard


def test_answers_that_only_cancel_each_other_count_nothing() -> None:
    residual, fitted = problem()
    hidden = np.random.default_rng(5).normal(size=residual.shape).astype(np.float32) * 100
    weights = GUARDED(residual, [*fitted, residual + hidden, residual - hidden])
    assert weights[3:].tolist() == [0, 0]
    np.testing.assert_array_equal(weights[:3], SHRUNK(residual, fitted))
    assert SHRUNK(residual, [*fitted, residual + hidden, residual - hidden])[3:].min() > 0.1


def test_noise_counts_nothing_where_it_has_to_be_proven() -> None:
    residual, fitted = problem()
    proven, counted = GuardedWeights(SHRUNK, PROVEN), 0
    for seed in range(40):
        noise = np.random.default_rng(seed).normal(size=residual.shape).astype(np.float32)
        weights = proven(residual, [*fitted, noise])
        counted += weights[3] > 0
        assert (weights[:3] > 0).all()
    assert counted <= 5  # 2.5 % of them go along by chance


def test_a_constant_zero_reply_gets_no_weight_where_no_organization_helps() -> None:
    """Its training loss is the lowest, and its predictions could be arbitrary."""
    residual, fitted = problem()
    against = [-one for one in fitted]
    for silent in (np.zeros_like(residual), residual * np.float32(-1e-3)):
        for guarded in (GUARDED, GuardedWeights(SHRUNK, PROVEN)):
            weights = guarded(residual, [*against, silent])
            assert weights[3] == 0
            assert weights.sum() == 1
        assert SHRUNK(residual, [*against, silent])[3] > 0.3  # without the guard it would count


def test_one_organization_always_has_weight() -> None:
    residual, fitted = problem()
    against = [-one for one in fitted]
    np.testing.assert_array_equal(GUARDED(residual, against), SHRUNK(residual, against))
    nothing = [np.zeros_like(residual)] * 2
    assert GuardedWeights(UniformWeights(), PROVEN)(residual, nothing).sum() == 1
    noise = np.random.default_rng(3).normal(size=residual.shape).astype(np.float32)
    weak = [noise * np.sign(float((noise * residual).sum())), -fitted[0]]
    assert GuardedWeights(SHRUNK, 1e9)(residual, weak).tolist() == [1, 0]


def test_row_weights_count() -> None:
    residual, fitted = problem()
    weight = np.where(np.arange(len(residual)) < 100, 1.0, 0.0)
    reversed_ = np.where(np.arange(len(residual))[:, None] < 100, -residual, 5 * residual).astype(np.float32)
    assert GUARDED(residual, [*fitted, reversed_], weight)[3] == 0
    assert GUARDED(residual, [*fitted, reversed_])[3] > 0


def test_default_weights_are_guarded() -> None:
    """The default weights are guarded; weights that the caller names, and the paper's preset, are not."""
    y = np.arange(3000.0)

    def finder(**options: object) -> object:
        chosen = Options(**options)  # type: ignore[arg-type]
        return make_task(read_labels(y, "regression", chosen), ["a", "b"], chosen, label_holder="a").weights

    assert finder() == GuardedWeights(SHRUNK, PROVEN)
    assert finder(fitted="in-sample") == GuardedWeights(SHRUNK)
    assert finder(weights="shrunk") == SHRUNK
    assert not isinstance(finder(preset="paper"), GuardedWeights)
