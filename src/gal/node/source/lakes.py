"""Parquet files in a folder or an object store, partitioned or not: larger than memory, read by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from gal.alignment import RowIds
from gal.errors import InvalidInputError
from gal.node.config.data_source import DataSource

BATCH = 65_536
FEW = 10_000
"""So many wanted ids are looked for in each batch; of more, most rows are wanted anyway."""
BUFFER = 1 << 21
"""Bytes that are fetched at once of each column: whole row groups of many columns are large."""
CONNECT_SECONDS, REQUEST_SECONDS = 10, 60


class Lake:
    """The Parquet files beneath one folder, as one table; it is asked while it is ``opened``."""

    def __init__(self, organization: str, data: DataSource) -> None:
        self.organization, self.data = organization, data
        self._files: list[Any] = []
        self._dataset: Any = None

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """The files that are there now: a new one is seen by the next reading."""
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
        """The columns as they come."""
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
        """Where files are looked for; keys of an object store come from the environment."""
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

    def said(self, error: BaseException) -> str:
        """What went wrong, in one line."""
        return " ".join(str(error).split())[:300].rstrip(". ")

    def batches(self, columns: Sequence[str], wanted: RowIds | None = None, most: int | None = None) -> Any:
        """A reader of these columns: of all rows, of at most so many, or of those with wanted ids."""
        import pyarrow as pa

        if most is not None:
            return self._dataset.head(most, columns=list(columns)).to_reader()
        schema = pa.schema([self.schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema, wanted))

    def _batches(self, schema: Any, wanted: RowIds | None) -> Iterator[Any]:
        """Rows file by file and part by part; Arrow's own scanner keeps several parts in memory. Parts that
        have no id between the smallest and the largest wanted one are left out.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        name, condition, few = self.data.row_id, None, None
        kind = self.schema.field(name).type
        same = {"integer": pa.types.is_integer(kind), "text": pa.types.is_string(kind)}
        if wanted is not None and len(wanted) and same[wanted.kind]:
            ids = pa.array(wanted.values.tolist()).cast(kind, safe=False)  # what does not fit is none of it
            low, high = pc.min_max(ids).values()
            condition = (pc.field(name) >= low) & (pc.field(name) <= high)
            few = ids if len(ids) <= FEW else None
        for fragment in self._dataset.get_fragments(filter=condition):
            chosen = fragment if condition is None else fragment.subset(filter=condition)
            for batch in self._parts(chosen, schema):
                yield batch if few is None else batch.filter(pc.is_in(batch.column(name), few))

    def _parts(self, fragment: Any, schema: Any) -> Iterator[Any]:
        """The rows of one file, of those of its parts that were chosen."""
        import pyarrow as pa
        import pyarrow.dataset as ds
        import pyarrow.parquet as pq

        by_folder = ds.get_partition_keys(fragment.partition_expression)
        with pq.ParquetFile(fragment.open(), buffer_size=BUFFER, pre_buffer=False) as file:
            own = [name for name in file.schema_arrow.names if name in schema.names and name not in by_folder]
            groups = [one.id for one in fragment.row_groups]
            for batch in file.iter_batches(BATCH, row_groups=groups, columns=own, use_threads=False):
                found = [
                    batch.column(field.name).cast(field.type)
                    if field.name in own
                    else pa.repeat(pa.scalar(by_folder.get(field.name), field.type), batch.num_rows)
                    for field in schema
                ]
                yield pa.record_batch(found, schema=schema)

    def stamp(self) -> str:
        """Another one whenever a file was added, changed or taken away."""
        return str(hash(tuple((one.path, one.mtime_ns, one.size) for one in self._files)))


def _is_part(info: Any, base: str) -> bool:
    """Whether this is a file of the table: what begins with . or _ is what writers leave beside it."""
    from pyarrow import fs

    below = info.path.removeprefix(base).strip("/").split("/")
    return (
        info.type == fs.FileType.File
        and info.path.lower().endswith((".parquet", ".pq"))
        and not any(part.startswith((".", "_")) for part in below)
    )
