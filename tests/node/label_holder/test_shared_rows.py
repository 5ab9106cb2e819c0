"""Rows that two organizations share: what is asked, what is answered, and what stands in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gal.core.rows import Rows, all_rows, assign_rows
from gal.errors import AlignmentError
from gal.node.label_holder.shared_rows import NamedRows, SharedRows, fill_unknown
from gal.protocol import Message

TASK = "0" * 32
DIGEST = "sha256:" + "0" * 64


def some_rows(n: int, seed: int, held_out: bool) -> Rows:
    rng = np.random.default_rng(seed)
    if not held_out:
        return all_rows(n)
    return assign_rows(n, rng, fitted="held-out", held_out_fraction=0.3)


@settings(max_examples=60)
@given(st.integers(10, 40), st.integers(0, 10_000), st.booleans(), st.integers(1, 3), st.booleans())
def test_unknown_rows_get_the_mean_of_known_search_rows(
    n: int, seed: int, held_out: bool, outputs: int, several: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows = some_rows(n, seed, held_out)
    known = rng.random(n) < 0.6
    known[rows.fit[0]] = True
    shape = (2, int(known.sum()), outputs) if several else (int(known.sum()), outputs)
    values = rng.normal(size=shape).astype(np.float32)
    filled = fill_unknown(values, SharedRows(known, DIGEST), rows)
    assert filled.shape == (*shape[:-2], n, outputs)
    assert filled.dtype == np.float32
    np.testing.assert_array_equal(filled[..., known, :], values)
    search = np.isin(np.arange(n), rows.search)
    counted = values[..., search[known], :] if (search & known).any() else values
    expected = np.broadcast_to(
        counted.astype(np.float64).mean(axis=-2, keepdims=True), filled[..., ~known, :].shape
    )
    np.testing.assert_allclose(filled[..., ~known, :], expected, rtol=1e-6, atol=1e-7)


# NamedRows


def begun(known: Any, n_rows: int | None = None, rows: str = DIGEST) -> Message:
    said = np.asarray(known, dtype=np.uint8)
    fields = {"answers": DIGEST, "rows": rows, "n_rows": int((said == 1).sum()) if n_rows is None else n_rows}
    return Message("begun", TASK, 1, "begin", fields, {"known": said})


def test_one_that_knows_no_row_to_fit() -> None:
    rows = Rows(4, np.array([0, 1]), np.array([2, 3]), np.array([], dtype=np.intp))
    with pytest.raises(AlignmentError, match="none of the rows to fit"):
        NamedRows(np.arange(4)).shared(begun([0, 0, 1, 1]), "lab", rows)


# Secrets
