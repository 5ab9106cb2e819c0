"""Row ids: what can name rows, and what is reason where it cannot."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.alignment import check_overlap, check_same_kind, row_ids
from gal.errors import AlignmentError

pa = pytest.importorskip("pyarrow")

GOOD: dict[str, tuple[Any, str, list[Any]]] = {
    "numbers": (np.array([3, 1, 2]), "integer", [3, 1, 2]),
    "small numbers": (np.array([3, 1], dtype=np.uint8), "integer", [3, 1]),
    "whole floats": (np.array([3.0, -1.0]), "integer", [3, -1]),
    "text": (["b", "a", "007"], "text", ["b", "a", "007"]),
    "fixed text": (np.array(["b", "a"]), "text", ["b", "a"]),
    "list of numbers": ([5, 4], "integer", [5, 4]),
    "series": (pd.Series(["x", "y"]), "text", ["x", "y"]),
    "arrow numbers": (pa.array([2, 1], pa.int32()), "integer", [2, 1]),
    "arrow chunks": (pa.chunked_array([[2], [1]]), "integer", [2, 1]),
    "arrow text": (pa.array(["ä", "b"]), "text", ["ä", "b"]),
    "arrow large text": (pa.chunked_array([pa.array(["a"], pa.large_string())]), "text", ["a"]),
    "arrow categories": (pa.array(["a", "b"]).dictionary_encode(), "text", ["a", "b"]),
    "arrow decimals": (pa.array([Decimal("7.00"), Decimal("8.00")]), "integer", [7, 8]),
    "arrow unsigned": (pa.array([7], pa.uint64()), "integer", [7]),
    "arrow floats": (pa.array([7.0, 8.0]), "integer", [7, 8]),
}

BAD: dict[str, tuple[Any, str]] = {
    "none": (np.array([], dtype=np.int64), "no rows"),
    "missing": ([1, None, 2, None], "2 rows have no id, the first is row 2"),
    "NaN": (np.array([1.0, np.nan]), "1 row has no id, the first is row 2"),
    "empty text": (["a", ""], "1 row has no id, the first is row 2"),
    "arrow missing": (pa.array([1, 2, None]), "1 row has no id, the first is row 3"),
    "arrow nothing": (pa.nulls(2), "2 rows have no id"),
    "duplicates": ([4, 9, 9, 4], r"2 rows have an id that another row has too, such as 9 in rows 2 and 3"),
    "duplicate text": (pa.array(["a", "b", "a"]), "1 row has an id .* such as 'a' in rows 1 and 3"),
    "mixed": ([1, "1", 2], "cannot name rows"),
    "mixed booleans": ([1, True], "cannot name rows"),
    "fractions": (np.array([1.0, 2.5]), "no whole numbers of 64 bits .*2.5"),
    "infinite": (np.array([1.0, np.inf]), "too large to be exact"),
    "large floats": (np.array([1.0, 2.0**60]), "too large to be exact"),
    "decimal fractions": (pa.array([Decimal("7.50")]), "no whole numbers of 64 bits"),
    "large unsigned": (np.array([2**63], dtype=np.uint64), "no whole numbers of 64 bits"),
    "large arrow unsigned": (pa.array([2**63], pa.uint64()), "no whole numbers of 64 bits"),
    "huge": ([2**70, 1], "cannot name rows|too large"),
    "booleans": (np.array([True, False]), "cannot name rows"),
    "arrow booleans": (pa.array([True, False]), "bool cannot name rows"),
    "dates": (np.array(["2020-01-01"], dtype="datetime64[D]"), "cannot name rows"),
    "bytes": (pa.array([b"a"]), "binary cannot name rows"),
    "lists": (pa.array([[1]]), "cannot name rows"),
    "two columns": (np.zeros((2, 2)), "cannot name rows"),
    "broken text": (["a", "\ud800"], "cannot name rows"),
}


@pytest.mark.parametrize(("column", "kind", "values"), GOOD.values(), ids=GOOD.keys())
def test_ids_are_integers_or_text(column: Any, kind: str, values: list[Any]) -> None:
    ids = row_ids(column, "bank", "customer")
    assert ids.kind == kind
    assert ids.values.tolist() == values
    assert len(ids) == len(values)
    assert ids.values.dtype == (np.int64 if kind == "integer" else object)


@pytest.mark.parametrize(("column", "reason"), BAD.values(), ids=BAD.keys())
def test_columns_that_cannot_name_rows_are_refused_with_a_reason(column: Any, reason: str) -> None:
    with pytest.raises(AlignmentError, match=reason) as caught:
        row_ids(column, "bank", "customer")
    assert "organization 'bank', row ids 'customer'" in str(caught.value)


def test_ids_cannot_be_changed_and_the_given_column_can() -> None:
    column = np.array([1, 2])
    ids = row_ids(column, "bank", "customer")
    with pytest.raises(ValueError, match="read-only"):
        ids.values[0] = 5
    column[0] = 5
    assert ids.values.tolist() == [1, 2]


def test_ids_of_two_kinds_never_meet() -> None:
    check_same_kind(row_ids([1], "bank", "id"), "integer", "bank", "lab")
    with pytest.raises(AlignmentError, match=r"integers at organization 'bank', text at 'lab'.*row_id_type"):
        check_same_kind(row_ids([1], "bank", "id"), "text", "bank", "lab")
    with pytest.raises(AlignmentError, match="integers at organization 'lab', text at 'bank'"):
        check_same_kind(row_ids(["1"], "bank", "id"), "integer", "bank", "lab")


def test_no_shared_row_is_an_error() -> None:
    check_overlap(1, 10, "lab", "bank")
    with pytest.raises(AlignmentError, match="'lab' knows none of the 10 rows of 'bank'"):
        check_overlap(0, 10, "lab", "bank")
