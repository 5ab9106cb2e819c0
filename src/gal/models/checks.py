"""The contract of a local model, as checks that users can run on their own.

>>> from sklearn.linear_model import Ridge
>>> check_local_model(Ridge())
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import LocalModelError
from gal.models.adapters import (
    MovingModel,
    as_local_model,
    copy_unfitted,
    is_moving,
    outputs_taken,
    prepared,
    set_seed,
    supports_sample_weight,
)
from gal.models.parted import PartColumn, in_parts, takes_parts

Check = Callable[[Any], None]
_CHECKS: list[tuple[str, Check]] = []


def check_local_model(model: Any) -> None:
    """Run every check on ``model``: AssertionError or LocalModelError says what is wrong with it.

    ``model`` itself is not changed. Takes about thirty fits on 60 rows or fewer.
    """
    for _, check in iter_local_model_checks():
        check(model)


def iter_local_model_checks() -> list[tuple[str, Check]]:
    """Names and checks, for ``pytest.mark.parametrize``; each check takes the model."""
    return list(_CHECKS)


def _check(function: Check) -> Check:
    """Register a check; errors that are not about the contract are told with the check's name."""
    name = function.__name__.removeprefix("_")

    @wraps(function)
    def checked(model: Any) -> None:
        try:
            function(model)
        except (AssertionError, LocalModelError):
            raise
        except Exception as error:
            raise LocalModelError(
                f"{type(model).__name__} failed the check {name!r}: {type(error).__name__}: {error}"
            ) from error

    _CHECKS.append((name, checked))
    return checked


def _data(
    n: int = 60, d: int = 4, n_outputs: int = 3, seed: int = 0
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Columns (n, d) and a residual (n, K) that depends on them, with unit RMS as it is broadcast."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    residual = X @ rng.normal(size=(d, n_outputs)) + 0.1 * rng.normal(size=(n, n_outputs))
    return X, (residual / np.sqrt(np.mean(residual**2))).astype(np.float32)


class _FirstRound:
    """A moving model in its first round, as an ordinary one."""

    def __init__(self, model: MovingModel) -> None:
        self.model = model

    def fit(self, X: Any, residual: Any, **weights: Any) -> None:
        self.model = self.model.fit_round(X, residual, round=1, previous=None, **weights)

    def predict(self, X: Any) -> Any:
        return self.model.predict_round(X, 1)


def _ordinary(model: Any) -> Any:
    return _FirstRound(model) if is_moving(model) else model


def _fitted(model: Any, X: Any, residual: Any, **weights: Any) -> Any:
    local: Any = as_local_model(model, residual.shape[1], "check")
    set_seed(local, 7)
    ordinary = _ordinary(local)
    ordinary.fit(X, residual, **weights)
    return ordinary


def _predicted(local: Any, X: Any, n_outputs: int, case: str) -> NDArray[np.float32]:
    fitted = np.asarray(local.predict(X))
    assert fitted.shape == (len(X), n_outputs), (
        f"{case}: predict returned shape {fitted.shape}, expected {(len(X), n_outputs)}"
    )
    values = fitted.astype(np.float32)
    assert np.all(np.isfinite(values)), f"{case}: predict returned values that are not finite in float32"
    return values


def _assert_close(found: Any, expected: Any, message: str) -> None:
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5), message


def _state(model: Any) -> list[str]:
    """What can be seen of the model and of the models inside it, fitted or not."""
    inner = model.get_params(deep=True).values() if hasattr(model, "get_params") else ()
    return [repr(getattr(part, "__dict__", part)) for part in (model, *inner)]


def _name(model: Any) -> str:
    return type(model).__name__


@_check
def _fitting_leaves_the_given_model_unchanged(model: Any) -> None:
    before = _state(model)
    _fitted(model, *_data())
    assert _state(model) == before, (
        f"fitting a copy of {_name(model)} changed the given model: copies share state with it"
    )


def _check_fit(name: str, said: str, n_outputs: int = 3, dtype: Any = np.float32, **shape: int) -> None:
    """Register that a model fits such data, and predicts finite values of the right shape."""

    def fits(model: Any) -> None:
        X, residual = _data(n_outputs=n_outputs, **shape)
        fitted = _fitted(model, X, residual.astype(dtype))
        _predicted(fitted, X, n_outputs, f"{_name(model)} fitted to {said}")

    fits.__name__ = name
    _check(fits)


_check_fit("one_output", "a residual (n, 1)", n_outputs=1)
_check_fit("three_outputs", "a residual (n, 3)")
_check_fit("float64_residual", "a residual of float64", dtype=np.float64)
_check_fit("one_column", "one column", d=1)
_check_fit("five_rows", "five rows", n=5)


@_check
def _predict_before_fit_raises(model: Any) -> None:
    try:
        _ordinary(copy_unfitted(model)).predict(_data()[0])
    except Exception:
        return
    raise AssertionError(f"{_name(model)}.predict returned something before fit; it must raise an error")


@_check
def _same_seed_gives_the_same_predictions(model: Any) -> None:
    X, residual = _data()
    first, second = (_fitted(model, X, residual).predict(X) for _ in range(2))
    assert np.array_equal(first, second), (
        f"{_name(model)} fitted twice with the same seed predicts differently: "
        "draw all randomness from a parameter named random_state"
    )


@_check
def _a_prediction_depends_on_its_row_alone(model: Any) -> None:
    X, residual = _data()
    local = _fitted(model, X, residual)
    expected, order = np.asarray(local.predict(X)), np.random.default_rng(1).permutation(len(X))
    _assert_close(
        local.predict(X[order]),
        expected[order],
        f"{_name(model)}: the prediction for a row depends on the order of the rows",
    )
    _assert_close(
        _predicted(local, X[:1], 3, f"{_name(model)} asked for a single row"),
        expected[:1],
        f"{_name(model)}: the prediction for a row depends on the other rows asked for",
    )


@_check
def _constant_residual(model: Any) -> None:
    X, residual = _data()
    for value in (0.0, 1.0):
        local = _fitted(model, X, np.full_like(residual, value))
        _predicted(local, X, 3, f"{_name(model)} fitted to a residual of {value} everywhere")


@_check
def _inputs_are_not_modified(model: Any) -> None:
    for n_outputs in (1, 3):
        X, residual = _data(n_outputs=n_outputs)
        X_before, residual_before = X.copy(), residual.copy()
        _fitted(model, X, residual).predict(X)
        assert np.array_equal(X, X_before), f"{_name(model)} modified the columns it was given"
        assert np.array_equal(residual, residual_before), f"{_name(model)} modified the residual it was given"


@_check
def _sample_weight_is_honoured(model: Any) -> None:
    if not supports_sample_weight(model):
        return
    X, residual = _data()
    wrong = np.arange(len(X)) % 2 == 0
    residual[wrong] = -residual[wrong]
    plain = _predicted(_fitted(model, X, residual), X, 3, f"{_name(model)} fitted without weights")
    local = _fitted(model, X, residual, sample_weight=np.where(wrong, 0.0, 1.0))
    weighted = _predicted(local, X, 3, f"{_name(model)} fitted with weights")
    assert not np.allclose(plain, weighted, rtol=1e-4, atol=1e-5), (
        f"{_name(model)}.fit takes sample_weight but ignores it"
    )


@_check
def _refitting_forgets_the_first_fit(model: Any) -> None:
    if is_moving(model):  # every round is learned by a fresh copy
        return
    X, residual = _data()
    X_other, residual_other = _data(n=50, seed=1)
    first = np.s_[:, 0] if outputs_taken(model).one else np.s_[:, :1]
    # Copies of the model itself: adapters fit a fresh copy every time, and would hide what is kept.
    once, twice = copy_unfitted(model), copy_unfitted(model)
    for one in (once, twice):
        set_seed(one, 7)
    once.fit(X, residual[first])
    twice.fit(X_other, residual_other[first])
    twice.fit(X, residual[first])
    _assert_close(
        once.predict(X),
        twice.predict(X),
        f"{_name(model)} fitted a second time predicts otherwise than one fitted once: fit must forget what "
        "was learned before",
    )


@_check
def _rows_of_a_prepared_view_are_those_of_the_view(model: Any) -> None:
    """The contract of ``gal.models.View``, for models that prepare a view or take a parted one."""
    X, residual = _data()
    local = as_local_model(model, 3, "check")
    parted = in_parts(X.astype(np.float32), [PartColumn(name) for name in "abcd"])
    view = prepared(local, parted if takes_parts(model) else X)
    if view is X:
        return
    rows = np.random.default_rng(2).permutation(len(X))[:40]
    some = view[rows]
    for one, n in ((view, len(X)), (some, 40)):
        assert tuple(one.shape)[:1] == (n,), (
            f"{_name(model)}: {n} rows of its view have the shape {tuple(one.shape)}"
        )
    whole = _fitted(model, view, residual).predict(view)
    _assert_close(
        whole, _fitted(model, X, residual).predict(X), f"{_name(model)} says something else of its view"
    )
    there, values = _fitted(model, some, residual[rows]), []
    values.append(_fitted(model, X[rows], residual[rows]).predict(X))
    ordered = np.sort(rows)  # of a view that is encoded as a whole
    values.append(_fitted(model, view[ordered], residual[ordered]).predict(view))
    assert any(np.allclose(there.predict(view), one, rtol=1e-4, atol=1e-5) for one in values), (
        f"{_name(model)} fitted to some rows of its view, in another order, predicts something else than "
        "fitted to these rows"
    )
    _assert_close(
        there.predict(some),
        np.asarray(there.predict(view))[rows],
        f"{_name(model)}: view[rows] does not have the rows in the order asked for",
    )


@_check
def _a_moving_model_answers_for_all_its_rounds(model: Any) -> None:
    """Also where a task resumes, and an organization is ahead of the label holder."""
    if not is_moving(model):
        return
    X, residual = _data()

    def moved(*rounds: int) -> Any:
        learned = None
        for round in rounds:
            local: Any = as_local_model(model, 3, "check")
            set_seed(local, round)
            learned = local.fit_round(X, residual / round, round=round, previous=learned)
        return learned

    for rounds, known in (((1, 2, 4), (1, 2, 4)), ((1, 2, 4, 2), (1, 2))):
        learned = moved(*rounds)
        assert tuple(learned.rounds_) == known, (
            f"{_name(model)}: rounds_ is {learned.rounds_} after rounds {rounds}: fit_round must forget this "
            "round and later ones of the previous model"
        )
        asked = known[::-1]
        together = np.asarray(learned.predict_rounds(X, asked))
        assert together.shape == (len(asked), len(X), 3), (
            f"{_name(model)}.predict_rounds returned shape {together.shape} for {len(asked)} rounds"
        )
        assert np.isfinite(together).all(), f"{_name(model)} predicts NaN or infinite values"
        for round, values in zip(asked, together, strict=True):
            _assert_close(
                values,
                learned.predict_round(X, round),
                f"{_name(model)}: predict_round and predict_rounds differ in round {round}",
            )
        assert np.array_equal(together, moved(*rounds).predict_rounds(X, asked)), (
            f"{_name(model)} that learned the same rounds twice with the same seeds predicts differently"
        )
