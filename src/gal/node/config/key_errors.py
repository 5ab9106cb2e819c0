"""What is wrong with a key of node.toml, for errors that people can act on."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


def errors_by_key(file: str, error: ValidationError, model: type[BaseModel]) -> str:
    """All errors of a validation, one in each line: file, key, what is wrong."""
    return "\n".join(f"{file}: {_dotted(one['loc'])}: {_said(one, model)}" for one in error.errors())


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
