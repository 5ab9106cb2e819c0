"""Rows that are taken block by block, and who gets them as arrays."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from gal.core import passes
from gal.core.algorithm import learn
from gal.core.line_search import ExactSearch, Line, mean_loss
from gal.core.losses import Huber, Loss, SquaredError
from gal.core.passes import RowsOf, over_blocks
from gal.core.rows import assign_rows
from gal.core.steps import seen_at
from gal.core.task import Task
from patience import LONGEST

RNG = np.random.default_rng(0)
Y, OUTPUT = RNG.standard_normal((200, 2)), RNG.standard_normal((200, 2))
ROWS = np.sort(RNG.permutation(200)[:150])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "BLOCK_ENTRIES", 14)


@pytest.mark.parametrize("loss", [SquaredError(2), Huber(1.0, n_outputs=2)])
def test_the_loss_of_some_rows_is_the_same_to_the_last_bit(loss: Loss) -> None:
    seen = RowsOf(Y, ROWS), RowsOf(OUTPUT, ROWS)
    assert seen[0].shape == (150, 2)
    np.testing.assert_array_equal(np.asarray(seen[0]), Y[ROWS], strict=True)
    weight = RNG.random(150)
    for given in (None, weight):
        assert mean_loss(loss, *seen, given) == mean_loss(loss, Y[ROWS], OUTPUT[ROWS], given)


def test_all_rows_are_the_array_itself() -> None:
    assert seen_at(np.arange(200), Y) is Y
    assert isinstance(seen_at(ROWS, Y), RowsOf)


def test_light_work_is_done_in_the_same_order_in_one_stretch_for_each_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thread by thread one stretch of neighbours, of at least so many; few blocks are not worth a thread."""
    by_thread: dict[int, list[int]] = {}
    both = threading.Barrier(2, timeout=LONGEST)

    def work(block: slice) -> int:
        own = by_thread.setdefault(threading.get_ident(), [])
        if not own:
            both.wait()  # else the first could be done with all before the second begins
        own.append(block.start)
        return int(block.start)

    monkeypatch.setattr(passes, "STRETCH", 20)
    monkeypatch.setattr(passes, "cores", lambda: 4)
    starts = list(range(0, 700, 14))
    assert over_blocks(work, 700, 1, light=True) == starts
    assert sorted(by_thread.values()) == [starts[:25], starts[25:]]

    def none(*_: Any) -> Any:
        raise AssertionError("threads were started")

    monkeypatch.setattr(passes, "ThreadPoolExecutor", none)
    monkeypatch.setattr(passes, "STRETCH", 26)
    assert over_blocks(lambda block: block.start, 700, 1, light=True) == starts


def test_a_round_is_the_same_to_the_last_bit_with_threads_and_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = assign_rows(200, np.random.default_rng(1), validation_fraction=0.2)
    task = Task(Y, SquaredError(2), ("a", "b"), rows, rounds=3, label_holder="a")
    rng = np.random.default_rng(2)
    answers = [{name: rng.standard_normal((200, 2)).astype(np.float32) for name in "ab"} for _ in range(3)]

    def learned(stretch: int) -> list[Any]:
        monkeypatch.setattr(passes, "STRETCH", stretch)
        seen: list[Any] = []
        steps = learn(task, on_round=seen.append)
        requests = next(steps)
        try:
            for fitted in answers:
                requests = steps.send([{one: fitted[one] for one in r.organizations} for r in requests])
        except StopIteration as end:
            seen.append(end.value)
        return seen

    alone, threaded = learned(10**6), learned(2)
    assert len(alone) == len(threaded) == 4
    for one, other in zip(alone[:-1], threaded[:-1], strict=True):
        np.testing.assert_array_equal(one.output, other.output, strict=True)
        assert one.rounds == other.rounds
    assert alone[-1] == threaded[-1]


def test_a_search_of_ones_own_gets_arrays() -> None:
    """It may do with rows what it likes; those that come with this package look at none here."""
    seen: list[tuple[type, type]] = []

    class Own:
        def __call__(self, line: Line, *, round: int, scale: float) -> float:
            seen.append((type(line.y), type(line.output)))
            return ExactSearch()(line, round=round, scale=scale)

    rows = assign_rows(200, np.random.default_rng(1), validation_fraction=0.2)
    task = Task(Y[:, :1], SquaredError(), ("a", "b"), rows, rounds=2, line_search=Own(), label_holder="a")
    steps = learn(task)
    requests = next(steps)
    fitted = {name: RNG.standard_normal((200, 1)).astype(np.float32) for name in ("a", "b")}
    steps.send([{name: fitted[name] for name in one.organizations} for one in requests])
    assert seen
    assert set(seen) == {(np.ndarray, np.ndarray)}
