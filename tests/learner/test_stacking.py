"""The stacker: it sees what columns of different organizations mean together, and never makes it worse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import Ridge

from gal import Algorithm, GALClassifier, GALRegressor, Organization, learn, predict
from gal.assembling import grouped
from gal.core.losses import AbsoluteError, BinaryLogLoss, MultinomialLogLoss, SquaredError
from gal.core.prediction import final_output
from gal.core.rows import Rows
from gal.core.state import Progress
from gal.core.task import Task
from gal.errors import InvalidInputError, InvalidOptionError, LocalModelError
from gal.learner.labels import class_labels
from gal.learner.options import Options
from gal.learner.stacking import (
    Features,
    SmallNetwork,
    Stacker,
    StackerInput,
    Stacking,
    forest_output,
    predicted,
    stackable,
)
from gal.learner.task_making import make_task
from gal.privacy import RandomisedResponse
from gal.privacy.protection import protect
from gal.storage import load_ensemble, save_ensemble
from gal.warnings import InterruptedWarning
from small_tables import interacting

PARTS = {"left": [0, 1], "right": [2, 3]}
FEW = 700
"""Rows of tests that compare no losses; the thresholds for "many rows" are lowered for them."""


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.learner.task_making.LARGE", FEW - 100)


def test_it_hears_what_organizations_say_together() -> None:
    X, y = interacting()
    X_test, y_test = interacting(seed=1)
    plain = GALRegressor(PARTS, algorithm=Algorithm(stacking=False), random_state=0).fit(X, y)
    closed = GALRegressor(PARTS, random_state=0).fit(X, y)
    assert closed.stacker_ is not None
    assert closed.score(X_test, y_test) > plain.score(X_test, y_test) + 0.3


def test_classes_too() -> None:
    X, y = interacting()
    X_test, y_test = interacting(seed=1)
    plain = GALClassifier(PARTS, algorithm=Algorithm(stacking=False), random_state=0).fit(X, y > 0)
    closed = GALClassifier(PARTS, random_state=0).fit(X, y > 0)
    assert closed.score(X_test, y_test > 0) > plain.score(X_test, y_test > 0) + 0.05
    three = GALClassifier(PARTS, random_state=0).fit(X, np.digitize(y, [-0.5, 0.5]))
    assert three.stacker_ is not None
    assert three.predict_proba(X_test).sum(axis=1) == pytest.approx(1)


def test_where_it_adds_nothing_its_share_is_small_or_zero() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = X.sum(axis=1) + rng.normal(size=3000)
    plain = GALRegressor(
        PARTS, local_models=Ridge(), algorithm=Algorithm(stacking=False), random_state=0
    ).fit(X, y)
    closed = GALRegressor(PARTS, local_models=Ridge(), random_state=0).fit(X, y)
    X_test = rng.normal(size=(3000, 4))
    truth = X_test.sum(axis=1)
    assert np.abs(closed.predict(X_test) - truth).mean() < np.abs(plain.predict(X_test) - truth).mean() + 0.05


def test_small_tables_the_paper_preset_and_other_losses_have_none() -> None:
    X, y = interacting(400)
    assert GALRegressor(PARTS, random_state=0).fit(X, y).stacker_ is None
    X, y = interacting(2500)
    paper = GALRegressor(
        PARTS, local_models=Ridge(), algorithm=Algorithm(preset="paper"), rounds=2, random_state=0
    )
    assert paper.fit(X, y).stacker_ is None
    absolute = GALRegressor(PARTS, loss="absolute_error", rounds=2, random_state=0)
    assert absolute.fit(X, y).stacker_ is None
    assert not stackable(AbsoluteError())


def test_explanations_still_add_up() -> None:
    X, y = interacting(2100)
    model = GALRegressor(PARTS, random_state=0).fit(X, y)
    parts = model.explain(X[:20])
    assert "stacker" in parts.columns
    assert parts.sum(axis=1).to_numpy() == pytest.approx(model.predict(X[:20]))


@pytest.mark.usefixtures("few_are_many")
def test_an_ensemble_takes_it_along(tmp_path: Path) -> None:
    X, y = interacting(FEW, 3)
    members = [Organization("left", X[:, :2]), Organization("right", X[:, 2:])]
    ensemble = learn(y, members, rounds=2)
    save_ensemble(ensemble, tmp_path / "ensemble.gal")
    loaded = load_ensemble(tmp_path / "ensemble.gal")
    assert loaded.stacker is not None
    assert predict(loaded, members).output.tobytes() == predict(ensemble, members).output.tobytes()


def test_row_weights_count() -> None:
    X, y = interacting()
    weight = np.where(X[:, 0] > 0, 1.0, 0.0)
    turned = np.where(X[:, 0] > 0, y, -y)  # rows without weight have the opposite label
    model = GALRegressor(PARTS, random_state=0).fit(X, turned, sample_weight=weight)
    good = X[:, 0] > 0
    assert np.corrcoef(model.predict(X[good]), y[good])[0, 1] > 0.8


def test_rows_with_a_missing_answer_are_left_to_the_rounds() -> None:
    """It never met a mean in place of an answer: there the sum of the rounds is the better guess."""
    X, y = interacting()
    closed = GALRegressor(PARTS, random_state=0).fit(X, y)
    plain = GALRegressor(PARTS, algorithm=Algorithm(stacking=False), random_state=0).fit(X, y)
    assert closed.predict(X, missing=["right"]) == pytest.approx(plain.predict(X, missing=["right"]))
    some = closed.predict(X[:4], missing={"right": [0, 2]})
    assert some[[0, 2]] == pytest.approx(plain.predict(X[:4], missing={"right": [0, 2]})[[0, 2]])
    assert some[[1, 3]] == pytest.approx(closed.predict(X[:4])[[1, 3]])


def one_sided(n: int = 2500, seed: int = 1) -> tuple[Any, Any]:
    """Labels that hang on columns of the left only; the right has noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.square(X[:, 0]) + X[:, 0] + 0.3 * rng.normal(size=n)


def test_a_label_holder_that_goes_alone_has_the_stacker_of_one_alone() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2500, 4))
    y = X[:, 0] + np.square(X[:, 0]) + 0.3 * rng.normal(size=2500)
    options: dict[str, Any] = {"local_models": Ridge(), "random_state": 0}  # which leaves the square over
    model = GALRegressor(PARTS, algorithm=Algorithm(weights="uniform"), **grouped(options)).fit(
        X, y
    )  # noise counts as much
    alone = GALRegressor({"left": [0, 1]}, **grouped(options)).fit(X, y)
    assert model.ensemble_.track == "alone"
    assert model.stacker_ is not None
    assert model.stacker_.validation_loss == model.ensemble_.alone_validation_loss
    assert model.predict(X) == pytest.approx(alone.predict(X))


def test_the_guard_compares_models_with_their_stackers() -> None:
    X, y = one_sided(seed=4)
    options: dict[str, Any] = {"local_models": Ridge(), "weights": "shrunk", "random_state": 0}
    plain = GALRegressor(PARTS, **grouped(options | {"stacking": False})).fit(X, y).ensemble_
    closed = GALRegressor(PARTS, **grouped(options)).fit(X, y).ensemble_
    assert (plain.track, closed.track) == ("alone", "alone")
    assert closed.stacker is not None
    assert closed.alone_validation_loss == closed.stacker.validation_loss < plain.alone_validation_loss


def test_several_outputs_are_closed_together() -> None:
    X, y = interacting()
    both = np.column_stack([y, X[:, 1] * X[:, 3] + X[:, 1]])
    X_test, y_test = interacting(seed=1)
    both_test = np.column_stack([y_test, X_test[:, 1] * X_test[:, 3] + X_test[:, 1]])
    closed = GALRegressor(PARTS, random_state=0).fit(X, both)
    plain = GALRegressor(PARTS, algorithm=Algorithm(stacking=False), random_state=0).fit(X, both)
    assert closed.stacker_ is not None
    assert closed.score(X_test, both_test) > plain.score(X_test, both_test) + 0.2


@pytest.mark.parametrize(
    ("options", "rows", "said_of_it"),
    [
        ({"stacking": True}, 300, "validation_fraction=0.1"),
        ({"stacking": True, "loss": "absolute_error"}, 2500, "no stacker is known for the loss"),
    ],
)
def test_what_is_not_possible_is_said_before_the_first_round(
    options: dict[str, Any], rows: int, said_of_it: str
) -> None:
    X, y = interacting(rows)
    with pytest.raises(InvalidOptionError, match=said_of_it):
        GALRegressor(PARTS, **grouped(options)).fit(X, y)


def test_in_parts_there_is_the_same() -> None:
    """``gal.learn`` keeps the replies, closes as the estimator does, and ``gal.predict`` uses it."""
    X, y = interacting(2100)
    left, right = Organization("left", X[:, :2]), Organization("right", X[:, 2:])
    model = GALRegressor(PARTS, rounds=3, random_state=0).fit(X, y)
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    ensemble = learn(y, [left, right], rounds=3, seed=seed)
    assert isinstance(ensemble.stacker, Stacker)
    found = predict(ensemble, [left, right])
    np.testing.assert_array_equal(found.output[:, 0], model.predict(X))
    plain = learn(y, [left, right], rounds=3, seed=seed, algorithm=Algorithm(stacking=False))
    assert plain.stacker is None
    same, closed = (
        replace(one, assisted_validation_loss=0.0, alone_validation_loss=0.0, contributions=None)
        for one in (plain, ensemble)
    )  # each is compared as it predicts
    assert same == closed, "the rounds are the same"
    assert (predict(plain, [left, right]).output != found.output).any()


@pytest.mark.usefixtures("few_are_many")
def test_in_parts_who_cannot_be_asked_is_left_to_the_rounds() -> None:
    X, y = interacting(FEW, 3)
    left, right = Organization("left", X[:, :2]), Organization("right", X[:, 2:])
    views = {"left": X[:5, :2]}
    ensemble = learn(y, [left, right], rounds=2)
    assert ensemble.stacker is not None
    found = predict(ensemble, [left, right], views)
    assert found.degraded.all()
    plain = replace(ensemble, stacker=None)
    np.testing.assert_array_equal(found.output, predict(plain, [left, right], views).output)


@pytest.mark.usefixtures("few_are_many")
def test_a_resumed_task_is_closed_as_one_that_was_not_interrupted() -> None:
    X, y = interacting(FEW, 3)
    members = [Organization("left", X[:, :2]), Organization("right", X[:, 2:])]
    noted: list[Progress] = []
    whole = learn(y, members, rounds=3, on_round=noted.append)
    output = predict(whole, members).output
    resumed = learn(y, members, rounds=3, progress=noted[1])
    assert resumed.stacker is not None
    assert predict(resumed, members).output.tobytes() == output.tobytes()
    with pytest.raises(InvalidInputError, match="as stateful models and a stacker do"):
        learn(y, members, rounds=3, progress=replace(noted[1], fitted=()))


@pytest.mark.usefixtures("few_are_many")
def test_cores_change_nothing() -> None:
    X, y = three_classes(FEW)
    one, two = (GALClassifier(PARTS, rounds=2, n_jobs=jobs, random_state=0).fit(X, y) for jobs in (None, 2))
    assert isinstance(two.stacker_, Stacker)
    assert {getattr(model, "n_jobs", None) for model in two.stacker_.models} == {None}
    assert one.predict_proba(X).tobytes() == two.predict_proba(X).tobytes()


def test_an_absurd_answer_does_not_stop_it() -> None:
    """A sum beyond what float32 holds is the largest number for it, not an error."""
    largest = float(np.finfo(np.float32).max)
    answers = [{"left": np.full((2, 1), largest, dtype=np.float32)}]
    table = Features.of_rounds(np.array([[1e300], [-1e300]]), answers, [{"left": 1.0}]).table
    assert table[:, 0].tolist() == [largest, -largest]


@pytest.mark.parametrize(
    ("privacy", "closed"), [(None, True), (RandomisedResponse(1.0, classes=[0, 1]), False)]
)
def test_under_a_guarantee_the_private_refit_takes_its_place(privacy: Any, closed: bool) -> None:
    """A task that every driver could run: whatever it does after the rounds is in it."""
    _, y = interacting(2100)
    labels = class_labels((y > 0).astype(int), Options())
    seen = protect(privacy, labels, Options(), seed=0)
    names = ["left", "right"]
    task = make_task(seen.labels, names, seen.options, label_holder="left", private=seen.private)
    assert (task.stacker is not None) is closed
    assert len(task.kept_rows) == task.rows.n  # for either


def three_classes(n: int = 2100, noise: float = 0.0, seed: int = 0) -> tuple[Any, Any]:
    X, y = interacting(n, seed)
    return X, np.digitize(y + noise * np.random.default_rng(seed).normal(size=n), [-0.5, 0.5])


@pytest.mark.parametrize(("noise", "kind"), [(0.0, ExtraTreesClassifier), (2.5, SmallNetwork)])
def test_a_forest_tells_clear_classes_and_a_network_noisy_ones(noise: float, kind: type) -> None:
    found = GALClassifier(PARTS, random_state=0).fit(*three_classes(4000, noise)).stacker_
    assert isinstance(found, Stacker)
    assert isinstance(found.models[int(np.argmax(found.weights[1:]))], kind)


@pytest.mark.parametrize("kind", ["two", "three", "numbers"])
def test_a_forest_predicts_as_scikit_learn_says(kind: str) -> None:
    X, y = interacting(300)
    table = X.astype(np.float32)
    if kind == "numbers":
        forest = ExtraTreesRegressor(5, random_state=0).fit(table, y)
        assert forest_output(forest, SquaredError(), table)[:, 0] == pytest.approx(forest.predict(table))
        return
    labels = np.digitize(y, [-0.5, 0.5] if kind == "three" else [0.0])
    chance = ExtraTreesClassifier(5, random_state=0).fit(table, labels).predict_proba(table)
    logs = np.log((5 * chance + 1 / chance.shape[1]) / 6)  # as if one tree more called all classes alike
    if kind == "two":
        forest = ExtraTreesRegressor(5, random_state=0).fit(table, labels.astype(float))
        odds = forest_output(forest, BinaryLogLoss(), table)
        chance = forest.predict(table)
        assert odds[:, 0] == pytest.approx(np.log((5 * chance + 0.5) / (5 * (1 - chance) + 0.5)))
        return
    forest = ExtraTreesClassifier(5, random_state=0).fit(table, labels)
    expected = logs - logs.mean(axis=1, keepdims=True)
    assert forest_output(forest, MultinomialLogLoss(3), table) == pytest.approx(expected)


def test_a_class_that_no_row_of_the_forest_had_is_possible() -> None:
    forest = ExtraTreesClassifier(3, random_state=0).fit(np.eye(2, dtype=np.float32), [0, 2])
    odds = forest_output(forest, MultinomialLogLoss(3), np.eye(2, dtype=np.float32)[:1])
    probability = np.exp(odds) / np.exp(odds).sum()
    assert probability[0] == pytest.approx([(3 + 1 / 3) / 4, 1 / 12, 1 / 12])


@pytest.mark.parametrize("classes", [2, 3])
def test_a_class_that_no_row_of_the_network_had_is_possible(classes: int) -> None:
    y = np.zeros((400, 1))
    y[200:] = float(classes == 3)  # none is of the last class
    y[0] = classes - 1  # but a validation row
    rows = Rows(400, np.arange(10, 400), np.arange(10, 400), np.arange(10))
    loss: Any = BinaryLogLoss() if classes == 2 else MultinomialLogLoss(3)
    task = Task(y, loss, ("left",), rows)
    fitted = [{"left": np.random.default_rng(0).normal(size=(400, loss.n_outputs)).astype(np.float32)}]
    received = StackerInput.in_rounds(task, [{"left": 1.0}], fitted)
    network = Stacking()._network(received, rows.fit)
    output = predicted(network, loss, received.features(rows.fit))
    assert output.shape == (390, loss.n_outputs)
    assert np.isfinite(output).all()


def test_a_network_has_bounded_inputs() -> None:
    center, scale = np.zeros(1), np.ones(1)
    network = SmallNetwork(center, scale, (np.ones((1, 1)), np.zeros(1)), (np.ones((1, 1)), np.zeros(1)))
    sums = np.array([[2.0], [-2.0], [1e30]], dtype=np.float32)
    assert network.predict(sums)[:, 0].tolist() == [2.0, 0.0, 10.0]


def test_its_output_is_the_blend_of_rounds_and_forests() -> None:
    X, y = interacting()
    model = GALRegressor(PARTS, random_state=0).fit(X, y)
    _, _, answers = model._replies(X[:50])
    ensemble, stacker = model.ensemble_, model.stacker_
    assert isinstance(stacker, Stacker)
    used = [
        {name: answers.values[name][index] for name in counts}
        for index, counts in enumerate(ensemble.coefficients)
    ]
    plain = final_output(ensemble, answers)
    features = Features.of_rounds(plain, used, ensemble.coefficients)
    pieces = [plain, *(predicted(one, SquaredError(), features) for one in stacker.models)]
    expected = sum(weight * one for weight, one in zip(stacker.weights, pieces, strict=True))
    assert model.predict(X[:50]) == pytest.approx(np.asarray(expected)[:, 0])
    assert sum(stacker.weights) == pytest.approx(1)
    assert stacker.share == pytest.approx(1 - stacker.weights[0])


def _breaks(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fit(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(ExtraTreesRegressor, "fit", fit)


@pytest.mark.usefixtures("few_are_many")
def test_its_failure_says_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = interacting(FEW)
    _breaks(monkeypatch, ValueError("no thanks"))
    with pytest.raises(LocalModelError, match="the stacker failed: no thanks"):
        GALRegressor(PARTS, rounds=2, random_state=0).fit(X, y)


@pytest.mark.usefixtures("few_are_many")
def test_ctrl_c_while_it_is_fitted_keeps_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = interacting(FEW)
    _breaks(monkeypatch, KeyboardInterrupt())
    with pytest.warns(InterruptedWarning, match="rounds are kept"):
        model = GALRegressor(PARTS, rounds=2, random_state=0).fit(X, y)
    assert model.stacker_ is None
    assert np.isfinite(model.predict(X)).all()
