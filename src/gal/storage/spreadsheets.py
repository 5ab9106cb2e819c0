"""The rows of a spreadsheet (.xlsx): one sheet, with the names of columns in its first row.

The extra ``excel`` reads it, in the same way for a node and for ``gal simulate``. A cell has a
type already: what is text there stays text, with its leading zeros, whatever it looks like.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gal.errors import InvalidColumnsError, InvalidInputError
from gal.extras import require

SHEETS = {".xlsx", ".xlsm"}
"""How files end that are read as spreadsheets."""
NOTHING = {"", "#N/A", "#NA", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "#NULL!", "#DIV/0!"}
"""Text that stands for a missing value, errors of formulas among it."""


def is_spreadsheet(path: Path) -> bool:
    """Whether a file is one by its name."""
    return path.suffix.lower() in SHEETS


def read_spreadsheet(path: Path) -> pd.DataFrame:
    """The one sheet of a file that has rows: numbers, booleans, times and text; None or NaN where empty."""
    names, *rows = _rows(path)
    table: dict[str, pd.Series[Any]] = {}
    for place, name in enumerate(names):
        cells = [row[place] for row in rows]
        if name is None and all(cell is None for cell in cells):
            continue
        if name is None:
            raise InvalidColumnsError(
                f"{str(path)!r}: column {place + 1} has values and no name; the first row names the columns"
            )
        if str(name) in table:
            raise InvalidColumnsError(
                f"{str(path)!r}: column {str(name)!r} is there twice; rename one of them"
            )
        table[str(name)] = _column(cells)
    return pd.DataFrame(table)


def _rows(path: Path) -> list[list[Any]]:
    """All rows of the only sheet that has some, of one length; empty ones are left out."""
    require("excel", "reading Excel files (or save the sheet as CSV UTF-8)")
    from openpyxl import load_workbook

    try:
        book = load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # what a broken archive raises is its own affair
        raise InvalidInputError(
            f"{str(path)!r} is no Excel file (.xlsx) that can be read: {error}"
        ) from error
    try:
        sheets = {sheet.title: _filled(sheet) for sheet in book.worksheets}
    finally:
        book.close()
    filled = {title: rows for title, rows in sheets.items() if rows}
    if len(filled) > 1:
        raise InvalidInputError(
            f"{str(path)!r} has several sheets with rows ({', '.join(filled)}): keep one of them in the "
            "file, or save the one that is meant as CSV UTF-8"
        )
    if not filled:
        raise InvalidInputError(f"{str(path)!r} has no rows; put data into it")
    (rows,) = filled.values()
    width = max(map(len, rows))
    return [[*row, *[None] * (width - len(row))] for row in rows]


def _filled(sheet: Any) -> list[list[Any]]:
    rows = ([_value(cell) for cell in row] for row in sheet.iter_rows(values_only=True))
    return [row for row in rows if any(cell is not None for cell in row)]


def _value(cell: Any) -> Any:
    return None if isinstance(cell, str) and cell.strip() in NOTHING else cell


def _column(cells: Sequence[Any]) -> pd.Series[Any]:
    """A column of one type: numbers, booleans or times where all cells are such, text otherwise."""
    kinds = {type(cell) for cell in cells if cell is not None}
    full = all(cell is not None for cell in cells)
    if kinds <= {int, float}:
        return pd.Series(cells, dtype="int64" if full and kinds == {int} else "float64")
    if kinds <= {datetime.datetime, datetime.date}:
        return pd.Series(pd.to_datetime(pd.Series(cells, dtype=object)))
    if kinds <= {datetime.time, datetime.timedelta}:
        return pd.Series(pd.to_timedelta([_span(cell) for cell in cells]))
    if kinds == {bool} and full:
        return pd.Series(cells, dtype=bool)
    return pd.Series([None if cell is None else str(cell) for cell in cells], dtype=object)


def _span(cell: datetime.time | datetime.timedelta | None) -> datetime.timedelta | None:
    """A time of day as the time since midnight."""
    if not isinstance(cell, datetime.time):
        return cell
    return datetime.datetime.combine(datetime.date.min, cell) - datetime.datetime.min


__all__ = ["is_spreadsheet", "read_spreadsheet"]
