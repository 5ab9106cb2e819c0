"""What a table is made of: ``rows/TABLE/table.toml`` and one file per row beside it.

A row says which method learns with which local models and options, and what the paper reports for it.
Its cells are all its data sets, numbers of organizations, protocols and seeds.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gal.baselines import METHODS
from gal.errors import InvalidInputError
from gal.experiments.bench.cells import ROUNDS, Cell
from gal.experiments.bench.local_models import MODELS
from gal.experiments.datasets import DATASETS
from gal.experiments.splits import PROTOCOLS

FOLDER = Path(__file__).parent / "rows"
FIGURE = re.compile(r"(\d+(?:\.\d+)?)\((\d+(?:\.\d+)?)\)")
TOGETHER = ("joint", "pooled")
"""Methods with all columns in one place: run once, whatever the number of organizations."""
Spec = TypeVar("Spec", bound=BaseModel)
Disturbance = Literal["answers", "residual", "columns", "laplace", "interval"]


@dataclass(frozen=True)
class Printed:
    """A figure of the paper: mean and standard deviation as printed."""

    mean: float
    std: float

    @classmethod
    def parse(cls, text: str) -> Printed:
        """Of "42.7(0.6)".

        >>> Printed.parse("42.7(0.6)")
        Printed(mean=42.7, std=0.6)
        """
        found = FIGURE.fullmatch(text.replace(" ", ""))
        if found is None:
            raise ValueError(f"expected a figure like 42.7(0.6), got {text!r}")
        return cls(float(found[1]), float(found[2]))


class RowSpec(BaseModel):
    """One row of a table."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str = ""
    """The file's name; set on reading."""
    order: int
    label: str
    method: str = "gal"
    models: list[str] = Field(default=["Linear"], min_length=1, max_length=2)
    """Two: the first half of the organizations has the one, the second half the other."""
    local_losses: list[str] = Field(default=[], max_length=2)
    """What local models minimise, where a row fixes it; two: half of the organizations each."""
    options: dict[str, Any] = {}
    """Of the engine, in both protocols."""
    protocols: list[str] = []
    """Those of the table, unless given."""
    disturbance: Disturbance | None = None
    sigma: float = 1.0
    metered: bool = False
    choose_among: list[str] = []
    """Not learned itself: the one of these rows with the lowest validation loss, set by set and seed by seed."""
    paper: dict[str, dict[str, str]] = {}
    """The paper's figures: by number of organizations, then by data set."""

    @model_validator(mode="after")
    def _known_names(self) -> RowSpec:
        if self.method not in METHODS:
            raise ValueError(f"no method {self.method!r}; there are {', '.join(METHODS)}")
        unknown = [name for name in self.models if name not in MODELS]
        if unknown:
            raise ValueError(f"no local model {', '.join(unknown)}; there are {', '.join(MODELS)}")
        for figures in self.paper.values():
            for text in figures.values():
                Printed.parse(text)
        return self

    def printed(self, dataset: str, organizations: int | str) -> Printed | None:
        """What the paper reports, if it does."""
        text = self.paper.get(str(how_many(dataset, organizations)), {}).get(dataset)
        return None if text is None else Printed.parse(text)


class TableSpec(BaseModel):
    """A table; ``rows`` come from the other files of its folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str = ""
    order: int
    title: str
    paper: str
    """Which tables of the paper it reproduces; empty for ours alone."""
    sets: list[str] = Field(min_length=1)
    organizations: list[int | Literal["most", "by name"]] = Field(min_length=1)
    """Of a random partition; "most": eight, or as many as a set has columns for; or the set's named partition."""
    partition: Literal["random", "skewed"] = "random"
    protocols: list[str] = Field(min_length=1)
    rounds: int = Field(default=ROUNDS, ge=1)
    seeds: dict[str, int] = {}
    """How many seeds a set gets where it is not four."""
    layout: Literal["scores", "facts"] = "scores"
    facts: list[str] = []
    """In the layout "facts": what is told of every run, see ``cells.Outcome``."""
    note: str = ""
    rows: list[RowSpec] = []
    part: str = ""
    """What of it is meant, where it is not the whole table."""

    @model_validator(mode="after")
    def _known_names(self) -> TableSpec:
        for kind, given, known in (
            ("data set", self.sets, tuple(DATASETS)),
            ("protocol", self.protocols, PROTOCOLS),
        ):
            unknown = [name for name in given if name not in known]
            if unknown:
                raise ValueError(f"no {kind} {', '.join(unknown)}; there are {', '.join(known)}")
        names = {row.name for row in self.rows}
        for row in self.rows:
            strangers = sorted(set(row.choose_among) - names)
            if strangers:
                raise ValueError(f"row {row.name!r} chooses among {', '.join(strangers)}, which are no rows")
        return self

    @property
    def file_name(self) -> str:
        """Of its results, without ending."""
        return f"{self.name}-{self.part}" if self.part else self.name

    def protocols_of(self, row: RowSpec) -> list[str]:
        """Under which this row is run, of those of the table."""
        return [one for one in self.protocols if not row.protocols or one in row.protocols]

    def cells(self, row: RowSpec) -> Iterator[Cell]:
        """All runs of a row; none where it only chooses among others."""
        for place in self.places(row):
            if not row.choose_among:
                yield from self.cells_at(row, *place)

    def places(self, row: RowSpec) -> Iterator[tuple[str, int | str, str]]:
        """Data set, organizations and protocol of each of the row's figures."""
        for protocol in self.protocols_of(row):
            for organizations in self.organizations:
                for dataset in self.sets:
                    if _possible(dataset, organizations):
                        yield dataset, organizations, protocol

    def cells_at(self, row: RowSpec, dataset: str, organizations: int | str, protocol: str) -> list[Cell]:
        """The runs behind one figure: one per seed."""
        together = row.method in TOGETHER and organizations != "by name"
        return [
            Cell(
                dataset=dataset,
                organizations=1 if together else how_many(dataset, organizations),
                protocol=protocol,
                seed=seed,
                method=row.method,
                models=tuple(row.models),
                local_losses=tuple(row.local_losses),
                options=dict(row.options),
                partition=self.partition,
                disturbance=row.disturbance,
                sigma=row.sigma if row.disturbance is not None else 0.0,
                metered=row.metered,
                rounds=self.rounds,
            )
            for seed in range(self.seeds.get(dataset, 4))
        ]


def how_many(dataset: str, organizations: int | str) -> int | str:
    """The number behind "most".

    >>> how_many("Iris", "most"), how_many("Wine", "most"), how_many("Wine", 2)
    (4, 8, 2)
    """
    return (4 if dataset == "Iris" else 8) if organizations == "most" else organizations


def _possible(dataset: str, organizations: int | str) -> bool:
    """Iris has four columns: no eight organizations."""
    return not (dataset == "Iris" and organizations == 8)


def read_tables(folder: Path = FOLDER) -> dict[str, TableSpec]:
    """All tables by name, in order."""
    found = [_read_table(one) for one in sorted(folder.iterdir()) if (one / "table.toml").exists()]
    return {one.name: one for one in sorted(found, key=lambda one: one.order)}


def _read_table(folder: Path) -> TableSpec:
    paths = [path for path in sorted(folder.glob("*.toml")) if path.name != "table.toml"]
    rows = sorted(
        (_read(RowSpec, path, {"name": path.stem}) for path in paths), key=lambda row: (row.order, row.name)
    )
    return _read(TableSpec, folder / "table.toml", {"name": folder.name, "rows": rows})


def _read(kind: type[Spec], path: Path, known: Mapping[str, Any]) -> Spec:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return kind.model_validate({**content, **known})
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"{str(path)!r} is not a TOML file: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidInputError(f"{str(path)!r}: {place or 'content'}: {first['msg']}") from error
