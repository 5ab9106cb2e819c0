"""The transcript holds what left, row by row, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gal.core.requests import FitRequest
from gal.core.rows import Rows, all_rows
from gal.errors import InvalidInputError
from gal.privacy.leakage import Transcript

NAMES = ("alice", "bob", "carol")


def request(round: int, residual: NDArray[Any], **more: Any) -> FitRequest:
    return FitRequest(round, residual.astype(np.float32), more.pop("organizations", NAMES), **more)


def answers(n: int, value: float) -> dict[str, NDArray[np.float32]]:
    return {name: np.full((n, 1), value, dtype=np.float32) for name in NAMES}


def column(*values: float) -> NDArray[np.float64]:
    return np.array(values)[:, None]


class TestWhatCounts:
    def test_the_label_holders_own_track_is_not_sent(self) -> None:
        transcript = Transcript()
        own = request(1, column(5, 6), track="alone", organizations=("alice",))
        transcript([request(1, column(1, 2)), own], [answers(2, 0.0), {"alice": np.zeros((2, 1))}])
        np.testing.assert_array_equal(transcript.sent(all_rows(2), "alice").residual.ravel(), [1, 2])

    def test_requests_to_the_label_holder_itself_were_not_sent(self) -> None:
        transcript = Transcript()
        transcript([request(1, column(1, 2), organizations=("alice",))], [{"alice": np.zeros((2, 1))}])
        with pytest.raises(InvalidInputError, match="nothing was sent"):
            transcript.sent(all_rows(2), "alice")

    def test_a_first_round_begins_anew(self) -> None:
        transcript = Transcript()
        for scale in (1.0, 3.0):
            for t in (1, 2):
                transcript([request(t, scale * column(t, -t))], [answers(2, 0.0)])
        np.testing.assert_array_equal(transcript.sent(all_rows(2)).residual[:, :, 0, 0], [[3, 6], [-3, -6]])

    def test_who_failed_to_answer_has_no_values(self) -> None:
        transcript = Transcript()
        transcript([request(1, column(1, 2))], [answers(2, 7.0)])
        transcript([request(2, column(1, 2))], [answers(2, 8.0) | {"bob": InvalidInputError("no")}])
        found = transcript.sent(all_rows(2), "alice").replies
        assert set(found) == {"bob", "carol"}
        np.testing.assert_array_equal(found["carol"][0, :, 0], [7, 8])
        assert np.isnan(found["bob"][:, 1]).all()


class TestRows:
    def test_held_out_rows_are_in_no_message(self) -> None:
        roles = Rows(4, np.array([0, 2]), np.array([1]), np.array([3]))
        transcript = Transcript()
        transcript([request(1, column(10, 20))], [answers(4, 0.0)])
        sent = transcript.sent(roles, "alice")
        np.testing.assert_array_equal(sent.rows, [0, 2])
        np.testing.assert_array_equal(sent.residual.ravel(), [10, 20])

    def test_parts_of_a_cross_validation_count_as_sent(self) -> None:
        parts = np.array([0, 1, 1])
        roles = Rows(3, np.arange(3), np.arange(3), np.empty(0, dtype=np.intp), cv_folds=parts)
        transcript = Transcript()
        transcript(
            [request(1, column(1, 2, 3)), request(1, column(5, 6), fold=0), request(1, column(7), fold=1)],
            [answers(3, 0.0)] * 3,
        )
        sent = transcript.sent(roles, "alice")
        np.testing.assert_array_equal(
            sent.residual[:, 0, :, 0], [[1, np.nan, 7], [2, 5, np.nan], [3, 6, np.nan]]
        )
        assert sent.n_messages == 2
