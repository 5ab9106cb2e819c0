"""``ClusterModel``: a local model fitted in shards, on a Dask cluster or in this process.

Each shard of a view's rows fits a model of its own, with one thread and a fixed seed; predictions are their
average by rows. The result depends on the shards alone, not on workers, their threads or their failures.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gal.errors import ClusterError, InvalidOptionError
from gal.extras import require
from gal.models.adapters import as_local_model, copy_unfitted, fit_weighted, set_seed
from gal.models.parted import Floats32, PartColumn, PartedView, PartRows, Positions, ViewPart, in_parts
from gal.models.registry import make_model
from gal.threads import at_most

CONNECT = 10.0
"""Seconds to find the scheduler."""
Columns = Sequence[tuple[str, Sequence[str]]]
"""Names of columns, and their categories where they have some."""


@dataclass(eq=False, repr=False)
class ClusterModel(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A local model for more rows than one machine holds: one fit per shard, averaged by rows.

    ``scheduler``: the address of a Dask scheduler, such as ``tcp://10.0.0.5:8786``; None fits in this
    process, one shard in memory at a time. ``model``: a local model, or its name in ``gal.models.registry``
    (with ``options``). Part i of a view belongs to shard i mod ``shards``, which bounds the workers in use.

    A view is a ``gal.models.PartedView`` (a node writes one for this model), an array or a frame; workers
    must see the files of its parts. Dask repeats the work of a lost worker; a fit takes at most ``patience``
    seconds. A fitted model predicts without a cluster.
    """

    takes_parts: ClassVar[bool] = True

    scheduler: str | None = None
    _: KW_ONLY
    model: Any = "tabular"
    options: Mapping[str, Any] | None = None
    shards: int = 8
    patience: float = 600.0
    random_state: int | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def prepare(self, view: Any) -> Any:
        """A partitioned view whose shards stay with their workers; other views as they are."""
        return HeldView(view, self._shards()) if isinstance(view, PartedView) else view

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit all outputs of ``y``, (n,) or (n, K)."""
        held = X if isinstance(X, HeldView) else HeldView(_parted(X), self._shards())
        residual = np.asarray(y, dtype=np.float64)
        if residual.shape[:1] != (held.shape[0],) or not np.isfinite(residual).all():
            raise ValueError(f"expected finite y for {held.shape[0]} rows, got y of shape {residual.shape}")
        if 0 in held.shape:
            raise ValueError(f"a fit needs rows and columns, got a table of shape {held.shape}")
        weight = np.ones(len(residual)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        if not (weight >= 0).all() or not weight.any():
            raise ValueError("expected weights of rows that are not negative, and not all zero")
        self.one_output_ = residual.ndim == 1
        residual = residual.reshape(len(residual), -1)
        self.n_outputs_, self.n_features_in_ = residual.shape[1], held.shape[1]
        self.columns_ = [(one.name, list(one.categories or ())) for one in held.view.features]
        named = isinstance(self.model, str)
        inner = make_model("cluster", self.model, self.options) if named else self.model
        local = as_local_model(inner, self.n_outputs_, "cluster")
        set_seed(local, 0 if self.random_state is None else int(self.random_state))
        by_row = [residual] if sample_weight is None else [residual, weight]
        found = held.over_shards(fit_shard, by_row, self.columns_, local)
        sums = np.array([weight[places].sum() for places, _ in found])
        self.models_ = [fitted for _, fitted in found if fitted is not None]
        self.shares_ = sums[sums > 0] / sums.sum()
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Fitted values (n,) or (n, K), as ``y`` was, computed where the view is."""
        check_is_fitted(self)
        known = (self.columns_, self.models_, self.shares_)
        if isinstance(X, HeldView | PartedView):
            held = X if isinstance(X, HeldView) else HeldView(X, Shards(None, self.shards, self.patience))
            values = np.empty((held.shape[0], self.n_outputs_))
            for places, predicted in held.over_shards(predict_shard, (), *known):
                values[places] = predicted
        else:
            values = predict_shard(_codes(X, self.columns_, type(self).__name__), *known)
        return values[:, 0] if self.one_output_ else values

    def _shards(self) -> Shards:
        if not isinstance(self.shards, int) or self.shards < 1:
            raise InvalidOptionError(f"shards must be a whole number of at least 1, got {self.shards!r}")
        return Shards(self.scheduler, self.shards, self.patience)


def fit_shard(rows: Floats32, residual: NDArray[np.float64], *rest: Any) -> Any:
    """A model of these rows, given optional row weights, the columns and an unfitted local model."""
    weight, columns, local = rest if len(rest) == 3 else (None, *rest)
    if weight is not None and not weight.any():
        return None
    return fit_weighted(copy_unfitted(local), _table(rows, columns), residual, weight)


def predict_shard(
    rows: Floats32, columns: Columns, models: Sequence[Any], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The average (n, K) of the models, weighted by the rows of their fits."""
    table = _table(rows, columns)
    return np.asarray(sum(share * one.predict(table) for one, share in zip(models, shares, strict=True)))


def _table(rows: Floats32, columns: Columns) -> Any:
    """The input of a local model: an array where all columns are numbers, else a frame."""
    if not any(categories for _, categories in columns):
        return rows.astype(np.float64)
    import pandas as pd

    made: list[Any] = []
    for (_, categories), column in zip(columns, rows.T, strict=True):
        if categories:
            codes = np.nan_to_num(column, nan=-1).astype(np.intp)
            made.append(pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(list(categories))))
        else:
            made.append(column.astype(np.float64))
    return pd.DataFrame(dict(enumerate(made))).set_axis([name for name, _ in columns], axis=1)


def _codes(X: Any, columns: Columns, model: str) -> Floats32:
    """A table as float32 (n, d), with the codes of these categories; NaN for any other."""
    import pandas as pd

    table = X if hasattr(X, "iloc") else pd.DataFrame(np.asarray(X))
    if table.shape[1] != len(columns):
        raise ValueError(
            f"X has {table.shape[1]} features, but {model} is expecting {len(columns)} features as input"
        )
    codes = np.empty(table.shape, dtype=np.float32)
    for j, (_, categories) in enumerate(columns):
        column = table.iloc[:, j]
        with np.errstate(over="ignore"):
            if categories:
                texts = pd.Index(column.astype(object).map(str, na_action="ignore"))
                known = pd.Index(categories).get_indexer(texts)
                codes[:, j] = np.where(known >= 0, known, np.nan)
            else:
                codes[:, j] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    codes[np.isinf(codes)] = np.nan
    return codes


def _parted(X: Any) -> PartedView:
    """An array or a frame in parts."""
    if isinstance(X, PartedView):
        return X
    import pandas as pd

    if not hasattr(X, "iloc") and np.ndim(X) != 2:
        raise ValueError(f"expected a table (n, d), got shape {np.shape(X)}")
    table = X if hasattr(X, "iloc") else pd.DataFrame(np.asarray(X))
    columns = [
        (str(name), [] if pd.api.types.is_numeric_dtype(table.iloc[:, j]) else _categories(table.iloc[:, j]))
        for j, name in enumerate(table.columns)
    ]
    features = [PartColumn(name, tuple(categories) or None) for name, categories in columns]
    return in_parts(_codes(table, columns, "a fit"), features)


def _categories(column: Any) -> list[str]:
    return sorted(set(map(str, column.dropna().tolist())))


class HeldView:
    """A partitioned view whose shards stay in the workers' memory while it exists."""

    def __init__(self, view: PartedView, shards: Shards) -> None:
        self.view, self._shards = view, shards
        self.shape = view.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> HeldView:
        return HeldView(self.view[rows], self._shards)

    def over_shards(
        self, function: Callable[..., Any], by_row: Sequence[NDArray[Any]], *common: Any
    ) -> list[tuple[Positions, Any]]:
        """By shard with rows: the places of its rows, and ``function(rows, *by_row, *common)``."""
        parts: dict[int, list[PartRows]] = defaultdict(list)
        for one in self.view.parts():
            parts[one.number % self._shards.count].append(one)
        found, work = [], {}
        for number, some in sorted(parts.items()):
            places = np.concatenate([one.places for one in some])
            inside = [(one.number, one.inside) for one in some]
            work[number] = (function, inside, *(one[places] for one in by_row), *common)
            found.append(places)
        return list(zip(found, self._shards.compute(self.view.whole, work), strict=True))


class Shards:
    """The shards of one view: one at a time in this process, or in the workers of a Dask scheduler."""

    def __init__(self, scheduler: str | None, count: int, patience: float) -> None:
        if scheduler is not None:
            require("dask", f"the scheduler {scheduler}")
        self.scheduler, self.count, self.patience = scheduler, count, patience
        self._lock = threading.Lock()
        self._client: Any = None
        self._held: dict[int, Any] = {}
        """The futures of the parts by shard."""

    def compute(self, view: PartedView, work: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """The results of all shards."""
        parts: dict[int, dict[int, ViewPart]] = defaultdict(dict)
        for one in view.parts():
            parts[one.number % self.count][one.number] = one.part
        if self.scheduler is None:
            return [_work(load_parts(parts[number]), *one) for number, one in work.items()]
        from distributed import Client, wait

        with self._lock:
            try:
                if self._client is None:
                    how = {"set_as_default": False, "name": "gal", "direct_to_workers": False}
                    self._client = Client(self.scheduler, timeout=CONNECT, **how)
                    weakref.finalize(self, _close, self._client).atexit = False
                submit = self._client.submit
                for number in work:
                    if number not in self._held:
                        self._held[number] = submit(load_parts, parts[number], pure=False)
                tasks = [submit(_work, self._held[number], *one, pure=False) for number, one in work.items()]
                with self._client.as_current():
                    wait(tasks, timeout=self.patience)
                return list(self._client.gather(tasks))
            except FileNotFoundError as error:
                raise ClusterError(
                    f"workers of {self.scheduler} do not see {error.filename!r}: keep this node's home in a "
                    "folder that all workers see under the same path"
                ) from error
            except Exception as error:
                kinds = (CancelledError, TimeoutError, OSError)
                if not isinstance(error, kinds) and not type(error).__module__.startswith("distributed"):
                    raise  # an error of the fit itself
                self._held.clear()
                client, self._client = self._client, None
                if client is not None:
                    _close(client)
                raise ClusterError(
                    f"the scheduler {self.scheduler} cannot be reached, lost its workers or took more than "
                    f"{self.patience:g} s ({type(error).__name__}: {error!s:.200}). Look at its logs, start "
                    "it again, or correct scheduler under [model.options] in node.toml"
                ) from error


_ONE_AT_A_TIME = threading.Lock()
"""Thread limits are per process: of two simultaneous fits, one would lift the other's."""


def load_parts(parts: Mapping[int, ViewPart]) -> dict[int, Floats32]:
    """The rows of these parts, which a worker keeps."""
    return {number: part.read() for number, part in parts.items()}


def _work(
    held: Mapping[int, Floats32],
    function: Callable[..., Any],
    inside: Sequence[tuple[int, Positions | None]],
    *rest: Any,
) -> Any:
    """A function of some rows of a shard, with one thread."""
    rows = [held[number] if at is None else held[number][at] for number, at in inside]
    with _ONE_AT_A_TIME, at_most(1):
        return function(np.concatenate(rows), *rest)


def _close(client: Any) -> None:
    """Close a connection in another thread: its own thread would wait for itself."""
    threading.Thread(target=client.close, name="end of a connection", daemon=True).start()
