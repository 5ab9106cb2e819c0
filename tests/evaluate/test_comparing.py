"""Repeated splits, intervals from two variances, and verdicts: against closed forms and simulated studies."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from gal.evaluate import Interval, Verdict
from gal.evaluate.comparing import (
    EXIT_CODES,
    Scored,
    interval_of,
    reaches,
    scored,
    split_means,
    splits_of,
    verdict_of,
)
from gal.evaluate.metrics import METRICS, Metric


@pytest.mark.parametrize(
    ("n", "repeats", "folds", "predicted"),
    [(200, 4, 5, 200), (501, 2, 5, 501), (3_000, 1, 5, 3_000), (6_000, 1, 3, 6_000), (60_000, 1, 2, 24_000)],
)
def test_small_tables_are_divided_more_often(n: int, repeats: int, folds: int, predicted: int) -> None:
    splits = splits_of(np.zeros(n), classes=False, folds=None, seed=0)
    assert [len(one) for one in splits.repeats] == [folds] * repeats
    assert len(splits.rows) == predicted
    assert len(splits) == repeats * folds
    for repeat in splits.repeats:
        assert np.array_equal(np.sort(np.concatenate([one.test for one in repeat])), splits.rows)
    for one in splits:
        assert not set(one.train) & set(one.test)


def test_repeats_have_folds_of_their_own_and_classes_of_the_same_mix() -> None:
    y = np.arange(100) % 4 == 0
    splits = splits_of(y, classes=True, folds=None, seed=0)
    assert len({tuple(one.test) for one in splits}) == 20
    assert {int(y[one.test].sum()) for one in splits} == {5}


def test_without_variance_of_training_rows_alone_decide() -> None:
    """Rows whose scores hang on nothing else: the interval is that of a mean."""
    rng = np.random.default_rng(0)
    splits = splits_of(np.zeros(3000), classes=False, folds=None, seed=0)
    rows = rng.normal(size=(1, 3000))
    for place in range(5):
        rows[0, splits.numbers()[0] == place] -= rows[0, splits.numbers()[0] == place].mean()
    reach, by_rows = reaches(Scored(0.0, rows, split_means(rows, splits)), splits)
    assert by_rows == pytest.approx(1.96 * rows.std() / np.sqrt(3000), rel=0.01)
    assert reach == pytest.approx(by_rows, rel=0.01)


def test_what_training_varies_counts_as_nadeau_and_bengio_say() -> None:
    """Every split has a score of its own, the same for all of its rows."""
    rng = np.random.default_rng(0)
    splits = splits_of(np.zeros(200), classes=False, folds=None, seed=0)
    own = rng.normal(size=(4, 5))
    rows = np.stack([one[number] for one, number in zip(own, splits.numbers(), strict=True)])
    rows += 1e-9 * rng.normal(size=rows.shape)
    within = np.mean([each.var(ddof=1) / 40 for each in rows])
    training = own.var(ddof=1) - within
    by_rows = rows.mean(axis=0).var(ddof=1) / 200
    variance = by_rows + training * (1 / 20 + 1 / 4)
    freedom = variance**2 / (by_rows**2 / 199 + (variance - by_rows) ** 2 / 19)
    found = interval_of(Scored(0.5, rows, split_means(rows, splits)), splits)
    reach = student.ppf(0.975, freedom) * np.sqrt(variance)
    assert [found.low, found.high] == pytest.approx([0.5 - reach, 0.5 + reach])


def test_a_scorer_of_groups_has_nearly_the_interval_of_one_of_rows() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=400)
    splits = splits_of(truth, classes=False, folds=None, seed=0)
    outputs = [truth + rng.normal(size=400) for _ in splits.repeats]
    groups = Metric("unknown", False, METRICS["r2"].score, "")
    by_rows, by_groups = (
        interval_of(scored(one, truth, outputs, splits), splits) for one in (METRICS["r2"], groups)
    )
    assert by_groups.value == by_rows.value
    assert by_groups.high - by_groups.low == pytest.approx(by_rows.high - by_rows.low, rel=0.3)


@pytest.mark.parametrize(
    ("gain", "pooling", "verdict", "code"),
    [
        ((0.01, 0.03), (-0.1, 0.1), Verdict.GAIN, 0),
        ((-0.01, 0.03), (-0.1, 0.1), Verdict.NO_GAIN, 10),
        ((0.0, 0.0), (-0.1, 0.0), Verdict.NO_GAIN, 10),
        ((-0.01, 0.03), (0.01, 0.1), Verdict.UNCLEAR, 11),
        ((-0.03, -0.01), (0.01, 0.1), Verdict.HARM, 12),
    ],
)
def test_verdicts_follow_from_the_intervals(
    gain: tuple[float, float], pooling: tuple[float, float], verdict: Verdict, code: int
) -> None:
    found = verdict_of(Interval(0.0, *gain), Interval(0.0, *pooling))
    assert (found, EXIT_CODES[found]) == (verdict, code)


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
def test_intervals_hold_what_is_true_about_as_often_as_they_say(spread: float) -> None:
    """Studies of tables whose rows and models vary: models of a repeat with a deviation of their own."""
    rng = np.random.default_rng(0)
    splits = splits_of(np.zeros(200), classes=False, folds=None, seed=0)
    held = 0
    for _ in range(300):
        rows = rng.normal(size=200) + np.zeros((4, 1))
        trained = spread * rng.normal(size=(4, 5)) / np.sqrt(40)
        rows += np.stack([one[number] for one, number in zip(trained, splits.numbers(), strict=True)])
        found = interval_of(Scored(float(rows.mean()), rows, split_means(rows, splits)), splits)
        held += found.low <= 0 <= found.high
    assert held / 300 >= 0.93


def test_no_interval_is_above_the_best_score() -> None:
    y = np.arange(100) % 2
    splits = splits_of(y, classes=True, folds=None, seed=0)
    wrong = np.where(np.arange(100) < 3, 1 - y, y).astype(float)[splits.rows]
    score = scored(METRICS["auc"], y[splits.rows], [wrong] * len(splits.repeats), splits)
    assert interval_of(score, splits).high > 1
    assert interval_of(score, splits, METRICS["auc"].best).high == 1
