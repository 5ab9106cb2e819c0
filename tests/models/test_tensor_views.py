"""Views as tensors: kinds and shapes, rows that are gathered once, and changed copies of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

import torch

from gal.errors import InvalidInputError, InvalidOptionError
from gal.models.deep import Inputs, SharedBodyModel, ShiftAndFlip, TorchModel
from gal.models.deep.views import KEPT, ManyViews, TensorView, to_device
from gal.models.sequences import Sequences

CPU = torch.device("cpu")


def there(view: Any, inputs: Inputs | None = None, dtype: Any = torch.float32) -> TensorView:
    return to_device(view, CPU, dtype, inputs)


def pictures(n: int = 6) -> Any:
    return np.random.default_rng(0).normal(size=(n, 2, 3, 4)).astype(np.float32)


def stays(n: int = 6) -> Sequences:
    rng = np.random.default_rng(0)
    return Sequences(rng.normal(size=(n, 3, 2)), rng.integers(0, 4, size=n))


def codes(n: int = 6) -> Sequences:
    rng = np.random.default_rng(0)
    return Sequences(rng.integers(0, 9, size=(n, 3)), rng.integers(0, 4, size=n))


# --- kinds


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((6, 4), "table"), ((6, 2, 3, 4), "images"), ((6, 3, 2), "other"), ((6, 2, 1, 2, 3), "other")],
)
def test_arrays_are_told_apart_by_their_axes(shape: tuple[int, ...], kind: Any) -> None:
    values = np.random.default_rng(0).normal(size=shape)
    view = there(values)
    assert view.inputs == Inputs(kind, shape[1:])
    assert (view.shape, len(view), view.device) == (shape, 6, CPU)
    (given,) = view.batch(torch.tensor([4, 0, 0]))
    np.testing.assert_array_equal(given, values[[4, 0, 0]].astype(np.float32))
    (stretch,) = view.stretch(2, 5)
    np.testing.assert_array_equal(stretch, values[2:5].astype(np.float32))


def test_images_lie_in_memory_with_their_channels_last() -> None:
    view = there(pictures())
    assert tuple(view.tensors[0].shape) == (6, 3, 4, 2)
    (given,) = view.stretch(0, 6)
    assert given.is_contiguous(memory_format=torch.channels_last)
    half = there(pictures(), dtype=torch.bfloat16)
    assert half.tensors[0].dtype == torch.bfloat16
    assert there(np.ones((3, 2)), dtype=torch.bfloat16).tensors[0].dtype == torch.float32


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_, np.float16])
def test_numbers_of_any_type_are_taken(dtype: Any) -> None:
    values = (np.arange(12).reshape(4, 3) % 2).astype(dtype)
    assert there(values).tensors[0].dtype == torch.float32
    np.testing.assert_array_equal(there(values).tensors[0], values.astype(np.float32))


def test_sequences_keep_their_lengths() -> None:
    view = there(stays())
    assert view.inputs == Inputs("sequences", (3, 2))
    values, lengths = view.batch(torch.tensor([5, 1]))
    np.testing.assert_array_equal(values, stays().values[[5, 1]].astype(np.float32))
    np.testing.assert_array_equal(lengths, stays().lengths[[5, 1]])
    assert there(codes()).inputs == Inputs("codes", (3,), int(codes().values.max()) + 1)
    assert there(codes()).tensors[0].dtype == torch.int64


def test_gaps_are_for_sequences_only() -> None:
    values = stays().values.copy()
    values[0, 0, 0] = np.nan
    assert bool(torch.isnan(there(Sequences(values, stays().lengths)).tensors[0]).any())
    with pytest.raises(InvalidInputError, match=r"2 values are NaN or infinite, .* fill them in"):
        there([[1.0, np.nan], [np.inf, 2.0]])


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (np.zeros(4), r"rows \(n, \.\.\.\), got shape \(4,\)"),
        ([["a", "b"]], r"a network needs numbers: could not convert"),
        (Sequences(np.array([[0, -1]]), np.array([2])), r"codes must be 0 or more"),
    ],
)
def test_what_no_network_can_take_is_refused(view: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        there(view)


@pytest.mark.parametrize("padding", [-1, 10_000])
def test_codes_beyond_a_rows_end_do_not_matter(padding: int) -> None:
    values = codes().values.copy()
    values[np.arange(3) >= codes().lengths[:, None]] = padding
    within = codes().values[np.arange(3) < codes().lengths[:, None]]
    assert there(Sequences(values, codes().lengths)).inputs.n_codes == within.max() + 1


def test_new_rows_must_be_like_those_that_were_learned_from() -> None:
    learned = there(pictures()).inputs
    assert there(pictures(2), learned).inputs is learned
    with pytest.raises(
        InvalidInputError, match=r"'images' and shape \(2, 3, 4\) .* got 'images' and \(2, 3, 3\)"
    ):
        there(pictures()[..., :3], learned)
    with pytest.raises(InvalidInputError, match=r"got 'table' and \(2,\)"):
        there(np.ones((3, 2)), learned)
    with pytest.raises(InvalidInputError, match=r"got 'table' and \(2,\)"):
        there(there(np.ones((3, 2))), learned)


def test_new_codes_are_read_with_the_known_ones() -> None:
    learned = there(codes()).inputs
    assert there(Sequences(np.full((2, 3), 500), np.array([3, 3])), learned).inputs == learned


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


def test_order_and_repetition_make_other_rows() -> None:
    view = there(stays())
    assert view[[0, 1]] is not view[[1, 0]]
    values, lengths = view[[1, 1, 0]].stretch(0, 3)
    np.testing.assert_array_equal(values, stays().values[[1, 1, 0]].astype(np.float32))
    np.testing.assert_array_equal(lengths, stays().lengths[[1, 1, 0]])
    assert view[[1, 0]][[1]] is view[[1, 0]][[1]]


def test_only_so_many_selections_are_kept() -> None:
    view = there(np.arange(40.0).reshape(20, 2))
    selections = [view[[row]] for row in range(KEPT)]
    assert all(view[[row]] is one for row, one in enumerate(selections))
    view[[KEPT]]  # one too many: the oldest goes
    assert view[[0]] is not selections[0]
    assert view[[KEPT - 1]] is selections[-1]
    assert len(view._selections) == KEPT


def test_what_is_lent_comes_back_to_the_next_one_who_asks() -> None:
    view = there(np.ones((3, 2)))
    first = view.lend("a", object)
    second = view.lend("a", object)
    assert first is not second
    view.hand_back("a", first)
    assert view.lend("b", object) is not first
    assert view.lend("a", object) is first
    assert view.lend("a", object) not in (first, second)


def test_many_views_give_their_inputs_one_after_another() -> None:
    many = ManyViews([there(np.ones((6, 2))), there(stays()), there(pictures())])
    rows = torch.tensor([3, 1])
    assert [tuple(one.shape) for one in many.batch(rows)] == [(2, 2), (2, 3, 2), (2,), (2, 2, 3, 4)]
    np.testing.assert_array_equal(many.batch(rows)[3], pictures()[[3, 1]])
    np.testing.assert_array_equal(many.stretch(1, 3)[2], stays().lengths[1:3])
    assert (len(many), many.device) == (6, CPU)
    with pytest.raises(InvalidInputError, match=r"different numbers of rows: \[3, 6\]"):
        ManyViews([there(np.ones((6, 2))), there(np.ones((3, 2)))])


# --- prepare


@pytest.mark.parametrize("make", [TorchModel, SharedBodyModel])
@pytest.mark.parametrize("view", [np.ones((4, 2)), pictures(), stays(), codes()])
def test_a_prepared_view_stays_as_it_is(make: Any, view: Any) -> None:
    model = make(device="cpu")
    prepared = model.prepare(view)
    assert isinstance(prepared, TensorView)
    assert model.prepare(prepared) is prepared
    assert prepared.shape == view.shape


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


def test_moves_are_as_likely_in_each_direction() -> None:
    moved = [drawn(0.5, (place + 0.5) / 5, 0.9, pixels=2)[0].tolist() for place in range(5)]
    assert moved == [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 3], [2, 3, 3, 3]]
    just_below_1 = float(np.nextafter(np.float32(1), np.float32(0)))
    assert drawn(0.5, just_below_1, 0.9, pixels=2)[0].tolist() == moved[-1]


def test_without_flip_nothing_is_mirrored() -> None:
    np.testing.assert_array_equal(drawn(0.5, 0.5, 0.1, flip=False), WHOLE)
    np.testing.assert_array_equal(drawn(0.0, 0.9, 0.1, flip=False, pixels=0), WHOLE)


def test_each_row_has_its_own_draws() -> None:
    draws = torch.tensor([[0.5, 0.5, 0.9], [0.5, 0.5, 0.1], [0.5, 0.5, 0.1]])
    (changed,) = ShiftAndFlip(1).batch(image(), torch.tensor([0, 1, 0]), draws)
    assert tuple(changed.shape) == (3, 1, 3, 4)
    np.testing.assert_array_equal(changed[0, 0], WHOLE)
    np.testing.assert_array_equal(changed[1, 0], 0)
    np.testing.assert_array_equal(changed[2, 0], WHOLE[:, ::-1])


def test_channels_move_together() -> None:
    view = there(pictures())
    draws = torch.tensor([[0.5, 0.5, 0.1]])
    (changed,) = ShiftAndFlip().batch(view, torch.tensor([3]), draws)
    np.testing.assert_array_equal(changed[0], pictures()[3][:, :, ::-1])


def test_it_wants_three_draws_per_row_and_images() -> None:
    assert ShiftAndFlip().n_draws == 3
    model = TorchModel(epochs=1, device="cpu", augment=ShiftAndFlip(), random_state=0)
    with pytest.raises(InvalidOptionError, match=r"changes images, the view is of the kind 'table'"):
        model.fit(np.ones((4, 2)), np.zeros(4))
    with pytest.raises(InvalidOptionError, match=r"changes images, the view is of the kind 'sequences'"):
        model.fit(stays(), np.zeros(6))


def test_infinite_values_within_a_row_are_refused() -> None:
    values = np.zeros((2, 3, 1))
    values[0, 2] = np.inf
    with pytest.raises(InvalidInputError, match="infinite"):
        to_device(Sequences(values, np.array([3, 1])), torch.device("cpu"), torch.float32)
    to_device(
        Sequences(values, np.array([2, 1])), torch.device("cpu"), torch.float32
    )  # beyond its end: ignored
