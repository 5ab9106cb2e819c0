"""Nothing an organization sends can spoil a round: unusable replies are left out and named."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gal.core.losses import SquaredError
from gal.core.replies import Reply, accept_fitted, accept_predicted
from gal.core.requests import FitRequest, PredictRequest, Track
from gal.core.rows import all_rows
from gal.core.state import Ensemble, Round
from gal.core.task import Task
from gal.errors import NoRepliesError

N = 5
GOOD = np.arange(10, dtype=np.float32).reshape(N, 2)


class Stubborn:
    """An array type whose conversion fails in its own way, as a tensor with a gradient does."""

    def __array__(self, *args: object, **options: object) -> NDArray[np.float64]:
        raise RuntimeError("cannot be converted")


def changed(value: float) -> NDArray[np.float64]:
    reply = GOOD.astype(np.float64)
    reply[3, 1] = value
    return reply


def accept(replies: dict[str, Reply], round: int = 1, track: Track = "assisted") -> tuple[dict, dict]:  # type: ignore[type-arg]
    task = Task(np.zeros((N, 2)), SquaredError(n_outputs=2), ("a", "b"), all_rows(N))
    residual = np.full((N, 2), 3.0, dtype=np.float32)
    return accept_fitted(task, FitRequest(round, residual, ("a", "b"), track=track), replies)


BAD: dict[str, tuple[Reply | None, str]] = {
    "missing": (None, "did not reply"),
    "exception": (MemoryError("no room"), "failed: no room"),
    "rows": (GOOD[:4], r"shape \(4, 2\), expected \(5, 2\)"),
    "flat": (GOOD.reshape(-1), r"shape \(10,\), expected \(5, 2\)"),
    "outputs": (GOOD[:, :1], r"shape \(5, 1\), expected \(5, 2\)"),
    "empty": ([], r"shape \(0,\), expected \(5, 2\)"),
    "nan": (changed(np.nan), "NaN or infinite values in 1 places"),
    "inf": (changed(np.inf), "NaN or infinite values in 1 places"),
    "minus inf": (changed(-np.inf), "NaN or infinite values in 1 places"),
    "too large for float32": (changed(1e300), "NaN or infinite values in 1 places"),
    "absurd": (changed(3.1e6), r"absurd values, up to 3\.1e\+06 where residuals reach 3"),
    "absurdly low": (changed(-3.1e6), r"absurd values, up to 3\.1e\+06"),
    "text": ("fitted", "not numbers: .*fitted"),
    "texts": ([["x", "y"]] * N, "not numbers"),
    "ragged": ([[1.0, 2.0], [1.0]], "not numbers"),
    "endless integer": ([[10**400, 0]] * N, "not numbers"),
    "own type": (Stubborn(), "not numbers: cannot be converted"),
}


@pytest.mark.parametrize(("reply", "reason"), BAD.values(), ids=BAD.keys())
def test_an_unusable_reply_is_left_out_with_its_reason(reply: Reply | None, reason: str) -> None:
    replies: dict[str, Reply] = {"b": GOOD} if reply is None else {"a": reply, "b": GOOD}
    fitted, left_out = accept(replies)
    assert list(fitted) == ["b"]
    assert list(left_out) == ["a"]
    with pytest.raises(ValueError, match=reason):
        raise ValueError(left_out["a"])


def test_usable_replies_become_float32_in_the_order_of_names() -> None:
    fitted, left_out = accept({"unknown": GOOD, "b": GOOD.tolist(), "a": changed(2.9e6)})
    assert list(fitted) == ["a", "b"]
    assert not left_out
    assert {values.dtype for values in fitted.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(fitted["b"], GOOD)


def test_no_reply_in_the_first_round_is_an_error_that_names_all() -> None:
    with pytest.raises(NoRepliesError, match=r"round 1.*a: did not reply; b: failed: oops.*Check"):
        accept({"b": ValueError("oops")})


@pytest.mark.parametrize(("round", "track"), [(2, "assisted"), (1, "alone")])
def test_no_reply_in_a_later_round_keeps_the_rounds_before(round: int, track: Track) -> None:
    fitted, left_out = accept({}, round, track)
    assert not fitted
    assert list(left_out) == ["a", "b"]


def ensemble() -> Ensemble:
    """Two rounds; ``b`` missed the second."""

    def round(t: int, means: dict[str, tuple[float, ...]]) -> Round:
        return Round(t, {"a": 0.5, "b": 0.5}, 1.0, 1.0, 0.0, 0.0, means)

    return Ensemble(
        organizations=("a", "b"),
        label_holder="a",
        initial=(0.0, 0.0),
        n_outputs=2,
        coefficients=({"a": 0.5, "b": 0.5}, {"a": 1.0}),
        rounds=(round(1, {"a": (1.0, 2.0), "b": (3.0, 4.0)}), round(2, {"a": (5.0, 6.0)})),
        initial_train_loss=1.0,
        initial_validation_loss=1.0,
    )


def predicted(replies: dict[str, Reply]) -> tuple[dict, dict, list[bool]]:  # type: ignore[type-arg]
    answers = accept_predicted(ensemble(), PredictRequest((1, 2), ("a", "b")), replies, N)
    return dict(answers.values), dict(answers.missing), answers.degraded.tolist()


ANSWER = np.ones((2, N, 2), dtype=np.float32)


def test_complete_answers_are_taken_as_they_are() -> None:
    values, missing, degraded = predicted({"a": ANSWER, "b": 2 * ANSWER})
    np.testing.assert_array_equal(values["b"], 2 * ANSWER)
    assert not missing
    assert not any(degraded)


@pytest.mark.parametrize("reply", [None, ValueError("down"), ANSWER[:1], "text"])
def test_a_missing_organization_is_replaced_by_its_mean(reply: Reply | None) -> None:
    values, missing, degraded = predicted({"a": ANSWER} if reply is None else {"a": ANSWER, "b": reply})
    assert list(missing) == ["b"]
    assert missing["b"]
    assert all(degraded)
    np.testing.assert_array_equal(values["b"][0], np.tile([3.0, 4.0], (N, 1)))
    np.testing.assert_array_equal(values["b"][1], np.zeros((N, 2)))  # it has no model of that round
    np.testing.assert_array_equal(values["a"], ANSWER)


@pytest.mark.parametrize("gap", [np.nan, np.inf])
def test_a_missing_row_is_replaced_in_all_rounds_and_marked(gap: float) -> None:
    holes = ANSWER.copy()
    holes[1, 2, 0] = gap
    values, missing, degraded = predicted({"a": holes, "b": ANSWER})
    assert not missing
    assert degraded == [False, False, True, False, False]
    np.testing.assert_array_equal(values["a"][:, 2], [[1.0, 2.0], [5.0, 6.0]])
    np.testing.assert_array_equal(values["a"][:, [0, 1, 3, 4]], ANSWER[:, [0, 1, 3, 4]])
