"""Small models that move, views that live elsewhere, and data of any shape, for several tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge

from gal import Organization
from gal.models.sequences import Sequences

Floats = NDArray[np.float64]


class Drifting(BaseEstimator):  # type: ignore[misc]
    """Random features that drift in every round, and one ridge head per round: all are fitted anew."""

    stateful = True

    def __init__(
        self, n_features: int = 12, drift: float = 0.5, in_place: bool = False, random_state: Any = None
    ) -> None:
        self.n_features = n_features
        self.drift = drift
        self.in_place = in_place
        self.random_state = random_state

    def fit_round(
        self, X: Any, residual: Any, *, round: int, previous: Drifting | None, sample_weight: Any = None
    ) -> Drifting:
        rng = np.random.default_rng(self.random_state)
        learned = self if previous is None or not self.in_place else previous
        columns = flat(X).shape[1]
        shape = (columns, self.n_features)
        body = rng.normal(size=shape) / np.sqrt(columns)
        residuals: dict[int, Any] = {}
        if previous is not None:
            body = previous.body_ + self.drift * body
            residuals = {done: previous.residuals_[done] for done in previous.rounds_ if done < round}
        learned.body_ = body
        learned.residuals_ = residuals | {round: np.array(residual)}
        learned.rounds_ = tuple(learned.residuals_)
        features = learned.features(X)
        learned.heads_ = {
            done: Ridge(0.1).fit(features, target, sample_weight)
            for done, target in learned.residuals_.items()
        }
        return learned

    def release(self) -> None:
        self.residuals_: dict[int, Any] = {}

    def features(self, X: Any) -> Floats:
        inputs = flat(X)
        return np.column_stack([np.tanh(inputs @ self.body_), inputs])

    def predict_round(self, X: Any, round: int) -> Floats:
        return np.asarray(self.predict_rounds(X, (round,))[0])

    def predict_rounds(self, X: Any, rounds: Sequence[int]) -> Floats:
        features = self.features(X)
        return np.array(
            [np.reshape(self.heads_[round].predict(features), (len(features), -1)) for round in rounds]
        )


class Flattened(Ridge):  # type: ignore[misc]
    """A ridge regression on a view of any shape."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return super().fit(flat(X), y, sample_weight)

    def predict(self, X: Any) -> Any:
        return super().predict(flat(X))


def flat(X: Any) -> Floats:
    values = X.values if isinstance(X, Sequences) or hasattr(X, "iloc") else X
    values = values.numbers if isinstance(values, Moved) else values
    return np.asarray(values, dtype=np.float64).reshape(len(values), -1)


class Moved:
    """A view that lives elsewhere: it has a shape, and takes rows."""

    def __init__(self, numbers: Floats) -> None:
        self.numbers = numbers
        self.shape = numbers.shape

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> Moved:
        return Moved(self.numbers[rows])


def data(n: int = 150, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    y = X[:, 0] + np.sin(2 * X[:, 2]) + X[:, 4] * X[:, 5] + 0.1 * rng.normal(size=n)
    return X, y


def members(models: Sequence[Any] = (), n: int = 150) -> tuple[list[Organization], Floats]:
    X, y = data(n)
    chosen = models or (Drifting(), Drifting(), Drifting())
    return [
        Organization(name, X[:, 2 * m : 2 * m + 2], chosen[m]) for m, name in enumerate(("a", "b", "c"))
    ], y


PREPARED: list[str] = []


class There(Drifting):
    """Computes elsewhere, and says when a view was brought there."""

    def prepare(self, view: Any) -> Moved:
        if isinstance(view, Moved):
            return view
        PREPARED.append("brought")
        return Moved(flat(view))

    def features(self, X: Any) -> Floats:
        return super().features(self.prepare(X))


class RidgeThere(Flattened):
    """The same for an ordinary model."""

    def prepare(self, view: Any) -> Moved:
        return There().prepare(view)

    def predict(self, X: Any) -> Any:
        return super().predict(self.prepare(X))


def images(n: int = 90) -> tuple[dict[str, Any], NDArray[Any]]:
    """Pictures, sequences and codes, and classes that need them."""
    rng = np.random.default_rng(0)
    pictures = rng.normal(size=(n, 1, 4, 3))
    steps = Sequences(rng.normal(size=(n, 5, 2)), rng.integers(0, 6, size=n))
    codes = Sequences(rng.integers(0, 9, size=(n, 4)), np.full(n, 4))
    y = (pictures[:, 0, 1, 1] + steps.values[:, 0, 0] + 0.2 * codes.values[:, 0] > 0.8).astype(int)
    return {"camera": pictures, "ward": steps, "coder": codes}, y


OPTIONS: dict[str, Any] = {"rounds": 4, "seed": 3, "validation_fraction": 0.0}
