"""Scores, higher is better, and what they need of a model; plain numpy, for thousands of resamples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from gal.engine.labels import are_classes
from gal.errors import InvalidOptionError


@dataclass(frozen=True)
class Metric:
    """A score of predictions; ``words`` completes "the model ..." for people."""

    name: str
    classes: bool
    score: Callable[[NDArray[Any], NDArray[Any]], float]
    words: str

    def output(self, model: Any, X: Any) -> NDArray[Any]:
        """What the score needs of a fitted model."""
        return self.from_said(np.asarray(model.predict_proba(X) if self.classes else model.predict(X)))

    def from_said(self, said: NDArray[Any]) -> NDArray[Any]:
        """What the score needs, from probabilities of classes that are codes 0..C-1, or from numbers."""
        if not self.classes:
            return said
        return np.asarray(said[:, 1] if self.name == "auc" else said.argmax(axis=1))


def auc(truth: NDArray[Any], score: NDArray[Any]) -> float:
    """Area under the ROC curve, from ranks."""
    positive = truth == truth.max()
    ranks = rankdata(score)
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
    "auc": Metric("auc", True, auc, "ranks a positive case above a negative one in {:.1%} of pairs"),
    "accuracy": Metric("accuracy", True, accuracy, "is right for {:.1%} of the rows"),
    "r2": Metric("r2", False, r2, "explains {:.1%} of the differences between rows"),
    "neg_mae": Metric("neg_mae", False, negative_mae, "has a mean error of {:.4g} (shown negative)"),
}


def metric_for(name: str, y: NDArray[Any]) -> Metric:
    """The metric of this name; "auto": AUC for two classes, accuracy for more, R2 for numbers."""
    if name != "auto":
        if name not in METRICS:
            raise InvalidOptionError(f"metric must be auto or one of {', '.join(METRICS)}, got {name!r}")
        chosen = METRICS[name]
        if not chosen.classes and y.dtype.kind not in "iufb":
            raise InvalidOptionError(f"{name} is for numbers, these labels are text: use auc or accuracy")
        if chosen.name == "auc" and len(np.unique(y)) != 2:
            raise InvalidOptionError(
                f"auc is for two classes, these labels have {len(np.unique(y))}: use accuracy"
            )
        return chosen
    if not are_classes(y):
        return METRICS["r2"]
    return METRICS["auc" if len(np.unique(y)) == 2 else "accuracy"]
