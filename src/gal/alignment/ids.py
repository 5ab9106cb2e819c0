"""Row ids: one column that names every row of an organization, checked once where it is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from gal.errors import AlignmentError

Kind = Literal["integer", "text"]
EXACT = 2**53
"""Whole numbers up to here are exact as floats; larger ones may be another id than was meant."""
FEW = 100
"""So many ids are compared without pandas, which takes longer for a row or two than all else of a request."""
OTHERS = 'use a column of whole numbers or text, or make it text: row_id_type = "text"'
"""What to do about a column whose type cannot name rows."""


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
    """The ids in ``column``: an Arrow array, a numpy array, a pandas series or
    a list; ``name`` is for errors.

    Whole numbers come out as integers, also where they are kept as floats or decimals; text stays as it is.
    """
    whose = f"organization {organization!r}, row ids {name!r}"
    values = _plain_values(column, whose)
    if len(values) == 0:
        raise AlignmentError(f"{whose}: there are no rows; put data into the source")
    _refuse_missing(values, whose)
    kind, values = _one_kind(values, whose)
    _refuse_duplicates(values, whose)
    values.flags.writeable = False
    return RowIds(kind, values)


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


def check_overlap(n_shared: int, n_asked: int, organization: str, label_holder: str) -> None:
    """An error where an organization knows none of the label holder's rows."""
    if n_shared == 0:
        raise AlignmentError(
            f"organization {organization!r} knows none of the {n_asked} rows of {label_holder!r}. "
            "Check that row_id names the same kind of id at both, written in the same way"
        )


def _plain_values(column: Any, whose: str) -> NDArray[Any]:
    """A numpy array (n,) that is nobody else's; missing values are NaN in floats and None or NaN in objects.

    Of one piece of Arrow's numbers it is over the same memory, which may be a file's.
    """
    if hasattr(column, "null_count") and hasattr(column, "type"):
        return _from_arrow(column, whose)
    if isinstance(column, list | tuple):  # numpy would make text of [1, "a"], and nothing of [1, [2, 3]]
        listed = np.empty(len(column), dtype=object)
        for place, value in enumerate(column):
            listed[place] = value
        return listed
    values = np.array(column.to_numpy() if hasattr(column, "to_numpy") else column)
    if values.ndim != 1:
        raise AlignmentError(f"{whose}: expected one column, got an array of shape {values.shape}")
    return values


def _from_arrow(column: Any, whose: str) -> NDArray[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_null(column.type):
        column = column.cast(pa.string())
    kind = column.type
    if types.is_unsigned_integer(kind) or types.is_decimal(kind):
        if types.is_decimal(kind) and kind.scale > 0 and not _is_whole(column):
            raise AlignmentError(f"{whose}: some of these numbers are no whole numbers; {OTHERS}")
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise AlignmentError(f"{whose}: some numbers are too large for 64 bits; {OTHERS}") from error
    elif not (types.is_integer(kind) or types.is_floating(kind) or _is_text(types, kind)):
        raise AlignmentError(f"{whose}: {kind} cannot name rows; {OTHERS}")
    if column.null_count:
        first = int(pc.index(pc.is_null(column), True).as_py())
        raise AlignmentError(_missing(column.null_count, first, whose))
    if hasattr(column, "chunks") and column.num_chunks == 1:
        column = column.chunk(0)
    return np.asarray(
        column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(zero_copy_only=False)
    )


def _is_whole(column: Any) -> bool:
    import pyarrow.compute as pc

    return bool(pc.all(pc.equal(pc.floor(column), column)).as_py() is not False)


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _refuse_missing(values: NDArray[Any], whose: str) -> None:
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    elif values.dtype.kind == "O":
        import pandas as pd

        missing = np.asarray(pd.isna(values)) | (values == "")
    else:
        return
    if missing.any():
        raise AlignmentError(_missing(int(missing.sum()), int(missing.argmax()), whose))


def _missing(count: int, first: int, whose: str) -> str:
    return (
        f"{whose}: {count} {'row has' if count == 1 else 'rows have'} no id, the first is row {first + 1}. "
        "Give every row an id, or leave these rows out"
    )


def _one_kind(values: NDArray[Any], whose: str) -> tuple[Kind, NDArray[Any]]:
    """Integers as int64, or text as objects; anything else is refused."""
    if values.dtype.kind == "O":
        kinds = Counter("integer" if _is_integer(one) else type(one).__name__ for one in values)
        if set(kinds) == {"str"}:
            return "text", _encodable(values, whose)
        if len(kinds) > 1 and set(kinds) != {"integer", "float"}:
            found = ", ".join(f"{count} of type {kind}" for kind, count in kinds.most_common())
            raise AlignmentError(f"{whose}: ids of mixed types: {found}; {OTHERS}")
        values = _numbers(values, next(iter(kinds)), whose)
    if values.dtype.kind in "US":
        return "text", _encodable(values.astype(np.str_).astype(object), whose)
    if values.dtype.kind == "f":
        values = _whole(values, whose)
    if values.dtype.kind not in "iu":
        raise AlignmentError(f"{whose}: {values.dtype} cannot name rows; {OTHERS}")
    if values.dtype.kind == "u" and int(values.max()) >= 2**63:
        raise AlignmentError(f"{whose}: {values.max()} is too large for 64 bits; {OTHERS}")
    return "integer", values.astype(np.int64, copy=False)


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)


def _numbers(values: NDArray[Any], kind: str, whose: str) -> NDArray[Any]:
    """Objects that are numbers as an array of numbers."""
    if kind not in {"integer", "float", "float64"}:
        raise AlignmentError(f"{whose}: values of type {kind} cannot name rows; {OTHERS}")
    try:
        return np.array(values.tolist())
    except OverflowError as error:
        raise AlignmentError(f"{whose}: some numbers are too large for 64 bits; {OTHERS}") from error


def _whole(values: NDArray[Any], whose: str) -> NDArray[np.int64]:
    """Floats as integers, where each stands for exactly one."""
    broken = ~(np.isfinite(values) & (np.floor(values) == values))
    if broken.any():
        at = int(broken.argmax())
        raise AlignmentError(f"{whose}: {values[at]} in row {at + 1} is no whole number; {OTHERS}")
    vague = np.abs(values) > EXACT
    if vague.any():
        at = int(vague.argmax())
        raise AlignmentError(
            f"{whose}: {values[at]:.0f} in row {at + 1} is kept as a float and too large to be exact; "
            f"{OTHERS}"
        )
    return cast("NDArray[np.int64]", values.astype(np.int64))


def _encodable(values: NDArray[Any], whose: str) -> NDArray[Any]:
    """Text that can travel as UTF-8; a half of a surrogate pair cannot."""
    try:
        "".join(values).encode()
    except UnicodeEncodeError as error:
        raise AlignmentError(f"{whose}: some text is not valid Unicode: {error.reason}") from error
    return values


def _refuse_duplicates(values: NDArray[Any], whose: str) -> None:
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
            f"{whose}: {count} {'row has' if count == 1 else 'rows have'} an id that another row has too, "
            "such as "
            f"{value!r:.80} in rows {rows[0]} and {rows[1]}. Keep one row for each id"
        )
