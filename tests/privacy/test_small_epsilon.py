"""Canaries at small epsilon: whether what is sent tells as little as is said, and whether that would show.

All labels are drawn by chance, so that every row is a canary, and guessed from the residuals of a learning.
One draw of noise decides, from a fixed seed. A guarantee that holds fails here once in a thousand seeds
(``ALARM``); noise for twice the epsilon passes in less than one of a hundred, by the normal approximation
in ``power``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn.linear_model import Ridge

from gal import GALClassifier, GALRegressor
from gal.privacy import LaplaceLabels, RandomisedResponse, SeededNoise
from gal.privacy.leakage import Transcript

N = 6000
ALARM = 1e-3
EPSILONS = [0.2, 0.5, 1.0]
DATA = np.random.default_rng(0)
X, Y = DATA.normal(size=(N, 2)), DATA.integers(0, 2, N)


class TooLittle(SeededNoise):
    """Draws as if epsilon were twice as large."""

    def randomised_response(self, codes: Any, n_classes: int, keep: float) -> Any:
        odds = keep / (1 - keep)
        return super().randomised_response(codes, n_classes, odds**2 / (1 + odds**2))

    def laplace(self, values: Any, scale: float) -> Any:
        return super().laplace(values, scale / 2)


def guessed(privacy: Any, make: Any) -> int:
    """How many labels are right that follow from the sign of all residuals of a row together."""
    transcript = Transcript()
    options: dict[str, Any] = {"local_models": Ridge(), "rounds": 2, "cross_validation": 0, "initial": "zero"}
    options |= {"fitted": "in-sample", "validation_fraction": 0.0}  # all rows are sent
    parts = {"clinic": [0], "lab": [1]}
    model = make(parts, privacy=privacy, on_message=transcript, random_state=0, **options).fit(X, Y)
    sent = transcript.sent(model.task_rows_, "clinic")
    assert len(sent.rows) == N
    total = sent.residual[:, :, 0, 0].sum(axis=1)
    middle = np.median(total) if make is GALRegressor else 0.0
    return int(((total > middle) == Y[sent.rows]).sum())


def allowed(epsilon: float) -> float:
    """The most that anybody can be right who held two labels for equally likely before."""
    return 1 / (1 + math.exp(-epsilon))


def exceeds(right: int, epsilon: float) -> bool:
    return bool(binomtest(right, N, allowed(epsilon), alternative="greater").pvalue < ALARM)


def power(epsilon: float, share: float) -> float:
    """The probability that an attack which is right in this share of cases is found to exceed."""
    bound = allowed(epsilon)
    threshold = bound + norm.isf(ALARM) * math.sqrt(bound * (1 - bound) / N)
    return float(norm.sf((threshold - share) / math.sqrt(share * (1 - share) / N)))


@pytest.fixture(autouse=True)
def no_refit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.assembling.refit_privately", lambda *_, **__: None)


@pytest.mark.parametrize("epsilon", EPSILONS)
class TestClasses:
    def test_the_guarantee_holds_and_the_attack_is_as_good_as_it_allows(self, epsilon: float) -> None:
        right = guessed(RandomisedResponse(epsilon, [0, 1], SeededNoise(1)), GALClassifier)
        assert not exceeds(right, epsilon)
        assert binomtest(right, N, allowed(epsilon), alternative="less").pvalue > ALARM

    def test_too_little_noise_shows(self, epsilon: float) -> None:
        assert power(epsilon, allowed(2 * epsilon)) > 0.99
        assert exceeds(guessed(RandomisedResponse(epsilon, [0, 1], TooLittle(1)), GALClassifier), epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
class TestNumbers:
    """Labels lie at the two bounds; the best guess is right in 1 - exp(-epsilon / 2) / 2 of cases."""

    def test_the_guarantee_holds(self, epsilon: float) -> None:
        right = guessed(LaplaceLabels(epsilon, 0, 1, SeededNoise(1)), GALRegressor)
        assert not exceeds(right, epsilon)
        best = 1 - math.exp(-epsilon / 2) / 2
        assert binomtest(right, N, best).pvalue > ALARM

    def test_too_little_noise_shows(self, epsilon: float) -> None:
        assert power(epsilon, 1 - math.exp(-epsilon) / 2) > 0.99
        assert exceeds(guessed(LaplaceLabels(epsilon, 0, 1, TooLittle(1)), GALRegressor), epsilon)
