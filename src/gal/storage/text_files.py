"""The form of a text file of rows: its encoding, separator and decimal mark.

The same for a node and for ``gal simulate``. European versions of Excel write CSV files with semicolons,
decimal commas and latin-1.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from gal.errors import InvalidColumnsError, InvalidInputError

LOOKED_AT = 1 << 20
"""Bytes from which the form is guessed."""

EXCEL = {".xls", ".xlsb", ".ods"}
"""Spreadsheets that are not read, unlike those of ``spreadsheets.py``."""


class Written(NamedTuple):
    """The form of a file."""

    encoding: str
    """utf-8-sig, utf-16 or cp1252, which is latin-1 with € and dashes."""
    delimiter: str
    decimal: str

    @property
    def errors(self) -> str:
        """The handling of bytes outside of this encoding."""
        return "replace" if self.encoding == "cp1252" else "strict"


def written(path: Path, *, whole: bool = False) -> Written:
    """The form of a text file, by its beginning; its encoding by the whole file if ``whole``."""
    refuse_spreadsheet(path)
    encoding = _encoding(path, whole=whole)
    with opened_bytes(path) as file:
        text = file.read(LOOKED_AT).decode(encoding, errors="replace")
    header, *lines = text.splitlines() or [""]
    bare = re.sub(r'"[^"]*"', "", header)  # a name in quotes may have anything in it
    delimiter = max(",;\t|", key=bare.count)
    return Written(encoding, delimiter, _decimal(lines, delimiter))


def is_packed(path: Path) -> bool:
    """Whether a text file is packed by gzip, by its name."""
    return path.suffix.lower() == ".gz"


@contextmanager
def opened_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a text file, unpacked where it is packed."""
    try:
        with gzip.open(path) if is_packed(path) else path.open("rb") as file:
            yield file  # type: ignore[misc]
    except (gzip.BadGzipFile, EOFError) as error:
        raise InvalidInputError(
            f"{str(path)!r} is no whole file of gzip ({error}): pack it again, or give it unpacked"
        ) from error


@contextmanager
def opened_text(path: Path, form: Written) -> Iterator[IO[str]]:
    """The text of a file of this form."""
    with opened_bytes(path) as raw:
        yield io.TextIOWrapper(raw, encoding=form.encoding, errors=form.errors, newline="")


def names_in_header(path: Path, form: Written) -> list[str]:
    """The column names; an error where one occurs twice."""
    with opened_text(path, form) as file:
        names = next(csv.reader(file, delimiter=form.delimiter, skipinitialspace=True), [])
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        raise InvalidColumnsError(
            f"{str(path)!r}: column{'s' if len(twice) > 1 else ''} {', '.join(map(repr, twice[:10]))} "
            f"{'are' if len(twice) > 1 else 'is'} there twice: rename one of them in line 1"
        )
    return names


def refuse_ragged(path: Path, form: Written, *, most: int | None = None) -> None:
    """An error where a line has more or fewer values than line 1 has names, with its number."""
    with opened_text(path, form) as file:
        lines = csv.reader(file, delimiter=form.delimiter, skipinitialspace=True)
        names, last = len(next(lines, [])), lines.line_num
        for count, values in enumerate(lines):
            first, last = last + 1, lines.line_num
            if len(values) == names + 1 and not values[-1]:  # a separator ends the line
                continue
            if values and len(values) != names and (len(values) > 1 or values[0].strip()):
                joined = f" to {last}, which a double quote joins" if last > first else ""
                above = "; lines above the names are to be removed" if names == 1 or first == 2 else ""
                raise InvalidInputError(
                    f"{str(path)!r}, line {first}{joined}: {_counted(len(values), 'value')}; line 1 has "
                    f"{_counted(names, 'name')}, separated by {form.delimiter!r}. Correct the line, or put "
                    f"text with a separator in double quotes{above}"
                )
            if count == most:
                return


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def refuse_spreadsheet(path: Path) -> None:
    """An error with a remedy for spreadsheets and archives, which are no text files."""
    with path.open("rb") as file:
        start = file.read(8)
    if path.suffix.lower() == ".zip":
        raise InvalidInputError(f"{str(path)!r} is a zip archive: unpack it, and give the file in it")
    zipped = start.startswith(b"PK\x03\x04") or start == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    if path.suffix.lower() in EXCEL or zipped:
        raise InvalidInputError(
            f"{str(path)!r} is a spreadsheet that cannot be read directly: save it as an Excel workbook "
            "(.xlsx) or its sheet as CSV UTF-8 (File, Save As), and give that file"
        )


def _encoding(path: Path, *, whole: bool) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with opened_bytes(path) as file:
        block = file.read(LOOKED_AT)
        if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        if b"\0" in block[:1000]:
            raise InvalidInputError(
                f"{str(path)!r} is no CSV file in UTF-8, UTF-16 with a mark, or of Windows: save it "
                "as CSV UTF-8"
            )
        try:
            while block:
                decoder.decode(block, final=len(block) < LOOKED_AT)
                block = file.read(LOOKED_AT) if whole else b""
        except UnicodeDecodeError:
            return "cp1252"
    return "utf-8-sig"


def _decimal(lines: list[str], delimiter: str) -> str:
    """A comma where numbers are like 1,5, none like 1.5, and no comma separates values.

    Where all are like 1,234 the comma may separate thousands: columns are read as text, each by itself.
    """
    if delimiter == ",":
        return "."
    values = [value.strip().strip('"') for line in lines[:1000] for value in line.split(delimiter)]
    numbers = [value for value in values if re.fullmatch(r"[+-]?\d+,\d+", value)]
    commas = any(not re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", value) for value in numbers)
    points = any(re.fullmatch(r"[+-]?\d*\.\d+", value) for value in values)
    return "," if commas and not points else "."


def leading_zeros(path: Path, form: Written) -> bool:
    """Whether a file has digits with leading zeros, such as the postal code 01067."""
    code = re.compile(
        rf'(?:^|["{re.escape(form.delimiter)}])[ ]?0\d+(?=["{re.escape(form.delimiter)}\r\n]|$)'.encode(),
        re.M,
    )
    if form.encoding == "utf-16":
        return True
    with opened_bytes(path) as file:
        rest = b""
        while block := file.read(LOOKED_AT):
            if code.search(rest + block):
                return True
            rest = block[-100:]
    return False
