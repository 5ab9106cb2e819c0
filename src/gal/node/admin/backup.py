"""Encrypted backups of a node, also while it runs, and their restore.

Releases since a backup are not in it. Without the newest head of the lost node's audit log, which proves that
there were none, the privacy budget counts as spent and limits as used up (``Restore`` of the state).
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from gal.clock import utc_now
from gal.errors import AuditError, GALError, InvalidInputError, NodeError
from gal.node.admin.membership import opened
from gal.node.config.configuration import FILE, LEDGER, read_configuration
from gal.node.runtime.control import SOCKET
from gal.node.runtime.node import held_lock
from gal.node.store.audit import AuditLog, check_head, newest_entry
from gal.node.store.files import whole_file
from gal.node.store.state import Restore, State

STATE, LOCK = "state.sqlite", "node.lock"
COPY = ".backup-"
"""The prefix of temporary copies of databases."""
STAGING = ".restoring"
"""The folder for a restore in progress, so that a kill leaves no partial node."""
OF_A_RUN = {SOCKET, LOCK, "lost+found", STAGING, "tmp"}
"""Files of a running process or of the disk, not of the node."""
MAGIC = b"GAL backup 2\n"
PIECE, TAG = 1 << 20, 16
"""Bytes of a sealed piece, and of its tag."""
SALT, PREFIX = 16, 7
WORK = 1 << 17
"""The cost of scrypt: 128 MB of memory and about half a second for each try."""
SHORTEST = 12
"""Characters of a passphrase."""


def back_up(home: Path, target: Path, passphrase: str) -> dict[str, Any]:
    """Write a backup of the node to a new file; its facts.

    The order is state with audit log, files, privacy ledger, so that the ledger has all charges of the state.
    """
    home, target = home.absolute(), target.absolute()
    if len(passphrase) < SHORTEST:
        raise InvalidInputError(
            f"the passphrase has {len(passphrase)} characters, and a backup holds keys: give at least "
            f"{SHORTEST}, such as five words"
        )
    if target.exists():
        raise InvalidInputError(f"there is a file {target} already: choose another name for each backup")
    if target.is_relative_to(home):
        raise InvalidInputError(
            f"{target} is in the folder of the node itself, and would be lost with it: choose another place"
        )
    with opened(home) as records:
        time = records.audit.append("own", "backup", note=target.name).time
        name = records.configuration.name
    for old in home.glob(f"{COPY}*"):  # of a killed backup
        old.unlink(missing_ok=True)
    with whole_file(target, f"the backup {target}", durably=True) as file:
        sealed = Sealed(file, passphrase)
        with tarfile.open(fileobj=sealed, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
            with _copy(home, STATE) as copy:
                with closing(sqlite3.connect(copy)) as log:
                    newest = newest_entry(log)
                n_files = _add_file(tar, copy, STATE)
            n_files += sum(_add_file(tar, path, inside) for path, inside in _files(home))
            if (home / LEDGER).exists():
                with _copy(home, LEDGER) as copy:
                    n_files += _add_file(tar, copy, LEDGER)
        sealed.close()
    facts = {"organization": name, "time": time, "seq": newest.seq, "head": newest.hash}
    return facts | {"file": str(target), "files": n_files, "bytes": target.stat().st_size}


@contextmanager
def _copy(home: Path, name: str) -> Iterator[Path]:
    """A consistent copy of a database in use."""
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
    """All other files of a node, and their names in the backup; links are followed."""
    for folder, below, names in os.walk(home):
        inside = Path(folder).relative_to(home)
        if inside == Path():
            below[:] = [one for one in below if one not in OF_A_RUN]
            names = [
                one for one in names if one not in OF_A_RUN and not one.startswith((COPY, STATE, LEDGER))
            ]
        for one in sorted(names):
            path = Path(folder) / one
            if not one.endswith(".part") and path.is_file():
                yield path, (inside / one).as_posix()


def _add_file(tar: tarfile.TarFile, path: Path, name: str) -> int:
    """Add a file; 0 where it was deleted meanwhile, else 1."""
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = about.st_size, int(about.st_mtime), about.st_mode & 0o700
            tar.addfile(member, file)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise NodeError(f"{path} cannot be read ({error.strerror or error}): no backup was made") from error
    return 1


def bring_back(backup: Path, home: Path, passphrase: str, *, head: str | None = None) -> dict[str, Any]:
    """Restore a node into an empty folder; its facts, and whether it is proven to be current."""
    home = home.absolute()
    check_head(head)
    if (home / FILE).exists():
        raise InvalidInputError(
            f"there is a node in {str(home)!r} already: restore the backup into an empty folder"
        )
    there = {path.name for path in home.iterdir()} if home.is_dir() else set()
    if STAGING not in there and there - {"lost+found", LOCK}:
        raise InvalidInputError(
            f"{str(home)!r} is not empty ({', '.join(sorted(there)[:3])}): restore the backup into an empty "
            "folder"
        )
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.chmod(0o700)
    with held_lock(home, "a node that is being restored"):
        staging = home / STAGING
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)
        n_files = _unpack(backup, staging, passphrase)
        name = read_configuration(staging).name
        settled = _settle(staging, head)
        for path in sorted(staging.iterdir(), key=lambda one: one.name == FILE):  # node.toml makes it a node
            if (home / path.name).is_dir():  # of a killed restore
                shutil.rmtree(home / path.name)
            os.replace(path, home / path.name)
        staging.rmdir()
    return {"organization": name, "home": str(home), "files": n_files} | settled


def _unpack(backup: Path, staging: Path, passphrase: str) -> int:
    """Unpack all files; their number."""
    n_files = 0
    try:
        with (
            backup.open("rb") as file,
            tarfile.open(fileobj=Unsealed(file, passphrase, backup.name), mode="r|") as tar,  # type: ignore[call-overload]
        ):
            for member in tar:
                _write_member(tar, member, staging, backup.name)
                n_files += 1
    except (OSError, tarfile.TarError, ValueError) as error:
        if isinstance(error, GALError):
            raise
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InvalidInputError(f"{backup} cannot be restored: {why}. No node was made") from error
    return n_files


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, staging: Path, backup: str) -> None:
    """Write one file, and refuse everything else; ``extract`` with a filter needs Python 3.11.4."""
    inside, path = PurePosixPath(member.name), staging / member.name
    ours = inside.parts[:1] in ((STAGING,), (LOCK,))  # of this restore
    # A sparse file of a few bytes could fill the disk.
    plain = member.isreg() and not member.issparse()
    content = tar.extractfile(member) if plain else None
    if content is None or inside.is_absolute() or ".." in inside.parts or ours:
        raise InvalidInputError(f"{backup} has {member.name!r:.200}, which is no file of a node")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with content, path.open("xb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(member.mode & 0o755)
    os.utime(path, (member.mtime, member.mtime))


def _settle(staging: Path, head: str | None) -> dict[str, Any]:
    """Find out whether the backup is current, and record that in it; its facts."""
    with closing(State(staging)) as state, AuditLog(state.path) as audit:
        newest = next(iter(audit.entries(limit=1)), None)
        if newest is None:
            raise InvalidInputError("the backup has no audit log, so it is not of a node. No node was made")
        with state.reading() as log:
            known = log.execute("select seq from audit where hash = ?", (head,)).fetchone()
        why = "no head was given"
        if head is not None and known is None:
            why = f"the head {head} is not in the backup: something was recorded since it was made"
        elif head is not None and head != newest.hash:
            why = (
                f"the head {head} is entry {known[0]}, and the backup ends with entry {newest.seq}: it says "
                "nothing of what came later"
            )
        elif head is not None:
            why = "proven by a head"
        proven = head == newest.hash
        try:
            audit.verify()
        except AuditError as error:
            proven, why = False, str(error)
        if not proven:
            state.add_restore(Restore(utc_now().isoformat(timespec="seconds"), newest.time, why))
        audit.append("own", "restored", note=f"from a backup of {newest.time}; {why}"[:500])
    about = {"time": newest.time, "seq": newest.seq, "head": newest.hash}
    return about | {"proven": proven, "why": why}


class Sealed:
    """A writer that encrypts pieces with ChaCha20-Poly1305 and a key of scrypt; ``close`` ends the file.

    The nonce has the number of the piece and marks the last one, so that altered, moved, missing and cut off
    pieces are detected before they are used.
    """

    def __init__(self, file: IO[bytes], passphrase: str) -> None:
        start = MAGIC + secrets.token_bytes(SALT + PREFIX)
        self._cipher, self._start = _cipher(start, passphrase), start
        self._file, self._waiting, self._number = file, bytearray(), 0
        file.write(start)

    def write(self, data: Any) -> int:
        self._waiting += data
        while len(self._waiting) > PIECE:  # the rest may be the last piece
            self._seal(bytes(self._waiting[:PIECE]), last=False)
            del self._waiting[:PIECE]
        return len(data)

    def close(self) -> None:
        self._seal(bytes(self._waiting), last=True)

    def _seal(self, piece: bytes, *, last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._start, self._number, last=last), piece, None))
        self._number += 1


class Unsealed:
    """A reader of a sealed file; InvalidInputError where it was altered."""

    def __init__(self, file: IO[bytes], passphrase: str, name: str) -> None:
        self._file, self._name, self._number, self._open = file, name, 0, bytearray()
        self._start = file.read(len(MAGIC) + SALT + PREFIX)
        self._next = file.read(PIECE + TAG)
        if not self._start.startswith(MAGIC) or not self._next:
            raise InvalidInputError(f"{name} is no backup of this version of gal, or is damaged")
        self._cipher = _cipher(self._start, passphrase)

    def read(self, size: int) -> bytes:
        while len(self._open) < size and self._next:
            piece, self._next = self._next, self._file.read(PIECE + TAG)
            nonce = _nonce(self._start, self._number, last=not self._next)
            try:
                self._open += self._cipher.decrypt(nonce, piece, None)
            except InvalidTag as error:
                why = "the passphrase is another one, or the file is damaged"
                if self._number > 0:
                    why = f"piece {self._number + 1} is damaged, or the end is missing"
                raise InvalidInputError(
                    f"{self._name} cannot be opened: {why}. Nothing was restored"
                ) from error
            self._number += 1
        found = bytes(self._open[:size])
        del self._open[:size]
        return found


def _cipher(start: bytes, passphrase: str) -> ChaCha20Poly1305:
    salt = start[len(MAGIC) : len(MAGIC) + SALT]
    return ChaCha20Poly1305(Scrypt(salt=salt, length=32, n=WORK, r=8, p=1).derive(passphrase.encode()))


def _nonce(start: bytes, number: int, *, last: bool) -> bytes:
    return start[-PREFIX:] + number.to_bytes(4, "big") + bytes([last])
