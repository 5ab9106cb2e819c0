"""Rows that two organizations share: what is asked, what is answered, and what stands in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gal.alignment import RowIds, secret_digest
from gal.core.algorithm import predict
from gal.core.rows import Rows, all_rows, assign_rows
from gal.core.state import ByName, Ensemble, Round
from gal.errors import AlignmentError
from gal.node.agreement.request_arrays import secret_of
from gal.node.config.configuration import NodeConfiguration, read_configuration
from gal.node.holder.shared_rows import Asking, SharedRows, fill_unknown
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


def test_the_mean_is_what_stands_in_when_predicting() -> None:
    """A row unknown in learning and in prediction gets the same value in both."""
    known = np.array([True, True, False, True])
    values = np.array([[1.0], [2.0], [6.0]], dtype=np.float32)
    filled = fill_unknown(values, SharedRows(known, DIGEST), all_rows(4))
    weights = ByName({"lab": 1.0})
    mean = float(filled.mean(dtype=np.float64))
    done = Round(1, weights, 1.0, 1.0, 0.0, float("nan"), ByName({"lab": (mean,)}))
    ensemble = Ensemble(("lab",), None, (0.0,), 1, (weights,), (done,), 0.0, float("nan"))
    steps = predict(ensemble, 1)
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send({"lab": np.full((1, 1, 1), np.nan, dtype=np.float32)})
    assert end.value.value.values["lab"].ravel().tolist() == filled[2].tolist() == [3.0]
    assert end.value.value.degraded.tolist() == [True]


# Asking


def begun(known: Any, n_rows: int | None = None, rows: str = DIGEST) -> Message:
    said = np.asarray(known, dtype=np.uint8)
    fields = {"answers": DIGEST, "rows": rows, "n_rows": int((said == 1).sum()) if n_rows is None else n_rows}
    return Message("begun", TASK, 1, "begin", fields, {"known": said})


@pytest.mark.parametrize(
    ("said", "n_rows"), [([1, 0], None), ([1, 0, 1, 1], None), ([1, 0, 2], 1), ([1, 0, 1], 3), ([], None)]
)
def test_an_answer_that_does_not_add_up(said: list[int], n_rows: int | None) -> None:
    with pytest.raises(AlignmentError, match="lab"):
        Asking(np.arange(3)).shared(begun(said, n_rows), "lab", all_rows(3))


def test_one_that_knows_no_row_to_fit() -> None:
    rows = Rows(4, np.array([0, 1]), np.array([2, 3]), np.array([], dtype=np.intp))
    with pytest.raises(AlignmentError, match="none of the rows that are fitted"):
        Asking(np.arange(4)).shared(begun([0, 0, 1, 1]), "lab", rows)


# Secrets


def configured(home: Path, more: str = "") -> NodeConfiguration:
    (home / "node.toml").write_text(
        f'name = "lab"\n[data]\nsource = "rows.csv"\nrow_id = "id"\n{more}', encoding="utf-8"
    )
    return read_configuration(home)


def test_hashes_need_a_secret(tmp_path: Path) -> None:
    ids = RowIds("integer", np.array([1, 2]))
    with pytest.raises(AlignmentError, match=r"data\.secret_file"):
        Asking(np.arange(2)).ids(ids, "hashed", configured(tmp_path))
    configuration = configured(tmp_path, 'secret_file = "shared.secret"\n')
    (tmp_path / "shared.secret").write_bytes(b"sixteen bytes or more")
    (tmp_path / "shared.secret").chmod(0o600)
    assert secret_of(configuration).startswith(b"sixteen")
    fields, arrays = Asking(np.arange(2)).ids(ids, "hashed", configuration)
    assert arrays["hashes"].shape == (2, 16)
    assert fields["secret"] == secret_digest(secret_of(configuration))
    assert b"sixteen" not in repr(fields).encode()
