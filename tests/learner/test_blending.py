"""Blends: calibrated, shrunk where rows are few, and never worse on the rows that chose them."""

from __future__ import annotations

import numpy as np
import pytest

from gal.core.losses import BinaryLogLoss, MultinomialLogLoss, SquaredError
from gal.learner.stacking import Blend


def test_a_blend_calibrates_what_is_too_timid() -> None:
    rng = np.random.default_rng(0)
    truth = 3 * rng.normal(size=(4000, 3))
    truth -= truth.mean(axis=1, keepdims=True)
    chance = np.exp(truth) / np.exp(truth).sum(axis=1, keepdims=True)
    y = (rng.random((4000, 1)) > chance.cumsum(axis=1)).sum(axis=1, keepdims=True).astype(float)
    loss, nothing = MultinomialLogLoss(3), np.zeros((4000, 3))
    blend = Blend.of(loss, y, [nothing, truth / 4], None)
    assert blend.weights[1] == pytest.approx(4, rel=0.1)
    assert blend.gain(Blend.of(loss, y, [nothing], None))[1] > 5
    half = np.where(np.arange(4000) < 2000, 1.0, 0.0)
    wrong = np.where(half[:, None] > 0, truth / 4, -truth)  # of rows that count nothing
    assert Blend.of(loss, y, [nothing, wrong], half).weights[1] == pytest.approx(4, rel=0.15)


def test_few_rows_that_are_all_right_prove_no_certainty() -> None:
    y = (np.arange(30) % 3)[:, None].astype(float)
    right = np.eye(3)[y[:, 0].astype(int)] - 1 / 3
    assert 1 < Blend.of(MultinomialLogLoss(3), y, [np.zeros((30, 3)), right], None).weights[1] < 8


def test_weights_of_numbers_add_up_to_one() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=(500, 2))
    outputs = [y + rng.normal(size=y.shape), y + 0.5 * rng.normal(size=y.shape), rng.normal(size=y.shape)]
    blend = Blend.of(SquaredError(2), y, outputs, None)
    assert blend.weights.sum() == pytest.approx(1)
    assert blend.weights == pytest.approx([0.2, 0.8, 0.0], abs=0.1)
    gain, errors = blend.gain(Blend.of(SquaredError(2), y, outputs[:1], None))
    assert errors > 5
    assert gain == pytest.approx(0.8, abs=0.05)


def test_noise_is_not_significant() -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(40):
        y, output = rng.integers(0, 2, (300, 1)).astype(float), rng.normal(size=(300, 1)) / 10
        alone = Blend.of(BinaryLogLoss(), y, [output], None)
        blend = Blend.of(BinaryLogLoss(), y, [output, rng.normal(size=(300, 1))], None)
        found.append(blend.gain(alone)[1] > 2)
        assert blend.loss <= alone.loss
    assert np.mean(found) < 0.2
