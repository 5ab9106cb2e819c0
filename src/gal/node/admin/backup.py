"""A backup of a node, whether it runs or not: all that lies in its folder, sealed with a passphrase.

First a consistent copy of the memory with the audit log, then the files that it names, last the privacy
ledger: what is copied later may know more, and never less, of what was charged.
"""

from __future__ import annotations

import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from gal import __version__
from gal.clock import utc_now
from gal.errors import InvalidInputError, NodeError
from gal.node.admin.membership import opened
from gal.node.admin.sealed import SealedWriter, check_passphrase
from gal.node.config.configuration import LEDGER
from gal.node.runtime.control import WHERE
from gal.node.store.audit import newest_entry
from gal.node.store.files import whole_file
from gal.node.store.restores import kept_time

STATE, FACTS = "state.sqlite", "backup.json"
COPY = ".backup-"
"""How copies of databases begin that are in the folder for a moment."""
OF_A_RUN = {WHERE, "control.sock", "node.lock", "lost+found", ".restoring", "tmp"}
"""What belongs to a process that runs, or to the disk, and not to the node."""


@dataclass(frozen=True)
class BackupFacts:
    """What a backup says of itself."""

    organization: str
    time: str
    software: str
    seq: int
    head: str
    """Number and hash of the newest entry of the audit log in it."""


def back_up(home: Path, target: Path, passphrase: str) -> dict[str, object]:
    """Write a backup of the node to a new file; what is in it."""
    home, target = home.absolute(), target.absolute()
    check_passphrase(passphrase)
    if target.exists():
        raise InvalidInputError(
            f"there is a file {target} already: choose another name, for each backup its own"
        )
    if target.is_relative_to(home):
        raise InvalidInputError(
            f"{target} is in the folder of the node itself, and would be lost with it: choose another place"
        )
    with opened(home) as records:
        records.audit.append("own", "backup", note=target.name)
        name = records.configuration.name
    for old in home.glob(f"{COPY}*"):  # of a backup that was killed
        old.unlink(missing_ok=True)
    with whole_file(target, f"the backup {target}", durably=True) as file:
        sealed = SealedWriter(file, passphrase)
        with tarfile.open(fileobj=sealed, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
            facts, n_files = _fill(tar, home, name)
        sealed.close()
    return asdict(facts) | {"file": str(target), "files": n_files, "bytes": target.stat().st_size}


def _fill(tar: tarfile.TarFile, home: Path, name: str) -> tuple[BackupFacts, int]:
    """Put everything in, in the order that keeps it consistent; the facts, and how many files it has."""
    with _copy(home, STATE) as copy:
        with closing(sqlite3.connect(copy)) as log:
            newest = newest_entry(log)
        facts = BackupFacts(name, kept_time(utc_now()), f"gal-learn {__version__}", newest.seq, newest.hash)
        said = json.dumps(asdict(facts)).encode()
        tar.addfile(_member(FACTS, len(said)), io.BytesIO(said))
        _add_file(tar, copy, STATE)
    n_files = 1 + sum(_add_file(tar, path, name) for path, name in _files(home))
    if (home / LEDGER).exists():
        with _copy(home, LEDGER) as copy:
            n_files += _add_file(tar, copy, LEDGER)
    return facts, n_files


@contextmanager
def _copy(home: Path, name: str) -> Iterator[Path]:
    """A consistent copy of a database that others may be writing to."""
    path = home / f"{COPY}{os.getpid()}-{name}"
    try:
        path.touch(mode=0o600)
        with (
            closing(sqlite3.connect(home / name, timeout=30)) as from_it,
            closing(sqlite3.connect(path)) as to,
        ):
            from_it.backup(to)
            to.execute("PRAGMA journal_mode = DELETE")
        yield path
    except sqlite3.Error as error:
        raise NodeError(f"{home / name} cannot be copied: {error}. No backup was made") from error
    finally:
        path.unlink(missing_ok=True)


def _files(home: Path) -> Iterator[tuple[Path, str]]:
    """All other files of a node, and their names in the backup; links to files as the files."""
    for folder, below, names in os.walk(home):
        inside = Path(folder).relative_to(home)
        if inside == Path():
            below[:] = [one for one in below if one not in OF_A_RUN]
        for one in sorted(names):
            path = Path(folder) / one
            apart = one in OF_A_RUN | {FACTS} or one.startswith((COPY, STATE, LEDGER))
            if not (apart and inside == Path()) and not one.endswith(".part") and path.is_file():
                yield path, (inside / one).as_posix()


def _add_file(tar: tarfile.TarFile, path: Path, name: str) -> int:
    """Add a file as it is now; 0 where it is gone meanwhile, as what an ended version needs no more."""
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            member = _member(name, about.st_size)
            member.mtime, member.mode = int(about.st_mtime), about.st_mode & 0o700
            tar.addfile(member, file)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise NodeError(f"{path} cannot be read ({error.strerror or error}): no backup was made") from error
    return 1


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member
