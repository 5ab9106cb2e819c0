"""What a table is made of: ``rows/TABLE/table.toml`` and one file per row beside it.

A row says which method learns with which local models and options, and what the paper reports for it.
Its cells are all its data sets, numbers of organizations, protocols and seeds.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gal.errors import InvalidInputError, did_you_mean
from gal.estimators import GALRegressor
from gal_bench.baselines import METHODS
from gal_bench.cells import DEEP_METHODS, DEEP_MODELS, DEEP_SETS, OFFICIAL, ROUNDS, Cell
from gal_bench.data.datasets import DATASETS
from gal_bench.data.splits import PROTOCOLS
from gal_bench.runs.local_models import MODELS
from gal_bench.runs.mechanisms import named_needs

FOLDER = Path(__file__).parent / "rows"
FIGURE = re.compile(r"(\d+(?:\.\d+)?)\((\d+(?:\.\d+)?)\)")
TOGETHER = ("joint", "pooled")
"""Methods with pooled columns: run once, whatever the number of organizations."""
Spec = TypeVar("Spec", bound=BaseModel)
Disturbance = Literal["answers", "residual", "columns", "laplace", "interval"]
Count = Annotated[int, Field(ge=1)]
BySize = Count | dict[str, Count]
"""A number for all, or by number of organizations (or "by name")."""
OPTIONS = tuple(signature(GALRegressor).parameters)
"""Of GAL in tables that are not deep."""


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
    """A mechanism that protects the labels, by a name of ``mechanisms.named_needs``; not in deep tables."""
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

    @model_validator(mode="after")
    def _known_privacy(self) -> RowSpec:
        """A mechanism has what it needs and no more."""
        check_names("privacy mechanism", [self.privacy] if self.privacy is not None else [], named_needs())
        needed = named_needs()[self.privacy] if self.privacy is not None else ()
        for option in ("epsilon", "delta"):
            if (getattr(self, option) is not None) != (option in needed):
                words = "needs" if option in needed else "has no"
                raise ValueError(f"privacy = {self.privacy!r} {words} {option}")
        return self

    def printed(self, dataset: str, organizations: int | str) -> Printed | None:
        """What the paper reports, if it does."""
        return self.paper.get(str(how_many(dataset, organizations)), {}).get(dataset)


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
    """Where they begin: other seeds judge the same figures anew."""
    facts: list[str] = []
    """What is told of every run, see ``cells.Outcome``; without any the table shows scores."""
    note: str = ""
    glance: list[str] = []
    """Names of the rows that the page shows side by side before everything else."""
    rows: list[RowSpec] = []
    part: str = ""
    """What of it is meant, where it is not the whole table."""

    @model_validator(mode="after")
    def _known_names(self) -> TableSpec:
        """Methods, local models and options are such as the table can have."""
        known_sets, kind = (DEEP_SETS, "deep") if self.deep else (DATASETS, "tabular")
        check_names(f"{kind} data set", self.sets, known_sets)
        check_names("protocol", self.protocols, (OFFICIAL,) if self.deep else PROTOCOLS)
        names = [row.name for row in self.rows]
        if len(set(names)) < len(names):
            raise ValueError(f"rows have the same name: {', '.join(sorted(names))}")
        check_names("row (glance)", self.glance if names else (), names)
        for row in self.rows:
            of = f"of {kind} tables (row {row.name!r})"
            check_names(f"data set {of}", row.sets, known_sets)
            check_names("row to choose among", row.choose_among, names)
            check_names(f"method {of}", [row.method], DEEP_METHODS if self.deep else METHODS)
            check_names(f"local model {of}", row.models, DEEP_MODELS if self.deep else MODELS)
            if row.method == "gal" and not self.deep:
                check_names(f"option {of}", row.options, OPTIONS)
            protected = row.leak or row.privacy is not None
            if protected and (self.deep or row.method != "gal"):
                raise ValueError(f"row {row.name!r}: privacy and leak are for method gal in tabular tables")
        return self

    @property
    def file_name(self) -> str:
        """Of its results, without ending."""
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
                    asked = not row.sets or dataset in row.sets
                    if asked and not (dataset == "Iris" and organizations == 8):  # it has four columns
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
        """How many runs are behind one figure."""
        of_table = self.seeds.get(dataset, 1 if self.deep else 4)
        size = how_many(dataset, organizations)
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
        here = [name for name in kept_sets if not organizations or how_many(name, one) in organizations]
        if here:
            kept_organizations.append(one)
            kept_sets = here if one == "most" else kept_sets
    chosen = [*([table.part] if table.part else []), *map(str, organizations), *protocols, *sets]
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


def how_many(dataset: str, organizations: int | str) -> int | str:
    """The number behind "most".

    >>> how_many("Iris", "most"), how_many("Wine", "most"), how_many("Wine", 2)
    (4, 8, 2)
    """
    return (4 if dataset == "Iris" else 8) if organizations == "most" else organizations


def _by_size(value: BySize, organizations: int | str, default: int) -> int:
    """What is said for so many organizations.

    >>> _by_size({"8": 4}, 8, 1), _by_size({"8": 4}, 2, 1), _by_size(3, "by name", 1)
    (4, 1, 3)
    """
    return value if isinstance(value, int) else value.get(str(organizations), default)


def check_names(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Whether all are known; InvalidInputError, which pydantic takes, too."""
    names = list(known)
    unknown = [name for name in given if name not in names]
    if unknown:
        meant = did_you_mean(unknown[0], names)
        raise InvalidInputError(
            f"no {kind} {', '.join(map(repr, unknown))}; there are: {', '.join(names)}.{meant}"
        )


def read_tables(folder: Path = FOLDER) -> dict[str, TableSpec]:
    """All tables by name, in order."""
    found = [_read_table(one, None) for one in folder.iterdir() if (one / "table.toml").exists()]
    return {one.name: one for one in sorted(found, key=lambda one: one.order)}


def read_own_tables(folder: Path, known: Mapping[str, TableSpec]) -> dict[str, TableSpec]:
    """The tables we have and those of a user's folder; a folder without ``table.toml`` that is called as one
    of ours adds its rows to it.
    """
    folders = [one for one in sorted(folder.glob("*")) if any(one.glob("*.toml"))]
    if not folders:
        raise InvalidInputError(
            f"--rows {str(folder)!r} holds no tables: expected NAME/table.toml with rows beside it, or rows "
            "for one of ours, as NAME/ROW.toml"
        )
    return {**known, **{one.name: _read_table(one, known.get(one.name)) for one in folders}}


def _read_table(folder: Path, ours: TableSpec | None) -> TableSpec:
    """A table with its rows; or one of ours with more rows."""
    path = folder / "table.toml"
    rows = [_read(RowSpec, one, {"name": one.stem}) for one in folder.glob("*.toml") if one != path]
    rows.sort(key=lambda row: (row.order, row.name))
    if path.exists() and ours is not None:
        raise InvalidInputError(
            f"{str(path)!r}: {folder.name} is one of our tables: give yours another name, or leave "
            "table.toml out to add rows to ours"
        )
    if path.exists():
        return _read(TableSpec, path, {"name": folder.name, "rows": rows})
    if ours is None:
        raise InvalidInputError(f"{str(folder)!r} has no table.toml, and there is no table {folder.name}")
    added = {"rows": [*ours.rows, *rows], "part": folder.parent.resolve().name}
    return _checked(TableSpec, folder, dict(ours) | added)


def _read(kind: type[Spec], path: Path, known: Mapping[str, Any]) -> Spec:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"{str(path)!r} is not a TOML file: {error}") from error
    return _checked(kind, path, {**content, **known})


def _checked(kind: type[Spec], path: Path, content: Mapping[str, Any]) -> Spec:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidInputError(f"{str(path)!r}: {place or 'content'}: {first['msg']}") from error
