"""Roles of rows and requests of the engine, as messages and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gal.alignment import RowIds
from gal.core.rows import Rows, all_rows, assign_rows
from gal.errors import AlignmentError
from gal.node.agreement.request_arrays import (
    asked_tokens,
    check_roles,
    fit_request,
    predict_request,
    role_arrays,
    shared_rows,
    token_arrays,
)
from gal.protocol import Message, decode, encode

TASK = "0" * 32
DIGEST = "sha256:" + "0" * 64

ROLES: dict[str, dict[str, Any]] = {
    "in-sample": {},
    "held-out": {"fitted": "held-out"},
    "out-of-fold": {"fitted": "out-of-fold", "n_folds": 3},
    "validated": {"validation_fraction": 0.2},
    "cross-validated": {"n_parts": 3},
}


def same(one: Rows, other: Rows) -> bool:
    """What an organization is told: which rows to fit, folds and parts."""
    pairs = [(one.fit, other.fit), (one.folds, other.folds), (one.parts, other.parts)]
    return one.n == other.n and all(
        (a is None) == (b is None) and (a is None or b is None or np.array_equal(a, b)) for a, b in pairs
    )


@settings(max_examples=80)
@given(st.sampled_from(sorted(ROLES)), st.integers(30, 80), st.integers(0, 10_000))
def test_roles_go_there_and_back(kind: str, n: int, seed: int) -> None:
    rows = assign_rows(n, np.random.default_rng(seed), **ROLES[kind])
    arrays = role_arrays(rows)
    check_roles(arrays, n, "clinic")
    assert same(shared_rows(arrays, np.ones(n, dtype=np.bool_)), rows)
    assert set(arrays) <= {"fit", "folds", "parts"}  # which rows search or validate is nobody else's business


@settings(max_examples=80)
@given(st.sampled_from(sorted(ROLES)), st.integers(30, 80), st.integers(0, 10_000))
def test_roles_of_the_known_rows_are_numbered_among_themselves(kind: str, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = assign_rows(n, rng, **ROLES[kind])
    known = rng.random(n) < 0.7
    known[rows.fit[0]] = True
    found = shared_rows(role_arrays(rows), known)
    places = {row: place for place, row in enumerate(np.flatnonzero(known))}
    fit = [row for row in rows.fit if known[row]]
    assert found.n == len(places)
    assert found.fit.tolist() == [places[row] for row in fit]
    if rows.folds is not None:
        fold_of = dict(zip(rows.fit.tolist(), rows.folds.tolist(), strict=True))
        assert found.folds is not None
        assert found.folds.tolist() == [fold_of[row] for row in fit]
    if rows.parts is not None:
        assert found.parts is not None
        assert found.parts.tolist() == rows.parts[known].tolist()


def roles(**arrays: list[int]) -> dict[str, Any]:
    return {
        name: np.array(values, dtype=np.uint8 if name == "fit" else np.int32)
        for name, values in arrays.items()
    }


@pytest.mark.parametrize(
    "arrays",
    [
        roles(fit=[1, 1]),
        roles(fit=[1, 1, 1, 1]),
        roles(fit=[0, 0, 0]),
        roles(fit=[1, 2, 1]),
        roles(fit=[1, 1, 1], folds=[0, 1]),
        roles(fit=[1, 1, 0], folds=[0, 1, 1]),
        roles(fit=[1, 1, 1], folds=[0, 1, -1]),
        roles(fit=[1, 1, 1], folds=[0, 1, 2**31 - 1]),
        roles(fit=[1, 1, 1], folds=[0, 1, -2]),
        roles(fit=[1, 1, 1], parts=[0, 1, -1]),
        roles(fit=[1, 1, 0], parts=[0, 1, 0]),
        roles(fit=[1, 1, 1], parts=[0, 1, 3]),
    ],
    ids=str,
)
def test_roles_that_cannot_be(arrays: dict[str, Any]) -> None:
    with pytest.raises(AlignmentError, match="clinic"):
        check_roles(arrays, 3, "clinic")


@pytest.mark.parametrize(
    ("ids", "method", "name"),
    [
        (RowIds("integer", np.array([3, 1, 2])), "plain", "integers"),
        (RowIds("text", np.array(["c", "a", "ü"], dtype=object)), "plain", "texts"),
        (RowIds("integer", np.array([3, 1, 2])), "hashed", "hashes"),
        (RowIds("text", np.array(["c", "a", "ü"], dtype=object)), "psi", "texts"),
    ],
)
def test_ids_go_there_and_back(ids: RowIds, method: str, name: str) -> None:
    arrays = token_arrays(ids, method, b"a secret of enough bytes" if method == "hashed" else None)
    assert list(arrays) == [name]
    fields = {"kind": ids.kind, "method": method, "secret": "", "track": "assisted", "rounds": [1]}
    message = decode(encode(Message("predict", TASK, 1, "predict 1", fields, arrays)))
    np.testing.assert_array_equal(asked_tokens(message, "clinic"), arrays[name])


@pytest.mark.parametrize(
    "arrays", [{}, {"integers": np.arange(2), "texts": np.array(["a", "b"], dtype=object)}]
)
def test_exactly_one_kind_of_ids(arrays: dict[str, Any]) -> None:
    message = Message("predict", TASK, 1, "predict 1", {"kind": "integer", "method": "plain"}, arrays)
    with pytest.raises(AlignmentError, match="kinds of row ids"):
        asked_tokens(message, "clinic")


def test_the_engine_gets_its_requests() -> None:
    residual = np.arange(3, dtype=np.float32).reshape(3, 1)
    fields = {"rows": DIGEST, "track": "assisted", "round": 4, "part": 2}
    asked = fit_request(Message("fit", TASK, 1, "4.2", fields, {"residual": residual}), "lab")
    assert (asked.round, asked.track, asked.part, asked.organizations) == (4, "assisted", 2, ("lab",))
    assert asked.sample_weight is None
    np.testing.assert_array_equal(asked.residual, residual)
    again = predict_request(Message("revisit", TASK, 1, "5.0", {"rounds": [1, 3], "track": "alone"}), "lab")
    assert (again.rounds, again.track, again.organizations) == ((1, 3), "alone", ("lab",))


def test_all_rows_fit_is_the_shortest_message() -> None:
    assert list(role_arrays(all_rows(5))) == ["fit"]
