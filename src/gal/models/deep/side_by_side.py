"""Several networks on one GPU at the same time.

One network of the size that an organization needs leaves most of a GPU idle. Organizations that are simulated
together run in threads; where their networks meet to be trained, one thread takes all of them through their
steps, each on a stream of its own, recorded as one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition, local
from typing import Protocol, TypeVar

T = TypeVar("T")


class Trained(Protocol):
    """What can be trained together with others."""

    def group(self) -> object:
        """Those of the same group can be trained in step."""


class Meeting:
    """Where so many threads meet: work is done when all that are still there have brought theirs."""

    def __init__(self, members: int, work: Callable[[Sequence[Trained]], None]) -> None:
        self._present = members
        self._work = work
        self._waiting: list[Trained] = []
        self._errors: dict[int, BaseException | None] = {}
        self._changed = Condition()

    def join(self, mine: Trained) -> None:
        """Returns when the work on ``mine`` is done; raises what went wrong with it."""
        with self._changed:
            self._waiting.append(mine)
            self._start_if_complete()
            self._changed.wait_for(lambda: id(mine) in self._errors)
            error = self._errors.pop(id(mine))
        if error is not None:
            raise error

    def leave(self) -> None:
        """This thread has nothing more to bring."""
        with self._changed:
            self._present -= 1
            self._start_if_complete()

    def _start_if_complete(self) -> None:
        if not self._waiting or len(self._waiting) < self._present:
            return
        waiting, self._waiting = self._waiting, []
        groups: dict[object, list[Trained]] = {}
        for one in waiting:
            groups.setdefault(one.group(), []).append(one)
        for members in groups.values():
            error: BaseException | None = None
            try:
                self._work(members)
            except BaseException as raised:
                error = raised
            self._errors |= {id(one): error for one in members}
        self._changed.notify_all()


_here = local()


def current_meeting() -> Meeting | None:
    """Of this thread; None where networks are trained one by one."""
    return getattr(_here, "meeting", None)


@contextmanager
def attending(meeting: Meeting) -> Iterator[None]:
    """This thread takes part in the meeting inside."""
    _here.meeting = meeting
    try:
        yield
    finally:
        _here.meeting = None
        meeting.leave()


class SideBySide:
    """A driver that runs all jobs at once, in threads; networks on a GPU are trained together.

    Its threads live as long as it does: libraries on a GPU remember per thread which of their kernels suit.

    >>> with SideBySide() as together:
    ...     together([lambda: 1, lambda: 2])
    [1, 2]
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0

    def __enter__(self) -> SideBySide:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def __call__(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        from gal.models.deep.training import train_together

        if not jobs:
            return []
        if self._pool is None or self._size < len(jobs):
            self.__exit__()
            self._pool, self._size = ThreadPoolExecutor(len(jobs)), len(jobs)
        meeting = Meeting(len(jobs), train_together)  # type: ignore[arg-type]

        def run(job: Callable[[], T]) -> T:
            with attending(meeting):
                return job()

        waiting = [self._pool.submit(run, job) for job in jobs]
        return [one.result() for one in waiting]
