"""Local models that something disturbs: noise in what they say or get, useless columns, a privacy mechanism.

Each wraps another local model, so that ``local_models={"lab": NoisyAnswers(Ridge(), 1.0)}`` makes one
organization noisy and leaves the engine as it is. Noise follows from ``random_state``, which the
engine sets for every organization and round, and from the residual that was fitted, so that two
folds of one round do not get the same noise. With folds (``fitted="out-of-fold"``) every fold's fit
counts as a message of its own, with noise of its own.

A wrapped model has no ``local_loss``: give it to the model inside.
"""

from __future__ import annotations

import pickle
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from gal.errors import InvalidOptionError
from gal.models import PerOutput, as_local_model, supports_sample_weight
from gal.models.adapters import fit_weighted, prepared
from gal.models.tabular.frames import is_frame

Values = NDArray[Any]


def half(organizations: Iterable[str]) -> list[str]:
    """The second half of the organizations, never the first: those that the authors disturb.

    >>> half(["a", "b", "c", "d", "e"])
    ['c', 'd', 'e']
    """
    names = list(organizations)
    return names[max(1, len(names) // 2) :]


def disturbed(
    local_models: Mapping[str, Any], names: Iterable[str], wrap: Callable[[Any], Any]
) -> dict[str, Any]:
    """The same local models by organization, those of ``names`` wrapped.

    >>> from sklearn.linear_model import Ridge
    >>> disturbed({"bank": Ridge(), "lab": Ridge()}, ["lab"], NoiseColumns)
    {'bank': Ridge(), 'lab': NoiseColumns(model=Ridge())}
    """
    chosen = set(names)
    unknown = sorted(chosen - set(local_models))
    if unknown:
        raise InvalidOptionError(
            f"cannot disturb {', '.join(map(repr, unknown))}: the organizations are {', '.join(local_models)}"
        )
    return {name: wrap(model) if name in chosen else model for name, model in local_models.items()}


class _Wrapped(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A local model around ``model``; subclasses change what goes in or comes out.

    ``y`` is (n,) or (n, K) whatever the model inside can do. Row weights reach it where it takes
    them, and are dropped where not, as the engine does.
    """

    model: Any

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a copy of the model inside."""
        given = np.asarray(y)
        self._single_output = given.ndim == 1
        residual = given.reshape(len(given), -1)
        self._start(residual)
        local = as_local_model(self.model, residual.shape[1])
        weight = sample_weight if supports_sample_weight(local) else None
        self._learn(local, self._columns(X), self._received(residual), weight)
        self.model_ = local
        return self

    def predict(self, X: Any) -> Values:
        """The fitted values: (n,) or (n, K), as ``y`` was."""
        check_is_fitted(self, "model_")
        values = self._answered(np.asarray(self.model_.predict(self._columns(X))))
        return values[:, 0] if self._single_output else values

    def prepare(self, view: Any) -> Any:
        """Where the model inside wants it."""
        return prepared(self.model, view)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.model, "__sklearn_tags__"):
            tags.input_tags = get_tags(self.model).input_tags  # missing values, for one
        return tags

    def _start(self, residual: Values) -> None:
        """What a fit begins with."""

    def _columns(self, X: Any) -> Any:
        return X

    def _received(self, residual: Values) -> Values:
        return residual

    def _learn(self, local: Any, X: Any, residual: Values, sample_weight: ArrayLike | None) -> None:
        fit_weighted(local, X, residual, sample_weight)

    def _answered(self, values: Values) -> Values:
        return values


class _Random(_Wrapped):
    """With a generator that starts anew in every fit."""

    random_state: Any

    def _start(self, residual: Values) -> None:
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        self.generator_ = _generator(seed, residual)


class NoisyAnswers(_Random):
    """N(0, ``sigma``) is added to whatever it predicts, in learning and in prediction.

    Drawn anew in every call of ``predict``: a sequence of calls can be repeated, a call cannot. In
    worker processes (``n_jobs``) the calls after learning all start from the same place.
    """

    def __init__(self, model: Any, sigma: float = 1.0, *, random_state: Any = None) -> None:
        self.model = model
        self.sigma = sigma
        self.random_state = random_state

    def _start(self, residual: Values) -> None:
        _check_sigma(self.sigma)
        super()._start(residual)

    def _answered(self, values: Values) -> Values:
        return values + self.sigma * self.generator_.standard_normal(values.shape)


class NoisyResidual(_Random):
    """N(0, ``sigma``) is added to the residual that it receives; what it then
    predicts has no noise of its own.
    """

    def __init__(self, model: Any, sigma: float = 1.0, *, random_state: Any = None) -> None:
        self.model = model
        self.sigma = sigma
        self.random_state = random_state

    def _received(self, residual: Values) -> Values:
        _check_sigma(self.sigma)
        noisy = residual + self.sigma * self.generator_.standard_normal(residual.shape)
        return noisy.astype(np.float32)


class NoiseColumns(_Random):
    """Its columns are pure N(0, 1) noise, drawn anew in ``fit`` and in every call of ``predict``.

    Of the columns it is given only their number and names are used.
    """

    def __init__(self, model: Any, *, random_state: Any = None) -> None:
        self.model = model
        self.random_state = random_state

    def prepare(self, view: Any) -> Any:
        """As it is: nothing of its columns is used."""
        return view

    def _columns(self, X: Any) -> Any:
        noise = self.generator_.standard_normal(np.shape(X))
        return type(X)(noise, X.index, X.columns) if is_frame(X) else noise


class PrivateResidual(_Wrapped):
    """The residual that it receives went through ``mechanism``, such as ``gal.privacy.PaperLaplace()``.

    The label holder broadcasts one noised residual: the noise follows from ``seed`` and the residual
    alone, so that all organizations with the same mechanism and seed see the same.
    """

    def __init__(
        self,
        model: Any,
        mechanism: Callable[[ArrayLike, np.random.Generator], NDArray[np.float32]],
        *,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.mechanism = mechanism
        self.seed = seed

    def _received(self, residual: Values) -> Values:
        sent = residual.astype(np.float32)
        return self.mechanism(sent, _generator(self.seed, sent))


class MeteredModel(_Wrapped):
    """Measures its fits; predicts as the model inside.

    After ``fit``: ``fit_seconds_``, and ``stored_bytes_``, the size of the fitted model pickled.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def _learn(self, local: Any, X: Any, residual: Values, sample_weight: ArrayLike | None) -> None:
        started = time.perf_counter()
        super()._learn(local, X, residual, sample_weight)
        self.fit_seconds_ = time.perf_counter() - started
        inside = local.estimators_ if isinstance(local, PerOutput) else local.estimator_
        self.stored_bytes_ = len(pickle.dumps(inside))  # only its size is wanted: never loaded


def _generator(seed: int, residual: Values) -> np.random.Generator:
    """The same for the same seed and residual, wherever it is made."""
    return np.random.default_rng([seed, zlib.crc32(np.ascontiguousarray(residual).tobytes())])


def _check_sigma(sigma: float) -> None:
    if not 0 <= sigma < np.inf:
        raise InvalidOptionError(f"sigma must be a number >= 0, got {sigma!r}")
