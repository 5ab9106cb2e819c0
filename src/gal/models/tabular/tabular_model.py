"""The default local model: does well on an ordinary mixed table without tuning.

A ridge regression on standardised columns, their bends (a line may change its slope at the quartiles)
and one-hot categories first, then shrunk means of columns with many categories (``many_categories.py``), then
a few small trees on what these left over. The ridge carries small tables, where trees fit noise; the trees
carry large ones and what columns say together.

Chosen by measuring (``benchmarks/default_model.py``; ten rounds of ten trees, all other defaults, no closing
model). Of the way from the label holder alone to pooled data it covers 97.8 % on Adult and 96.3 % on credit
default (AUC); without trees 79.6 % and 95.2 %, trees alone 94.7 % and 91.8 %, a ridge without bends 73.8 %
and 59.1 %. More, larger or faster trees are not better there; on Diabetes (353 rows) trees are worse: R2
0.405 without, 0.400 with, 0.320 trees alone. Fewer trees are as good, and faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data

from gal.models.tabular.frames import Table, as_frame, is_plain
from gal.models.tabular.grown_trees import fit_tree, predict_tree
from gal.models.tabular.known_table import KnownTable
from gal.models.tabular.many_categories import ManyCategories, effects_of, fit_effects, read_columns
from gal.models.tabular.table_encoder import TableEncoder
from gal.models.tabular.wide_ridge import SEVERAL, WEIGHED_ROWS, ridge

Floats = NDArray[np.float64]

ROWS_PER_LEAF = 200
"""A tree has no more leaves than one for so many rows: small tables get small trees."""

TREES, TREES_OF_SEVERAL, TREES_BEYOND = 5, 2, 10
RATE, RATE_OF_SEVERAL, RATE_BEYOND = 0.15, 0.25, 0.1
"""How many trees, for up to two outputs, for more, and for up to two in fits beyond the rounds; and how far
each is followed. Five at .15 go about as far as ten at .1, two at .25 as five at .1, in less time:
``benchmarks/choices.py``, and docs/results-peers.md for what it said. Beyond the rounds there is one fit for
each interaction probe: what it misses no later one finds."""

TREES_OF_RANDOM, RATE_OF_RANDOM, LEAVES_OF_RANDOM = 1, 0.3, 8
"""Of random targets one small tree: what is wanted is a coarse function of the columns, whose sign goes along
with many others; a fine one goes along with none.
"""


class TabularModel(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge, then trees on its errors; takes missing values, categories, text, dates and booleans.

    Parameters
    ----------
    alpha: strength of the ridge, on standardised columns; bends are shrunk a hundred times as much.
    max_iter, learning_rate, max_leaf_nodes: of the trees; ``max_iter=0`` leaves them out. None: 5 and 0.15
        (beyond the rounds 10 and 0.1), for three or more outputs 2 and 0.25.
        A tree has at most one leaf for 200 rows.
    min_rows: tables with fewer rows get no trees.
    kinds: by column, of what kind it is, where a guess is wrong: "number", "date", "category" ...
    """

    __module__ = "gal.models.tabular"  # where stored models look for it

    kinds: Mapping[Any, str] | None = None  # of models that the version before stored

    many_: ManyCategories | None = None
    """Columns with many categories: None where there are none, and in stored models of earlier versions."""

    _added: tuple[ref[KnownTable], Floats] | None = None
    """What categories add to the rows of a prepared table that was just fitted; asked for once."""

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

    def goes_beyond(self, n_outputs: int, *, random: bool) -> None:
        """What comes is no residual of a round: random numbers, or an interaction probe, fitted once."""
        if self.max_iter is not None or self.learning_rate is not None:
            return
        if random:
            self.max_iter, self.learning_rate = TREES_OF_RANDOM, RATE_OF_RANDOM
            self.max_leaf_nodes = min(self.max_leaf_nodes, LEAVES_OF_RANDOM)
        elif n_outputs < SEVERAL:
            self.max_iter, self.learning_rate = TREES_BEYOND, RATE_BEYOND

    def prepare(self, view: Any) -> Any:
        """The table with what is computed of it once: all rounds of a task fit the same columns."""
        return view if isinstance(view, KnownTable) else self._known(view)

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TabularModel:
        """Fit residuals ``y`` of shape (n,) or (n, K).

        A large prepared table is encoded with every row counting the same, whatever its weight: weights
        change from round to round, and the columns do not. In a small one a row of weight 2 is two rows.
        """
        known = X if isinstance(X, KnownTable) else self._known(X)
        target = _target(y, known.shape[0])
        self.single_output_ = target.ndim == 1
        target = target.reshape(len(target), -1)
        weight = None if sample_weight is None else _weights(sample_weight, target)
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(known.noted)
        if known is X and weight is not None and len(target) < WEIGHED_ROWS:
            known = KnownTable(known.table, kinds=known.kinds)
        self.encoder_: TableEncoder
        self.encoder_, self.many_ = (
            known.columns if known is X else read_columns(known.table, weight, known.kinds)
        )
        codes = known.codes(self.encoder_)
        self.coef_, self.intercept_ = ridge(known, self.encoder_, target, weight, self.alpha)
        self.trees_: list[HistGradientBoostingRegressor] = []
        trees, rate = (TREES, RATE) if target.shape[1] < SEVERAL else (TREES_OF_SEVERAL, RATE_OF_SEVERAL)
        max_iter = trees if self.max_iter is None else self.max_iter
        rate = rate if self.learning_rate is None else self.learning_rate
        known.grown.clear()
        if self.many_ is not None:
            target = target - self._fit_effects(self.many_, X, known, target, weight)
        if max_iter > 0 and len(target) >= self.min_rows:
            left_over = target - self._linear(known)
            self.trees_ = [
                fit_tree(self._tree(len(codes), max_iter, rate), known, codes, column, weight)
                for column in left_over.T
            ]
        self.n_iter_ = 1 + (max_iter if self.trees_ else 0)  # the ridge, and what each tree adds
        return self

    def predict(self, X: Any) -> Floats:
        """Fitted values, shape (n,) or (n, K) as the residuals had."""
        if not hasattr(self, "trees_"):
            check_is_fitted(self)
        known = X if isinstance(X, KnownTable) else self._known(X)
        if not _alike(known.noted, vars(self)):
            validate_data(self, known.named, reset=False, skip_check_array=True)  # which says what is wrong
        fitted = self._linear(known)
        if self.many_ is not None:
            fitted += self._effects_of(self.many_, known)
        for k, tree in enumerate(self.trees_):
            fitted[:, k] += predict_tree(tree, known, self.encoder_)
        return np.asarray(fitted[:, 0] if self.single_output_ else fitted)

    def _known(self, X: Any) -> KnownTable:
        return KnownTable(self._table(X), kinds=self.kinds)

    def _linear(self, known: KnownTable) -> Floats:
        fitted = np.empty((known.shape[0], len(self.intercept_)))
        for block, wide in known.wide_blocks(self.encoder_):
            fitted[block] = wide @ self.coef_ + self.intercept_
        return fitted

    def _fit_effects(
        self, many: ManyCategories, X: Any, known: KnownTable, target: Floats, weight: Floats | None
    ) -> Floats:
        """What categories add to the fitted rows, after their effects were fitted to what the ridge left."""
        left_over = target - self._linear(known)
        self.effects_, added = fit_effects(many, known.places(many, self.encoder_), left_over, weight)
        self._added = (ref(X), added) if isinstance(X, KnownTable) else None
        return added

    def _effects_of(self, many: ManyCategories, known: KnownTable) -> Floats:
        """What categories add to these rows: to rows that were just fitted, by the other rows."""
        found = effects_of(self.effects_, known.places(many, self.encoder_))
        table, added = (None, None) if self._added is None else (self._added[0](), self._added[1])
        if table is not None and known.holds(table):
            found[slice(None) if table is known else table.rows] = added
            self._added = None  # for each round a number for each row would be much to keep
        return found

    def __getstate__(self) -> Any:
        """Without what belongs to the rows that were fitted: it is not stored."""
        return {name: value for name, value in super().__getstate__().items() if name != "_added"}

    def _tree(self, n_rows: int, max_iter: int, rate: float) -> HistGradientBoostingRegressor:
        return HistGradientBoostingRegressor(
            max_iter=max_iter,
            learning_rate=rate,
            max_leaf_nodes=min(self.max_leaf_nodes, max(2, n_rows // ROWS_PER_LEAF)),
            categorical_features=self.encoder_.is_category_,
            early_stopping=False,
            random_state=self.random_state,
        )

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


def default_model() -> TabularModel:
    """What an organization uses that names no model of its own."""
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
    """Residuals as numbers, or an error in scikit-learn's words."""
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


def _weights(sample_weight: ArrayLike, target: Floats) -> Floats:
    """Weights as numbers, or an error in scikit-learn's words; it looks for longer than that takes."""
    if isinstance(sample_weight, np.ndarray) and sample_weight.dtype == np.float64:
        sums = np.isfinite(sample_weight.sum()) and sample_weight.any()
        if sums and sample_weight.shape == (len(target),):
            return np.ascontiguousarray(sample_weight)
    return np.asarray(_check_sample_weight(sample_weight, target))
