"""A user's own data set for the tables: a TOML file beside a CSV or Parquet file, or a package's entry point.

::

    name = "Churn"                  # default: the name of this file
    file = "customers.csv"          # relative to this file
    target = "churned"
    ignore = ["customer"]           # no features
    labels = "classes"              # or "numbers"; default: decided as in gal simulate

    [organizations]                 # who holds which, the label holder first; for tables "by name"
    bank = ["age", "balance"]
    telecom = ["calls", "contract"]
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from gal.cli.tables import read_table
from gal.engine.labels import are_classes
from gal.errors import InvalidInputError
from gal_bench.brought import brought_datasets, load_brought
from gal_bench.data.datasets import DATASETS, Dataset
from gal_bench.deep_sets import DEEP_SETS

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w -]*$")]


class OwnFile(BaseModel):
    """What the TOML file says."""

    model_config = ConfigDict(extra="forbid")
    name: Name
    file: str
    target: str
    ignore: list[str] = []
    labels: Literal["auto", "classes", "numbers"] = "auto"
    organizations: dict[str, list[str]] = {}


@dataclass(frozen=True)
class OwnSets:
    """Data sets that are not ours, read."""

    sets: Mapping[str, Dataset] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    """Of those from a file: where it is."""

    @property
    def digests(self) -> dict[str, str]:
        """By name: changed content is another data set to the cache."""
        return {name: _digest(one) for name, one in self.sets.items()}


def find_own_sets(asked: Sequence[str], data_dir: Path | None) -> tuple[list[str], OwnSets]:
    """The names of the data sets that are asked for, files among them, and those that are not ours."""
    names: list[str] = []
    sets: dict[str, Dataset] = {}
    files: dict[str, Path] = {}
    for one in asked:
        name = one
        if one.endswith(".toml"):
            found = read_own_set(Path(one))
            name, sets[found.name], files[found.name] = found.name, found, Path(one).resolve()
        elif one not in {*DATASETS, *DEEP_SETS} and one in brought_datasets():
            sets[one] = load_brought(one, data_dir)
        names.append(name)
    return names, OwnSets(sets, files)


def read_own_set(path: Path) -> Dataset:
    """Read the file and its table; what does not fit is said."""
    said = _read(path)
    table = read_table(path.parent / said.file, said.target)
    table.columns = table.columns.astype(str)
    held = [column for columns in said.organizations.values() for column in columns]
    missing = [name for name in (said.target, *said.ignore, *held) if name not in table.columns]
    twice = sorted({name for name in held if held.count(name) > 1})
    if missing or said.target in held or twice:
        wrong = f"{said.file} has no column {', '.join(map(repr, missing))}" if missing else ""
        wrong = wrong or (f"{', '.join(twice)} has two holders" if twice else "the target is nobody's column")
        raise InvalidInputError(f"{str(path)!r}: {wrong}; it has {', '.join(table.columns)}")
    table = table[table[said.target].notna()].reset_index(drop=True)
    labels = table.pop(said.target)
    classes = said.labels == "classes" or (said.labels == "auto" and are_classes(labels))
    if not classes and not pd.api.types.is_numeric_dtype(labels):
        raise InvalidInputError(f"{str(path)!r}: {said.target!r} holds no numbers: say labels = 'classes'")
    names, y = np.unique(labels.astype(str), return_inverse=True) if classes else ((), labels.to_numpy(float))
    return Dataset(
        said.name,
        table[held] if held else table.drop(columns=said.ignore),
        y.astype(np.int64) if classes else y,
        classes,
        tuple(map(str, names)),
        partition=said.organizations or None,
    )


def _read(path: Path) -> OwnFile:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        found = OwnFile.model_validate({"name": path.stem, **content})
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no file {str(path)!r}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(f"{str(path)!r} is not a TOML file: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidInputError(
            f"{str(path)!r}: {place}: {first['msg']}. A data set needs at least file and target"
        ) from error
    if found.name in {*DATASETS, *DEEP_SETS}:
        raise InvalidInputError(f"{str(path)!r}: {found.name} is one of ours: give yours another name")
    return found


def _digest(dataset: Dataset) -> str:
    said = hashlib.sha256(repr((list(dataset.X.columns), dataset.classes, dataset.partition)).encode())
    said.update(pd.util.hash_pandas_object(dataset.X, index=False).to_numpy().tobytes())
    said.update(np.ascontiguousarray(dataset.y).tobytes())
    said.update(b"" if dataset.test is None else dataset.test.tobytes())
    return said.hexdigest()[:16]
