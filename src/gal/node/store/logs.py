"""The log of a node: one line per event, JSON or readable; shapes and digests, never data.

What a peer sent can stand in a value, and can never begin a line of its own: whatever is not a plain
printable character is escaped. Arrays and tables are written as their shapes.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

Level = Literal["debug", "info", "warning", "error"]
Plain = str | int | float | bool | None | list[Any]

LONGEST = 500
"""Characters of a value that are written; the rest is cut off."""
MOST_ITEMS = 20

_BARE = re.compile(r"[A-Za-z0-9_./:@%+,-]+", re.ASCII)


class Log:
    """Events with fields, such as ``log.info("fitted", task="risk", round=3, seconds=0.2)``; thread-safe."""

    def __init__(self, logger: logging.Logger, home: Path | None = None) -> None:
        self._logger, self._home = logger, home

    def debug(self, event: str, /, **fields: object) -> None:
        """For who looks for a fault."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """What a node does."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """What an operator should look at; the node goes on."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """What failed."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            own = {key: f"{key}_" for key in ("time", "level", "event")}
            plain = {own.get(key, key): _plain(value, self._home) for key, value in fields.items()}
            self._logger.log(level, "%s", event, extra={"fields": plain})


class _Lines(logging.Formatter):
    """Makes a line of a record."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level, event = record.levelname.lower(), record.getMessage()
        fields: dict[str, Plain] = getattr(record, "fields", {})
        if self._as_json:
            return _json({"time": time, "level": level, "event": event, **fields})
        words = [f"{_word(key)}={_word(value)}" for key, value in fields.items()]
        return " ".join([time, f"{level:<7}", _word(event, spaces=True), *words])


class _Handler(logging.StreamHandler[TextIO]):
    """A stream whose failure, such as a full disk or a closed terminal, does not stop the node."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def open_log(
    home: Path | None, level: Level = "info", as_json: bool = False, to: TextIO | None = None
) -> Log:
    """A log to a stream (None: standard error); paths under ``home`` are written relative to it.

    The logger is in no hierarchy: neither the root logger nor anybody else's settings are touched.
    """
    logger = logging.Logger("gal.node", level.upper())
    handler = _Handler(sys.stderr if to is None else to)
    handler.setFormatter(_Lines(as_json))
    logger.addHandler(handler)
    return Log(logger, home)


def _plain(value: object, home: Path | None) -> Plain:
    """What may be written of a value: text, numbers, the items of a short list; of all else a shape."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return float(value) if math.isfinite(value) else str(value)
        case str():
            return _cut(str(value))
        case Path():
            inside = home is not None and value.is_relative_to(home)
            return _cut(str(value.relative_to(home) if inside and home is not None else value))
        case BaseException():
            return _cut(f"{type(value).__name__}: {value}")
        case bytes() | bytearray() | memoryview():
            return f"{memoryview(value).nbytes} bytes"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):  # a scalar of numpy is a number like others; an array is data
        item = value.item() if shape == () and hasattr(value, "item") else None
        if isinstance(item, bool | int | float):
            return _plain(item, home)
        return f"{type(value).__name__} {'x'.join(str(size) for size in shape)}"
    # Names and round numbers are written; fractions could be values of a view.
    if isinstance(value, list | tuple | Set) and len(value) <= MOST_ITEMS:
        items = sorted(value, key=str) if isinstance(value, Set) else list(value)
        if all(isinstance(item, str | int) for item in items):
            return [_plain(item, home) for item in items]
    if isinstance(value, list | tuple | Set | Mapping):
        return f"{len(value)} items"
    return type(value).__name__


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def _json(value: object) -> str:
    """JSON in ASCII; DEL is the one control character that JSON leaves as it is."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


def _word(value: Plain, spaces: bool = False) -> str:
    """A value of a readable line: bare where it cannot be misread, else quoted."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        bare = _BARE.fullmatch(value.replace(" ", "_") if spaces else value)
        return value if bare else _json(value)
    return _json(value)
