"""Every kind of attack on a tiny table: what it does without defences, and what is left of it with them."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gal.cli.app import app
from gal.core.probes.kept_probes import SEEDS
from gal.core.requests import FitRequest, PredictRequest
from gal.engine.labels import read_labels
from gal.engine.options import Options
from gal.engine.organization import Organization
from gal.engine.task_making import make_task
from gal.models import LinearModel
from gal_bench.adversaries import attacked_tasks, running
from gal_bench.adversaries.attacked_tasks import DEFAULT, OFF, VALIDATED, Trial, drive
from gal_bench.adversaries.attacks_page import as_good_as_alone, attacks_csv, attacks_markdown, within
from gal_bench.adversaries.hostile_answers import ATTACKS, TRIGGER, Member
from gal_bench.adversaries.running import LATER, AttackFigures, run_adversaries
from gal_bench.adversaries.stealing import ASKINGS, stolen_share
from gal_bench.data.splits import Split

IN_LEARNING = [name for name in ATTACKS if name not in LATER]
HARMLESS = ("scaled", "no numbers", "noise columns")
"""Weights and rate undo a scale, and what is no number is never used, with or without defences."""


def small_split(seed: int = 0, n: int = 400) -> Split:
    """Numbers that four organizations with two columns each tell together."""
    rng = np.random.default_rng(seed)
    columns = [f"x{j}" for j in range(8)]
    X = pd.DataFrame(rng.normal(size=(n, 8)), columns=columns)
    y = X.to_numpy() @ np.array([1.0, 0.5, 1.0, 0.5, 1.0, 0.5, 1.0, 0.5]) + 0.3 * rng.normal(size=n)
    parts = {f"o{m}": columns[2 * m : 2 * m + 2] for m in range(4)}
    cut = n // 2
    rest: dict[str, Any] = {
        "organizations": parts,
        "classes": False,
        "dataset": "small",
        "protocol": "per seed",
    }
    return Split(X[:cut], y[:cut], X[cut:].reset_index(drop=True), y[cut:], **rest)


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(small_split(), "linear", 0)


@pytest.mark.parametrize("attack", IN_LEARNING)
def test_validation_rows_keep_what_there_is_without_the_adversary(trial: Trial, attack: str) -> None:
    n_adversaries = len(ATTACKS[attack](np.random.default_rng(0)))
    without = trial.without(n_adversaries, VALIDATED).clean
    # One of two that hide in noise goes along with the residual by chance now and then.
    assert trial.attacked(attack, VALIDATED).clean < (1.05 if attack == "two together" else 1.02) * without
    if attack not in HARMLESS:
        missed = 0 if attack == "honest first" else n_adversaries
        assert trial.attacked(attack, OFF).clean > 1.05 * trial.without(missed, OFF).clean


@pytest.mark.parametrize("attack", IN_LEARNING)
def test_by_default_nothing_is_worse_than_alone(trial: Trial, attack: str) -> None:
    assert trial.attacked(attack, DEFAULT).clean <= 1.001 * trial.alone(DEFAULT).clean


def test_answers_far_outside_are_not_believed_in_prediction(trial: Trial) -> None:
    assert trial.attacked("later -20 times", OFF).clean > 5 * trial.alone(OFF).clean
    assert trial.attacked("later -20 times", DEFAULT).clean < trial.alone(DEFAULT).clean


@pytest.mark.parametrize("attack", ["memorised", "honest first", "backdoor"])
def test_rounds_of_crossed_residuals_are_attacked_too(attack: str) -> None:
    """They have numbers after all others, also where learning stopped before the last round."""
    split = small_split()
    options = Options(rounds=5, cross_validation=0)
    labels = read_labels(split.y_train, "regression", options)
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
    monkeypatch.setattr("gal.engine.task_making.LARGE", 900)
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


def test_a_trigger_is_not_found(trial: Trial) -> None:
    """As it is: on clean rows nothing is to be seen, on triggered ones the harm is bounded by the range."""
    score = trial.attacked("backdoor", DEFAULT)
    assert score.clean == trial.without(0, DEFAULT).clean
    assert 2 * score.clean < score.triggered < 30 * score.clean


def test_chosen_residuals_take_linear_columns_away() -> None:
    share = {name: stolen_share(small_split(), "linear", asking, 0) for name, asking in ASKINGS.items()}
    honest, few, many, rough, noisy = share.values()
    assert honest < 0.8 < 0.99 < few <= many + 0.01
    assert noisy < rough <= 1


def line(values: dict[str, list[float]], metric: str = "mad") -> AttackFigures:
    return AttackFigures("small", "linear", "reversed", metric, values)


def test_what_counts_as_as_good() -> None:
    some = line({"off": [2.0, 2.2], "off alone": [2.1, 2.1], "off without": [1.0, 1.1]})
    assert as_good_as_alone(some, "off")  # as much worse as better
    assert not within(some, "off")
    assert some.harm("off", "without")[0] == pytest.approx(100.0)
    classes = line({"off": [0.9, 0.9], "off alone": [0.95, 0.95], "off without": [0.91, 0.91]}, "accuracy")
    assert not as_good_as_alone(classes, "off")
    assert within(classes, "off")
    assert classes.harm("off", "alone")[0] == pytest.approx(5.0)
    assert classes.harm("off", "alone")[1] == pytest.approx(0.0, abs=1e-9)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds, the small table and two attacks, without files."""
    monkeypatch.setattr(running, "drawn", lambda name, seed, data: small_split(seed, 120))
    monkeypatch.setattr(attacked_tasks, "ROUNDS", 2)
    monkeypatch.setattr(running, "run_adversaries", partial(run_adversaries, models=["linear"]))
    chosen: dict[str, Any] = {name: ATTACKS[name] for name in ("reversed", "backdoor", "later reversed")}
    monkeypatch.setattr(running, "ATTACKS", chosen)


@pytest.mark.usefixtures("tiny")
def test_a_page_says_which_sets_have_fewer_seeds() -> None:
    many = run_adversaries(sets=["Diabetes"], models=["linear"], seeds=2)
    few = run_adversaries(sets=["BostonHousing"], models=["linear"], seeds=1)
    assert "the mean over 2 seeds with" in attacks_markdown(many)
    assert "the mean over 2 seeds (BostonHousing: 1) with" in attacks_markdown([*many, *few])


@pytest.mark.usefixtures("tiny")
def test_tables_have_every_figure_of_the_runs() -> None:
    told: list[tuple[int, int, str]] = []
    lines = run_adversaries(
        sets=["Diabetes"], models=["linear"], seeds=2, on_run=lambda *one: told.append(one)
    )
    assert told == [(1, 2, "Diabetes, linear, seed 0"), (2, 2, "Diabetes, linear, seed 1")]
    rows = list(csv.DictReader(io.StringIO(attacks_csv(lines))))
    assert {row["attack"] for row in rows} == {
        *("nobody", "reversed", "backdoor", "later reversed", "stealing")
    }
    page = attacks_markdown(lines)
    for row in rows:
        if row["column"] in {"off", "default", "validation rows"} and row["metric"] == "mad":
            assert f"{float(row['mean']):.3g}" in page, row
    assert "in 1 of 1 cells at least as good as alone" in page


@pytest.mark.usefixtures("tiny")
def test_the_command_writes_both_files(tmp_path: Path) -> None:
    words = ["bench", "adversaries", "--dataset", "Diabetes", "--seeds", "1", "--jobs", "1", "--json"]
    done = CliRunner().invoke(app, [*words, "--results", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert {one["model"] for one in json.loads(done.stdout)} == {"linear"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adversaries.csv", "adversaries.md"]
    refused = CliRunner().invoke(app, ["bench", "adversaries", "rates", "--results", str(tmp_path)])
    assert "run alone" in str(refused.exception)
