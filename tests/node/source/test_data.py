"""An organization's own rows: what is read, what is refused, and views that are
the same whatever rows are taken.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gal.errors import (
    ConfigurationError,
    GALError,
    InvalidColumnsError,
    InvalidInputError,
    InvalidLabelsError,
)
from gal.node.config.configuration import NodeConfiguration, read_configuration

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("pyarrow.parquet")

from gal.cli.tables import read_frame  # noqa: E402
from gal.node.source.data import (  # noqa: E402
    Table,
    check_kinds,
    labels_of,
    read_source,
    stamp_of,
    view_of_table,
)
from gal.node.store.views import load_view, save_view  # noqa: E402

PATIENTS = """\
patient,age,smoker,town,seen,died
007,61,true,Ulm,2020-01-02,yes
008,,false,Aachen,1970-01-11,no
010,33,true,,2020-01-03,no
"""


def configured(home: Path, data: str) -> NodeConfiguration:
    (home / "node.toml").write_text(f'name = "lab"\n[data]\n{data}\n', encoding="utf-8")
    return read_configuration(home)


def read_csv(home: Path, text: str, more: str = 'row_id = "patient"') -> Table:
    (home / "rows.csv").write_text(text, encoding="utf-8")
    return read_source(configured(home, f'source = "rows.csv"\n{more}'))


def test_a_csv_file(tmp_path: Path) -> None:
    table = read_csv(tmp_path, PATIENTS, 'row_id = "patient"\nlabel = "died"')
    assert table.ids.values.tolist() == ["007", "008", "010"]
    assert table.features == ("age", "smoker", "town", "seen")
    assert table.kinds == {"age": "number", "smoker": "number", "town": "text", "seen": "number"}
    assert len(table) == 3
    assert labels_of(table, np.array([2, 0])).tolist() == ["no", "yes"]
    view = view_of_table(table)
    assert [str(kind) for kind in view.dtypes] == ["float64", "float64", "category", "float64"]
    np.testing.assert_array_equal(view["age"], [61.0, np.nan, 33.0])
    assert view["smoker"].tolist() == [1.0, 0.0, 1.0]
    assert view["seen"].tolist() == [18263.0, 10.0, 18264.0]
    assert view["town"].tolist()[:2] == ["Ulm", "Aachen"]
    assert view["town"].isna().tolist() == [False, False, True]
    assert view["town"].cat.categories.tolist() == ["Aachen", "Ulm"]


@pytest.mark.parametrize(("kind", "ids"), [("text", ["007", "008", "010"]), ("integer", [7, 8, 10])])
def test_ids_keep_their_zeros_as_text(kind: str, ids: list[Any], tmp_path: Path) -> None:
    table = read_csv(tmp_path, PATIENTS, f'row_id = "patient"\nrow_id_type = "{kind}"')
    assert table.ids.values.tolist() == ids


def test_text_that_is_no_integer_is_not_rounded(tmp_path: Path) -> None:
    with pytest.raises(InvalidColumnsError, match=r"'7.6' in row 2 is no whole number"):
        read_csv(tmp_path, "patient,x\n 7,1\n7.6,2\n", 'row_id = "patient"\nrow_id_type = "integer"')


def test_the_label_is_never_a_feature(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("patient,x,y\n1,2,3\n")
    configuration = configured(tmp_path, 'source = "rows.csv"\nrow_id = "patient"\nlabel = "y"')
    assert read_source(configuration).features == ("x",)
    unlabelled = read_source(configuration, label=False)
    assert unlabelled.features == ("x",)
    with pytest.raises(InvalidLabelsError, match="has no label"):
        labels_of(unlabelled)


LABELS: dict[str, tuple[str, list[Any], str]] = {
    "whole numbers": ("3\n4", [3, 4], "i"),
    "fractions": ("1.5\n2", [1.5, 2.0], "f"),
    "booleans": ("true\nfalse", [True, False], "b"),
    "text": ("a\nb", ["a", "b"], "O"),
    "text that DuckDB takes for truths": ("yes\nno", ["yes", "no"], "O"),
}


@pytest.mark.parametrize(("column", "labels", "kind"), LABELS.values(), ids=LABELS.keys())
def test_labels_keep_their_type(column: str, labels: list[Any], kind: str, tmp_path: Path) -> None:
    one, two = column.split("\n")
    found = labels_of(
        read_csv(tmp_path, f"patient,x,y\n1,0,{one}\n2,0,{two}\n", 'row_id = "patient"\nlabel = "y"')
    )
    assert found.tolist() == labels
    assert found.dtype.kind == kind


def test_rows_without_a_label_are_named_where_they_are_used(tmp_path: Path) -> None:
    table = read_csv(tmp_path, "patient,x,y\n5,0,1\n6,0,\n7,0,2\n", 'row_id = "patient"\nlabel = "y"')
    assert labels_of(table, np.array([2, 0])).tolist() == [2, 1]
    with pytest.raises(InvalidLabelsError, match="1 of 2 rows have no label, the first has the id 6"):
        labels_of(table, np.array([2, 1]))


def read_query(home: Path, query: str, more: str = "") -> Table:
    """The rows of a query of DuckDB, by way of a Parquet file."""
    duckdb.sql(query).write_parquet(str(home / "rows.parquet"))
    return read_source(configured(home, f'source = "rows.parquet"\nrow_id = "id"\n{more}'))


def test_every_type_that_can_be_a_feature(tmp_path: Path) -> None:
    query = (
        "select 1 id, 2::hugeint h, 1.25::decimal(5,2) d, true b, null n, 3::ubigint u, date '1970-01-03' dd,"
        " timestamp '1970-01-01 12:00' t, timestamptz '1970-01-02 00:00:00+00' z, time '06:00' o"
    )
    view = view_of_table(read_query(tmp_path, query))
    np.testing.assert_array_equal(view, [[2.0, 1.25, 1.0, np.nan, 3.0, 2.0, 0.5, 1.0, 0.25]])
    texts = "select 1 id, 'a'::enum('a', 'b') e, 'x' s, '0e27b3f0-5b7c-4f3c-8d1a-000000000001'::uuid u"
    frame = view_of_table(read_query(tmp_path, texts))
    assert frame.iloc[0].tolist() == ["a", "x", "0e27b3f0-5b7c-4f3c-8d1a-000000000001"]


@pytest.mark.parametrize("value", ["[1, 2]", "'a'::blob", "{'a': 1}", "'{}'::json"])
def test_types_that_cannot_be_a_feature(value: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidColumnsError, match=r"column 'x' has the type .* cannot be a feature. Leave"):
        read_query(tmp_path, f"select 1 id, 2 y, {value} x")
    left_out = read_query(tmp_path, f"select 1 id, 2 y, {value} x", 'features = ["y"]')
    assert view_of_table(left_out).tolist() == [[2.0]]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("7.0::double", "text", "7"),
        ("7", "text", "7"),
        ("'07'", "integer", 7),
        ("7.0::double", None, 7),
        ("7.00", None, 7),
        ("date '2020-01-02'", "text", "2020-01-02"),
        ("'0e27b3f0-5b7c-4f3c-8d1a-000000000001'::uuid", None, "0e27b3f0-5b7c-4f3c-8d1a-000000000001"),
    ],
)
def test_ids_of_other_types(value: str, kind: str | None, expected: Any, tmp_path: Path) -> None:
    typed = "" if kind is None else f'row_id_type = "{kind}"'
    assert read_query(tmp_path, f"select {value} id, 1 x", typed).ids.values.tolist() == [expected]


REFUSED: dict[str, tuple[str, str, str]] = {
    "no file": ("", 'source = "nothing.csv"\nrow_id = "id"', r"'lab': there is no file .*nothing.csv"),
    "an empty file": ("", 'source = "rows.csv"\nrow_id = "id"', "is empty"),
    "no rows": ("id,x\n", 'source = "rows.csv"\nrow_id = "id"', r"rows.csv' has no rows"),
    "no such id": (
        "patient,age\n1,2\n",
        'source = "rows.csv"\nrow_id = "patinet"',
        r"no column 'patinet'. Did you mean 'patient'\? There are 'patient', 'age'. Correct data.row_id",
    ),
    "no such feature": ("id,age\n1,2\n", 'source = "rows.csv"\nrow_id = "id"\nfeatures = '
                                         '["aeg"]', r"Did you mean 'age'\?"),
    "no such label": ("id,age\n1,2\n", 'source = "rows.csv"\nrow_id = "id"\nlabel = '
                                       '"died"', r"no column 'died'.*data.label"),
    "a column twice": ("id,x,x\n1,2,3\n", 'source = "rows.csv"\nrow_id = "id"', "column 'x' is there twice"),
    "upper and lower": ("id,x,X\n1,2,3\n", 'source = "rows.csv"\nrow_id = '
                                           '"id"', "'X' differs from 'x' only in upper"),
    "no features": ("id,y\n1,2\n", 'source = "rows.csv"\nrow_id = "id"\nlabel = '
                                   '"y"', "no column is left to be a feature"),
    "broken rows": ("id,x\n1,2\n3,4,5\n", 'source = "rows.csv"\nrow_id = "id"', "cannot be read: .*Line: 3"),
    "duplicate ids": ("id,x\n1,2\n1,3\n", 'source = "rows.csv"\nrow_id = "id"', "such as 1 in rows 1 and 2"),
    "missing ids": ("id,x\n1,2\n,3\n", 'source = "rows.csv"\nrow_id = '
                                       '"id"', "1 row has no id, the first is row 2"),
    "a date as label": ("id,x,y\n1,2,2020-01-01\n", 'source = "rows.csv"\nrow_id = "id"\nlabel = '
                                                    '"y"', "label 'y' is a date or a time"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "data", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_says_why(text: str, data: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(InvalidInputError, match=said) as caught:
        read_source(configured(tmp_path, data))
    assert "organization 'lab'" in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_what_excel_calls_csv(encoding: str, tmp_path: Path) -> None:
    """Semicolons, decimal commas, and no UTF-8: the same rows on a node and in gal simulate."""
    (tmp_path / "rows.csv").write_bytes("id;größe;ort\n1;1,5;Köln\n2;-2,25;Bonn\n".encode(encoding))
    table = read_source(configured(tmp_path, 'source = "rows.csv"\nrow_id = "id"'))
    assert table.columns.to_pylist() == [{"größe": 1.5, "ort": "Köln"}, {"größe": -2.25, "ort": "Bonn"}]
    simulated = read_frame(tmp_path / "rows.csv").drop(columns="id")
    assert simulated.to_dict("records") == table.columns.to_pylist()


def test_files_that_are_something_else(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes("id,x\n1,é\n".encode("utf-16-le"))
    (tmp_path / "rows.parquet").write_text("id,x\n1,2\n")
    (tmp_path / "sheet.csv").write_bytes(b"PK\x03\x04 a spreadsheet")
    wrong = {
        "rows.csv": "no CSV file in UTF-8",
        "rows.parquet": "no Parquet file",
        "sheet.csv": r"save it as an Excel workbook \(.xlsx\)",
    }
    for name, said in wrong.items():
        with pytest.raises(InvalidInputError, match=said):
            read_source(configured(tmp_path, f'source = "{name}"\nrow_id = "id"'))


def test_without_data_the_configuration_is_at_fault(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('name = "lab"')
    with pytest.raises(ConfigurationError, match=r"no section \[data\]"):
        read_source(read_configuration(tmp_path))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_quotes_and_odd_names(delimiter: str, tmp_path: Path) -> None:
    text = f'patient{delimiter}"a ""b"" c"{delimiter}größe\n1{delimiter}"x\ny"{delimiter}2\n'
    table = read_csv(tmp_path, "\ufeff" + text)
    assert table.features == ('a "b" c', "größe")
    assert view_of_table(table).iloc[0].tolist() == ["x\ny", 2.0]


def test_the_stamp_notices_changes(tmp_path: Path) -> None:
    table = read_csv(tmp_path, PATIENTS)
    configuration = read_configuration(tmp_path)
    assert table.stamp == stamp_of(configuration)
    (tmp_path / "rows.csv").write_text(PATIENTS + "011,1,true,Ulm,2020-01-01,no\n")
    assert table.stamp != stamp_of(configuration)
    (tmp_path / "rows.csv").unlink()
    assert stamp_of(configuration) is None


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return read_csv(tmp_path_factory.mktemp("rows"), PATIENTS)


@pytest.fixture(scope="module")
def numeric(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return read_csv(tmp_path_factory.mktemp("rows"), "patient,a,b\n1,1,\n2,3,4\n3,5,6\n")


positions = st.lists(st.integers(0, 2), max_size=6)


@given(positions)
def test_types_and_categories_do_not_depend_on_the_rows(mixed: Table, chosen: list[int]) -> None:
    whole, part = view_of_table(mixed), view_of_table(mixed, np.array(chosen, dtype=np.intp))
    assert part.dtypes.tolist() == whole.dtypes.tolist()
    pd.testing.assert_frame_equal(part, whole.iloc[chosen].reset_index(drop=True))


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return read_csv(tmp_path_factory.mktemp("rows"), "patient,a,b\n1,1,2\n2,3,4\n3,5,6\n")


@given(positions)
def test_arrays_take_rows_in_the_order_asked_for(numeric: Table, complete: Table, chosen: list[int]) -> None:
    for table in (numeric, complete):
        taken = view_of_table(table, np.array(chosen, dtype=np.intp))
        assert taken.flags.c_contiguous
        np.testing.assert_array_equal(taken, view_of_table(table)[chosen])
    assert complete.shared_arrays is not None
    assert numeric.shared_arrays is None  # a value is missing: its memory has no NaN there


@pytest.mark.parametrize("wrong", [[-1], [3]])
def test_rows_that_are_not_there(wrong: list[int], tmp_path: Path) -> None:
    for rows in (PATIENTS, "patient,a\n1,1\n2,3\n3,5\n"):
        with pytest.raises(InvalidInputError, match="positions of rows must be from 0 to 2"):
            view_of_table(read_csv(tmp_path, rows), np.array(wrong))


def test_changed_columns_are_noticed(tmp_path: Path) -> None:
    before = read_csv(tmp_path, "patient,a,b\n1,1,2\n").kinds
    check_kinds(
        read_csv(tmp_path, "patient,b,a\n1,1,2\n", 'row_id = "patient"\nfeatures = ["a", "b"]'), before
    )
    for text, said in (
        ("patient,a,b\n1,1,x\n", "column 'b' was number when its models were fitted and is text now"),
        ("patient,a,c\n1,1,2\n", "'b' is gone, 'c' is new"),
        ("patient,b,a\n1,1,2\n", "their order"),
    ):
        with pytest.raises(InvalidColumnsError, match=said):
            check_kinds(read_csv(tmp_path, text), before)


def test_views_never_run_code_and_broken_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        save_view(np.array([{}], dtype=object), tmp_path / "objects")
    assert not (tmp_path / "objects").exists()
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    save_view(np.ones((9, 9)), tmp_path / "cut")
    (tmp_path / "cut").write_bytes((tmp_path / "cut").read_bytes()[:200])
    save_view(pd.DataFrame({"a": [1.0]}), tmp_path / "frame")
    (tmp_path / "frame").write_bytes((tmp_path / "frame").read_bytes()[:60])
    (tmp_path / "garbage").write_bytes(b"garbage")
    for name in ("pickled.npy", "cut", "frame", "garbage", "nothing"):
        with pytest.raises(InvalidInputError, match=name):
            load_view(tmp_path / name)


def test_frames_of_other_types_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(GALError, match="column 'a' is"):
        save_view(pd.DataFrame({"a": [datetime.date(2020, 1, 1)]}), tmp_path / "view")
