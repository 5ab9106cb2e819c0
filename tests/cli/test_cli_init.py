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
        assert ("A store other than Amazon's is named by --endpoint" in str(error)) == asks
        assert ("Amazon" in str(error)) == asks
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize(
    ("source", "more"),
    [
        ("s3://lake/rows", ("--endpoint", "http://127.0.0.1:1")),
        ("s3://lake/rows", ("--endpoint", "http://127.0.0.1:1", "--home", "elsewhere")),
        ("empty", ()),
    ],
)
def test_what_cannot_be_found_names_the_option_and_the_organization(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, more: tuple[str, ...]
) -> None:
    """There is no node.toml yet, and the folder may be called otherwise."""

    def fail(lake: Lake) -> None:
        raise OSError("curlCode: 7, Couldn't connect to server")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GAL_HOME", raising=False)
    (tmp_path / "empty").mkdir()
    if source.startswith("s3"):
        monkeypatch.setattr(streamed_reading, "WAITS", ())
        monkeypatch.setattr(Lake, "_system", fail)
    error = CliRunner().invoke(app, ["init", "lab", "--data", source, "--row-id", "id", *more]).exception
    assert isinstance(error, InvalidInputError)
    assert "organization 'lab'" in str(error)
    assert "correct --data" in str(error)
    assert ("--endpoint" in str(error)) == ("--endpoint" in more)
    assert "node.toml" not in str(error)


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
