"""The label holder's own work is done without BLAS's threads; what others do between is not."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import gal
from gal.core.passes import without_blas_threads

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
    under_test = without_blas_threads(steps(seen))
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


def test_what_it_raises_comes_out_and_closing_closes_it() -> None:
    seen: list[str] = []
    under_test = without_blas_threads(steps(seen))
    next(under_test)
    with pytest.raises(KeyError):
        under_test.throw(KeyError("unexpected"))
    assert threads() == 3
    other = without_blas_threads(steps(seen))
    next(other)
    other.close()
    assert seen == ["closed", "closed"]


def test_learning_in_one_process_is_done_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits have the threads that there are, what the label holder does with them has one."""
    import numpy as np
    from sklearn.base import BaseEstimator, RegressorMixin

    from gal.core import steps as core_steps

    seen: dict[str, set[int]] = {"fit": set(), "own work": set()}

    class Mean(RegressorMixin, BaseEstimator):  # type: ignore[misc]
        def fit(self, X: object, y: object) -> Mean:
            seen["fit"].add(threads())
            self.mean_ = np.mean(np.asarray(y), axis=0)
            return self

        def predict(self, X: object) -> object:
            return np.broadcast_to(self.mean_, (len(X), *np.shape(self.mean_)))  # type: ignore[arg-type]

    plain = core_steps.residual_and_size

    def watched(*given: object) -> object:
        seen["own work"].add(threads())
        return plain(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(core_steps, "residual_and_size", watched)
    rng = np.random.default_rng(0)
    view = rng.normal(size=(60, 2))
    gal.learn(view.sum(axis=1), [gal.Organization("clinic", view, Mean())], rounds=2)
    assert seen == {"fit": {3}, "own work": {1}}
