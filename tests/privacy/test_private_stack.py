"""The private stack: never worse than alone beyond chance, and nothing that is sent shows what it chose."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss
from sklearn.tree import DecisionTreeRegressor

from gal import GALClassifier
from gal.assembling import grouped
from gal.privacy import RandomisedResponse, SeededNoise
from gal.privacy.refit import PrivateRefit
from noise_sources import SameNoise

OWN, BOTH = {"bank": [0, 1]}, {"bank": [0, 1], "shop": [2, 3]}


def table(n: int = 500, *, others: float = 1.5, seed: int = 0) -> tuple[Any, Any]:
    """The label follows the bank's columns, and the shop's as far as ``others`` says."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    signal = X @ np.array([1.0, -1.0, others, others])
    return X, (rng.logistic(size=n) < signal).astype(int)


def fitted(
    X: Any,
    y: Any,
    noisy: Any = None,
    epsilon: float = 1.0,
    classes: Any = (0, 1),
    on_message: Any = None,
    **options: Any,
) -> GALClassifier:
    source = SeededNoise(3) if noisy is None else SameNoise(noisy)
    given: dict[str, Any] = {"local_models": Ridge(), "rounds": 4, "random_state": 0} | options
    model = GALClassifier(BOTH, privacy=RandomisedResponse(epsilon, classes, source), **grouped(given))
    return model.fit(X, y, on_message=on_message)


def part(model: GALClassifier) -> Any:
    assert model.private_refit_ is not None
    assert model.private_refit_.own is not None
    return model.private_refit_.own


def loss(model: Any, X: Any, y: Any) -> float:
    return float(log_loss(y, model.predict_proba(X)))


def test_where_the_others_help_both_predict() -> None:
    X, y = table(1000)
    model = fitted(X[:500], y[:500])
    alone = GALClassifier(OWN, local_models=Ridge(), rounds=4, random_state=0).fit(X[:500], y[:500])
    assert part(model).used
    assert "fitted values of this task help" in part(model).words
    assert loss(model, X[500:], y[500:]) < 0.9 * loss(alone, X[500:], y[500:])
    ensemble = model.ensemble_
    validated = [done.validation_loss for done in ensemble.rounds]
    assert ensemble.n_rounds == len(validated) > 1 + int(np.argmin(validated)), "fewer are best validated"
    assert ensemble.train_loss == ensemble.rounds[-1].train_loss, "of all rounds, as all are asked"


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.usefixtures("few_penalties")
def test_a_row_loses_little_to_the_label_holder_alone_however_sure_the_refit_is(n_classes: int) -> None:
    """Fitted values a thousand times as large make the refit wrong and sure; the mixture bounds the loss."""
    X, y = table(600)
    y = y + (X[:, 1] > 1) if n_classes == 3 else y
    model = fitted(X[:400], y[:400], epsilon=2.0, classes=tuple(range(n_classes)), rounds=2)
    found = model.private_refit_
    assert found is not None
    assert found.own is not None
    assert found.own.used
    assert 0.5 < found.own.mixed <= 400 / 401
    wrong = X[400:].copy()
    wrong[:, 2:] *= -1000
    losses = {}
    for name, mixed in (("mixed", found.own.mixed), ("alone", 1e-12), ("refit", 1.0)):
        model.private_refit_ = replace(found, own=replace(found.own, mixed=mixed))
        probability = np.maximum(model.predict_proba(wrong), 1e-300)
        losses[name] = -np.log(probability[np.arange(200), y[400:]])
    bound = -np.log1p(-found.own.mixed)
    assert (losses["mixed"] - losses["alone"]).max() <= bound + 1e-6
    assert (losses["refit"] - losses["alone"]).max() > 10 * bound
    assert PrivateRefit.from_json(json.loads(json.dumps(found.to_json()))).own.mixed == found.own.mixed  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3, 7, 20])
def test_at_epsilon_2_it_is_better_than_the_label_holder_alone(n_classes: int) -> None:
    """Five organizations, default models; every column matters as much as any other."""
    rng = np.random.default_rng(n_classes)
    X = rng.normal(size=(4000, 10))
    scores = X @ rng.normal(size=(10, n_classes)) + rng.gumbel(size=(4000, n_classes))
    y = scores.argmax(axis=1)
    parts = {f"o{one}": [2 * one, 2 * one + 1] for one in range(5)}
    privacy = RandomisedResponse(2.0, range(n_classes), SeededNoise(0))
    together = GALClassifier(parts, privacy=privacy, random_state=0).fit(X[:2000], y[:2000])
    alone = GALClassifier({"o0": parts["o0"]}, random_state=0).fit(X[:2000], y[:2000])
    assert loss(together, X[2000:], y[2000:]) < 0.9 * loss(alone, X[2000:], y[2000:])


def test_of_many_rows_some_are_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with what the learning without it said of it: as good as all rows, but for their number."""
    X, y = table(1500)
    every = fitted(X[:900], y[:900])
    monkeypatch.setattr("gal.privacy.refit.FITTED_ENTRIES", 600 * 8 * 6)  # of 600 rows, from 5 learnings
    some = fitted(X[:900], y[:900])
    assert part(some).used
    assert part(some).alone_loss != part(every).alone_loss
    assert part(some).stacked_loss < 0.8 * part(some).alone_loss
    assert loss(some, X[900:], y[900:]) < loss(every, X[900:], y[900:]) + 0.03


def test_where_they_do_not_help_the_label_holders_own_model_predicts() -> None:
    X, y = table()
    chance = np.random.default_rng(5).integers(0, 2, len(y))
    model = fitted(X, chance, y)  # the others learn from other labels
    own = part(model)
    assert not own.used
    assert own.predicting_loss == own.alone_loss <= own.stacked_loss + 0.01
    assert "your own model predicts alone" in own.words
    changed = X.copy()
    changed[:, 2:] += 5.0
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(changed))
    assert "shop" in model.ensemble_.requested()  # the others are asked all the same


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_models_that_memorise_noisy_labels_do_not_mislead(epsilon: float) -> None:
    X, y = table(1600, others=0.5, seed=1)
    options: dict[str, Any] = {"local_models": DecisionTreeRegressor(min_samples_leaf=3), "rounds": 3}
    train, test = (X[:600], y[:600]), (X[600:], y[600:])
    alone = loss(GALClassifier(OWN, random_state=0, **options).fit(*train), *test)
    stacked = fitted(*train, epsilon=epsilon, **options)
    before = fitted(*train, epsilon=epsilon, fitted="in-sample", **options)
    assert loss(stacked, *test) < alone + 0.02
    assert loss(before, *test) > alone + 0.05  # what the refit of values that saw the label made of it
    assert part(stacked).stacked_loss == pytest.approx(loss(stacked, *test), abs=0.08)


@pytest.mark.parametrize("seed", range(2))
def test_few_rows_of_many_classes_of_which_the_others_know_nearly_all(seed: int) -> None:
    """Ten own outputs, fitted to 60 rows, would spoil the others' replies: the stack leaves them out."""
    X, y = make_blobs(1080, 10, centers=10, random_state=seed)
    columns = {"bank": [0], "shop": [1, 2, 3], "club": [4, 5, 6], "firm": [7, 8, 9]}
    privacy = RandomisedResponse(1.0, list(range(10)), SeededNoise(seed))
    options: dict[str, Any] = {"local_models": Ridge(), "rounds": 5, "random_state": 0, "privacy": privacy}
    model = GALClassifier(columns, **options).fit(X[:80], y[:80])
    assert part(model).used
    assert loss(model, X[80:], y[80:]) < 0.1 < part(model).alone_loss - 0.5
    np.testing.assert_allclose(part(model).matrix, part(model).matrix[0, 0] * np.eye(10))


def test_what_is_sent_does_not_show_which_one_predicts() -> None:
    X, y = table()
    other = np.random.default_rng(5).integers(0, 2, len(y))  # which no column explains
    drawn = np.where(np.random.default_rng(0).random(len(y)) < 0.3, 1 - y, y)
    first, second = alike_from_outside(fitted, X, (y, other), drawn)
    assert part(first).used
    assert not part(second).used


def alike_from_outside(fit: Any, X: Any, labels: tuple[Any, Any], drawn: Any) -> list[GALClassifier]:
    """Models of two label vectors with the same noisy copy; the traffic of both is the same."""
    traffic: list[list[Any]] = [[], []]

    def note(requests: Any, replies: Any) -> None:
        for request, answers in zip(requests, replies, strict=True):
            sent = request.round, request.fold, request.track, request.residual.tobytes()
            received = {name: np.asarray(values).tobytes() for name, values in answers.items()}
            traffic[len(models)] += [sent, received]

    models: list[GALClassifier] = []
    for y in labels:
        models.append(fit(X, y, drawn, on_message=note))
    first, second = models
    assert traffic[0] == traffic[1] != []
    assert first.traffic_ == second.traffic_
    assert first.ensemble_.requested() == second.ensemble_.requested()
    assert first.ensemble_.coefficients == second.ensemble_.coefficients
    assert first.contributions_ == second.contributions_
    return models


def test_stored_it_predicts_the_same(tmp_path: Path) -> None:
    X, y = table()
    model = fitted(X, y)
    assert model.private_refit_ is not None
    again = PrivateRefit.from_json(json.loads(json.dumps(model.private_refit_.to_json())))
    assert again.words == model.private_refit_.words
    model.set_params(privacy=None)
    model.save(tmp_path / "model.gal")
    loaded = GALClassifier.load(tmp_path / "model.gal")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def steps(n: int = 2000, seed: int = 0) -> tuple[Any, Any]:
    """Classes that come in turns along the bank's first column: of what linear models say of it, a forest
    makes much.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    along = np.digitize(X[:, 0] + 0.05 * rng.normal(size=n), [-1.0, -0.3, 0.3, 1.0])
    return X, np.array([0, 2, 1, 2, 0])[along]


def of_three(X: Any, y: Any, noisy: Any = None, **options: Any) -> GALClassifier:
    return fitted(X, y, noisy, classes=(0, 1, 2), rounds=3, **options)


@pytest.mark.usefixtures("small_forests")
def test_traffic_does_not_disclose_whether_the_own_model_has_a_stacker() -> None:
    X, y = steps()
    chance = np.random.default_rng(5).integers(0, 3, len(y))
    first, second = alike_from_outside(of_three, X, (y, chance), chance)
    assert part(first).ensemble.stacker is not None
    assert part(second).ensemble.stacker is None, "nothing to learn, and no stacker"


@pytest.mark.usefixtures("small_forests")
def test_a_stacker_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """After any error: a missing end message would disclose it."""

    def fails(*_: Any, **__: Any) -> None:
        raise FloatingPointError("these labels are too hard")

    monkeypatch.setattr("gal.learner.stacking.ExtraTreesClassifier.fit", fails)
    own = part(of_three(*steps()))
    assert own.ensemble.stacker is None
