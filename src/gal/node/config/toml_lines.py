"""On which line of a TOML file a key is, and what is wrong there, for errors that people can act on.

``tomllib`` gives values without their places. Statements are found again by asking it, line after
line, whether what has been read so far is complete: the file is known to be valid, so the first
complete piece is the statement.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

Place = tuple[str, ...]
CLOSING = ("]", "}", '"""', "'''")
"""A statement of several lines can only end on a line with one of these."""


def lines_of_keys(text: str) -> dict[Place, int]:
    """The line, from 1, of every table and key of a valid TOML text, by its full path."""
    found: dict[Place, int] = {}
    table: Place = ()
    for number, statement in _statements(text.splitlines()):
        content = tomllib.loads(statement)
        is_header = statement.lstrip().startswith("[")
        places = list(_places(content))
        if is_header:
            table = places[-1]
        for place in places:
            found.setdefault(place if is_header else table + place, number)
    return found


def line_of(text: str, place: Sequence[str | int]) -> int:
    """The line of a key, or where it is not in the text, of the table or key
    that it belongs to; at least 1.
    """
    lines = lines_of_keys(text)
    names = tuple(str(part) for part in place)
    return next((lines[names[:end]] for end in range(len(names), 0, -1) if names[:end] in lines), 1)


def errors_by_line(file: str, text: str, error: ValidationError, model: type[BaseModel]) -> str:
    """All errors of a validation, in the order of their lines, one in each:
    file, line, key, what is wrong.
    """
    lines = []
    for one in error.errors():
        place = one["loc"]
        line = line_of(text, place)
        lines.append((line, f"{file}, line {line}: {_dotted(place)}: {_said(one, model)}"))
    return "\n".join(sentence for _, sentence in sorted(lines))


def _statements(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Each statement with the line on which it begins; comments and empty lines are none."""
    start: int | None = None
    for number, line in enumerate(lines):
        if start is None:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            start = number
        elif not any(one in line for one in CLOSING):
            continue
        statement = "\n".join(lines[start : number + 1])
        if _is_complete(statement):
            yield start + 1, statement
            start = None


def _is_complete(statement: str) -> bool:
    try:
        tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _places(content: Mapping[str, Any]) -> Iterator[Place]:
    """Paths of all keys in nested tables, outer ones first."""
    for key, value in content.items():
        yield (key,)
        inner = (
            value[-1] if isinstance(value, list) and value else value
        )  # a header [[x]] makes a list of tables
        if isinstance(inner, dict):
            yield from ((key, *rest) for rest in _places(inner))


def _dotted(place: Sequence[str | int]) -> str:
    """Such as policy.accept[0]."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _said(error: Any, model: type[BaseModel]) -> str:
    if error["type"] == "extra_forbidden":
        return _unknown_key(error["loc"], model)
    if error["type"] == "missing":
        return "this key is missing"
    said = str(error["msg"])
    if error["type"] == "value_error":
        return said.removeprefix("Value error, ")
    if error["type"].startswith("model_type"):
        return f"should be a table such as [{_dotted(error['loc'])}], got {error['input']!r:.60}"
    return f"{said.removeprefix('Input ')}, got {error['input']!r:.60}"


def _unknown_key(place: Sequence[str | int], model: type[BaseModel]) -> str:
    """That there is no such key, and which one may have been meant."""
    key, known = str(place[-1]), _keys_at(model, place[:-1])
    close = difflib.get_close_matches(key.lower(), known, n=1)
    if close:
        return f"there is no such key; did you mean {close[0]}?"
    elsewhere = [
        section
        for section in ["", *model.model_fields]
        if key in _keys_at(model, [section] if section else [])
    ]
    if elsewhere:
        under = f"under [{elsewhere[0]}]" if elsewhere[0] else "at the top, before the first section"
        return f"there is no such key here; it belongs {under}"
    return f"there is no such key; there are {', '.join(known)}"


def _keys_at(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The keys that the table at this place may have."""
    for part in place:
        field = model.model_fields.get(str(part))
        annotation: Any = None if field is None else field.annotation
        inner = [one for one in (annotation, *get_args(annotation)) if _is_model(one)]
        if not inner:
            return []
        model = inner[0]
    return list(model.model_fields)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
