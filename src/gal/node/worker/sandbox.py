"""The sandbox of the worker process (Linux Landlock): Python, the node's home and its data.

Neither a local model nor a fault of the node can read or change other files. The sandbox needs no privileges,
cannot be undone, and is inherited by child processes; the network is not restricted.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import stat
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from gal.errors import NodeError
from gal.node.config.configuration import NodeConfiguration
from gal.node.store.files import CACHES

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH, _SET_NO_NEW_PRIVS = 1, 1, 38

# The rights of include/uapi/linux/landlock.h.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1
# Rights that a rule for a file, not a folder, may give.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

_READ = _READ_FILE | _READ_DIR
_RUN = _READ | _EXECUTE
_DEVICE = _READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_WRITE = (_FIRST_RIGHTS | _REFER | _TRUNCATE) & ~(_EXECUTE | _MAKE_CHAR | _MAKE_BLOCK)

# Programs, shared libraries, settings, certificates and name servers.
_SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys", "/nix/store"),
    *("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/var/lib/ca-certificates"),
)
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "nvidia*", "dri", "kfd")
# Locks and shared memory of multiprocessing and joblib.
_SHARED_MEMORY = "/dev/shm"


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def confine(configuration: NodeConfiguration, also_writable: Sequence[Path] = ()) -> str:
    """Sandbox this process; the reason where that is impossible, else an empty text.

    A module with the local model is imported first, as its folder may not be readable later.
    """
    use, own_module = configuration.model.use, list[Path]()
    if ":" in use:
        module = use.partition(":")[0]
        with suppress(Exception):  # the first fit reports its error
            importlib.import_module(module)
        package = sys.modules.get(module.partition(".")[0])
        places = list(getattr(package, "__path__", [])) or [getattr(package, "__file__", None)]
        own_module = [Path(place) for place in places if place is not None]
    if landlock_version() == 0:
        return "this kernel has no Landlock (Linux 5.13 or newer has it, where it is switched on)"
    if threading.active_count() > 1:
        return f"{use} starts threads when it is imported, and these would be outside of the sandbox"
    for variable in CACHES:
        os.environ.setdefault(variable, str(configuration.home / "tmp" / variable.lower()))
    readable = [path for path in (*readable_places(configuration), *own_module) if path.exists()]
    restrict_files([configuration.home, *also_writable], readable)
    return ""


def readable_places(configuration: NodeConfiguration) -> list[Path]:
    """Paths of data, secret and other files of node.toml, whether or not they exist."""
    data, home, found = configuration.data, configuration.home, list(configuration.model.readable)
    if data is None:
        return found
    if data.path is not None:
        found.append(_folder_or_file(data.path.resolve(), home))
    found += [path for path in (data.secret_file, data.password_file) if path is not None]
    if data.is_database:  # where the library of PostgreSQL looks for passwords and certificates
        variables = ("PGPASSFILE", "PGSERVICEFILE", "PGSSLROOTCERT", "PGSSLKEY", "PGSSLCERT")
        usual = [Path.home() / name for name in (".pgpass", ".pg_service.conf", ".postgresql")]
        chosen = [Path(os.environ[name]) for name in variables if os.environ.get(name)]
        found += [path for path in (*usual, *chosen) if path.exists()]
    return list(dict.fromkeys(found))


def replaced_files(places: Sequence[Path]) -> Callable[[], bool]:
    """Whether one of these files has been replaced since this call.

    A sandbox allows the file itself, not its name, so a new export with the same name is out of reach.
    """
    before = [_file_id(path) for path in places]
    return lambda: [_file_id(path) for path in places] != before


def _file_id(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None for a folder or a missing file."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return None if stat.S_ISDIR(facts.st_mode) else (facts.st_dev, facts.st_ino)


def _folder_or_file(path: Path, home: Path) -> Path:
    """The folder of a file, which an export may replace; the file alone where its folder contains a home
    folder.
    """
    folder = path if path.is_dir() else path.parent
    above = (home.resolve(), Path.home(), Path(tempfile.gettempdir()).resolve())
    return path if any(one.is_relative_to(folder) for one in above) else folder


def landlock_version() -> int:
    """The version of Landlock in the kernel; 0 where it is missing or disabled."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(_syscall(_CREATE_RULESET, None, 0, _ASK_VERSION), 0)


def restrict_files(allowed_write: Sequence[Path], allowed_read: Sequence[Path] = ()) -> bool:
    """Let this process read only the allowed paths and Python's, and write only ``allowed_write``.

    False, without restrictions, where the kernel has no Landlock. Open files stay usable, and no program
    under ``allowed_write`` can be started. Temporary files go to ``tmp`` in the first of ``allowed_write``.
    Call it before threads start, as those that run are not restricted; threads of numerical libraries open no
    files.
    """
    if (version := landlock_version()) == 0:
        return False
    missing = [str(path) for path in (*allowed_write, *allowed_read) if not path.exists()]
    if missing:
        raise NodeError(f"a sandbox cannot allow what is not there: {', '.join(missing)}.")
    if threading.active_count() > 1:
        raise NodeError("a process has to be sandboxed before it starts threads; this one has some already.")
    if allowed_write:
        place = allowed_write[0].resolve() / "tmp"
        place.mkdir(mode=0o700, exist_ok=True)
        os.environ["TMPDIR"], tempfile.tempdir = str(place), None
    handled = _rights_of(version)  # all are revoked, except those of the rules
    attributes = _Ruleset(handled_access_fs=handled)
    ruleset = _checked(_syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0))
    try:
        for path, rights in _rules(allowed_write, allowed_read):
            _allow(ruleset, path, rights & handled)
        _checked(_libc().prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(_syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _rules(allowed_write: Sequence[Path], allowed_read: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    """Paths, with the rights to them and everything beneath."""
    yield from ((path, _WRITE) for path in (*allowed_write, Path(_SHARED_MEMORY)))
    yield from ((path, _READ) for path in allowed_read)
    yield from ((Path(place), _RUN) for place in _SYSTEM)
    yield from ((path, _RUN) for path in _python_places((*allowed_write, *allowed_read)))
    for name in _DEVICES:
        yield from ((path, _DEVICE) for path in Path("/dev").glob(name))


def _python_places(allowed: Iterable[Path]) -> list[Path]:
    """The folders of Python and of installed packages."""
    fixed = [
        sys.prefix,
        sys.exec_prefix,
        sys.base_prefix,
        sys.base_exec_prefix,
        *sysconfig.get_paths().values(),
    ]
    fixed += [str(Path(__file__).parents[2]), str(Path(sys.executable).resolve())]
    entries = [
        Path(one).resolve() for one in (*sys.path, *os.environ.get("LD_LIBRARY_PATH", "").split(":")) if one
    ]
    # An entry above an allowed path, such as the current folder, would open everything beside that path.
    ours = [path.resolve() for path in allowed]
    beside = [entry for entry in entries if not any(path.is_relative_to(entry) for path in ours)]
    return [*map(Path, fixed), *beside]


def _rights_of(version: int) -> int:
    """The rights to files in this version of Landlock."""
    further = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
    return _FIRST_RIGHTS | sum(right for since, right in further if version >= since)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    """Add one rule, unless the path is missing or out of reach anyway."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(allowed_access=rights, parent_fd=place)
        _checked(_syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(place)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: object) -> int:
    """A system call; -1 where it failed. Integers are passed as long, as `syscall` expects."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return int(_libc().syscall(ctypes.c_long(number), *wide))


def _checked(result: int) -> int:
    if result < 0:
        why = os.strerror(ctypes.get_errno())
        raise NodeError(f"this process cannot be sandboxed, although the kernel has Landlock: {why}.")
    return result
