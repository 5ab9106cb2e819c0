"""Files of data sets: where they are expected, where to get them, and
whether they are what they should be.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gal.errors import InvalidInputError, MissingDataError

UNPACK: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    ".gz": ("gzip", gzip.decompress),
    ".xz": ("xz", lzma.decompress),
}


@dataclass(frozen=True)
class Source:
    """What to put into the data folder, and where to get it."""

    files: Mapping[str, str]
    """Path below the data folder -> sha256 of the content, decompressed; of the numbers, where copies differ
    as text (QSAR, CreditDefault)."""
    origin: str

    @property
    def wanted(self) -> str:
        """In words."""
        return f"{' and '.join(self.files)}, from {self.origin}"

    def find(self, name: str, data_dir: Path | None, *files: str) -> Path:
        """The first of these files (one content, other packings) that is there."""
        folder = data_dir if data_dir is not None else os.environ.get("GAL_DATA")
        if not folder:
            raise MissingDataError(
                f"{name} is read from a data folder, and none is given: pass --data-dir (data_dir in "
                "Python) or set "
                f"GAL_DATA to a folder that holds {self.wanted}"
            )
        for file in files:
            if (Path(folder) / file).is_file():
                return Path(folder) / file
        raise MissingDataError(
            f"{name} is not in the data folder (--data-dir or GAL_DATA): expected "
            f"{Path(folder) / files[0]}, which is "
            f"not there; the folder must hold {self.wanted}"
        )

    def read(self, name: str, path: Path) -> bytes:
        """The content, decompressed, if its checksum is the known one."""
        content = path.read_bytes()
        if path.suffix in UNPACK:
            kind, unpack = UNPACK[path.suffix]
            try:
                content = unpack(content)
            except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
                raise self.wrong(name, path, f"a whole {kind} file", str(error)) from error
        came, expected = hashlib.sha256(content).hexdigest(), self.checksum(path)
        if came != expected:
            raise self.wrong(name, path, f"sha256 {expected}", f"sha256 {came} ({len(content):,} bytes)")
        return content

    def checksum(self, path: Path) -> str:
        """The same for a packed and an unpacked file."""
        known = {_unpacked(Path(file).name): checksum for file, checksum in self.files.items()}
        return known[_unpacked(path.name)]

    def wrong(self, name: str, path: Path, expected: str, came: str) -> InvalidInputError:
        """The error to raise for a file that is not the known one."""
        return InvalidInputError(
            f"{path} is not the known file of {name}: expected {expected}, got {came}; "
            f"the data folder must hold {self.wanted}"
        )


def _unpacked(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".xz")
