"""A view where its model is fitted, and tables as such a model sees them: float32, codes for categories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gal.errors import InvalidOptionError
from gal.models.cluster.placement import Cluster, Here
from gal.models.parted import Floats32, PartColumn, PartedView, in_parts
from gal.models.tabular import TableEncoder
from gal.models.tabular.column_values import columns_of, frequent, is_number
from gal.models.tabular.frames import as_table

Place = Cluster | Here


class HeldView:
    """A parted view whose parts stay in the memory of workers for as long as this exists."""

    def __init__(self, view: PartedView, place: Place, known: dict[str, Any] | None = None) -> None:
        self.view, self.place = view, place
        self.known: dict[str, Any] = {} if known is None else known
        """By rows: what a model has computed of the columns, which stay the same in all rounds."""
        self.shape = view.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> HeldView:
        return HeldView(self.view[rows], self.place, self.known)


def place_of(model: Any, scheduler: str | None, shards: int, attempts: int, patience: float) -> Place:
    """Where a model computes: behind this scheduler, or in this process."""
    if attempts < 1 or shards < 1 or patience <= 0:
        raise InvalidOptionError(
            f"{type(model).__name__}: attempts and shards must be at least 1 and patience more than 0 "
            f"seconds, got {attempts}, {shards} and {patience}"
        )
    if scheduler is None:
        return Here(shards)
    return Cluster(scheduler, shards=shards, attempts=attempts, patience=patience)


def hold(X: Any, place: Callable[[], Place]) -> tuple[HeldView, TableEncoder]:
    """The view where it is fitted, and what turns tables into its numbers and categories."""
    if isinstance(X, HeldView | PartedView):
        held = X if isinstance(X, HeldView) else HeldView(X, place())
        return held, _encoder_of(held.view.features)
    table = as_table(X)
    every = np.ones(len(table))
    texts = [[] if is_number(column) else frequent(column, every) for column in columns_of(table)]
    columns = [PartColumn(str(j), tuple(categories) or None) for j, categories in enumerate(texts)]
    encoder = _encoder_of(columns)
    return HeldView(in_parts(_numbers(table, encoder), columns), place()), encoder


def as_codes(X: Any, encoder: TableEncoder, model: Any) -> Floats32:
    """A table as the model was fitted to one: float32, codes for categories."""
    table = as_table(X)
    if table.shape[1] != len(encoder.is_category_):
        raise ValueError(
            f"X has {table.shape[1]} features, but {type(model).__name__} is expecting "
            f"{len(encoder.is_category_)} features as input"
        )
    return _numbers(table, encoder)


def _numbers(table: Any, encoder: TableEncoder) -> Floats32:
    with np.errstate(over="ignore"):
        numbers = encoder.codes(table).astype(np.float32)
    numbers[np.isinf(numbers)] = np.nan
    return np.ascontiguousarray(numbers)


def _encoder_of(columns: Sequence[PartColumn]) -> TableEncoder:
    """Turns tables into numbers and the codes of these categories."""
    encoder = TableEncoder()
    encoder.categories_ = [list(one.categories or ()) for one in columns]
    encoder.is_category_ = [bool(categories) for categories in encoder.categories_]
    encoder.says_nothing_ = [False] * len(columns)
    return encoder
