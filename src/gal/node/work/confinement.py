"""What the process that computes may reach: Python, its organization's home and data; no more of the disk.

A local model is code of the organization's own choice, and what it is fitted to comes from others. In its
sandbox (``sandbox.py``) it cannot read what lies beside the data, nor change anything outside the home.
"""

from __future__ import annotations

import importlib
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gal.node.config.configuration import NodeConfiguration
from gal.node.work.sandbox import landlock_version, shut_in

CACHES = ("CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "MPLCONFIGDIR")
"""Variables that say where libraries keep what they compile: by default beside the home folder, where nothing
may be written.
"""


def confine(configuration: NodeConfiguration, also_writable: Sequence[Path] = ()) -> str:
    """Shut this process in for good; why it could not be, or an empty text where it is.

    A module with the local model is imported first: it may lie in a folder that holds more than the process
    may read.
    """
    use, own_module = configuration.model.use, list[Path]()
    if ":" in use:
        module = use.partition(":")[0]
        with suppress(Exception):  # what is wrong with it, the first fit says
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
    shut_in([configuration.home, *also_writable], readable)
    return ""


def readable_places(configuration: NodeConfiguration) -> list[Path]:
    """Where data, secret and other files lie that node.toml names, whether or not they are there."""
    data, home, found = configuration.data, configuration.home, list(configuration.model.readable)
    if data is None:
        return found
    if data.path is not None:
        found.append(_folder_or_file(data.path.resolve(), home))
    found += [path for path in (data.secret_file, data.password_file) if path is not None]
    if data.is_database:  # where PostgreSQL's own library looks for passwords and certificates
        variables = ("PGPASSFILE", "PGSERVICEFILE", "PGSSLROOTCERT", "PGSSLKEY", "PGSSLCERT")
        usual = [Path.home() / name for name in (".pgpass", ".pg_service.conf", ".postgresql")]
        chosen = [Path(os.environ[name]) for name in variables if os.environ.get(name)]
        found += [path for path in (*usual, *chosen) if path.exists()]
    return list(dict.fromkeys(found))


def replaced_files(places: Sequence[Path]) -> Callable[[], bool]:
    """Whether one of the places is a file that has another one in its stead since this was called.

    What a shut-in process may read it knows by the file itself, not by its name: a new export under the same
    name is out of reach.
    """
    before = [_file_id(path) for path in places]
    return lambda: [_file_id(path) for path in places] != before


def _file_id(path: Path) -> tuple[int, int] | None:
    """What a file is known by besides its name; None for a folder, or where there is nothing."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return None if stat.S_ISDIR(facts.st_mode) else (facts.st_dev, facts.st_ino)


def _folder_or_file(path: Path, home: Path) -> Path:
    """The folder of a file, which a new export may replace; the file, where the folder holds too much."""
    folder = path if path.is_dir() else path.parent
    above = (home.resolve(), Path.home(), Path(tempfile.gettempdir()).resolve())
    return path if any(one.is_relative_to(folder) for one in above) else folder


def temporary_folder(home: Path) -> Path:
    """Where a node puts files for the process that computes, for as long as it takes."""
    place = home / "tmp"
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def empty_temporary_folder(home: Path) -> int:
    """Delete what a process that was killed left there, such as rows to be predicted; how many entries. What
    libraries have compiled stays.
    """
    kept = {one.lower() for one in CACHES}
    gone = [path for path in temporary_folder(home).iterdir() if path.name not in kept]
    for path in gone:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return len(gone)


@contextmanager
def within_reach(path: Path, home: Path) -> Iterator[Path]:
    """A file as the process that computes can read it: itself, or a copy in the home folder meanwhile."""
    if path.resolve().is_relative_to(home.resolve()):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="rows-", dir=temporary_folder(home)) as folder:
        yield Path(shutil.copyfile(path, Path(folder) / path.name))
