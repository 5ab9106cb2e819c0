"""Metrics of predictions, higher is better, and how predictions fit the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score

from gal.errors import InvalidOptionError, suggestion
from gal.learner.labels import are_classes
from gal.privacy.leakage import Share

Floats = NDArray[np.float64]
Score = Callable[[NDArray[Any], NDArray[Any]], float]

SMALLEST = 1e-15
"""Lower bound of probabilities in a log loss."""


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


def log_losses(truth: NDArray[Any], probability: NDArray[Any]) -> Floats:
    """Minus the log probability of the right class, row by row; ``truth`` has codes 0..C-1."""
    right = probability[np.arange(len(truth)), truth.astype(int)]
    return np.asarray(-np.log(np.clip(right, SMALLEST, 1)))


def log_loss(truth: NDArray[Any], probability: NDArray[Any]) -> float:
    """Mean log loss; lower is better."""
    return float(log_losses(truth, probability).mean())


def _auc_rows(truth: NDArray[Any], score: NDArray[Any]) -> Floats:
    """The share of the other class that each row is ranked right against (DeLong et al., 1988)."""
    positive = truth == truth.max()
    ranks, n, n_positive = rankdata(score), len(truth), int(positive.sum())
    right = np.empty(n)
    right[positive] = (ranks[positive] - rankdata(score[positive])) / (n - n_positive)
    right[~positive] = 1 - (ranks[~positive] - rankdata(score[~positive])) / n_positive
    whole = right[positive].mean()
    return np.asarray(whole + (right - whole) * np.where(positive, n / n_positive, n / (n - n_positive)))


def _r2_rows(truth: NDArray[Any], prediction: NDArray[Any]) -> Floats:
    spread = np.square(truth - truth.mean())
    if not spread.mean() > 0:
        return np.zeros(len(truth))
    missed = np.square(truth - prediction)
    left = missed.mean() / spread.mean()
    return np.asarray(1 - missed / spread.mean() + left * (spread / spread.mean() - 1))


@dataclass(frozen=True)
class Metric:
    """A score of predictions; ``words`` completes "the model ..." for people."""

    name: str
    classes: bool
    score: Score
    words: str
    needs: Literal["predictions", "positive", "probabilities"] = "predictions"
    """Of a model: its predictions, the positive class's probability, or all probabilities."""
    rows: Callable[[NDArray[Any], NDArray[Any]], Floats] | None = None
    """Numbers whose mean is the score, one per row, with the spread of the score; None: not known."""

    @property
    def best(self) -> float:
        """The highest possible score."""
        return 0.0 if self.name.startswith("neg_") else 1.0

    def sentence(self, score: float) -> str:
        """The score in words: "explains 17.8% of the differences between rows"."""
        if self.name == "r2" and score < 0:
            return "explains nothing of the differences between rows (their mean is a better prediction)"
        return self.words.format(score)

    def inputs(self, output: NDArray[Any]) -> NDArray[Any]:
        """The arguments of the score, from probabilities of classes 0..C-1, or from numbers."""
        if not self.classes:
            return output
        if self.needs == "predictions":
            return np.asarray(output.argmax(axis=1))
        return np.asarray(output[:, 1] if self.needs == "positive" else output)


METRICS = {
    one.name: one
    for one in (
        Metric(
            "auc",
            True,
            auc,
            "ranks a positive case above a negative one in {:.1%} of pairs",
            "positive",
            _auc_rows,
        ),
        Metric(
            "average_precision",
            True,
            lambda truth, score: float(average_precision_score(truth, score)),
            "reaches {:.4g} in average precision",
            "positive",
        ),
        Metric(
            "accuracy",
            True,
            accuracy,
            "is right for {:.1%} of the rows",
            rows=lambda truth, prediction: (truth == prediction).astype(np.float64),
        ),
        Metric(
            "neg_log_loss",
            True,
            lambda truth, probability: -log_loss(truth, probability),
            "has a log loss of {:.4g} (shown negative)",
            "probabilities",
            lambda truth, probability: -log_losses(truth, probability),
        ),
        Metric("r2", False, r2, "explains {:.1%} of the differences between rows", rows=_r2_rows),
        Metric(
            "neg_mae",
            False,
            lambda truth, prediction: -mean_absolute_error(truth, prediction),
            "has a mean error of {:.4g} (shown negative)",
            rows=lambda truth, prediction: -np.abs(truth - prediction).astype(np.float64),
        ),
    )
}


def metric_for(name: str, y: NDArray[Any]) -> Metric:
    """The metric of this name; "auto": AUC for two classes, accuracy for more, R2 for numbers."""
    n_values = len(np.unique(y))
    if name == "auto":
        return METRICS["r2" if not are_classes(y) else "auc" if n_values == 2 else "accuracy"]
    if name not in METRICS:
        raise InvalidOptionError(
            f"metric must be auto or one of {', '.join(METRICS)}, got {name!r}.{suggestion(name, METRICS)}"
        )
    chosen = METRICS[name]
    if not chosen.classes and y.dtype.kind not in "iufb":
        raise InvalidOptionError(f"{name} is for numbers, these labels are text: use auc or accuracy")
    if chosen.classes and not are_classes(y):
        raise InvalidOptionError(f"{name} is for classes, these labels are numbers: use r2 or neg_mae")
    if chosen.needs == "positive" and n_values != 2:
        raise InvalidOptionError(f"{name} is for two classes, these labels have {n_values}: use accuracy")
    return chosen


# Predicted against true

GROUPS, FEWEST = 10, 10
"""The most groups of rows, and the fewest rows of each: no single row can be read from them."""


@dataclass(frozen=True)
class QualityGroup:
    """Rows with similar predictions."""

    predicted: float
    """Their mean prediction."""
    true: float
    """The share of them in the predicted class; for numbers their mean."""
    low: float
    high: float
    """The share's 95 % interval; for numbers the middle 80 % of them."""
    rows: int


@dataclass(frozen=True)
class Quality:
    """Predicted against true, of rows that were not fitted."""

    kind: Literal["two classes", "classes", "numbers"]
    """Of more than two classes: the highest probability, against how often its class is right."""
    rows: int
    groups: Sequence[QualityGroup]
    positive: str = ""
    """The name of the second of two classes."""


def quality_of(truth: NDArray[Any], output: Floats, classes: Sequence[Any] | None) -> Quality:
    """Predicted against true values, in groups of rows: numbers (n,), or probabilities (n, C) of ``classes``.

    >>> quality_of(np.arange(40) % 2, np.full((40, 2), 0.5), ["no", "yes"]).groups
    [QualityGroup(predicted=0.5, true=0.5, low=0.338, high=0.662, rows=40)]
    """
    kind: Literal["two classes", "classes", "numbers"]
    if classes is None:
        predicted, true, kind = np.asarray(output, dtype=np.float64), truth.astype(np.float64), "numbers"
    elif len(classes) == 2:
        predicted, true, kind = output[:, 1], truth == 1, "two classes"
    else:
        predicted, true, kind = output.max(axis=1), output.argmax(axis=1) == truth, "classes"
    groups = []
    for rows in _groups(predicted):
        if classes is None:
            low, high = np.quantile(true[rows], [0.1, 0.9])
        else:
            low, high = Share(int(true[rows].sum()), len(rows)).interval()
        values = [float(f"{one:.4g}") for one in (predicted[rows].mean(), true[rows].mean(), low, high)]
        groups.append(QualityGroup(values[0], values[1], values[2], values[3], len(rows)))
    return Quality(kind, len(truth), groups, str(classes[1]) if classes and kind == "two classes" else "")


def _groups(predicted: Floats) -> list[NDArray[np.intp]]:
    """Rows in groups of similar predictions and about the same size; equal predictions stay together."""
    order = np.argsort(predicted, kind="stable")
    wanted = max(min(GROUPS, len(order) // FEWEST), 1)
    ranked = predicted[order]
    cuts = [0]
    for k in range(1, wanted):
        cut = int(np.searchsorted(ranked, ranked[len(order) * k // wanted]))
        if cut - cuts[-1] >= FEWEST and len(order) - cut >= FEWEST:
            cuts.append(cut)
    return np.split(order, cuts[1:])


__all__ = ["METRICS", "Metric", "Quality", "metric_for", "quality_of"]
