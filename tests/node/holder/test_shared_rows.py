"""Rows that two organizations share: what is asked, what is answered, and what stands in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gal.alignment import RowIds, row_digest, secret_digest
from gal.core.algorithm import predict
from gal.core.requests import FitRequest, PredictRequest
from gal.core.rows import Rows, all_rows, assign_rows
from gal.core.state import ByName, Ensemble, Round
from gal.engine.labels import regression_labels
from gal.engine.options import Options
from gal.engine.task_making import make_task
from gal.errors import AlignmentError
from gal.node.agreement.request_arrays import secret_of
from gal.node.config.configuration import NodeConfiguration, read_configuration
from gal.node.holder.shared_rows import Asking, SharedRows, expected_shape, fill_unknown
from gal.protocol import Message, decode, prepare

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


def test_where_all_rows_are_known_nothing_is_copied() -> None:
    values = np.ones((5, 1), dtype=np.float32)
    assert fill_unknown(values, SharedRows(np.ones(5, dtype=np.bool_), DIGEST), all_rows(5)) is values


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


def a_task(n: int = 12, **options: Any) -> Any:
    chosen = Options(closing=False, **options)
    labels = regression_labels(np.arange(n, dtype=np.float64), chosen)
    return make_task(labels, ["clinic", "lab"], chosen, label_holder="clinic", seed=3)


@pytest.mark.parametrize("options", [{}, {"fitted": "held-out"}, {"cross_validation": 3}])
def test_only_rows_that_are_known_are_sent(options: dict[str, Any]) -> None:
    task = a_task(60, **options)
    known = np.arange(60) % 3 != 0
    shared = SharedRows(known, DIGEST)
    for part in (None, 1) if "cross_validation" in options else (None,):
        asked = FitRequest(2, np.zeros((0, 1), np.float32), ("clinic", "lab"), None, "assisted", part)
        fit = task.terms.rows_for(asked).fit
        residual = np.arange(len(fit), dtype=np.float32).reshape(-1, 1)
        weight = np.arange(len(fit), dtype=np.float64)
        request = FitRequest(2, residual, ("clinic", "lab"), weight, "assisted", part)
        message = shared.message(request, task, TASK, 1, "2.0")
        expected = [place for place, row in enumerate(fit) if known[row]]
        assert message.arrays["residual"].ravel().tolist() == expected
        assert message.arrays["sample_weight"].tolist() == expected
        assert message.fields == {"rows": DIGEST, "track": "assisted", "round": 2, "part": part}
        assert decode(prepare(message).data).arrays["residual"].shape == (len(expected), 1)


def test_asking_again_about_rounds() -> None:
    message = SharedRows(np.ones(12, dtype=np.bool_), DIGEST).message(
        PredictRequest((1, 2), ("lab",), "assisted"), a_task(), TASK, 1, "3.0"
    )
    assert (message.kind, message.fields["rounds"], dict(message.arrays)) == ("revisit", [1, 2], {})


def test_expected_shapes() -> None:
    assert expected_shape(FitRequest(1, np.zeros((4, 2), dtype=np.float32), ("lab",)), 7, 2) == (7, 2)
    assert expected_shape(PredictRequest((1, 2, 3), ("lab",)), 7, 2) == (3, 7, 2)


# Asking


def begun(known: Any, n_rows: int | None = None, rows: str = DIGEST) -> Message:
    said = np.asarray(known, dtype=np.uint8)
    fields = {"answers": DIGEST, "rows": rows, "n_rows": int((said == 1).sum()) if n_rows is None else n_rows}
    return Message("begun", TASK, 1, "begin", fields, {"known": said})


def test_positions_among_all_rows() -> None:
    asking = Asking(np.array([4, 1, 3]))
    shared = asking.shared(begun([1, 0, 1]), "lab", all_rows(6))
    assert shared.known.tolist() == [False, False, False, True, True, False]
    assert (shared.n_known, shared.n_unknown) == (2, 4)


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


def test_both_sides_compute_the_digest_of_the_order() -> None:
    tokens = np.array([7, 8, 9])
    fields = {"kind": "integer", "method": "plain"}
    begin = Message("begin", TASK, 1, "begin", fields, {"integers": tokens})
    asking = Asking(np.arange(3))
    right = row_digest(np.array([7, 9]), "integer", "plain")
    asking.check(begun([1, 0, 1], rows=right), begin, "lab", "plain")
    for wrong in (np.array([9, 7]), np.array([7, 8]), np.array([7])):
        answer = begun([1, 0, 1], rows=row_digest(wrong, "integer", "plain"))
        with pytest.raises(AlignmentError, match=r"lab means other rows, or another order"):
            asking.check(answer, begin, "lab", "plain")


def test_positions_are_kept(tmp_path: Path) -> None:
    positions = np.array([5, 0, 2], dtype=np.intp)
    Asking(positions).save(tmp_path / "asked.npy")
    np.testing.assert_array_equal(Asking.load(tmp_path / "asked.npy").positions, positions)


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


def test_plain_ids_travel_without_a_secret(tmp_path: Path) -> None:
    fields, arrays = Asking(np.array([1])).ids(
        RowIds("text", np.array(["a", "b"], dtype=object)), "plain", configured(tmp_path)
    )
    assert fields == {"kind": "text", "method": "plain", "secret": ""}
    assert arrays["texts"].tolist() == ["b"]
