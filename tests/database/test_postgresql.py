"""Rows in a real PostgreSQL: learned from, predicted by id, restarted under a node, its password secret.

``make test-database`` runs it (Debian: ``apt-get install postgresql``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from gal.alignment import Index, RowIds
from gal.cli.app import app
from gal.errors import GALError, InvalidInputError
from gal.node.admin.doctor import examine
from gal.node.config.configuration import NodeConfiguration, read_configuration
from gal.node.source import streamed_reading
from gal.node.source.data import (
    Table,
    data_of,
    read_rows,
    read_source,
    source_ids,
    source_stamp,
    view_of_table,
)
from patience import patient
from ports import free_port
from postgresql import PASSWORD, USER, PostgreSQL, programs

if not os.environ.get("GAL_DATABASE"):
    pytest.skip("databases are started by make test-database only", allow_module_level=True)
if programs() is None:
    pytest.skip("there is no PostgreSQL here: apt-get install postgresql", allow_module_level=True)

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.database
N = 3000


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    with PostgreSQL(free_port()) as made:
        rng = np.random.default_rng(0)
        towns = np.array(["Ulm", "Bonn", None], dtype=object)[np.arange(N) % 3]
        rows = {
            "id": rng.permutation(N),
            "age": rng.normal(size=N),
            "town": towns,
            "ok": np.arange(N) % 2 == 0,
        }
        made.put("patients", pa.table(rows))
        made.do(
            "ALTER TABLE patients ADD COLUMN paid numeric(12, 2)",
            "UPDATE patients SET paid = id * 1.25",
            "CREATE TYPE mood AS ENUM ('well', 'ill')",
            "ALTER TABLE patients ADD COLUMN mood mood DEFAULT 'ill'",
            "ALTER TABLE patients ADD COLUMN bill money DEFAULT 12.34",
        )
        yield made


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAL_DATA_PASSWORD", PASSWORD)
    monkeypatch.setattr(streamed_reading, "WAITS", tuple(patient(one) for one in streamed_reading.WAITS))


def configured(home: Path, server: PostgreSQL, *lines: str) -> NodeConfiguration:
    lines = lines or ('table = "patients"',)
    rest = "" if any("row_id" in one for one in lines) else 'row_id = "id"'
    (home / "node.toml").write_text(
        "\n".join(
            ['name = "lab"', "[data]", f'source = "{server.uri}"', rest, *lines, "[model]", 'use = "linear"']
        )
    )
    return read_configuration(home)


def integers(*values: int) -> RowIds:
    return RowIds("integer", np.array(values, dtype=np.int64))


def scans(server: PostgreSQL) -> tuple[int, int]:
    """How often the table was read from its beginning, and how many rows that gave."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.fetchall()
        cursor.execute("SELECT seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE relname = 'patients'")
        return tuple(cursor.fetchall()[0])


def test_every_type_is_a_number_or_text(server: PostgreSQL, tmp_path: Path) -> None:
    table = read_source(configured(tmp_path, server))
    numbers = dict.fromkeys(("age", "ok", "paid", "bill"), "number")
    assert table.kinds == numbers | {"town": "text", "mood": "text"}
    assert len(table) == N
    paid = table.columns["paid"].to_numpy()
    np.testing.assert_array_equal(paid, table.ids.values * 1.25)  # NUMERIC is a number, not a category
    assert set(table.columns["bill"].to_pylist()) == {12.34}
    assert table.columns["town"].null_count == N // 3


def test_a_numeric_column_names_rows(server: PostgreSQL, tmp_path: Path) -> None:
    sql = 'sql = "SELECT CAST(id AS numeric) AS id, age FROM patients"'
    configuration = configured(tmp_path, server, sql)
    assert read_source(configuration).ids.kind == "integer"
    assert read_rows(configuration, integers(5, 9999)).ids.values.tolist() == [5]


@pytest.mark.parametrize(
    ("id_column", "wanted", "found"),
    [
        ("CAST(id AS text)", ["5", "no'; DROP TABLE patients; --"], ["5"]),
        ("CAST(lpad(CAST(id AS text), 32, '0') AS uuid)", [f"{'0' * 8}-0000-0000-0000-{5:012}", "x"], None),
        ("id", ["5", "05", "x"], ["5"]),
    ],
    ids=["text", "uuid", "whole numbers as text"],
)
def test_ids_of_other_types_are_found(
    id_column: str, wanted: list[str], found: list[str] | None, server: PostgreSQL, tmp_path: Path
) -> None:
    more = ('row_id_type = "text"', 'row_id = "key"')
    sql = f'sql = "SELECT {id_column} AS key, age FROM patients"'
    table = read_rows(
        configured(tmp_path, server, sql, *more), RowIds("text", np.array(wanted, dtype=object))
    )
    assert table.ids.values.tolist() == (found or wanted[:1])


def test_one_row_to_predict_never_scans_the_table(server: PostgreSQL, tmp_path: Path) -> None:
    configuration = configured(tmp_path, server)
    server.do("VACUUM ANALYZE patients")
    time.sleep(0.5)  # statistics come a little later
    before = scans(server)
    table = read_rows(configuration, integers(7, 123456))
    assert table.ids.values.tolist() == [7]
    time.sleep(0.5)
    assert scans(server)[1] == before[1]
    source_ids(configuration)
    deadline = time.monotonic() + patient(20)
    while scans(server)[1] < before[1] + N:  # and this is what a scan looks like
        assert time.monotonic() < deadline
        time.sleep(0.1)


def joined(configuration: NodeConfiguration, *values: int) -> tuple[Table, NDArray[np.intp]]:
    table = read_rows(configuration, integers(*values))
    return table, Index(table.ids.values).positions(np.array(values, dtype=np.int64))


def test_a_learning_has_the_rows_in_the_order_asked_for(server: PostgreSQL, tmp_path: Path) -> None:
    configuration = configured(tmp_path, server, 'table = "patients"', 'features = ["paid", "age"]')
    table, positions = joined(configuration, *range(100, 0, -1), 10_000)
    assert (positions >= 0).tolist() == [True] * 100 + [False]
    view = view_of_table(table, positions[:-1])
    np.testing.assert_array_equal(view[:, 0], np.arange(100, 0, -1) * 1.25)
    ages = dict(server.ask("SELECT id, age FROM patients"))
    np.testing.assert_array_equal(view[:, 1], [ages[one] for one in range(100, 0, -1)])


def test_a_reading_sees_one_state(server: PostgreSQL, tmp_path: Path) -> None:
    """What is written between the first and the last batch of a reading is in the next reading."""
    configuration = configured(tmp_path, server, 'table = "patients"', 'features = ["age"]')
    reader = streamed_reading.StreamedReader("lab", data_of(configuration), tmp_path, with_label=False)
    before = source_stamp(configuration)
    with reader._supply.opened() as opened:
        assert opened.batches(["id"]).read_all().num_rows == N
        server.do("INSERT INTO patients (id) VALUES (-1)")
        assert opened.batches(["id"]).read_all().num_rows == N
    assert len(source_ids(configuration)) == N + 1
    assert source_stamp(configuration) != before
    server.do("DELETE FROM patients WHERE id = -1")


def test_nothing_is_written(server: PostgreSQL, tmp_path: Path) -> None:
    server.do(
        "CREATE TABLE touched (id int)",
        "CREATE FUNCTION touch() RETURNS int LANGUAGE sql AS 'INSERT INTO touched VALUES (1); SELECT 1'",
    )
    with pytest.raises(InvalidInputError, match=r"A node only reads: .*read-only transaction"):
        read_source(configured(tmp_path, server, 'sql = "SELECT touch() AS id, 1 AS x"'))
    assert server.ask("SELECT count(*) FROM touched") == [(0,)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("/hospital", "/hotel"), 'cannot be read: .*database "hotel" does not exist'),
        ((f"//{USER}@", "//unknown@"), "refuses this node: .*Correct the user, and give the password"),
        (('table = "patients"', 'table = "guests"'), "There is no such table: .*guests"),
        (('table = "patients"', 'sql = "SELEC 1"'), "syntax error"),
        (
            ('table = "patients"', 'sql = "SELECT pg_sleep(9) AS id, 1 AS x"\ntimeout = 0.5'),
            "longer than 0.5 seconds",
        ),
        (('row_id = "id"', 'row_id = "idd"'), "there is no column 'idd'. Did you mean 'id'"),
    ],
    ids=["database", "user", "table", "syntax", "time", "column"],
)
def test_what_is_wrong_is_said(
    change: tuple[str, str], said: str, server: PostgreSQL, tmp_path: Path
) -> None:
    configured(tmp_path, server)
    text = (tmp_path / "node.toml").read_text()
    (tmp_path / "node.toml").write_text(text.replace(*change))
    with pytest.raises(GALError, match=f"(?s)organization 'lab'.*{said}") as error:
        read_source(read_configuration(tmp_path))
    assert PASSWORD not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("how", ["file", "pgpass", "none", "wrong"])
def test_where_the_password_comes_from(
    how: str, server: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GAL_DATA_PASSWORD")
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    more = []
    if how in {"file", "wrong"}:
        (tmp_path / "secret").write_text((PASSWORD if how == "file" else "Wr0ng!") + "\n")
        more = ['password_file = "secret"']
    if how == "pgpass":
        (tmp_path / "pgpass").write_text(f"127.0.0.1:{server.port}:*:{USER}:{PASSWORD}\n")
        (tmp_path / "pgpass").chmod(0o600)
    configuration = configured(tmp_path, server, 'table = "patients"', *more)
    if how in {"file", "pgpass"}:
        assert len(source_ids(configuration)) == N
        return
    with pytest.raises(InvalidInputError, match=r"refuses this node: .*password_file") as error:
        source_ids(configuration)
    assert "Wr0ng!" not in str(error.value)


def test_a_database_that_is_restarted_is_found_again(server: PostgreSQL, tmp_path: Path) -> None:
    configuration = configured(tmp_path, server, 'table = "patients"', 'features = ["age"]')
    assert len(read_rows(configuration, integers(7))) == 1
    server.stop()
    again = threading.Timer(1.0, server.start)
    again.start()
    try:
        assert len(read_rows(configuration, integers(7))) == 1
    finally:
        again.join()


def test_a_database_that_is_gone_is_said_to_be(
    server: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_reading, "WAITS", (0.01,))
    configuration = configured(tmp_path, server)
    server.stop()
    try:
        with pytest.raises(
            InvalidInputError, match=r"cannot be reached \(tried 2 times\): .*refused.*Start it"
        ):
            read_rows(configuration, integers(7))
    finally:
        server.start()


def test_a_database_killed_in_the_middle_of_a_reading(
    server: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows came when the database died; after it is back all rows are there, each once."""
    sql = "sql = \"SELECT g AS id, g * 0.5 AS x, repeat('a', 200) AS t FROM generate_series(1, 400000) g\""
    configuration = configured(tmp_path, server, sql)
    killed: list[int] = []
    counted = streamed_reading.StreamedReader._arriving

    def kill(self: Any, reader: Any) -> Any:
        def batches() -> Any:
            for number, batch in enumerate(counted(self, reader)):
                if number == 1 and not killed:
                    killed.append(number * batch.num_rows)
                    server.stop()
                    server.start()
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    monkeypatch.setattr(streamed_reading.StreamedReader, "_arriving", kill)
    table, positions = joined(configuration, *range(1, 400_001))
    assert 0 < killed[0] < 400_000
    assert (positions >= 0).all()
    np.testing.assert_array_equal(view_of_table(table, positions)["x"], np.arange(1, 400_001) * 0.5)


def test_the_doctor_looks_at_it(server: PostgreSQL, tmp_path: Path) -> None:
    configured(tmp_path, server)
    found = {one.what: one for one in examine(tmp_path)}
    assert found["data"].ok is True
    assert found["data"].message == f"the first {N} rows with integer ids, 6 features (2 of text)"
    (tmp_path / "node.toml").write_text((tmp_path / "node.toml").read_text().replace("patients", "guests"))
    found = {one.what: one for one in examine(tmp_path)}
    assert found["data"].ok is False
    assert "There is no such table" in found["data"].message


def test_a_new_node_of_a_database(
    server: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["init", "lab", "--data", server.uri, "--table", "patients", "--row-id"]
    done = CliRunner().invoke(app, [*words, "id"])
    assert done.exit_code == 0, done.output
    assert read_configuration(tmp_path / "lab").data.address == server.uri  # type: ignore[union-attr]
    bad = CliRunner().invoke(app, ["init", "bad", *words[2:], "idd"])
    assert "has no column 'idd'" in f"{bad.output}{bad.exception}"
    assert not (tmp_path / "bad").exists()
