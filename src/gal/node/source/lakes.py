"""Parquet files in a folder or an object store, read as batches of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from gal.alignment import RowIds
from gal.errors import InvalidInputError
from gal.node.config.data_source import DataSource

BATCH = 65_536
FEW = 10_000
"""Wanted ids that are looked up in each batch; with more, most rows are wanted anyway."""
BUFFER = 1 << 21
"""Bytes that are fetched at once of each column: whole row groups of many columns are large."""
CONNECT_SECONDS, REQUEST_SECONDS = 10, 60


class Lake:
    """The Parquet files beneath one folder, as one table."""

    def __init__(self, organization: str, data: DataSource) -> None:
        self.organization, self.data = organization, data
        self._files: list[Any] = []
        self._dataset: Any = None

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """Find the files: a new one is seen by the next reading."""
        import pyarrow.dataset as ds

        system, base = self._system()
        self._files = self._files_in(system, base)
        self._dataset = ds.dataset(
            [one.path for one in self._files],
            format="parquet",
            filesystem=system,
            partitioning=ds.HivePartitioning.discover(),
            partition_base_dir=base,
        )
        yield self

    @property
    def schema(self) -> Any:
        return self._dataset.schema

    def _files_in(self, system: Any, base: str) -> list[Any]:
        from pyarrow import fs

        source, found = repr(str(self.data.source)), []
        try:
            found = system.get_file_info(fs.FileSelector(base, recursive=True))
            found = sorted((one for one in found if _is_part(one, base)), key=lambda one: str(one.path))
            why = f"there is no .parquet file in {source}; put data into it"
        except FileNotFoundError:
            why = f"there is no {'bucket or ' if self.data.is_bucket else ''}folder {source}"
        except NotADirectoryError:
            why = f"{source} is no folder and does not end in .csv, .parquet or .xlsx"
        if not found:
            raise InvalidInputError(f"organization {self.organization!r}: {why}. Correct data.source")
        return found

    def _system(self) -> tuple[Any, str]:
        """The file system and folder; keys of an object store come from the environment."""
        from pyarrow import fs

        if self.data.path is not None:
            return fs.LocalFileSystem(), str(self.data.path)
        options: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "request_timeout": REQUEST_SECONDS}
        if self.data.endpoint is not None:
            scheme, _, host = self.data.endpoint.rpartition("://")
            options |= {"endpoint_override": host, "scheme": scheme.lower() or "https"}
        if self.data.region is not None or self.data.endpoint is not None:
            options["region"] = self.data.region or "us-east-1"
        return fs.S3FileSystem(**options), str(self.data.address).split("://", 1)[1].rstrip("/")

    def describe(self, error: BaseException) -> str:
        """An error in one line."""
        return " ".join(str(error).split())[:300].rstrip(". ")

    def batches(self, columns: Sequence[str], wanted: RowIds | None = None, most: int | None = None) -> Any:
        """A reader of these columns: of all rows, of at most ``most``, or of all that may be wanted."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        if most is not None:
            return self._dataset.head(most, columns=list(columns)).to_reader()
        name, condition = self.data.row_id, None
        kind = self.schema.field(name).type
        same = {"integer": pa.types.is_integer(kind), "text": pa.types.is_string(kind)}
        if wanted is not None and len(wanted) and same[wanted.kind]:
            ids = pa.array(wanted.values.tolist()).cast(kind, safe=False)  # another value is no id of it
            low, high = pc.min_max(ids).values()
            condition = (pc.field(name) >= low) & (pc.field(name) <= high)  # leaves row groups out
            if len(ids) <= FEW:
                condition &= pc.field(name).isin(ids)
        # One row group at a time: with its defaults the scanner keeps several in memory.
        buffered = ds.ParquetFragmentScanOptions(
            use_buffered_stream=True, buffer_size=BUFFER, pre_buffer=False
        )
        scanner = self._dataset.scanner(
            columns=list(columns),
            filter=condition,
            batch_size=BATCH,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
            fragment_scan_options=buffered,
        )
        return scanner.to_reader()

    def stamp(self) -> str:
        """Changes whenever a file was added, changed or removed."""
        return str(hash(tuple((one.path, one.mtime_ns, one.size) for one in self._files)))


def _is_part(info: Any, base: str) -> bool:
    """Whether this file belongs to the table: names with a leading . or _ are those of writers."""
    from pyarrow import fs

    below = info.path.removeprefix(base).strip("/").split("/")
    return (
        info.type == fs.FileType.File
        and info.path.lower().endswith((".parquet", ".pq"))
        and not any(part.startswith((".", "_")) for part in below)
    )
