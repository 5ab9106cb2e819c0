"""What mechanisms say of their own noise, against densities of SciPy or of a
brute-force count, message by message.

Only differences between labels tell anything, so only these are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import laplace, norm

from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss, SquaredError
from gal.privacy import (
    GaussianLabels,
    LaplaceLabels,
    PaperInterval,
    PaperLaplace,
    RandomisedResponse,
)
from gal.privacy.leakage.transcript import SentRows
from gal.privacy.mechanisms.likelihood import Insight, log_likelihood_as_sent

Floats = NDArray[np.float64]
Density = Callable[[float, float, int], float]
"""Of one number that was sent, given the true one, in a round."""

N, ROUNDS = 5, 3
LOSSES: list[Loss] = [BinaryLogLoss(), MultinomialLogLoss(3), SquaredError(2)]
losses = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
THRESHOLDS = (np.arange(400_000) + 0.5) / 400_000


def some_labels(loss: Loss) -> list[Floats]:
    if isinstance(loss, SquaredError):
        return [np.array(one) for one in ([0.2, -1.0], [1.5, 0.3], [-2.0, 0.9])]
    return [np.array([float(code)]) for code in range(max(2, loss.n_outputs))]


def insight_of(loss: Loss, *, noise: float = 0.4) -> Insight:
    """Messages of the task itself and of one part of a cross-validation, which lacks some rows."""
    rng = np.random.default_rng(5)
    labels = some_labels(loss)
    y = np.array([labels[row % len(labels)] for row in range(N)])
    before = rng.normal(size=(N, ROUNDS, loss.n_outputs))
    scales = np.array([0.5, 2.0, 1.3])
    raw = np.stack([loss.pseudo_residual(y, before[:, t]) / scales[t] for t in range(ROUNDS)], axis=1)
    sent = np.stack([raw, raw], axis=2) + noise * rng.normal(size=(N, ROUNDS, 2, loss.n_outputs))
    sent[::2, :, 1] = np.nan
    return Insight(SentRows(np.arange(N), sent, {}, before, scales), loss, y)


def true_numbers(insight: Insight, row: int, t: int, label: Floats) -> Floats:
    """The residual (K,) of one row in one round."""
    before: Any = insight.sent.before
    return np.asarray(insight.loss.pseudo_residual(label[None, :], before[[row], t])[0])


def by_hand(insight: Insight, density: Density, *, scaled: bool) -> Floats:
    """log p(messages | label), (n, G, E), added up one number at a time."""
    scales: Any = insight.sent.scales
    labels, k = some_labels(insight.loss), insight.loss.n_outputs
    total = np.zeros((N, len(labels), k))
    for row, t, part, output in np.ndindex(N, ROUNDS, 2, k):
        sent = insight.sent.residual[row, t, part, output]
        if np.isnan(sent):
            continue
        for place, label in enumerate(labels):
            true = true_numbers(insight, row, t, label)[output]
            pair = (sent, true / scales[t]) if scaled else (sent * scales[t], true)
            total[row, place, output] += density(float(pair[0]), float(pair[1]), t)
    return total if isinstance(insight.loss, SquaredError) else total.sum(axis=2, keepdims=True)


def compare(found: Floats, expected: Floats, tolerance: float = 1e-9) -> None:
    """Up to what is the same for all labels."""
    assert found.shape == expected.shape
    assert np.ptp(expected, axis=1).min() > 1e-3  # labels differ
    np.testing.assert_allclose(
        found - found[:, :1], expected - expected[:, :1], rtol=tolerance, atol=tolerance
    )


def quantiles(insight: Insight) -> list[tuple[float, float]]:
    """Where the paper's mechanisms clip in each round: the true residuals' own quantiles."""
    scales: Any = insight.sent.scales
    found = []
    for t in range(ROUNDS):
        true = [true_numbers(insight, row, t, insight.y[row]) / scales[t] for row in range(N)]
        low, high = np.quantile(np.concatenate(true), [0.025, 0.975])
        found.append((float(low), float(high)))
    return found


@losses
def test_the_papers_laplace(loss: Loss) -> None:
    insight = insight_of(loss)
    bounds = quantiles(insight)

    def density(sent: float, true: float, t: int) -> float:
        low, high = bounds[t]
        return float(laplace.logpdf(sent, min(max(true, low), high), (high - low) / 0.7))

    found = PaperLaplace(alpha=0.7).log_likelihood(insight, some_labels(loss))
    compare(found, by_hand(insight, density, scaled=True))


def sends(true: float) -> Floats:
    """What every threshold in [0, 1] makes of a number in [0, 1]."""
    return 2 * THRESHOLDS - np.where(true < THRESHOLDS, 1.0, 0.0)


@losses
def test_the_papers_interval(loss: Loss) -> None:
    """How many of all thresholds send nearly this; none: impossible, but not without end."""
    insight = insight_of(loss)
    bounds = quantiles(insight)

    def density(sent: float, true: float, t: int) -> float:
        low, high = bounds[t]
        place, expected = (sent - low) / (high - low), min(max((true - low) / (high - low), 0.0), 1.0)
        close = np.mean(np.abs(sends(expected) - place) < 1e-3) / 2e-3
        return math.log(close) if close > 0.1 else -60.0

    found = PaperInterval().log_likelihood(insight, some_labels(loss))
    compare(found, by_hand(insight, density, scaled=True), tolerance=0.03)


@losses
def test_the_mean_of_several_intervals_is_taken_for_normal(loss: Loss) -> None:
    insight = insight_of(loss)
    bounds = quantiles(insight)

    def density(sent: float, true: float, t: int) -> float:
        low, high = bounds[t]
        expected = min(max((true - low) / (high - low), 0.0), 1.0)
        deviation = math.sqrt(float(np.var(sends(expected))) / 2)
        return float(norm.logpdf((sent - low) / (high - low), expected, deviation))

    found = PaperInterval(2).log_likelihood(insight, some_labels(loss))
    compare(found, by_hand(insight, density, scaled=True), tolerance=1e-3)


def test_a_residual_that_is_the_same_everywhere_has_finite_likelihoods() -> None:
    sent = SentRows(np.arange(4), np.zeros((4, 1, 1, 1)), {}, np.zeros((4, 1, 1)), np.ones(1))
    insight = Insight(sent, SquaredError(), np.zeros((4, 1)))
    for mechanism in (PaperLaplace(), PaperInterval(), PaperInterval(3)):
        assert np.isfinite(mechanism.log_likelihood(insight, [np.array([0.0])])).all()


@pytest.mark.parametrize("outputs", [1, 2])
def test_noise_on_labels(outputs: int) -> None:
    """The first residual gives the noisy label away: only that is looked at; labels are cut at the bounds."""
    insight = insight_of(SquaredError(outputs)) if outputs == 2 else one_output()
    scales: Any = insight.sent.scales
    before: Any = insight.sent.before
    noisy = insight.sent.residual[:, 0, 0] * scales[0] + before[:, 0]
    labels = [np.full(outputs, one) for one in (-0.8, 0.1, 7.0)]
    for mechanism, kind in ((LaplaceLabels(0.5, -1, 2), laplace), (GaussianLabels(0.5, 1e-5, -1, 2), norm)):
        scale = mechanism.scale(outputs)
        expected = [kind.logpdf(noisy, np.minimum(label, 2.0), scale) for label in labels]
        compare(mechanism.log_likelihood(insight, labels), np.stack(expected, axis=1))


def one_output() -> Insight:
    rng = np.random.default_rng(1)
    before, y = rng.normal(size=(N, ROUNDS, 1)), rng.normal(size=(N, 1))
    sent = rng.normal(size=(N, ROUNDS, 1, 1))
    return Insight(SentRows(np.arange(N), sent, {}, before, np.array([0.5, 2.0, 3.0])), SquaredError(), y)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_randomised_response_is_as_likely_as_it_says(n_classes: int) -> None:
    """The messages are the residuals of a noisy label, which the attacker reads off them."""
    mechanism = RandomisedResponse(1.2, list(range(n_classes)))
    loss = mechanism.public_loss(BinaryLogLoss() if n_classes == 2 else MultinomialLogLoss(n_classes))
    rng = np.random.default_rng(2)
    drawn = np.arange(N) % n_classes
    before = rng.normal(size=(N, ROUNDS, loss.n_outputs))
    y = drawn[:, None].astype(float)
    raw = np.stack([loss.pseudo_residual(y, before[:, t]) for t in range(ROUNDS)], axis=1)
    insight = Insight(
        SentRows(np.arange(N), raw[:, :, None], {}, before, np.ones(ROUNDS)), loss, np.zeros((N, 1))
    )
    keep = math.exp(1.2) / (math.exp(1.2) + n_classes - 1)
    expected = np.full((N, n_classes, 1), math.log((1 - keep) / (n_classes - 1)))
    expected[np.arange(N), drawn] = math.log(keep)
    labels = [np.array([float(code)]) for code in range(n_classes)]
    np.testing.assert_allclose(mechanism.log_likelihood(insight, labels), expected, rtol=1e-12)


@losses
def test_without_noise_messages_are_what_they_must_be_up_to_rounding(loss: Loss) -> None:
    """A thousandth of their size; what the parts of a cross-validation say is not looked at."""
    insight = insight_of(loss, noise=1e-4)
    itself = insight.sent.residual[:, :, 0]
    size = 1e-3 * float(np.sqrt(np.mean(itself**2)))
    alone = Insight(
        SentRows(
            np.arange(N),
            np.where(np.arange(2)[:, None] == 0, insight.sent.residual, np.nan),
            {},
            insight.sent.before,
            insight.sent.scales,
        ),
        loss,
        insight.y,
    )
    expected = by_hand(alone, lambda sent, true, t: float(norm.logpdf(sent, true, size)), scaled=True)
    found = log_likelihood_as_sent(insight, some_labels(loss))
    compare(found, expected, tolerance=1e-6)
