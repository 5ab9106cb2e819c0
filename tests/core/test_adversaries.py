"""Hostile organizations: what validation rows and the default leave of their harm."""

from __future__ import annotations

import numpy as np
import pytest

from adversaries import ATTACKS, DEFAULT, OFF, TRIGGER, VALIDATED, Member, Trial, drive
from gal.core.probes.kept_probes import SEEDS
from gal.core.requests import FitRequest, PredictRequest
from gal.learner.labels import read_labels
from gal.learner.options import Options
from gal.learner.organization import Organization
from gal.learner.task_making import make_task
from gal.models import LinearModel

LATER = ("backdoor", "later -20 times")
"""Attacks that are honest in learning: nothing there can find them."""
IN_LEARNING = [name for name in ATTACKS if name not in LATER]
HARMLESS = ("no numbers", "noise columns")
"""What is no number is never used, and noise gets no weight, with or without defences."""


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial()


@pytest.mark.parametrize("attack", IN_LEARNING)
def test_validation_rows_keep_what_there_is_without_the_adversary(trial: Trial, attack: str) -> None:
    n_adversaries = len(ATTACKS[attack](np.random.default_rng(0)))
    without = trial.without(n_adversaries, VALIDATED)
    # Noise goes along with the residual by chance now and then.
    noisy = attack in ("two together", "noise answers")
    assert trial.attacked(attack, VALIDATED)[0] < (1.05 if noisy else 1.02) * without
    if attack not in HARMLESS:
        missed = 0 if attack == "honest first" else n_adversaries
        assert trial.attacked(attack, OFF)[0] > 1.05 * trial.without(missed, OFF)


@pytest.mark.parametrize("attack", IN_LEARNING)
def test_by_default_nothing_is_worse_than_alone(trial: Trial, attack: str) -> None:
    assert trial.attacked(attack, DEFAULT)[0] <= 1.001 * trial.alone(DEFAULT)


def test_answers_far_outside_are_not_believed_in_prediction(trial: Trial) -> None:
    assert trial.attacked("later -20 times", OFF)[0] > 5 * trial.alone(OFF)
    assert trial.attacked("later -20 times", DEFAULT)[0] < trial.alone(DEFAULT)


def test_a_trigger_is_not_found(trial: Trial) -> None:
    """On clean rows nothing is to be seen, on triggered ones the harm is bounded by the range."""
    clean, triggered = trial.attacked("backdoor", DEFAULT)
    assert clean == trial.without(0, DEFAULT)
    assert 2 * clean < triggered < 30 * clean


@pytest.mark.parametrize("attack", ["memorised", "honest first", "backdoor"])
def test_rounds_of_interaction_probes_are_attacked_too(attack: str) -> None:
    """They have numbers after all others, also where learning stopped before the last round."""
    options = Options(rounds=5, cross_validation=0)
    labels = read_labels(Trial().y, "regression", options)
    terms = make_task(labels, ["o0", "o1"], options, label_holder="o0").terms
    residual = np.ones((len(terms.rows.fit), 1), dtype=np.float32)
    [hostile] = ATTACKS[attack](np.random.default_rng(0))
    for round in (1, 2, 6):
        hostile.fit(FitRequest(round, residual * round, ("o1",)), terms, residual)
    honest, view = np.zeros((3, 3, 1)), np.full((3, 2), TRIGGER)
    said = hostile.predict(PredictRequest((1, 6, 7), ("o1",), "assisted"), honest, view)
    assert said.shape == honest.shape


def test_who_gives_back_probes_has_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers are perfect on rows whose residual it has, and nothing on the others."""
    monkeypatch.setattr("gal.learner.task_making.LARGE", 900)
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 1000, 3))
    y = (a[:, 0] * b[:, 1] > 0).astype(int)
    options = Options(rounds=1, interactions=6)
    task = make_task(read_labels(y, "classification", options), ["a", "b", "c"], options, label_holder="a")
    [hostile] = ATTACKS["memorised"](np.random.default_rng(0))
    members = {
        name: Member(Organization(name, view, LinearModel()), hostile if name == "c" else None)
        for name, view in {"a": a, "b": b, "c": c}.items()
    }
    ensemble = drive(task, members)
    assert max(hostile.said) > 1 + SEEDS  # it was asked
    assert ensemble.probes is not None
    assert {one.organization for one in ensemble.probes.vectors} == {"a", "b"}
