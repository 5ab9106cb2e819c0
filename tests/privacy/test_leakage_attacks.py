"""Attacks on transcripts made by hand, whose best possible accuracy is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss
from gal.privacy import (
    Cost,
    PaperInterval,
    PaperLaplace,
    RandomisedResponse,
    SeededNoise,
)
from gal.privacy.leakage import best_guess, equivalent_epsilon
from gal.privacy.leakage.attacks import (
    FIRST_ROUND,
    SUM_OF_ROUNDS,
    UNKNOWN,
    Insight,
    Seen,
    label_attacks,
)
from gal.privacy.leakage.meter import attack_labels
from gal.privacy.leakage.transcript import SentRows

Floats = NDArray[np.float64]
N = 3000
SURE = 4 / math.sqrt(4 * N)
"""Four standard deviations of a share of N rows, at most."""


def handmade(
    residual: Floats,
    before: Floats,
    scales: Floats,
    loss: Loss,
    y: Floats,
    *,
    classes: int,
    canary: bool = True,
    known: Any = None,
    features: Floats | None = None,
) -> Seen:
    """What an attacker sees of residuals (n, T, K); labels y as codes (n, 1) or numbers."""
    n, _, outputs = residual.shape
    sent = SentRows(np.arange(n), residual[:, :, None], {}, before, scales)
    return Seen(
        residual=sent.residual,
        fitted=np.zeros((n, outputs)),
        features=np.empty((n, 0)) if features is None else features,
        known=np.full(n, UNKNOWN) if known is None else known,
        canary=np.full(n, canary),
        classes=classes,
        insight=Insight(sent, loss, y),
    )


def released(mechanism: Any, loss: Loss, y: Floats, rounds: int, seed: int = 0) -> Seen:
    """Rounds of residuals whose outputs wander about, as a mechanism on residuals sends them."""
    rng = np.random.default_rng(seed)
    before = np.cumsum(0.3 * rng.normal(size=(len(y), rounds, loss.n_outputs)), axis=1)
    raw = np.stack([loss.pseudo_residual(y, before[:, t]) for t in range(rounds)], axis=1)
    scales = np.sqrt(np.mean(np.square(raw), axis=(0, 2)))
    sent = raw / scales[:, None]
    if mechanism is not None:
        sent = np.stack([mechanism(sent[:, t], rng) for t in range(rounds)], axis=1).astype(np.float64)
    classes = 2 if isinstance(loss, BinaryLogLoss) else loss.n_outputs
    return handmade(sent, before, scales, loss, y, classes=classes)


def knowing(seen: Seen, y: Floats, **more: Any) -> Seen:
    """The same messages to who knows more, where ``y`` are the true labels."""
    assert seen.insight is not None
    return replace(seen, insight=replace(seen.insight, y=y), **more)


def codes(n_classes: int = 2, n: int = N, seed: int = 3) -> Floats:
    return np.random.default_rng(seed).integers(0, n_classes, size=(n, 1)).astype(np.float64)


def accuracy(seen: Seen, truth: Floats, mechanism: Any) -> float:
    return float(np.mean(likeliest(mechanism, seen) == truth[:, 0]))


def likeliest(mechanism: Any, seen: Seen) -> Any:
    [ratio] = [one for one in label_attacks(mechanism, insight=True) if one.informed]
    return ratio.guess(seen)


class TestLikelihoodRatioReachesTheBest:
    def test_without_a_mechanism_everything_is_known(self) -> None:
        for loss, n_classes in ((BinaryLogLoss(), 2), (MultinomialLogLoss(4), 4)):
            y = codes(n_classes, n=300)
            seen = released(None, loss, y, rounds=3)
            for attack in (FIRST_ROUND, SUM_OF_ROUNDS):
                assert np.array_equal(attack.guess(seen), y[:, 0]), attack.name

    @pytest.mark.parametrize("n_classes", [2, 5])
    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_of_randomised_response_the_first_round_tells_the_noisy_copy(
        self, n_classes: int, epsilon: float
    ) -> None:
        mechanism = RandomisedResponse(epsilon, range(n_classes))
        y = codes(n_classes)
        drawn = SeededNoise(1).randomised_response(y[:, 0].astype(int), n_classes, mechanism.keep)
        plain: Loss = BinaryLogLoss() if n_classes == 2 else MultinomialLogLoss(n_classes)
        seen = released(None, mechanism.public_loss(plain), drawn[:, None].astype(float), rounds=4)
        for attack in (FIRST_ROUND, SUM_OF_ROUNDS):
            assert np.array_equal(attack.guess(seen), drawn)
        assert float(np.mean(drawn == y[:, 0])) == pytest.approx(
            best_guess(Cost(epsilon), n_classes), abs=SURE
        )

    def signs(self, mechanism: Any, rounds: int) -> tuple[Seen, Floats]:
        """Residuals of +-1, which no clipping changes: outputs are 0 in all rounds."""
        y = codes()
        before = np.zeros((N, rounds, 1))
        rng = np.random.default_rng(2)
        raw = (y - 0.5) / 0.5
        sent = np.stack([mechanism(raw, rng) for _ in range(rounds)], axis=1).astype(np.float64)
        return handmade(sent, before, np.full(rounds, 0.5), BinaryLogLoss(), y, classes=2), y

    @pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
    def test_the_papers_laplace(self, alpha: float) -> None:
        mechanism = PaperLaplace(alpha)
        assert accuracy(*self.signs(mechanism, 1), mechanism) == pytest.approx(
            1 - math.exp(-alpha / 2) / 2, abs=SURE
        )

    def test_rounds_of_the_papers_laplace_add_up(self) -> None:
        mechanism = PaperLaplace(1.0)
        seen, y = self.signs(mechanism, 10)
        summed = float(np.mean(SUM_OF_ROUNDS.guess(seen) == y[:, 0]))
        assert accuracy(seen, y, mechanism) > summed + 0.01 > 0.85

    @pytest.mark.parametrize("rounds", [1, 3])
    def test_one_interval(self, rounds: int) -> None:
        mechanism = PaperInterval(1)
        found = accuracy(*self.signs(mechanism, rounds), mechanism)
        assert found == pytest.approx(1 - 0.5 ** (rounds + 1), abs=SURE)


class TestHonesty:
    def test_labels_that_are_not_known_are_not_used(self) -> None:
        """Other true labels behind the same messages change no guess."""
        y, rng = codes(3, n=200), np.random.default_rng(5)
        seen = released(PaperLaplace(), MultinomialLogLoss(3), y, 3)
        known = np.where(np.arange(200) < 40, y[:, 0], UNKNOWN).astype(np.intp)
        features = rng.normal(size=(200, 3))
        worlds = []
        for labels in (y, rng.permuted(y, axis=0)):
            labels = np.where(known[:, None] != UNKNOWN, y, labels)
            ordinary = np.zeros(200, dtype=np.bool_)
            worlds.append(knowing(seen, labels, known=known, features=features, canary=ordinary))
        for attack in label_attacks(PaperLaplace(), insight=True):
            one, other = (attack.guess(world) for world in worlds)
            assert np.array_equal(one, other), attack.name

    def test_without_its_message_a_canary_is_guessed_by_chance(self) -> None:
        y, rng = codes(2, n=1500), np.random.default_rng(5)
        seen = released(None, BinaryLogLoss(), y, 2)
        known = np.where(rng.random(1500) < 0.1, y[:, 0], UNKNOWN).astype(np.intp)
        seen = knowing(seen, y, known=known, features=rng.normal(size=(1500, 3)))
        found = {one.name: one for one in attack_labels(seen, y[:, 0].astype(np.intp))}
        for one in found.values():
            assert (
                one.canaries_without.interval(0.9999)[0] < 0.5 < one.canaries_without.interval(0.9999)[1]
            ), one
        assert found["first round"].canaries.value == 1.0
        assert found["own features and messages"].canaries.value > 0.99
        assert not found["own features"].message


class TestShares:
    @settings(max_examples=50)
    @given(st.floats(0.01, 8), st.floats(0, 0.2), st.integers(2, 12))
    def test_the_bound_is_reached_by_a_mechanism_that_sometimes_fails(
        self, epsilon: float, delta: float, classes: int
    ) -> None:
        """It tells the label with probability delta, and else answers by randomised response."""
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
