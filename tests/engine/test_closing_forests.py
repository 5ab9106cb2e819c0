"""The forests of the closing model: how they grow, which rows they see, and which of their trees are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from gal.engine.labels import class_labels
from gal.engine.options import Options
from gal.engine.stacking import (
    DRAWN,
    FIRST_TREES,
    LEAF_OF_TWO,
    TREES_OF_TWO,
    Closing,
    KeptReplies,
    Stacking,
    features,
    said,
)
from gal.engine.task_making import make_task
from gal.models.adapters import set_seed
from gal.models.grown_forests import ask_forest, grow_forest
from small_tables import crossed


def heard(n_classes: int) -> tuple[Any, Any, Any]:
    """A task, what counts, and the replies of one round: of two classes or more, that only both tell."""
    X, y = crossed(2100)
    edges = np.quantile(y, np.arange(1, n_classes) / n_classes)
    labels = class_labels(np.digitize(y, edges), Options())
    task = make_task(labels, ["left", "right"], Options(), label_holder="left")
    wide = np.ones((1, labels.loss.n_outputs))
    replies = {name: (X[:, [at]] * wide).astype(np.float32) for name, at in (("left", 0), ("right", 2))}
    return task, [{"left": 0.1, "right": 0.1}], [replies]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_forest_that_grew_in_two_steps_is_the_one_that_grew_at_once(
    monkeypatch: pytest.MonkeyPatch, n_classes: int
) -> None:
    given = heard(n_classes)
    in_two = Stacking()(*given, rival=0.6)
    monkeypatch.setattr("gal.engine.stacking.FIRST_TREES", 1000)
    at_once = Stacking()(*given)
    assert isinstance(in_two, Closing)
    assert isinstance(at_once, Closing)
    assert len(in_two.model.estimators_) == len(at_once.model.estimators_) > FIRST_TREES
    rows = features(np.zeros((2100, given[0].loss.n_outputs)), given[2])
    loss = given[0].loss
    np.testing.assert_array_equal(said(in_two.model, loss, rows), said(at_once.model, loss, rows))
    assert (in_two.share, in_two.validation_loss) == (at_once.share, at_once.validation_loss)
    assert in_two.model.get_params() == at_once.model.get_params()


def test_what_matters_little_beside_a_rival_is_not_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    networks: list[int] = []
    monkeypatch.setattr("gal.engine.stacking._network", lambda _, rows: networks.append(len(rows)))
    given = heard(3)
    free = Stacking()(*given)
    assert isinstance(free, Closing)
    near, far = (Stacking()(*given, rival=loss) for loss in (free.validation_loss, -999.0))
    assert isinstance(near, Closing)
    assert isinstance(far, Closing)
    assert (near.share, near.validation_loss) == (free.share, free.validation_loss)
    assert len(far.model.estimators_) == FIRST_TREES
    assert networks == [1890, 1890]  # the third is not even tried


def test_first_trees_without_a_share_are_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    task, counts, replies = heard(2)
    noise = np.random.default_rng(1).normal(size=(2100, 1)).astype(np.float32)
    sure = np.where(task.y > 0, 9.0, -9.0).astype(np.float32)  # the rounds know all there is
    grown: list[int] = []

    def counted(forest: Any, *given: Any) -> Any:
        grown.append(forest.n_estimators)
        return grow_forest(forest, *given)

    monkeypatch.setattr("gal.engine.stacking.grow_forest", counted)
    assert Stacking()(task, [{"left": 1.0, "right": 0.0}], [{"left": sure, "right": noise}]) is None
    assert grown == [FIRST_TREES]
    Stacking()(task, counts, replies)
    assert grown[1:] == [FIRST_TREES, TREES_OF_TWO]


def test_the_forest_of_two_classes_is_a_classifiers() -> None:
    """It fits 0 and 1 as numbers, because that is faster: nobody should see it."""
    task, counts, replies = heard(2)
    found = Stacking()(task, counts, replies)
    assert isinstance(found, Closing)
    rest = np.setdiff1d(np.arange(2100), task.rows.validation)
    received = KeptReplies(task, counts, replies)
    oracle = ExtraTreesClassifier(TREES_OF_TWO, min_samples_leaf=LEAF_OF_TWO)
    set_seed(oracle, task.seed)
    oracle.fit(received.table(rest), task.y[rest, 0])
    table = received.table(task.rows.validation)
    assert said(found.model, task.loss, table) == pytest.approx(said(oracle, task.loss, table))


def test_trees_that_are_followed_little_see_some_of_the_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    given = heard(2)
    much = Stacking()(*given)
    assert isinstance(much, Closing)
    monkeypatch.setattr("gal.engine.stacking.MUCH", 2.0)
    little = Stacking()(*given)
    assert isinstance(little, Closing)
    for closing, rows, more in ((much, 1890, 2100), (little, int(DRAWN * 1890), int(DRAWN * 2100))):
        grown = Stacking().whole(closing, *given).model.estimators_
        seen = [int(tree.tree_.weighted_n_node_samples[0]) for tree in grown]
        assert seen == [rows] * TREES_OF_TWO + [more] * TREES_OF_TWO


@pytest.mark.parametrize("drawn", [False, True])
def test_forests_that_are_grown_here_are_those_of_scikit_learn(drawn: bool) -> None:
    rng = np.random.default_rng(0)
    table, target = rng.normal(size=(700, 5)).astype(np.float32), (rng.random(700) < 0.3).astype(np.float64)
    options = {"bootstrap": True, "max_samples": 0.3} if drawn else {}
    ours, theirs = (
        ExtraTreesRegressor(7, max_features="sqrt", min_samples_leaf=3, random_state=5, **options)
        for _ in range(2)
    )
    theirs.fit(table, target)
    grow_forest(ours.set_params(n_estimators=3, warm_start=True), table, target)
    grow_forest(ours.set_params(n_estimators=7), table, target)
    assert vars(ours).keys() == vars(theirs).keys()
    for one, other in zip(ours.estimators_, theirs.estimators_, strict=True):
        assert one.get_params() == other.get_params()
        assert vars(one).keys() == vars(other).keys()
        mine, its = one.tree_.__getstate__(), other.tree_.__getstate__()
        assert mine["nodes"].tobytes() == its["nodes"].tobytes()
        assert mine["values"].tobytes() == its["values"].tobytes()
    np.testing.assert_array_equal(ask_forest(ours, table), theirs.predict(table))
    with pytest.raises(ValueError, match="4 features"):
        ask_forest(ours, table[:, :4])
