"""Views of any shape, prepared once where the model computes; the learners and the contract on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.linear_model import LinearRegression

import gal
from gal import Organization
from gal.assembling import grouped
from gal.core.line_search import mean_loss
from gal.core.requests import FitRequest, PredictRequest
from gal.errors import InvalidInputError, InvalidOptionError
from gal.learner.drivers import Traffic
from gal.learner.labels import class_labels, regression_labels
from gal.learner.options import Options
from gal.learner.task_making import make_task
from gal.models import Sequences, check_local_model
from gal.models.adapters import PerOutput, as_local_model, prepared
from gal_bench.baselines import learn_assisted
from moving_models import (
    OPTIONS,
    PREPARED,
    Drifting,
    Flattened,
    Floats,
    Moved,
    RidgeThere,
    There,
    data,
    flat,
    images,
    members,
)

# --- views of any shape, prepared views


@pytest.mark.parametrize("fitted", ["in-sample", "held-out"])
@pytest.mark.parametrize("local", [Drifting(), Flattened()])
def test_views_have_any_shape(fitted: str, local: Any) -> None:
    views, y = images()
    organizations = [Organization(name, view, local) for name, view in views.items()]
    ensemble = gal.learn(
        y,
        organizations,
        rounds=3,
        algorithm=gal.Algorithm(fitted=fitted),
        validation=gal.Validation(fraction=0.1),
    )
    rows = np.arange(20)
    few = gal.predict(ensemble, organizations, {name: view[rows] for name, view in views.items()}).output
    np.testing.assert_allclose(few, gal.predict(ensemble, organizations).output[:20], atol=1e-5)


@pytest.mark.parametrize("local", [There(), RidgeThere(), PerOutput(RidgeThere(), all_at_once=True)])
def test_a_view_is_prepared_once_for_a_task(local: Any) -> None:
    organizations, y = members([local] * 3)
    PREPARED.clear()
    ensemble = gal.learn(y, organizations, **grouped(OPTIONS | {"validation_fraction": 0.2}))
    assert len(PREPARED) == 3
    assert all(one.prepared is None for one in organizations)
    gal.predict(ensemble, organizations)
    assert len(PREPARED) == 3 + len(ensemble.requested())
    assert not any(isinstance(one.view, Moved) for one in organizations)


def test_other_processes_prepare_their_own_views() -> None:
    results = []
    for n_jobs in (1, 2):
        organizations, y = members([There(), RidgeThere(), There()])
        PREPARED.clear()
        with parallel_config("loky"):
            results.append(gal.learn(y, organizations, n_jobs=n_jobs, **grouped(OPTIONS)))
        assert len(PREPARED) == (3 if n_jobs == 1 else 0)
    assert repr(results[0]) == repr(results[1])


class Nowhere(RidgeThere):
    def prepare(self, view: Any) -> Moved:
        raise RuntimeError("no such device")


def test_who_cannot_prepare_is_left_out() -> None:
    organizations, y = members([There(), Nowhere(), There()])
    ensemble = gal.learn(y, organizations, **grouped(OPTIONS))
    for done in ensemble.rounds:
        assert "'b': Nowhere could not prepare its view: no such device" in done.left_out["b"]


def test_the_hook_of_the_inner_model_counts() -> None:
    X, _ = data()
    assert isinstance(prepared(as_local_model(RidgeThere(), 2), X), Moved)
    assert prepared(as_local_model(LinearRegression(), 2), X) is X


def test_an_organization_answers_by_hand() -> None:
    organizations, y = members([There()] * 3)
    one = organizations[0]
    chosen = Options(cross_validation=0, validation_fraction=0.0, stacking=False)
    terms = make_task(regression_labels(y, chosen), ["a"], chosen, label_holder="a", stateful=["a"]).terms
    for t in (1, 2):
        values = one.fit(FitRequest(t, (y[:, None] / t).astype(np.float32), ("a",)), terms)
    said = one.revisit(PredictRequest((1, 2), ("a",)), terms)
    np.testing.assert_array_equal(said[1], values)
    np.testing.assert_array_equal(said, one.predict(PredictRequest((1, 2), ("a",)), 1))
    one.release()
    assert one.prepared is None


# --- the contract


@pytest.mark.parametrize("local", [Drifting(), Drifting(in_place=True), There(), RidgeThere()])
def test_the_models_here_keep_the_contract(local: Any) -> None:
    check_local_model(local)


class Stale(Drifting):
    def predict_round(self, X: Any, round: int) -> Floats:
        return super().predict_round(X, round) + 1


class Ordered(Drifting):
    def predict_rounds(self, X: Any, rounds: Sequence[int]) -> Floats:
        return super().predict_rounds(X, sorted(rounds))


class Amnesic(Drifting):
    def fit_round(self, X: Any, residual: Any, *, previous: Any, **rest: Any) -> Drifting:
        return super().fit_round(X, residual, previous=None, **rest)


class Hoarding(Drifting):
    def fit_round(self, X: Any, residual: Any, *, previous: Any, **rest: Any) -> Drifting:
        learned = super().fit_round(X, residual, previous=previous, **rest)
        learned.rounds_ = tuple(dict.fromkeys([*(previous.rounds_ if previous else ()), *learned.rounds_]))
        return learned


class Distorting(Drifting):
    def prepare(self, view: Any) -> Moved:
        return view if isinstance(view, Moved) else Moved(flat(view) ** 2)


@pytest.mark.parametrize(
    ("local", "message"),
    [
        (Stale(), "predict_round and predict_rounds differ in round 4"),
        (Ordered(), "predict_round and predict_rounds differ in round 4"),
        (Amnesic(), r"rounds_ is \(4,\) after rounds \(1, 2, 4\)"),
        (Hoarding(), r"rounds_ is \(1, 2, 4\) after rounds \(1, 2, 4, 2\)"),
        (Distorting(), "its predictions for the view differ"),
    ],
)
def test_checks_find_who_breaks_it(local: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_local_model(local)


def test_assisted_learning_of_any_views() -> None:
    views, y = images()
    organizations = {name: Organization(name, view, RidgeThere()) for name, view in views.items()}
    chosen = Options(rounds=3, validation_fraction=0.2, stacking=False)  # which it does not use
    labels = class_labels(y, chosen)
    task = make_task(labels, list(views), chosen, label_holder="camera")
    order = ["camera", "ward", "coder"]
    PREPARED.clear()
    traffic = Traffic()
    ensemble = learn_assisted(task, organizations, order=order, rate=0.5, traffic=traffic)
    assert len(PREPARED) == 3
    assert traffic.trips == 6
    output = gal.predict(ensemble, list(organizations.values())).output
    assert mean_loss(labels.loss, labels.y, output) == pytest.approx(ensemble.train_loss, rel=1e-6)
    assert ensemble.train_loss < ensemble.initial_train_loss
    last = learn_assisted(task, organizations, order=order, last_only=True)
    assert last.requested() == ("coder",)


def test_assisted_learning_says_what_it_cannot_take() -> None:
    views, y = images()
    organizations = {name: Organization(name, view, Drifting()) for name, view in views.items()}
    chosen = Options(cross_validation=0, stacking=False)
    task = make_task(class_labels(y, chosen), list(views), chosen, label_holder="camera")
    with pytest.raises(InvalidOptionError, match="the models of camera, ward, coder move"):
        learn_assisted(task, organizations, order=["camera", "ward", "coder"])


def test_the_default_model_wants_a_table() -> None:
    with pytest.raises(InvalidInputError, match=r"'lab'.*\(4, 1, 8, 8\) is no table.*TorchModel"):
        Organization("lab", np.zeros((4, 1, 8, 8)))
    with pytest.raises(InvalidInputError, match="is no table"):
        Organization("ward", Sequences(np.zeros((4, 3), dtype=int), np.ones(4, dtype=int)))
