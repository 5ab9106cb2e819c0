"""The label holder's own work is done on one thread."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gal.core.passes import on_one_thread

Steps = Generator[int, str, str]


def threads() -> int:
    return max(int(one["num_threads"]) for one in threadpool_info() if one["user_api"] == "blas")


@pytest.fixture(autouse=True)
def _three_of_them() -> Iterator[None]:
    with threadpool_limits(3, "blas"):
        assert threads() == 3
        yield


def steps(seen: list[str]) -> Steps:
    try:
        while True:
            try:
                seen.append((yield threads()))
            except ValueError as error:
                seen.append(f"thrown {error}")
            if seen[-1] == "enough":
                return "result"
    finally:
        seen.append("closed")


def test_inside_there_is_one_and_between_as_many_as_before() -> None:
    seen: list[str] = []
    under_test = on_one_thread(steps(seen))
    assert next(under_test) == 1
    assert threads() == 3
    assert under_test.send("a") == 1
    assert under_test.throw(ValueError("b")) == 1
    assert threads() == 3
    with pytest.raises(StopIteration) as end:
        under_test.send("enough")
    assert end.value.value == "result"
    assert seen == ["a", "thrown b", "enough", "closed"]
    assert threads() == 3


def test_its_errors_are_raised_and_close_ends_it() -> None:
    seen: list[str] = []
    under_test = on_one_thread(steps(seen))
    next(under_test)
    with pytest.raises(KeyError):
        under_test.throw(KeyError("unexpected"))
    assert threads() == 3
    other = on_one_thread(steps(seen))
    next(other)
    other.close()
    assert seen == ["closed", "closed"]
