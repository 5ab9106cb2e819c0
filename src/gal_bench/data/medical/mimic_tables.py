"""The CSV tables of MIMIC-III: from a folder or an archive, packed or not,
with names in upper or lower case.
"""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, cast

from gal.errors import InvalidInputError, MissingDataError

if TYPE_CHECKING:
    import pandas as pd

Opener = Callable[[], IO[bytes]]
Types = Mapping[str, Any]
"""Wanted columns, in lower case, and their types."""


class Tables:
    """Tables by name (upper case), opened when they are read."""

    def __init__(self, where: str, openers: Mapping[str, Opener]) -> None:
        self.where = where
        self._openers = openers

    @classmethod
    def in_folder(cls, folder: Path) -> Tables:
        """``CHARTEVENTS.csv``, ``CHARTEVENTS.csv.gz`` and the like, in either case."""
        if not folder.is_dir():
            raise MissingDataError(
                f"{folder} is not a folder: pass the one that holds MIMIC-III's CSV files (folder=)"
            )
        openers: dict[str, Opener] = {}
        for path in sorted(folder.iterdir()):  # a plain file comes before its packed copy, and counts
            name, _, ending = path.name.upper().partition(".")
            if ending in {"CSV", "CSV.GZ"}:
                openers.setdefault(name, _in_file(path))
        return cls(str(folder), openers)

    @classmethod
    def in_archive(cls, where: str, content: bytes) -> Tables:
        """The CSV files of a tar archive, unpacked already."""
        archive = tarfile.open(fileobj=BytesIO(content))  # noqa: SIM115 (open while tables are read)
        members = {
            PurePosixPath(member.name).stem.upper(): member
            for member in archive.getmembers()
            if member.isfile() and member.name.lower().endswith(".csv")
        }
        return cls(where, {name: _in_archive(archive, member) for name, member in members.items()})

    def read(self, name: str, types: Types) -> pd.DataFrame:
        """All rows of the wanted columns, whose names are lower case."""
        import pandas as pd

        found = list(self.chunks(name, types, rows=None))
        return pd.concat(found, ignore_index=True)

    def chunks(self, name: str, types: Types, *, rows: int | None) -> Iterator[pd.DataFrame]:
        """The same, at most ``rows`` at a time: CHARTEVENTS has 330 million."""
        import pandas as pd

        columns = self._columns(name, types)
        with self._opened(name) as file:
            how: dict[str, Any] = {
                "usecols": list(columns.values()),
                "dtype": {columns[column]: kind for column, kind in types.items()},
                "encoding_errors": "replace",
            }
            found = [pd.read_csv(file, **how)] if rows is None else pd.read_csv(file, chunksize=rows, **how)
            for chunk in found:
                yield chunk.rename(columns=str.lower)

    def _columns(self, name: str, types: Types) -> dict[str, str]:
        """The wanted columns as the table spells them."""
        import pandas as pd

        with self._opened(name) as file:
            spelled = {str(one).lower(): str(one) for one in pd.read_csv(file, nrows=0).columns}
        missing = [column for column in types if column not in spelled]
        if missing:
            raise InvalidInputError(
                f"{name} in {self.where} has no column {', '.join(missing)}: expected a table of MIMIC-III "
                "1.4, "
                f"got the columns {', '.join(spelled)}"
            )
        return {column: spelled[column] for column in types}

    @contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        if name not in self._openers:
            raise MissingDataError(
                f"{self.where} holds no {name}: expected {name}.csv or {name}.csv.gz of MIMIC-III beside "
                f"{', '.join(sorted(self._openers)) or 'no other table'}"
            )
        try:
            with self._openers[name]() as file:
                yield file
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise InvalidInputError(
                f"{name} in {self.where} cannot be read to its end ({error}): copy it again"
            ) from error
        except ValueError as error:  # pandas' errors are such
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(
                f"{name} in {self.where} is not a table of MIMIC-III: {error}; copy it again"
            ) from error


def _in_file(path: Path) -> Opener:
    def opened() -> IO[bytes]:
        packed = path.suffix.lower() == ".gz"
        return cast(IO[bytes], gzip.GzipFile(path)) if packed else path.open("rb")

    return opened


def _in_archive(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Opener:
    def opened() -> IO[bytes]:
        found = archive.extractfile(member)
        assert found is not None  # only plain files are listed
        return found

    return opened
