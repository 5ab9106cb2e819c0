"""The log loss that knows of randomized response: a loss like the others, right
on average, and calm far away.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.linear_model import Ridge

from gal.core.line_search import ExactSearch, Line
from gal.core.outcome import Stopping
from gal.core.state import Progress
from gal.errors import InvalidOptionError
from gal.learner.drivers import drive_learning
from gal.learner.labels import Labels
from gal.learner.options import Options
from gal.learner.organization import Organization
from gal.learner.task_making import make_task
from gal.privacy.mechanisms.corrected_loss import DOUBT, CorrectedLogLoss

Floats = NDArray[np.float64]

LOSSES = [
    CorrectedLogLoss(n_classes, keep, one_output)
    for n_classes, one_output in ((2, True), (2, False), (4, True))
    for keep in (0.55, 0.9, 1.0)
]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)
STEP = 1e-6
OPTIONS = Options(fitted="in-sample", validation_fraction=0, cross_validation=0, stacking=False)


def problem(loss: CorrectedLogLoss, n: int, seed: int, spread: float = 2.0) -> tuple[Floats, Floats, Floats]:
    """Noisy codes (n, 1), outputs and a direction (n, K)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, loss.n_classes, (n, 1)).astype(np.float64)
    output, direction = rng.normal(scale=spread, size=(2, n, loss.n_outputs))
    return y, output, direction


def randomised(codes: NDArray[np.intp], loss: CorrectedLogLoss, rng: np.random.Generator) -> Floats:
    """These codes after randomized response, (n, 1)."""
    others = (codes + rng.integers(1, loss.n_classes, len(codes))) % loss.n_classes
    return np.where(rng.random(len(codes)) < loss.keep, codes, others)[:, None].astype(np.float64)


@every_loss
@pytest.mark.parametrize("seed", range(5))
def test_residual_and_slope_are_derivatives_of_the_value(loss: CorrectedLogLoss, seed: int) -> None:
    y, output, direction = problem(loss, 30, seed)
    residual = loss.pseudo_residual(y, output)
    assert residual.shape == output.shape
    for k in range(loss.n_outputs):
        move = STEP * np.eye(loss.n_outputs)[k]
        slope = (loss.value(y, output + move) - loss.value(y, output - move)) / (2 * STEP)
        np.testing.assert_allclose(residual[:, k], -slope, rtol=1e-5, atol=1e-7)
    first, second = loss.along(y, output, direction)
    ahead, behind = output + STEP * direction, output - STEP * direction
    slope = (loss.value(y, ahead) - loss.value(y, behind)) / (2 * STEP)
    np.testing.assert_allclose(first, slope, rtol=1e-5, atol=1e-6)
    assert second is None  # it can be negative, which would mislead a line search


@every_loss
@pytest.mark.parametrize("doubt", [0.0, DOUBT])
def test_the_best_constant_is_the_debiased_share(
    loss: CorrectedLogLoss, doubt: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gal.privacy.mechanisms.corrected_loss.DOUBT", doubt)
    rng = np.random.default_rng(3)
    true = np.r_[0.5, 0.3, 0.15, 0.05][: loss.n_classes]
    codes = rng.choice(loss.n_classes, 200_000, p=true / true.sum())
    y = randomised(codes, loss, rng)
    seen = np.bincount(y[:, 0].astype(int)) / len(y)
    share = (seen - loss.accident) / loss.signal
    np.testing.assert_allclose(loss.inverse_link(loss.initial(y)[None, :])[0], share, rtol=1e-9)
    np.testing.assert_allclose(share, true / true.sum(), atol=0.02)

    classes = np.arange(loss.n_classes, dtype=np.float64)[:, None]

    def mean(constant: Floats) -> float:
        return float(loss.value(classes, np.tile(constant, (loss.n_classes, 1))) @ seen)

    found = minimize(mean, np.zeros(loss.n_outputs))
    np.testing.assert_allclose(
        loss.inverse_link(found.x[None, :])[0], share, atol=1e-3 if doubt == 0 else 0.05
    )


@every_loss
@pytest.mark.parametrize("size", [1e2, 1e4, 1e300])
def test_far_outputs_neither_overflow_nor_warn(loss: CorrectedLogLoss, size: float) -> None:
    y, output, _ = problem(loss, 50, 2, spread=size)
    assert np.isfinite(loss.value(y, output)).all()
    assert np.isfinite(loss.pseudo_residual(y, output)).all()
    assert np.abs(loss.pseudo_residual(y, output)).max() <= 1


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    which=st.integers(0, len(LOSSES) - 1),
    spread=st.sampled_from([0.0, 0.1, 1.0, 10.0, 100.0]),
    uphill=st.booleans(),
)
def test_the_line_search_never_raises_the_loss(seed: int, which: int, spread: float, uphill: bool) -> None:
    loss = LOSSES[which]
    y, output, noise = problem(loss, 40, seed, spread=1.0)
    output = spread * output
    direction = loss.pseudo_residual(y, output) + 0.3 * noise
    line = Line(loss, y, output, -direction if uphill else direction)
    rate = ExactSearch()(line)
    assert np.isfinite(rate)
    assert line.value(rate) <= line.value(0.0)


def learned(loss: CorrectedLogLoss, y: Floats, X: Floats) -> Progress:
    """Ten rounds of two organizations on these noisy labels."""
    labels = Labels(y, loss, np.arange(loss.n_classes))
    half = X.shape[1] // 2
    members = {"a": Organization("a", X[:, :half], Ridge()), "b": Organization("b", X[:, half:], Ridge())}
    task = make_task(labels, list(members), OPTIONS, label_holder="a")
    reached: list[Progress] = []
    drive_learning(replace(task, stopping=Stopping(None, None, None)), members, on_round=reached.append)
    return reached[-1]


def test_it_finds_what_is_true_beneath_the_noise() -> None:
    loss = CorrectedLogLoss(2, 0.7)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4))
    slope = np.array([1.0, -1.0, 0.5, 0.5])
    codes = (rng.random(4000) < 1 / (1 + np.exp(-X @ slope))).astype(np.intp)
    output = learned(loss, randomised(codes, loss, rng), X).output[:, 0]
    found = np.linalg.lstsq(X, output, rcond=None)[0]
    np.testing.assert_allclose(found, slope, atol=0.25)
    blind = learned(CorrectedLogLoss(2, 1.0), randomised(codes, loss, rng), X).output[:, 0]
    assert np.linalg.norm(np.linalg.lstsq(X, blind, rcond=None)[0]) < 0.6 * np.linalg.norm(slope)


@pytest.mark.parametrize(
    ("n_classes", "keep"), [(1, 1.0), (2, 0.5), (2, 0.4), (2, 1.1), (5, 0.2), (3, float("nan")), (3, -0.5)]
)
def test_noise_that_leaves_nothing_is_refused(n_classes: int, keep: float) -> None:
    with pytest.raises(InvalidOptionError, match=r"keep|n_classes"):
        CorrectedLogLoss(n_classes, keep)


@every_loss
def test_the_value_is_minus_the_log_of_the_mixture(loss: CorrectedLogLoss) -> None:
    """Of what the model says of the true class and what the mechanism writes; a
    hundredth of the noise is doubt.
    """
    y, output, _ = problem(loss, 40, 3)
    logits = np.hstack([np.zeros_like(output), output]) if loss.n_outputs == 1 else output
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    own = p[np.arange(40), y[:, 0].astype(int)]
    mixture = loss.keep * own + (1 - loss.keep) / (loss.n_classes - 1) * (1 - own)
    doubt = 0.01 * (1 - loss.keep)
    expected = -(1 - doubt) * np.log(mixture) - doubt * np.log(p).mean(axis=1)
    np.testing.assert_allclose(loss.value(y, output), expected, rtol=1e-10)
