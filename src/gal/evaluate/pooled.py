"""The best tuned model on all columns: what sharing them would reach.

Boosting and linear models are tried as pipelines of scikit-learn, each with several settings. The one with
the lowest loss on validation rows is fitted to all training rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler, TargetEncoder
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gal.core.losses import Poisson
from gal.core.rows import assign_rows
from gal.errors import InvalidOptionError
from gal.evaluate.methods import OrganizationsColumns, all_columns, check_label_holder
from gal.evaluate.metrics import log_losses
from gal.learner.columns import columns_by_organization, view_of
from gal.learner.drivers import Traffic
from gal.learner.labels import (
    Labels,
    check_class_labels,
    check_regression_labels,
    class_labels,
    regression_labels,
)
from gal.learner.options import Options
from gal.models import TabularModel
from gal.models.tabular import TableEncoder
from gal.models.tabular.columns import as_table
from gal.threads import at_most

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

SMALL = 2_000
"""Tables with fewer rows choose by cross-validation."""
FOLDS = 3
"""Folds of that cross-validation; larger tables hold validation rows out."""
ENOUGH, VALIDATION = 50_000, 5_000
"""The most rows to choose a model with, and the most validation rows among them."""
MOST, PATIENCE = 1000, 10
"""The most trees of boosting, and how many more are tried after the best."""
BOOSTING: Sequence[dict[str, Any]] = (
    {"max_leaf_nodes": 31},
    {"max_leaf_nodes": 6},
    {"max_leaf_nodes": 12, "learning_rate": 0.05, "min_samples_leaf": 5, "l2_regularization": 1.0},
)
"""Settings of boosting that are tried."""
STRENGTHS = (0.01, 0.1, 1.0, 10.0)
"""Inverse penalties of logistic regression, and of a ridge on thousands of columns; RidgeCV has its own."""
NAMES = LINEAR, TREES = ("linear model", "histogram gradient boosting")


def pooled(
    *,
    classes: bool,
    organizations: OrganizationsColumns,
    label_holder: str | None = None,
    local_models: Any = None,
    random_state: Any = None,
    **options: Any,
) -> PooledClassifier | PooledRegressor:
    """The best of several tuned models on all columns, chosen on training rows.

    ``options``: the ``loss`` and ``preset`` that choose, and ``candidates``, some of ``NAMES``. From local
    models only the kinds of columns are taken.
    """
    check_label_holder(organizations, label_holder)
    models = local_models.values() if isinstance(local_models, Mapping) else (local_models,)
    kinds: dict[Any, str] = {}
    for model in models:
        kinds |= (model.kinds or {}) if isinstance(model, TabularModel) else {}
    return (PooledClassifier if classes else PooledRegressor)(
        all_columns(organizations), random_state=random_state, kinds=kinds or None, **options
    )


class _Pooled(BaseEstimator):  # type: ignore[misc]
    """The base of both estimators; after ``fit``, ``chosen_`` is the model and ``losses_`` all losses."""

    _trees: Any
    _target_type: str

    def _linear(self, *, sparse: bool) -> Sequence[Any]:
        """Linear models to try; ``sparse``: with a column for each of many categories."""
        raise NotImplementedError

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

    def _losses_of(self, model: Any, codes: Floats, labels: Labels) -> Floats:
        """The loss of a fitted model on each of these rows."""
        raise NotImplementedError

    @at_most(1)
    def _fit(self, X: Any, target: NDArray[Any], labels: Labels) -> None:
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        names = getattr(self, "feature_names_in_", None)
        self._names = None if names is None else [str(name) for name in names]
        organizations: Any = None if self.columns is None else {"pooled": self.columns}
        (self._positions,) = columns_by_organization(organizations, X, self._names).values()
        view = self._view(X)
        self.encoder_ = TableEncoder().fit(view, kinds=self.kinds, many=True)
        codes, splits, losses, n_trees = self._codes(view), _splits(labels, seed), [], []
        candidates = self._chosen_candidates(seed)
        for _, model in candidates:
            each, counts = [], [1]
            for train, check in splits:
                fitted = self._fitted(model, codes[train], target[train], (codes[check], target[check]))
                held_out = Labels(labels.y[check], labels.loss, labels.classes)
                each.append(self._losses_of(fitted, codes[check], held_out))
                counts += _best_trees(fitted)
            losses.append(np.concatenate(each) if each else np.zeros(1))
            n_trees.append(round(np.mean(counts[1:] or counts)))
        best = _best([name for name, _ in candidates], losses)
        self.losses_: dict[str, float] = {}
        for (name, _), one in zip(candidates, losses, strict=True):
            self.losses_[name] = min(float(one.mean()), self.losses_.get(name, np.inf))
        self.chosen_, chosen = candidates[best]
        fit, last = np.arange(len(target)), None
        if self.chosen_ == TREES and len(target) > ENOUGH:  # more rows bear more trees than were tried
            rows = splits[0][1]
            fit, last = np.setdiff1d(fit, rows, assume_unique=True), (codes[rows], target[rows])
        elif self.chosen_ == TREES:
            chosen[-1].set_params(early_stopping=False, max_iter=max(n_trees[best], 1))
        self.model_ = self._fitted(chosen, codes[fit], target[fit], last)
        self.traffic_ = Traffic()

    def _fitted(self, model: Any, codes: Floats, target: NDArray[Any], check: Any = None) -> Any:
        """Fit; boosting stops when the loss on the rows of ``check`` no longer falls."""
        made = clone(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            if check is None or not getattr(made[-1], "early_stopping", False):
                return made.fit(codes, target)
            columns, trees = made[0], made[-1]
            table, (held_out, truth) = columns.fit_transform(codes, target), check
            known = np.isin(truth, target) | (self._target_type == "continuous")
            trees.fit(table, target, X_val=columns.transform(held_out[known]), y_val=truth[known])
            return made

    def _chosen_candidates(self, seed: int) -> list[tuple[str, Any]]:
        """Names and unfitted pipelines that take codes of columns."""
        wanted = NAMES if self.candidates is None else tuple(self.candidates)
        if not wanted or not set(wanted) <= set(NAMES):
            raise InvalidOptionError(
                f"candidates must be some of {', '.join(NAMES)}, got {self.candidates!r}"
            )
        common: dict[str, Any] = {"random_state": seed, "max_iter": MOST, "early_stopping": True}
        common |= {"n_iter_no_change": PATIENCE}
        common["categorical_features"] = np.flatnonzero(self.encoder_.is_category_)
        found = [(LINEAR, self._pipeline(one, wide=True)) for one in self._linear(sparse=False)]
        if self.encoder_.many_:
            one_hot = OneHotEncoder(handle_unknown="ignore")
            sparse = self._linear(sparse=True)
            found += [(LINEAR, self._pipeline(one, wide=True, many=one_hot)) for one in sparse]
        found += [(TREES, self._pipeline(self._trees(**common, **one), wide=False)) for one in BOOSTING]
        return [one for one in found if one[0] in wanted]

    def _pipeline(self, model: Any, *, wide: bool, many: Any = None) -> Any:
        """``wide``: scaled, imputed, one-hot. ``many`` encodes columns with many categories, by default as
        means of the target.
        """
        width = len(self.encoder_.is_category_)
        parts = [
            ("codes", FunctionTransformer(self.encoder_.wide) if wide else "passthrough", slice(0, width))
        ]
        if self.encoder_.many_:
            parts.append(("many", self._means() if many is None else many, slice(width, None)))
        return Pipeline([("columns", ColumnTransformer(parts)), ("model", model)])

    def _means(self) -> Pipeline:
        folds = KFold if self._target_type == "continuous" else StratifiedKFold
        means = TargetEncoder(target_type=self._target_type)
        if means.random_state == "deprecated":  # scikit-learn 1.9 and later take seeded folds
            means.set_params(cv=folds(5, shuffle=True, random_state=0))
        else:
            means.set_params(random_state=0)
        return make_pipeline(means, StandardScaler())

    def _codes(self, view: Any) -> Floats:
        """Codes, then the category of each row in each column with many categories."""
        read = self.encoder_.read(view)
        return np.hstack([self.encoder_.codes(read), self.encoder_.places(read)])

    def _view(self, X: Any) -> Any:
        names = None if self._names is None else [self._names[position] for position in self._positions]
        return as_table(view_of(X, self._positions, names))

    def _checked(self, X: Any, *, reset: bool) -> Any:
        table = X if hasattr(X, "shape") else np.asarray(X)
        validate_data(self, table, reset=reset, skip_check_array=True)
        return table

    def _inputs(self, X: Any) -> Floats:
        check_is_fitted(self, "model_")
        return self._codes(self._view(self._checked(X, reset=False)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Predictions of the chosen model."""
        return np.asarray(self.model_.predict(self._inputs(X)))

    def staged_predict(self, X: Any) -> Iterator[NDArray[Any]]:
        """The predictions, once: there are no rounds."""
        yield self.predict(X)


class PooledRegressor(RegressorMixin, _Pooled):  # type: ignore[misc]
    """The best of several tuned regressors by the loss of the task: squared error by default."""

    _target_type = "continuous"
    _trees = HistGradientBoostingRegressor

    def _linear(self, *, sparse: bool) -> Sequence[Any]:
        return [Ridge(1 / one) for one in STRENGTHS] if sparse else [RidgeCV(np.logspace(-2, 4, 13))]

    def fit(self, X: Any, y: Any) -> Self:
        """Choose a model, then fit it to all rows."""
        table = self._checked(X, reset=True)
        target = check_regression_labels(y, int(table.shape[0])).ravel()
        self._fit(table, target, regression_labels(target, Options(loss=self.loss, preset=self.preset)))
        return self

    def _losses_of(self, model: Any, codes: Floats, labels: Labels) -> Floats:
        output = np.asarray(model.predict(codes), dtype=np.float64).reshape(len(codes), -1)
        if isinstance(labels.loss, Poisson):
            output = np.log(np.maximum(output, 1e-6))
        return np.asarray(labels.loss.value(labels.y, output), dtype=np.float64)


class PooledClassifier(ClassifierMixin, _Pooled):  # type: ignore[misc]
    """The best of several tuned classifiers by log loss."""

    _trees = HistGradientBoostingClassifier

    def _linear(self, *, sparse: bool) -> Sequence[Any]:  # noqa: ARG002
        return [LogisticRegression(C=one, max_iter=1000) for one in STRENGTHS]

    @property
    def _target_type(self) -> str:  # type: ignore[override]
        return "binary" if len(self.classes_) == 2 else "multiclass"

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

    def _losses_of(self, model: Any, codes: Floats, labels: Labels) -> Floats:
        truth = labels.y[:, 0].astype(np.intp)
        probability = np.zeros((len(codes), len(self.classes_)))
        probability[:, model.classes_] = model.predict_proba(codes)  # a fold may lack a class
        return log_losses(truth, probability)


def _best(names: Sequence[str], losses: Sequence[Floats]) -> int:
    """The candidate with the lowest loss, or a linear model within one standard error of it.

    Of many settings of boosting one is the best by chance in a small table, and predicts worse.
    """
    order = sorted(range(len(losses)), key=lambda place: float(losses[place].mean()))
    first = order[0]
    linear = next((place for place in order if names[place] == LINEAR), first)
    worse = losses[linear] - losses[first]
    return linear if worse.mean() <= worse.std() / np.sqrt(len(worse)) else first


def _best_trees(fitted: Any) -> list[int]:
    """The number of trees with the best validation loss, in a list; empty for other models."""
    scores = getattr(fitted[-1], "validation_score_", None)
    return [int(np.argmax(scores))] if scores is not None and len(scores) else []


def _has_two(labels: Labels, rows: Positions) -> bool:
    """Whether the labels are numbers, or of at least two classes among these rows."""
    return labels.groups is None or len(np.unique(labels.groups[rows])) > 1


def _splits(labels: Labels, seed: int) -> list[tuple[Positions, Positions]]:
    """Rows to fit and validation rows, stratified by class."""
    n = len(labels.y)
    rng = np.random.default_rng(seed)
    if n < SMALL:
        rows = assign_rows(n, rng, n_cv_folds=min(FOLDS, n), groups=labels.groups)
        parts = [rows.without(part) for part in range(rows.n_cv_folds)]
        return [(one.fit, one.validation) for one in parts if _has_two(labels, one.fit)]
    drawn = np.sort(rng.permutation(n)[:ENOUGH])
    groups = None if labels.groups is None else labels.groups[drawn]
    share = min(0.2, VALIDATION / len(drawn))
    rows = assign_rows(len(drawn), rng, validation_fraction=share, groups=groups)
    return [(drawn[rows.fit], drawn[rows.validation])]
