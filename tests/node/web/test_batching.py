"""Requests that come together share an exchange, and each gets what it would have got alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("grpc")
pytest.importorskip("duckdb")

from gal.alignment import RowIds
from gal.errors import TaskError
from gal.node.holder.predicting import NodePrediction
from gal.node.web import batching
from gal.node.web.batching import SharedExchanges, merged
from patience import patient


def predicted(ids: RowIds) -> NodePrediction:
    """Ten times the id; odd rows are unknown to the lab."""
    values = ids.values.astype(np.float64)[:, None] * 10
    odd = ids.values % 2 == 1
    return NodePrediction(values, values, None, odd, {}, {"lab": odd}, 1)


def of(*values: int) -> RowIds:
    return RowIds("integer", np.array(values))


def test_what_comes_while_others_are_under_way_goes_together() -> None:
    free, begun, asked = threading.Event(), threading.Event(), []

    def exchange(ids: RowIds) -> NodePrediction:
        asked.append(ids.values.tolist())
        begun.set()
        assert free.wait(patient(30))
        return predicted(ids)

    exchanges = SharedExchanges(exchange, lanes=1)
    first = exchanges.ask(of(1))
    assert begun.wait(patient(30))
    others = [exchanges.ask(of(2, 5)), exchanges.ask(of(5, 3))]
    free.set()
    assert first.result(patient(30)).output[:, 0].tolist() == [10]
    found = [one.result(patient(30)) for one in others]
    assert [one.output[:, 0].tolist() for one in found] == [[20, 50], [50, 30]]
    assert [one.unknown for one in found] == [{"lab": 1}, {"lab": 2}]
    assert asked == [[1], [2, 5, 3]]
    exchanges.close()


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1e6, [[1], [2, 3]]), (0.0, [[1], [2], [3]])], ids=["quick", "held-up"]
)
def test_another_exchange_begins_only_beside_one_that_is_held_up(
    monkeypatch: pytest.MonkeyPatch, seconds: float, expected: list[list[int]]
) -> None:
    monkeypatch.setattr(batching, "SHARED", seconds)
    free, begun, asked = threading.Event(), threading.Semaphore(0), list[list[int]]()

    def exchange(ids: RowIds) -> NodePrediction:
        asked.append(ids.values.tolist())
        begun.release()
        assert free.wait(patient(30))
        return predicted(ids)

    exchanges = SharedExchanges(exchange, lanes=3)
    found = [exchanges.ask(of(1))]
    assert begun.acquire(timeout=patient(30))
    for one in (2, 3):
        found.append(exchanges.ask(of(one)))
        if seconds == 0:  # it does not wait for the first
            assert begun.acquire(timeout=patient(30))
    free.set()
    assert [one.result(patient(30)).output[0, 0] for one in found] == [10, 20, 30]
    assert asked == expected
    exchanges.close()


def test_what_goes_wrong_is_told_to_all_and_the_next_is_answered() -> None:
    wrong = threading.Event()
    wrong.set()

    def exchange(ids: RowIds) -> NodePrediction:
        if wrong.is_set():
            raise TaskError("forgotten")
        return predicted(ids)

    exchanges = SharedExchanges(exchange, lanes=2)
    with pytest.raises(TaskError, match="forgotten"):
        exchanges.ask(of(1)).result(patient(30))
    wrong.clear()
    assert exchanges.ask(of(4)).result(patient(30)).output[0, 0] == 40
    exchanges.close()


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, unique=True), min_size=1, max_size=5))
def test_merging_loses_and_doubles_nothing(requests: list[list[int]]) -> None:
    ids, places = merged([of(*one) for one in requests])
    assert len(set(ids.values.tolist())) == len(ids)
    assert [ids.values[at].tolist() for at in places] == requests
