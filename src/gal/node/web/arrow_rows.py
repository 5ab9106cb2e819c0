"""Rows and predictions as Arrow IPC streams, for programs that have tables."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from gal.errors import InvalidInputError

ARROW = "application/vnd.apache.arrow.stream"
MOST_ROWS = 1_000_000
"""Of one request."""


def asked_in_arrow(body: bytes, row_id: str) -> dict[str, Any]:
    """What is asked for by a table: its ids alone, or with the own columns.

    The ids are in the column that the label holder calls so, or in ``id``.
    """
    try:
        with pa.ipc.open_stream(body) as stream:
            batches, rows = [], 0
            for batch in stream:
                batch.validate(full=True)
                rows += batch.num_rows
                if rows > MOST_ROWS:
                    raise InvalidInputError(f"one request has at most {MOST_ROWS:,} rows: send several")
                batches.append(batch)
            table = pa.Table.from_batches(batches, stream.schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError(f"the request is no Arrow IPC stream: {error}") from error
    names = table.column_names
    column = row_id if row_id in names else "id"
    if column not in names or len(set(names)) < len(names):
        raise InvalidInputError(
            f"the table needs one column {row_id!r} (or 'id') with the ids; it has {', '.join(names[:30])}"
        )
    ids = table.column(column).to_pylist()
    if len(names) == 1:
        return {"ids": ids}
    own = table.drop_columns([column]).to_pylist()
    return {"rows": [row | {"id": one} for one, row in zip(ids, own, strict=True)]}


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
