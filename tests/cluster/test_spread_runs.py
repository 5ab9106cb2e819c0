"""Tables on a Dask cluster: the same as on the cores of one machine, to the last digit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from gal.cli.app import app
from gal.extras import require

require("dask", "these tests")

from distributed import LocalCluster  # noqa: E402

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Two workers of two threads each: runs share a process, and must not notice."""
    loopback: Any = {"host": "127.0.0.1", "protocol": "tcp", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=2, threads_per_worker=2, processes=False, **loopback) as cluster:
        yield cluster.scheduler_address


def printed(*words: str) -> str:
    done = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, list(words))
    assert done.exit_code == 0, f"{done.output}{done.exception!r}"
    return done.stdout


def test_a_table_is_the_same_on_every_backend(tmp_path: Path, scheduler: str) -> None:
    words = ("bench", "rates", "--dataset", "Iris", "--seeds", "2", "--protocol", "per seed")
    for name, where in (("one", ("--jobs", "1")), ("dask", ("--backend", "dask", "--scheduler", scheduler))):
        printed(*words, *where, "--results", str(tmp_path / name))
    found = [figures(tmp_path / name) for name in ("one", "dask")]
    assert found[0].shape == (3, found[1].shape[1])
    pd.testing.assert_frame_equal(found[0], found[1], check_exact=True)


def figures(folder: Path) -> pd.DataFrame:
    """The table without the seconds that it took."""
    [path] = folder.glob("*.csv")
    table = pd.read_csv(path)
    return table.drop(columns="seconds")
