"""Requests that come at the same time share one exchange with the organizations.

An exchange costs about the same for one row as for a hundred. While one is under way, what comes in is
collected, and goes out together when that has ended, or is taking long. A request that comes alone waits for
nobody.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds
from gal.node.holder.predicting import NodePrediction

LANES = 4
"""Exchanges at a time, so that one that waits for a slow organization does not hold the others up."""
SHARED = 0.1
"""Seconds for which an exchange is waited for before the next one begins beside it. Without that, many
clients would make many small exchanges at a time, which then wait for each other's share of the processors.
"""
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
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._n_under_way, self._last_begun = 0, -math.inf
        self._ending = False
        for lane in range(lanes):
            threading.Thread(target=self._work, name=f"exchange {lane}", daemon=True).start()

    def ask(self, ids: RowIds) -> Future[NodePrediction]:
        """The prediction of these rows, once it is there."""
        waiting = _Waiting(ids, Future())
        with self._changed:
            self._waiting.append(waiting)
            self._changed.notify()
        return waiting.found

    def close(self) -> None:
        """Answer what has been asked, and end."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def _work(self) -> None:
        while together := self._collected():
            _answer(self._exchange, together)
            with self._changed:
                self._n_under_way -= 1
                self._changed.notify()

    def _collected(self) -> list[_Waiting]:
        """What waits when the next exchange may begin; nothing where this lane is to end."""
        with self._changed:
            while not self._waiting or self._pause() > 0:
                if self._ending and not self._waiting:
                    return []
                self._changed.wait(self._pause() if self._waiting else None)
            together, rows = list[_Waiting](), 0
            while self._waiting and rows < MOST_ROWS:
                together.append(self._waiting.popleft())
                rows += len(together[-1].ids)
            self._n_under_way, self._last_begun = self._n_under_way + 1, time.monotonic()
            return together

    def _pause(self) -> float:
        """Seconds until the next exchange may begin. Holds the lock."""
        return max(0.0, self._last_begun + SHARED - time.monotonic()) if self._n_under_way else 0.0


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
