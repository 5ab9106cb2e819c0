"""The best single model on all columns: what one would do if sharing were allowed.

Of scikit-learn's, and of XGBoost's and LightGBM's where they are installed: the way from alone to pooled must
not be short because nobody went it. Boosting stops early, as people who use it do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, train_test_split
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder
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
from gal.extras import is_installed
from gal.models.tabular.frames import as_table
from gal.models.tabular.many_categories import read_columns

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

SMALL = 2_000
"""Tables with fewer rows choose by cross-validation, and try a support vector machine."""

PARTS = 5
"""Parts of that cross-validation; larger tables hold one of as many out."""

ENOUGH = 50_000
"""Rows that are enough to choose a model with."""

CALIBRATION = 5
"""Rows that a class needs for a support vector machine to tell probabilities."""

MOST, PATIENCE = 1000, 20
"""Trees of boosting, and how many more it tries after the best."""

LONG: dict[str, Any] = {"max_iter": MOST, "early_stopping": True, "n_iter_no_change": PATIENCE}
"""Of scikit-learn's boosting in large tables."""

BOOSTERS = {"XGBoost": "xgboost", "LightGBM": "lightgbm"}
"""Their names, and what is imported."""

SMALLEST = 1e-15
"""Probabilities below this are taken as this: their log would rule everything."""


def pooled(
    *,
    classes: bool,
    organizations: OrganizationsColumns,
    label_holder: str | None = None,
    local_models: Any = None,  # noqa: ARG001
    rounds: str | int = "auto",  # noqa: ARG001
    random_state: Any = None,
    **options: Any,
) -> Estimator:
    """The best of several models on all columns, chosen on training rows.

    Uses the options ``loss`` and ``preset``, which say by what loss to choose, and ``candidates``
    (default: all). It has no local models and no rounds: these and all other options are ignored.
    """
    check_label_holder(organizations, label_holder)
    used = options_used(options, ("loss", "preset", "candidates"))
    made: Estimator = (PooledClassifier if classes else PooledRegressor)(
        all_columns(organizations), random_state=random_state, **used
    )
    return made


@dataclass(frozen=True)
class Candidate:
    """A model, and how it wants the table: codes of categories, or wide (scaled, imputed, one-hot)."""

    model: Any
    table: Literal["codes", "wide"]

    def with_many(self, n_columns: int, target_type: str, seed: int) -> Candidate:
        """The same model, for tables whose last columns have many categories. A linear model takes each
        category as a column; any other takes means of the target, where it is fitted those of other rows.
        """
        if n_columns == 0:
            return self
        linear, last = SEARCHED.get(type(self.model)), slice(-n_columns, None)
        model: Any = self.model
        if linear is None:
            many = ("means", make_pipeline(_target_means(target_type, seed), StandardScaler()), last)
        else:
            many = ("each", OneHotEncoder(handle_unknown="ignore"), last)
            model = GridSearchCV(linear[0], linear[1], scoring=linear[2], cv=3)
        others = ("others", "passthrough", slice(0, -n_columns))
        return replace(
            self, model=make_pipeline(ColumnTransformer([others, many], sparse_threshold=1.0), model)
        )


def _target_means(target_type: str, seed: int) -> TargetEncoder:
    """An encoder with seeded folds; scikit-learn takes these as ``cv`` from 1.9 on, and no seed any more."""
    made = TargetEncoder(target_type=target_type)
    if made.random_state != "deprecated":
        return made.set_params(random_state=seed)
    folds = KFold if target_type == "continuous" else StratifiedKFold
    return made.set_params(cv=folds(5, shuffle=True, random_state=seed))


SEARCHED: dict[type, tuple[Any, dict[str, Any], str]] = {
    RidgeCV: (Ridge(solver="lsqr"), {"alpha": np.logspace(0, 4, 9)}, "neg_mean_squared_error"),
    LogisticRegression: (LogisticRegression(max_iter=1000), {"C": np.logspace(-3, 1, 5)}, "neg_log_loss"),
}
"""What takes the place of a linear model where each of many categories is a column, mostly of zeros."""


def regression_candidates(seed: int, is_category: Any, *, large: bool = False) -> dict[str, Candidate]:
    """Models for numbers, for tables whose columns are categories where ``is_category``."""
    trees = HistGradientBoostingRegressor(
        categorical_features=np.flatnonzero(is_category), random_state=seed, **(LONG if large else {})
    )
    return {
        "linear model": Candidate(RidgeCV(np.logspace(-2, 4, 13)), "wide"),
        "histogram gradient boosting": Candidate(trees, "codes"),
        "random forest": Candidate(RandomForestRegressor(random_state=seed), "codes"),
        "support vector machine": Candidate(
            TransformedTargetRegressor(SVR(), transformer=StandardScaler()), "wide"
        ),
        **(_boosters(seed, is_category, classes=False) if large else {}),
    }


def class_candidates(seed: int, is_category: Any, *, large: bool = False) -> dict[str, Candidate]:
    """Models for classes."""
    trees = HistGradientBoostingClassifier(
        categorical_features=np.flatnonzero(is_category), random_state=seed, **(LONG if large else {})
    )
    return {
        "linear model": Candidate(LogisticRegression(max_iter=1000), "wide"),
        "histogram gradient boosting": Candidate(trees, "codes"),
        "random forest": Candidate(RandomForestClassifier(random_state=seed), "codes"),
        "support vector machine": Candidate(CalibratedClassifierCV(SVC(), ensemble=False), "wide"),
        **(_boosters(seed, is_category, classes=True) if large else {}),
    }


def _boosters(seed: int, is_category: Any, *, classes: bool) -> dict[str, Candidate]:
    """XGBoost and LightGBM, where they are installed."""
    made = {
        name: StoppedBooster(package, is_category, classes=classes, random_state=seed)
        for name, package in BOOSTERS.items()
        if is_installed(package)
    }
    return {name: Candidate(one, "codes") for name, one in made.items()}


class StoppedBooster(BaseEstimator):  # type: ignore[misc]
    """Boosting of another package that stops on a tenth of its rows, the same that it never fits."""

    def __init__(
        self, package: str, is_category: Any = None, *, classes: bool = True, random_state: int = 0
    ) -> None:
        self.package = package
        self.is_category = is_category
        self.classes = classes
        self.random_state = random_state

    def fit(self, X: Floats, y: NDArray[Any]) -> Self:
        """Fit nine tenths; where a class is too rare to divide, fit all rows with a hundred trees."""
        found, count = np.unique(y, return_inverse=True) if self.classes else (None, y)
        self.classes_ = found
        labels = np.asarray(count)
        rarest = int(np.bincount(labels).min()) if self.classes else len(y)
        if rarest < 2 * CALIBRATION:
            self.model_ = self._made(100, X.shape[1])
            self.model_.fit(X, labels, **self._said(None, None))
            return self
        kept, stop = train_test_split(
            np.arange(len(y)),
            test_size=0.1,
            random_state=self.random_state,
            stratify=labels if self.classes else None,
        )
        self.model_ = self._made(MOST, X.shape[1])
        self.model_.fit(X[kept], labels[kept], **self._said(X[stop], labels[stop]))
        return self

    def _made(self, steps: int, width: int) -> Any:
        how: dict[str, Any] = {"n_estimators": steps, "learning_rate": 0.1, "random_state": self.random_state}
        if self.package == "lightgbm":
            import lightgbm

            kind = lightgbm.LGBMClassifier if self.classes else lightgbm.LGBMRegressor
            return kind(verbose=-1, **how)
        import xgboost

        kind = xgboost.XGBClassifier if self.classes else xgboost.XGBRegressor
        places = {j for j, one in enumerate(self.is_category or ()) if one}
        types = ["c" if j in places else "q" for j in range(width)] if self.is_category is not None else None
        stops = {"early_stopping_rounds": PATIENCE} if steps == MOST else {}
        return kind(enable_categorical=True, feature_types=types, **how, **stops)

    def _said(self, X: Floats | None, y: NDArray[Any] | None) -> dict[str, Any]:
        """What ``fit`` is told besides: on which rows to stop, and which columns are categories."""
        if self.package == "xgboost":
            return {"verbose": False} | ({} if X is None else {"eval_set": [(X, y)]})
        import lightgbm

        places = [j for j, one in enumerate(self.is_category or ()) if one]
        stops = [] if X is None else [lightgbm.early_stopping(PATIENCE, verbose=False)]
        judges = {} if X is None else {"eval_X": X, "eval_y": y}
        return judges | {"categorical_feature": places, "callbacks": stops}

    def predict(self, X: Floats) -> NDArray[Any]:
        """Classes, or numbers."""
        said = np.asarray(self.model_.predict(X))
        return said if self.classes_ is None else np.asarray(self.classes_[said.astype(np.intp)])

    def predict_proba(self, X: Floats) -> Floats:
        """Class probabilities."""
        return np.asarray(self.model_.predict_proba(X), dtype=np.float64)


NAMES = (
    *("linear model", "histogram gradient boosting", "random forest", "support vector machine"),
    *BOOSTERS,
)


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
    ) -> None:
        self.columns = columns
        self.candidates = candidates
        self.loss = loss
        self.preset = preset
        self.random_state = random_state

    def _candidates(self, seed: int, *, large: bool) -> dict[str, Candidate]:
        raise NotImplementedError

    def _loss_of(self, model: Any, table: Floats, labels: Labels) -> float:
        """Mean loss of a fitted model on these rows."""
        raise NotImplementedError

    def _fit(self, X: Any, target: NDArray[Any], labels: Labels) -> None:
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        names = getattr(self, "feature_names_in_", None)
        self._names = None if names is None else [str(name) for name in names]
        organizations: Any = None if self.columns is None else {"pooled": self.columns}
        (self._positions,) = columns_by_organization(organizations, X, self._names).values()
        view = as_table(self._view(X))
        self.encoder_, self.many_ = read_columns(view, None)
        codes = self._codes(view)
        candidates = self._chosen_candidates(seed, labels)
        self.losses_: dict[str, float] = {}
        if len(candidates) > 1:
            splits = _splits(labels, seed)
            self.losses_ = {
                name: float(np.mean([self._judged(one, codes, target, labels, *split) for split in splits]))
                for name, one in candidates.items()
            }
        self.chosen_ = min(candidates, key=lambda name: self.losses_.get(name, 0.0))
        self._wants = candidates[self.chosen_].table
        self.model_ = _fit_quietly(candidates[self.chosen_].model, self._table(codes, self._wants), target)
        self.traffic_ = Traffic()

    def _chosen_candidates(self, seed: int, labels: Labels) -> dict[str, Candidate]:
        unknown = [name for name in self.candidates or () if name not in NAMES]
        if unknown or (self.candidates is not None and not self.candidates):
            raise InvalidOptionError(
                f"candidates must be some of {', '.join(NAMES)}, got {self.candidates!r}"
            )
        found = self._candidates(seed, large=len(labels.y) >= SMALL)
        if self.candidates is not None:
            for name in self.candidates:
                if name not in found:
                    raise InvalidOptionError(
                        f"{name} is for tables of at least {SMALL} rows: pip install {BOOSTERS[name]}"
                    )
            return {name: found[name] for name in self.candidates}
        rarest = len(labels.y) if labels.groups is None else int(np.bincount(labels.groups).min())
        if len(labels.y) >= SMALL or rarest < 2 * CALIBRATION:
            del found["support vector machine"]
        return found

    def _judged(
        self,
        candidate: Candidate,
        codes: Floats,
        target: NDArray[Any],
        labels: Labels,
        train: Positions,
        check: Positions,
    ) -> float:
        model = _fit_quietly(
            clone(candidate.model), self._table(codes[train], candidate.table), target[train]
        )
        held_out = Labels(labels.y[check], labels.loss, labels.classes)
        return self._loss_of(model, self._table(codes[check], candidate.table), held_out)

    def _codes(self, view: Any) -> Floats:
        """Codes, then where values stand among many categories, for each column that has many."""
        codes = self.encoder_.codes(view)
        return codes if self.many_ is None else np.hstack([codes, self.many_.places(view)])

    def _table(self, codes: Floats, wants: str) -> Floats:
        if wants != "wide":
            return codes
        wide = self.encoder_.wide(codes)
        return wide if self.many_ is None else np.hstack([wide, codes[:, len(self.encoder_.is_category_) :]])

    def _with_many(self, found: dict[str, Candidate], target_type: str, seed: int) -> dict[str, Candidate]:
        n_columns = 0 if self.many_ is None else len(self.many_.columns)
        return {name: one.with_many(n_columns, target_type, seed) for name, one in found.items()}

    def _view(self, X: Any) -> Any:
        names = None if self._names is None else [self._names[position] for position in self._positions]
        return view_of(X, self._positions, names)

    def _checked(self, X: Any, *, reset: bool) -> Any:
        table = X if hasattr(X, "shape") else np.asarray(X)
        validate_data(self, table, reset=reset, skip_check_array=True)
        return table

    def _inputs(self, X: Any) -> Floats:
        check_is_fitted(self, "model_")
        return self._table(self._codes(as_table(self._view(self._checked(X, reset=False)))), self._wants)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predictions of the chosen model."""
        return np.asarray(self.model_.predict(self._inputs(X)))

    def staged_predict(self, X: Any) -> Iterator[NDArray[Any]]:
        """The predictions, once: there are no rounds."""
        yield self.predict(X)


class PooledRegressor(RegressorMixin, _Pooled):  # type: ignore[misc]
    """The best of several scikit-learn regressors by the loss of the task: squared error by default."""

    def fit(self, X: Any, y: Any) -> Self:
        """Choose a model, then fit it to all rows."""
        table = self._checked(X, reset=True)
        target = check_regression_labels(y, int(table.shape[0]))
        self._single_output = target.ndim == 1
        self._fit(table, target, regression_labels(target, Options(loss=self.loss, preset=self.preset)))
        return self

    def _candidates(self, seed: int, *, large: bool) -> dict[str, Candidate]:
        found = regression_candidates(seed, self.encoder_.is_category_, large=large)
        found = self._with_many(found, "continuous", seed)
        if self._single_output:
            return found
        return {name: Candidate(MultiOutputRegressor(one.model), one.table) for name, one in found.items()}

    def _loss_of(self, model: Any, table: Floats, labels: Labels) -> float:
        output = np.asarray(model.predict(table), dtype=np.float64).reshape(len(table), -1)
        if isinstance(labels.loss, Poisson):
            output = np.log(np.maximum(output, 1e-6))
        return float(labels.loss.value(labels.y, output).mean())


class PooledClassifier(ClassifierMixin, _Pooled):  # type: ignore[misc]
    """The best of several scikit-learn classifiers by log loss."""

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

    def _candidates(self, seed: int, *, large: bool) -> dict[str, Candidate]:
        found = class_candidates(seed, self.encoder_.is_category_, large=large)
        return self._with_many(found, "binary" if len(self.classes_) == 2 else "multiclass", seed)

    def _loss_of(self, model: Any, table: Floats, labels: Labels) -> float:
        codes = labels.y[:, 0].astype(np.intp)
        probability = np.zeros((len(table), len(self.classes_)))
        probability[:, model.classes_] = model.predict_proba(table)  # a part may lack a class
        return -float(np.log(np.maximum(probability[np.arange(len(codes)), codes], SMALLEST)).mean())


def _splits(labels: Labels, seed: int) -> list[tuple[Positions, Positions]]:
    """Rows to fit and rows to judge on, with the same mix of classes."""
    n = len(labels.y)
    rng = np.random.default_rng(seed)
    if n < SMALL:
        rows = assign_rows(n, rng, n_parts=min(PARTS, n), groups=labels.groups)
        parts = [rows.without(part) for part in range(rows.n_parts)]
        return [(one.fit, one.validation) for one in parts]
    drawn = np.sort(rng.permutation(n)[:ENOUGH])
    groups = None if labels.groups is None else labels.groups[drawn]
    rows = assign_rows(len(drawn), rng, validation_fraction=1 / PARTS, groups=groups)
    return [(drawn[rows.fit], drawn[rows.validation])]


def _fit_quietly(model: Any, table: Floats, target: NDArray[Any]) -> Any:
    """Fit; that a solver stopped early is no news when the model is judged anyway."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(table, target)
