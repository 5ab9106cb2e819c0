"""Runs that are spread: the same results wherever they ran, and errors that say what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from joblib import effective_n_jobs, parallel_config
from threadpoolctl import threadpool_info, threadpool_limits

from gal.errors import InvalidOptionError
from gal_bench import spreading
from gal_bench.spreading import Spread


def surroundings(case: int) -> tuple[int, int, set[int]]:
    return case, effective_n_jobs(-1), {one["num_threads"] for one in threadpool_info()}


@pytest.mark.parametrize("in_order", [True, False])
def test_each_run_has_one_core(in_order: bool) -> None:
    with threadpool_limits(2), parallel_config("threading", n_jobs=2):
        assert surroundings(0) != (0, 1, {1})
        found = list(Spread(n_jobs=1).run(surroundings, [(case,) for case in range(3)], in_order=in_order))
    assert (found if in_order else sorted(found)) == [(case, 1, {1}) for case in range(3)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backend": "spark"}, "one of loky, dask, got 'spark'"),
        ({"backend": "dask"}, "dask needs the address of its cluster: .* --scheduler tcp://HOST:8786"),
        ({"scheduler": "tcp://127.0.0.1:9"}, "a scheduler needs --backend dask"),
    ],
)
def test_nonsense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOptionError, match=said):
        Spread(**options)


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="needs the extra 'dask', which is not installed")
    monkeypatch.setattr(spreading, "CONNECT", 0.2)
    with pytest.raises(InvalidOptionError, match=r"tcp://127\.0\.0\.1:9 cannot be reached"):
        list(Spread("dask", "tcp://127.0.0.1:9").run(np.sqrt, [(1.0,)], in_order=True))
