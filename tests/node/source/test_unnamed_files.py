"""A large source is read into files without a name: the same rows, and nothing is left behind."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from gal.errors import AlignmentError, InvalidInputError  # noqa: E402
from gal.node.config.configuration import read_configuration  # noqa: E402
from gal.node.source import source_reading, unnamed_files  # noqa: E402
from gal.node.source.data import Table, labels_of, read_source, view_of_table  # noqa: E402
from gal.node.source.unnamed_files import on_disk, room_on_disk  # noqa: E402

N = 1000


def rows(**changed: Any) -> Any:
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(N)
    columns = {
        "id": pa.array(rng.permutation(N)),
        "x": pa.array(numbers, mask=rng.random(N) < 0.1),
        "town": pa.array(np.array(["Ulm", "Aachen", None], dtype=object)[rng.integers(0, 3, N)]),
        "n": pa.array(rng.integers(0, 9, N)),
        "label": pa.array(numbers + 1, mask=rng.random(N) < 0.2),
    }
    return pa.table(columns | changed)


def read(home: Path, table: Any, kind: str = "parquet") -> Table:
    if kind == "parquet":
        pq.write_table(table, home / "rows.parquet", row_group_size=100)
    else:
        table.to_pandas().to_csv(home / "rows.csv", index=False)
    text = f'name = "lab"\n[data]\nsource = "rows.{kind}"\nrow_id = "id"\nlabel = "label"\n'
    (home / "node.toml").write_text(text, encoding="utf-8")
    return read_source(read_configuration(home))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every table is a large one, and comes in several batches."""
    monkeypatch.setattr(source_reading, "BATCH", 128)
    return monkeypatch


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_what_is_read_is_the_same(kind: str, tmp_path: Path, small: pytest.MonkeyPatch) -> None:
    plain = read(tmp_path, rows(), kind)
    small.setattr(unnamed_files, "LARGE", 3000)
    in_files = read(tmp_path, rows(), kind)
    assert in_files.columns.equals(plain.columns)
    assert [one.null_count for one in in_files.columns.columns] == [
        one.null_count for one in plain.columns.columns
    ]
    assert in_files.ids.values.tolist() == plain.ids.values.tolist()
    there = np.flatnonzero(~plain.label.is_null().to_numpy())
    assert labels_of(in_files, there).tolist() == labels_of(plain, there).tolist()
    assert in_files.label.null_count == plain.label.null_count > 0
    assert view_of_table(in_files).equals(view_of_table(plain))
    assert not list((tmp_path / "tmp").iterdir())


def test_numbers_are_mapped_and_take_no_memory_of_arrows(tmp_path: Path, small: pytest.MonkeyPatch) -> None:
    table = rows().drop_columns(["town"])
    before = pa.total_allocated_bytes()
    plain = read(tmp_path, table)
    taken = pa.total_allocated_bytes() - before
    del plain
    small.setattr(unnamed_files, "LARGE", 3000)
    in_files = read(tmp_path, table)
    assert taken >= 8 * 3 * N
    # only which of the numbers are missing
    assert pa.total_allocated_bytes() - before < taken / 4
    assert len(in_files) == N


def test_ids_that_are_missing_or_there_twice_are_found(tmp_path: Path, small: pytest.MonkeyPatch) -> None:
    small.setattr(unnamed_files, "LARGE", 3000)
    ids = np.arange(N)
    with pytest.raises(AlignmentError, match="1 row has no id, the first is row 501"):
        read(tmp_path, rows(id=pa.array(ids, mask=ids == 500)))
    with pytest.raises(AlignmentError, match=r"1 row has an id that another row has too.*rows 8 and 901"):
        read(tmp_path, rows(id=pa.array(np.where(ids == 900, 7, ids))))


def test_a_full_disk_is_said(tmp_path: Path, small: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    small.setattr(unnamed_files, "LARGE", 3000)
    small.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(InvalidInputError, match=r"No space left on device\. Make room on the disk"):
        read(tmp_path, rows())


def test_an_array_is_the_same_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(N)
    assert on_disk(array, tmp_path) is array
    monkeypatch.setattr(unnamed_files, "LARGE", 3000)
    stored = on_disk(array, tmp_path)
    assert isinstance(stored, np.memmap)
    np.testing.assert_array_equal(stored, array, strict=True)


def test_a_part_that_takes_more_memory_than_was_thought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"id": np.arange(200_000), "x": np.random.default_rng(0).random(200_000)})
    pq.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "node.toml").write_text('name = "lab"\n[data]\nsource = "rows.parquet"\nrow_id = "id"\n')
    asked = []

    def too_few(path: Path) -> int:
        asked.append(path)
        return 1

    monkeypatch.setattr(source_reading, "_megabytes_for", too_few)
    found = read_source(read_configuration(tmp_path))
    assert found.columns.column("x").to_pylist() == table.column("x").to_pylist()
    assert asked == [tmp_path / "rows.parquet"]


def test_memory_is_allowed_for_the_largest_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = pa.table({"x": np.random.default_rng(0).random(1_000_000)})
    pq.write_table(numbers, tmp_path / "rows.parquet", row_group_size=500_000)
    assert source_reading._megabytes_for(tmp_path / "rows.parquet") == source_reading.MEGABYTES
    monkeypatch.setattr(source_reading, "MEGABYTES", 1)
    assert 8 <= source_reading._megabytes_for(tmp_path / "rows.parquet") <= 12
    pq.write_table(numbers[:0], tmp_path / "none.parquet")
    assert source_reading._megabytes_for(tmp_path / "none.parquet") == 1


def test_room_is_in_memory_or_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = np.dtype(np.int64)
    assert type(room_on_disk(N, kind, tmp_path)) is np.ndarray
    monkeypatch.setattr(unnamed_files, "LARGE", 3000)
    room = room_on_disk(N, kind, tmp_path)
    assert isinstance(room, np.memmap)
    room[:] = np.arange(N)
    assert room.sum() == N * (N - 1) // 2
    assert not list((tmp_path / "tmp").iterdir())
    monkeypatch.setattr("os.posix_fallocate", _full)
    assert type(room_on_disk(N, kind, tmp_path)) is np.ndarray


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
