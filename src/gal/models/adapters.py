"""Adapters that make any regressor a local model of residuals (n, K).

scikit-learn's tags show which regressors accept several outputs; the others get one copy per output. The
user's own object is never fitted: only copies are.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache, lru_cache
from inspect import signature
from types import FunctionType
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, clone
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from gal.errors import LocalModelError
from gal.threads import cores


class LocalModel(Protocol):
    """Fits residuals (n, K) or (n,) to an organization's columns, and predicts the same shape."""

    def fit(self, X: Any, residual: Any, /) -> Any:
        """Fit from scratch."""

    def predict(self, X: Any, /) -> Any:
        """The fitted values for these rows."""


class StatefulModel(Protocol):
    """A stateful local model: one body for all rounds, and an output layer for each (Deep Model Sharing).

    Fitting a round changes the body, and with it the fitted values of earlier rounds. ``stateful = True``
    declares this; the label holder re-evaluates all rounds after the last one. A stateful model needs no
    ``fit`` and ``predict``, and accepts residuals with any number of outputs.

    Copies are made with ``clone`` where the model has ``get_params``, else with ``deepcopy``. An optional
    method ``release()`` is called after the last round, to drop what only further rounds need.
    """

    stateful: ClassVar[bool]
    rounds_: tuple[int, ...]
    """The learned rounds in order, without those that its organization missed."""

    def fit_round(
        self, X: Any, residual: Any, *, round: int, previous: Self | None, sample_weight: Any = None
    ) -> Self:
        """Fit the residual (n, K) of this round on top of ``previous``; returns the model of all rounds.

        ``self`` is an unfitted copy with the seed of this round. ``previous`` is the model after the last
        learned round of the same track and fold, or None. The result may be either or another object;
        ``previous`` is not used afterwards. In a resumed task ``previous`` may have this round or later ones
        already: forget them. On failure raise, and leave ``previous`` unchanged.
        """

    def predict_round(self, X: Any, round: int) -> Any:
        """The current values of this round, shape (n, K)."""

    def predict_rounds(self, X: Any, rounds: Sequence[int]) -> Any:
        """The values of several rounds from one pass of the body, shape (len(rounds), n, K)."""


def threads_of(model: Any, share: int = 1) -> int:
    """Threads of a fit or prediction: ``share`` of the caller's cores, and for networks all cores."""
    return cores() if getattr(model, "on_all_cores", False) else share


def is_stateful(model: Any) -> TypeGuard[StatefulModel]:
    """Whether this is a stateful model; a wrapper of one that declares nothing is none."""
    return bool(getattr(model, "stateful", False)) and not isinstance(model, type)


def prepared(model: Any, view: Any) -> Any:
    """The view where ``model`` computes, such as on a GPU: the result of its ``prepare(view)``, if any.

    ``prepare`` returns a prepared view unchanged.
    """
    inner = model.estimator if isinstance(model, PerOutput) else model
    return inner.prepare(view) if hasattr(inner, "prepare") else view


def as_local_model(model: Any, n_outputs: int, organization: str = "?") -> LocalModel:
    """A fresh copy of ``model`` that fits and predicts residuals of shape (n, ``n_outputs``).

    An object without scikit-learn tags is assumed to have one output. A stateful model is copied without a
    wrapper, see ``is_stateful``.

    >>> from sklearn.svm import SVR
    >>> as_local_model(SVR(), 3, "bank")
    PerOutput(estimator=SVR(), organization='bank')
    """
    if isinstance(model, type):
        raise LocalModelError(
            f"organization {organization!r}: expected a model object, got the class {model.__name__}; "
            f"write {model.__name__}()"
        )
    if is_stateful(model):
        lacking = [name for name in ("fit_round", "predict_rounds") if not hasattr(model, name)]
        if lacking:
            raise LocalModelError(
                f"organization {organization!r}: a stateful model needs {' and '.join(lacking)}, "
                f"which {type(model).__name__} lacks"
            )
        copied: Any = copy_unfitted(model)
        return copied  # type: ignore[no-any-return]
    if not (hasattr(model, "fit") and hasattr(model, "predict")):
        raise LocalModelError(
            f"organization {organization!r}: a local model needs fit and predict, got {type(model).__name__}"
        )
    local: LocalModel
    if isinstance(model, PerOutput):
        local = copy_unfitted(model).set_params(organization=organization)
    else:
        taken = outputs_taken(model)
        all_at_once = taken.several or (n_outputs == 1 and not taken.one)
        local = PerOutput(copy_unfitted(model), organization, all_at_once=all_at_once)
    return local


class Outputs(NamedTuple):
    """Which shapes of ``y`` a model's ``fit`` takes."""

    several: bool  # (n, K) with K > 1
    one: bool  # (n,)


def outputs_taken(model: Any) -> Outputs:
    """The shapes by scikit-learn's tags; (n,) only for an object without tags."""
    if not hasattr(model, "__sklearn_tags__"):
        return Outputs(several=False, one=True)
    # A pipeline has only one of its last step's target tags: read those of the step.
    tags = get_tags(model.steps[-1][1] if isinstance(model, Pipeline) else model).target_tags
    return Outputs(several=bool(tags.multi_output), one=bool(tags.single_output))


def copy_unfitted(model: Any) -> Any:
    """An independent copy: scikit-learn's clone, or a deep copy of other objects."""
    if not hasattr(model, "get_params"):
        return copy.deepcopy(model)
    plain = plain_parameters(model)
    if plain is None or type(model).__sklearn_clone__ is not BaseEstimator.__sklearn_clone__:
        return clone(model)
    copied = type(model)(**plain)
    # A class must keep its parameters unchanged; where it does not, clone raises the error.
    return copied if all(getattr(copied, name, copied) is plain[name] for name in plain) else clone(model)


PLAIN = frozenset({bool, int, float, str, type(None)})


def plain_parameters(model: Any) -> dict[str, Any] | None:
    """The parameters of an estimator with plain constants only, else None.

    scikit-learn's own way of reading them takes longer than a fit to few rows.
    """
    if not isinstance(model, BaseEstimator) or type(model).get_params is not BaseEstimator.get_params:
        return None
    kind: Any = type(model)
    found = {name: getattr(model, name, model) for name in _parameter_names(kind, kind.__init__)}
    marked = not OF_COPIES.isdisjoint(vars(model))
    return None if marked or any(type(value) not in PLAIN for value in found.values()) else found


OF_COPIES = frozenset({"_metadata_request", "_sklearn_output_config"})
"""Attributes that scikit-learn's clone copies besides parameters."""


@cache
def _parameter_names(kind: type[BaseEstimator], init: Any) -> tuple[str, ...]:  # noqa: ARG001
    """The names of parameters; ``init`` is part of the key because a class may get another one."""
    return tuple(kind._get_param_names())


def set_seed(model: Any, seed: int) -> None:
    """Give every ``random_state`` in ``model`` that is None a seed of its own; others stay as they are.

    Parameters
    ----------
    model: a scikit-learn model, which is changed.
    seed: the seeds follow from it and from the sorted names of the parameters.
    """
    if isinstance(model, PerOutput):
        set_seed(model.estimator, seed)  # also reaches one without get_params
        return
    if not hasattr(model, "get_params"):
        if getattr(model, "random_state", 0) is None:
            model.random_state = _derived_seed(seed, 0)
        return
    plain = plain_parameters(model)
    parameters = model.get_params(deep=True) if plain is None else plain
    unset = sorted(
        name
        for name, value in parameters.items()
        if (name == "random_state" or name.endswith("__random_state")) and value is None
    )
    if plain is not None:
        for index, name in enumerate(unset):
            setattr(model, name, _derived_seed(seed, index))
    elif unset:
        model.set_params(**{name: _derived_seed(seed, index) for index, name in enumerate(unset)})


def prepare_for_probes(model: Any, n_outputs: int, *, random: bool) -> None:
    """Prepare a model with a method ``prepare_probes`` for probe rounds with this number of outputs.

    ``random``: the targets are random numbers. Changes ``model``, of a pipeline its last step.
    """
    if isinstance(model, PerOutput):
        prepare_for_probes(model.estimator, n_outputs, random=random)
    elif isinstance(model, Pipeline):
        prepare_for_probes(model.steps[-1][1], n_outputs, random=random)
    elif hasattr(model, "prepare_probes"):
        model.prepare_probes(n_outputs, random=random)


def supports_sample_weight(model: Any) -> bool:
    """Whether ``fit`` of this model (of the last step of a pipeline) takes ``sample_weight``."""
    if is_stateful(model):
        return "sample_weight" in signature(model.fit_round).parameters
    if isinstance(model, Pipeline):
        return supports_sample_weight(model.steps[-1][1])
    if isinstance(model, PerOutput | MultiOutputRegressor):
        return supports_sample_weight(model.estimator)
    fit = getattr(type(model), "fit", None)
    if not isinstance(fit, FunctionType) or "fit" in getattr(model, "__dict__", {}):
        return bool(has_fit_parameter(model, "sample_weight"))
    return _takes_weights(fit)


@lru_cache
def _takes_weights(fit: FunctionType) -> bool:
    """Cached, since every fit needs it."""
    return "sample_weight" in signature(fit).parameters


def fit_weighted(model: Any, X: Any, y: Any, sample_weight: Any) -> Any:
    """Fit ``model`` with weights, or without if they are None; returns the fitted model."""
    if sample_weight is None:
        model.fit(X, y)
    elif not supports_sample_weight(model):
        raise LocalModelError(f"{type(model).__name__} takes no sample_weight: fit it without one")
    else:
        model.fit(X, y, **{_weight_parameter(model): sample_weight})
    return model


@dataclass(eq=False, repr=False)
class PerOutput(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor for residuals (n, K), with one copy of ``estimator`` per column of shape (n,).

    ``predict`` returns (n, K). ``all_at_once``: one copy for (n, K), or for the only column as (n,).
    """

    estimator: Any
    organization: str = "?"
    _: KW_ONLY
    all_at_once: bool = False

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> PerOutput:
        """Fit copies of the estimator."""
        residual = np.asarray(y)
        residual = residual.reshape(len(residual), -1)
        self.n_outputs_ = residual.shape[1]
        parts = [column.copy() for column in residual.T]
        if self.all_at_once:  # most regressors warn about a column vector
            alone = self.n_outputs_ == 1 and outputs_taken(self.estimator).one
            parts = [residual.ravel() if alone else residual]
        self.estimators_ = [
            fit_weighted(copy_unfitted(self.estimator), X, part, sample_weight) for part in parts
        ]
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The fitted values (n, K)."""
        if not hasattr(self, "estimators_"):
            check_is_fitted(self)  # raises; for one row the check takes as long as a prediction
        width = self.n_outputs_ if self.all_at_once else 1
        parts = [
            _as_columns(one.predict(X), width, self.estimator, self.organization) for one in self.estimators_
        ]
        return parts[0] if len(parts) == 1 else np.column_stack(parts)


def _as_columns(fitted: Any, n_outputs: int, model: Any, organization: str) -> NDArray[Any]:
    values = np.asarray(fitted)
    shaped = values[:, None] if values.ndim == 1 else values
    if shaped.ndim != 2 or shaped.shape[1] != n_outputs:
        raise LocalModelError(
            f"organization {organization!r}: {type(model).__name__}.predict returned shape {values.shape}, "
            f"expected {n_outputs} output(s) per row"
        )
    return shaped


def _weight_parameter(model: Any) -> str:
    """The name of the weights in ``fit``: pipelines pass them to their last step."""
    if isinstance(model, Pipeline):
        name, last = model.steps[-1]
        return f"{name}__{_weight_parameter(last)}"
    return "sample_weight"


@lru_cache(4096)
def _derived_seed(seed: int, index: int) -> int:
    """A seed that is the same in every fold of a cross-validation."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1)[0])
