"""Whether files that a source names have changed: their times and sizes."""

from __future__ import annotations

import glob
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gal.node.config.data_source import DataSource

Stamp = tuple[Any, ...]
"""Of each file the time of its last change in nanoseconds, and its size in bytes."""

MOST_FILES = 10_000
"""More files than these, found by one pattern of a query, are not all looked at."""


def file_stamp(data: DataSource, home: Path) -> Stamp | None:
    """The stamp of all files that a source or query names; None where it names none that is there."""
    if data.file is not None and not data.is_database:  # to ask whether it is a folder would be another look
        return _stamp(data.file) or None
    if data.stays_where_it_is:
        return None
    if data.path is not None:
        return _stamp(data.path) or None
    named = (
        [] if data.database is None else [data.database, data.database.with_name(f"{data.database.name}.wal")]
    )
    stamps = [
        (str(path), *stamp) for path in (*named, *_files_in(data.sql or "", home)) if (stamp := _stamp(path))
    ]
    return tuple(stamps) or None


def _files_in(sql: str, home: Path) -> Iterator[Path]:
    """Files that a query names in quotes, also by a pattern."""
    for text in re.findall(r"'([^']+)'|\"([^\"]+)\"", sql):
        path = home / Path(text[0] or text[1]).expanduser()
        found = (
            sorted(glob.iglob(str(path), recursive=True)) if re.search(r"[*?\[]", str(path)) else [str(path)]
        )
        yield from (Path(one) for one in found[:MOST_FILES] if Path(one).is_file())


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return () if stat.S_ISDIR(found.st_mode) else (found.st_mtime_ns, found.st_size)
