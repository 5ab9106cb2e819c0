"""Requests: all that an organization receives from the label holder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gal.core.rows import Rows

Floats = NDArray[Any]
Track = Literal["assisted", "alone"]
"""The model that a request belongs to: with assistance, or the label holder's baseline without it."""

Target = Literal["residual", "random", "probe"]
"""A residual; random numbers, with no label in them; or a residual times sign bits, fitted out of fold."""


@dataclass(frozen=True)
class Terms:
    """What every organization knows of the task before the first round."""

    rows: Rows
    n_outputs: int
    rounds: int
    seed: int

    def rows_for(self, request: FitRequest) -> Rows:
        """Row roles of a request: of the task, of its cross-validation without a fold, or of the sample of
        probes, numbered within it.
        """
        if request.fold is not None:
            return self.rows.without(request.fold)
        if request.target == "residual":
            return self.rows
        sample = self.rows.of_probes
        return sample if request.target == "probe" else replace(sample, folds=None)


@dataclass(frozen=True)
class FitRequest:
    """Fit these residuals; the reply has fitted values of all rows, float32 of shape (n, K)."""

    round: int
    """1, 2, ...: t"""
    residual: NDArray[np.float32]
    """r_1^t of the fit rows, divided by its scale; shape (n_fit, K)."""
    organizations: tuple[str, ...]
    """The organizations that receive it."""
    sample_weight: NDArray[np.float64] | None = None
    """Importance of the fit rows, where the label holder shares it."""
    track: Track = "assisted"
    fold: int | None = None
    """The part of the cross-validation that is left out; None in the task itself."""
    target: Target = "residual"
    """What ``residual`` holds; random numbers and probes belong to the sample of rows of probes."""


@dataclass(frozen=True)
class PredictRequest:
    """Predict these rounds; the reply is float32 of shape (len(rounds), n, K).

    The rows are new ones in the prediction stage. At the end of learning they are the task's own: stateful
    models are re-evaluated.
    """

    rounds: tuple[int, ...]
    organizations: tuple[str, ...]
    track: Track = "assisted"


Request = FitRequest | PredictRequest


class Release(Protocol):
    """Adds noise to a residual before it is sent."""

    @property
    def takes_scaled(self) -> bool:
        """Whether it takes residuals of unit size; else what it returns is scaled."""

    def __call__(self, residual: Floats, round: int, track: Track, fold: int | None) -> Floats:
        """The residual (n, K) to send for this request."""


class EndLearning(Exception):
    """Thrown into ``learn`` by a driver to end it now and keep the finished rounds."""
