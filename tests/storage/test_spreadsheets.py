"""Spreadsheets: a node and ``gal simulate`` read the same from them, and say what they do not read."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openpyxl")
pytest.importorskip("duckdb")

from openpyxl import Workbook

from gal.cli.tables import read_frame
from gal.errors import InvalidColumnsError, InvalidInputError
from gal.evaluate.profile import in_numbers
from gal.models.reading.column_reading import column_readings
from gal.node.config.configuration import read_configuration
from gal.node.source.data import read_source
from gal.storage.spreadsheets import read_spreadsheet

ROWS: list[list[Any]] = [
    ["id", "height", "town", "seen", "at", "code", "sure", "mixed", "missing", None],
    [1, 1.5, "Köln", dt.datetime(1970, 1, 3), dt.time(12, 0), "007", True, 1, None, None],
    [],
    [2, 2, "#N/A", dt.datetime(1970, 1, 2, 6), dt.time(0, 0), "012", False, "one", 4, None],
]


def write(path: Path, **sheets: list[list[Any]]) -> Path:
    """A file with these sheets."""
    book = Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def as_node(path: Path) -> Any:
    """What a node makes of the file."""
    (path.parent / "node.toml").write_text(
        f'name = "lab"\n[data]\nsource = "{path.name}"\nrow_id = "id"\nlabel = "sure"\n'
    )
    return read_source(read_configuration(path.parent))


def test_cells_keep_their_types_on_a_node_and_in_a_simulation(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.xlsx", patients=ROWS, notes=[])
    table = as_node(path)
    assert table.ids.values.tolist() == [1, 2]
    assert table.label.to_pylist() == [True, False]
    expected = [
        {"height": 1.5, "town": "Köln", "seen": 2.0, "at": 0.5, "code": "007", "mixed": "1", "missing": None},
        {"height": 2.0, "town": None, "seen": 1.25, "at": 0.0, "code": "012", "mixed": "one", "missing": 4.0},
    ]
    assert table.columns.to_pylist() == expected
    frame = read_frame(path).drop(columns=["id", "sure"])
    simulated = in_numbers(frame, column_readings(frame))
    assert simulated.astype(object).where(simulated.notna(), None).to_dict("records") == expected


@pytest.mark.parametrize(
    ("sheets", "reason"),
    [
        ({"a": [["id"], [1]], "b": [["id"], [2]]}, r"several sheets with rows \(a, b\)"),
        ({"a": []}, "has no rows"),
        ({"a": [["id", None], [1, 2]]}, "column 2 has values and no name"),
        ({"a": [["id", "x", "x"], [1, 2, 3]]}, "'x' is there twice"),
    ],
)
def test_ambiguous_sheets_are_errors(tmp_path: Path, sheets: dict[str, Any], reason: str) -> None:
    path = write(tmp_path / "rows.xlsx", **sheets)
    for read in (read_spreadsheet, as_node):
        with pytest.raises((InvalidInputError, InvalidColumnsError), match=reason):
            read(path)


def test_other_files_than_workbooks_are_errors(tmp_path: Path) -> None:
    (tmp_path / "rows.xlsx").write_bytes(b"id,x\n1,2\n")
    with pytest.raises(InvalidInputError, match=r"no Excel file \(.xlsx\) that can be read"):
        read_spreadsheet(tmp_path / "rows.xlsx")
