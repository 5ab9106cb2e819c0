"""The log of a node: one line per event; shapes and digests, never data.

Values may contain a peer's words: whatever is not plain printable ASCII is escaped.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from functools import partialmethod
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

    def _write(self, level: int, event: str, /, **fields: object) -> None:
        if self._logger.isEnabledFor(level):
            own = {key: f"{key}_" for key in ("time", "level", "event")}
            plain = {own.get(key, key): _plain(value, self._home) for key, value in fields.items()}
            self._logger.log(level, "%s", event, extra={"fields": plain})

    debug = partialmethod(_write, logging.DEBUG)
    info = partialmethod(_write, logging.INFO)
    warning = partialmethod(_write, logging.WARNING)
    error = partialmethod(_write, logging.ERROR)


class _Lines(logging.Formatter):
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

    The logger is in no hierarchy, so settings of the root logger do not change it.
    """
    logger = logging.Logger("gal.node", level.upper())
    handler = _Handler(sys.stderr if to is None else to)
    handler.setFormatter(_Lines(as_json))
    logger.addHandler(handler)
    return Log(logger, home)


def _plain(value: object, home: Path | None) -> Plain:
    """Text, numbers and the items of a short list; the shape of everything else."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, BaseException):
        value = f"{type(value).__name__}: {value}"
    if isinstance(value, Path):
        inside = home is not None and value.is_relative_to(home)
        value = str(value.relative_to(home) if inside and home is not None else value)
    if isinstance(value, str):
        return value if len(value) <= LONGEST else value[:LONGEST] + "..."
    if isinstance(value, bytes | bytearray | memoryview):
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
    is_many = isinstance(value, list | tuple | Set | Mapping)
    return f"{len(value)} items" if is_many else type(value).__name__  # type: ignore[arg-type]


def _json(value: object) -> str:
    """JSON in ASCII; DEL is the one control character that JSON leaves as it is."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


def _word(value: Plain, spaces: bool = False) -> str:
    """A value of a readable line: bare where it cannot be misread, else quoted."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and _BARE.fullmatch(value.replace(" ", "_") if spaces else value):
        return value
    return _json(value)
