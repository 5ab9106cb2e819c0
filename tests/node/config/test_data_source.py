"""The section [data]: which kinds of sources there are, and that no secret can stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from gal.errors import ConfigurationError
from gal.node.config.configuration import read_configuration
from gal.node.config.data_source import DataSource

SECRET = "Tell-n0body!"


def read(home: Path, *lines: str) -> DataSource:
    (home / "node.toml").write_text("\n".join(['name = "lab"', "[data]", 'row_id = "id"', *lines]))
    found = read_configuration(home).data
    assert found is not None
    return found


def test_kinds_of_sources(tmp_path: Path) -> None:
    (tmp_path / "spark.parquet").mkdir()
    kinds = {
        'source = "rows.csv"': (False, False),
        'source = "rows.parquet"': (False, False),
        'source = "spark.parquet"': (False, True),
        'source = "lake"': (False, True),
        'source = "s3://bucket/lake"': (False, True),
        'source = "postgresql://me@host/db"\ntable = "t"': (True, False),
    }
    for text, (database, lake) in kinds.items():
        found = read(tmp_path, text)
        assert (found.is_database, found.is_lake) == (database, lake), text
        assert found.is_streamed == (database or lake)


@pytest.mark.parametrize(
    "source",
    [
        f"postgresql://me:{SECRET}@host/db",
        f"postgresql://host/db?password={SECRET}",
        f"postgresql://host/db?sslpassword={SECRET}",
        f"s3://key:{SECRET}@bucket/rows",
        f"snowflake://me@account/db?token={SECRET}",
        f"postgresql://me@host/db#password={SECRET}",
    ],
)
def test_a_password_is_refused_and_not_repeated(source: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no place for secrets") as error:
        read(tmp_path, f'source = "{source}"', 'table = "t"')
    assert "GAL_DATA_PASSWORD" in str(error.value)
    assert SECRET not in f"{error.value!r}{error.value.__cause__}"


@pytest.mark.parametrize(
    "lines",
    [
        [f'source = "postgresql://me:{SECRET}@ho\u2100st/db"', 'table = "t"'],
        [f'source = "postgresql://me:{SECRET}@[host/db"', 'table = "t"'],
        ['source = "s3://bucket/rows"', f'endpoint = "https://me:{SECRET}@store:9000"'],
    ],
    ids=["not ASCII", "a bracket", "in an endpoint"],
)
def test_nor_is_one_in_what_cannot_be_read_or_in_options(lines: list[str], tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"no place for secrets|cannot be parsed|address of a store"
    ) as error:
        read(tmp_path, *lines)
    assert SECRET not in f"{error.value!r}{error.value.__cause__!r}{error.value.__context__!r}"


NO_ADDRESSES = (
    *("KEY:word@store:9", "http://KEY@store:9", "http://s:9?word", "s:9#word"),
    *("http:// ", "http://s:abc", "s:0", "http://a b:9", "ftp://store", "http://store/b", "https://"),
)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['source = "postgresql://me@host/db"'], "needs either table"),
        (['source = "postgresql://me@host/db"', 'table = "t"', 'sql = "select 1"'], "needs either table"),
        (['source = "mysql://me@host/db"', 'table = "t"'], "no kind of source is called mysql://"),
        (['source = "rows.csv"', 'table = "t"'], "table is for databases"),
        (['source = "rows.csv"', 'endpoint = "http://x"'], "endpoint is for object stores"),
        *(
            (
                ['source = "s3://b/rows"', f'endpoint = "{one}"'],
                "endpoint: expected the address of a store alone",
            )
            for one in NO_ADDRESSES
        ),
        (['source = "rows.ods"'], "as .xlsx"),
    ],
)
def test_what_is_wrong_is_said(lines: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read(tmp_path, *lines)


@pytest.mark.parametrize(
    "endpoint", ["http://store", "HTTPS://store:9000/", "127.0.0.1:9000", "http://[::1]:9"]
)
def test_an_endpoint_is_a_host(endpoint: str, tmp_path: Path) -> None:
    data = read(tmp_path, 'source = "s3://bucket/rows"', f'endpoint = "{endpoint}"')
    assert data.endpoint == endpoint
