"""Data sets are what they are said to be, and a missing or wrong file says what to do."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gal.errors import InvalidInputError, MissingDataError
from gal_bench.data import datasets
from gal_bench.data.datasets import DATASETS, SOURCES, Dataset, load

SHAPES = {
    "Diabetes": (442, 10, 0),
    "BostonHousing": (506, 13, 0),
    "Blob": (100, 10, 10),
    "Iris": (150, 4, 3),
    "Wine": (178, 13, 3),
    "BreastCancer": (569, 30, 2),
    "QSAR": (1055, 41, 2),
    "Adult": (48_842, 14, 2),
    "CreditDefault": (30_000, 23, 2),
    "Covertype": (581_012, 54, 7),
}
"""Rows, columns, classes."""


@pytest.fixture
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAL_DATA", raising=False)


def put(folder: Path, file: str, content: bytes) -> Path:
    """A file of a made-up data folder."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def check_shape(found: Dataset) -> None:
    rows, columns, classes = SHAPES[found.name]
    assert found.X.shape == (rows, columns)
    assert found.y.shape == (rows,)
    assert found.X.index.equals(pd.RangeIndex(rows))
    assert all(isinstance(column, str) for column in found.X.columns)
    assert found.X.columns.is_unique
    assert found.classes == (classes > 0)
    assert found.y.dtype == (np.int64 if classes else np.float64)
    if classes:
        np.testing.assert_array_equal(np.unique(found.y), np.arange(classes))


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in SOURCES])
def test_what_scikit_learn_ships_needs_no_folder(name: str, no_folder: None) -> None:
    check_shape(load(name))


@pytest.mark.parametrize("name", list(SOURCES))
def test_what_is_in_the_folder(name: str, data_dir: Path) -> None:
    check_shape(load(name, data_dir))


class TestMissing:
    @pytest.mark.parametrize("name", list(SOURCES))
    def test_without_a_folder_it_says_what_to_put_where(self, name: str, no_folder: None) -> None:
        with pytest.raises(MissingDataError) as caught:
            load(name)
        message = str(caught.value)
        assert all(
            part in message for part in (name, "--data-dir", "GAL_DATA", "https://", *SOURCES[name].files)
        )
        assert "CC BY 4.0" in message or "free to use" in message


class TestWrong:
    @pytest.mark.parametrize(
        ("name", "file"),
        [
            ("BostonHousing", "boston/boston_house_prices.csv"),
            ("Adult", "adult/adult.data"),
            ("Covertype", "covtype/covtype.data"),
        ],
    )
    def test_checksum(self, name: str, file: str, tmp_path: Path) -> None:
        put(tmp_path, file, b"1,2,3\n")
        came = hashlib.sha256(b"1,2,3\n").hexdigest()
        expected = next(iter(SOURCES[name].files.values()))
        with pytest.raises(
            InvalidInputError, match=rf"expected sha256 {expected}, got sha256 {came} \(6 bytes\)"
        ):
            load(name, tmp_path)

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "got 0 rows"),
            (b"\xff\xfe\xff;1\n", "a table of numbers"),
            (b"1;2;RB\n3;4;NRB\n", "a table of numbers"),
            ((b"1;" * 41 + b"RB\n") * 1055, "expected numbers with sha256 .*, got 1055 rows with sha256"),
        ],
    )
    def test_qsar(self, content: bytes, said: str, tmp_path: Path) -> None:
        put(tmp_path, "biodeg/biodeg.csv", content)
        with pytest.raises(InvalidInputError, match=said):
            load("QSAR", tmp_path)


class TestAdult:
    def test_counts(self, data_dir: Path) -> None:
        found = load("Adult", data_dir)
        assert found.test is not None
        np.testing.assert_array_equal(found.test, np.arange(32_561, 48_842))
        assert found.y[:32_561].sum() == 7841
        assert found.y[found.test].sum() == 3846
        assert found.X["occupation"].isna().sum() == 2809
        assert [kind for kind in found.X.dtypes if pd.api.types.is_numeric_dtype(kind)] == [np.int64] * 6


class TestCovertype:
    LINES = ((",".join(map(str, range(54))) + ",7\n") + (",".join(["0"] * 54) + ",1\n")).encode()

    def test_counts_and_types(self, data_dir: Path) -> None:
        found = load("Covertype", data_dir)
        assert np.bincount(found.y).tolist() == [211_840, 283_301, 35_754, 2747, 9493, 17_367, 20_510]
        assert set(found.X.dtypes) == {np.dtype(np.float32)}
        assert found.X["Elevation"].between(1859, 3858).all()
        areas = found.X.filter(like="Wilderness")
        assert (areas.sum(axis=1) == 1).all()


PARTITIONS = {
    "Adult": (datasets.ADULT_ORGANIZATIONS, datasets.ADULT_COLUMNS),
    "CreditDefault": (datasets.CREDIT_ORGANIZATIONS, datasets.CREDIT_COLUMNS),
    "Covertype": (datasets.COVERTYPE_ORGANIZATIONS, datasets.COVERTYPE_COLUMNS),
}


@pytest.mark.parametrize("name", list(PARTITIONS))
def test_every_column_has_one_holder(name: str) -> None:
    parts, columns = PARTITIONS[name]
    held = [column for part in parts.values() for column in part]
    assert sorted(held) == sorted(columns)
    assert len(parts) == 4
