"""How a text file of rows is written: its encoding, what separates values, and decimal points or commas.

The same for a node and for ``gal simulate``; Excel's "CSV" of half of Europe has semicolons, decimal commas
and latin-1.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import NamedTuple

from gal.errors import InvalidInputError

LOOKED_AT = 1 << 20
"""Bytes from which the encoding is guessed where they suffice."""

EXCEL = {".xls", ".xlsb", ".ods"}
"""Spreadsheets that are not read; those of ``spreadsheets.py`` are."""


class Written(NamedTuple):
    """How a file is written."""

    encoding: str
    """Python's name for it."""
    delimiter: str
    decimal: str


def written(path: Path, *, whole: bool = False) -> Written:
    """How a text file is written, by its beginning; its encoding by all of it if ``whole``."""
    refuse_spreadsheet(path)
    encoding = _encoding(path, whole=whole)
    with path.open(encoding=encoding, errors="replace", newline="") as file:
        header, *lines = file.read(LOOKED_AT).splitlines() or [""]
    delimiter = max(",;\t|", key=header.count)
    return Written(encoding, delimiter, _decimal(lines, delimiter))


def refuse_spreadsheet(path: Path) -> None:
    """A spreadsheet is no text file: what to do is said instead of what DuckDB or pandas make of it."""
    with path.open("rb") as file:
        start = file.read(8)
    zipped = start.startswith(b"PK\x03\x04") or start == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    if path.suffix.lower() in EXCEL or zipped:
        raise InvalidInputError(
            f"{str(path)!r} is a spreadsheet (Excel) that is not read as it is: open it there, save it as "
            "Excel workbook (.xlsx), which is read, or the sheet as CSV UTF-8 (File, Save As), and give that "
            "file"
        )


def _encoding(path: Path, *, whole: bool) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        block = file.read(LOOKED_AT)
        if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        if b"\0" in block[:1000]:
            raise InvalidInputError(
                f"{str(path)!r} is no CSV file in UTF-8, UTF-16 with a mark, or latin-1: save it as CSV UTF-8"
            )
        try:
            while block:
                decoder.decode(block)
                block = file.read(LOOKED_AT) if whole else b""
        except UnicodeDecodeError:
            return "latin-1"
    return "utf-8-sig"


def _decimal(lines: list[str], delimiter: str) -> str:
    """A comma where numbers are written 1,5 and none 1.5; only where no comma separates values."""
    if delimiter == ",":
        return "."
    values = [value.strip().strip('"') for line in lines[:1000] for value in line.split(delimiter)]
    commas = any(re.fullmatch(r"[+-]?\d+,\d+", value) for value in values)
    points = any(re.fullmatch(r"[+-]?\d*\.\d+", value) for value in values)
    return "," if commas and not points else "."
