"""What tests remember of scikit-learn and narwhals is what these would answer."""

from __future__ import annotations

import inspect
from typing import Any

import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge
from sklearn.utils.validation import _get_feature_names

from gal import GALClassifier


class Own(BaseEstimator):  # type: ignore[misc]
    def __init__(self, second: int = 2, first: int = 1) -> None:
        self.first, self.second = first, second


class Loose(BaseEstimator):  # type: ignore[misc]
    def __init__(self, *anything: int) -> None:
        self.anything = anything


@pytest.mark.parametrize("model", [Ridge(), GALClassifier(), Own()], ids=lambda one: type(one).__name__)
def test_parameters_are_those_of_the_signature(model: Any) -> None:
    for _ in range(2):
        names = model._get_param_names()
        assert names == sorted(inspect.signature(type(model)).parameters)
        names.append("a caller's own")


def test_another_constructor_has_other_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Own._get_param_names() == ["first", "second"]
    monkeypatch.setattr(Own, "__init__", lambda self, third=3: None)
    assert Own._get_param_names() == ["third"]


def test_what_is_refused_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no varargs"):
            Loose._get_param_names()


def test_frames_have_names_and_arrays_have_none() -> None:
    frame = pd.DataFrame({"a": [1.0], "b": [2.0]})
    assert _get_feature_names(frame).tolist() == ["a", "b"]
    assert _get_feature_names(frame.to_numpy()) is None
    assert _get_feature_names([[1.0]]) is None


def test_tables_of_others_are_still_known() -> None:
    polars = pytest.importorskip("polars", reason="the extra polars is not installed")
    assert _get_feature_names(polars.DataFrame({"a": [1.0], "b": [2.0]})).tolist() == ["a", "b"]
