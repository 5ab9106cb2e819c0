"""Views as tensors: kinds and shapes, rows that are gathered once, and changed copies of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

import torch

from gal.errors import InvalidInputError
from gal.models.deep import Inputs, ShiftAndFlip
from gal.models.deep.views import TensorView, to_device

CPU = torch.device("cpu")


def there(view: Any, inputs: Inputs | None = None, dtype: Any = torch.float32) -> TensorView:
    return to_device(view, CPU, dtype, inputs)


def pictures(n: int = 6) -> Any:
    return np.random.default_rng(0).normal(size=(n, 2, 3, 4)).astype(np.float32)


# --- kinds


def test_new_rows_must_be_like_those_that_were_learned_from() -> None:
    learned = there(pictures()).inputs
    assert there(pictures(2), learned).inputs is learned
    with pytest.raises(
        InvalidInputError, match=r"'images' and shape \(2, 3, 4\), got 'images' and \(2, 3, 3\)"
    ):
        there(pictures()[..., :3], learned)
    with pytest.raises(InvalidInputError, match=r"got 'table' and \(2,\)"):
        there(np.ones((3, 2)), learned)
    with pytest.raises(InvalidInputError, match=r"got 'table' and \(2,\)"):
        there(there(np.ones((3, 2))), learned)


# --- rows


@pytest.mark.parametrize(
    "same",
    [
        (np.array([0, 2, 3]), [0, 2, 3]),
        (slice(1, 4), np.array([1, 2, 3])),
        (np.array([True, False, True, False, False, False]), np.array([0, 2], dtype=np.int32)),
    ],
)
def test_the_same_rows_are_gathered_once(same: tuple[Any, Any]) -> None:
    view = there(pictures())
    first, second = same
    assert view[first] is view[second]
    (given,) = view[first].stretch(0, 6)
    np.testing.assert_array_equal(given, pictures()[first])
    assert view[first].inputs == view.inputs
    assert view[first].shape == (len(given), 2, 3, 4)


# --- changed copies


def image() -> TensorView:
    """One image of 3 x 4 pixels in which every pixel has its own number; a second one is all 0."""
    pixels = np.zeros((2, 1, 3, 4), dtype=np.float32)
    pixels[0, 0] = np.arange(12).reshape(3, 4)
    return there(pixels)


def drawn(down: float, right: float, mirror: float, **options: Any) -> Any:
    draws = torch.tensor([[down, right, mirror]])
    (changed,) = ShiftAndFlip(**options).batch(image(), torch.tensor([0]), draws)
    return changed[0, 0].numpy()


WHOLE = np.arange(12).reshape(3, 4)


@pytest.mark.parametrize(
    ("draws", "expected"),
    [
        ((0.5, 0.5, 0.9), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]),  # as it is
        ((0.0, 0.5, 0.9), [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7]]),  # one down, the edge repeats
        ((0.99, 0.5, 0.9), [[4, 5, 6, 7], [8, 9, 10, 11], [8, 9, 10, 11]]),  # one up
        ((0.5, 0.0, 0.9), [[0, 0, 1, 2], [4, 4, 5, 6], [8, 8, 9, 10]]),  # one to the right
        ((0.5, 0.99, 0.9), [[1, 2, 3, 3], [5, 6, 7, 7], [9, 10, 11, 11]]),  # one to the left
        ((0.5, 0.5, 0.1), [[3, 2, 1, 0], [7, 6, 5, 4], [11, 10, 9, 8]]),  # mirrored
        ((0.0, 0.0, 0.1), [[3, 3, 2, 1], [3, 3, 2, 1], [7, 7, 6, 5]]),  # all three
    ],
)
def test_images_are_moved_and_mirrored_as_drawn(draws: tuple[float, float, float], expected: Any) -> None:
    np.testing.assert_array_equal(drawn(*draws, pixels=1), expected)


def test_each_row_has_its_own_draws() -> None:
    draws = torch.tensor([[0.5, 0.5, 0.9], [0.5, 0.5, 0.1], [0.5, 0.5, 0.1]])
    (changed,) = ShiftAndFlip(1).batch(image(), torch.tensor([0, 1, 0]), draws)
    assert tuple(changed.shape) == (3, 1, 3, 4)
    np.testing.assert_array_equal(changed[0, 0], WHOLE)
    np.testing.assert_array_equal(changed[1, 0], 0)
    np.testing.assert_array_equal(changed[2, 0], WHOLE[:, ::-1])
