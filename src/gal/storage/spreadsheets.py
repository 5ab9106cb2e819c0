"""The rows of a spreadsheet (.xlsx): one sheet, with column names in its first row.

Needs the extra ``excel``, and is the same for a node and for ``gal simulate``. Cells keep their types: text
stays text, with its leading zeros.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from gal.errors import InvalidColumnsError, InvalidInputError
from gal.extras import require

SHEETS = {".xlsx", ".xlsm"}
"""Suffixes of files that are read as spreadsheets."""
ERRORS = ["#NULL!", "#DIV/0!"]
"""Errors of formulas that count as missing, besides pandas' marks of missing values."""


def is_spreadsheet(path: Path) -> bool:
    """Whether a file is a spreadsheet by its name."""
    return path.suffix.lower() in SHEETS


def read_spreadsheet(path: Path) -> pd.DataFrame:
    """The one sheet of a file that has rows: numbers, booleans, times and text; None or NaN where empty."""
    require("excel", "reading Excel files (or save the sheet as CSV UTF-8)")
    how: Any = {"sheet_name": None, "header": None, "dtype": object, "na_values": ERRORS}
    try:
        sheets = pd.read_excel(path, engine="openpyxl", **how)
    except Exception as error:  # a broken archive may raise anything
        raise InvalidInputError(
            f"{str(path)!r} is no Excel file (.xlsx) that can be read: {error}"
        ) from error
    sheets = {title: rows.dropna(how="all") for title, rows in sheets.items()}
    filled = {title: rows for title, rows in sheets.items() if len(rows)}
    if len(filled) > 1:
        raise InvalidInputError(
            f"{str(path)!r} has several sheets with rows ({', '.join(map(str, filled))}): keep one of them "
            "in the file, or save the one that is meant as CSV UTF-8"
        )
    if not filled:
        raise InvalidInputError(f"{str(path)!r} has no rows; put data into it")
    (rows,) = filled.values()
    table: dict[str, pd.Series[Any]] = {}
    for place, name in enumerate(rows.iloc[0]):
        cells = rows.iloc[1:, place].reset_index(drop=True)
        if pd.isna(name) and cells.isna().all():
            continue
        if pd.isna(name):
            raise InvalidColumnsError(
                f"{str(path)!r}: column {place + 1} has values and no name; the first row names the columns"
            )
        if str(name) in table:
            raise InvalidColumnsError(
                f"{str(path)!r}: column {str(name)!r} is there twice; rename one of them"
            )
        table[str(name)] = _column(cells)
    return pd.DataFrame(table)


def _column(cells: pd.Series[Any]) -> pd.Series[Any]:
    """A column of one type: numbers, booleans or times where all cells are such, text otherwise."""
    kinds, full = {type(cell) for cell in cells.dropna()}, bool(cells.notna().all())
    if kinds <= {int, float}:
        return cells.astype("int64" if full and kinds == {int} else "float64")
    if kinds <= {datetime.datetime, datetime.date, pd.Timestamp}:
        return pd.to_datetime(cells)
    if kinds <= {datetime.time, datetime.timedelta, pd.Timedelta}:
        return pd.Series(pd.to_timedelta([None if pd.isna(cell) else _span(cell) for cell in cells]))
    if kinds == {bool} and full:
        return cells.astype(bool)
    return cells.map(str, na_action="ignore").astype(object)


def _span(cell: Any) -> datetime.timedelta:
    """A time of day as the time since midnight."""
    if not isinstance(cell, datetime.time):
        return pd.Timedelta(cell)
    return datetime.datetime.combine(datetime.date.min, cell) - datetime.datetime.min
