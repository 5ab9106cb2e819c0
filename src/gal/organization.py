"""An organization: its own view of the rows, its own local model, and nothing else.

What it does with a request is the same whoever asks: in one process, in a worker or in a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn import config_context
from sklearn.utils import _safe_indexing

from gal.core.requests import FitRequest, PredictRequest, Terms, Track
from gal.core.residual_losses import LocalLoss
from gal.core.task import local_seed
from gal.errors import GALError, InvalidColumnsError, InvalidInputError, LocalModelError
from gal.models import as_local_model, default_model, set_seed, supports_sample_weight, with_local_loss
from gal.models.adapters import LocalModel, copy_unfitted, fit_weighted

Floats32 = NDArray[np.float32]


class Organization:
    """One participant: a name, a view (array or data frame, one row per label) and a local model.

    ``model`` is any scikit-learn regressor or pipeline; None takes ``gal.models.TabularModel``.
    ``local_loss`` is what it minimises when it fits the residual; None leaves that to the model.
    """

    def __init__(
        self, name: str, view: Any, model: Any = None, *, local_loss: str | LocalLoss | None = None
    ) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"an organization needs a name, got {name!r}")
        self.name = name
        self.view = check_view(name, view)
        self.model = default_model() if model is None else model
        self.local_loss = local_loss
        self.models: dict[tuple[Track, int], tuple[LocalModel, ...]] = {}
        """Fitted local models by track and round: one each, or one per fold."""
        if local_loss is not None:
            self.model = with_local_loss(self.model, local_loss, name)
        as_local_model(self.model, 1, name)  # says now what is wrong with it, not in round 1

    def __repr__(self) -> str:
        n_rows, n_columns = self.view.shape
        return (
            f"Organization({self.name!r}, {n_rows} rows x {n_columns} columns, {type(self.model).__name__})"
        )

    def fit(self, request: FitRequest, terms: Terms) -> Floats32:
        """Fit the residual and answer with values for all rows; the models stay here."""
        values, models = fit_locally(self.name, self.view, self.model, request, terms)
        if request.part is None:  # models of a cross-validation have done their work
            self.models[request.track, request.round] = models
        return values

    def predict(self, request: PredictRequest, n_outputs: int, view: Any = None) -> Floats32:
        """Answer for all rounds of the request at once, shape (rounds, n, K)."""
        rows = self.view if view is None else check_view(self.name, view)
        return predict_locally(self.name, rows, self.models, request, n_outputs)


def fit_locally(
    name: str, view: Any, model: Any, request: FitRequest, terms: Terms
) -> tuple[Floats32, tuple[LocalModel, ...]]:
    """Fitted values (n, K) of all rows, and the fitted models.

    Fit rows get in-sample values, or out-of-fold ones where the terms have folds; their models
    are then averaged for all other rows, now and in prediction. A failure of the local model
    comes out as LocalModelError.
    """
    rows = terms.rows_for(request.part)
    if view.shape[0] != rows.n:
        raise InvalidInputError(f"organization {name!r} has {view.shape[0]} rows, the task has {rows.n}")
    template = as_local_model(model, terms.n_outputs, name)
    set_seed(template, local_seed(terms.seed, name, request.round))
    weight = request.sample_weight if supports_sample_weight(template) else None
    values = np.empty((rows.n, terms.n_outputs), dtype=np.float32)
    models = []
    finite = _all_finite(view)
    try:
        for fold in range(rows.n_folds):
            taken = slice(None) if rows.folds is None else rows.folds != fold
            local = template if rows.folds is None else copy_unfitted(template)
            used = None if weight is None else weight[taken]
            # What was checked once is not checked again: trees on few rows would do little else.
            with config_context(skip_parameter_validation=request.round > 1, assume_finite=finite):
                fit_weighted(local, _rows(view, rows.fit[taken], rows.n), request.residual[taken], used)
            models.append(local)
            if rows.folds is not None:
                left_out = rows.fit[rows.folds == fold]
                values[left_out] = local.predict(_rows(view, left_out, rows.n))
        others = np.arange(rows.n) if rows.folds is None else np.setdiff1d(np.arange(rows.n), rows.fit)
        if len(others):
            values[others] = _average(models, _rows(view, others, rows.n))
    except GALError:
        raise
    except Exception as error:
        raise LocalModelError(
            f"organization {name!r}, round {request.round}: {type(model).__name__} failed: {error}"
        ) from error
    return values, tuple(models)


def predict_locally(
    name: str,
    view: Any,
    models: Mapping[tuple[Track, int], tuple[LocalModel, ...]],
    request: PredictRequest,
    n_outputs: int,
) -> Floats32:
    """Values (rounds, n, K) of these rows; NaN for a round that this organization has no model of."""
    if not any((request.track, round) in models for round in request.rounds):
        raise LocalModelError(f"organization {name!r} has no fitted models: it has not learned this task")
    values = np.full((len(request.rounds), view.shape[0], n_outputs), np.nan, dtype=np.float32)
    try:
        for index, round in enumerate(request.rounds):
            if (request.track, round) in models:
                values[index] = _average(models[request.track, round], view)
    except GALError:
        raise
    except Exception as error:
        raise LocalModelError(f"organization {name!r}, prediction: {error}") from error
    return values


def check_view(name: str, view: Any) -> Any:
    """The view as a table with rows and columns, or an error that names the organization."""
    if isinstance(view, list | tuple):
        view = np.asarray(view)
    shape = getattr(view, "shape", None)
    if shape is None or len(shape) < 2:
        raise InvalidColumnsError(
            f"organization {name!r}: its view must be a table (rows x columns), "
            f"got {type(view).__name__} of shape {shape}"
        )
    if shape[1] == 0:
        raise InvalidColumnsError(f"organization {name!r} has no columns: give it some or leave it out")
    return view


def _all_finite(view: Any) -> bool:
    """Whether the view is known to hold nothing but finite numbers: plain numeric columns only are looked at."""
    types = view.dtypes if isinstance(view, pd.DataFrame) else [getattr(view, "dtype", None)]
    if not all(isinstance(one, np.dtype) and one.kind in "fiub" for one in types) or sparse.issparse(view):
        return False
    return bool(np.isfinite(np.asarray(view)).all())


def _average(models: Any, view: Any) -> NDArray[Any]:
    total = np.asarray(models[0].predict(view), dtype=np.float64)
    for model in models[1:]:
        total = total + model.predict(view)
    return total / len(models)


def _rows(view: Any, positions: NDArray[np.intp], n_rows: int) -> Any:
    return view if len(positions) == n_rows else _safe_indexing(view, positions)
