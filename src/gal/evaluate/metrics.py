"""Scores, higher is better, and what they need of a model; plain numpy, for thousands of resamples."""

from __future__ import annotations

import difflib
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from gal.engine.labels import are_classes
from gal.errors import InvalidOptionError


@dataclass(frozen=True)
class Metric:
    """A score of predictions; ``words`` completes "the model ..." for people."""

    name: str
    classes: bool
    score: Callable[[NDArray[Any], NDArray[Any]], float]
    words: str

    needs: str = "predictions"
    """Of a model: its predictions, the positive class's probability, or all probabilities."""

    @property
    def best(self) -> float:
        """The highest score that there is; infinite where that is not known."""
        return {"auc": 1.0, "accuracy": 1.0, "r2": 1.0, "neg_mae": 0.0}.get(self.name, math.inf)

    def said(self, score: float) -> str:
        """What the model does, for people: "explains 17.8% of the differences between rows"."""
        if self.name == "r2" and score < 0:
            return "explains nothing of the differences between rows (the mean of all is nearer)"
        return self.words.format(score)

    def output(self, model: Any, X: Any) -> NDArray[Any]:
        """What the score needs of a fitted model."""
        return self.from_said(np.asarray(model.predict_proba(X) if self.classes else model.predict(X)))

    def from_said(self, said: NDArray[Any]) -> NDArray[Any]:
        """What the score needs, from probabilities of classes that are codes 0..C-1, or from numbers."""
        if not self.classes:
            return said
        if self.needs == "predictions":
            return np.asarray(said.argmax(axis=1))
        return np.asarray(said[:, 1] if self.needs == "positive" else said)


def auc(truth: NDArray[Any], score: NDArray[Any]) -> float:
    """Area under the ROC curve, from ranks."""
    positive = truth == truth.max()
    ordered = np.sort(score)  # rankdata of scipy finds the same, and takes ten times as long for a few rows
    ranks = (np.searchsorted(ordered, score) + np.searchsorted(ordered, score, side="right") + 1) / 2
    n_positive = int(positive.sum())
    n_negative = len(truth) - n_positive
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def accuracy(truth: NDArray[Any], prediction: NDArray[Any]) -> float:
    """Share of rows with the right class."""
    return float((truth == prediction).mean())


def r2(truth: NDArray[Any], prediction: NDArray[Any]) -> float:
    """Share of the variance that is explained."""
    spread = float(np.square(truth - truth.mean()).sum())
    return 1 - float(np.square(truth - prediction).sum()) / spread if spread > 0 else 0.0


def mean_absolute_error(truth: NDArray[Any], prediction: NDArray[Any]) -> float:
    """Mean absolute error (the paper's MAD); lower is better."""
    return float(np.abs(truth - prediction).mean())


def negative_mae(truth: NDArray[Any], prediction: NDArray[Any]) -> float:
    """Minus the mean absolute error."""
    return -mean_absolute_error(truth, prediction)


def log_loss(truth: NDArray[Any], probability: NDArray[Any]) -> float:
    """Mean negative log probability of the right class; lower is better. ``truth`` has codes 0..C-1."""
    right = probability[np.arange(len(truth)), truth.astype(int)]
    return -float(np.log(np.clip(right, 1e-15, 1)).mean())


METRICS = {
    "auc": Metric(
        "auc", True, auc, "ranks a positive case above a negative one in {:.1%} of pairs", "positive"
    ),
    "accuracy": Metric("accuracy", True, accuracy, "is right for {:.1%} of the rows"),
    "r2": Metric("r2", False, r2, "explains {:.1%} of the differences between rows"),
    "neg_mae": Metric("neg_mae", False, negative_mae, "has a mean error of {:.4g} (shown negative)"),
}


FOR_NUMBERS = re.compile(
    r"r2|explained_variance|max_error|d2_absolute_error_score|neg_(max|mean|median|root_mean)_.*"
)
"""Names of scikit-learn's scorers that are for numbers; the others are for classes."""


class _Said(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Stands in for a classifier that has said these probabilities of all rows."""

    def __init__(self, n_classes: int = 2) -> None:
        self.n_classes = n_classes
        self.classes_ = np.arange(n_classes)

    def predict_proba(self, X: NDArray[Any]) -> NDArray[Any]:
        return X

    def decision_function(self, X: NDArray[Any]) -> NDArray[Any]:
        return X[:, 1] if self.n_classes == 2 else X

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(X.argmax(axis=1))


class _SaidNumbers(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Stands in for a regressor that has said these numbers of all rows."""

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        return X


def metric_named(name: str) -> Metric:
    """One of ours, or any scorer of scikit-learn by its name (``average_precision``, ``neg_log_loss``)."""
    if name in METRICS:
        return METRICS[name]
    from sklearn.metrics import get_scorer, get_scorer_names

    names = get_scorer_names()
    if name not in names:
        close = difflib.get_close_matches(name, [*METRICS, *names], n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise InvalidOptionError(
            f"metric must be auto, one of {', '.join(METRICS)}, or a scorer of scikit-learn such as "
            f"average_precision, got {name!r}: {meant}sklearn.metrics.get_scorer_names() lists all"
        )
    scorer, classes = get_scorer(name), FOR_NUMBERS.fullmatch(name) is None

    def score(truth: NDArray[Any], said: NDArray[Any]) -> float:
        if not classes:
            return float(scorer(_SaidNumbers(), said, truth))
        if said.ndim == 1:  # classes, and nothing about how sure they are
            said = np.eye(int(max(truth.max(), said.max())) + 1)[said.astype(np.intp)]
        return float(scorer(_Said(said.shape[1]), said, truth))

    words = f"reaches {{:.4g}} in {name.removeprefix('neg_').replace('_', ' ')}"
    words += " (shown negative)" if name.startswith("neg_") else ""
    return Metric(name, classes, score, words, "probabilities" if classes else "predictions")


def _check_suits(metric: Metric, y: NDArray[Any]) -> None:
    """A scorer for two classes and labels of three, for example: said before anything is learned."""
    codes = np.unique(y, return_inverse=True)[1]
    n_classes = int(codes.max()) + 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if metric.classes:
                metric.score(codes, np.eye(n_classes)[codes])
            else:
                metric.score(y, y)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidOptionError(
            f"{metric.name} cannot judge these labels: {str(error).splitlines()[0]}"
        ) from error


def metric_for(name: str, y: NDArray[Any]) -> Metric:
    """The metric of this name; "auto": AUC for two classes, accuracy for more, R2 for numbers."""
    if name != "auto":
        chosen = metric_named(name)
        if not chosen.classes and y.dtype.kind not in "iufb":
            raise InvalidOptionError(f"{name} is for numbers, these labels are text: use auc or accuracy")
        if chosen.classes and not are_classes(y):
            raise InvalidOptionError(f"{name} is for classes, these labels are numbers: use r2 or neg_mae")
        if chosen.name == "auc" and len(np.unique(y)) != 2:
            raise InvalidOptionError(
                f"auc is for two classes, these labels have {len(np.unique(y))}: use accuracy"
            )
        if name not in METRICS:
            _check_suits(chosen, y)
        return chosen
    if not are_classes(y):
        return METRICS["r2"]
    return METRICS["auc" if len(np.unique(y)) == 2 else "accuracy"]
