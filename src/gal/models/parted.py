"""Views without data in memory: ``View`` is their contract, ``PartedView`` a table in Parquet partitions.

A partitioned view has paths, row counts and positions. Its rows stay in files until a partition is read, in
this process or on a worker of a cluster; ``view[rows]`` is again such a view, in the given order.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidInputError, LocalModelError

PART_ROWS = 100_000
"""Rows of a part; the last one may have fewer."""
START = b'{"parted view": '
"""The first bytes of a manifest."""

Floats32 = NDArray[np.float32]
Positions = NDArray[np.intp]


class View(Protocol):
    """The contract of a view: the number of rows, and a selection of them. Its data is never read.

    A view that is neither array nor frame is passed to its local model as it is, or as the model's
    ``prepare`` returns it. It may have other attributes, such as ``columns``.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first, then columns (or more axes)."""

    def __getitem__(self, rows: Any) -> Any:
        """The rows at these positions, in their order, as a view of the same kind."""


@dataclass(frozen=True)
class PartColumn:
    """A column of a partitioned view: numbers, or text as codes of these categories."""

    name: str
    categories: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class ViewPart:
    """Consecutive rows: a Parquet file, or numbers."""

    n_rows: int
    path: str = ""
    digest: str = ""
    values: Floats32 | None = None

    def read(self) -> Floats32:
        """The rows as float32 (n, d), with codes for categories; NaN for missing and infinite values."""
        if self.values is not None:
            return self.values
        import pyarrow as pa
        import pyarrow.parquet as pq

        content = Path(self.path).read_bytes()
        if hashlib.sha256(content).hexdigest() != self.digest:
            raise LocalModelError(
                f"the part {self.path!r} is not the file that was written when the version began: "
                "learn a new version"
            )
        table = pq.read_table(pa.BufferReader(content))
        found = np.empty((table.num_rows, table.num_columns), dtype=np.float32)
        for j, column in enumerate(table.columns):
            with np.errstate(over="ignore"):
                found[:, j] = column.to_numpy()  # whole numbers with nulls become floats with NaN
        found[np.isinf(found)] = np.nan
        return found


class PartRows(NamedTuple):
    """The rows of a view in one partition."""

    number: int
    """The number of the partition."""
    part: ViewPart
    inside: Positions | None
    """Positions in the partition, in the view's order; None: all of them."""
    places: Positions
    """Positions in the view."""


class PartedView:
    """A table (n, d) in partitions, or some of its rows: paths, row counts and positions."""

    def __init__(
        self, columns: Sequence[PartColumn], parts: Sequence[ViewPart], rows: Positions | None = None
    ) -> None:
        """``rows``: positions among all rows of the partitions; None: all of them."""
        self.features, self._parts, self._rows = tuple(columns), tuple(parts), rows
        self._starts = np.concatenate([[0], np.cumsum([part.n_rows for part in self._parts])]).astype(np.intp)
        n_rows = int(self._starts[-1]) if rows is None else len(rows)
        self.shape: tuple[int, int] = (n_rows, len(self.features))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Self:
        every = np.arange(len(self)) if self._rows is None else self._rows
        return type(self)(self.features, self._parts, np.asarray(every[rows], dtype=np.intp))

    @property
    def whole(self) -> PartedView:
        """All rows of the partitions, in their order."""
        return PartedView(self.features, self._parts)

    def parts(self) -> Iterator[PartRows]:
        """The partitions with rows of this view, in their order."""
        if self._rows is None:
            for index, part in enumerate(self._parts):
                yield PartRows(index, part, None, np.arange(self._starts[index], self._starts[index + 1]))
            return
        which = np.searchsorted(self._starts, self._rows, side="right") - 1
        order = np.argsort(which, kind="stable")
        edges = np.searchsorted(which[order], np.arange(len(self._parts) + 1))
        for index, part in enumerate(self._parts):
            places = order[edges[index] : edges[index + 1]]
            if len(places):
                yield PartRows(index, part, self._rows[places] - self._starts[index], places)

    def read(self) -> Floats32:
        """All rows of this view in memory, as float32 (n, d)."""
        values = np.empty(self.shape, dtype=np.float32)
        for found in self.parts():
            rows = found.part.read()
            values[found.places] = rows if found.inside is None else rows[found.inside]
        return values


def write_parts(
    manifest: Path,
    columns: Sequence[PartColumn],
    tables: Iterable[Any],
    write: Callable[[Path, bytes], Any] = Path.write_bytes,
) -> None:
    """Write pyarrow tables (float64, or int32 codes for categories) as partitions beside ``manifest``.

    Earlier partitions of that name are deleted. The manifest is written last, each file by ``write``.
    """
    import pyarrow.parquet as pq

    for old in manifest.parent.glob(f"{manifest.name}.*.parquet"):
        old.unlink()
    parts = []
    for number, table in enumerate(tables):
        file = io.BytesIO()
        pq.write_table(table, file)
        content, path = file.getvalue(), manifest.with_name(f"{manifest.name}.{number:06d}.parquet")
        write(path, content)
        parts.append(
            {"file": path.name, "rows": table.num_rows, "sha256": hashlib.sha256(content).hexdigest()}
        )
    facts = {"parted view": 1, "columns": [asdict(one) for one in columns], "parts": parts}
    write(manifest, json.dumps(facts).encode())


def open_parts(manifest: Path) -> PartedView:
    """The view that ``write_parts`` wrote, without reading its rows."""
    try:
        facts = json.loads(manifest.read_bytes())
        if facts["parted view"] != 1:
            raise InvalidInputError(f"{str(manifest)!r} is of format {facts['parted view']!r}, expected 1")
        columns = [
            PartColumn(one["name"], None if one["categories"] is None else tuple(one["categories"]))
            for one in facts["columns"]
        ]
        beside = manifest.absolute().parent
        parts = [ViewPart(one["rows"], str(beside / one["file"]), one["sha256"]) for one in facts["parts"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"the view in {str(manifest)!r} cannot be read: {error}") from error
    return PartedView(columns, parts)


def takes_parts(model: Any) -> bool:
    """Whether a local model, also inside wrappers, wants a ``PartedView``: ``takes_parts = True``."""
    return bool(getattr(model, "takes_parts", False)) or (
        hasattr(model, "estimator") and takes_parts(model.estimator)
    )


def in_parts(values: Floats32, columns: Sequence[PartColumn], part_rows: int = PART_ROWS) -> PartedView:
    """A partitioned view of numbers in memory, with codes for categories."""
    starts = range(0, max(len(values), 1), part_rows)
    parts = [
        ViewPart(len(one), values=one) for one in (values[start : start + part_rows] for start in starts)
    ]
    return PartedView(columns, parts)
