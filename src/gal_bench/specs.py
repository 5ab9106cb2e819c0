"""What a table is made of: ``rows/TABLE/table.toml`` and one file per row beside it.

A row says which method learns with which local models and options, and what the paper reports for it.
Its cells are all its data sets, numbers of organizations, protocols and seeds.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gal.errors import InvalidInputError, suggestion
from gal_bench.cells import ROUNDS, Cell

FOLDER = Path(__file__).parent / "rows"
FIGURE = re.compile(r"(\d+(?:\.\d+)?)\((\d+(?:\.\d+)?)\)")
TOGETHER = ("joint", "pooled")
"""Methods with pooled columns: run once, whatever the number of organizations."""
Disturbance = Literal["answers", "residual", "columns", "laplace", "interval"]
Count = Annotated[int, Field(ge=1)]
BySize = Count | dict[str, Count]
"""A number for all, or by number of organizations (or "by name")."""


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
    privacy: str | None = None
    """A mechanism for the labels, by name (``tabular_cells.mechanism_of``); not in deep tables."""
    epsilon: float | None = None
    delta: float | None = None
    leak: bool = False
    """Whether the leak meter attacks what is sent; not in deep tables."""
    metered: bool = False
    organizations: list[int] = []
    """Run with these numbers of organizations only; those of the table, unless given."""
    sets: list[str] = []
    """Run on these data sets only; those of the table, unless given."""
    seeds: BySize = {}
    """How many, where it is not the table's number; "8 MNIST" goes before "8"."""
    choose_among: list[str] = []
    """Not learned itself: the one of these rows with the lowest validation
    loss, set by set and seed by seed.
    """
    paper: dict[str, dict[str, Annotated[Printed, BeforeValidator(Printed.parse)]]] = {}
    """The paper's figures: by number of organizations, then by data set."""

    def printed(self, dataset: str, organizations: int | str) -> Printed | None:
        """The paper's figure, if it has one."""
        return self.paper.get(str(n_assigned(dataset, organizations)), {}).get(dataset)


class TableSpec(BaseModel):
    """A table; ``rows`` come from the other files of its folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str = ""
    order: int
    title: str
    paper: str
    """Which tables of the paper it reproduces; empty for ours alone."""
    deep: bool = False
    """Networks on images, camera views or time series: run on request only, what was not run stays blank."""
    sets: list[str] = Field(min_length=1)
    organizations: list[int | Literal["most", "by name"]] = Field(min_length=1)
    """"most": eight, or as many as a set has columns
    for; or the set's named partition.
    """
    protocols: list[str] = Field(min_length=1)
    rounds: int = Field(default=ROUNDS, ge=1)
    seeds: dict[str, int] = {}
    """How many seeds a set gets where it is not four, or one in deep tables."""
    most_seeds: int | None = None
    """A limit on those of all rows and sets."""
    first_seed: int = 0
    """Where they begin: other seeds give the same figures anew."""
    facts: list[str] = []
    """Facts of every run to show, see ``cells.Outcome``; without any the table shows scores."""
    note: str = ""
    glance: list[str] = []
    """Names of the rows that the page shows side by side before everything else."""
    rows: list[RowSpec] = []
    part: str = ""
    """What of it is meant, where it is not the whole table."""

    @property
    def file_name(self) -> str:
        """The name of its results without ending."""
        return f"{self.name}-{self.part}" if self.part else self.name

    def row(self, name: str) -> RowSpec:
        """The row of this name."""
        return next(row for row in self.rows if row.name == name)

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
                if row.organizations and organizations not in row.organizations:
                    continue
                for dataset in self.sets:
                    included = not row.sets or dataset in row.sets
                    if included and not (dataset == "Iris" and organizations == 8):  # it has four columns
                        yield dataset, organizations, protocol

    def cells_at(self, row: RowSpec, dataset: str, organizations: int | str, protocol: str) -> list[Cell]:
        """The runs behind one figure: one per seed."""
        together = row.method in TOGETHER and organizations != "by name"
        return [
            Cell(
                dataset=dataset,
                organizations=1 if together else n_assigned(dataset, organizations),
                protocol=protocol,
                seed=seed,
                method=row.method,
                models=tuple(row.models),
                local_losses=tuple(row.local_losses),
                options=dict(row.options),
                disturbance=row.disturbance,
                sigma=row.sigma if row.disturbance is not None else 0.0,
                metered=row.metered,
                rounds=self.rounds,
                privacy=row.privacy,
                epsilon=row.epsilon,
                delta=row.delta,
                leak=row.leak,
            )
            for seed in range(self.first_seed, self.first_seed + self.seeds_at(row, dataset, organizations))
        ]

    def seeds_at(self, row: RowSpec, dataset: str, organizations: int | str) -> int:
        """The number of runs behind one figure."""
        of_table = self.seeds.get(dataset, 1 if self.deep else 4)
        size = n_assigned(dataset, organizations)
        wanted = _by_size(row.seeds, f"{size} {dataset}", _by_size(row.seeds, size, of_table))
        return wanted if self.most_seeds is None else min(wanted, self.most_seeds)


def narrow(
    table: TableSpec,
    *,
    organizations: Sequence[int] = (),
    protocols: Sequence[str] = (),
    sets: Sequence[str] = (),
    seeds: int | None = None,
    first_seed: int = 0,
) -> TableSpec | None:
    """A part of a table, under a name that says so; None where nothing of it is left."""
    kept_sets = [name for name in table.sets if not sets or name in sets]
    kept_organizations = []
    for one in table.organizations:
        here = [name for name in kept_sets if not organizations or n_assigned(name, one) in organizations]
        if here:
            kept_organizations.append(one)
            kept_sets = here if one == "most" else kept_sets
    chosen = [*map(str, organizations), *protocols, *sets]
    chosen += [f"{seeds} seeds"] if seeds is not None and seeds < 4 else []
    chosen += [f"from seed {first_seed}"] if first_seed else []
    part = table.model_copy(
        update={
            "sets": kept_sets,
            "protocols": [name for name in table.protocols if not protocols or name in protocols],
            "organizations": kept_organizations,
            "most_seeds": seeds,
            "first_seed": first_seed,
            "part": "-".join(word.replace(" ", "-") for word in chosen),
        }
    )
    return part if any(True for row in part.rows for _ in part.cells(row)) else None


def n_assigned(dataset: str, organizations: int | str) -> int | str:
    """The number behind "most".

    >>> n_assigned("Iris", "most"), n_assigned("Wine", "most"), n_assigned("Wine", 2)
    (4, 8, 2)
    """
    return (4 if dataset == "Iris" else 8) if organizations == "most" else organizations


def _by_size(value: BySize, organizations: int | str, default: int) -> int:
    """The value for so many organizations.

    >>> _by_size({"8": 4}, 8, 1), _by_size({"8": 4}, 2, 1), _by_size(3, "by name", 1)
    (4, 1, 3)
    """
    return value if isinstance(value, int) else value.get(str(organizations), default)


def check_names(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Whether all are known."""
    names = list(known)
    unknown = [name for name in given if name not in names]
    if unknown:
        meant = suggestion(unknown[0], names)
        raise InvalidInputError(
            f"no {kind} {', '.join(map(repr, unknown))}; there are: {', '.join(names)}.{meant}"
        )


def read_tables(folder: Path = FOLDER) -> dict[str, TableSpec]:
    """All tables by name, in order."""
    found = []
    for path in folder.glob("*/table.toml"):
        rows = [
            RowSpec(name=one.stem, **tomllib.loads(one.read_text(encoding="utf-8")))
            for one in path.parent.glob("*.toml")
            if one != path
        ]
        rows.sort(key=lambda row: (row.order, row.name))
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        found.append(TableSpec(name=path.parent.name, rows=rows, **content))
    return {one.name: one for one in sorted(found, key=lambda one: one.order)}
