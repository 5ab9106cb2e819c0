"""A node is brought back from a backup, and what it may still release is settled.

What was released since the backup is not in it. Only who shows that nothing was, by the newest head of the
lost node's audit log, goes on as before: else the privacy account counts as spent and
limits as used up (``store/restores.py``).
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any

from gal.clock import utc_now
from gal.errors import AuditError, GALError, InvalidInputError
from gal.node.admin.backup import FACTS, BackupFacts
from gal.node.admin.membership import opened
from gal.node.admin.sealed import SealedReader
from gal.node.config.configuration import FILE, read_configuration
from gal.node.runtime.node import held_lock
from gal.node.store.audit import AuditLog, check_head
from gal.node.store.restores import Restore, kept_time
from gal.node.store.state import State

STAGING = ".restoring"
"""In the home folder while it is brought back: a kill leaves no node that looks whole."""
NO_PROOF = "no head was given"
BY_HEAD = "shown by a head"


def bring_back(backup: Path, home: Path, passphrase: str, *, head: str | None = None) -> dict[str, Any]:
    """Bring a node back into an empty folder; what was found, and whether it is known to be current."""
    home = home.absolute()
    check_head(head)
    _check_empty(home)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.chmod(0o700)
    with held_lock(home, "a node that is brought back"):
        staging = home / STAGING
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)
        facts, n_files = _unpack(backup, staging, passphrase)
        settled = _settle(staging, facts, head)
        # The memory is moved with what is settled in it; node.toml comes last, and makes it a node.
        for path in sorted(staging.iterdir(), key=lambda one: one.name == FILE):
            _move(path, home / path.name)
        staging.rmdir()
    said = {"proven": settled.proven, "why": settled.why}
    return asdict(facts) | {"home": str(home), "files": n_files} | said


def prove(home: Path, head: str) -> dict[str, Any]:
    """Show later, by a head, that a node which was brought back is current."""
    check_head(head)
    with opened(home) as records:
        found = records.state.restores.unproven()
        if found is None:
            raise InvalidInputError(
                f"{records.configuration.name} was not brought back from a backup, or was shown to be "
                "current already: there is nothing to settle. To bring one back: gal backup FILE --restore"
            )
        why = _missing_head(records.state, found, head)
        if why:
            raise InvalidInputError(f"that shows nothing: {why}. Everything stays as it was: spent")
        records.state.restores.prove(found.head, BY_HEAD)
        records.audit.append("own", "proven current", note=f"{BY_HEAD}: {found.head}")
        return {"proven": True, "why": BY_HEAD}


def _check_empty(home: Path) -> None:
    if (home / FILE).exists():
        raise InvalidInputError(
            f"there is a node in {str(home)!r} already: bring the backup back into an empty folder. (To show "
            "that this node is current: gal backup --head HEAD, without a file.)"
        )
    there = {path.name for path in home.iterdir()} if home.is_dir() else set()
    if STAGING not in there and there - {"lost+found", "node.lock"}:
        raise InvalidInputError(
            f"{str(home)!r} is not empty ({', '.join(sorted(there)[:3])}): a node is brought back into an "
            "empty folder"
        )


def _unpack(backup: Path, staging: Path, passphrase: str) -> tuple[BackupFacts, int]:
    """Unpack everything into a folder; what the backup says of itself, and how many files it has."""
    try:
        with backup.open("rb") as file:
            sealed = SealedReader(file, passphrase, backup.name)
            with tarfile.open(fileobj=sealed, mode="r|") as tar:  # type: ignore[call-overload]
                n_files = 0
                for member in tar:
                    _check_member(member, backup)
                    _write_member(tar, member, staging / member.name)
                    n_files += member.name != FACTS
        found = _facts((staging / FACTS).read_bytes())
    except (OSError, tarfile.TarError, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, GALError):
            raise
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InvalidInputError(f"{backup} cannot be restored: {why}. No node was made") from error
    (staging / FACTS).unlink()
    return found, n_files


def _check_member(member: tarfile.TarInfo, backup: Path) -> None:
    """A backup has files of its node's folder, and nothing else; asked before any folder is made."""
    path = PurePosixPath(member.name)
    ours = path.parts[:1] in ((STAGING,), ("node.lock",))  # what brings it back, and holds it meanwhile
    # One with gaps is as large as it says: a few bytes would become more than there is memory.
    if not member.isreg() or member.issparse() or path.is_absolute() or ".." in path.parts or ours:
        raise InvalidInputError(f"{backup.name} holds {member.name!r:.200}, which is no file of a node")


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Write a file of a backup. (``extract`` with a filter, which would do it, needs Python 3.11.4.)"""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    content = tar.extractfile(member)
    if content is None:
        raise tarfile.TarError(f"{member.name!r} has no content")
    with content, path.open("xb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(member.mode & 0o755)
    os.utime(path, (member.mtime, member.mtime))


def _facts(data: bytes) -> BackupFacts:
    """What a backup says of itself, if it is that."""
    found = BackupFacts(**json.loads(data))
    texts = (found.organization, found.time, found.software, found.head)
    if not all(isinstance(one, str) and one.isprintable() for one in texts):
        raise ValueError(f"{FACTS} has no names, or no time")
    if type(found.seq) is not int or not 0 <= found.seq < 2**63:
        raise ValueError(f"{FACTS} names no entry of the audit log")
    return found


def _settle(staging: Path, facts: BackupFacts, head: str | None) -> Restore:
    """Find out whether the backup is current, and put that on record in it."""
    read_configuration(staging)  # else it is no node
    with closing(State(staging)) as state, AuditLog(state.path) as audit:
        found = Restore(kept_time(utc_now()), facts.time, facts.seq, facts.head, NO_PROOF)
        try:
            audit.verify()
            if head is not None:
                why = _missing_head(state, found, head)
                found = replace(found, why=why or BY_HEAD, proven=not why)
        except AuditError as error:
            found = replace(found, why=str(error))
        state.restores.add(found)
        audit.append("own", "restored", note=f"from a backup of {facts.time}; {found.why}"[:500])
    return found


def _missing_head(state: State, found: Restore, head: str) -> str:
    """Why a head does not show that the backup's newest entry was the newest of all; empty where it does."""
    if head == found.head:
        return ""
    with state.reading() as log:
        known = log.execute("select seq from audit where hash = ?", (head,)).fetchone()
    if known is None:
        return f"the head {head} is not in the backup: something was recorded since it was made"
    ends = f"the backup ends with entry {found.seq}"
    return f"the head {head} is entry {known[0]}, and {ends}: it says nothing of what came later"


def _move(path: Path, target: Path) -> None:
    """Put a file or folder in its place; what a restore that was killed left there goes."""
    if target.is_dir():
        shutil.rmtree(target)
    os.replace(path, target)
