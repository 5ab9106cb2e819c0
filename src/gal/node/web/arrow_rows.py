"""Rows and predictions as Arrow IPC streams, for programs that have tables."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from gal.errors import InvalidInputError, InvalidMessageError
from gal.protocol.codec import is_compressed

ARROW = "application/vnd.apache.arrow.stream"
MOST_ROWS = 1_000_000
"""Of one request."""
MOST_CELLS = 10_000_000
"""Values of one request: a column of nulls takes no bytes of it, and memory all the same."""


def asked_in_arrow(body: bytes, row_id: str) -> dict[str, Any]:
    """What is asked for by a table: its ids alone, or with the own columns.

    The ids are in the column that the label holder calls so, or in ``id``.
    """
    try:
        table = _table(body)
    except (pa.ArrowException, InvalidMessageError, OSError, ValueError) as error:
        raise InvalidInputError(f"the request is no Arrow IPC stream: {error}") from error
    if table.num_rows > MOST_ROWS or table.num_rows * table.num_columns > MOST_CELLS:
        raise InvalidInputError(
            f"one request has at most {MOST_ROWS:,} rows and {MOST_CELLS:,} values: send several"
        )
    names = table.column_names
    column = row_id if row_id in names else "id"
    if column not in names or len(set(names)) < len(names):
        raise InvalidInputError(
            f"the table needs one column {row_id!r} (or 'id') with the ids; it has {', '.join(names[:30])}"
        )
    ids = _read(table.column(column))
    if len(names) == 1:
        return {"ids": ids}
    own = _read(table.drop_columns([column]))
    return {"rows": [row | {"id": one} for one, row in zip(ids, own, strict=True)]}


def _read(values: pa.Table | pa.ChunkedArray) -> list[Any]:
    """Rows or values as Python has them; not a time that it has no day for, or of a zone unknown here."""
    try:
        return list(values.to_pylist())
    except (pa.ArrowException, ValueError, OverflowError, KeyError, OSError) as error:
        raise InvalidInputError(f"the table has a value that cannot be read: {error!s:.200}") from error


def _table(body: bytes) -> pa.Table:
    """The table of a stream, no larger in memory than the stream is: a few bytes must not become many."""
    messages = pa.ipc.MessageReader.open_stream(body)
    first = next(iter(messages), None)
    if first is None:
        raise InvalidMessageError("it is empty")
    schema = pa.ipc.read_schema(first)
    for field in schema:
        if not _is_plain(field.type):
            raise InvalidInputError(
                f"the column {field.name!r:.100} is of the type {field.type!s:.100}: send numbers, text, "
                "truth values or times"
            )
    batches = []
    for message in messages:
        if message.type != "record batch" or is_compressed(message.metadata):
            raise InvalidMessageError("batches of rows must be plain, neither compressed nor encoded")
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        batches.append(batch)
    return pa.Table.from_batches(batches, schema)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether every value has bytes of its own, or is null: lists, views, dictionaries and runs share."""
    known = (pa.types.is_primitive, pa.types.is_string, pa.types.is_large_string, pa.types.is_decimal)
    return any(is_one(kind) for is_one in (*known, pa.types.is_null))


def arrow_answer(content: dict[str, Any], row_id: str) -> bytes:
    """Predictions as a table; what is said of all of them is in its metadata, as JSON under ``gal``."""
    rows = content["predictions"]
    columns = {row_id: [row["id"] for row in rows], "prediction": [row["prediction"] for row in rows]}
    for name in rows[0].get("probabilities", {}) if rows else ():
        columns[f"probability_{name}"] = [row["probabilities"][name] for row in rows]
    columns["degraded"] = [row["degraded"] for row in rows]
    facts = {key: value for key, value in content.items() if key != "predictions"}
    table = pa.table(columns).replace_schema_metadata({"gal": json.dumps(facts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())
