"""Any regressor as a local model: fits and predicts residuals (n, K), whatever it was made for.

scikit-learn's tags tell which regressors take several outputs at once; the others are copied, one
copy per output. The user's own object is never fitted: only copies of it are.
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
    """Fits residuals (n, K) or (n,) from an organization's columns, and predicts the same shape."""

    def fit(self, X: Any, residual: Any, /) -> Any:
        """Forget what was learned before, and learn this."""

    def predict(self, X: Any, /) -> Any:
        """The fitted values for these rows."""


class MovingModel(Protocol):
    """A local model with one body for all rounds, and something of its own for each: Deep Model Sharing.

    Learning a round moves the body, and with it what the model says of earlier rounds. It is told so by
    ``moving = True``; the label holder then asks for the values of all rounds once more after the last
    one. A moving model needs no ``fit`` and ``predict``, and takes residuals of any number of outputs.

    Copies are made as of any model: with ``clone`` where it has ``get_params``, else with ``deepcopy``. If it
    has a method ``release()``, this is called when no more rounds will come, and drops what only they need.
    """

    moving: ClassVar[bool]
    rounds_: tuple[int, ...]
    """The rounds that it has learned, in order; one that its organization missed is not among them."""

    def fit_round(
        self, X: Any, residual: Any, *, round: int, previous: Self | None, sample_weight: Any = None
    ) -> Self:
        """Learn the residual (n, K) of this round on top of ``previous``; the model of all rounds so far.

        ``self`` is an unfitted copy with the seed of this round; ``previous`` is the model after the
        last round that was learned (of the same track and fold), None at first. What comes back may be
        either, or another object; ``previous`` is not used any more. Where a task resumes, ``previous``
        may know this round or later ones already: they are forgotten. Where learning fails, raise, and
        leave ``previous`` as it was.
        """

    def predict_round(self, X: Any, round: int) -> Any:
        """What the model says now of this round, shape (n, K)."""

    def predict_rounds(self, X: Any, rounds: Sequence[int]) -> Any:
        """The same for several rounds of ``rounds_`` in one pass of the body, shape (len(rounds), n, K)."""


def threads_of(model: Any, share: int = 1) -> int:
    """Threads that a fit or a prediction of this model gets: its ``share`` of the cores that a caller asked
    for, and all that this process may use for a network, which has enough to do for them.
    """
    return cores() if getattr(model, "on_all_cores", False) else share


def is_moving(model: Any) -> TypeGuard[MovingModel]:
    """Whether this is a moving model; a wrapper that takes one for an ordinary model is none."""
    return bool(getattr(model, "moving", False)) and not isinstance(model, type)


def prepared(model: Any, view: Any) -> Any:
    """The view where ``model`` computes, such as on a GPU: what its ``prepare(view)`` returns.

    A model without ``prepare`` takes the view as it is. ``prepare`` returns a prepared view unchanged.
    """
    inner = model.estimator if isinstance(model, PerOutput) else model
    return inner.prepare(view) if hasattr(inner, "prepare") else view


def as_local_model(model: Any, n_outputs: int, organization: str = "?") -> LocalModel:
    """A fresh copy of ``model`` that fits and predicts residuals of shape (n, ``n_outputs``).

    An object without scikit-learn tags is taken to have one output. A copy of a moving model comes back
    as it is: ask ``is_moving``.

    >>> from sklearn.svm import SVR
    >>> as_local_model(SVR(), 3, "bank")
    PerOutput(estimator=SVR(), organization='bank')
    """
    if isinstance(model, type):
        raise LocalModelError(
            f"organization {organization!r}: expected a model object, got the class {model.__name__}; "
            f"write {model.__name__}()"
        )
    if is_moving(model):
        lacking = [name for name in ("fit_round", "predict_rounds") if not hasattr(model, name)]
        if lacking:
            raise LocalModelError(
                f"organization {organization!r}: a moving model needs {' and '.join(lacking)}, "
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
    """What scikit-learn's tags say; (n,) only for an object without tags."""
    if not hasattr(model, "__sklearn_tags__"):
        return Outputs(several=False, one=True)
    # A pipeline hands on one of its last step's target tags only, so ask that step.
    tags = get_tags(model.steps[-1][1] if isinstance(model, Pipeline) else model).target_tags
    return Outputs(several=bool(tags.multi_output), one=bool(tags.single_output))


def copy_unfitted(model: Any) -> Any:
    """A copy that shares nothing: scikit-learn's clone, or a deep copy of what cannot be cloned."""
    if not hasattr(model, "get_params"):
        return copy.deepcopy(model)
    plain = plain_parameters(model)
    if plain is None or type(model).__sklearn_clone__ is not BaseEstimator.__sklearn_clone__:
        return clone(model)
    copied = type(model)(**plain)
    # What clone makes sure of, and says in words: a class must keep its parameters as they are.
    return copied if all(getattr(copied, name, copied) is plain[name] for name in plain) else clone(model)


PLAIN = frozenset({bool, int, float, str, type(None)})


def plain_parameters(model: Any) -> dict[str, Any] | None:
    """The parameters of an estimator of scikit-learn's making that has plain constants only, else None.

    To read them as scikit-learn does takes longer than a fit to few rows.
    """
    if not isinstance(model, BaseEstimator) or type(model).get_params is not BaseEstimator.get_params:
        return None
    kind: Any = type(model)
    found = {name: getattr(model, name, model) for name in _parameter_names(kind, kind.__init__)}
    marked = not OF_COPIES.isdisjoint(vars(model))
    return None if marked or any(type(value) not in PLAIN for value in found.values()) else found


OF_COPIES = frozenset({"_metadata_request", "_sklearn_output_config"})
"""What scikit-learn's clone takes over besides parameters."""


@cache
def _parameter_names(kind: type[BaseEstimator], init: Any) -> tuple[str, ...]:  # noqa: ARG001
    """As scikit-learn finds them; ``init`` because a class may get another."""
    return tuple(kind._get_param_names())


def set_seed(model: Any, seed: int) -> None:
    """Give every ``random_state`` in ``model`` that is None its own seed; others stay as they are.

    Changes ``model``; the seeds follow from ``seed`` and the sorted names of the parameters.
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


def go_beyond(model: Any, n_outputs: int, *, random: bool) -> None:
    """Tell a model that has a ``goes_beyond`` that it is fitted beyond the rounds, to so many outputs, and
    whether these are random numbers.

    Changes ``model``, like ``set_seed``; of a pipeline the last step.
    """
    if isinstance(model, PerOutput):
        go_beyond(model.estimator, n_outputs, random=random)
    elif isinstance(model, Pipeline):
        go_beyond(model.steps[-1][1], n_outputs, random=random)
    elif hasattr(model, "goes_beyond"):
        model.goes_beyond(n_outputs, random=random)


def supports_sample_weight(model: Any) -> bool:
    """Whether ``fit`` of this model (of the last step of a pipeline) takes ``sample_weight``."""
    if is_moving(model):
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
    """Asked in every fit of every round, and found out once."""
    return "sample_weight" in signature(fit).parameters


def fit_weighted(model: Any, X: Any, y: Any, sample_weight: Any) -> Any:
    """Fit ``model`` with weights, or without if they are None; returns what was fitted."""
    if sample_weight is None:
        model.fit(X, y)
    elif not supports_sample_weight(model):
        raise LocalModelError(f"{type(model).__name__} takes no sample_weight: fit it without one")
    else:
        model.fit(X, y, **{_weight_parameter(model): sample_weight})
    return model


@dataclass(eq=False, repr=False)
class PerOutput(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor for residuals (n, K): a copy for each column, which gets it as (n,), or one for all.

    ``predict`` returns (n, K). ``all_at_once``: one copy that takes (n, K), or the only column as (n,).
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
            check_is_fitted(self)  # which says so; for one row it takes as long as a prediction
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
    """The name under which ``fit`` takes the weights: pipelines hand them to their last step."""
    if isinstance(model, Pipeline):
        name, last = model.steps[-1]
        return f"{name}__{_weight_parameter(last)}"
    return "sample_weight"


@lru_cache(4096)
def _derived_seed(seed: int, index: int) -> int:
    """The same in every part of a cross-validation."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1)[0])
