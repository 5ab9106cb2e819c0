"""What scikit-learn and narwhals look up again at every call, remembered: the answers are the same.

A fit of a small table spends a fourth of its time on reading signatures of classes, and on
finding out that an array is no data frame; tests make hundreds of thousands of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

PLAIN = (np.ndarray, pd.DataFrame, pd.Series)
"""Exactly these types: none of them has an attribute for narwhals, whatever object it is."""


def remember_lookups() -> None:
    """From now on, in this process; once is enough, and more does no harm."""
    if not hasattr(BaseEstimator._get_param_names, "remembers"):
        BaseEstimator._get_param_names = classmethod(_names_remembered(BaseEstimator._get_param_names))
    try:  # scikit-learn has it since 1.9
        utils = importlib.import_module("narwhals._utils")
        asked = importlib.import_module("narwhals.stable.v2.dependencies")
    except ModuleNotFoundError:
        return
    for module, name, answer in (
        (utils, "_hasattr_static", _plain_has_none),
        (asked, "is_into_dataframe", _array_is_none),
        (asked, "is_into_series", _array_is_none),
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
