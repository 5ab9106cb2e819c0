"""The section [data] of ``node.toml``: the source of rows, and the roles of columns.

Rows are in a file, a folder of Parquet files, a bucket (``s3://``) or PostgreSQL (``postgresql://``). A
password is never in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from gal.errors import suggestion
from gal.models.tabular.columns import DECLARED

PASSWORD_VARIABLE = "GAL_DATA_PASSWORD"
"""The environment variable with the password of a database."""

DATABASES = ("postgresql", "postgres")

LAKES = ("s3",)

FILES = {".csv", ".tsv", ".txt", ".parquet", ".pq", ".xlsx", ".xlsm"}
PACKED = {".csv", ".tsv", ".txt"}
"""Those that may be compressed by gzip, such as rows.csv.gz."""
SECRET_WORDS = re.compile(r"pass(word|wd|phrase)?|secret|token|credential|private_key|access_key", re.I)


def _inside_home(value: object, info: ValidationInfo) -> object:
    """A path relative to the home folder; an absolute one as it is."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected the path of a file, got {value!r:.80}")
    return (info.context or {}).get("home", Path()) / Path(value).expanduser()


def scheme_of(source: str) -> str | None:
    """The part before :// of an address; None for a path."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", source)
    return found[1].lower() if found else None


def _source(value: object, info: ValidationInfo) -> object:
    """The path of a file or folder, relative to the home folder; an address as it is, without secrets."""
    if not isinstance(value, str) or scheme_of(value) is None:
        return _inside_home(value, info)
    if (secret := _secret_in(value)) is not None:  # the value is not repeated: it is a secret
        raise ValueError(
            f"the address has {secret} in it, and node.toml is no place for secrets: take it out, change it if "
            f"others have seen it, and give it in the variable {PASSWORD_VARIABLE}, in a file (password_file) or, "
            "for PostgreSQL, in .pgpass"
        )
    return value


def _secret_in(address: str) -> str | None:
    """The name of a secret in an address."""
    try:
        parts = urlsplit(address)
    except ValueError:  # its message would repeat the secret
        raise ValueError(
            "the address cannot be parsed: it has a bracket, or another character, too much"
        ) from None
    if parts.password is not None:
        return "a password"
    named = [name for text in (parts.query, parts.fragment) for name, _ in parse_qsl(text)]
    return next((f"its option {name}" for name in named if SECRET_WORDS.search(name)), None)


def _endpoint(value: str) -> str:
    if not re.fullmatch(r"(https?://)?(\[[0-9a-f:]+\]|[\w.-]+)(:[1-9]\d{0,4})?/?", value, re.I):
        raise ValueError(
            "expected the address of a store alone, such as https://minio.example:9000; its keys are in the "
            "variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return value


def _features(value: object) -> object:
    if value == "all":
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(one, str) and one for one in value):
        return tuple(value)
    raise ValueError(f'expected "all" or a list of columns such as ["age", "bp"], got {value!r:.80}')


def _is_named_as_file(path: Path) -> bool:
    kinds = [one.lower() for one in path.suffixes[-2:]]
    packed = len(kinds) == 2 and kinds[1] == ".gz" and kinds[0] in PACKED
    return packed or path.suffix.lower() in FILES


def _column_kind(value: str) -> str:
    if value not in DECLARED:
        raise ValueError(
            f"no kind of column is called {value!r:.40}.{suggestion(value, DECLARED)} "
            f"Choose one of {', '.join(DECLARED)}"
        )
    return value


ColumnKind = Annotated[str, AfterValidator(_column_kind)]
FilePath = Annotated[Path, BeforeValidator(_inside_home)]
Filled = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A section of ``node.toml``: frozen, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class DataSource(Section):
    """The source of rows, a path or an address; and the roles of columns."""

    source: Annotated[Path | str, BeforeValidator(_source)]
    sql: Filled | None = None
    """A query of the database, instead of ``table``."""
    table: Filled | None = None
    password_file: FilePath | None = None
    endpoint: Annotated[str, AfterValidator(_endpoint)] | None = None
    region: Filled | None = None
    timeout: Annotated[float, Field(gt=0, le=86400)] = 600.0
    """Seconds that one reading of a database may take."""
    row_id: Filled
    row_id_type: Literal["text", "integer"] | None = None
    features: Annotated[tuple[str, ...] | Literal["all"], BeforeValidator(_features)] = "all"
    columns: Mapping[str, ColumnKind] = Field(default_factory=dict)
    """Kinds of columns, where the default model would guess wrong."""
    label: Filled | None = None
    secret_file: FilePath | None = None

    @property
    def path(self) -> Path | None:
        """The file or folder of a source on this machine's disk."""
        return self.source if isinstance(self.source, Path) else None

    @property
    def address(self) -> str | None:
        """The address of a database or a bucket."""
        return self.source if isinstance(self.source, str) else None

    @property
    def is_database(self) -> bool:
        """Whether rows are in PostgreSQL."""
        return self.address is not None and not self.is_bucket

    @property
    def is_bucket(self) -> bool:
        """Whether rows are Parquet files in an object store."""
        return self.address is not None and scheme_of(self.address) in LAKES

    @property
    def is_lake(self) -> bool:
        """Whether rows are Parquet files in a folder or an object store."""
        path = self.path
        return self.is_bucket or (path is not None and (self.file is None or path.is_dir()))

    @property
    def file(self) -> Path | None:
        """The path with the name of a file, which a folder may have, too."""
        path = self.path
        return path if path is not None and _is_named_as_file(path) else None

    @property
    def is_streamed(self) -> bool:
        """Whether rows are always streamed, and never in memory as a whole."""
        return self.is_database or self.is_lake

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        for wrong, why in self._rules():
            if wrong:
                raise ValueError(why)
        return self

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Violations, such as a key for another kind of source."""
        path, scheme = self.path, scheme_of(self.address or "")
        known = ", ".join(f"{one}://" for one in (*DATABASES, *LAKES))
        is_rows = path is None or path.suffix == "" or _is_named_as_file(path) or path.is_dir()
        features = () if self.features == "all" else self.features
        twice = [one for one in features if features.count(one) > 1]
        yield (
            self.is_database and scheme not in DATABASES,
            f"no kind of source is called {scheme}://; there are {known}",
        )
        yield (
            self.is_database and (self.sql is None) == (self.table is None),
            'a database needs either table, such as table = "patients", or sql (a query), and not both',
        )
        yield (
            not is_rows,
            f"source must end in .csv, .parquet or .xlsx (or .csv.gz), got {getattr(path, 'name', '')!r}: save "
            "another spreadsheet as .xlsx or as CSV UTF-8 first",
        )
        for name in ("table", "sql", "password_file"):
            yield (
                getattr(self, name) is not None and not self.is_database,
                f"{name} is for databases: it needs a source such as postgresql://host/name",
            )
        for name in ("endpoint", "region"):
            yield (
                getattr(self, name) is not None and not self.is_bucket,
                f"{name} is for object stores: it needs a source such as s3://bucket/folder",
            )
        yield (
            self.label == self.row_id,
            f"label and row_id are both {self.label!r}; the label is a column of its own",
        )
        yield (twice, f"features has {next(iter(twice), '')!r} more than once")
        for role, column in (("label", self.label), ("row_id", self.row_id)):
            yield (column in features, f"features has {column!r}, which is the {role} and can be no feature")
