"""Runs that are spread: the same results wherever they ran, and errors that say what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib import effective_n_jobs, parallel_config
from sklearn.datasets import load_diabetes
from threadpoolctl import threadpool_info, threadpool_limits

from gal.errors import InvalidOptionError
from gal.evaluate import simulate, spreading
from gal.evaluate.spreading import Spread

PARTS = {"clinic": ["age", "sex"], "insurer": ["bmi", "bp"]}


def surroundings(case: int) -> tuple[int, int, set[int]]:
    return case, effective_n_jobs(-1), {one["num_threads"] for one in threadpool_info()}


@pytest.mark.parametrize("in_order", [True, False])
def test_each_run_has_one_core(in_order: bool) -> None:
    with threadpool_limits(2), parallel_config("threading", n_jobs=2):
        assert surroundings(0) != (0, 1, {1})
        found = list(Spread(n_jobs=1).run(surroundings, [(case,) for case in range(3)], in_order=in_order))
    assert (found if in_order else sorted(found)) == [(case, 1, {1}) for case in range(3)]


def facts(**options: Any) -> dict[str, Any]:
    table: pd.DataFrame = load_diabetes(as_frame=True).frame.sample(150, random_state=0)
    found = simulate(table, "target", PARTS, folds=3, rounds=2, **options).to_json()
    return {name: value for name, value in found.items() if name not in ("seconds", "learning")}


def test_a_simulation_is_the_same_however_it_is_spread(few_trees: None) -> None:
    said = list[str]()
    expected = facts(on_step=said.append)
    assert facts(spread=Spread(n_jobs=1)) == expected
    assert [step for step in said if step.endswith("alone")] == [
        f"part {k} of 12, alone" for k in range(1, 13)
    ]
    assert expected["exchange"]["rows"] == 100


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
