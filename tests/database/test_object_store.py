"""Parquet files in a real S3 server: only what is asked for travels, and what is wrong is said.

``make test-database`` runs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from gal.alignment import RowIds
from gal.cli.app import app
from gal.errors import InvalidInputError
from gal.node.config.configuration import NodeConfiguration, read_configuration
from gal.node.source import streamed_reading
from gal.node.source.data import read_rows, read_source, source_stamp, view_of_table
from object_store import KEYS, ObjectStore, packages
from ports import free_port

if not os.environ.get("GAL_DATABASE"):
    pytest.skip("databases are started by make test-database only", allow_module_level=True)
if packages() is None:
    pytest.skip("GAL_OBJECT_STORE names no folder with moto", allow_module_level=True)

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.database
N = 1000


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with ObjectStore(free_port()) as made:
        system = made.system()
        system.create_dir("lake")
        for year in (2001, 2002):
            ids = np.arange(N) + N * (year - 2001)
            rows = pa.table({"id": ids, "x": ids / 2, "wide": ["a" * 100] * N})
            pq.write_table(rows, f"lake/rows/year={year}/part.parquet", filesystem=system, row_group_size=100)
        yield made


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def configured(home: Path, store: ObjectStore, source: str = "s3://lake/rows") -> NodeConfiguration:
    (home / "node.toml").write_text(
        f'name = "lab"\n[data]\nsource = "{source}"\nendpoint = "{store.endpoint}"\nrow_id = "id"\n'
        'features = ["x", "year"]\n'
    )
    return read_configuration(home)


def test_rows_of_a_bucket(store: ObjectStore, tmp_path: Path) -> None:
    configuration = configured(tmp_path, store)
    table = read_source(configuration)
    assert (len(table), table.features) == (2 * N, ("x", "year"))
    found = read_rows(configuration, RowIds("integer", np.array([1500, 7, 99999])))
    assert sorted(found.ids.values.tolist()) == [7, 1500]
    places = [found.ids.values.tolist().index(one) for one in (1500, 7)]
    np.testing.assert_array_equal(view_of_table(found, np.array(places)), [[750.0, 2002.0], [3.5, 2001.0]])


def test_a_new_file_is_noticed(store: ObjectStore, tmp_path: Path) -> None:
    configuration = configured(tmp_path, store, "s3://lake/growing")
    rows = pa.table({"id": [1], "x": [1.0], "year": [2000]})
    pq.write_table(rows, "lake/growing/a.parquet", filesystem=store.system())
    before = source_stamp(configuration)
    assert source_stamp(configuration) == before
    pq.write_table(rows, "lake/growing/b.parquet", filesystem=store.system())
    assert source_stamp(configuration) != before


def init(home: Path, *options: str) -> Result:
    """``gal init`` with rows of a bucket."""
    return CliRunner().invoke(
        app, ["init", "lab", "--home", str(home), "--data", "s3://lake/rows", "--row-id", "id", *options]
    )


def test_gal_init_takes_a_store_other_than_amazons(store: ObjectStore, tmp_path: Path) -> None:
    home = tmp_path / "lab"
    made = init(home, "--endpoint", f"{store.endpoint}/", "--region", "eu-central-1")
    assert made.exit_code == 0, made.output
    configuration = read_configuration(home)
    data = configuration.data
    assert data is not None
    assert (data.endpoint, data.region) == (f"{store.endpoint}/", "eu-central-1")
    assert len(read_source(configuration)) == 2 * N


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("s3://puddle/rows", "cannot be read: .*bucket does not exist"),
        ("s3://lake/nothing", "there is no bucket or folder 's3://lake/nothing'"),
    ],
)
def test_what_is_wrong_is_said(source: str, said: str, store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read_source(configured(tmp_path, store, source))


def test_a_store_that_is_gone_is_said_to_be(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_reading, "WAITS", ())
    configured(tmp_path, store)
    text = (tmp_path / "node.toml").read_text().replace(store.endpoint, f"http://127.0.0.1:{free_port()}")
    (tmp_path / "node.toml").write_text(text)
    with pytest.raises(InvalidInputError, match="cannot be reached") as error:
        read_source(read_configuration(tmp_path))
    assert "Amazon" not in str(error.value)  # another store is named already
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in str(error.value)
