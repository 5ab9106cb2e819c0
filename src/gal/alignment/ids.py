"""Row ids: one column that names every row of an organization, checked on reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gal.errors import AlignmentError

Kind = Literal["integer", "text"]
EXACT = 2**53
"""Whole numbers up to here are exact as floats; larger ones may become another id."""
FEW = 100
"""Ids that are compared without pandas, whose overhead exceeds the rest of a small request."""
OTHERS = 'use a column of whole numbers or text, or make it text: row_id_type = "text"'
"""The remedy for a column whose type cannot name rows."""


@dataclass(frozen=True, eq=False)
class RowIds:
    """Ids of all rows in their order, each once: ``values`` (n,) int64, or objects that are str."""

    kind: Kind
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    def take(self, positions: NDArray[np.intp]) -> RowIds:
        """The ids at these positions, in their order."""
        return RowIds(self.kind, self.values[positions])


def row_ids(column: Any, organization: str, name: str) -> RowIds:
    """The ids in ``column``, an Arrow array or values of one; ``name`` is for errors.

    Whole numbers become integers, also from floats or decimals; text stays as it is. One chunk of Arrow's
    numbers keeps its memory, which may be a file's.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    whose = f"organization {organization!r}, row ids {name!r}"
    try:
        found = column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column)
        if pa.types.is_dictionary(found.type):
            found = found.cast(found.type.value_type)
    except (ValueError, TypeError, OverflowError) as error:  # Arrow's errors are such, too
        raise AlignmentError(f"{whose}: these values cannot name rows ({error}); {OTHERS}") from error
    if len(found) == 0:
        raise AlignmentError(f"{whose}: there are no rows; put data into the source")
    types, kind = pa.types, found.type
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if not (is_text or is_number or types.is_null(kind)):
        raise AlignmentError(f"{whose}: {kind} cannot name rows; {OTHERS}")
    missing = pc.is_null(found, nan_is_null=True)
    if is_text:
        missing = pc.or_(missing, pc.fill_null(pc.equal(found, pa.scalar("", kind)), False))
    if (count := pc.sum(missing).as_py()) > 0:
        raise AlignmentError(
            f"{whose}: {count} {'row has' if count == 1 else 'rows have'} no id, the first is row "
            f"{pc.index(missing, True).as_py() + 1}. Give every row an id, or leave these rows out"
        )
    if types.is_floating(kind) and (largest := pc.max(pc.abs(found)).as_py()) > EXACT:
        raise AlignmentError(f"{whose}: {largest:.0f} is a float and too large to be exact; {OTHERS}")
    if is_number:
        try:
            found = found.cast(pa.int64())
        except pa.ArrowInvalid as error:
            why = f"some are no whole numbers of 64 bits ({error})"
            raise AlignmentError(f"{whose}: {why}; {OTHERS}") from error
    if isinstance(found, pa.ChunkedArray) and found.num_chunks == 1:
        found = found.chunk(0)
    many = isinstance(found, pa.ChunkedArray)
    values = np.asarray(found.to_numpy() if many else found.to_numpy(zero_copy_only=False))
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        values = values.copy()  # not the caller's memory
    _refuse_duplicates(values, whose)
    values.flags.writeable = False
    return RowIds("text" if is_text else "integer", values)


def check_same_kind(own: RowIds, other_kind: str, organization: str, other: str) -> None:
    """An error where one side's ids are integers and the other's are text: none would ever be equal."""
    if own.kind == other_kind:
        return
    integers, texts = (organization, other) if own.kind == "integer" else (other, organization)
    raise AlignmentError(
        f"row ids are of different types: integers at organization {integers!r}, text at {texts!r}. "
        f'Let {integers!r} set row_id_type = "text" in its node.toml, or {texts!r} set row_id_type = '
        '"integer"'
    )


def check_overlap(n_shared: int, n_requested: int, organization: str, label_holder: str) -> None:
    """An error where an organization knows none of the label holder's rows."""
    if n_shared == 0:
        raise AlignmentError(
            f"organization {organization!r} knows none of the {n_requested} rows of {label_holder!r}. "
            "Check that row_id names the same kind of id at both, written in the same way"
        )


def _refuse_duplicates(values: NDArray[Any], owner: str) -> None:
    if len(values) <= FEW and len(set(values.tolist())) == len(values):
        return
    if values.dtype.kind == "i":  # in less memory than pandas' table
        ordered = np.sort(values)
        if not (ordered[1:] == ordered[:-1]).any():
            return
    import pandas as pd

    again = np.asarray(pd.Series(values, dtype=values.dtype, copy=False).duplicated())
    if again.any():
        count, value = int(again.sum()), values[[again.argmax()]].tolist()[0]
        rows = np.flatnonzero(values == value)[:2] + 1
        raise AlignmentError(
            f"{owner}: {count} {'row has' if count == 1 else 'rows have'} an id that another row has too, "
            f"such as {value!r:.80} in rows {rows[0]} and {rows[1]}. Keep one row for each id"
        )
