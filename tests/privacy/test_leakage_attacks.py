"""Attacks on transcripts made by hand, whose best possible accuracy is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss
from gal.privacy import Cost, PaperInterval, PaperLaplace, RandomisedResponse, SeededNoise
from gal.privacy.leakage import best_guess, equivalent_epsilon
from gal.privacy.leakage.attacks import ATTACKS, FIRST_ROUND, SUM_OF_ROUNDS

Floats = NDArray[np.float64]
N = 3000
SURE = 4 / math.sqrt(4 * N)
"""Four standard deviations of a share of N rows, at most."""


def released(
    mechanism: Any, loss: Loss, y: Floats, rounds: int, seed: int = 0, wander: float = 0.3
) -> Floats:
    """Rounds of residuals whose outputs wander about, as a mechanism sends them."""
    rng, outputs = np.random.default_rng(seed), loss.n_outputs
    before = np.cumsum(wander * rng.normal(size=(len(y), rounds, outputs)), axis=1)
    raw = np.stack([loss.pseudo_residual(y, before[:, t]) for t in range(rounds)], axis=1)
    sent = raw / np.sqrt(np.mean(np.square(raw), axis=(0, 2)))[:, None]
    if mechanism is not None:
        sent = np.stack([mechanism(sent[:, t], rng) for t in range(rounds)], axis=1).astype(np.float64)
    return np.asarray(sent[:, :, None])


def codes(n_classes: int = 2, n: int = N, seed: int = 3) -> Floats:
    return np.random.default_rng(seed).integers(0, n_classes, size=(n, 1)).astype(np.float64)


class TestReadingOff:
    def test_without_a_mechanism_everything_is_known(self) -> None:
        for loss, n_classes in ((BinaryLogLoss(), 2), (MultinomialLogLoss(4), 4)):
            y = codes(n_classes, n=300)
            sent = released(None, loss, y, rounds=3)
            for attack in ATTACKS:
                assert np.array_equal(attack.guess(sent), y[:, 0]), attack.name

    @pytest.mark.parametrize("n_classes", [2, 5])
    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_of_randomised_response_the_first_round_tells_the_noisy_copy(
        self, n_classes: int, epsilon: float
    ) -> None:
        mechanism = RandomisedResponse(epsilon, range(n_classes))
        y = codes(n_classes)
        drawn = SeededNoise(1).randomised_response(y[:, 0].astype(int), n_classes, mechanism.keep)
        plain: Loss = BinaryLogLoss() if n_classes == 2 else MultinomialLogLoss(n_classes)
        sent = released(None, mechanism.public_loss(plain), drawn[:, None].astype(float), rounds=4)
        for attack in ATTACKS:
            assert np.array_equal(attack.guess(sent), drawn)
        found = float(np.mean(drawn == y[:, 0]))
        assert found == pytest.approx(best_guess(Cost(epsilon), n_classes), abs=SURE)

    @pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
    def test_the_papers_mechanisms_leave_signs_and_rounds_add_up(self, alpha: float) -> None:
        """Of residuals of +-1, which no clipping changes."""
        y = codes()
        for mechanism, once in (
            (PaperLaplace(alpha), 1 - math.exp(-alpha / 2) / 2),
            (PaperInterval(), 0.75),
        ):
            sent = released(mechanism, BinaryLogLoss(), y, rounds=10, wander=0.0)
            first, every = (np.mean(one.guess(sent) == y[:, 0]) for one in (FIRST_ROUND, SUM_OF_ROUNDS))
            assert first == pytest.approx(once, abs=SURE)
            assert every > first + 0.06


class TestShares:
    @settings(max_examples=50)
    @given(st.floats(0.01, 8), st.floats(0, 0.2), st.integers(2, 12))
    def test_the_bound_is_reached_by_a_mechanism_that_sometimes_fails(
        self, epsilon: float, delta: float, classes: int
    ) -> None:
        """It tells the label with probability delta, and else answers by randomized response."""
        keep = best_guess(Cost(epsilon), classes)
        assert keep == pytest.approx(math.exp(epsilon) / (math.exp(epsilon) + classes - 1))
        assert best_guess(Cost(epsilon, delta), classes) == pytest.approx(delta + (1 - delta) * keep)
        assert equivalent_epsilon(keep, classes) == pytest.approx(epsilon, rel=1e-6)

    def test_the_bound_is_the_most_that_a_linear_programme_finds(self) -> None:
        """Over all mechanisms with answers 1..C: maximise the mean of P(answer k | label k)."""
        from scipy.optimize import linprog

        for epsilon, delta, classes in ((0.7, 0.0, 3), (1.0, 0.05, 2), (1.5, 0.1, 4)):
            places = np.arange(classes * classes).reshape(classes, classes)  # label, answer
            rows, limits = [], []
            for answer_set in range(1, 2**classes - 1):
                chosen = [k for k in range(classes) if answer_set >> k & 1]
                for i in range(classes):
                    for j in range(classes):
                        if i != j:
                            row = np.zeros(classes * classes)
                            row[places[i, chosen]] += 1
                            row[places[j, chosen]] -= math.exp(epsilon)
                            rows.append(row)
                            limits.append(delta)
            ones = np.kron(np.eye(classes), np.ones(classes))
            goal = -np.eye(classes).ravel() / classes
            found = linprog(goal, np.array(rows), limits, ones, np.ones(classes), bounds=(0, 1))
            assert -found.fun == pytest.approx(best_guess(Cost(epsilon, delta), classes), abs=1e-7)
