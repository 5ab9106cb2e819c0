"""Splits: exactly the authors' drawings, statistics of training rows only, official
test rows where there are some.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from gal_bench.data.datasets import Dataset, load
from gal_bench.data.splits import (
    OFFICIAL,
    PROTOCOLS,
    Split,
    draw_rows,
    paper,
    part_sizes,
    per_seed,
    random_partition,
    split_by_name,
    torch_permutation,
)

SMALL = ("Diabetes", "BostonHousing", "Blob", "Iris", "Wine", "BreastCancer", "QSAR")


def files(folder: Path, name: str) -> list[tuple[int, int]]:
    """Numbers of organizations and seeds of the stored splits of one data set."""
    found = sorted(path.stem.removeprefix(f"{name}_M") for path in folder.glob(f"{name}_M*_seed*.npz"))
    return [(int(m), int(seed)) for m, seed in (one.split("_seed") for one in found)]


def toy(n: int = 50, columns: int = 7, **more: object) -> Dataset:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(3, 2, (n, columns)), columns=[f"c{j}" for j in range(columns)])
    return replace(Dataset("Toy", table, rng.normal(size=n), classes=False), **more)  # type: ignore[arg-type]


def positions(split: Split, dataset: Dataset) -> list[list[int]]:
    """The columns of each organization as positions."""
    return [
        [list(dataset.X.columns).index(column) for column in part] for part in split.organizations.values()
    ]


def pooled_std(X: NDArray[np.float64], batch: int = 512) -> NDArray[np.float64]:
    """As the authors' code has it: sample variances of batches of 512 rows,
    pooled with weights n, not n - 1.
    """
    parts = [X[i : i + batch] for i in range(0, len(X), batch)]
    within = sum(len(part) * part.var(axis=0, ddof=1) for part in parts)
    between = sum(len(part) * (part.mean(axis=0) - X.mean(axis=0)) ** 2 for part in parts)
    return np.asarray(np.sqrt((within + between) / len(X)))


class TestPerSeed:
    @pytest.mark.parametrize("name", SMALL)
    def test_equals_the_authors_files(self, name: str, reference: Path, data_dir: Path) -> None:
        dataset = load(name, data_dir)
        cases = files(reference / "splits", name)
        assert len(cases) == (6 if name == "Iris" else 8)
        for organizations, seed in cases:
            ours = per_seed(dataset, organizations, seed)
            with np.load(reference / "splits" / f"{name}_M{organizations}_seed{seed}.npz") as theirs:
                for part, X, y in (("train", ours.X_train, ours.y_train), ("test", ours.X_test, ours.y_test)):
                    raw = theirs[f"X_{part}"]
                    np.testing.assert_allclose(dataset.X.loc[X.index], raw, rtol=1e-6, atol=1e-6)
                    np.testing.assert_allclose(y, theirs[f"y_{part}"].ravel(), rtol=1e-6)
                    scores = (raw - theirs["stats_mean"]) / theirs["stats_std"]
                    # float32 in their statistics; QSAR has two batches, whose variances they pool
                    np.testing.assert_allclose(X, scores, rtol=1e-3 if name == "QSAR" else 2e-5, atol=1e-5)
                assert positions(ours, dataset) == [
                    theirs[f"feature_split_{m}"].tolist() for m in range(organizations)
                ]
                std = pooled_std(dataset.X.loc[ours.X_train.index].to_numpy(np.float64))
                np.testing.assert_allclose(std, theirs["stats_std"], rtol=2e-6)

    def test_rows(self) -> None:
        train, test = draw_rows(506, 3)
        assert (len(train), len(test)) == (404, 102)  # rounded down
        order = np.random.RandomState(3).permutation(506)
        np.testing.assert_array_equal(np.concatenate([train, test]), order)
        assert len(draw_rows(581_012, 0)[0]) == 464_809

    def test_scores_are_of_the_training_rows_only(self) -> None:
        dataset = toy()
        split = per_seed(dataset, 2, 0)
        np.testing.assert_allclose(split.X_train.mean(), 0, atol=1e-12)
        np.testing.assert_allclose(split.X_train.std(ddof=1), 1)
        changed = dataset.X.copy()
        changed.loc[split.X_test.index] += 1000
        again = per_seed(replace(dataset, X=changed), 2, 0)
        pd.testing.assert_frame_equal(again.X_train, split.X_train)
        raw = dataset.X.loc[split.X_train.index]
        expected = (dataset.X.loc[split.X_test.index] - raw.mean()) / raw.std(ddof=1)
        pd.testing.assert_frame_equal(split.X_test, expected)


class TestPaper:
    @pytest.mark.parametrize("name", SMALL)
    def test_rows_of_seed_0_and_columns_by_seed(self, name: str, reference: Path, data_dir: Path) -> None:
        dataset = load(name, data_dir)
        train, test = draw_rows(len(dataset.y), 0)
        cases = files(reference / "splits_paper", name)
        assert len(cases) == (12 if name == "Iris" else 16)
        for organizations, seed in cases:
            split = paper(reference, name, organizations, seed)
            np.testing.assert_allclose(split.y_train, dataset.y[train], rtol=1e-6)
            np.testing.assert_allclose(split.y_test, dataset.y[test], rtol=1e-6)
            columns = [f"x{j}" for j in range(dataset.X.shape[1])]
            assert split.organizations == random_partition(columns, organizations, seed)
            assert list(split.X_train.columns) == columns
            assert split.classes == dataset.classes
            assert split.y_train.dtype == dataset.y.dtype
            ours = per_seed(dataset, organizations, 0)
            np.testing.assert_allclose(split.X_test, ours.X_test, rtol=1e-3, atol=1e-5)
            assert split.protocol == "paper"


def large(*, official: bool) -> Dataset:
    """Mixed types, as Adult has them."""
    dataset = toy(20, 3)
    X = dataset.X.assign(city=["Bern", np.nan, "Basel", "Chur"] * 5)
    parts = {"bank": ["city", "c1"], "shop": ["c0", "c2"]}
    return replace(dataset, X=X, partition=parts, test=np.array([3, 4, 19]) if official else None)


class TestByName:
    def test_official_rows(self) -> None:
        dataset = large(official=True)
        split = split_by_name(dataset, 7)
        assert list(split.X_test.index) == [3, 4, 19]
        assert list(split.X_train.index) == [i for i in range(20) if i not in (3, 4, 19)]
        assert split.protocol == OFFICIAL
        assert OFFICIAL not in PROTOCOLS
        assert list(split_by_name(dataset, 8).X_test.index) == [3, 4, 19]

    @pytest.mark.parametrize(
        ("name", "rows", "label_holder", "protocol"),
        [
            ("Adult", 32_561, "census office", OFFICIAL),
            ("CreditDefault", 24_000, "bank", "per seed"),
            ("Covertype", 464_809, "land office", "per seed"),
        ],
    )
    def test_large_sets(self, name: str, rows: int, label_holder: str, protocol: str, data_dir: Path) -> None:
        dataset = load(name, data_dir)
        split = split_by_name(dataset, 0)
        assert len(split.X_train) == len(split.y_train) == rows
        assert len(split.X_test) == len(split.y_test) == len(dataset.y) - rows
        assert next(iter(split.organizations)) == label_holder
        assert split.protocol == protocol
        assert list(split.X_train.dtypes) == list(dataset.X.dtypes)


# --- who gets which columns


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
