"""The default local model: does well on an ordinary mixed table without tuning.

A ridge regression on standardized columns, their hinges (a line may change its slope at the quartiles)
and one-hot categories first, then shrunk means of columns with many categories (``many_categories.py``), then
a few small trees on what these left over. The ridge carries small tables, where trees fit noise; the trees
carry large ones and what columns say together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data

from gal.models.tabular.columns import Table, as_frame, is_plain
from gal.models.tabular.histogram_trees import Growth, Trees, grow
from gal.models.tabular.many_categories import Slopes, add_slopes, effects_of, fit_effects, fit_slopes
from gal.models.tabular.prepared_table import CodedTable, PreparedColumns, PreparedTable, Rows

Floats = NDArray[np.float64]

SEVERAL = 3
"""Outputs from which on fewer trees do."""

WEIGHED_ROWS = 2000
"""With fewer rows weights are the user's, and the same in every round: columns are encoded with them."""

ROWS_PER_LEAF, FEW_LEAVES, MORE_ROWS_PER_LEAF = 200, 8, 1000
"""A tree has no more leaves than one for 200 rows; beyond eight leaves, one for 1000 rows."""

TREES, TREES_OF_SEVERAL = 5, 1
RATE, RATE_OF_SEVERAL = 0.15, 0.3
BEYOND, BEYOND_OF_SEVERAL = (6, 0.15), (2, 0.25)
"""How many trees, for up to two outputs and for more; how far each is followed; both beyond the rounds. Five
at .15 go about as far as ten at .1, in less time: docs/results/peers.md. For several outputs:
research/2026-11-20-stacker.md. Each interaction probe is fitted once, beyond the rounds: what it
misses no later fit finds.
"""

TREES_OF_RANDOM, RATE_OF_RANDOM, LEAVES_OF_RANDOM = 1, 0.3, 8
"""Of random targets one small tree: what is wanted is a coarse function of the columns, whose sign goes along
with many others; a fine one goes along with none.
"""


class TabularModel(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge, then trees on its errors; takes missing values, categories, text, dates and booleans.

    Parameters
    ----------
    alpha: strength of the ridge, on standardized columns; hinges are shrunk a hundred times as much.
    max_iter, learning_rate, max_leaf_nodes: of the trees; ``max_iter=0`` leaves them out. None: 5 and 0.15
        (beyond the rounds 6 and 0.15), for three or more outputs 1 and 0.3 (beyond the rounds 2 and 0.25).
        A tree has at most one leaf for 200 rows, and beyond eight leaves one for 1000 rows.
    min_rows: tables with fewer rows get no trees.
    kinds: by column, of what kind it is, where a guess is wrong: "number", "date", "category" ...
    """

    __module__ = "gal.models.tabular"  # where stored models look for it

    _fitted: tuple[ref[PreparedColumns], Rows | None, Floats] | None = None
    """The fitted values of the rows of a prepared table that were just fitted; read once."""

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        max_iter: int | None = None,
        learning_rate: float | None = None,
        max_leaf_nodes: int = 15,
        min_rows: int = 500,
        random_state: int | None = None,
        kinds: Mapping[Any, str] | None = None,
    ) -> None:
        self.alpha = alpha
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.min_rows = min_rows
        self.random_state = random_state
        self.kinds = kinds

    def prepare_probes(self, n_outputs: int, *, random: bool) -> None:
        """Prepare for a target that is no residual: random numbers, or an interaction probe, fitted once."""
        if self.max_iter is not None or self.learning_rate is not None:
            return
        if random:
            self.max_iter, self.learning_rate = TREES_OF_RANDOM, RATE_OF_RANDOM
            self.max_leaf_nodes = min(self.max_leaf_nodes, LEAVES_OF_RANDOM)
        else:
            few = n_outputs < SEVERAL
            self.max_iter, self.learning_rate = BEYOND if few else BEYOND_OF_SEVERAL

    def prepare(self, view: Any) -> Any:
        """The table with what is computed of it once: all rounds of a task fit the same columns."""
        return view if isinstance(view, PreparedTable) else self._prepared(self._table(view))

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TabularModel:
        """Fit residuals ``y`` of shape (n,) or (n, K).

        A large prepared table is encoded with every row counting the same, whatever its weight: weights
        change from round to round, and the columns do not. In a small one a row of weight 2 is two rows.
        """
        prepared = self.prepare(X)
        target = _target(y, len(prepared))
        self.single_output_ = target.ndim == 1
        target = target.reshape(len(target), -1)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, target)
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(prepared.columns.noted)
        if weight is not None and (prepared is not X or len(target) < WEIGHED_ROWS):
            prepared = self._prepared(prepared.table, weight)
        self.encoder_ = prepared.columns.encoder
        coded = prepared.coded(self.encoder_)
        self.coef_, self.intercept_ = ridge(coded, target, weight, self.alpha)
        few = target.shape[1] < SEVERAL
        trees = (TREES if few else TREES_OF_SEVERAL) if self.max_iter is None else self.max_iter
        rate = (RATE if few else RATE_OF_SEVERAL) if self.learning_rate is None else self.learning_rate
        n = len(target)
        leaves = min(
            self.max_leaf_nodes, max(2, min(n // ROWS_PER_LEAF, max(FEW_LEAVES, n // MORE_ROWS_PER_LEAF)))
        )
        self.n_iter_ = 1  # the ridge, and what each tree adds
        self.effects_: list[Floats] = []
        self.slopes_: list[Slopes] = []
        self.trees_: list[Trees] = []
        fitted = coded.linear(self.coef_, self.intercept_)
        if coded.many:
            self.effects_, added = fit_effects(coded.many, coded.places, target - fitted, weight)
            fitted += added
            self.slopes_, added = fit_slopes(coded, target - fitted, weight)
            fitted += added
        if trees > 0 and len(target) >= self.min_rows:
            coded.learn_bins()
            growth, left = Growth(trees, rate, leaves), target - fitted
            for k, column in enumerate(left.T):
                grown, added = grow(coded.binned, column, weight, growth)
                self.trees_.append(grown)
                fitted[:, k] += added
            self.n_iter_ += trees
        self._fitted = (ref(prepared.columns), prepared.rows, fitted)
        return self

    def predict(self, X: Any) -> Floats:
        """Fitted values, shape (n,) or (n, K) as the residuals had."""
        if not hasattr(self, "trees_"):
            check_is_fitted(self)
        prepared = self.prepare(X)
        if not _alike(prepared.columns.noted, vars(self)):
            validate_data(
                self, prepared.table, reset=False, skip_check_array=True
            )  # which says what is wrong
        values = self._values(prepared)
        return np.asarray(values[:, 0] if self.single_output_ else values)

    def _values(self, prepared: PreparedTable) -> Floats:
        """Values (n, K); those of rows that were just fitted are known."""
        if self._fitted is None or self._fitted[0]() is not prepared.columns:
            return self._computed(prepared.coded(self.encoder_))
        (_, rows, fitted), self._fitted = self._fitted, None  # in each round it would be much to keep
        if rows is None and prepared.rows is None:
            return fitted
        place = np.full(len(prepared.columns.table), len(fitted))
        place[slice(None) if rows is None else rows] = np.arange(len(fitted))
        place = place if prepared.rows is None else place[prepared.rows]
        values, others = fitted.take(place, axis=0, mode="clip"), np.flatnonzero(place == len(fitted))
        if len(others):
            values[others] = self._computed(prepared[others].coded(self.encoder_))
        return values

    def _computed(self, coded: CodedTable) -> Floats:
        values = coded.linear(self.coef_, self.intercept_)
        if coded.many:
            values += effects_of(self.effects_, coded.places)
            add_slopes(self.slopes_, coded, values)
        if len(values) == 1 and self.trees_:
            return np.asarray(values + [trees.of_row(coded.binned) for trees in self.trees_])
        for k, trees in enumerate(self.trees_):
            values[:, k] += trees.predict(coded.binned)
        return values

    def __getstate__(self) -> Any:
        """Without what belongs to the rows that were fitted: it is not stored."""
        return {name: value for name, value in super().__getstate__().items() if name != "_fitted"}

    def _prepared(self, table: Table, weight: Floats | None = None) -> PreparedTable:
        return PreparedTable(PreparedColumns(table, self.kinds, weight))

    def _table(self, X: Any) -> Table:
        if is_plain(X):
            return X  # type: ignore[no-any-return]
        named = hasattr(X, "columns") or hasattr(X, "iloc")
        is_sparse = hasattr(X, "tocsr")  # not taken, and scikit-learn says so
        if is_sparse or not (named or np.asarray(X).dtype.kind in "OM"):
            options = {"dtype": "numeric", "ensure_all_finite": "allow-nan", "input_name": "X"}
            return np.asarray(check_array(X, estimator=self, **options))
        return as_frame(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def ridge(coded: CodedTable, target: Floats, weight: Floats | None, alpha: float) -> tuple[Floats, Floats]:
    """Coefficients (width, K) and intercepts (K,) on the wide matrix. Of very many rows some are enough."""
    rows, width = coded.ridge_rows, coded.edges[-1]
    target, weight = target[rows], None if weight is None else weight[rows]
    if len(target) <= width:  # scikit-learn's takes more columns than rows well
        whole = Ridge(alpha=alpha).fit(coded.encoder.wide(coded.codes()), target, weight)
        return np.atleast_2d(whole.coef_).T, np.atleast_1d(whole.intercept_)
    mean, gram = coded.moments(weight)
    center = np.average(target, axis=0, weights=weight)
    products = np.zeros((width, target.shape[1]))
    for block, wide in coded.wide_blocks():
        part = target[block] - center
        products += wide.T @ (part if weight is None else part * weight[block, None])
    gram = gram + alpha * np.eye(width)
    coefficients = np.asarray(np.linalg.solve(gram, products), dtype=np.float64)
    return coefficients, center - mean @ coefficients


def default_model() -> TabularModel:
    """The model of an organization that names none."""
    return TabularModel()


def takes_missing_values(model: Any) -> bool:
    """Whether scikit-learn's tags say that the model accepts NaN."""
    return bool(hasattr(model, "__sklearn_tags__") and get_tags(model).input_tags.allow_nan)


def _alike(noted: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether columns are those that a model was fitted to."""
    names = (one.get("feature_names_in_") for one in (noted, known))
    if noted["n_features_in_"] != known["n_features_in_"]:
        return False
    one, other = names
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def _target(y: ArrayLike | None, n_rows: int) -> Floats:
    """Residuals as numbers, or an error in scikit-learn's words; its own check takes as long as a ridge."""
    if y is None:
        raise ValueError("TabularModel requires y to be passed, but the target y is None.")
    target = np.asarray(y, dtype=np.float64)
    if target.shape[:1] != (n_rows,):
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {n_rows} rows, y of shape "
            f"{target.shape}"
        )
    if not np.isfinite(target).all():
        raise ValueError("Input y contains NaN or infinity.")
    return target
