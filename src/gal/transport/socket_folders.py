"""Where a node's sockets of this machine lie: in its home folder, or elsewhere where that name is too long.

A run that is killed leaves its sockets; the next start of the same node takes them away, and no others.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

LISTENING = "listening"
"""In a node's home folder."""
LONGEST_PATH = 85
"""Bytes of a folder for sockets: a socket's path may have little more than a hundred."""


def socket_folder(folder: Path | None) -> tuple[Path, bool]:
    """A folder that only this user can enter, and whether it is made for this time only."""
    if folder is None or len(os.fsencode(folder)) > LONGEST_PATH:
        return folder_elsewhere(folder), True
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder, False


def folder_elsewhere(instead_of: Path | None) -> Path:
    """A folder of temporary files, by whose name it is known again what it stands for."""
    return Path(tempfile.mkdtemp(prefix="gal-" if instead_of is None else _prefix(instead_of)))


def remove_left(folder: Path) -> None:
    """Take away the sockets that runs which were killed left; nothing of it may be in use."""
    for left in folder.glob("*.sock"):
        left.unlink(missing_ok=True)
    for left in Path(tempfile.gettempdir()).glob(f"{_prefix(folder)}*"):
        if not left.is_symlink() and left.is_dir() and left.stat().st_uid == os.getuid():
            shutil.rmtree(left, ignore_errors=True)


def _prefix(folder: Path) -> str:
    return f"gal-{hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:8]}-"
