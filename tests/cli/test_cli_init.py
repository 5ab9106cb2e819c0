"""``gal init`` of rows that lie in a store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gal.cli.app import app
from gal.errors import InvalidInputError, MissingExtraError
from gal.node.source import streamed_reading
from gal.node.source.lakes import Lake


@pytest.mark.parametrize("why", ["curlCode: 6, Couldn't resolve host", "ACCESS_DENIED", "of another kind"])
def test_a_bucket_that_amazon_does_not_have_asks_for_the_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    def fail(lake: Lake) -> None:
        raise OSError(why)

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GAL_HOME", raising=False)
    monkeypatch.setattr(streamed_reading, "WAITS", ())
    monkeypatch.setattr(Lake, "_system", fail)
    words = ("init", "lab", "--data", "s3://lake/rows", "--row-id", "id")
    for more, asks in (((), True), (("--endpoint", "http://store:9000"), False)):
        error = CliRunner().invoke(app, [*words, *more]).exception
        assert isinstance(error, InvalidInputError)
        assert ("A store other than Amazon's is named by data.endpoint" in str(error)) == asks
        assert ("Amazon" in str(error)) == asks
    assert not (tmp_path / "lab").exists()


def test_a_database_without_what_reads_them_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "adbc_driver_manager", None)
    words = ["init", "lab", "--data", "postgresql://me@host/db", "--table", "rows", "--row-id", "id"]
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, MissingExtraError)
    assert "reading PostgreSQL needs" in str(error)
    assert not (tmp_path / "lab").exists()
