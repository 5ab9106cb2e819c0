"""Views in parts: rows in any order, files that are what was written, and nothing of the data in memory."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gal.errors import InvalidInputError, LocalModelError
from gal.models import PartedView
from gal.models.parted import PartColumn, in_parts, open_parts, write_parts

pa = pytest.importorskip("pyarrow", reason="needs the extra 'node', which is not installed")

X = np.arange(46, dtype=np.float32).reshape(23, 2)
COLUMNS = [PartColumn("a"), PartColumn("b")]


def on_disk(folder: Path, sizes: tuple[int, ...] = (10, 0, 9, 4)) -> PartedView:
    edges = np.cumsum((0, *sizes))
    tables = [
        pa.table({"a": X[start:end, 0].astype(float), "b": X[start:end, 1].astype(float)})
        for start, end in pairwise(edges)
    ]
    write_parts(folder / "view", COLUMNS, tables)
    return open_parts(folder / "view")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> PartedView:
    return on_disk(tmp_path_factory.mktemp("parts"))


ROWS = st.lists(st.integers(0, 22), max_size=40).map(lambda rows: np.array(rows, dtype=np.intp))


@settings(max_examples=40)
@given(first=ROWS, data=st.data())
def test_rows_are_those_of_an_array_in_any_order(stored: PartedView, first: Any, data: st.DataObject) -> None:
    again = data.draw(
        st.lists(st.integers(-len(first), len(first) - 1), max_size=9) if len(first) else st.just([])
    )
    for view in (stored, in_parts(X, COLUMNS, part_rows=6)):
        np.testing.assert_array_equal(view[first].read(), X[first])
        second = np.array(again, dtype=np.intp)
        np.testing.assert_array_equal(view[first][second].read(), X[first][second])
        assert view[first][second].shape == X[first][second].shape


def as_list(positions: Any) -> list[int]:
    return [int(one) for one in positions]


def test_parts_say_where_their_rows_stand(stored: PartedView) -> None:
    view = stored[[22, 0, 11, 3]]
    found = {one.number: (as_list(one.inside), as_list(one.places)) for one in view.parts()}
    assert found == {0: ([0, 3], [1, 3]), 2: ([1], [2]), 3: ([3], [0])}
    np.testing.assert_array_equal(view.whole.read(), X)


def test_a_view_holds_paths_and_counts_only(tmp_path: Path) -> None:
    view = on_disk(tmp_path)
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    assert view.shape == (23, 2)
    assert view[[5, 1]].shape == (2, 2)
    with pytest.raises(FileNotFoundError):
        view[[5, 1]].read()


def test_missing_and_infinite_values_and_text(tmp_path: Path) -> None:
    columns = [PartColumn("n"), PartColumn("t", ("blue", "red"))]
    table = pa.table({"n": [1.5, None, np.inf, 1e300], "t": pa.array([1, 0, None, 1], pa.int32())})
    write_parts(tmp_path / "view", columns, [table])
    view = open_parts(tmp_path / "view")
    np.testing.assert_array_equal(view.read(), [[1.5, 1], [np.nan, 0], [np.nan, np.nan], [np.nan, 1]])
    assert view.features == tuple(columns)


def test_a_part_that_was_altered_is_refused(tmp_path: Path) -> None:
    view = on_disk(tmp_path)
    (tmp_path / "view.000002.parquet").write_bytes((tmp_path / "view.000000.parquet").read_bytes())
    np.testing.assert_array_equal(view[[1]].read(), X[[1]])
    with pytest.raises(LocalModelError, match=r"view\.000002\.parquet.*not the file that was written"):
        view[[12]].read()


def test_parts_of_before_are_gone_when_it_is_written_again(tmp_path: Path) -> None:
    on_disk(tmp_path)
    on_disk(tmp_path, (23,))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["view", "view.000000.parquet"]


@pytest.mark.parametrize(
    "content", [b"", b'{"parted view": 2}', b'{"parted view": 1, "columns": [3]}', b"[]"]
)
def test_invalid_manifests_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "view").write_bytes(content)
    with pytest.raises(InvalidInputError, match="view"):
        open_parts(tmp_path / "view")
