"""A table for ``gal simulate`` has the same columns as a node makes of the same file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gal.cli.tables import read_frame
from gal.evaluate.profile import in_numbers
from gal.models.reading.column_reading import column_readings
from gal.node.config.configuration import NodeConfiguration, read_configuration
from gal.node.source.data import read_source, view_of_table

COLUMNS = {
    "iso": ["2020-01-02", "2021-12-31"],
    "without zeros": ["2020-1-2", "2021-12-31"],
    "day first": ["31/12/2020", "01/02/2021"],
    "month first": ["12/31/2020", "01/02/2021"],
    "either": ["01/02/2020", "03/04/2021"],
    "dots": ["31.12.2020", "01.02.2021"],
    "short years and dots": ["12.10.22", "05.01.23", "28.02.21"],
    "leap": ["2020-02-29", "2021-02-28"],
    "T": ["2020-01-02T03:04:05", "2021-12-31T00:00:00"],
    "minutes": ["2020-01-02 03:04", "2021-12-31 00:00"],
    "UTC": ["2020-01-02T03:04:05Z", "2021-12-31T00:00:00Z"],
    "zones": ["2020-01-02 03:04:05+02:00", "2021-12-31 00:00:00-05:00"],
    "time": ["03:04:05", "23:59:59"],
    "missing": ["2020-01-02", ""],
    "day first with time": ["31/12/2020 03:04:05", "01/02/2021 00:00:00"],
    "with and without time": ["2020-01-02", "2021-12-31 06:00:00"],
    "several ways": ["2020-01-02", "31/12/2020", "1.2.2021 12:00", "03-Apr-2021"],
    "months in words": ["02-Jan-2020", "31-Dec-2021"],
    "halves of a day": ["3:04 PM", "12:15 am"],
    "month first, with halves": ["01/02/2020 03:04:05 PM", "03/04/2021 12:00:00 AM"],
    "numbers": ["1.5", "2"],
    "digits only": ["20200102", "20211231"],
    "truths": ["true", "false"],
}
TEXTS = {
    "no such day": ["2020-01-02", "2020-13-45"],
    "no leap": ["2021-02-29", "2021-02-28"],
    "some": ["2020-01-02", "soon"],
    "months": ["2020-01", "2021-12"],
    "no such half": ["13:04 PM", "00:30 AM"],
    "no such month": ["02-Foo-2020", "31-Dec-2021"],
    "zones of some": ["2020-01-02 03:04:05+02:00", "31.12.2021 00:00"],
}


def simulated(path: Path) -> pd.DataFrame:
    """The table as ``gal simulate`` and ``gal leakage`` have it for models that take numbers only."""
    frame = read_frame(path)
    return in_numbers(frame, column_readings(frame))


def node_of(folder: Path, table: pd.DataFrame, separator: str = ",") -> NodeConfiguration:
    table.to_csv(folder / "rows.csv", index=False, sep=separator)
    (folder / "node.toml").write_text(
        'name = "lab"\n[data]\nsource = "rows.csv"\nrow_id = "id"\n', encoding="utf-8"
    )
    return read_configuration(folder)


@pytest.mark.parametrize("name", COLUMNS)
def test_dates_are_the_days_of_a_node(tmp_path: Path, name: str) -> None:
    """One column to a file: DuckDB takes all dates of a file to be written in one way."""
    columns = {"id": range(12), "it": (COLUMNS[name] * 6)[:12]}
    there = view_of_table(read_source(node_of(tmp_path, pd.DataFrame(columns))))
    assert isinstance(there, np.ndarray)  # numbers there
    here = simulated(tmp_path / "rows.csv")["it"].to_numpy(dtype=np.float64)
    np.testing.assert_array_equal(here, there[:, 0])
    if name == "short years and dots":
        assert here[0] == (pd.Timestamp("2022-10-12") - pd.Timestamp(0)).days


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators_are_those_of_a_node(tmp_path: Path, separator: str) -> None:
    columns = {"id": range(12), "a": ["2020-01-02", "2021-12-31"] * 6, "b": np.arange(12) / 7}
    there = view_of_table(read_source(node_of(tmp_path, pd.DataFrame(columns), separator)))
    here = simulated(tmp_path / "rows.csv").drop(columns="id").to_numpy(dtype=np.float64)
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_text_there_is_text_here(tmp_path: Path, name: str) -> None:
    columns = {"id": range(12), "it": TEXTS[name] * 6}
    assert read_source(node_of(tmp_path, pd.DataFrame(columns))).kinds == {"it": "text"}
    assert read_frame(tmp_path / "rows.csv")["it"].tolist() == TEXTS[name] * 6


def test_parquet_is_as_csv(tmp_path: Path) -> None:
    dates = pd.Series(pd.to_datetime(["2020-01-02", "", "1969-12-31 12:00"] * 4, format="mixed"))
    table = pd.DataFrame({"when": dates, "lasted": dates - dates[0]})
    table.to_parquet(tmp_path / "t.parquet")
    found = simulated(tmp_path / "t.parquet")
    assert found["when"].tolist()[:3] == pytest.approx([18263, np.nan, -0.5], nan_ok=True)
    assert found["lasted"].tolist()[:3] == pytest.approx([0, np.nan, -18263.5], nan_ok=True)
