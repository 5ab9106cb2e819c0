"""What is written down about a learned model, whatever it learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.state import Ensemble
from gal.evaluate import metrics


def score(metric: str, y: NDArray[Any], prediction: NDArray[Any]) -> float:
    """The scores of class probabilities (n, C), or of predicted numbers (n,)."""
    if metric == "mad":
        return metrics.mean_absolute_error(y, prediction)
    if metric == "auc":
        return metrics.auc(y, prediction[:, 1])
    return 100 * metrics.accuracy(y, prediction.argmax(axis=1))


def quality(metric: str, y: NDArray[Any], prediction: NDArray[Any]) -> dict[str, float]:
    """More of the final model than the score."""
    return (
        {"r2": metrics.r2(y, prediction)}
        if metric == "mad"
        else {"log_loss": metrics.log_loss(y, prediction)}
    )


def frequencies(y: NDArray[np.int64], rows: int) -> NDArray[Any]:
    """The predicted class probabilities before the first round."""
    return np.tile(np.bincount(y) / len(y), (rows, 1))


def rounds_of(ensemble: Ensemble | None) -> dict[str, Any]:
    """Rates and weights of the rounds that the final model uses; none for other methods than GAL."""
    kept = [] if ensemble is None else ensemble.rounds[: ensemble.n_rounds]
    return {
        "rates": [float(one.rate) for one in kept],
        "weights": [{name: float(weight) for name, weight in one.weights.items()} for one in kept],
    }


def validation_loss(ensemble: Ensemble | None, stacker: Any = None) -> float | None:
    """The loss of the stacker where there is one, else of the kept rounds; None without validation."""
    if ensemble is None:
        return None
    losses = [ensemble.initial_validation_loss, *(one.validation_loss for one in ensemble.rounds)]
    loss = float(
        losses[min(ensemble.n_rounds, len(losses) - 1)] if stacker is None else stacker.validation_loss
    )
    return loss if np.isfinite(loss) else None
