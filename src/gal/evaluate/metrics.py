"""Scores, higher is better, and what they need of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from gal.errors import InvalidOptionError, did_you_mean
from gal.learner.labels import are_classes


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
        """The highest score that there is."""
        return 0.0 if self.name.startswith("neg_") else 1.0

    def said(self, score: float) -> str:
        """What the model does, for people: "explains 17.8% of the differences between rows"."""
        if self.name == "r2" and score < 0:
            return "explains nothing of the differences between rows (the mean of all is nearer)"
        return self.words.format(score)

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
    one.name: one
    for one in (
        Metric("auc", True, auc, "ranks a positive case above a negative one in {:.1%} of pairs", "positive"),
        Metric(
            "average_precision",
            True,
            lambda truth, score: float(average_precision_score(truth, score)),
            "reaches {:.4g} in average precision",
            "positive",
        ),
        Metric("accuracy", True, accuracy, "is right for {:.1%} of the rows"),
        Metric(
            "neg_log_loss",
            True,
            lambda truth, said: -log_loss(truth, said),
            "has a log loss of {:.4g} (shown negative)",
            "probabilities",
        ),
        Metric("r2", False, r2, "explains {:.1%} of the differences between rows"),
        Metric("neg_mae", False, negative_mae, "has a mean error of {:.4g} (shown negative)"),
    )
}


def metric_for(name: str, y: NDArray[Any]) -> Metric:
    """The metric of this name; "auto": AUC for two classes, accuracy for more, R2 for numbers."""
    n_values = len(np.unique(y))
    if name == "auto":
        return METRICS["r2" if not are_classes(y) else "auc" if n_values == 2 else "accuracy"]
    if name not in METRICS:
        raise InvalidOptionError(
            f"metric must be auto or one of {', '.join(METRICS)}, got {name!r}.{did_you_mean(name, METRICS)}"
        )
    chosen = METRICS[name]
    if not chosen.classes and y.dtype.kind not in "iufb":
        raise InvalidOptionError(f"{name} is for numbers, these labels are text: use auc or accuracy")
    if chosen.classes and not are_classes(y):
        raise InvalidOptionError(f"{name} is for classes, these labels are numbers: use r2 or neg_mae")
    if chosen.needs == "positive" and n_values != 2:
        raise InvalidOptionError(f"{name} is for two classes, these labels have {n_values}: use accuracy")
    return chosen
