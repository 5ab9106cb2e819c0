"""Residuals by the curve of the loss: against second derivatives, and against Newton's own steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from gal import GALClassifier
from gal.assembling import grouped
from gal.core.losses import BinaryLogLoss, MultinomialLogLoss
from gal.core.steps import FLATTEST, newton_residual
from gal.learner.labels import class_labels, regression_labels
from gal.learner.options import Options
from gal.learner.task_making import make_task


@pytest.mark.parametrize("loss", [BinaryLogLoss(), MultinomialLogLoss(4)])
def test_the_curvature_is_the_second_derivative_over_all_outputs(loss: Any) -> None:
    rng = np.random.default_rng(0)
    output = rng.normal(size=(50, loss.n_outputs))
    y = rng.integers(max(loss.n_outputs, 2), size=(50, 1)).astype(float)
    directions = np.eye(loss.n_outputs)
    curvatures = [loss.along(y, output, np.tile(one, (50, 1)))[1] for one in directions]
    expected = np.maximum(np.sum(curvatures, axis=0), FLATTEST)
    importance = rng.random(50)
    residual, counts = newton_residual(loss, y, output, importance)
    np.testing.assert_allclose(counts, expected * importance, rtol=1e-6)
    np.testing.assert_allclose(residual * expected[:, None], loss.pseudo_residual(y, output), atol=1e-6)


def test_rounds_of_least_squares_are_newtons_steps_of_logistic_regression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)) * [1.0, 3.0, 0.2]
    y = rng.random(400) < 1 / (1 + np.exp(-(X @ [1.0, -1.0, 2.0] + 1.5)))
    best = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, y).predict_proba(X)
    how: dict[str, Any] = {
        "validation_fraction": 0,
        "cross_validation": 0,
        "fitted": "in-sample",
        "rounds": 5,
    }

    def error(large: int) -> float:
        monkeypatch.setattr("gal.learner.task_making.LARGE", large)
        model = GALClassifier({"all": [0, 1, 2]}, local_models=LinearRegression(), **grouped(how))
        return float(np.abs(model.fit(X, y).predict_proba(X) - best).max())

    assert error(len(X)) < 1e-4 < 1e-3 < error(len(X) + 1)


def labels_of(n: int) -> Any:
    return class_labels(np.arange(n) % 2, Options())


class TestWhen:
    def newton(self, n: int = 2000, options: Any = None, **how: Any) -> bool:
        made = make_task(labels_of(n), ["a", "b"], Options(**(options or {})), label_holder="a", **how)
        return made.newton

    def test_for_classes_in_large_tables(self) -> None:
        assert self.newton()
        assert not self.newton(n=1999)

    def test_not_where_something_else_is_apart(self) -> None:
        assert not self.newton(options={"preset": "paper"})
        assert not self.newton(stateful=["b"])
        assert not self.newton(private=True)
        assert not self.newton(tables=False)

    def test_numbers_have_none(self) -> None:
        numbers = regression_labels(np.arange(2000.0), Options())
        assert not make_task(numbers, ["a"], Options(), label_holder="a").newton
