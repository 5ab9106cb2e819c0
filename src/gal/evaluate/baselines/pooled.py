"""The best tuned model on all columns: what one would do if sharing were allowed.

Boosting and linear models (in small tables also support vector machines), each with several settings. The one
with the lowest loss on validation rows, which are some of the training rows, is fitted to all of them. A weak
pooled model would make assistance look better than it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.preprocessing import StandardScaler, TargetEncoder
from sklearn.svm import SVC, SVR
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gal.core.losses import Poisson
from gal.core.rows import assign_rows
from gal.engine.columns import columns_by_organization, view_of
from gal.engine.drivers import Traffic
from gal.engine.labels import (
    Labels,
    check_class_labels,
    check_regression_labels,
    class_labels,
    regression_labels,
)
from gal.engine.options import Options
from gal.errors import InvalidOptionError
from gal.evaluate.baselines.method import (
    Estimator,
    OrganizationsColumns,
    all_columns,
    check_label_holder,
    options_used,
)
from gal.evaluate.understood import kinds_told
from gal.models.tabular.frames import as_table
from gal.models.tabular.many_categories import read_columns
from gal.threads import at_most

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

SMALL = 2_000
"""Tables with fewer rows choose by cross-validation, and try a support vector machine."""

FOLDS = 3
"""Folds of that cross-validation; larger tables hold validation rows out."""

ENOUGH, VALIDATION = 50_000, 5_000
"""Rows that are enough to choose a model with, and how many of them validate at most."""

CALIBRATION = 5
"""Rows that a class needs for a support vector machine to tell probabilities."""

MOST, PATIENCE = 1000, 10
"""Trees of boosting, and how many more it tries after the best."""

BOOSTING: Sequence[dict[str, Any]] = (
    {"max_leaf_nodes": 31},
    {"max_leaf_nodes": 6},
    {"max_leaf_nodes": 12, "learning_rate": 0.05, "min_samples_leaf": 5, "l2_regularization": 1.0},
)
"""Settings of boosting that are tried."""

STRENGTHS = (0.01, 0.1, 1.0, 10.0)
"""Inverse ridge penalties of logistic regression that are tried; RidgeCV has its own."""

SMALLEST = 1e-15
"""Probabilities below this are taken as this: their log would rule everything."""

NAMES = ("linear model", "histogram gradient boosting", "support vector machine")


def pooled(
    *,
    classes: bool,
    organizations: OrganizationsColumns,
    label_holder: str | None = None,
    local_models: Any = None,
    rounds: str | int = "auto",  # noqa: ARG001
    random_state: Any = None,
    **options: Any,
) -> Estimator:
    """The best of several tuned models on all columns, chosen on training rows.

    Uses the options ``loss`` and ``preset``, which say by what loss to choose, and ``candidates``
    (default: all), and what local models were told of columns. It has no local models and no rounds: these
    and all other options are ignored.
    """
    check_label_holder(organizations, label_holder)
    used = options_used(options, ("loss", "preset", "candidates"))
    made: Estimator = (PooledClassifier if classes else PooledRegressor)(
        all_columns(organizations), random_state=random_state, kinds=kinds_told(local_models), **used
    )
    return made


@dataclass(frozen=True)
class Candidate:
    """A model with its settings, and how it wants the table: codes of categories, or wide (scaled, imputed,
    one-hot).
    """

    name: str
    model: Any
    table: Literal["codes", "wide"]


def regression_candidates(seed: int, is_category: Any) -> list[Candidate]:
    """Models for numbers, for tables whose columns are categories where ``is_category``."""
    linear, boosting, vectors = NAMES
    categories = np.flatnonzero(is_category)
    common: dict[str, Any] = {"categorical_features": categories, "random_state": seed, "max_iter": MOST}
    common |= {"early_stopping": True, "n_iter_no_change": PATIENCE}
    trees = [HistGradientBoostingRegressor(**common, **one) for one in BOOSTING]
    return [
        Candidate(linear, RidgeCV(np.logspace(-2, 4, 13)), "wide"),
        *(Candidate(boosting, one, "codes") for one in trees),
        Candidate(vectors, TransformedTargetRegressor(SVR(), transformer=StandardScaler()), "wide"),
    ]


def class_candidates(seed: int, is_category: Any) -> list[Candidate]:
    """Models for classes."""
    linear, boosting, vectors = NAMES
    categories = np.flatnonzero(is_category)
    common: dict[str, Any] = {"categorical_features": categories, "random_state": seed, "max_iter": MOST}
    common |= {"early_stopping": True, "n_iter_no_change": PATIENCE}
    trees = [HistGradientBoostingClassifier(**common, **one) for one in BOOSTING]
    return [
        *(Candidate(linear, LogisticRegression(C=one, max_iter=1000), "wide") for one in STRENGTHS),
        *(Candidate(boosting, one, "codes") for one in trees),
        Candidate(vectors, CalibratedClassifierCV(SVC(), ensemble=False), "wide"),
    ]


class _Pooled(BaseEstimator):  # type: ignore[misc]
    """What both estimators share; after ``fit``, ``chosen_`` names the model and ``losses_`` why."""

    def __init__(
        self,
        columns: Sequence[str | int] | None = None,
        *,
        candidates: Sequence[str] | None = None,
        loss: Any = "auto",
        preset: str = "default",
        random_state: Any = None,
        kinds: Mapping[Any, str] | None = None,
    ) -> None:
        self.kinds = kinds
        self.columns = columns
        self.candidates = candidates
        self.loss = loss
        self.preset = preset
        self.random_state = random_state

    def _candidates(self, seed: int) -> list[Candidate]:
        raise NotImplementedError

    def _losses_of(self, model: Any, table: Floats, labels: Labels) -> Floats:
        """The loss of a fitted model on each of these rows."""
        raise NotImplementedError

    @at_most(1)
    def _fit(self, X: Any, target: NDArray[Any], labels: Labels) -> None:
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        names = getattr(self, "feature_names_in_", None)
        self._names = None if names is None else [str(name) for name in names]
        organizations: Any = None if self.columns is None else {"pooled": self.columns}
        (self._positions,) = columns_by_organization(organizations, X, self._names).values()
        view = as_table(self._view(X))
        self.encoder_, self.many_ = read_columns(view, None, self.kinds)
        codes = self._codes(view)
        candidates, splits = self._chosen_candidates(seed, labels), _splits(labels, seed)
        tried = [
            _together([self._tried(one, codes, target, labels, *split) for split in splits])
            for one in candidates
        ]
        self.losses_: dict[str, float] = {}
        for one, found in zip(candidates, tried, strict=True):
            self.losses_[one.name] = min(found.loss, self.losses_.get(one.name, np.inf))
        best = _best(candidates, tried)
        chosen, trees = candidates[best], len(tried[best].curve)
        self.chosen_, self._wants = chosen.name, chosen.table
        if trees and len(target) > ENOUGH:  # more rows bear more trees: validation rows say how many
            check = splits[0][1]
            fit = np.setdiff1d(np.arange(len(target)), check, assume_unique=True)
            self.means_, table = self._fit_inputs(codes[fit], target[fit], self._wants)
            held_out = self._table(codes[check], self._wants, self.means_), target[check]
            self.model_ = _fit_and_stop(chosen.model, (table, target[fit]), held_out)
        else:
            self.means_, table = self._fit_inputs(codes, target, self._wants)
            settled = {"early_stopping": False, "max_iter": trees} if trees else {}
            self.model_ = _fit_quietly(clone(chosen.model).set_params(**settled), table, target)
        self.traffic_ = Traffic()

    def _chosen_candidates(self, seed: int, labels: Labels) -> list[Candidate]:
        unknown = [name for name in self.candidates or () if name not in NAMES]
        if unknown or (self.candidates is not None and not self.candidates):
            raise InvalidOptionError(
                f"candidates must be some of {', '.join(NAMES)}, got {self.candidates!r}"
            )
        found = self._candidates(seed)
        if self.candidates is not None:
            return [one for one in found if one.name in self.candidates]
        rarest = len(labels.y) if labels.groups is None else int(np.bincount(labels.groups).min())
        if len(labels.y) >= SMALL or rarest < 2 * CALIBRATION:
            return [one for one in found if one.name != NAMES[-1]]
        return found

    def _tried(
        self,
        candidate: Candidate,
        codes: Floats,
        target: NDArray[Any],
        labels: Labels,
        train: Positions,
        check: Positions,
    ) -> _Tried:
        means, fitted = self._fit_inputs(codes[train], target[train], candidate.table)
        held_out = self._table(codes[check], candidate.table, means)
        true = Labels(labels.y[check], labels.loss, labels.classes)
        model = clone(candidate.model)
        if "n_iter_no_change" not in model.get_params(deep=False):
            _fit_quietly(model, fitted, target[train])
            return _Tried(self._losses_of(model, held_out, true))
        _fit_and_stop(model, (fitted, target[train]), (held_out, target[check]))
        curve = -np.asarray(model.validation_score_, dtype=np.float64)[1:]
        return _Tried(self._losses_of(model, held_out, true), curve)

    def _codes(self, view: Any) -> Floats:
        """Codes; then, of each column with many categories, which one a row has."""
        read = self.encoder_.read(view)
        codes = self.encoder_.codes(read)
        return codes if self.many_ is None else np.hstack([codes, self.many_.places(read)])

    def _fit_inputs(
        self, codes: Floats, target: NDArray[Any], wants: str
    ) -> tuple[TargetMeans | None, Floats]:
        """Inputs of a model that is fitted to these rows, and the means of the target that are among them."""
        if self.many_ is None:
            return None, self._table(codes, wants, None)
        means, width = TargetMeans(self._target_type), len(self.encoder_.is_category_)
        return means, np.hstack(
            [self._table(codes[:, :width], wants, None), means.fit(codes[:, width:], target)]
        )

    def _table(self, codes: Floats, wants: str, means: TargetMeans | None) -> Floats:
        width = len(self.encoder_.is_category_)
        table = self.encoder_.wide(codes[:, :width]) if wants == "wide" else codes[:, :width]
        return table if means is None else np.hstack([table, means(codes[:, width:])])

    @property
    def _target_type(self) -> str:
        """As scikit-learn's TargetEncoder has it."""
        raise NotImplementedError

    def _view(self, X: Any) -> Any:
        names = None if self._names is None else [self._names[position] for position in self._positions]
        return view_of(X, self._positions, names)

    def _checked(self, X: Any, *, reset: bool) -> Any:
        table = X if hasattr(X, "shape") else np.asarray(X)
        validate_data(self, table, reset=reset, skip_check_array=True)
        return table

    def _inputs(self, X: Any) -> Floats:
        check_is_fitted(self, "model_")
        view = as_table(self._view(self._checked(X, reset=False)))
        return self._table(self._codes(view), self._wants, self.means_)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predictions of the chosen model."""
        return np.asarray(self.model_.predict(self._inputs(X)))

    def staged_predict(self, X: Any) -> Iterator[NDArray[Any]]:
        """The predictions, once: there are no rounds."""
        yield self.predict(X)


class PooledRegressor(RegressorMixin, _Pooled):  # type: ignore[misc]
    """The best of several tuned regressors by the loss of the task: squared error by default."""

    def fit(self, X: Any, y: Any) -> Self:
        """Choose a model, then fit it to all rows."""
        table = self._checked(X, reset=True)
        target = check_regression_labels(y, int(table.shape[0]))
        self._single_output = target.ndim == 1
        self._fit(table, target, regression_labels(target, Options(loss=self.loss, preset=self.preset)))
        return self

    def _candidates(self, seed: int) -> list[Candidate]:
        found = regression_candidates(seed, self.encoder_.is_category_)
        if self._single_output:
            return found
        return [Candidate(one.name, MultiOutputRegressor(one.model), one.table) for one in found]

    @property
    def _target_type(self) -> str:
        return "continuous"

    def _losses_of(self, model: Any, table: Floats, labels: Labels) -> Floats:
        output = np.asarray(model.predict(table), dtype=np.float64).reshape(len(table), -1)
        if isinstance(labels.loss, Poisson):
            output = np.log(np.maximum(output, 1e-6))
        return np.asarray(labels.loss.value(labels.y, output), dtype=np.float64)


class PooledClassifier(ClassifierMixin, _Pooled):  # type: ignore[misc]
    """The best of several tuned classifiers by log loss."""

    def fit(self, X: Any, y: Any) -> Self:
        """Choose a model, then fit it to all rows."""
        table = self._checked(X, reset=True)
        target = check_class_labels(y, int(table.shape[0]))
        labels = class_labels(target, Options(preset=self.preset))
        self.classes_: NDArray[Any] = np.asarray(labels.classes)
        self._fit(table, labels.y[:, 0].astype(np.intp), labels)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The class that the chosen model predicts."""
        return np.asarray(self.classes_[super().predict(X)])

    def predict_proba(self, X: Any) -> Floats:
        """Class probabilities, shape (n, C)."""
        return np.asarray(self.model_.predict_proba(self._inputs(X)))

    def staged_predict_proba(self, X: Any) -> Iterator[Floats]:
        """The probabilities, once: there are no rounds."""
        yield self.predict_proba(X)

    def _candidates(self, seed: int) -> list[Candidate]:
        return class_candidates(seed, self.encoder_.is_category_)

    @property
    def _target_type(self) -> str:
        return "binary" if len(self.classes_) == 2 else "multiclass"

    def _losses_of(self, model: Any, table: Floats, labels: Labels) -> Floats:
        codes = labels.y[:, 0].astype(np.intp)
        probability = np.zeros((len(table), len(self.classes_)))
        probability[:, model.classes_] = model.predict_proba(table)  # a part may lack a class
        return np.asarray(-np.log(np.maximum(probability[np.arange(len(codes)), codes], SMALLEST)))


class TargetMeans:
    """Columns with many categories as standardised means of the target; of fitted rows, of other rows."""

    def __init__(self, target_type: str) -> None:
        self._target_type = target_type

    def fit(self, categories: Floats, target: NDArray[Any]) -> Floats:
        """Learn the means by category of each output; the inputs of these rows."""
        outputs = target.reshape(len(target), -1).T
        self._encoders = [self._unfitted() for _ in outputs]
        made = [one.fit_transform(categories, y) for one, y in zip(self._encoders, outputs, strict=True)]
        self._scaler = StandardScaler().fit(np.hstack(made))
        return np.asarray(self._scaler.transform(np.hstack(made)))

    def __call__(self, categories: Floats) -> Floats:
        """The inputs of other rows."""
        made = [one.transform(categories) for one in self._encoders]
        return np.asarray(self._scaler.transform(np.hstack(made)))

    def _unfitted(self) -> TargetEncoder:
        """With seeded folds; scikit-learn takes these as ``cv`` from 1.9 on, and no seed any more."""
        made = TargetEncoder(target_type=self._target_type)
        if made.random_state != "deprecated":
            return made.set_params(random_state=0)
        folds = KFold if self._target_type == "continuous" else StratifiedKFold
        return made.set_params(cv=folds(5, shuffle=True, random_state=0))


@dataclass(frozen=True)
class _Tried:
    """How a model did on validation rows."""

    losses: Floats
    """Row by row."""
    curve: Floats = field(default_factory=lambda: np.empty(0))
    """Of boosting: its loss by number of trees, up to the best."""

    @property
    def loss(self) -> float:
        return float(self.losses.mean())


def _together(tried: Sequence[_Tried]) -> _Tried:
    """Of all folds; boosting has as many trees as are best for all of them."""
    losses = np.concatenate([one.losses for one in tried])
    longest = max(len(one.curve) for one in tried)
    if not longest:
        return _Tried(losses)
    padded = [np.append(one.curve, np.full(longest - len(one.curve), one.curve[-1])) for one in tried]
    mean = np.mean(padded, axis=0)
    return _Tried(losses, mean[: int(np.argmin(mean)) + 1])


def _best(candidates: Sequence[Candidate], tried: Sequence[_Tried]) -> int:
    """The candidate with the lowest loss; a linear model within one standard error of it is taken instead.

    Of many settings of boosting one is the best by chance in a small table, and predicts worse.
    """
    order = sorted(range(len(tried)), key=lambda place: tried[place].loss)
    first = order[0]
    linear = next((place for place in order if candidates[place].name == NAMES[0]), first)
    worse = tried[linear].losses - tried[first].losses
    return linear if worse.mean() <= worse.std() / np.sqrt(len(worse)) else first


def _splits(labels: Labels, seed: int) -> list[tuple[Positions, Positions]]:
    """Rows to fit and validation rows, with the same mix of classes."""
    n = len(labels.y)
    rng = np.random.default_rng(seed)
    if n < SMALL:
        rows = assign_rows(n, rng, n_parts=min(FOLDS, n), groups=labels.groups)
        parts = [rows.without(part) for part in range(rows.n_parts)]
        return [(one.fit, one.validation) for one in parts]
    drawn = np.sort(rng.permutation(n)[:ENOUGH])
    groups = None if labels.groups is None else labels.groups[drawn]
    share = min(0.2, VALIDATION / len(drawn))
    rows = assign_rows(len(drawn), rng, validation_fraction=share, groups=groups)
    return [(drawn[rows.fit], drawn[rows.validation])]


def _fit_quietly(model: Any, table: Floats, target: NDArray[Any]) -> Any:
    """Fit; that a solver stopped early is no news when the model is judged anyway."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(table, target)


def _fit_and_stop(model: Any, fit: tuple[Floats, NDArray[Any]], check: tuple[Floats, NDArray[Any]]) -> Any:
    """Fit boosting until these validation rows get no better; their classes must occur in the fit rows."""
    table, target = check
    if hasattr(model, "predict_proba"):
        known = np.isin(target, fit[1])
        table, target = table[known], target[known]
    return model.fit(*fit, X_val=table, y_val=target)
