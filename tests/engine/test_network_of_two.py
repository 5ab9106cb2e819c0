"""Two classes: after crossed residuals a network on all answers, as far as validation rows are certain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

import gal
from gal import GALClassifier, Organization
from gal.core.interactions.crossed_answers import Crossings
from gal.core.steps import BestRounds
from gal.engine.drivers import InProcess, drive_learning
from gal.engine.interactions import CrossedForest, Interactions
from gal.engine.labels import class_labels
from gal.engine.options import Options
from gal.engine.task_making import make_task
from gal.storage import load_ensemble, save_ensemble

N, ROUNDS = 3000, 3
NAMES = ("a", "b")


def near_and_far(n: int = 2 * N, clear: float = 3.0) -> tuple[Any, Any]:
    """Two columns of each organization, a point each; rows are mostly 1 where these are near each other."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    odds = np.exp(clear * (2 - np.square(X[:, :2] - X[:, 2:]).sum(axis=1)))
    return X, (rng.random(n) < odds / (1 + odds)).astype(int)


def learned(X: Any, y: Any) -> tuple[Any, dict[str, Organization]]:
    members = {name: Organization(name, X[:N, 2 * at : 2 * at + 2]) for at, name in enumerate(NAMES)}
    options = Options(rounds=ROUNDS, interactions=True)
    task = make_task(class_labels(y[:N], options), NAMES, options, label_holder="a", seed=0)
    return drive_learning(task, members, InProcess()), members


def test_it_is_followed_where_it_helps_and_stored(tmp_path: Path) -> None:
    X, y = near_and_far()
    ensemble, members = learned(X, y)
    crossing = ensemble.crossing
    assert isinstance(crossing, CrossedForest)
    assert crossing.network is not None
    assert 0 < crossing.network_share <= 1
    unseen = {name: X[N:, 2 * at : 2 * at + 2] for at, name in enumerate(NAMES)}
    without = replace(ensemble, crossing=replace(crossing, network=None, network_share=0.0))
    said = [
        1 / (1 + np.exp(-gal.predict(one, list(members.values()), unseen).output))
        for one in (ensemble, without)
    ]
    assert log_loss(y[N:], said[0]) < 0.95 * log_loss(y[N:], said[1])
    assert roc_auc_score(y[N:], said[0]) > roc_auc_score(y[N:], said[1])
    save_ensemble(ensemble, tmp_path / "ensemble.gal")
    again = gal.predict(load_ensemble(tmp_path / "ensemble.gal"), list(members.values()), unseen)
    np.testing.assert_array_equal(1 / (1 + np.exp(-again.output)), said[0])
    # A row has the same bits alone and among others.
    one = gal.predict(ensemble, list(members.values()), {name: view[:1] for name, view in unseen.items()})
    assert one.output.tobytes() == again.output[:1].tobytes()


def test_where_no_forest_is_followed_nobody_is_asked_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network sees the rounds alone then, and prediction asks for these."""
    monkeypatch.setattr(Interactions, "_followed", lambda *_: None)
    X, y = near_and_far()
    ensemble, members = learned(X, y)
    crossing = ensemble.crossing
    assert isinstance(crossing, CrossedForest)
    assert crossing.model is None
    assert crossing.network is not None
    assert crossing.share == crossing.network_share > 0
    assert crossing.crossings.answered == []
    assert ensemble.asked_rounds == tuple(range(1, ensemble.n_rounds + 1))
    unseen = {name: X[N:, 2 * at : 2 * at + 2] for at, name in enumerate(NAMES)}
    moved = gal.predict(ensemble, list(members.values()), unseen).output
    plain = gal.predict(replace(ensemble, crossing=None), list(members.values()), unseen).output
    assert roc_auc_score(y[N:], moved) > roc_auc_score(y[N:], plain)


def task_of(y: Any) -> Any:
    options = Options(interactions=True)
    return make_task(class_labels(y, options), NAMES, options, label_holder="a", seed=0)


@pytest.mark.parametrize("lies", [True, False])
def test_who_remembers_labels_of_fitted_rows_moves_nothing(
    lies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that is the label of every fitted row, and noise on the others; the same of all rows does."""
    monkeypatch.setattr(Interactions, "_followed", lambda *_: None)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=N)
    task = task_of(y)
    told = np.where(task.rows.is_fit, y, rng.integers(0, 2, size=N)) if lies else y
    used = [{"b": (told + rng.normal(size=N))[:, None].astype(np.float32)}]
    nothing, answers = np.zeros((N, 1)), {(11, "a"): rng.normal(size=(N, 1)).astype(np.float32)}
    seen = Crossings((), {}, {}, ((11, "a"),))
    model = Interactions(coarse=True)(task, seen, nothing, nothing, {}, answers, used)
    assert (model is None) == lies


def test_labels_that_are_noise_are_left_alone() -> None:
    X, y = near_and_far(N, clear=0.0)
    model = GALClassifier({"a": [0, 1], "b": [2, 3]}, rounds=ROUNDS, random_state=0, interactions=True).fit(
        X, y
    )
    assert not isinstance(model.crossing_, CrossedForest) or model.crossing_.network is None


def test_of_several_classes_and_without_crossing_there_is_none() -> None:
    X, y = near_and_far(N)
    columns = {"a": [0, 1], "b": [2, 3]}
    several = GALClassifier(columns, rounds=1, random_state=0, interactions=True).fit(X, y + (X[:, 0] > 1))
    assert not isinstance(several.crossing_, CrossedForest) or several.crossing_.network is None
    assert GALClassifier(columns, rounds=1, random_state=0).fit(X, y).crossing_ is None


def test_without_a_closing_model_there_is_none_either() -> None:
    X, y = near_and_far(N)
    columns = {"a": [0, 1], "b": [2, 3]}
    model = GALClassifier(columns, rounds=1, closing=False, interactions=True, random_state=0).fit(X, y)
    assert model.closing_ is None
    assert isinstance(model.crossing_, CrossedForest)
    assert model.crossing_.network is None


def test_the_card_says_what_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = near_and_far(N)
    columns = {"a": [0, 1], "b": [2, 3]}
    unfitted = GALClassifier(columns, rounds=1, interactions=True, random_state=0)
    card = unfitted.fit(X, y).card()
    assert "What was asked for after the rounds takes part, with a share of" in card
    monkeypatch.setattr(Interactions, "_followed", lambda *_: None)
    monkeypatch.setattr("gal.engine.stacking.Stacking.__call__", lambda *_, **__: None)
    model = unfitted.fit(X, y)
    assert model.closing_ is None
    assert isinstance(model.crossing_, CrossedForest)
    assert model.crossing_.network is not None
    assert (
        f"A closing model on all answers takes part, with a share of {model.crossing_.share:.0%}"
        in model.card()
    )
    assert "after the rounds" not in model.card()


def test_the_label_holder_alone_has_one_too_where_assistance_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """She has all columns that count: what a network finds in them is no gain by assistance."""
    X, y = near_and_far(N)
    X = np.hstack([X, np.random.default_rng(1).normal(size=(N, 2))])
    organizations, losses = {"a": [0, 1, 2, 3], "b": [4, 5]}, []
    unfitted = GALClassifier(organizations, rounds=ROUNDS, interactions=True, random_state=0)
    like = BestRounds.like
    monkeypatch.setattr("gal.engine.interactions.certain_share", lambda *_: 0.125)
    monkeypatch.setattr("gal.engine.interactions.believed_share", lambda _: 0.125)
    for fair in (like, lambda self, *_: self):
        monkeypatch.setattr(BestRounds, "like", fair)
        ensemble = unfitted.fit(X, y).ensemble_
        losses.append((ensemble.alone_validation_loss, ensemble.assisted_validation_loss))
    assert losses[0][0] != losses[1][0]
    assert losses[0][1] == losses[1][1]
    monkeypatch.setattr(BestRounds, "like", like)
    monkeypatch.setattr("gal.engine.interactions.FAR_AHEAD", -100.0)
    ensemble = unfitted.fit(X, y).ensemble_
    assert ensemble.alone_validation_loss == losses[1][0]
