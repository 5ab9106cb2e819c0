"""The contract of a local model, as checks that users run on their own.

>>> from sklearn.linear_model import Ridge
>>> check_local_model(Ridge())
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import LocalModelError
from gal.models.adapters import (
    as_local_model,
    copy_unfitted,
    is_stateful,
    outputs_taken,
    prepared,
    set_seed,
    supports_sample_weight,
)
from gal.models.parted import PartColumn, in_parts, takes_parts

Check = Callable[[Any], None]
Findings = Iterator[tuple[bool, str]]
"""Whether a rule holds, and the error where it does not."""
_CHECKS: dict[str, Check] = {}


def check_local_model(model: Any) -> None:
    """Run every check of the contract on a local model: about thirty fits on at most 60 rows.

    Parameters
    ----------
    model: any regressor, pipeline or stateful model; it is not changed.

    Raises
    ------
    AssertionError, LocalModelError: the message names the first check that fails.
    """
    for check in _CHECKS.values():
        check(model)


def iter_local_model_checks() -> list[tuple[str, Check]]:
    """Names and checks, for ``pytest.mark.parametrize``; each check takes the model."""
    return list(_CHECKS.items())


def _check(function: Callable[[Any], Findings]) -> Callable[[Any], Findings]:
    """Register a check; unexpected errors are reported with its name."""
    name = function.__name__

    @wraps(function)
    def checked(model: Any) -> None:
        kind = type(model).__name__
        try:
            for holds, message in function(model):
                if not holds:
                    raise AssertionError(f"{kind}: {message}")
        except (AssertionError, LocalModelError):
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise LocalModelError(f"{kind} failed the check {name!r}: {why}") from error

    _CHECKS[name] = checked
    return function


def _data(n: int = 60, d: int = 4, n_outputs: int = 3, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Columns (n, d) and a residual (n, K) that depends on them, with unit RMS as it is broadcast."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    residual = X @ rng.normal(size=(d, n_outputs)) + 0.1 * rng.normal(size=(n, n_outputs))
    return X, (residual / np.sqrt(np.mean(residual**2))).astype(np.float32)


class _FirstRound:
    """A stateful model in its first round, as an ordinary model."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Any, residual: Any, **weights: Any) -> None:
        self.model = self.model.fit_round(X, residual, round=1, previous=None, **weights)

    def predict(self, X: Any) -> Any:
        return self.model.predict_round(X, 1)


def _ordinary(model: Any) -> Any:
    return _FirstRound(model) if is_stateful(model) else model


def _fitted(model: Any, X: Any, residual: Any, **weights: Any) -> Any:
    local: Any = as_local_model(model, residual.shape[1], "check")
    set_seed(local, 7)
    ordinary = _ordinary(local)
    ordinary.fit(X, residual, **weights)
    return ordinary


def _sound(values: Any, n: int, n_outputs: int, case: str) -> Findings:
    """Predictions have the right shape, and are finite in float32."""
    found, expected = np.asarray(values), (n, n_outputs)
    yield found.shape == expected, f"{case}: predict returned shape {found.shape}, expected {expected}"
    finite = bool(np.isfinite(found.astype(np.float32)).all())
    yield finite, f"{case}: predict returned values that are not finite in float32"


def _close(found: Any, expected: Any) -> bool:
    return bool(np.allclose(found, expected, rtol=1e-4, atol=1e-5))


def _state(model: Any) -> list[str]:
    """The visible state of the model and of the models inside it."""
    inner = model.get_params(deep=True).values() if hasattr(model, "get_params") else ()
    return [repr(getattr(part, "__dict__", part)) for part in (model, *inner)]


@_check
def check_model_unchanged(model: Any) -> Findings:
    before = _state(model)
    _fitted(model, *_data())
    yield _state(model) == before, "fitting a copy changed the given model: copies share state with it"


def _fits(model: Any, case: str = "", dtype: Any = np.float32, **shape: int) -> Findings:
    X, residual = _data(**shape)
    fitted = _fitted(model, X, residual.astype(dtype)).predict(X)
    yield from _sound(fitted, len(X), residual.shape[1], f"fitted to {case}")


for _name, _case in {
    "one_output": {"case": "a residual (n, 1)", "n_outputs": 1},
    "three_outputs": {"case": "a residual (n, 3)"},
    "float64_residual": {"case": "a residual of float64", "dtype": np.float64},
    "one_column": {"case": "one column", "d": 1},
    "five_rows": {"case": "five rows", "n": 5},
}.items():
    _one: Any = partial(_fits, **_case)  # type: ignore[arg-type]
    _one.__name__ = _name
    _check(_one)


@_check
def check_predict_before_fit(model: Any) -> Findings:
    try:
        _ordinary(copy_unfitted(model)).predict(_data()[0])
    except Exception:
        return
    yield False, "predict returned something before fit; it must raise an error"


@_check
def check_same_seed(model: Any) -> Findings:
    X, residual = _data()
    first, second = (_fitted(model, X, residual).predict(X) for _ in range(2))
    yield (
        np.array_equal(first, second),
        "two fits with the same seed predict differently: draw all random numbers from a parameter named "
        "random_state",
    )


@_check
def check_rowwise_prediction(model: Any) -> Findings:
    X, residual = _data()
    local = _fitted(model, X, residual)
    expected, order = np.asarray(local.predict(X)), np.random.default_rng(1).permutation(len(X))
    same = _close(local.predict(X[order]), expected[order])
    yield same, "the prediction for a row depends on the order of the rows"
    single = local.predict(X[:1])
    yield from _sound(single, 1, 3, "predicting a single row")
    yield _close(single, expected[:1]), "the prediction for a row depends on the other rows of the request"


@_check
def constant_residual(model: Any) -> Findings:
    X, residual = _data()
    for value in (0.0, 1.0):
        fitted = _fitted(model, X, np.full_like(residual, value)).predict(X)
        yield from _sound(fitted, len(X), 3, f"fitted to a constant residual of {value}")


@_check
def check_inputs_unmodified(model: Any) -> Findings:
    for n_outputs in (1, 3):
        X, residual = _data(n_outputs=n_outputs)
        columns, sent = X.copy(), residual.copy()
        _fitted(model, X, residual).predict(X)
        yield np.array_equal(X, columns), "it modified the columns"
        yield np.array_equal(residual, sent), "it modified the residual"


@_check
def check_weighted_fit(model: Any) -> Findings:
    if not supports_sample_weight(model):
        return
    X, residual = _data()
    wrong = np.arange(len(X)) % 2 == 0
    residual[wrong] = -residual[wrong]
    plain = _fitted(model, X, residual).predict(X)
    weighted = _fitted(model, X, residual, sample_weight=np.where(wrong, 0.0, 1.0)).predict(X)
    yield from _sound(weighted, len(X), 3, "fitted with weights")
    yield not _close(plain, weighted), "fit takes sample_weight but ignores it"


@_check
def check_refit(model: Any) -> Findings:
    if is_stateful(model):  # every round is learned by a fresh copy
        return
    X, residual = _data()
    X_other, residual_other = _data(n=50, seed=1)
    first = np.s_[:, 0] if outputs_taken(model).one else np.s_[:, :1]
    # Copies of the model itself: adapters fit a fresh copy every time, which would hide kept state.
    once, twice = copy_unfitted(model), copy_unfitted(model)
    for one in (once, twice):
        set_seed(one, 7)
    once.fit(X, residual[first])
    twice.fit(X_other, residual_other[first])
    twice.fit(X, residual[first])
    same = _close(once.predict(X), twice.predict(X))
    yield same, "a second fit gives other predictions than a first one: fit must forget earlier fits"


@_check
def check_prepared_rows(model: Any) -> Findings:
    """The contract of ``gal.models.View``, for models that prepare a view or take a partitioned one."""
    X, residual = _data()
    local = as_local_model(model, 3, "check")
    parted = in_parts(X.astype(np.float32), [PartColumn(name) for name in "abcd"])
    view = prepared(local, parted if takes_parts(model) else X)
    if view is X:
        return
    rows = np.random.default_rng(2).permutation(len(X))[:40]
    some = view[rows]
    for one, n in ((view, len(X)), (some, 40)):
        yield tuple(one.shape)[:1] == (n,), f"{n} rows of its view have the shape {tuple(one.shape)}"
    whole, plain = (_fitted(model, one, residual).predict(one) for one in (view, X))
    yield _close(whole, plain), "its predictions for the view differ from those for the columns"
    there, ordered = _fitted(model, some, residual[rows]), np.sort(rows)
    expected = (
        _fitted(model, X[rows], residual[rows]).predict(X),
        _fitted(model, view[ordered], residual[ordered]).predict(
            view
        ),  # of a view that is encoded as a whole
    )
    found = there.predict(view)
    same = any(_close(found, one) for one in expected)
    yield same, "a fit to some rows of its view, in another order, differs from a fit to these rows"
    yield _close(there.predict(some), np.asarray(found)[rows]), "view[rows] has the rows in another order"


@_check
def check_stateful_rounds(model: Any) -> Findings:
    """Also where a task resumes, and an organization is ahead of the label holder."""
    if not is_stateful(model):
        return
    X, residual = _data()

    def after(*rounds: int) -> Any:
        learned = None
        for round in rounds:
            local: Any = as_local_model(model, 3, "check")
            set_seed(local, round)
            learned = local.fit_round(X, residual / round, round=round, previous=learned)
        return learned

    for rounds, known in (((1, 2, 4), (1, 2, 4)), ((1, 2, 4, 2), (1, 2))):
        learned = after(*rounds)
        yield (
            tuple(learned.rounds_) == known,
            f"rounds_ is {learned.rounds_} after rounds {rounds}: fit_round must forget this round and later "
            "ones of the previous model",
        )
        order = known[::-1]
        together = np.asarray(learned.predict_rounds(X, order))
        shape = (len(order), len(X), 3)
        yield together.shape == shape, f"predict_rounds returned shape {together.shape}, expected {shape}"
        yield bool(np.isfinite(together).all()), "predict_rounds returned NaN or infinite values"
        for round, values in zip(order, together, strict=True):
            same = _close(values, learned.predict_round(X, round))
            yield same, f"predict_round and predict_rounds differ in round {round}"
        again = after(*rounds).predict_rounds(X, order)
        yield np.array_equal(together, again), "the same rounds and seeds give other predictions"
