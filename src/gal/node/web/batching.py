"""Requests that come at the same time share one exchange with the organizations.

An exchange costs about the same for one row as for a hundred. While some are under way, what comes in is
collected; who is free next takes all of it. A request that comes alone waits for nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds
from gal.node.holder.predicting import NodePrediction

LANES = 4
"""Exchanges at a time, so that one that waits for a slow organization does not hold the others up."""
MOST_ROWS = 4096
"""Of one exchange that is shared; a larger request has one of its own."""

Exchange = Callable[[RowIds], NodePrediction]


@dataclass(frozen=True)
class _Waiting:
    ids: RowIds
    found: Future[NodePrediction]


class SharedExchanges:
    """Answers requests for ids of one kind, several of them by one exchange where they come together."""

    def __init__(self, exchange: Exchange, lanes: int = LANES) -> None:
        self._exchange = exchange
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"exchange {lane}", daemon=True) for lane in range(lanes)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, ids: RowIds) -> Future[NodePrediction]:
        """The prediction of these rows, once it is there."""
        waiting = _Waiting(ids, Future())
        self._queue.put(waiting)
        return waiting.found

    def close(self) -> None:
        """Answer what has been asked, and end."""
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            together, last = self._collected(first)
            _answer(self._exchange, together)
            if last:
                return

    def _collected(self, first: _Waiting) -> tuple[list[_Waiting], bool]:
        """What waits by now, and whether this lane is to end."""
        together, rows = [first], len(first.ids)
        while rows < MOST_ROWS:
            try:
                more = self._queue.get_nowait()
            except Empty:
                break
            if more is None:
                return together, True
            together.append(more)
            rows += len(more.ids)
        return together, False


def _answer(exchange: Exchange, together: list[_Waiting]) -> None:
    """One exchange for all of them; what goes wrong with it goes wrong for each."""
    live = [one for one in together if one.found.set_running_or_notify_cancel()]
    if not live:
        return
    try:
        ids, places = merged([one.ids for one in live])
        found = exchange(ids)
        for one, positions in zip(live, places, strict=True):
            one.found.set_result(found if len(live) == 1 else found.at(positions))
    except BaseException as error:
        for one in live:
            if not one.found.done():
                one.found.set_exception(error)


def merged(requests: list[RowIds]) -> tuple[RowIds, list[NDArray[np.intp]]]:
    """All ids, each once, and where those of each request are among them.

    >>> ids, places = merged([RowIds("integer", np.array([7, 3])), RowIds("integer", np.array([3, 9]))])
    >>> ids.values.tolist(), [one.tolist() for one in places]
    ([7, 3, 9], [[0, 1], [1, 2]])
    """
    if len(requests) == 1:
        return requests[0], [np.arange(len(requests[0]))]
    where: dict[object, int] = {}
    places = [
        np.array([where.setdefault(one, len(where)) for one in request.values.tolist()], dtype=np.intp)
        for request in requests
    ]
    values = np.array(list(where), dtype=requests[0].values.dtype)
    return RowIds(requests[0].kind, values), places
