"""A witness of the audit log outside of the node's folder: which entry was the newest, and which the newest
by which something left or was changed.

A folder that is brought back from a backup, or from a snapshot of the machine, cannot tell by itself that it
is old. Where the witness names a release that the folder does not have, it is.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection

from gal.errors import NodeError
from gal.node.store.audit_head import NOTHING, Head

QUIET = ("joined", "leave", "refusal", "done", "audit-trimmed", "backup")
"""Kinds of entries that tell nothing of rows, and change nothing that a backup must not forget."""
_RELEASES = f"direction != 'in' and kind not in ({', '.join('?' * len(QUIET))})"


def last_release(log: Connection) -> Head:
    """The newest entry by which something left, or the operator changed something (forgot a row)."""
    row = log.execute(
        f"select seq, hash from audit where {_RELEASES} order by seq desc limit 1", QUIET
    ).fetchone()
    return NOTHING if row is None else Head(*row)


def has_entry(log: Connection, head: Head) -> bool:
    """Whether an entry is in the log, or was before its beginning was cut off."""
    hash_there, first = log.execute(
        "select (select hash from audit where seq = ?), (select min(seq) from audit)", (head.seq,)
    ).fetchone()
    return bool(head.seq == 0 or hash_there == head.hash or (first is not None and head.seq < first))


@dataclass(frozen=True)
class Witnessed:
    """What a witness knows."""

    newest: Head
    release: Head
    """The newest entry that was a release."""


class Witness:
    """The file of a witness; what it cannot take must not leave."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Witnessed | None:
        """What it knows; None where there is no such file yet."""
        try:
            return _seen(self.path.read_bytes(), self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NodeError(f"the witness {self.path} cannot be read: {error.strerror}") from error

    def note(self, log: Connection, entry: Head) -> None:
        """An entry was added to the log; a release is on the witness's disk when this returns."""
        release = last_release(log)
        with self._open() as file:
            data = os.pread(file, 1000, 0)
            known = _seen(data, self.path) if data else Witnessed(NOTHING, NOTHING)
            newest = max(known.newest, entry, key=lambda one: one.seq)
            last = max(known.release, release, key=lambda one: one.seq)
            self._write(file, Witnessed(newest, last), durably=last != known.release)

    def begin_anew(self, seen: Witnessed) -> None:
        """Know this and nothing else: the folder was brought back, and that is on record there."""
        with self._open() as file:
            self._write(file, seen, durably=True)

    def _write(self, file: int, seen: Witnessed, *, durably: bool) -> None:
        # In place and of one length, in one call: whole for whoever reads.
        text = "".join(f"{one.seq:018d} {one.hash}\n" for one in (seen.newest, seen.release))
        try:
            os.pwrite(file, text.encode("ascii"), 0)
            if durably:
                os.fsync(file)
        except OSError as error:
            raise self._refuses(error) from error

    def _open(self) -> _Locked:
        try:
            return _Locked(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise self._refuses(error) from error

    def _refuses(self, error: OSError) -> NodeError:
        return NodeError(
            f"the witness {self.path} of the audit log cannot be written ({error.strerror}), and nothing may "
            "leave that it does not know of: bring its disk back, or take audit.witness out of node.toml"
        )


class _Locked:
    """An open file that one process at a time has: who is late must not overwrite what is newer."""

    def __init__(self, file: int) -> None:
        self._file = file

    def __enter__(self) -> int:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return self._file

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _seen(data: bytes, path: Path) -> Witnessed:
    try:
        words = data.decode("ascii").split()
        if len(words) != 4:
            raise ValueError(f"it has {len(words)} words instead of 4")
        return Witnessed(Head(int(words[0]), words[1]), Head(int(words[2]), words[3]))
    except ValueError as error:
        raise NodeError(
            f"{path} is no witness of an audit log, or is damaged ({error}): nothing may leave. Look at what "
            "is there; if it is lost, move it away, and a new one begins"
        ) from error
