"""What the options of the estimators do: losses, initial outputs, local losses, presets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from gal import Algorithm, GALClassifier, GALRegressor
from gal.assembling import grouped
from gal.core.line_search import ExactSearch, LBFGSSearch
from gal.core.losses import AbsoluteError, SquaredError
from gal.core.task import Task
from gal.core.weights import SoftmaxAdamWeights, UniformWeights
from gal.errors import InvalidOptionError
from gal.learner.labels import class_labels, regression_labels
from gal.learner.task_making import make_task
from gal.models import LinearModel, PaperLinear
from small_tables import PARTS, Floats, classifier, health, ill, regressor

# --- losses, initial outputs, local losses


def outliers() -> tuple[pd.DataFrame, Floats]:
    X, y = health()
    target = np.array(y)
    target[::10] += 30
    return X, target


@pytest.mark.parametrize("loss", ["absolute_error", "huber"])
def test_robust_losses_forgive_outliers(loss: str) -> None:
    X, y = outliers()
    _, clean = health()
    robust = regressor(loss=loss, rounds=10).fit(X, y)
    squared = regressor(rounds=10).fit(X, y)
    assert np.abs(robust.predict(X) - clean).mean() < 0.5 * np.abs(squared.predict(X) - clean).mean()


def test_poisson_loss_predicts_positive_means() -> None:
    X, y = health(300)
    counts = np.random.default_rng(0).poisson(np.exp(0.5 * y))
    model = regressor(loss="poisson", rounds=10).fit(X, counts)
    assert model.predict(X).min() > 0
    assert np.corrcoef(np.log(model.predict(X)), y)[0, 1] > 0.9
    parts = model.explain(X)
    np.testing.assert_allclose(np.exp(parts.sum(axis=1)), model.predict(X))


def test_a_pair_of_functions_is_a_loss_for_classes_too() -> None:
    def value(y: Floats, output: Floats) -> Floats:
        return np.logaddexp(0, output[:, 0]) - y[:, 0] * output[:, 0]

    def gradient(y: Floats, output: Floats) -> Floats:
        return np.asarray(expit(output) - y)

    X, y = ill()
    own = classifier(loss=(value, gradient)).fit(X, y)
    assert own.score(X, y) > 0.9
    np.testing.assert_allclose(own.predict_proba(X).sum(axis=1), 1.0)


def test_local_losses_reach_the_local_models() -> None:
    X, y = outliers()
    _, clean = health()
    losses: tuple[Any, ...] = (None, "l1", {"bank": "l1"}, "l4")
    fitted = [
        regressor(rounds=1, local_models=LinearModel(), algorithm__local_losses=one).fit(X, y)
        for one in losses
    ]
    squared, absolute, mixed_, l4 = fitted
    outputs = [one.explain(X) for one in (squared, absolute, mixed_, l4)]
    assert not np.allclose(outputs[0]["bank"], outputs[1]["bank"])
    assert not np.allclose(outputs[0]["bank"], outputs[2]["bank"])
    assert not np.allclose(outputs[1]["lab"], outputs[2]["lab"])
    errors = [np.abs(one.predict(X) - np.median(y) - (clean - clean.mean())).mean() for one in (absolute, l4)]
    assert errors[0] < errors[1]


# --- presets


def task_of(model: GALRegressor | GALClassifier, y: Any) -> Task:
    """The task that the estimator's options describe."""
    options = model._options()
    labels = (regression_labels if isinstance(model, GALRegressor) else class_labels)(y, options)
    initial = model.get_params()["algorithm__initial"]
    return make_task(labels, list(PARTS), options, label_holder="bank", initial=initial)


def test_the_paper_preset_is_the_authors_algorithm() -> None:
    X, y = health()
    task = task_of(regressor(algorithm__preset="paper"), y)
    assert isinstance(task.loss, AbsoluteError)
    assert isinstance(task.weights, SoftmaxAdamWeights)
    assert isinstance(task.line_search, LBFGSSearch)
    assert not task.scale_residual
    assert task.rows.n_cv_folds == 0
    assert len(task.rows.validation) == 0
    assert len(task.rows.fit) == len(task.rows.search) == len(X)
    assert (task.stopping.min_rate, task.stopping.patience, task.stopping.plateau) == (None, None, None)
    np.testing.assert_allclose(task.first_output, y.mean())


def test_what_is_given_wins_over_the_preset() -> None:
    _, y = health()
    given = regressor(
        algorithm__preset="paper",
        loss="squared_error",
        algorithm__weights="uniform",
        algorithm__line_search="exact",
        algorithm__scale_residual=True,
        validation__fraction=0.25,
        algorithm__initial="median",
    )
    task = task_of(given, y)
    assert isinstance(task.loss, SquaredError)
    assert isinstance(task.weights, UniformWeights)
    assert isinstance(task.line_search, ExactSearch)
    assert task.scale_residual
    assert len(task.rows.validation) == 30
    np.testing.assert_allclose(task.first_output, np.median(y[task.rows.fit]))


def test_the_paper_preset_learns_with_the_authors_linear_model() -> None:
    X, y = ill()
    model = GALClassifier(PARTS, algorithm=Algorithm(preset="paper"), rounds=2, random_state=0).fit(X, y)
    assert len(model.rounds_) == model.n_rounds_ == 2
    assert model.decision_function(X).shape == (len(X),)
    assert all(np.isnan(one.validation_loss) for one in model.rounds_)
    assert model.score(X, y) > 0.8
    assert isinstance(model._organizations["bank"].model, PaperLinear)


# --- groups of parameters


def test_parameters_of_groups_can_be_searched_and_copied() -> None:
    X, y = ill()
    model = GALClassifier(PARTS, local_models=LinearModel(), rounds=2, random_state=0)
    assert len(model.get_params(deep=False)) == 14
    grid = {"validation__folds": [0, 4], "algorithm__weights": ["uniform"]}
    search = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert search.best_estimator_.algorithm.weights == "uniform"
    assert (model.validation, model.algorithm) == (None, None)
    given = clone(model.set_params(algorithm__preset="paper"))
    assert given.get_params()["algorithm__preset"] == "paper"
    assert given.algorithm is not model.algorithm
    assert grouped({"fitted": "held-out", "stacking": False, "rounds": 3})["algorithm"].stacking is False


def test_groups_must_be_of_their_kind() -> None:
    X, y = ill()
    with pytest.raises(InvalidOptionError, match=r"validation must be None or gal.Validation\(...\), got 4"):
        GALClassifier(PARTS, validation=4).fit(X, y)  # type: ignore[arg-type]
