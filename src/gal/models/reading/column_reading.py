"""The reading of a table column by column, for users to check before learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gal.errors import InvalidColumnsError, InvalidInputError, printable, suggestion
from gal.models.reading.converting import named_parts, parts_of, reading_of
from gal.models.reading.deciding import ALONE, ALONE_BY_NAME, ENOUGH, ID_NAME
from gal.models.reading.texts import MEASURES, Texts, texts_of
from gal.models.reading.written_numbers import SPACES, marks_missing
from gal.models.tabular.columns import DECLARED, LEFT_OUT, HowRead, Kind, as_numbers, is_number

if TYPE_CHECKING:
    import pandas as pd

EXAMPLES, EXAMPLE_LENGTH = 3, 24
FEW_ROWS = 50_000
"""Rows of a larger table in which missing values are counted."""
FIRST_ROWS = 10_000
"""Rows for examples."""


@dataclass(frozen=True)
class ColumnReading:
    """The reading of one column."""

    name: str
    kind: Kind
    missing: float
    """Share of the rows without a readable value."""
    examples: tuple[str, ...]
    """Some values as text."""
    done: str
    """The conversion in a few words."""
    declared: bool = False
    """Whether the user declared its kind."""
    reading: HowRead | None = field(default=None, repr=False)
    """How new rows are read; None where the column is used as it is."""

    @property
    def left_out(self) -> bool:
        """Whether no model uses it."""
        return self.kind in LEFT_OUT

    @property
    def is_plain(self) -> bool:
        """Whether it was a column of numbers already."""
        return self.reading is None and self.kind == "number"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        facts = asdict(self)
        del facts["reading"]
        return {**facts, "examples": list(self.examples)}


def column_readings(frame: pd.DataFrame, kinds: Mapping[str, str] | None = None) -> list[ColumnReading]:
    """The reading of each column; ``kinds`` declares the kinds of some.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"income": ["$1,234.50", "$900.00", "unknown"], "member": ["yes", "no", "Yes"]})
    >>> [(one.name, one.kind, one.examples[0]) for one in column_readings(table)]
    [('income', 'number', '$1,234.50'), ('member', 'boolean', 'yes')]
    """
    declared = checked_kinds(kinds or {}, [str(name) for name in frame.columns])
    return [
        _read(frame.iloc[:, place], str(name), declared.get(str(name)))
        for place, name in enumerate(frame.columns)
    ]


def checked_kinds(kinds: Mapping[str, str], names: list[str]) -> dict[str, str]:
    """Declared kinds; an error for unknown columns and kinds."""
    for name, kind in kinds.items():
        if kind not in DECLARED:
            raise InvalidInputError(
                f"column {name!r}: no kind is called {kind!r}.{suggestion(kind, DECLARED)} "
                f"Choose one of {', '.join(DECLARED)}"
            )
        if name not in names:
            raise InvalidColumnsError(
                f"no column is called {name!r}.{suggestion(name, names)} There are {', '.join(names[:20])}"
            )
    return dict(kinds)


def _read(column: pd.Series[Any], name: str, declared: str | None) -> ColumnReading:
    reading = reading_of(column, name, declared)
    if reading is None:
        return _typed_reading(column, name, declared)
    looked_at = column.iloc[:: -(-len(column) // FEW_ROWS)] if len(column) else column
    missing = _share_missing(looked_at, reading)
    if declared is not None and missing == 1 and reading.kind not in LEFT_OUT and column.notna().any():
        raise InvalidColumnsError(
            f"column {name!r} cannot be read as {declared}: none of its values is one, such as "
            f"{_examples(column)[0]!r}. Name another kind, or none"
        )
    done = _done(reading, looked_at)
    return ColumnReading(name, reading.kind, missing, _examples(column), done, declared is not None, reading)


def _typed_reading(column: pd.Series[Any], name: str, declared: str | None) -> ColumnReading:
    """The reading of a column of numbers, or of categories of pandas."""
    import pandas as pd

    kind: Kind = "number"
    missing, distinct = float(column.isna().mean()), int(column.nunique()) if column.dtype != object else 3
    done, reading = "as it is", None
    if missing == 1:
        kind, done = "empty", "left out: no value"
    elif not is_number(column):
        kind, done = "category", "as it is" if distinct > 1 or missing else "left out: one value in every row"
    elif pd.api.types.infer_dtype(column, skipna=True) == "boolean":
        kind = "boolean"
    elif distinct == 1 and missing == 0:
        kind, done = "constant", "left out: one value in every row"
    elif declared is None and _numbers_rows(column, name, distinct):
        kind, done, reading = "id", "left out: it names rows", HowRead("id")
    elif declared is not None and declared in {"boolean", "duration", "time"}:
        kind = declared  # type: ignore[assignment]
    return ColumnReading(name, kind, missing, _examples(column), done, declared is not None, reading)


def _numbers_rows(column: pd.Series[Any], name: str, distinct: int) -> bool:
    """Whether whole numbers are distinct and are named so, or count up by one: they name rows."""
    import pandas as pd

    known = column.dropna()
    named = ID_NAME.search(name) is not None
    least = ALONE_BY_NAME if named else ALONE
    if len(known) < (2 if named else ENOUGH) or distinct < least * len(known):
        return False
    if not pd.api.types.is_integer_dtype(column) and not bool((as_numbers(known) % 1 == 0).all()):
        return False
    return named or bool((np.diff(as_numbers(known)) == 1).all())


def _share_missing(column: pd.Series[Any], reading: HowRead) -> float:
    if reading.kind in LEFT_OUT or reading.kind in {"category", "text"}:
        return float(column.isna().mean()) if reading.kind != "empty" else 1.0
    return float(np.isnan(as_numbers(parts_of(column, reading)[0])).mean())


def _examples(column: pd.Series[Any]) -> tuple[str, ...]:
    """The first distinct values."""
    known = column.iloc[:FIRST_ROWS].dropna().drop_duplicates() if _comparable(column) else column.dropna()
    texts = [_text(one) for one in known.iloc[: EXAMPLES * 4].tolist()]
    present = [one for one in texts if not marks_missing(one)]
    if len(present) < EXAMPLES:
        present = list(dict.fromkeys([*present, *texts]))
    return tuple(shown(one) for one in present[:EXAMPLES])


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e6 else f"{value:.6g}"
    return str(value).removesuffix(" 00:00:00")


def _comparable(column: pd.Series[Any]) -> bool:
    return not any(isinstance(one, list | dict | set | np.ndarray) for one in column.iloc[:3])


def shown(text: str, most: int = EXAMPLE_LENGTH) -> str:
    """Text on one line, with control characters escaped, cut where it is long.

    >>> shown("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    plain = printable(text.translate(SPACES))
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def _done(reading: HowRead, column: pd.Series[Any]) -> str:
    """The conversion in a few words."""
    texts = None if is_number(column) else texts_of(column)
    done = {
        "id": "left out: it names rows",
        "constant": "left out: one value in every row",
        "empty": "left out: no value",
        "boolean": "yes is 1, no is 0",
        "time": "hours of the day",
        "duration": "made numbers",
        "category": "as it is",
    }.get(reading.kind)
    if reading.kind in {"date", "numbers"}:
        done = " + ".join(part.name for part in named_parts(column.iloc[:0], reading))
    elif reading.kind == "text":
        words = len(reading.how["words"])
        done = f"measures ({', '.join(MEASURES[:3])} ...)" + (f" and {words} frequent words" if words else "")
    elif reading.kind == "number":
        done = _done_to_numbers(reading)
    assert done is not None
    if texts is not None and reading.kind not in LEFT_OUT | {"category", "text"}:
        done += _unread(texts, reading)
    return done


def _done_to_numbers(reading: HowRead) -> str:
    how, done = reading.how, "made numbers"
    if how.get("names"):
        return "numbers, and each a category"
    if how["decimal"] == ",":
        done += ", decimal comma"
    if how["larger"]:
        done += ", k and M multiplied"
    if len(how["units"]) == 1:
        done += f", unit {shown(how['units'][0])}"
    elif how["units"]:
        done += f"; units ({', '.join(map(shown, how['units'][:4]))}) are a category beside"
    if how["words"]:
        done += f"; words ({', '.join(map(shown, how['words'][:4]))}) are a category beside"
    return done


def _unread(texts: Texts, reading: HowRead) -> str:
    """The values that count as missing: marks of missing values, and unreadable ones."""
    import pandas as pd

    first = as_numbers(parts_of(pd.Series(texts.values, dtype=object), reading)[0])
    words = set(reading.how.get("words", ()))
    lost = [
        one for one, value in zip(texts.values, first.tolist(), strict=True) if value != value and one.strip()
    ]
    lost = list(dict.fromkeys(shown(one, 16) for one in lost if one.strip().casefold() not in words))
    if not lost:
        return ""
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return f"; {', '.join(map(repr, lost[:3]))}{more} count as missing"
