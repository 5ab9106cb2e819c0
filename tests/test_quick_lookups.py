"""What tests remember of scikit-learn, narwhals and DuckDB is what these would answer."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.utils import validation

from gal import GALClassifier
from gal.models.adapters import supports_sample_weight


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
    assert validation._get_feature_names(frame).tolist() == ["a", "b"]
    assert validation._get_feature_names(frame.to_numpy()) is None
    assert validation._get_feature_names([[1.0]]) is None


def test_tables_of_others_are_still_known() -> None:
    polars = pytest.importorskip("polars", reason="the extra polars is not installed")
    assert validation._get_feature_names(polars.DataFrame({"a": [1.0], "b": [2.0]})).tolist() == ["a", "b"]


def test_names_that_are_no_strings_are_no_names() -> None:
    assert validation._get_feature_names(pd.DataFrame({0: [1.0], 1: [2.0]})) is None
    assert validation._get_feature_names(pd.DataFrame()) is None
    with pytest.raises(TypeError, match="all input features have string names"):
        validation._get_feature_names(pd.DataFrame({"a": [1.0], 1: [2.0]}))


FRAMES: dict[str, pd.DataFrame] = {
    "numbers": pd.DataFrame(np.arange(12.0).reshape(4, 3), columns=list("abc")),
    "numbers, column by column": pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}),
    "single precision": pd.DataFrame(np.ones((3, 2), dtype=np.float32)),
    "whole numbers": pd.DataFrame({"a": [1, 2], "b": [3, 4]}),
    "whole numbers and others": pd.DataFrame({"a": [1, 2], "b": [0.5, 4]}),
    "gaps": pd.DataFrame({"a": [1.0, np.nan], "b": [3.0, 4.0]}),
    "nullable": pd.DataFrame({"a": [1, None], "b": [3, 4]}, dtype="Int64"),
    "objects": pd.DataFrame({"a": [1, 2], "b": [3, 4]}, dtype=object),
    "text": pd.DataFrame({"a": ["x", "y"]}),
    "truths": pd.DataFrame({"a": [True, False]}),
    "no rows": pd.DataFrame({"a": np.empty(0)}),
    "no columns": pd.DataFrame(index=[1, 2]),
}


WAYS: list[dict[str, Any]] = [
    {},
    {"dtype": np.float32, "order": "C"},
    {"copy": True, "order": "F"},
    {"force_writeable": True},
]


@pytest.mark.parametrize("how", WAYS, ids=str)
@pytest.mark.parametrize("name", FRAMES)
def test_frames_are_checked_as_ever(name: str, how: dict[str, Any]) -> None:
    def outcome(check: Any) -> Any:
        try:
            found = check(FRAMES[name], **how)
        except (ValueError, TypeError) as error:
            return type(error), str(error)
        flags = found.flags
        return found.tobytes("A"), found.dtype, flags.f_contiguous, flags.c_contiguous, flags.writeable

    assert validation.check_array.remembers
    assert outcome(validation.check_array) == outcome(validation.check_array.__wrapped__)


def test_weights_are_taken_by_who_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Own()
    for _ in range(2):
        assert supports_sample_weight(Ridge())
        assert not supports_sample_weight(KNeighborsRegressor())
        assert not supports_sample_weight(one)
    monkeypatch.setattr(Own, "fit", lambda self, X, y, sample_weight=None: self, raising=False)
    assert supports_sample_weight(one)
    monkeypatch.setattr(one, "fit", lambda X, y: one, raising=False)
    assert not supports_sample_weight(one)


def test_databases_in_memory_have_settings_of_their_own() -> None:
    duckdb = pytest.importorskip("duckdb", reason="the extra node is not installed")
    assert duckdb.connect.remembers
    with duckdb.connect(":memory:") as first, duckdb.connect(":memory:") as second:
        first.execute("SET file_search_path = '/nowhere'")
        asked = "SELECT current_setting('file_search_path')"
        assert first.sql(asked).fetchall() == [("/nowhere",)]
        assert second.sql(asked).fetchall() == [("",)]
