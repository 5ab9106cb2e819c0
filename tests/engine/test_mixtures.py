"""Mixtures of columns: what is asked for, what is in the answers, and what a forest of hers makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score, roc_auc_score

import gal
from gal import GALClassifier, GALRegressor, Organization
from gal.core.interactions.crossed_answers import SEEDS, Crossings
from gal.core.interactions.mixtures import LIGHT
from gal.engine.drivers import InProcess, drive_learning
from gal.engine.labels import class_labels
from gal.engine.mixed_columns import MixedForest, learn_mixed
from gal.engine.options import Options
from gal.engine.task_making import make_task
from gal.errors import InvalidOptionError
from gal.privacy import RandomisedResponse
from gal.privacy.leakage.transcript import Transcript

N = 2500
COLUMNS = {"a": [0, 1], "b": [2, 3, 4]}


@pytest.fixture(autouse=True)
def few_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Crossed residuals are not what is looked at here."""
    monkeypatch.setattr("gal.engine.task_making.SIGNS", 1)
    monkeypatch.setattr("gal.engine.interactions.TREES", 5)


def limits_and_bills(n: int = 2 * N) -> tuple[Any, Any]:
    """A limit here and three bills there, which matter where they come close to it; and the log-odds."""
    rng = np.random.default_rng(0)
    limit, size = rng.normal(size=(2, n))
    bills = [size + 0.3 * rng.normal(size=n) for _ in range(3)]
    near = np.abs(size - limit) < 0.7
    return np.column_stack([limit, rng.normal(size=n), *bills]), 4.0 * near - 2.0 + 0.5 * limit


def classes(signal: Any) -> Any:
    return (np.random.default_rng(1).random(len(signal)) < 1 / (1 + np.exp(-signal))).astype(int)


def made(n: int = N, **options: Any) -> tuple[Any, dict[str, Organization], Any]:
    X, signal = limits_and_bills(n)
    members = {name: Organization(name, X[:, columns]) for name, columns in COLUMNS.items()}
    chosen = Options(rounds=1, **options)
    task = make_task(class_labels(classes(signal), chosen), list(members), chosen, label_holder="a", seed=0)
    return task, members, X


def test_what_columns_of_two_mean_only_together_is_found(tmp_path: Path) -> None:
    """More than without; stored and read back it says the same, and explained it adds up."""
    X, signal = limits_and_bills()
    y = classes(signal)
    plain, mixed = (
        GALClassifier(COLUMNS, rounds=2, random_state=0, mixtures=many).fit(X[:N], y[:N]) for many in (0, 3)
    )
    assert isinstance(mixed.crossing_, MixedForest)
    scores = [roc_auc_score(y[N:], one.predict_proba(X[N:])[:, 1]) for one in (plain, mixed)]
    assert scores[1] > scores[0] + 0.02
    said = mixed.decision_function(X[N:])
    mixed.save(tmp_path / "mixed.gal")
    again = GALClassifier.load(tmp_path / "mixed.gal").decision_function(X[N:])
    np.testing.assert_array_equal(again, said)
    np.testing.assert_allclose(mixed.explain(X[N:]).sum(axis=1), said)


def test_numbers_too() -> None:
    X, signal = limits_and_bills()
    plain, mixed = (
        GALRegressor(COLUMNS, rounds=2, random_state=0, mixtures=many).fit(X[:N], signal[:N])
        for many in (0, 3)
    )
    scores = [r2_score(signal[N:], one.predict(X[N:])) for one in (plain, mixed)]
    assert scores[1] > scores[0] + 0.02


def test_without_who_is_missing_rows_are_left_to_the_rounds() -> None:
    X, signal = limits_and_bills()
    model = GALClassifier(COLUMNS, rounds=1, random_state=0, mixtures=2).fit(X[:N], classes(signal)[:N])
    assert model.crossing_ is not None
    some = np.arange(N) < 100
    mixed = model.decision_function(X[N:], missing={"b": some})
    np.testing.assert_array_equal(mixed[~some], model.decision_function(X[N:])[~some])
    np.testing.assert_array_equal(mixed[some], model.decision_function(X[N:], missing="b")[some])


def test_what_is_asked_for_has_no_label_in_it_and_the_answers_are_mixtures_of_columns() -> None:
    task, members, X = made(mixtures=3)
    asked, seen = [], Transcript()

    def noted(requests: Any, replies: Any) -> None:
        asked.extend(requests)
        seen(requests, replies)

    ensemble = drive_learning(task, members, InProcess(), on_message=noted)
    first = 1 + SEEDS + 1 + 1  # after the round, the random targets, and the only sign
    mixtures = [one for one in asked if one.round >= first]
    assert [one.round for one in mixtures] == [first, first + 1, first + 2]
    assert task.further == SEEDS + 1 + 3
    labels = task.y[task.rows.fit, 0]
    for one in mixtures:
        assert one.target == "random"
        assert one.organizations == ("a", "b")
        assert one.sample_weight is not None
        assert one.sample_weight.sum() == pytest.approx(LIGHT)
        assert abs(np.corrcoef(one.residual[:, 0], labels)[0, 1]) < 0.1
        for name, columns in COLUMNS.items():
            said = seen.further_answers[one.round][name][:, 0]
            assert LinearRegression().fit(X[:, columns], said).score(X[:, columns], said) > 0.9
            assert 1e-3 < said.std() < 1e3
    size = X[:, COLUMNS["b"]].mean(axis=1)  # what the bills have in common is most of every mixture
    heard = [abs(np.corrcoef(size, seen.further_answers[one.round]["b"][:, 0])[0, 1]) for one in mixtures]
    assert max(heard) > 0.95
    assert ensemble.crossing is not None
    assert set(ensemble.crossing.crossings.mixtures) == {
        (one.round, name) for one in mixtures for name in "ab"
    }


def test_only_rows_that_were_fitted_are_learned_from() -> None:
    task, _, X = made(mixtures=2)
    answers = {(7, name): X[:, columns[:1]].astype(np.float32) for name, columns in COLUMNS.items()}
    crossings = Crossings((), {}, {}, tuple(sorted(answers)))
    output = np.zeros((N, 1))
    other = task.y.copy()
    unseen = np.setdiff1d(np.arange(N), task.rows.fit)
    assert set(task.rows.validation) < set(unseen)
    other[unseen[::10]] = 1 - other[unseen[::10]]
    found = [
        learn_mixed(replace(task, y=y), crossings, output, output, answers, None) for y in (task.y, other)
    ]
    table = crossings.mixed(answers)
    models = [one.model.predict(table) for one in found if one is not None]
    np.testing.assert_array_equal(models[0], models[1])
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].validation_loss < found[1].validation_loss


def test_mixtures_of_noise_are_followed_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of them would seem to help a little, on the rows that judge."""
    task, _, _ = made(mixtures=2)
    mean = task.y.mean()
    output = np.full((N, 1), np.log(mean / (1 - mean)))

    def followed() -> int:
        found = []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            answers = {(7, name): rng.normal(size=(N, 1)).astype(np.float32) for name in COLUMNS}
            crossings = Crossings((), {}, {}, tuple(sorted(answers)))
            found.append(learn_mixed(task, crossings, output, output, answers, None))
        return sum(one is not None for one in found)

    seldom = followed()
    monkeypatch.setattr("gal.engine.mixed_columns.CERTAIN", 0.0)
    assert seldom < len(range(12)) / 2 < followed()


def test_crossed_residuals_go_on_from_there() -> None:
    """Where both are heard, both are followed, and stay what they are in prediction."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2 * N, 5))
    near = np.abs(X[:, 1] - X[:, 4]) < 0.7
    y = classes(3.0 * np.sign(X[:, 0] * X[:, 2]) + 3.0 * near - 1.5)
    model = GALClassifier(COLUMNS, rounds=1, random_state=0, mixtures=4, interactions=8).fit(X[:N], y[:N])
    assert isinstance(model.crossing_, MixedForest)
    assert model.crossing_.then is not None
    assert model.crossing_.crossings.vectors
    assert model.crossing_.validation_loss == model.crossing_.then.validation_loss
    assert roc_auc_score(y[N:], model.predict_proba(X[N:])[:, 1]) > 0.85


def test_what_cannot_be_is_said() -> None:
    X, signal = limits_and_bills(N)
    y = classes(signal)
    wrongs: list[Any] = [-1, 17, 1.5, True, "auto", None]
    for wrong in wrongs:
        with pytest.raises(InvalidOptionError, match="mixtures must be"):
            GALClassifier(COLUMNS, mixtures=wrong).fit(X, y)
    noisy: Any = RandomisedResponse(epsilon=1.0, classes=(0, 1))
    impossible: list[dict[str, Any]] = [
        {"interactions": "off"},
        {"privacy": noisy},
        {"privacy": noisy, "interactions": 4},
        {"preset": "paper"},
    ]
    for options in impossible:
        with pytest.raises(InvalidOptionError, match="mixtures of columns are asked for where"):
            GALClassifier(COLUMNS, rounds=1, mixtures=2, **options).fit(X, y)
    with pytest.raises(InvalidOptionError, match="two classes or one number"):
        GALClassifier(COLUMNS, rounds=1, mixtures=2).fit(X, np.digitize(signal, [-1, 1]))
    few = Options(mixtures=2)
    with pytest.raises(InvalidOptionError, match="2000 rows or more"):
        make_task(class_labels(y[:500], few), ["a", "b"], few, label_holder="a", seed=0)


def test_who_does_not_answer_has_no_part_in_it() -> None:
    task, members, X = made(mixtures=2)

    class Failing(LinearRegression):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            if sample_weight is not None and sample_weight.sum() < 1:
                raise ValueError("not for me")
            return super().fit(X, y, sample_weight)

    members["b"] = Organization("b", X[:, COLUMNS["b"]], Failing())
    ensemble = drive_learning(task, members, InProcess())
    assert ensemble.crossing is None or {name for _, name in ensemble.crossing.crossings.mixtures} <= {"a"}
    assert np.isfinite(gal.predict(ensemble, list(members.values())).output).all()
