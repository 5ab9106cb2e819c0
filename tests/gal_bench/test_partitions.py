"""Who gets which columns: the authors' drawing, names, and the least informative ones to the label holder."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gal.errors import InvalidOptionError
from gal_bench.data import splits as partitions
from gal_bench.data.datasets import load
from gal_bench.data.splits import (
    informativeness,
    part_sizes,
    random_partition,
    skewed_partition,
    torch_permutation,
)


class TestRandom:
    @pytest.mark.parametrize(
        ("columns", "organizations", "sizes"),
        [
            (10, 8, [1] * 7 + [3]),
            (13, 8, [1] * 7 + [6]),
            (30, 8, [3] * 7 + [9]),
            (41, 8, [5] * 7 + [6]),
            (13, 2, [6, 7]),
            (4, 4, [1] * 4),
            (5, 1, [5]),
        ],
    )
    def test_the_last_organization_gets_the_remainder(
        self, columns: int, organizations: int, sizes: list[int]
    ) -> None:
        assert part_sizes(columns, organizations) == sizes
        parts = random_partition([str(j) for j in range(columns)], organizations, seed=3)
        assert [len(part) for part in parts.values()] == sizes

    def test_the_drawing_is_torch_s(self) -> None:
        # torch.manual_seed(seed); torch.randperm(n)
        assert torch_permutation(4, 0) == [0, 1, 3, 2]
        assert torch_permutation(5, 0) == [4, 0, 1, 3, 2]
        assert torch_permutation(10, 0) == [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
        assert torch_permutation(13, 1) == [6, 12, 7, 11, 3, 0, 5, 1, 2, 9, 8, 10, 4]
        assert random_partition(list("abcde"), 2, seed=0) == {
            "organization 1": ["e", "a"],
            "organization 2": ["b", "d", "c"],
        }

    @given(st.integers(1, 60), st.integers(0, 2**32 - 1), st.data())
    def test_every_column_has_one_holder(self, columns: int, seed: int, data: st.DataObject) -> None:
        names = [f"c{j}" for j in range(columns)]
        parts = random_partition(names, data.draw(st.integers(1, columns)), seed)
        assert sorted(column for part in parts.values() for column in part) == sorted(names)

    @pytest.mark.parametrize("organizations", [8, 5, 0, -1])
    def test_too_many_or_too_few_organizations(self, organizations: int) -> None:
        iris = list(load("Iris").X.columns)
        with pytest.raises(InvalidOptionError, match=rf"from 1 to 4, .*got {organizations}$"):
            random_partition(iris, organizations, seed=0)


def graded(n: int = 400, columns: int = 9) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """Labels, and columns ``c0``, ``c1``, ... that tell ever more about them, shuffled."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=n)
    table = {f"c{j}": y + rng.normal(size=n) * 8.0 * 0.6**j for j in range(columns)}
    names = rng.permutation(list(table))
    return pd.DataFrame({name: table[name] for name in names}), y


class TestSkewed:
    @pytest.mark.parametrize("classes", [False, True])
    def test_the_label_holder_has_the_least_informative_columns(self, classes: bool) -> None:
        X, y = graded()
        labels = (y > 0).astype(int) if classes else y
        worth = dict(zip(X.columns, informativeness(X, labels, classes=classes, seed=0), strict=True))
        parts = skewed_partition(X, labels, 3, classes=classes, seed=0)
        mine, *others = parts.values()
        most = max(worth[column] for column in mine)
        assert all(worth[column] >= most for part in others for column in part)
        assert "c8" not in mine
        assert {"c0", "c1"} <= set(mine)

    def test_the_others_have_comparable_shares(self, monkeypatch: pytest.MonkeyPatch) -> None:
        worth = np.array([0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9], dtype=float)
        monkeypatch.setattr(partitions, "informativeness", lambda *_, **__: worth)
        X = pd.DataFrame(np.zeros((2, 12)), columns=[str(j) for j in range(12)])
        parts = skewed_partition(X, np.zeros(2), 4, classes=False, seed=0)
        shares = [sum(worth[int(column)] for column in part) for part in parts.values()]
        assert shares[0] == 0
        assert (
            max(shares[1:]) - min(shares[1:]) <= 2
        )  # 15 each is the mean; in order they would have 6 and 24

    @pytest.mark.parametrize("organizations", [1, 2, 4, 8])
    def test_sizes_are_those_of_the_random_partition(self, organizations: int) -> None:
        X, y = graded()
        parts = skewed_partition(X, y, organizations, classes=False, seed=1)
        drawn = random_partition(list(X.columns), organizations, seed=1)
        assert {name: len(part) for name, part in parts.items()} == {
            name: len(part) for name, part in drawn.items()
        }
        assert sorted(column for part in parts.values() for column in part) == sorted(X.columns)


class TestInformativeness:
    def test_mixed_columns_with_gaps(self) -> None:
        rng = np.random.default_rng(0)
        y = rng.integers(0, 2, 500)
        table = pd.DataFrame(
            {
                "telling": pd.Series(np.where(y == 1, "yes", "no")).where(rng.random(500) > 0.1),
                "idle": pd.Series(rng.choice(["a", "b"], 500)).where(rng.random(500) > 0.1),
                "number": np.where(rng.random(500) < 0.1, np.nan, y + rng.normal(0, 0.2, 500)),
                "noise": rng.normal(size=500),
                "nothing": np.nan,
                "name": [f"customer {i}" for i in range(500)],
            }
        )
        worth = dict(zip(table, informativeness(table, y, classes=True, seed=0), strict=True))
        assert worth["telling"] > 0.5
        assert worth["number"] > 0.4
        assert max(worth["idle"], worth["noise"], worth["nothing"]) < 0.1
