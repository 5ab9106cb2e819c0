"""Local models with a disturbance of the paper's tables: noise, useless columns, a privacy mechanism.

``DisturbedModel(Ridge(), "answers", 1.0)`` makes one organization noisy and leaves the engine as it is. A
disturbed model has no ``local_loss``: give it to the model inside.
"""

from __future__ import annotations

import pickle
import time
import zlib
from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from gal.models import as_local_model, supports_sample_weight
from gal.models.adapters import fit_weighted, prepared
from gal.models.tabular.columns import is_frame

Values = NDArray[Any]
Kind = Literal["answers", "residual", "columns", "mechanism", "nothing"]


def half(organizations: Iterable[str]) -> list[str]:
    """The second half of the organizations, never the first: those that the authors disturb.

    >>> half(["a", "b", "c", "d", "e"])
    ['c', 'd', 'e']
    """
    names = list(organizations)
    return names[max(1, len(names) // 2) :]


class DisturbedModel(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A local model around ``model``; ``kind`` says what is disturbed:

    - "answers": N(0, ``sigma``) is added to whatever it predicts, in learning and in prediction, drawn anew
      in every call: a sequence of calls can be repeated, a call cannot;
    - "residual": N(0, ``sigma``) is added to the residual that it receives;
    - "columns": its columns are pure N(0, 1) noise, drawn anew in ``fit`` and in every ``predict``;
    - "mechanism": the residual went through ``mechanism``, as the label holder broadcasts it: the noise
      follows from ``seed`` and the residual alone, so that all organizations see the same;
    - "nothing": it is measured only.

    Other noise follows from ``random_state``, which the engine sets for every organization and round, and
    from the residual that was fitted, so that two folds of one round do not get the same. ``y`` is (n,) or
    (n, K) whatever the model inside can do; row weights reach it where it takes them. After ``fit``:
    ``fit_seconds_``, and ``stored_bytes_``, the size of the fitted model pickled.
    """

    def __init__(
        self,
        model: Any,
        kind: Kind = "nothing",
        sigma: float = 1.0,
        *,
        mechanism: Any = None,
        seed: int = 0,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.kind = kind
        self.sigma = sigma
        self.mechanism = mechanism
        self.seed = seed
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a copy of the model inside."""
        given = np.asarray(y)
        self._single_output = given.ndim == 1
        residual = given.reshape(len(given), -1)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        self.generator_ = _generator(seed, residual)
        local = as_local_model(self.model, residual.shape[1])
        weight = sample_weight if supports_sample_weight(local) else None
        columns = self._columns(X)
        if self.kind == "residual":
            noise = self.sigma * self.generator_.standard_normal(residual.shape)
            residual = (residual + noise).astype(np.float32)
        elif self.kind == "mechanism":
            sent = residual.astype(np.float32)
            residual = self.mechanism(sent, _generator(self.seed, sent))
        started = time.perf_counter()
        fit_weighted(local, columns, residual, weight)
        self.fit_seconds_ = time.perf_counter() - started
        self.model_ = local
        return self

    def predict(self, X: Any) -> Values:
        """The fitted values: (n,) or (n, K), as ``y`` was."""
        check_is_fitted(self, "model_")
        values = np.asarray(self.model_.predict(self._columns(X)))
        if self.kind == "answers":
            values = values + self.sigma * self.generator_.standard_normal(values.shape)
        return values[:, 0] if self._single_output else values

    def prepare(self, view: Any) -> Any:
        """The preparation of the inner model, where it has one, without the noise columns."""
        return view if self.kind == "columns" else prepared(self.model, view)

    @property
    def stored_bytes_(self) -> int:
        """The size of the fitted model, pickled to be counted and never loaded."""
        local: Any = self.model_
        return len(pickle.dumps(local.estimators_[0] if local.all_at_once else local.estimators_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.model, "__sklearn_tags__"):
            tags.input_tags = get_tags(self.model).input_tags  # missing values, for one
        return tags

    def _columns(self, X: Any) -> Any:
        if self.kind != "columns":
            return X
        noise = self.generator_.standard_normal(np.shape(X))
        return type(X)(noise, X.index, X.columns) if is_frame(X) else noise


def _generator(seed: int, residual: Values) -> np.random.Generator:
    """A generator that depends on the seed and the residual only."""
    return np.random.default_rng([seed, zlib.crc32(np.ascontiguousarray(residual).tobytes())])
