"""The input files of ``gal simulate`` and ``gal leakage``.

One is a table, the other names its organizations:

    label_holder = "clinic"

    [organizations]
    clinic = ["age", "sex"]
    lab = { columns = ["s1", "s2"], model = "svr" }
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gal.errors import GALError, InvalidInputError, MissingExtraError
from gal.models.reading.written_numbers import THOUSANDTH
from gal.models.registry import make_model
from gal.storage.spreadsheets import is_spreadsheet, read_spreadsheet
from gal.storage.text_files import (
    Written,
    leading_zeros,
    names_in_header,
    refuse_ragged,
    written,
)

FIRST_LINES = 1000
"""Lines whose numbers of values are checked before a file is read."""


def read_frame(path: Path) -> pd.DataFrame:
    """A CSV, Parquet or Excel file as a data frame, read as a node reads it."""
    if not path.exists():
        raise InvalidInputError(f"there is no file {str(path)!r}")
    if path.is_dir():
        raise InvalidInputError(f"{str(path)!r} is a folder: name a CSV, Parquet or Excel file")
    try:
        return _read(path)
    except ImportError as error:
        raise MissingExtraError("node", "pyarrow", "reading Parquet files") from error
    except pd.errors.EmptyDataError as error:
        raise InvalidInputError(
            f"{str(path)!r} cannot be read as a table, it is empty: its first line must name the columns"
        ) from error
    except GALError:
        raise
    except (ValueError, OSError) as error:
        raise InvalidInputError(f"{str(path)!r} cannot be read as a table: {error}") from error


def _read(path: Path) -> pd.DataFrame:
    if is_spreadsheet(path):
        return read_spreadsheet(path)
    return pd.read_parquet(path) if path.suffix.lower() in {".parquet", ".pq"} else _read_csv(path)


def _read_csv(path: Path) -> pd.DataFrame:
    """Separators, encoding and decimals as on a node."""
    try:
        return _read_as(path, written(path))
    except UnicodeDecodeError:  # only its beginning is UTF-8
        return _read_as(path, written(path, whole=True))
    except pd.errors.ParserError as error:
        refuse_ragged(path, written(path, whole=True))
        row = re.search(r"EOF inside string starting at row (\d+)", str(error))
        what = (
            f", line {int(row[1]) + 1}: a double quote opens there and never closes" if row else f": {error}"
        )
        raise InvalidInputError(f"{str(path)!r} cannot be read as a table{what}. Correct the line") from error


def _read_as(path: Path, form: Written) -> pd.DataFrame:
    names_in_header(path, form)
    refuse_ragged(path, form, most=FIRST_LINES)
    given: dict[str, Any] = {"sep": form.delimiter, "encoding": form.encoding, "skipinitialspace": True}
    given["encoding_errors"] = form.errors
    table: pd.DataFrame = pd.read_csv(path, decimal=form.decimal, index_col=False, **given)
    if len(table) > FIRST_LINES and table.iloc[:, -1].isna().any():  # lines that are too short end so
        refuse_ragged(path, form)
    whole = [name for name in table.columns if pd.api.types.is_numeric_dtype(table[name])]
    if whole and leading_zeros(path, form):
        texts = pd.read_csv(path, usecols=whole, dtype=str, index_col=False, **given)
        codes = [name for name in whole if texts[name].str.fullmatch(r"0\d+").mean() > THOUSANDTH]
        table[codes] = texts[codes]
    return table


class OneOrganization(BaseModel):
    """Columns and, if not the default, a local model."""

    model_config = ConfigDict(extra="forbid")
    columns: list[str] = Field(min_length=1)
    model: str | None = None


class OrganizationsFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid")
    label_holder: str | None = None
    organizations: dict[str, list[str] | OneOrganization] = Field(min_length=1)

    @property
    def columns(self) -> dict[str, list[str]]:
        """Columns by organization."""
        return {
            name: one.columns if isinstance(one, OneOrganization) else one
            for name, one in self.organizations.items()
        }

    def local_models(self) -> dict[str, Any] | None:
        """Local models by organization; those not named use the default."""
        named = {
            name: make_model(name, one.model)
            for name, one in self.organizations.items()
            if isinstance(one, OneOrganization) and one.model is not None
        }
        return named or None


def read_organizations(path: Path) -> OrganizationsFile:
    """Read and check the file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no file {str(path)!r}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(f"{str(path)!r} is not a TOML file: {error}") from error
    try:
        return OrganizationsFile.model_validate(content)
    except ValidationError as error:
        first = max(
            error.errors(), key=lambda one: len(one["loc"])
        )  # of a union: the alternative that fits best
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidInputError(
            f"{str(path)!r}: {place}: {first['msg']}. Expected: [organizations] with lines like "
            'clinic = ["age", "sex"]'
        ) from error
