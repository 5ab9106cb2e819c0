"""Several generators in step: what they request next goes out together."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from functools import partial
from typing import TypeVar

from gal.core.replies import Reply
from gal.core.requests import EndLearning, FitRequest

Name = TypeVar("Name", bound=Hashable)
Result = TypeVar("Result")


def side_by_side(
    tracks: Mapping[Name, Generator[FitRequest, Mapping[str, Reply], Result]],
) -> Generator[list[FitRequest], list[Mapping[str, Reply]], dict[Name, Result]]:
    """Run all to their ends; what each returned."""
    results: dict[Name, Result] = {}
    waiting: dict[Name, FitRequest] = {}

    def step(name: Name, move: Callable[[], FitRequest]) -> None:
        try:
            waiting[name] = move()
        except StopIteration as end:
            results[name] = end.value
            waiting.pop(name, None)

    for name, track in tracks.items():
        step(name, partial(next, track))
    while waiting:
        asked = [name for name in tracks if name in waiting]
        try:
            replies = yield [waiting[name] for name in asked]
        except EndLearning as end:
            for name in asked:
                step(name, partial(tracks[name].throw, end))
        else:
            for name, reply in zip(asked, replies, strict=True):
                step(name, partial(tracks[name].send, reply))
    return results
