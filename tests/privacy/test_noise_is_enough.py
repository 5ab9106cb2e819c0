"""Whether the noise is as much as the guarantee needs, and no more, by arithmetic of these tests' own.

What two neighbouring label vectors send without noise is compared by brute force, and the privacy loss of
noise of the scale that was asked for is computed from that distance: exactly for Laplace, by the analytic
Gaussian for Gaussian noise. Nothing of ``accounting`` or of a mechanism's own sensitivity is used.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from gal.core.losses import Loss, SquaredError
from gal.learner.labels import Labels
from gal.learner.options import Options
from gal.privacy import (
    GaussianLabels,
    LaplaceLabels,
    RandomisedResponse,
)
from gal.privacy.mechanisms.answers import AnswerNoise
from gal.privacy.mechanisms.columns import ColumnNoise
from gal.privacy.mechanisms.corrected_loss import CorrectedLogLoss
from noise_sources import NoNoise

Floats = NDArray[np.float64]
LOOSE = 1.01
"""So much more than it must be may epsilon or delta be: multipliers are found by bisection, rounded up."""


def gaussian_delta(distance: float, epsilon: float) -> float:
    """delta at epsilon of unit noise on two values so far apart (Balle and Wang 2018, theorem 8)."""
    upper = norm.cdf(distance / 2 - epsilon / distance)
    return float(upper - math.exp(epsilon) * norm.cdf(-distance / 2 - epsilon / distance))


def check_laplace(l1: float, scale: float, epsilon: float) -> None:
    """It costs epsilon, no more and hardly less."""
    assert l1 / scale <= epsilon * (1 + 1e-9)
    assert l1 / scale >= epsilon / LOOSE


def check_gaussian(
    l2: float, scale: float, rounds: int, epsilon: float, delta: float, loose: float = LOOSE
) -> None:
    """All rounds together cost (epsilon, delta), no more and hardly less."""
    distance = math.sqrt(rounds) * l2 / scale
    assert gaussian_delta(distance, epsilon) <= delta * (1 + 1e-6)
    assert gaussian_delta(loose * distance, epsilon) >= delta


def far_apart(sent: Floats) -> tuple[float, float]:
    """The largest L1 and L2 distance between any two rows."""
    apart = sent[:, None] - sent
    return float(np.abs(apart).sum(axis=-1).max()), float(np.linalg.norm(apart, axis=-1).max())


with_accounting = pytest.mark.usefixtures("accounting")


@pytest.fixture
def accounting() -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")


def noisy_task(loss: Loss, bounds: tuple[float, float] | None) -> tuple[Labels, Floats]:
    """The same noisy label in many rows, and outputs (n, K) that lie as far apart in residuals as any can."""
    width, rng = loss.n_outputs, np.random.default_rng(0)
    if bounds is not None:
        outputs = np.array(list(itertools.product((-1e3, 0.0, 1e3), repeat=width)))
        return Labels(np.full((len(outputs), width), 77.0), loss), outputs
    along = np.eye(max(2, width))[:, -width:]
    sizes = np.linspace(-40, 40, 401)[:, None]
    outputs = np.vstack([*(sizes * one for one in along), rng.normal(scale=4.0, size=(200, width))])
    return Labels(np.ones((len(outputs), 1)), loss), outputs


COLUMN_TASKS: list[tuple[Loss, tuple[float, float] | None]] = [
    *((CorrectedLogLoss(2, keep), None) for keep in (0.55, 0.73, 0.98)),
    (CorrectedLogLoss(2, 0.7, one_output=False), None),
    (CorrectedLogLoss(5, 0.4), None),
    (SquaredError(), (-3.0, 9.0)),
    (SquaredError(3), (0.0, 2.0)),
]


@with_accounting
@pytest.mark.parametrize(("rounds", "parts", "releases"), [(1, 4, 1), (2, 0, 1), (7, 0, 6), (3, 4, 8)])
@pytest.mark.parametrize(("loss", "bounds"), COLUMN_TASKS, ids=lambda one: str(one)[:30])
def test_columns(
    loss: Loss, bounds: tuple[float, float] | None, rounds: int, parts: int, releases: int
) -> None:
    """Any two outputs behind the residuals of a row, whose label stays, are hidden as much as is said."""
    source, noise = NoNoise(), ColumnNoise(2.0, 1e-5)
    labels, outputs = noisy_task(loss, bounds)
    release, residual = noise.release(labels, bounds, rounds, parts, source), loss.pseudo_residual
    release(residual(labels.y, outputs), 1, "assisted", None)  # follows from the label alone
    assert source.asked == []
    if rounds == 1:
        return
    far = release(residual(labels.y, outputs), 2, "assisted", None)
    l2 = max(float(np.linalg.norm(far - one, axis=1).max()) for one in far)
    check_gaussian(l2, source.scale, releases, 2.0, 1e-5, loose=1.1)  # a share of doubt is added up


def label_distance(mechanism: Any, outputs: int) -> tuple[tuple[float, float], float]:
    """The largest distance of copies of one row's labels, over all corners of the bounds; and the scale."""
    source = NoNoise()
    corners = itertools.product((mechanism.lower, mechanism.upper), repeat=outputs)
    given = [mechanism.read(np.array([corner, corner]), Options()) for corner in corners]
    copies: list[Labels] = [mechanism.noisy(labels, source) for labels in given]
    return far_apart(np.vstack([copy.y[:1] for copy in copies])), source.scale


@pytest.mark.parametrize("outputs", [1, 2, 3, 5])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-3.0, 9.0)])
class TestLabels:
    def test_laplace(self, outputs: int, bounds: tuple[float, float]) -> None:
        (l1, _), scale = label_distance(LaplaceLabels(0.5, *bounds), outputs)
        check_laplace(l1, scale, 0.5)

    @with_accounting
    def test_gaussian(self, outputs: int, bounds: tuple[float, float]) -> None:
        (_, l2), scale = label_distance(GaussianLabels(1.5, 1e-6, *bounds), outputs)
        check_gaussian(l2, scale, 1, 1.5, 1e-6)


@pytest.mark.parametrize("outputs", [1, 2, 5])
class TestAnswers:
    def distance(self, mechanism: AnswerNoise, source: NoNoise, outputs: int) -> tuple[float, float]:
        corners = itertools.product((-1e6, 1e6), repeat=outputs)
        return far_apart(np.vstack([mechanism(np.array([corner])) for corner in corners]))

    def test_laplace(self, outputs: int) -> None:
        source = NoNoise()
        l1, _ = self.distance(AnswerNoise("laplace", 3.0, 0.5, source=source), source, outputs)
        check_laplace(l1, source.scale, 0.5)

    @with_accounting
    def test_gaussian(self, outputs: int) -> None:
        source = NoNoise()
        _, l2 = self.distance(AnswerNoise("gaussian", 3.0, 0.5, 1e-6, source=source), source, outputs)
        check_gaussian(l2, source.scale, 1, 0.5, 1e-6)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_randomised_response_is_as_likely_under_any_two_labels_as_epsilon_allows(
    n_classes: int, epsilon: float
) -> None:
    source = NoNoise()
    mechanism = RandomisedResponse(epsilon, range(n_classes))
    labels = mechanism.read(np.arange(n_classes), Options())
    mechanism.noisy(labels, source)
    other = (1 - source.scale) / (n_classes - 1)
    assert math.log(source.scale / other) == pytest.approx(epsilon, rel=1e-9)
    assert mechanism.keep == source.scale


@pytest.mark.parametrize("of", [str, int], ids=["text", "numbers"])
def test_labels_are_the_same_classes_however_their_column_is_kept(of: Any) -> None:
    """As text or numbers, and as any objects, in whatever order the classes were named."""
    classes = [of(one) for one in (30, 10, 20)]
    given = [classes[place] for place in (0, 1, 2, 1, 0)]
    codes = [sorted(classes).index(one) for one in given]
    mechanism = RandomisedResponse(1.0, classes)
    for y in (np.array(given), np.array(given, dtype=object), given):
        assert mechanism.codes(y).tolist() == codes
