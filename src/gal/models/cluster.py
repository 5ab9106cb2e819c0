"""``ClusterModel``: a local model fitted in shards, by the workers of a Dask cluster or in this process.

The rows of a view go into shards. Each shard fits a model of its own, with one thread and a fixed seed, and
the prediction is their average by rows. So the result depends on the shards alone: not on how many workers
there are, on their threads, or on which of them was lost.
"""

from __future__ import annotations

import socket
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

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
from gal.warnings import ClusterWarning

CONNECT = 10.0
"""Seconds to find the scheduler."""
LOOK = 0.5
"""Seconds between two looks at whether the scheduler is there."""
Columns = Sequence[tuple[str, Sequence[str]]]
"""Names of columns, and their categories where they have some."""


class ClusterModel(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A local model for rows that do not fit one machine: one fit for each shard, averaged by rows.

    ``scheduler``: the address of a Dask scheduler, such as ``tcp://10.0.0.5:8786``; None fits here, one shard
    in memory at a time. ``model``: a local model, or its name in ``gal.models.registry`` (with ``options``).
    Part i of a view belongs to shard i mod ``shards``; so many workers can fit side by side.

    A view is a ``gal.models.PartedView`` (a node writes one for this model), an array or a frame. A fit that
    loses a worker is repeated, up to ``attempts`` times in ``patience`` seconds. A fitted model predicts
    without a cluster.
    """

    takes_parts: ClassVar[bool] = True

    def __init__(
        self,
        scheduler: str | None = None,
        *,
        model: Any = "tabular",
        options: Mapping[str, Any] | None = None,
        shards: int = 8,
        attempts: int = 3,
        patience: float = 600.0,
        random_state: int | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.model = model
        self.options = options
        self.shards = shards
        self.attempts = attempts
        self.patience = patience
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def prepare(self, view: Any) -> Any:
        """A parted view whose shards stay where they are fitted; others are taken as they are."""
        return HeldView(view, self._place()) if isinstance(view, PartedView) else view

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit all outputs of ``y``, (n,) or (n, K)."""
        place = self._place()
        held = X if isinstance(X, HeldView) else HeldView(_parted(X), place)
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
        found = held.over_shards("fit", fit_shard, by_row, self.columns_, local)
        sums = np.array([weight[places].sum() for places, _ in found])
        self.models_ = [fitted for _, fitted in found if fitted is not None]
        self.shares_ = sums[sums > 0] / sums.sum()
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Fitted values (n,) or (n, K), as ``y`` was; where the view is, or in this process."""
        check_is_fitted(self)
        known = (self.columns_, self.models_, self.shares_)
        if isinstance(X, HeldView | PartedView):
            held = X if isinstance(X, HeldView) else HeldView(X, Here(self.shards))
            values = np.empty((held.shape[0], self.n_outputs_))
            for places, predicted in held.over_shards("prediction", predict_shard, (), *known):
                values[places] = predicted
        else:
            values = predict_shard(_codes(X, self.columns_, type(self).__name__), *known)
        return values[:, 0] if self.one_output_ else values

    def _place(self) -> Here | Cluster:
        for name in ("shards", "attempts"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
                raise InvalidOptionError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not self.patience > 0:
            raise InvalidOptionError(f"patience must be more than 0 seconds, got {self.patience!r}")
        if self.scheduler is None:
            return Here(self.shards)
        return Cluster(self.scheduler, int(self.shards), self.attempts, self.patience)


# What is computed of a shard


def fit_shard(rows: Floats32, residual: NDArray[np.float64], *rest: Any) -> Any:
    """A model of these rows; weights (optional) by row, then the columns and an unfitted local model."""
    weight, columns, local = rest if len(rest) == 3 else (None, *rest)
    if weight is not None and not weight.any():
        return None
    return fit_weighted(copy_unfitted(local), _table(rows, columns), residual, weight)


def predict_shard(
    rows: Floats32, columns: Columns, models: Sequence[Any], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The models' average (n, K), weighted by the rows that each was fitted to."""
    table = _table(rows, columns)
    return np.asarray(sum(share * one.predict(table) for one, share in zip(models, shares, strict=True)))


def _table(rows: Floats32, columns: Columns) -> Any:
    """Codes as a model is fitted to them: an array where all columns are numbers, else a frame."""
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


# Where it is computed


class HeldView:
    """A parted view whose shards stay in the memory of workers for as long as this exists."""

    def __init__(self, view: PartedView, place: Here | Cluster) -> None:
        self.view, self.place = view, place
        self.shape = view.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> HeldView:
        return HeldView(self.view[rows], self.place)

    def over_shards(
        self, what: str, function: Callable[..., Any], by_row: Sequence[NDArray[Any]], *common: Any
    ) -> list[tuple[Positions, Any]]:
        """Of each shard that has rows: places of its rows, and ``function(rows, *by_row, *common)``."""
        shards: dict[int, list[PartRows]] = {}
        for one in self.view.parts():
            shards.setdefault(one.number % self.place.shards, []).append(one)
        asked = {number: _asked(parts, by_row) for number, parts in sorted(shards.items())}
        values = self.place.compute(what, self.view, asked, function, common)
        return [(one.places, value) for one, value in zip(asked.values(), values, strict=True)]


class ShardRows(NamedTuple):
    """Which rows of a shard are asked for."""

    inside: list[tuple[int, Positions | None]]
    """Numbers of parts, and positions in each; None: all of them."""
    places: Positions
    """Where these rows stand in the view."""
    by_row: list[NDArray[Any]]


def _asked(parts: Sequence[PartRows], by_row: Sequence[NDArray[Any]]) -> ShardRows:
    places = np.concatenate([one.places for one in parts])
    return ShardRows([(one.number, one.inside) for one in parts], places, [one[places] for one in by_row])


class Here:
    """Computes in this process, one shard in memory at a time."""

    def __init__(self, shards: int) -> None:
        self.shards = shards

    def compute(
        self,
        what: str,  # noqa: ARG002
        view: PartedView,
        asked: Mapping[int, ShardRows],
        function: Callable[..., Any],
        common: tuple[Any, ...],
    ) -> list[Any]:
        """What the function makes of each shard."""
        parts = {one.number: one.part for one in view.parts()}
        return [
            _work(function, {number: parts[number].read() for number, _ in one.inside}, one, common)
            for one in asked.values()
        ]


class Cluster:
    """The workers behind a Dask scheduler, and the shards of one view that they hold."""

    def __init__(self, scheduler: str, shards: int, attempts: int, patience: float) -> None:
        require("dask", f"the scheduler {scheduler}")
        self.scheduler, self.shards = scheduler, shards
        self._attempts, self._patience = attempts, patience
        self._lock = threading.Lock()
        self._client: Any = None
        self._held: dict[int, Any] = {}
        """By shard: the future of its parts."""
        self._deadline = 0.0

    def compute(
        self,
        what: str,
        view: PartedView,
        asked: Mapping[int, ShardRows],
        function: Callable[..., Any],
        common: tuple[Any, ...],
    ) -> list[Any]:
        """What the function makes of each shard; repeated on what is left where something was lost."""
        with self._lock:
            self._deadline = time.monotonic() + self._patience
            for attempt in range(1, self._attempts + 1):
                self._connect()
                try:
                    self._hold(view, [number for number in asked if number not in self._held])
                    sent = self._send([common, *asked.values()])
                    held = [self._held[number] for number in asked]
                    return self._results(
                        [
                            self._client.submit(_work, function, *one, sent[0], pure=False)
                            for one in zip(held, sent[1:], strict=True)
                        ]
                    )
                except Exception as error:
                    if not _is_loss(error):
                        raise
                    self._held.clear()
                    if self._client.status != "running" or not _listens(self.scheduler):
                        self._close()
                        raise self._unreachable(error) from error
                    said = f"cluster {self.scheduler}, {what}, attempt {attempt} of {self._attempts}: "
                    said += f"a worker was lost ({type(error).__name__}: {error!s:.200})"
                    if attempt == self._attempts or time.monotonic() > self._deadline:
                        self._close()
                        raise ClusterError(f"{said}. Look at the workers' logs") from error
                    warnings.warn(f"{said}; it is repeated on what is there", ClusterWarning, stacklevel=4)
        raise AssertionError("attempts is at least 1")

    def _hold(self, view: PartedView, missing: Sequence[int]) -> None:
        """Let workers load these shards; where they cannot see the files, their content is sent, once."""
        parts: dict[int, dict[int, ViewPart]] = {number: {} for number in missing}
        for one in view.whole.parts():
            if one.number % self.shards in parts:
                parts[one.number % self.shards][one.number] = one.part
        on_disk = [number for number in missing if all(one.path for one in parts[number].values())]
        loads = {number: self._client.submit(load_parts, parts[number], pure=False) for number in on_disk}
        seen = self._results([self._client.submit(bool, one, pure=False) for one in loads.values()])
        for number in missing:
            if dict(zip(on_disk, seen, strict=True)).get(number):
                self._held[number] = loads[number]
            else:
                content = {
                    at: one if one.values is not None else one.with_content()
                    for at, one in parts[number].items()
                }
                self._held[number] = self._client.submit(load_parts, *self._send([content]), pure=False)
                self._results([self._client.submit(bool, self._held[number], pure=False)])

    def _send(self, data: list[Any]) -> list[Any]:
        """Put data into the memory of workers."""
        left = max(1.0, self._deadline - time.monotonic())
        return list(self._client.scatter(data, hash=False, timeout=left))

    def _results(self, tasks: list[Any]) -> list[Any]:
        """Of all tasks, in their order; TimeoutError after the deadline, or where the scheduler is gone."""
        ended = threading.Semaphore(0)
        for one in tasks:
            one.add_done_callback(lambda _: ended.release())
        while not all(one.done() for one in tasks):
            ended.acquire(timeout=LOOK)
            if self._client.status != "running" or time.monotonic() > self._deadline:
                raise TimeoutError(f"it took more than {self._patience:g} s, or the scheduler is gone")
        return list(self._client.gather(tasks))

    def _connect(self) -> None:
        if self._client is not None:
            return
        from distributed import Client

        until = time.monotonic() + CONNECT
        while not _listens(self.scheduler):
            if time.monotonic() > until:  # a client that finds nobody would take 20 seconds more to end
                raise self._unreachable("nobody listens there")
            time.sleep(min(LOOK, CONNECT))
        options = {"set_as_default": False, "name": "gal", "direct_to_workers": False}
        try:
            self._client = Client(self.scheduler, timeout=CONNECT, **options)
        except (OSError, ValueError, TimeoutError) as error:
            raise self._unreachable(error) from error
        weakref.finalize(self, _close_later, self._client).atexit = False

    def _unreachable(self, why: object) -> ClusterError:
        return ClusterError(
            f"the scheduler {self.scheduler} cannot be reached: {why or type(why).__name__}. Start it, or "
            "correct scheduler under [model.options] in node.toml"
        )

    def _close(self) -> None:
        self._held.clear()
        client, self._client = self._client, None
        _close_later(client)


# What workers do

_ONE_AT_A_TIME = threading.Lock()
"""Limits of threads hold for a whole process: two fits at once would lift each other's."""


def load_parts(parts: Mapping[int, ViewPart]) -> dict[int, Floats32]:
    """The rows of these parts, to be kept here; nothing where the files cannot be seen."""
    try:
        return {number: part.read() for number, part in parts.items()}
    except (FileNotFoundError, PermissionError):
        return {}


def _work(
    function: Callable[..., Any], held: Mapping[int, Floats32], asked: ShardRows, common: tuple[Any, ...]
) -> Any:
    """What a function makes of some rows of a shard, with one thread."""
    if not held:  # a worker that was lost had seen the files, and this one does not
        raise ConnectionError("the files of the parts cannot be seen by all workers")
    rows = [held[number] if at is None else held[number][at] for number, at in asked.inside]
    with _ONE_AT_A_TIME, at_most(1):
        return function(np.concatenate(rows), *asked.by_row, *common)


def _is_loss(error: BaseException) -> bool:
    """Whether the cluster lost something; else the fit itself is wrong."""
    kinds = (CancelledError, TimeoutError, ConnectionError)
    return isinstance(error, kinds) or type(error).__module__.startswith("distributed")


def _listens(scheduler: str) -> bool:
    """Whether somebody is at this address."""
    from distributed.comm import get_address_host_port

    if not scheduler.startswith(("tcp://", "tls://")):
        return True
    try:
        socket.create_connection(get_address_host_port(scheduler), CONNECT).close()
    except OSError:
        return False
    return True


def _close_later(client: Any) -> None:
    """Close a connection beside what is done now: in the thread that serves it that would wait for itself."""

    def close() -> None:
        with suppress(Exception):
            client.close()

    threading.Thread(target=close, name="end of a connection", daemon=True).start()
