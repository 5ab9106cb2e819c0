"""The closing model: hears what columns of different organizations say together, and never makes it worse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import LinearSVC

from gal import GALClassifier, GALRegressor, Organization, learn, predict
from gal.core.losses import AbsoluteError, BinaryLogLoss, MultinomialLogLoss, SquaredError
from gal.core.state import Progress
from gal.engine.labels import class_labels
from gal.engine.options import Options
from gal.engine.stacking import (
    TREES_OF_TWO,
    Closing,
    Stacking,
    _sharpness,
    closes,
    features,
    said,
)
from gal.engine.task_making import make_task
from gal.errors import InvalidInputError, InvalidOptionError, LocalModelError
from gal.models.adapters import fit_weighted
from gal.models.answer_network import AnswerNetwork
from gal.privacy import RandomisedResponse
from gal.privacy.protection import protect
from gal.storage import load_ensemble, read_archive, save_ensemble, write_archive
from gal.warnings import InterruptedWarning
from small_tables import crossed

PARTS = {"left": [0, 1], "right": [2, 3]}
FEW = 700
"""Rows where not how much is heard is looked at, and the number of what is many is lowered."""


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.engine.task_making.LARGE", FEW - 100)
    monkeypatch.setattr("gal.engine.task_making.SIGNS", 4)
    for name in ("TREES", "TREES_OF_TWO"):
        monkeypatch.setattr(f"gal.engine.stacking.{name}", 10)


def regressor(parts: Any, **options: Any) -> GALRegressor:
    """With a closing model as the last one: crossed residuals would leave it nothing."""
    return GALRegressor(parts, **options)


def classifier(parts: Any, **options: Any) -> GALClassifier:
    return GALClassifier(parts, **options)


def test_it_hears_what_organizations_say_together() -> None:
    X, y = crossed()
    X_test, y_test = crossed(seed=1)
    plain = regressor(PARTS, closing=False, random_state=0).fit(X, y)
    closed = regressor(PARTS, random_state=0).fit(X, y)
    assert closed.closing_ is not None
    assert closed.score(X_test, y_test) > plain.score(X_test, y_test) + 0.3


def test_classes_too() -> None:
    X, y = crossed()
    X_test, y_test = crossed(seed=1)
    plain = classifier(PARTS, closing=False, random_state=0).fit(X, y > 0)
    closed = classifier(PARTS, random_state=0).fit(X, y > 0)
    assert closed.score(X_test, y_test > 0) > plain.score(X_test, y_test > 0) + 0.05
    three = classifier(PARTS, random_state=0).fit(X, np.digitize(y, [-0.5, 0.5]))
    assert three.closing_ is not None
    assert three.predict_proba(X_test).sum(axis=1) == pytest.approx(1)


def test_where_it_adds_nothing_it_is_left_out_or_hardly_heard() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = X.sum(axis=1) + rng.normal(size=3000)
    plain = regressor(PARTS, local_models=Ridge(), closing=False, random_state=0).fit(X, y)
    closed = regressor(PARTS, local_models=Ridge(), random_state=0).fit(X, y)
    X_test = rng.normal(size=(3000, 4))
    truth = X_test.sum(axis=1)
    assert np.abs(closed.predict(X_test) - truth).mean() < np.abs(plain.predict(X_test) - truth).mean() + 0.05


def test_its_output_is_on_the_way_from_the_rounds_to_its_model() -> None:
    X, y = crossed()
    model = regressor(PARTS, random_state=0).fit(X, y)
    *_, before, last = model._staged_outputs(X[:50])
    _, _, answers = model._ask(X[:50])
    rounds = [
        {name: answers.values[name][index] for name in counts}
        for index, counts in enumerate(model.ensemble_.coefficients)
    ]
    plain = before + sum(
        count * rounds[-1][name].astype(np.float64)
        for name, count in model.ensemble_.coefficients[-1].items()
    )
    closing = model.closing_
    assert isinstance(closing, Closing)
    own = said(closing.model, SquaredError(), features(plain, rounds))
    closed = plain + closing.share * (own - plain)
    assert closing.network is None
    assert last == pytest.approx(closed)
    assert model.predict(X[:50]) == pytest.approx(last[:, 0])


def test_it_is_fitted_on_all_rows_once_validation_rows_have_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share, its loss and who earned what are of the model that did not know them."""
    X, y = crossed(2100)
    members = [Organization("left", X[:, :2]), Organization("right", X[:, 2:])]
    options: dict[str, Any] = {"rounds": 2, "closing": KNeighborsRegressor(3)}
    whole = learn(y, members, **options)
    monkeypatch.setattr(Stacking, "whole", lambda self, closing, *_: closing)
    judged = learn(y, members, **options)
    assert isinstance(whole.closing, Closing)
    assert isinstance(judged.closing, Closing)
    assert (judged.closing.model.n_samples_fit_, whole.closing.model.n_samples_fit_) == (1890, 2100)
    assert whole.closing.share == judged.closing.share
    assert whole.closing.validation_loss == judged.closing.validation_loss
    assert whole.shares is not None
    assert whole.shares == judged.shares


def test_for_two_classes_a_forest_keeps_the_trees_that_were_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = crossed(2100)
    members = [Organization("left", X[:, :2]), Organization("right", X[:, 2:])]
    labels = np.where(y > np.median(y), "high", "low")
    whole = learn(labels, members, rounds=2).closing
    monkeypatch.setattr(Stacking, "whole", lambda self, closing, *_: closing)
    judged = learn(labels, members, rounds=2).closing
    assert isinstance(whole, Closing)
    assert isinstance(judged, Closing)
    kept, grown, n = judged.model.estimators_, whole.model.estimators_, TREES_OF_TWO
    assert (len(kept), len(grown), whole.model.n_estimators) == (n, 2 * n, 2 * n)
    for one, same, other in zip(kept, grown[:n], grown[n:], strict=True):
        assert one.tree_.threshold.tobytes() == same.tree_.threshold.tobytes()
        assert (one.tree_.n_node_samples[0], other.tree_.n_node_samples[0]) == (1890, 2100)
        assert one.random_state != other.random_state


def three_classes(n: int = 2100, seed: int = 0) -> tuple[Any, Any]:
    X, y = crossed(n, seed)
    return X, np.digitize(y, [-0.5, 0.5])


def test_a_timid_model_is_taken_to_be_more_certain() -> None:
    rng = np.random.default_rng(0)
    truth = 3 * rng.normal(size=(4000, 3))
    truth -= truth.mean(axis=1, keepdims=True)
    chance = np.exp(truth) / np.exp(truth).sum(axis=1, keepdims=True)
    y = (rng.random((4000, 1)) > chance.cumsum(axis=1)).sum(axis=1, keepdims=True).astype(float)
    loss, nothing = MultinomialLogLoss(3), np.zeros((4000, 3))
    assert _sharpness(loss, y, nothing, truth / 4, None) * (1 - 0.5) == pytest.approx(4, rel=0.1)
    half = np.where(np.arange(4000) < 2000, 1.0, 0.0)
    wrong = np.where(half[:, None] > 0, truth / 4, -truth)  # of rows that count nothing
    assert _sharpness(loss, y, nothing, wrong, half) * (1 - 0.5) == pytest.approx(4, rel=0.15)


def test_few_rows_that_are_all_right_prove_no_certainty() -> None:
    y = (np.arange(30) % 3)[:, None].astype(float)
    right = np.eye(3)[y[:, 0].astype(int)] - 1 / 3
    found = _sharpness(MultinomialLogLoss(3), y, np.zeros((30, 3)), right, None)
    assert 1 < found * (1 - 0.5) < 8


def test_for_several_classes_a_network_follows_the_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = three_classes()
    members = [Organization("left", X[:, :2]), Organization("right", X[:, 2:])]
    options: dict[str, Any] = {"rounds": 3}
    both = learn(y, members, **options)
    closing = both.closing
    assert isinstance(closing, Closing)
    assert closing.network is not None
    assert 0 < closing.network_share <= 1
    assert closing.sharpness > 0
    monkeypatch.setattr("gal.engine.stacking.SMALLEST_OF_NETWORK", 2.0)
    without = learn(y, members, **options).closing
    assert isinstance(without, Closing)
    assert without.network is None
    assert without.share == closing.share
    assert closing.validation_loss < without.validation_loss


def test_its_output_is_what_forest_and_network_say() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)).astype(np.float32), np.arange(300) % 3
    X[np.arange(300), y] += 2
    answers, output = [{"left": X}], X.astype(np.float64)
    network = AnswerNetwork.fit(answers, y, 3, None, seed=0)
    forest = ExtraTreesClassifier(4, random_state=0).fit(features(output, answers), y)
    loss = MultinomialLogLoss(3)
    assert network is not None
    own = 2.5 * said(forest, loss, features(output, answers))
    closed = output + 0.6 * (own - output)
    expected = closed + 0.25 * (network.output(answers) - closed)
    found = Closing(forest, 0.6, 0.0, loss, 2.5, network, 0.25).output(output, answers)
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_network_is_stored_and_files_without_one_are_read(tmp_path: Path) -> None:
    X, y = three_classes()
    members = [Organization("left", X[:, :2]), Organization("right", X[:, 2:])]
    ensemble = learn(y, members, rounds=2)
    assert isinstance(ensemble.closing, Closing)
    assert ensemble.closing.network is not None
    save_ensemble(ensemble, tmp_path / "now.gal")
    now = load_ensemble(tmp_path / "now.gal")
    assert predict(now, members).output.tobytes() == predict(ensemble, members).output.tobytes()
    before = replace(ensemble.closing)
    for name in ("sharpness", "network", "network_share"):
        vars(before).pop(name)  # as a file of 0.2 has it
    save_ensemble(replace(ensemble, closing=before), tmp_path / "before.gal")
    read = load_ensemble(tmp_path / "before.gal").closing
    assert isinstance(read, Closing)
    assert (read.sharpness, read.network, read.share) == (1.0, None, ensemble.closing.share)


def test_small_tables_the_paper_preset_and_other_losses_have_none() -> None:
    X, y = crossed(400)
    assert regressor(PARTS, random_state=0).fit(X, y).closing_ is None
    X, y = crossed(2500)
    paper = regressor(PARTS, local_models=Ridge(), preset="paper", rounds=2, random_state=0)
    assert paper.fit(X, y).closing_ is None
    absolute = regressor(PARTS, loss="absolute_error", rounds=2, random_state=0)
    assert absolute.fit(X, y).closing_ is None
    assert not closes(AbsoluteError())


@pytest.mark.usefixtures("few_are_many")
def test_a_model_of_ones_own_closes() -> None:
    (X, y), own = crossed(FEW), HistGradientBoostingClassifier(max_iter=20)
    model = classifier(PARTS, closing=own, random_state=0).fit(X, y > 0)
    assert isinstance(model.closing_, Closing)
    assert isinstance(model.closing_.model, HistGradientBoostingClassifier)
    again = classifier(PARTS, closing=own, random_state=0).fit(X, y > 0)
    assert (model.predict_proba(X) == again.predict_proba(X)).all()


@pytest.mark.usefixtures("few_are_many")
def test_explanations_still_add_up() -> None:
    X, y = crossed(FEW)
    model = regressor(PARTS, random_state=0).fit(X, y)
    parts = model.explain(X[:20])
    assert "closing model" in parts.columns
    assert parts.sum(axis=1).to_numpy() == pytest.approx(model.predict(X[:20]))


@pytest.mark.usefixtures("few_are_many")
def test_saved_and_loaded(tmp_path: Path) -> None:
    X, y = crossed(FEW)
    model = regressor(PARTS, random_state=0).fit(X, y)
    model.save(tmp_path / "model.gal")
    assert (GALRegressor.load(tmp_path / "model.gal").predict(X) == model.predict(X)).all()


@pytest.mark.usefixtures("few_are_many")
def test_an_ensemble_takes_it_along(tmp_path: Path) -> None:
    X, y = crossed(FEW, 3)
    members = [Organization("left", X[:, :2]), Organization("right", X[:, 2:])]
    ensemble = learn(y, members, rounds=2)
    save_ensemble(ensemble, tmp_path / "ensemble.gal")
    loaded = load_ensemble(tmp_path / "ensemble.gal")
    assert loaded.closing is not None
    assert predict(loaded, members).output.tobytes() == predict(ensemble, members).output.tobytes()


@pytest.mark.usefixtures("few_are_many")
def test_files_of_before_are_read(tmp_path: Path) -> None:
    """They have the closing model among what was fitted, not with the ensemble, and no network."""
    X, y = crossed(FEW)
    model = regressor(PARTS, rounds=2, random_state=0).fit(X, y)
    assert isinstance(model.closing_, Closing)
    model.ensemble_ = replace(model.ensemble_, closing=replace(model.closing_, network=None))
    expected, path = model.predict(X), tmp_path / "model.gal"
    model.save(path)
    facts, ensemble, objects = read_archive(path)
    assert ensemble is not None
    objects["fitted"]["closing_"] = ensemble.closing
    write_archive(path, facts, replace(ensemble, closing=None), objects)
    assert (GALRegressor.load(path).predict(X) == expected).all()


@pytest.mark.usefixtures("few_are_many")
def test_an_organization_may_be_missing() -> None:
    X, y = crossed(FEW)
    model = regressor(PARTS, random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X, missing=["right"])).all()


def test_weights_of_rows_are_heard() -> None:
    X, y = crossed()
    weight = np.where(X[:, 0] > 0, 1.0, 0.0)
    turned = np.where(X[:, 0] > 0, y, -y)  # rows that count nothing say the opposite
    model = regressor(PARTS, random_state=0).fit(X, turned, sample_weight=weight)
    good = X[:, 0] > 0
    assert np.corrcoef(model.predict(X[good]), y[good])[0, 1] > 0.8


@pytest.mark.usefixtures("few_are_many")
def test_only_how_weights_compare_counts_for_the_closing_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    """scikit-learn takes a share of their sum for a number of rows: trees of one row, or of petabytes."""
    X, y = crossed(FEW)
    weight, heard = np.random.default_rng(0).random(FEW) * 1e-9, list[Any]()

    def noting(model: Any, table: Any, target: Any, weights: Any) -> Any:
        heard.append(weights)
        return fit_weighted(model, table, target, weights)

    monkeypatch.setattr("gal.engine.stacking.fit_weighted", noting)
    regressor(PARTS, random_state=0).fit(X, y, sample_weight=weight)
    assert heard
    assert all(abs(one.mean() - 1) < 1e-9 for one in heard)


@pytest.mark.parametrize("wrong", ["forest", 3, HistGradientBoostingClassifier])
def test_nonsense_is_refused(wrong: Any) -> None:
    X, y = crossed(100)
    with pytest.raises(InvalidOptionError, match="closing must be"):
        regressor(PARTS, closing=wrong).fit(X, y)


class Sure:
    """A forest of three trees that are certain."""

    n_estimators = 3

    def __init__(self, classes: list[int]) -> None:
        self.classes_ = np.array(classes)

    def predict_proba(self, table: Any) -> Any:
        return np.tile(np.eye(len(self.classes_))[0], (len(table), 1))


def test_certainties_of_a_forest_are_none() -> None:
    table = np.zeros((1, 1), dtype=np.float32)
    odds = said(Sure([0, 1]), BinaryLogLoss(), table)
    assert odds == pytest.approx(np.log((0.5 / 4) / (3.5 / 4)))
    three = said(Sure([0, 2]), MultinomialLogLoss(3), table)  # class 1 was not among its rows
    probability = np.exp(three) / np.exp(three).sum()
    assert probability[0] == pytest.approx([(3 + 1 / 3) / 4, 1 / 12, 1 / 12])


def test_rows_with_a_missing_answer_are_left_to_the_rounds() -> None:
    """It never met a mean in place of an answer: there the sum of the rounds is the better guess."""
    X, y = crossed()
    closed = regressor(PARTS, random_state=0).fit(X, y)
    plain = regressor(PARTS, closing=False, random_state=0).fit(X, y)
    assert closed.predict(X, missing=["right"]) == pytest.approx(plain.predict(X, missing=["right"]))
    some = closed.predict(X[:4], missing={"right": [0, 2]})
    assert some[[0, 2]] == pytest.approx(plain.predict(X[:4], missing={"right": [0, 2]})[[0, 2]])
    assert some[[1, 3]] == pytest.approx(closed.predict(X[:4])[[1, 3]])


def of_her_own(n: int = 2500, seed: int = 1) -> tuple[Any, Any]:
    """Labels that hang on columns of the left only; the right has noise."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, 2)), rng.normal(size=(n, 2))])
    return X, np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0) + X[:, 0] + 0.3 * rng.normal(size=n)


def test_a_label_holder_who_goes_alone_has_the_closing_model_of_one_alone() -> None:
    X, y = of_her_own(seed=1)
    model = regressor(PARTS, weights="shrunk", random_state=0).fit(X, y)  # unguarded: noise gets in
    alone = regressor({"left": [0, 1]}, random_state=0).fit(X, y)
    assert model.ensemble_.track == "alone"
    assert model.closing_ is not None
    assert model.closing_.validation_loss == model.ensemble_.alone_validation_loss
    assert model.predict(X) == pytest.approx(alone.predict(X))


def test_the_guard_compares_closed_models() -> None:
    """With ridge regressions she is better alone by the sum, but not once both sums are closed."""
    X, y = of_her_own()
    options: dict[str, Any] = {"local_models": Ridge(), "weights": "shrunk", "random_state": 0}
    plain = regressor(PARTS, closing=False, **options).fit(X, y).ensemble_
    closed = regressor(PARTS, **options).fit(X, y).ensemble_
    assert (plain.track, closed.track) == ("alone", "assisted")
    assert closed.closing is not None
    assert closed.closing.validation_loss < closed.alone_validation_loss <= plain.alone_validation_loss


def test_several_outputs_are_closed_together() -> None:
    X, y = crossed()
    both = np.column_stack([y, X[:, 1] * X[:, 3] + X[:, 1]])
    X_test, y_test = crossed(seed=1)
    both_test = np.column_stack([y_test, X_test[:, 1] * X_test[:, 3] + X_test[:, 1]])
    closed = regressor(PARTS, random_state=0).fit(X, both)
    plain = regressor(PARTS, closing=False, random_state=0).fit(X, both)
    assert closed.closing_ is not None
    assert closed.score(X_test, both_test) > plain.score(X_test, both_test) + 0.2


@pytest.mark.parametrize(
    ("options", "rows", "said_of_it"),
    [
        ({"closing": True}, 300, "validation_fraction=0.1"),
        ({"closing": True, "loss": "absolute_error"}, 2500, "no closing model is known for the loss"),
        ({"closing": HistGradientBoostingClassifier()}, 2500, "must be a regressor here"),
    ],
)
def test_what_is_not_possible_is_said_before_the_first_round(
    options: dict[str, Any], rows: int, said_of_it: str
) -> None:
    X, y = crossed(rows)
    with pytest.raises(InvalidOptionError, match=said_of_it):
        regressor(PARTS, **options).fit(X, y)


@pytest.mark.usefixtures("few_are_many")
def test_a_classifier_must_tell_probabilities() -> None:
    X, y = crossed(FEW)
    for wrong in (LinearSVC(), Ridge()):
        with pytest.raises(InvalidOptionError, match="predict_proba"):
            classifier(PARTS, closing=wrong).fit(X, y > 0)


class Broken(Ridge):  # type: ignore[misc]
    """Fails where the closing model is fitted."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        raise self.error


@pytest.mark.usefixtures("few_are_many")
def test_its_failure_says_whose_it_is() -> None:
    X, y = crossed(FEW)
    Broken.error = ValueError("no thanks")
    with pytest.raises(LocalModelError, match="the closing model Broken failed: no thanks"):
        regressor(PARTS, rounds=2, closing=Broken(), random_state=0).fit(X, y)


@pytest.mark.usefixtures("few_are_many")
def test_ctrl_c_while_it_is_fitted_keeps_the_rounds() -> None:
    X, y = crossed(FEW)
    Broken.error = KeyboardInterrupt()
    with pytest.warns(InterruptedWarning, match="without a closing model"):
        model = regressor(PARTS, rounds=2, closing=Broken(), random_state=0).fit(X, y)
    assert model.closing_ is None
    assert np.isfinite(model.predict(X)).all()


def test_in_parts_there_is_the_same() -> None:
    """``gal.learn`` keeps the replies, closes as the estimator does, and ``gal.predict`` uses it."""
    X, y = crossed(2100)
    left, right = Organization("left", X[:, :2]), Organization("right", X[:, 2:])
    model = regressor(PARTS, rounds=3, random_state=0).fit(X, y)
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    ensemble = learn(y, [left, right], rounds=3, seed=seed)
    assert isinstance(ensemble.closing, Closing)
    found = predict(ensemble, [left, right])
    np.testing.assert_array_equal(found.output[:, 0], model.predict(X))
    plain = learn(y, [left, right], rounds=3, seed=seed, closing=False)
    assert plain.closing is None
    same, closed = (
        replace(one, assisted_validation_loss=0.0, alone_validation_loss=0.0, shares=None)
        for one in (plain, ensemble)
    )  # each is compared as it predicts
    assert same == closed, "the rounds are the same"
    assert (predict(plain, [left, right]).output != found.output).any()


@pytest.mark.usefixtures("few_are_many")
def test_in_parts_who_cannot_be_asked_is_left_to_the_rounds() -> None:
    X, y = crossed(FEW, 3)
    left, right = Organization("left", X[:, :2]), Organization("right", X[:, 2:])
    views = {"left": X[:5, :2]}
    ensemble = learn(y, [left, right], rounds=2)
    assert ensemble.closing is not None
    found = predict(ensemble, [left, right], views)
    assert found.degraded.all()
    plain = replace(ensemble, closing=None)
    np.testing.assert_array_equal(found.output, predict(plain, [left, right], views).output)


@pytest.mark.usefixtures("few_are_many")
def test_a_resumed_task_is_closed_as_one_that_was_not_interrupted() -> None:
    X, y = crossed(FEW, 3)
    members = [Organization("left", X[:, :2]), Organization("right", X[:, 2:])]
    noted: list[Progress] = []
    whole = learn(y, members, rounds=3, on_round=noted.append)
    output = predict(whole, members).output
    resumed = learn(y, members, rounds=3, progress=noted[1])
    assert resumed.closing is not None
    assert predict(resumed, members).output.tobytes() == output.tobytes()
    with pytest.raises(InvalidInputError, match="a closing model need"):
        learn(y, members, rounds=3, progress=replace(noted[1], fitted=()))


@pytest.mark.usefixtures("few_are_many")
def test_cores_change_nothing() -> None:
    X, y = crossed(FEW)
    one, two = (regressor(PARTS, rounds=2, n_jobs=jobs, random_state=0).fit(X, y) for jobs in (None, 2))
    assert isinstance(two.closing_, Closing)
    assert (
        two.closing_.model.n_jobs is None
    )  # with two, trees would be added up in the order in which they come
    assert one.predict(X).tobytes() == two.predict(X).tobytes()


def test_an_absurd_answer_does_not_stop_it() -> None:
    """A sum beyond what float32 holds is the largest number for it, not an error."""
    largest = float(np.finfo(np.float32).max)
    table = features(np.array([[1e300], [-1e300]]), [{"left": np.full((2, 1), largest, dtype=np.float32)}])
    assert table[:, 0].tolist() == [largest, -largest]


@pytest.mark.parametrize(
    ("privacy", "closed"), [(None, True), (RandomisedResponse(1.0, classes=[0, 1]), False)]
)
def test_under_a_guarantee_the_private_refit_takes_its_place(privacy: Any, closed: bool) -> None:
    """A task that every driver could run: whatever it does after the rounds is in it."""
    _, y = crossed(2100)
    labels = class_labels((y > 0).astype(int), Options())
    seen = protect(privacy, labels, Options(), seed=0)
    names = ["left", "right"]
    task = make_task(seen.labels, names, seen.options, label_holder="left", private=seen.private)
    assert (task.closing is not None) is closed
    assert task.keeps_fitted  # for either
