"""An organization: its view of the rows, its local model, and fits and predictions.

The same functions serve one process, joblib's workers and the worker of a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import config_context
from sklearn.utils import _safe_indexing

from gal.core.local_losses import LocalLoss
from gal.core.requests import FitRequest, PredictRequest, Terms, Track
from gal.core.rows import Rows
from gal.core.task import local_seed
from gal.errors import (
    ClusterError,
    GALError,
    InvalidColumnsError,
    InvalidInputError,
    LocalModelError,
    UnsupportedLocalLossError,
)
from gal.models import as_local_model, default_model, set_seed, supports_sample_weight, with_local_loss
from gal.models.adapters import (
    LocalModel,
    copy_unfitted,
    fit_weighted,
    is_stateful,
    prepare_for_probes,
    prepared,
    threads_of,
)
from gal.models.sequences import Sequences
from gal.models.tabular.columns import is_frame
from gal.threads import at_most

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Models = tuple[LocalModel, ...]
"""Fitted models of a round: one, or one per fold."""


class Organization:
    """One participant: a name, a view (one row per label) and a local model.

    Parameters
    ----------
    name: unique in a task.
    view: a table (array, sparse matrix or data frame), an array with more axes such as images
        (n, channels, height, width), or any object with ``shape`` whose ``[rows]`` takes rows.
    model: any scikit-learn regressor or pipeline, or a ``gal.models.StatefulModel``; None:
        ``gal.models.TabularModel``.
    local_loss: minimized in fits of the residual; None: the model's own.
    """

    def __init__(
        self, name: str, view: Any, model: Any = None, *, local_loss: str | LocalLoss | None = None
    ) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"an organization needs a name, got {name!r}")
        self.name = name
        self.view = check_view(name, view)
        if model is None and not self.is_table:
            raise InvalidInputError(
                f"organization {name!r}: its view of shape {tuple(self.view.shape)} is no table, which the "
                "default model needs: give it a model, such as gal.models.deep.TorchModel()"
            )
        self.model = default_model() if model is None else model
        self.local_loss = local_loss
        self.models: dict[tuple[Track, int], Models] = {}
        """Fitted local models by track and round; the rounds of a stateful model share it."""
        self.prepared: Any = None
        """The view where the local model computes, from the first fit of a task until ``release``."""
        if local_loss is not None:
            self.model = with_local_loss(self.model, local_loss, name)
            if is_stateful(model) and not is_stateful(self.model):
                raise UnsupportedLocalLossError(
                    f"organization {name!r}: {type(model).__name__} is stateful and has no option local_loss "
                    f"for {local_loss!r}: leave local_loss out, or choose 'l2'"
                )
        as_local_model(self.model, 1, name)  # an error now, not in round 1

    def __repr__(self) -> str:
        n_rows, *rest = self.view.shape
        each = f"x {rest[0]} columns" if len(rest) == 1 else f"of {' x '.join(map(str, rest))}"
        return f"Organization({self.name!r}, {n_rows} rows {each}, {type(self.model).__name__})"

    @property
    def is_table(self) -> bool:
        """Whether its view has rows and columns, not images or series."""
        return len(self.view.shape) == 2 and not isinstance(self.view, Sequences)

    @property
    def stateful(self) -> bool:
        """Whether fitting a round changes the local model's predictions of earlier rounds."""
        return is_stateful(self.model)

    def prepare(self) -> Any:
        """The view where the local model computes; made once, and kept until ``release``."""
        if self.prepared is None:
            with _failures(
                f"organization {self.name!r}", f"{type(self.model).__name__} could not prepare its view: "
            ):
                self.prepared = prepared(self.model, self.view)
        return self.prepared

    def release(self) -> None:
        """Drop the prepared view, after the task."""
        self.prepared = None

    def finish(self) -> None:
        """Drop what only further rounds need, also in local models: the task will not resume."""
        self.release()
        for model in {id(model): model for models in self.models.values() for model in models}.values():
            if hasattr(model, "release"):
                model.release()

    def fit(self, request: FitRequest, terms: Terms) -> Floats32:
        """Fit the residual; values of all rows. The models stay here."""
        before = self.previous_models(request)
        values, models = fit_locally(self.name, self.prepare(), self.model, request, terms, previous=before)
        self.keep(request, models)
        return values

    def predict(self, request: PredictRequest, n_outputs: int, view: Any = None) -> Floats32:
        """Predict all rounds of the request, shape (rounds, n, K)."""
        rows = self.view if view is None else check_view(self.name, view)
        return predict_locally(self.name, rows, self.models, request, n_outputs)

    def revisit(self, request: PredictRequest, terms: Terms) -> Floats32:
        """Current predictions of the task's own rows, shape (rounds, n, K)."""
        return predict_locally(self.name, self.prepare(), self.models, request, terms.n_outputs)

    def previous_models(self, request: FitRequest) -> Models:
        """A stateful model after its last round before this one; nothing for other models."""
        rounds = [round for track, round in self.models if track == request.track and round < request.round]
        return self.models[request.track, max(rounds)] if rounds and self.stateful else ()

    def keep(self, request: FitRequest, models: Models) -> None:
        """Keep the fitted models; all rounds of a stateful model share the latest body."""
        if request.fold is not None:  # of a cross-validation only the fitted values are needed
            return
        self.models[request.track, request.round] = models
        for track, round in list(self.models) if self.stateful else ():
            if track == request.track and round < request.round:
                self.models[track, round] = models
            elif track == request.track and round > request.round:  # of a learning that went further
                del self.models[track, round]


@contextmanager
def _failures(owner: str, action: str = "") -> Iterator[None]:
    """Any failure of a local model is a LocalModelError that names the organization."""
    try:
        yield
    except ClusterError as error:
        raise ClusterError(f"{owner}: {error}") from error
    except GALError:
        raise
    except Exception as error:
        raise LocalModelError(f"{owner}: {action}{error}") from error


def fit_locally(
    name: str,
    view: Any,
    model: Any,
    request: FitRequest,
    terms: Terms,
    *,
    previous: Models = (),
    share: int = 1,
) -> tuple[Floats32, Models]:
    """Fitted values (n, K) of all rows, and the fitted models.

    Fit rows get in-sample values, or out-of-fold ones where the terms have folds; their models
    are then averaged for all other rows, now and in prediction. A stateful model continues ``previous``;
    ``share`` is the number of cores for the fit.
    """
    rows = terms.rows_for(request)
    if view.shape[0] != terms.rows.n:
        raise InvalidInputError(
            f"organization {name!r} has {view.shape[0]} rows, the task has {terms.rows.n}"
        )
    template = as_local_model(model, terms.n_outputs, name)
    set_seed(template, local_seed(terms.seed, name, request.round))
    if request.target != "residual":
        prepare_for_probes(template, terms.n_outputs, random=request.target == "random")
    with (
        _failures(f"organization {name!r}, round {request.round}", f"{type(model).__name__} failed: "),
        at_most(threads_of(model, share)),
    ):
        view = prepared(template, view)
        if request.target != "residual":
            view = _rows(view, terms.rows.sample, terms.rows.n)
        models = _fit_folds(template, view, rows, request, previous)
        return _own_values(models, view, rows, request, terms.n_outputs), models


def _fit_folds(template: Any, view: Any, rows: Rows, request: FitRequest, previous: Models) -> Models:
    """One model fitted to all fit rows, or one for each fold without its rows."""
    shared = request.sample_weight
    weight = shared if shared is not None and supports_sample_weight(template) else None
    finite, models = _all_finite(view), list[Any]()
    for fold in range(rows.n_folds):
        taken = slice(None) if rows.folds is None else rows.folds != fold
        local = template if rows.folds is None else copy_unfitted(template)
        used = None if weight is None else weight[taken]
        X, residual = _rows(view, rows.fit[taken], rows.n), request.residual[taken]
        # Checked once is enough: checks would take most of the time of small trees.
        with config_context(skip_parameter_validation=request.round > 1, assume_finite=finite):
            if is_stateful(local):
                before: Any = previous[fold] if previous else None
                weights = {} if used is None else {"sample_weight": used}
                local = local.fit_round(X, residual, round=request.round, previous=before, **weights)
                if request.round not in local.rounds_:
                    raise ValueError(
                        f"fit_round of round {request.round} returned a model of rounds {local.rounds_}"
                    )
            else:
                fit_weighted(local, X, residual, used)
        models.append(local)
    return tuple(models)


def predict_locally(
    name: str,
    view: Any,
    models: Mapping[tuple[Track, int], Models],
    request: PredictRequest,
    n_outputs: int,
    *,
    share: int = 1,
) -> Floats32:
    """Values (rounds, n, K) of these rows; NaN for a round without a model."""
    together: dict[
        tuple[int, ...], tuple[Models, list[int]]
    ] = {}  # a stateful model predicts all rounds at once
    for round in request.rounds:
        fitted = models.get((request.track, round))
        if fitted is not None and not (is_stateful(fitted[0]) and round not in fitted[0].rounds_):
            alike = tuple(map(id, fitted)) if is_stateful(fitted[0]) else (round,)
            together.setdefault(alike, (fitted, []))[1].append(round)
    if not together:
        raise LocalModelError(f"organization {name!r} has no fitted models: it has not learned this task")
    values = np.full((len(request.rounds), view.shape[0], n_outputs), np.nan, dtype=np.float32)
    first = next(iter(together.values()))[0][0]
    with (
        _failures(f"organization {name!r}, prediction"),
        at_most(threads_of(first, share)),
    ):
        view = prepared(first, view)
        for fitted, rounds in together.values():
            places = [request.rounds.index(round) for round in rounds]
            values[places] = _average(fitted, view, rounds)
    return values


def _own_values(models: Models, view: Any, rows: Rows, request: FitRequest, n_outputs: int) -> Floats32:
    """Values (n, K) of all rows: out-of-fold for fit rows where there are folds."""
    values, rounds = np.empty((rows.n, n_outputs), dtype=np.float32), (request.round,)
    if rows.folds is None:
        values[:] = _average(models, view, rounds)[0]
        return values
    for fold, model in enumerate(models):
        left_out = rows.fit[rows.folds == fold]
        values[left_out] = _average((model,), _rows(view, left_out, rows.n), rounds)[0]
    others = np.flatnonzero(~rows.is_fit)
    if len(others):
        values[others] = _average(models, _rows(view, others, rows.n), rounds)[0]
    return values


def _average(models: Models, view: Any, rounds: Sequence[int]) -> Floats32:
    """Mean prediction of the models of all folds, shape (rounds, n, K); infinite beyond float32."""
    total = np.asarray(_predicted(models[0], view, rounds), dtype=np.float64)
    for model in models[1:]:
        total = total + _predicted(model, view, rounds)
    with np.errstate(over="ignore"):  # the label holder refuses what is infinite
        return (total / len(models)).astype(np.float32)


def _predicted(model: LocalModel, view: Any, rounds: Sequence[int]) -> NDArray[Any]:
    """Values (rounds, n, K); a model that is not stateful has one round only."""
    if is_stateful(model):
        values = np.asarray(model.predict_rounds(view, rounds))
    else:
        values = np.asarray(model.predict(view))[None]
    expected = (len(rounds), view.shape[0])
    if values.ndim != 3 or values.shape[:2] != expected:
        raise ValueError(
            f"predicted values of shape {values.shape}, expected {expected[0]} round(s) of {expected[1]} rows"
        )
    return values


def check_view(name: str, view: Any) -> Any:
    """The view as something with rows and columns (or more axes), or an error that names the organization."""
    if isinstance(view, list | tuple):
        view = np.asarray(view)
    shape = getattr(view, "shape", None)
    if shape is None or len(shape) < 2:
        raise InvalidColumnsError(
            f"organization {name!r}: its view must be a table (rows x columns), or have rows as the first of "
            f"more axes, got {type(view).__name__} of shape {shape}"
        )
    if 0 in shape[1:]:
        raise InvalidColumnsError(f"organization {name!r} has no columns: give it some or leave it out")
    return view


def take_rows(view: Any, positions: NDArray[np.intp]) -> Any:
    """These rows of a view of any kind."""
    # Any view may have an attribute ``columns``: frames of polars and pyarrow are known by their interfaces.
    other = hasattr(view, "__dataframe__") or hasattr(view, "__arrow_c_stream__")
    if hasattr(view, "iloc") or sparse.issparse(view) or (hasattr(view, "columns") and other):
        return _safe_indexing(view, positions)
    if type(view) in (np.ndarray, np.memmap):  # as [positions], in half the time
        return np.asarray(view).take(positions, axis=0)
    return view[positions]


def _rows(view: Any, positions: NDArray[np.intp], n_rows: int) -> Any:
    return view if len(positions) == n_rows else take_rows(view, positions)


def _all_finite(view: Any) -> bool:
    """Whether the view is known to be finite; only plain numeric columns are checked."""
    types = view.dtypes if is_frame(view) else [getattr(view, "dtype", None)]
    if not all(isinstance(one, np.dtype) and one.kind in "fiub" for one in types) or sparse.issparse(view):
        return False
    # Explicit floats: a frame of numbers and booleans would become objects.
    values = np.asarray(view, dtype=np.float64 if is_frame(view) else None)
    with np.errstate(over="ignore", invalid="ignore"):  # a sum keeps nothing for each number
        return bool(np.isfinite(values.sum())) or bool(np.isfinite(values).all())
