"""The newest hash of an audit log, in a file beside it: a log whose end was cut off does not fit it."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from gal.errors import InvalidInputError

FIRST = "sha256:" + "0" * 64
"""What the first entry of a log has for the hash before it."""


def check_head(head: str | None) -> None:
    """InvalidInputError where a head that was noted cannot be one: a slip of the pen proves nothing."""
    if head is not None and re.fullmatch(r"sha256:[0-9a-f]{64}", head) is None:
        raise InvalidInputError(
            f"{head!r:.100} is no head: one is sha256: and 64 digits of 0 to 9 and a to f, as the last line "
            "of gal audit says it"
        )


@dataclass(frozen=True)
class Head:
    """The number and the hash of an entry."""

    seq: int
    hash: str


NOTHING = Head(0, FIRST)
"""Before the first entry."""


class HeadFile:
    """The file ``audit.head``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, head: Head) -> None:
        """Keep the head in the second place; where that fails, the file stays behind, which is no error."""
        # In place and of one length, in one call: as whole as a rename for whoever reads, 200 times as fast,
        # and it works on a full disk.
        line = f"{head.seq:018d} {head.hash}\n".encode("ascii")
        with contextlib.suppress(OSError):
            try:
                file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                self._create(line)
                return
            try:
                os.pwrite(file, line, 0)
            finally:
                os.close(file)

    def _create(self, line: bytes) -> None:
        """Under another name first: who reads meanwhile would take an empty file for an altered one."""
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, line, 0)
            finally:
                os.close(file)
            new.rename(self._path)
        except OSError:
            new.unlink(missing_ok=True)
            raise

    def read(self) -> Head | None:
        """The kept head; None where there is no such file; a head that fits
        nothing where it is unreadable.
        """
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                words = os.pread(file, 1000, 0).decode("ascii").split()
            finally:
                os.close(file)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            return Head(-1, "unreadable")
        if len(words) != 2 or not words[0].isdigit() or len(words[0]) > 18:
            return Head(-1, "unreadable")
        return Head(int(words[0]), words[1])


def head_problem(kept: Head | None, last: Head, hash_there: str) -> str | None:
    """Why the kept head does not belong to this table; ``hash_there``: the table's hash at the kept number.

    A kept head that is behind is fine: the process ended between the two writes.
    """
    if kept is None:
        return None if last.seq <= 1 else f"audit.head is missing, and the table has {last.seq} entries"
    if kept.seq < 0:
        return "audit.head cannot be read"
    if kept.seq > last.seq:
        return (
            f"its end is missing; audit.head says that it has {kept.seq} entries and ends with {kept.hash}, "
            f"but it has {last.seq} and ends with {last.hash} (cut off, or lost when the power failed)"
        )
    if kept.hash != hash_there:
        return f"audit.head has {kept.hash} for entry {kept.seq}, and the table has {hash_there}"
    return None
