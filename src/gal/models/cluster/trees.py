"""``ClusterTrees``: boosted trees (XGBoost) on a Dask cluster, for rows that do not fit one machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gal.errors import InvalidOptionError
from gal.models.cluster.groups import GroupPlan
from gal.models.cluster.held import HeldView, Place, as_codes, hold, place_of
from gal.models.cluster.members import TreePlan, said_of, said_of_part
from gal.models.cluster.part_work import RowValues
from gal.models.cluster.placement import Here, values_in_order
from gal.models.parted import Floats32, PartColumn, PartedView


class TreesOnCluster(MultiOutputMixin, RegressorMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """What trees of any library do on a cluster; which one, and with which options, subclasses say."""

    takes_parts: ClassVar[bool] = True
    whole: ClassVar[dict[str, int]] = {"n_estimators": 1, "shards": 1, "attempts": 1, "max_bin": 2}
    """Options that are whole numbers, and the least of each."""
    scheduler: str | None
    shards: int
    attempts: int
    patience: float

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def prepare(self, view: Any) -> Any:
        """A parted view whose parts stay where they are fitted; others are taken as they are."""
        return HeldView(view, self._place()) if isinstance(view, PartedView) else view

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit all outputs of ``y`` (n,) or (n, K), one tree for each in every step."""
        self._check_options()
        held, self.encoder_ = hold(X, self._place)
        residual = np.asarray(y, dtype=np.float64)
        if residual.shape[:1] != (held.shape[0],) or not np.isfinite(residual).all():
            raise ValueError(f"expected finite y for {held.shape[0]} rows, got y of shape {residual.shape}")
        if 0 in held.shape:
            raise ValueError(f"trees need rows and columns, got a table of shape {held.shape}")
        weight = np.ones(len(residual)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        if not (weight >= 0).all() or not weight.any():
            raise ValueError("expected weights of rows that are not negative, and not all zero")
        self.one_output_ = residual.ndim == 1
        residual = residual.reshape(len(residual), -1)
        self.intercept_ = np.average(residual, axis=0, weights=weight)
        target = (residual - self.intercept_).astype(np.float32)
        raw = held.place.fit_trees(
            held.view, target, weight.astype(np.float32), self._plan(held.view.features)
        )
        self.booster_ = np.frombuffer(raw, dtype=np.uint8).copy()
        self.n_features_in_ = held.shape[1]
        return self

    def predict(self, X: Any) -> Any:
        """Fitted values (n,) or (n, K), as ``y`` was; where the view is, or in this process."""
        check_is_fitted(self)
        raw = self.booster_.tobytes()
        if isinstance(X, HeldView | PartedView):
            held = X if isinstance(X, HeldView) else HeldView(X, Here(self.shards))
            found = held.place.over_parts("prediction", held.view, self._said_of_part(), (), raw)
            values = values_in_order(found, len(held), len(self.intercept_), np.float32)
        else:
            values = self._said_of(raw, as_codes(X, self.encoder_, self))
        added = values.astype(np.float64) + self.intercept_
        return added[:, 0] if self.one_output_ else added

    def _check_options(self) -> None:
        """One sentence for what is no option; libraries say it in their own words, with their own paths."""
        for name, least in self.whole.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
                raise InvalidOptionError(f"{name} must be a whole number of at least {least}, got {value!r}")
        for name, most in (("learning_rate", np.inf), ("subsample", 1.0)):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) <= most:
                upper = "" if np.isinf(most) else f" and at most {most:g}"
                raise InvalidOptionError(f"{name} must be above 0{upper}, got {value!r}")

    def _place(self) -> Place:
        return place_of(self, self.scheduler, self.shards, self.attempts, self.patience)

    @abstractmethod
    def _plan(self, columns: tuple[PartColumn, ...]) -> GroupPlan:
        """How a group fits."""

    @abstractmethod
    def _said_of_part(self) -> RowValues:
        """What a worker calls with the rows of a part and the model's bytes."""

    @abstractmethod
    def _said_of(self, raw: bytes, rows: Floats32) -> Floats32:
        """What the model in these bytes says of rows, here."""


class ClusterTrees(TreesOnCluster):
    """Boosted trees that are fitted by the workers of a Dask cluster, or in this process.

    ``scheduler``: its address, such as ``tcp://10.0.0.5:8786``; None fits here. The model is the same either
    way, bit for bit, and on any number of workers and threads: it depends on the ``shards`` into which the
    parts of a view go, which is also how many threads can fit side by side.

    A view is a ``gal.models.PartedView`` (a node writes one for this model), an array or a frame. A worker
    that is lost costs a repeated fit, at most ``attempts`` of them in ``patience`` seconds. A fitted model
    predicts without a cluster.
    """

    def __init__(
        self,
        scheduler: str | None = None,
        *,
        n_estimators: int = 20,
        max_depth: int = 6,
        learning_rate: float = 0.3,
        min_child_weight: float = 1.0,
        reg_lambda: float = 1.0,
        subsample: float = 1.0,
        max_bin: int = 256,
        shards: int = 8,
        attempts: int = 3,
        patience: float = 600.0,
        random_state: int | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.n_estimators, self.max_depth, self.learning_rate = n_estimators, max_depth, learning_rate
        self.min_child_weight, self.reg_lambda = min_child_weight, reg_lambda
        self.subsample, self.max_bin, self.shards = subsample, max_bin, shards
        self.attempts, self.patience = attempts, patience
        self.random_state = random_state

    def _plan(self, columns: tuple[PartColumn, ...]) -> TreePlan:
        parameters = {
            "tree_method": "hist",
            "objective": "reg:squarederror",
            "base_score": 0.0,
            "max_depth": self.max_depth,
            "learning_rate": self.learning_rate,
            "min_child_weight": self.min_child_weight,
            "reg_lambda": self.reg_lambda,
            "subsample": self.subsample,
            "max_bin": self.max_bin,
            "seed": 0 if self.random_state is None else int(self.random_state) % (1 << 31),
            "nthread": 1,
            "verbosity": 0,
        }
        types = tuple(
            "c" if one.categories is not None and len(one.categories) <= self.max_bin else "q"
            for one in columns
        )
        return TreePlan(parameters, self.n_estimators, self.max_bin, types)

    def _said_of_part(self) -> RowValues:
        return said_of_part

    def _said_of(self, raw: bytes, rows: Floats32) -> Floats32:
        return said_of(raw, rows)
