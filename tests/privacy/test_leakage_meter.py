"""The meter on real tasks: what it finds without protection, and that no attack beats a guarantee."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from gal import GALClassifier, GALRegressor
from gal.assembling import grouped
from gal.core.rows import all_rows
from gal.errors import InvalidInputError, InvalidLabelsError
from gal.models import TabularModel
from gal.privacy import (
    Cost,
    LaplaceLabels,
    RandomisedResponse,
    SeededNoise,
)
from gal.privacy.leakage import (
    LeakReport,
    Transcript,
    added_reports,
    best_guess,
    measure_leakage,
    plant_canaries,
)
from gal.privacy.registry import KINDS, names, promised_names

PARTS = {"clinic": ["a", "b"], "lab": ["c", "d"], "insurer": ["e", "town"]}
SIMPLE = {"clinic": Ridge(), "lab": Ridge(), "insurer": TabularModel(max_iter=0)}
TOWNS = np.array(["Aston", "Bree", "Corby"])


def table(n: int = 300, seed: int = 0) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 5)), columns=list("abcde"))
    X["town"] = TOWNS[rng.integers(0, 3, n)]
    score = X["a"] + X["c"] - X["e"] + (X["town"] == "Bree") + 0.5 * rng.normal(size=n)
    return X, score.to_numpy()


def learned(
    y: NDArray[Any], X: Any, privacy: Any = None, **options: Any
) -> tuple[Transcript, GALClassifier | GALRegressor]:
    make = GALRegressor if y.dtype.kind == "f" else GALClassifier
    transcript = Transcript()
    chosen: dict[str, Any] = {"rounds": 4, "random_state": 0, "cross_validation": 0, "local_models": SIMPLE}
    chosen |= options
    model = make(PARTS, privacy=privacy, **grouped(chosen))
    return transcript, model.fit(X, y, on_message=transcript)


def measured(privacy: Any = None, *, n: int = 200, numbers: bool = False, **options: Any) -> LeakReport:
    """A task with a fifth of canaries, attacked; the lab and the insurer collude."""
    X, score = table(n)
    bounds = (-6.0, 6.0)
    true: Any = np.clip(score, *bounds) if numbers else np.where(score > 0.3, "yes", "no")
    classes = None if numbers else ["no", "yes"]
    lower, upper = bounds if numbers else (None, None)
    y, mask = plant_canaries(
        true, np.random.default_rng(7), fraction=0.2, classes=classes, lower=lower, upper=upper
    )
    transcript, model = learned(y, X, privacy, **options)
    return measure_leakage(
        transcript,
        y,
        roles=model.task_rows_,
        label_holder="clinic",
        privacy=privacy,
        classes=classes,
        canaries=mask,
    )


class TestWithoutProtection:
    def test_every_label_is_known_after_round_1_and_it_says_so_loudly(self) -> None:
        report = measured()
        first = report.attacks[0]
        assert first.canaries.value == 1.0
        assert (first.canaries.of, report.known) == (report.planted, 20)
        assert "EVERY ASSISTANT KNOWS EVERY TRAINING LABEL AFTER ROUND 1" in report.verdict()
        assert report.bound is None
        assert report.exceeding() == []

    def test_also_with_a_cross_validation_and_with_held_out_rows(self) -> None:
        validated = measured(cross_validation=3)
        assert validated.messages == 3 * validated.rounds  # each row is in the task and in two of three folds
        held_out = measured(fitted="held-out", validation_fraction=0.2, stacking=False)
        assert held_out.rows == 120
        for report in (validated, held_out):
            assert report.attacks[0].canaries.value == 1.0


class TestWithAGuarantee:
    def test_randomised_response(self) -> None:
        report = measured(RandomisedResponse(1.0, ["no", "yes"], SeededNoise(3)), n=400)
        assert report.bound == pytest.approx(best_guess(Cost(1.0), 2))
        assert report.exceeding() == []
        guesses = {one.name: one.canaries for one in report.attacks}
        assert guesses["first round"] == guesses["sum over rounds"]
        assert guesses["first round"].high > best_guess(Cost(1.0), 2)  # the attack is as strong as can be
        assert "no attack exceeds it" in report.verdict()
        assert not report.secure

    def test_noise_on_numbers(self) -> None:
        report = measured(LaplaceLabels(1.0, -6.0, 6.0, SeededNoise(3)), n=400, numbers=True)
        assert report.exceeding() == []
        ratio = report.attacks[0]
        assert ratio.canaries.interval(0.999)[1] > 1 - np.exp(-0.5) / 2  # the best that is possible

    def test_a_mechanism_that_breaks_its_promise_is_found_out(self) -> None:
        """Sent with epsilon 4, stated as epsilon 0.5."""
        X, score = table(600)
        y, mask = plant_canaries(
            (score > 0).astype(int), np.random.default_rng(7), fraction=0.3, classes=[0, 1]
        )
        transcript, model = learned(y, X, RandomisedResponse(4.0, [0, 1], SeededNoise(3)))
        given: dict[str, Any] = {"roles": model.task_rows_, "label_holder": "clinic", "canaries": mask}
        stated = RandomisedResponse(0.5, [0, 1])
        report = measure_leakage(transcript, y, privacy=stated, classes=[0, 1], **given)
        assert "first round" in {one.name for one in report.exceeding()}
        assert "EXCEEDED" in report.verdict()


class TestAfterwards:
    """On a finished task: no canaries, no others' columns."""

    def test_a_sample_of_many_rows_keeps_the_canaries(self) -> None:
        X, score = table()
        y, mask = plant_canaries((score > 0).astype(int), np.random.default_rng(0), count=30, classes=[0, 1])
        transcript, model = learned(y, X)
        given: dict[str, Any] = {"roles": model.task_rows_, "label_holder": "clinic", "canaries": mask}
        report = measure_leakage(transcript, y, classes=[0, 1], most_rows=80, **given)
        assert report.rows == 80
        assert report.planted == 30
        assert report.attacks[0].canaries.value == 1.0


@pytest.fixture(scope="module")
def protected() -> LeakReport:
    return measured(RandomisedResponse(1.0, ["no", "yes"], SeededNoise(3)))


class TestReports:
    def test_several_are_added_up(self, protected: LeakReport) -> None:
        reports = [protected, measured(RandomisedResponse(1.0, ["no", "yes"], SeededNoise(4)))]
        both = added_reports(reports)
        assert both.runs == 2
        assert both.planted == sum(one.planted for one in reports)
        for place, attack in enumerate(both.attacks):
            assert attack.canaries.right == sum(one.attacks[place].canaries.right for one in reports)
        with pytest.raises(InvalidInputError, match="different mechanisms"):
            added_reports([protected, replace(protected, cost=Cost(2.0))])
        with pytest.raises(InvalidInputError, match="no reports"):
            added_reports([])

    def test_bad_input(self) -> None:
        X, score = table(60)
        y = (score > 0).astype(int)
        transcript, model = learned(y, X)
        given: dict[str, Any] = {"roles": model.task_rows_, "label_holder": "clinic"}
        with pytest.raises(InvalidLabelsError, match="none of the classes"):
            measure_leakage(transcript, y, classes=[0, 2], **given)
        with pytest.raises(InvalidInputError, match="another task"):
            measure_leakage(transcript, y, classes=[0, 1], roles=all_rows(61))


class TestCanaries:
    def test_uniform_whatever_the_labels_are(self) -> None:
        labels, mask = plant_canaries(
            ["a"] * 4000, np.random.default_rng(0), fraction=0.5, classes=["a", "bb", "c"]
        )
        assert mask.sum() == 2000
        assert set(labels[~mask]) == {"a"}
        counts = np.array([np.sum(labels[mask] == one) for one in ("a", "bb", "c")])
        assert np.abs(counts - 2000 / 3).max() < 100


class TestNames:
    def test_what_promises_nothing_is_not_for_tasks(self) -> None:
        assert set(names()) - set(promised_names()) == {"none", "paper-laplace", "paper-interval"}
        assert all("epsilon" in KINDS[name].options(needed=True) for name in promised_names())
