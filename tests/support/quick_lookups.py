"""What scikit-learn and narwhals look up again at every call, remembered: the answers are the same.

A fit of a small table spends a fourth of its time on reading signatures of classes, and on
finding out that an array is no data frame; tests make hundreds of thousands of them. To read a small file,
DuckDB spends most of its time on making a database in memory: one is kept.
"""

from __future__ import annotations

import importlib
import os
import types
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from gal.extras import is_installed

PLAIN = (np.ndarray, pd.DataFrame, pd.Series)
"""Exactly these types: none of them has an attribute for narwhals, whatever object it is."""


def remember_lookups() -> None:
    """From now on, in this process; once is enough, and more does no harm."""
    if not hasattr(BaseEstimator._get_param_names, "remembers"):
        BaseEstimator._get_param_names = classmethod(_names_remembered(BaseEstimator._get_param_names))
    remember_what_fits_take()
    checks: Any = importlib.import_module("sklearn.utils.validation")
    if not hasattr(checks.check_array, "remembers"):
        checks.check_array = _numbers_of_plain(checks.check_array)
    if is_installed("duckdb"):
        remember_database()
    try:  # scikit-learn has it since 1.9
        utils = importlib.import_module("narwhals._utils")
        asked = importlib.import_module("narwhals.stable.v2.dependencies")
    except ModuleNotFoundError:
        return
    for module, name, answer in (
        (utils, "_hasattr_static", _plain_has_none),
        (asked, "is_into_dataframe", _array_is_none),
        (asked, "is_into_series", _array_is_none),
        (importlib.import_module("sklearn.utils.validation"), "_get_feature_names", _names_of_plain),
        (importlib.import_module("sklearn.utils._array_api"), "_remove_non_arrays", _all_of_arrays),
    ):
        original = getattr(module, name, None)
        if original is not None and not hasattr(original, "remembers"):
            setattr(module, name, answer(original))


def _names_remembered(original: Any) -> Callable[[type], list[str]]:
    @cache
    def names(cls: type, init: object) -> list[str]:
        found: list[str] = original.__func__(cls)
        return found

    def remembered(cls: type) -> list[str]:
        return list(names(cls, cls.__init__))  # type: ignore[misc]

    remembered.remembers = True  # type: ignore[attr-defined]
    return remembered


def _plain_has_none(original: Callable[..., bool]) -> Callable[..., bool]:
    def answer(thing: Any, name: str) -> bool:
        return False if type(thing) in PLAIN and name.startswith("__narwhals") else original(thing, name)

    answer.remembers = True  # type: ignore[attr-defined]
    return answer


def _array_is_none(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def answer(thing: Any) -> bool:
        return False if type(thing) is np.ndarray else original(thing)

    answer.remembers = True  # type: ignore[attr-defined]
    return answer


def _all_of_arrays(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Of arrays none is left out; a step of a logistic regression asks that five times."""

    def answer(*things: Any, **how: Any) -> list[Any]:
        return list(things) if all(type(one) is np.ndarray for one in things) else original(*things, **how)

    answer.remembers = True  # type: ignore[attr-defined]
    return answer


def _names_of_plain(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Names of a frame of pandas, all of them strings and none twice, are its columns."""

    def answer(thing: Any) -> Any:
        if type(thing) is not pd.DataFrame or not len(thing.columns) or not thing.columns.is_unique:
            return original(thing)
        names = np.asarray(thing.columns, dtype=object)
        return names if set(map(type, names)) == {str} else original(thing)

    answer.remembers = True  # type: ignore[attr-defined]
    return answer


def _numbers_of_plain(original: Callable[..., Any]) -> Callable[..., Any]:
    """A frame of pandas whose columns are all of one kind of number is checked as the array that it becomes;
    of every frame is asked, column by column, what only frames of several kinds can have.
    """

    @wraps(original)
    def answer(array: Any, *args: Any, **how: Any) -> Any:
        numbers = _numbers(array) if type(array) is pd.DataFrame else None
        return original(array if numbers is None else numbers, *args, **how)

    answer.remembers = True  # type: ignore[attr-defined]
    return answer


def _numbers(frame: pd.DataFrame) -> np.ndarray[Any, Any] | None:
    """What ``numpy.asarray`` makes of the frame, where all its columns are of one kind of number."""
    blocks = frame._mgr.blocks
    if len({block.dtype for block in blocks}) != 1 or not isinstance(kind := blocks[0].dtype, np.dtype):
        return None
    if kind.kind not in "fiu":
        return None
    if len(blocks) > 1:
        return np.asarray(frame)
    found: np.ndarray[Any, Any] = blocks[0].values.T.view()
    found.flags.writeable = False
    return found


def remember_what_fits_take() -> None:
    """Whether the ``fit`` of a class takes a parameter, as our models ask it."""
    adapters: Any = importlib.import_module("gal.models.adapters")
    original = adapters.has_fit_parameter
    if hasattr(original, "remembers"):
        return

    known: dict[object, bool] = {}

    def answer(model: Any, name: str) -> bool:
        fit = vars(type(model)).get("fit")  # of the class itself, and a plain function: no more is known here
        if not isinstance(fit, types.FunctionType) or "fit" in getattr(model, "__dict__", {}):
            return bool(original(model, name))
        if (fit, name) not in known:
            known[fit, name] = bool(original(model, name))
        return known[fit, name]

    answer.remembers = True  # type: ignore[attr-defined]
    adapters.has_fit_parameter = answer


def remember_database() -> None:
    """Databases in memory are connections to one of this process, with settings of their own."""
    import duckdb

    if not hasattr(duckdb.connect, "remembers"):
        duckdb.connect = _connected_to_one(duckdb.connect)


def _connected_to_one(original: Callable[..., Any]) -> Callable[..., Any]:
    @cache
    def one(process: int) -> Any:
        return original(":memory:")

    def connect(database: Any = ":memory:", *args: Any, **how: Any) -> Any:
        alike = database == ":memory:" and not args and set(how) <= {"read_only"} and not how.get("read_only")
        return one(os.getpid()).cursor() if alike else original(database, *args, **how)

    connect.remembers = True  # type: ignore[attr-defined]
    return connect
