"""The linear model of the authors of GAL: minibatch SGD, in numpy instead of torch.

It reproduces their tables. It stops well before the optimum, and clipped gradients make it depend on the
residual's scale; other uses are better served by :class:`gal.models.LinearModel`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gal.core.local_losses import LocalLoss, PowerLoss
from gal.core.local_losses import local_loss as find_local_loss
from gal.errors import InvalidOptionError
from gal.models.linear import row_weights

Singles = NDArray[np.float32]


@dataclass(eq=False, repr=False)
class PaperLinear(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """SGD with momentum, weight decay and clipped gradients on the mean of ``|error|**q``.

    ``y`` is (n,) or (n, K); ``coef_`` (K, d) and ``intercept_`` (K,) belong to the standardised
    columns. The authors give every organization a layer over all organizations' columns, with foreign columns
    set to zero. These weights change no output and are omitted here; they only affect the range of the
    initial weights, by ``init_features`` (columns of all organizations; default: own columns). The learning
    rate is divided by 10 after ``drop_epoch`` epochs.

    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> PaperLinear(random_state=0).fit(X, 2 * X[:, 0]).score(X, 2 * X[:, 0]) > 0.99
    True
    """

    local_loss: str | LocalLoss = "l2"
    init_features: int | None = None
    _: KW_ONLY
    epochs: int = 100
    drop_epoch: int = 50
    batch_size: int = 1024
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    clip_norm: float = 1.0
    standardize: bool = True
    random_state: int | np.random.RandomState | None = None

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> PaperLinear:
        """Fit all outputs together, in float32."""
        if self.epochs < 1 or self.batch_size < 1:
            raise InvalidOptionError(
                f"PaperLinear needs epochs >= 1 and batch_size >= 1, got {self.epochs!r}, {self.batch_size!r}"
            )
        loss = find_local_loss(self.local_loss)
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=np.float64)
        weight = row_weights(sample_weight, X)
        self._single_output = y.ndim == 1
        self.mean_, self.scale_ = self._moments(X, weight)
        rng = check_random_state(self.random_state)
        targets = np.asarray(y, dtype=np.float32).reshape(len(y), -1)
        start = initial_parameters(rng, targets.shape[1], X.shape[1], self.init_features)
        # One array holds weights and biases: momentum, decay and clipping then act on both at once.
        inputs = np.column_stack([self._inputs(X), np.ones(len(X), dtype=np.float32)])
        with np.errstate(invalid="ignore"):  # some BLAS set this flag for lanes that they do not use
            parameters = self._descend(inputs, targets, weight.astype(np.float32), loss, start, rng)
        self.coef_, self.intercept_ = parameters[:, :-1], parameters[:, -1]
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The fitted values: (n,) or (n, K), as ``y`` was."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        # In float64: in float32 the last digit of a row would depend on the rows beside it.
        fitted = self._inputs(X).astype(np.float64) @ self.coef_.T + self.intercept_
        return np.asarray(fitted[:, 0] if self._single_output else fitted)

    def _moments(self, X: NDArray[np.float64], weight: NDArray[np.float64]) -> tuple[Any, Any]:
        if not self.standardize:
            return np.zeros(X.shape[1]), np.ones(X.shape[1])
        mean = np.average(X, axis=0, weights=weight)
        scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
        # Rounding errors of a constant column must not be scaled up to a signal.
        constant = scale <= 10 * np.finfo(float).eps * np.abs(X).max(axis=0)
        return mean, np.where(constant, 1.0, scale)

    def _inputs(self, X: NDArray[np.float64]) -> Singles:
        return np.asarray(((X - self.mean_) / self.scale_).astype(np.float32))

    def _descend(
        self,
        inputs: Singles,
        targets: Singles,
        weight: Singles,
        loss: LocalLoss,
        parameters: Singles,
        rng: np.random.RandomState,
    ) -> Singles:
        velocity = np.zeros_like(parameters)
        rate = self.learning_rate
        for epoch in range(self.epochs):
            if epoch == self.drop_epoch:
                rate /= 10
            for rows in batches(rng, len(inputs), self.batch_size):
                gradient = loss_gradient(parameters, inputs[rows], targets[rows], weight[rows], loss)
                norm = float(np.sqrt(np.vdot(gradient, gradient)))
                gradient *= min(1.0, self.clip_norm / (norm + 1e-6))
                gradient += self.weight_decay * parameters
                velocity *= self.momentum
                velocity += gradient
                parameters = parameters - rate * velocity
        return parameters


def initial_parameters(
    rng: np.random.RandomState, n_outputs: int, n_features: int, init_features: int | None
) -> Singles:
    """Weights (K, d) and, as last column, biases: uniform as in torch's ``Linear``."""
    bound = 1 / np.sqrt(n_features if init_features is None else init_features)
    return rng.uniform(-bound, bound, size=(n_outputs, n_features + 1)).astype(np.float32)


def batches(rng: np.random.RandomState, n: int, batch_size: int) -> Iterator[slice | NDArray[np.intp]]:
    """The rows of each step of one epoch; the order within a step does not matter."""
    if n <= batch_size:
        yield slice(None)  # without copy and shuffling
        return
    order = rng.permutation(n)
    for start in range(0, n, batch_size):
        yield order[start : start + batch_size]


def loss_gradient(
    parameters: Singles, inputs: Singles, targets: Singles, weight: Singles, loss: LocalLoss
) -> Singles:
    """The gradient of the weighted mean loss, without the factor 1/q of power losses."""
    total = float(weight.sum()) * targets.shape[1]
    if total == 0:
        return np.zeros_like(parameters)
    error: Any = targets - inputs @ parameters.T
    slope = loss.gradient(error) * weight[:, None]
    factor = loss.q if isinstance(loss, PowerLoss) else 1.0
    return np.asarray((slope.T @ inputs) * np.float32(-factor / total), dtype=np.float32)
