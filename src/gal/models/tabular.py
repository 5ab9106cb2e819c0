"""The default local model: does well on an ordinary mixed table without tuning.

A ridge regression on standardised columns, their bends (a line may change its slope at the quartiles)
and one-hot categories first, then a few small trees on what it left over. The ridge carries small
tables, where trees fit noise; the trees carry large ones and what columns say together.

Chosen by measuring (``benchmarks/default_model.py``; ten rounds of ten trees, all other defaults, no closing
model). Of the way from the label holder alone to pooled data it covers 97.8 % on Adult and 96.3 % on credit
default (AUC); without trees 79.6 % and 95.2 %, trees alone 94.7 % and 91.8 %, a ridge without bends 73.8 %
and 59.1 %. More, larger or faster trees are not better there; on Diabetes (353 rows) trees are worse: R2
0.405 without, 0.400 with, 0.320 trees alone. Fewer trees are as good, and faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from gal.models.grown_trees import Sorted, fit_tree, predict_tree
from gal.models.known_columns import same_names

if TYPE_CHECKING:  # importing pandas takes long, and a table of plain numbers does without
    import pandas as pd

    Table = pd.DataFrame | NDArray[Any]
    Column = pd.Series[Any] | NDArray[Any]

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

MAX_CATEGORIES = 64
"""Categories kept apart per column; rarer ones are taken together."""

BLOCK = 2**22
"""Numbers in a block of the wide matrix: 32 MiB. A million rows of text would be gigabytes at once."""

ROWS_PER_LEAF = 200
"""A tree has no more leaves than one for so many rows: small tables get small trees."""

KNOTS = (0.25, 0.5, 0.75)
"""Quantiles of a number at which its line may bend."""

BEND = 0.1
"""Size of the bends beside a standardised column: the ridge shrinks them a hundred times as much."""

NUMBERS = {"integer", "floating", "mixed-integer-float", "boolean", "decimal"}
"""What a column of objects may hold to be read as numbers, as ``pandas.api.types.infer_dtype`` says it."""

TIMES = {"datetime64", "datetime", "date"}

TREES, TREES_OF_SEVERAL, TREES_BEYOND = 5, 2, 10
RATE, RATE_OF_SEVERAL, RATE_BEYOND = 0.15, 0.25, 0.1
"""How many trees, for up to two outputs, for more, and for up to two in fits beyond the rounds; and how far
each is followed. Five at .15 go about as far as ten at .1, two at .25 as five at .1, in less time:
``benchmarks/choices.py``, and docs/results-peers.md for what it said. Beyond the rounds there is one fit for
each crossed residual: what it misses no later one hears."""

TREES_OF_RANDOM, RATE_OF_RANDOM, LEAVES_OF_RANDOM = 1, 0.3, 8
"""Of random targets one small tree: what is wanted is a coarse function of the columns, whose sign goes along
with many others; a fine one goes along with none.
"""

SEVERAL = 3
"""Outputs from which on fewer trees do."""

WEIGHED_ROWS = 2000
"""With fewer rows weights are the user's, and the same in every round: columns are encoded with them."""


COARSE, COARSE_ROWS = 1e-5, 8192
"""Where the ridge's penalty is at least so much for each row, inner products of weighted columns may be
coarse: they are off by less than a hundredth of it. So many rows are added up at a time. (Of several outputs
trees and what closes them take nearly all of the time.)"""


class TabularModel(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge, then trees on its errors; takes missing values, categories, text, dates and booleans.

    Parameters
    ----------
    alpha: strength of the ridge, on standardised columns; bends are shrunk a hundred times as much.
    max_iter, learning_rate, max_leaf_nodes: of the trees; ``max_iter=0`` leaves them out. None: 5 and 0.15
        (beyond the rounds 10 and 0.1), for three or more outputs 2 and 0.25.
        A tree has at most one leaf for 200 rows.
    min_rows: tables with fewer rows get no trees.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        max_iter: int | None = None,
        learning_rate: float | None = None,
        max_leaf_nodes: int = 15,
        min_rows: int = 500,
        random_state: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.min_rows = min_rows
        self.random_state = random_state

    def goes_beyond(self, n_outputs: int, *, random: bool) -> None:
        """What comes is no residual of a round: random numbers, or a crossed residual, fitted once."""
        if self.max_iter is not None or self.learning_rate is not None:
            return
        if random:
            self.max_iter, self.learning_rate = TREES_OF_RANDOM, RATE_OF_RANDOM
            self.max_leaf_nodes = min(self.max_leaf_nodes, LEAVES_OF_RANDOM)
        elif n_outputs < SEVERAL:
            self.max_iter, self.learning_rate = TREES_BEYOND, RATE_BEYOND

    def prepare(self, view: Any) -> Any:
        """The table with what is computed of it once: all rounds of a task fit the same columns."""
        return view if isinstance(view, KnownTable) else KnownTable(self._table(view, reset=True))

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TabularModel:
        """Fit residuals ``y`` of shape (n,) or (n, K).

        A large prepared table is encoded with every row counting the same, whatever its weight: weights
        change from round to round, and the columns do not. In a small one a row of weight 2 is two rows.
        """
        known = X if isinstance(X, KnownTable) else KnownTable(self._table(X, reset=True))
        target = _target(y, known.shape[0])
        self.single_output_ = target.ndim == 1
        target = target.reshape(len(target), -1)
        weight = None if sample_weight is None else _weights(sample_weight, target)
        if known is X:
            self.__dict__.pop("feature_names_in_", None)
            self.__dict__.update(known.noted)
        if known is X and weight is not None and len(target) < WEIGHED_ROWS:
            known = KnownTable(known.table)
        if known is X:
            self.encoder_ = known.encoder
        else:
            self.encoder_ = TableEncoder().fit(known.table, weight)
        codes = known.codes(self.encoder_)
        self.coef_, self.intercept_ = ridge(known, self.encoder_, target, weight, self.alpha)
        self.trees_: list[HistGradientBoostingRegressor] = []
        trees, rate = (TREES, RATE) if target.shape[1] < SEVERAL else (TREES_OF_SEVERAL, RATE_OF_SEVERAL)
        max_iter = trees if self.max_iter is None else self.max_iter
        rate = rate if self.learning_rate is None else self.learning_rate
        known.grown.clear()
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
        check_is_fitted(self)
        if isinstance(X, KnownTable) and not _alike(X.noted, vars(self)):
            validate_data(self, X.named, reset=False, skip_check_array=True)  # which says what is wrong
        known = X if isinstance(X, KnownTable) else KnownTable(self._table(X, reset=False))
        fitted = self._linear(known)
        for k, tree in enumerate(self.trees_):
            fitted[:, k] += predict_tree(tree, known, self.encoder_)
        return np.asarray(fitted[:, 0] if self.single_output_ else fitted)

    def _linear(self, known: KnownTable) -> Floats:
        fitted = np.empty((known.shape[0], len(self.intercept_)))
        for block, wide in known.wide_blocks(self.encoder_):
            fitted[block] = wide @ self.coef_ + self.intercept_
        return fitted

    def _tree(self, n_rows: int, max_iter: int, rate: float) -> HistGradientBoostingRegressor:
        return HistGradientBoostingRegressor(
            max_iter=max_iter,
            learning_rate=rate,
            max_leaf_nodes=min(self.max_leaf_nodes, max(2, n_rows // ROWS_PER_LEAF)),
            categorical_features=self.encoder_.is_category_,
            early_stopping=False,
            random_state=self.random_state,
        )

    def _table(self, X: Any, *, reset: bool) -> Table:
        named = hasattr(X, "columns") or hasattr(X, "iloc")
        is_sparse = hasattr(X, "tocsr")  # not taken, and scikit-learn says so
        if is_sparse or not (named or np.asarray(X).dtype.kind in "OM"):
            numbers = validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite="allow-nan")
            return np.asarray(numbers)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return as_frame(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


class KnownTable:
    """A table, and what was already computed of it: its encoder, codes, wide matrix and bins.

    ``known[rows]`` are some of its rows, the same object for the same rows: what is computed of the fit rows
    in the first round is at hand in the next. Nothing here depends on what was asked before: without
    anything at hand the same numbers are computed again.
    """

    def __init__(
        self, table: Table, whole: KnownTable | None = None, rows: NDArray[np.intp] | None = None
    ) -> None:
        self.table = table
        self.named: Table = table if whole is None else whole.named
        self._whole, self.rows = None if whole is None else ref(whole), rows
        """The table that it is a part of, and which of its rows these are; None where it is whole."""
        self.shape: tuple[int, ...] = tuple(table.shape)
        self._parts: list[KnownTable] = []
        self._codes: dict[int, tuple[TableEncoder, Floats]] = {}
        self._wide: dict[int, Floats] = {}
        self._short: dict[int, Floats32] = {}
        self._moments: dict[int, tuple[Floats, Floats]] = {}
        self.sorted: Sorted | None = None
        """What histogram trees that are fitted to all of these rows have in common."""
        self.grown: dict[int, tuple[HistGradientBoostingRegressor, Floats]] = {}
        """What the trees of the last fit said of these rows while they grew; taken once."""
        self._bins: dict[int, tuple[Any, NDArray[np.uint8] | None]] = {}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: NDArray[np.intp]) -> KnownTable:
        for part in self._parts:
            if part.rows is not None and np.array_equal(part.rows, rows):
                return part
        table: Any = self.table
        self._parts.append(KnownTable(table.iloc[rows] if is_frame(table) else table[rows], self, rows))
        return self._parts[-1]

    def grown_from(self, tree: HistGradientBoostingRegressor) -> KnownTable | None:
        """This table or the part of it that holds what these trees said while they grew."""
        return next((one for one in (self, *self._parts) if id(tree) in one.grown), None)

    @cached_property
    def noted(self) -> dict[str, Any]:
        """What scikit-learn notes of the columns: how many there are, and their names, if these are text."""
        noting = TabularModel()
        validate_data(noting, self.named, reset=True, skip_check_array=True)
        return {name: value for name, value in vars(noting).items() if name.endswith("_in_")}

    @cached_property
    def encoder(self) -> TableEncoder:
        """Learned from all rows alike."""
        return TableEncoder().fit(self.table)

    def codes(self, encoder: TableEncoder) -> Floats:
        """As this encoder has them."""
        if id(encoder) not in self._codes:
            whole = self._in_one_block(encoder)
            found = encoder.codes(self.table) if whole is None else whole.codes(encoder)[self.rows]
            self._codes[id(encoder)] = encoder, found
        return self._codes[id(encoder)][1]

    def _in_one_block(self, encoder: TableEncoder) -> KnownTable | None:
        """The table that this is a part of, where what is made of it is small, and of each row by itself: a
        part takes its own from there. (Of a column of objects all rows together say what it holds.)
        """
        whole = None if self._whole is None else self._whole()
        if whole is None or len(whole) * encoder.width > BLOCK:
            return None
        table: Any = whole.table
        return None if is_frame(table) and np.dtype(object) in set(table.dtypes) else whole

    def wide(self, encoder: TableEncoder) -> Floats:
        """The wide matrix, where it is one block."""
        if id(encoder) not in self._wide:
            whole = self._in_one_block(encoder)
            made = encoder.wide(self.codes(encoder)) if whole is None else whole.wide(encoder)[self.rows]
            self._wide[id(encoder)] = made
        return self._wide[id(encoder)]

    def short(self, encoder: TableEncoder, wide: Floats) -> Floats32:
        """A block of the wide matrix as numbers of half the length; kept where it is one block only."""
        if self._wide.get(id(encoder)) is not wide:
            return wide.astype(np.float32)
        if id(encoder) not in self._short:
            self._short[id(encoder)] = wide.astype(np.float32)
        return self._short[id(encoder)]

    def wide_blocks(self, encoder: TableEncoder) -> Iterator[tuple[slice, Floats]]:
        """The wide matrix block by block; kept where it is one block only."""
        codes = self.codes(encoder)
        blocks = list(encoder.blocks(codes))
        if len(blocks) == 1:
            yield blocks[0], self.wide(encoder)
            return
        for block in blocks:
            yield block, encoder.wide(codes[block])

    def bins(
        self, tree: HistGradientBoostingRegressor, encoder: TableEncoder, *, again: bool = False
    ) -> NDArray[np.uint8] | None:
        """The codes as these trees bin them; None where trees of other rows come for the first time, unless
        they come ``again``: to bin for one of them takes longer than to predict from codes.
        """
        mapper = tree._bin_mapper
        if self.sorted is not None and self.sorted.mapper is mapper:
            return self.sorted.bins
        again = again or any(part.sorted and part.sorted.mapper is mapper for part in self._parts)
        if id(mapper) not in self._bins and not again:
            self._bins[id(mapper)] = mapper, None
        elif self._bins.get(id(mapper), (mapper, None))[1] is None:
            codes = tree._preprocess_X(self.codes(encoder), reset=False)
            self._bins[id(mapper)] = mapper, mapper.transform(codes)
        return self._bins[id(mapper)][1]

    def moments(self, encoder: TableEncoder) -> tuple[Floats, Floats]:
        """Means and centred inner products of the wide columns, every row counting the same."""
        if id(encoder) not in self._moments:
            self._moments[id(encoder)] = moments(self, encoder, None)
        return self._moments[id(encoder)]


def moments(
    known: KnownTable, encoder: TableEncoder, weight: Floats | None, *, coarse: bool = False
) -> tuple[Floats, Floats]:
    """Means (width,) and centred inner products (width, width) of the wide columns; ``coarse``: these from
    numbers of half the length, in half the time.
    """
    sums, gram = np.zeros(encoder.width), np.zeros((encoder.width, encoder.width))
    for block, wide in known.wide_blocks(encoder):
        sums += wide.sum(axis=0) if weight is None else weight[block] @ wide
        if coarse and weight is not None:
            gram += _coarse_products(known.short(encoder, wide), np.sqrt(weight[block, None]))
        else:
            scaled = wide if weight is None else wide * np.sqrt(weight[block, None])
            gram += scaled.T @ scaled  # of a matrix with itself, BLAS computes half
    mean = sums / (known.shape[0] if weight is None else weight.sum())
    return mean, gram - np.outer(sums, mean)


def _coarse_products(wide: Floats32, root: Floats) -> Floats:
    """Inner products of weighted columns; few rows at a time are added up as short numbers."""
    gram, short = np.zeros((wide.shape[1],) * 2), root.astype(np.float32)
    for start in range(0, len(wide), COARSE_ROWS):
        scaled = wide[start : start + COARSE_ROWS] * short[start : start + COARSE_ROWS]
        gram += scaled.T @ scaled
    return gram


class TableEncoder:
    """Turns a mixed table into numbers: one code per column (for trees), from it wide (for linear models)."""

    def fit(self, table: Table, sample_weight: Floats | None = None) -> TableEncoder:
        """Learn the categories of a column, or its scale; a column without either says nothing.

        ``table``: a pandas frame, or an array (n, d) of numbers.
        """
        n_columns = table.shape[1]
        self.categories_: list[list[str]] = [[] for _ in range(n_columns)]
        self.center_, self.scale_ = np.zeros(n_columns), np.ones(n_columns)
        self.bends_: list[Floats] = [np.empty((0, 4))] * n_columns
        self.says_nothing_ = [False] * n_columns
        for j, column in enumerate(_columns(table)):
            if _is_number(column):
                self.says_nothing_[j] = not self._scale(j, _numbers(column), sample_weight)
            else:
                counts = np.ones(len(table)) if sample_weight is None else sample_weight
                self.categories_[j] = _frequent(column, counts)
                self.says_nothing_[j] = not self.categories_[j]
        self.is_category_ = [bool(categories) for categories in self.categories_]
        return self

    def _scale(self, j: int, numbers: Floats, counts: Floats | None) -> bool:
        """Learn mean, standard deviation and bends; whether there is any number to learn from."""
        known = ~np.isnan(numbers) if counts is None else ~np.isnan(numbers) & (counts > 0)
        if not known.any():
            return False
        numbers, counts = numbers[known], None if counts is None else counts[known]
        self.center_[j] = np.average(numbers, weights=counts)
        spread = np.average((numbers - self.center_[j]) ** 2, weights=counts)
        # A constant column has a spread of rounding errors only.
        if spread > 1e-24 * self.center_[j] ** 2:
            self.scale_[j] = np.sqrt(spread)
            self.bends_[j] = _bends((numbers - self.center_[j]) / self.scale_[j], counts)
        return True

    def codes(self, table: Table) -> Floats:
        """Numbers as they are, categories as codes; missing, infinite and unknown ones are NaN."""
        codes = np.zeros(table.shape)  # trees fail on a column without any known value: it stays 0
        for j, column in enumerate(_columns(table)):
            if self.is_category_[j]:
                codes[:, j] = _positions(column, self.categories_[j])
            elif not self.says_nothing_[j]:
                codes[:, j] = _numbers(column)
        return codes

    def wide(self, codes: Floats) -> Floats:
        """Standardised numbers and their bends (missing: the mean), and one column per category."""
        wide = np.zeros((len(codes), self.width))
        for j, (start, end) in enumerate(pairwise(self._edges)):
            missing = np.isnan(codes[:, j])
            known: Any = np.flatnonzero(~missing) if missing.any() else slice(None)
            if self.is_category_[j]:
                wide[np.flatnonzero(~missing), start + codes[known, j].astype(np.intp)] = 1.0
                continue
            line = (codes[known, j] - self.center_[j]) / self.scale_[j]
            wide[known, start] = line
            for column, (knot, level, slope, size) in zip(range(start + 1, end), self.bends_[j], strict=True):
                wide[known, column] = (np.maximum(line - knot, 0.0) - level - slope * line) * (BEND / size)
        return wide

    @property
    def width(self) -> int:
        """Columns of the wide matrix."""
        return self._edges[-1]

    @property
    def _edges(self) -> list[int]:
        """Where the wide columns of each column start, and the last ones end."""
        widths = [
            len(names) or 1 + len(bends) for names, bends in zip(self.categories_, self.bends_, strict=True)
        ]
        return [0, *accumulate(widths)]

    def blocks(self, codes: Floats) -> Iterator[slice]:
        """Stretches of rows whose wide matrix is small."""
        rows = max(1, BLOCK // max(1, self.width))
        for start in range(0, len(codes), rows):
            yield slice(start, start + rows)


def ridge(
    known: KnownTable, encoder: TableEncoder, target: Floats, weight: Floats | None, alpha: float
) -> tuple[Floats, Floats]:
    """Coefficients (width, K) and intercepts (K,) on the wide matrix, of which
    only a block exists at a time.
    """
    n_rows, width = known.shape[0], encoder.width
    if n_rows <= width:  # scikit-learn's takes more columns than rows well
        whole = Ridge(alpha=alpha).fit(encoder.wide(known.codes(encoder)), target, weight)
        return np.atleast_2d(whole.coef_).T, np.atleast_1d(whole.intercept_)
    coarse = target.shape[1] < SEVERAL and n_rows >= WEIGHED_ROWS and alpha >= COARSE * n_rows
    mean, gram = known.moments(encoder) if weight is None else moments(known, encoder, weight, coarse=coarse)
    center = np.average(target, axis=0, weights=weight)
    products = np.zeros((width, target.shape[1]))
    for block, wide in known.wide_blocks(encoder):
        part = target[block] - center
        products += wide.T @ (part if weight is None else part * weight[block, None])
    gram = gram.copy()
    gram[np.diag_indices(width)] += alpha
    coefficients = np.asarray(np.linalg.solve(gram, products), dtype=np.float64)
    return coefficients, center - mean @ coefficients


def as_frame(X: Any) -> pd.DataFrame:
    """A pandas frame of any table: pandas, polars, or an array of objects."""
    if is_frame(X):
        return X  # type: ignore[no-any-return]
    import pandas as pd

    if hasattr(X, "columns") and hasattr(X, "get_column"):  # polars, without needing pyarrow
        return pd.DataFrame({name: X.get_column(name).to_numpy() for name in X.columns})
    return pd.DataFrame(np.asarray(X)).infer_objects()


def as_table(X: Any) -> Table:
    """What a ``TableEncoder`` takes: numbers in an array as they are, any other table as a pandas frame."""
    return X if isinstance(X, np.ndarray) and X.dtype.kind in "fiub" else as_frame(X)


def is_frame(X: Any) -> bool:
    """Whether this is a pandas frame, found out without importing pandas."""
    return all(hasattr(X, name) for name in ("iloc", "columns", "dtypes"))


def default_model() -> TabularModel:
    """What an organization uses that names no model of its own."""
    return TabularModel()


def takes_missing_values(model: Any) -> bool:
    """Whether scikit-learn's tags say that the model accepts NaN."""
    return bool(hasattr(model, "__sklearn_tags__") and get_tags(model).input_tags.allow_nan)


def _alike(noted: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether columns are those that a model was fitted to."""
    names = (one.get("feature_names_in_") for one in (noted, known))
    return bool(noted["n_features_in_"] == known["n_features_in_"]) and same_names(*names)


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


def _columns(table: Table) -> Iterator[Column]:
    """One after another."""
    if isinstance(table, np.ndarray):
        yield from table.T
    else:
        for _, column in table.items():
            yield column


def _is_number(column: Column) -> bool:
    """Whether larger and smaller mean something: numbers, booleans, dates; also where kept as objects."""
    if isinstance(column, np.ndarray):
        return True
    import pandas as pd

    types = pd.api.types
    if types.is_object_dtype(column):
        return types.infer_dtype(column, skipna=True) in NUMBERS | TIMES
    return bool(types.is_numeric_dtype(column) or _is_time(column))


def _is_time(column: pd.Series[Any]) -> bool:
    import pandas as pd

    types = pd.api.types
    return bool(types.is_datetime64_any_dtype(column) or types.is_timedelta64_dtype(column))


def _numbers(column: Column) -> Floats:
    """Numbers, and days (dates since 1970) of times; what is neither, or infinite, is NaN."""
    if isinstance(column, np.ndarray):
        numbers = np.array(column, dtype=np.float64)
    else:
        numbers = _numbers_of_series(column)
    numbers[np.isinf(numbers)] = np.nan
    return numbers


def _numbers_of_series(column: pd.Series[Any]) -> Floats:
    import pandas as pd

    types = pd.api.types
    if types.is_object_dtype(column) and types.infer_dtype(column, skipna=True) in TIMES:
        column = pd.to_datetime(column, errors="coerce", utc=True)
    if types.is_datetime64_any_dtype(column):
        column = pd.to_datetime(column, utc=True) - pd.Timestamp(0, tz="UTC")
    if types.is_timedelta64_dtype(column):
        column = column.dt.total_seconds() / 86400.0
    if not isinstance(column.dtype, np.dtype) or column.dtype.kind not in "fiub":
        column = pd.to_numeric(column, errors="coerce")
    return np.array(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _bends(line: Floats, counts: Floats | None) -> Floats:
    """Hinges max(line - knot, 0) less what a straight line says of them: rows of knot, level, slope, size.

    ``line`` is standardised, so level and slope are plain averages.
    """
    if counts is None:
        places = np.searchsorted(np.arange(1.0, len(line) + 1), np.multiply(KNOTS, len(line)))
        knots = np.unique(np.partition(line, places)[places])
    else:
        order = np.argsort(line, kind="stable")
        below = np.cumsum(counts[order])
        knots = np.unique(line[order][np.searchsorted(below, np.multiply(KNOTS, below[-1]))])
    bends = []
    for knot in knots:
        hinge = np.maximum(line - knot, 0.0)
        level, slope = np.average(hinge, weights=counts), np.average(hinge * line, weights=counts)
        size = np.sqrt(np.average((hinge - level - slope * line) ** 2, weights=counts))
        if size > 1e-6:  # two distinct values cannot bend
            bends.append((knot, level, slope, size))
    return np.reshape(bends, (-1, 4)).astype(np.float64)


def _frequent(column: Column, counts: Floats) -> list[str]:
    """The most frequent categories as text, sorted; ``counts`` says how much each row counts."""
    import pandas as pd

    codes, distinct = pd.factorize(column)
    known = codes >= 0
    totals = np.bincount(codes[known], counts[known], len(distinct))
    first = np.argsort(-totals, kind="stable")[:MAX_CATEGORIES]
    return sorted({str(distinct[place]) for place in first if totals[place] > 0})


def _positions(column: Column, categories: list[str]) -> Floats:
    """Where each value stands among the categories; NaN where missing or unknown."""
    import pandas as pd

    codes, distinct = pd.factorize(column)  # only distinct values become text
    place = {category: float(position) for position, category in enumerate(categories)}
    places = [place.get(str(value), np.nan) for value in distinct]
    return np.array([*places, np.nan])[codes]  # a missing value has code -1: the last
