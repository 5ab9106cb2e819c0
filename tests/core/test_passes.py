"""Rows that are taken block by block, and who gets them as arrays."""

from __future__ import annotations

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


def test_light_work_is_done_in_the_same_order_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threaded = over_blocks(lambda block: block.start, 700, 1)
    assert len(threaded) > passes.THREADED_BLOCKS

    def none(*_: Any) -> Any:
        raise AssertionError("threads were started")

    monkeypatch.setattr(passes, "ThreadPoolExecutor", none)
    assert over_blocks(lambda block: block.start, 700, 1, light=True) == threaded


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
