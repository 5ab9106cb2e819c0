"""Files of data sets: their places, origins, and a check of their content."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gal.errors import InvalidInputError, MissingDataError

UNPACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}


@dataclass(frozen=True)
class Source:
    """The files of a data set, and where to get them."""

    name: str
    files: Mapping[str, str]
    """Path below the data folder -> sha256 of the content, decompressed; of the numbers, where copies differ
    as text (QSAR, CreditDefault)."""
    origin: str

    @property
    def wanted(self) -> str:
        """In words."""
        return f"{' and '.join(self.files)}, from {self.origin}"

    def find(self, data_dir: Path | str | None, *files: str) -> Path:
        """The first of these files (one content, other packings) that is there."""
        folder = data_dir if data_dir is not None else os.environ.get("GAL_DATA")
        if not folder:
            raise MissingDataError(
                f"{self.name} is read from a data folder, and none is given: pass --data-dir (data_dir in "
                f"Python) or set GAL_DATA to a folder that holds {self.wanted}"
            )
        for file in files:
            if (Path(folder) / file).is_file():
                return Path(folder) / file
        raise MissingDataError(
            f"{self.name} is not in the data folder (--data-dir or GAL_DATA): expected "
            f"{Path(folder) / files[0]}, which is not there; the folder must hold {self.wanted}"
        )

    def read(self, data_dir: Path | str | None, *files: str) -> bytes:
        """The content of the first of these files, decompressed, if its checksum is the known one."""
        path = self.find(data_dir, *files)
        content = path.read_bytes()
        if path.suffix in UNPACK:
            try:
                content = UNPACK[path.suffix](content)
            except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
                raise self.wrong(path, f"a whole {path.suffix} file", str(error)) from error
        known = {_unpacked(Path(file).name): checksum for file, checksum in self.files.items()}
        came, expected = hashlib.sha256(content).hexdigest(), known[_unpacked(path.name)]
        if came != expected:
            raise self.wrong(path, f"sha256 {expected}", f"sha256 {came} ({len(content):,} bytes)")
        return content

    def wrong(self, path: Path, expected: str, came: str) -> InvalidInputError:
        """The error to raise for a file that is not the known one."""
        return InvalidInputError(
            f"{path} is not the known file of {self.name}: expected {expected}, got {came}; "
            f"the data folder must hold {self.wanted}"
        )


def _unpacked(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".xz")


@dataclass(frozen=True, eq=False)
class ViewSet:
    """Training and test rows as each organization sees them, as image patches, camera views or time series;
    the same rows, in the same order, for all.
    """

    name: str
    train: Mapping[str, Any]
    """By organization: an array (n, ...) or ``Sequences``; the first is the label holder's."""
    y_train: NDArray[Any]
    """Shape (n,): float64, or int64 codes 0, 1, ... of the classes."""
    test: Mapping[str, Any]
    y_test: NDArray[Any]
    metric: str
    """accuracy, auc (two classes) or mad."""
    whole_train: Any = None
    """All views as one, for who holds everything; None where they do not fit together."""
    whole_test: Any = None

    @property
    def classes(self) -> bool:
        """Whether classes are predicted, or numbers."""
        return self.metric != "mad"

    @property
    def label_holder(self) -> str:
        """The first organization."""
        return next(iter(self.train))
