"""Messages as Arrow IPC, and back: everything that arrives is checked before it is used.

A message is an Arrow stream of one record batch with one row. Each array is a list column, without a copy;
kind, fields and shapes are JSON in the schema's metadata.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from gal.errors import InvalidMessageError
from gal.protocol.messages import KINDS, Message, MessageHeader, type_name

Model = TypeVar("Model", bound=BaseModel)
HEADER = b"gal"
LARGEST_HEADER = 1 << 20

TYPES: Mapping[str, pa.DataType] = {
    "float32": pa.float32(),
    "float64": pa.float64(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "str": pa.large_string(),
}
"""The types of arrays in messages."""

LISTS = {name: pa.large_list(known) for name, known in TYPES.items()}
WRITING = pa.ipc.IpcWriteOptions()
"""pyarrow's defaults; given, it does not read the environment for each message."""
NUMBERS = {name: np.dtype(name).newbyteorder("<") for name in TYPES if name != "str"}
_ENDS = struct.Struct("<qq")


def encode(message: Message) -> pa.Buffer:
    """The message as bytes; the same message gives the same bytes."""
    names = sorted(message.arrays)
    header = {
        "kind": message.kind,
        "task": message.task,
        "version": message.version,
        "request": message.request,
        "fields": dict(message.fields),
        "arrays": {
            name: (type_name(message.arrays[name]), list(message.arrays[name].shape)) for name in names
        },
    }
    _checked("header", MessageHeader.model_validate, header)
    check_fields(message.kind, message.fields)
    check_arrays(message.kind, message.arrays)
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)
    columns = [_column(message.arrays[name]) for name in names]
    schema = pa.schema(
        [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)],
        metadata={HEADER: text.encode()},
    )
    # Without arrays there is neither column nor row: the header is the whole message.
    batch = pa.record_batch(columns, schema=schema)
    size = schema.serialize().size + pa.ipc.get_record_batch_size(batch) + 64
    buffer = pa.allocate_buffer(size)
    sink = pa.FixedSizeBufferWriter(buffer)
    with pa.ipc.new_stream(sink, schema, options=WRITING) as writer:
        writer.write_batch(batch)
    return buffer.slice(0, sink.tell())


class Encoded(NamedTuple):
    """A message that is ready to be sent, to one or several peers."""

    message: Message
    data: pa.Buffer
    digest: str


def prepare(message: Message) -> Encoded:
    """Encode a message once, with its digest."""
    data = encode(message)
    return Encoded(message, data, digest(data))


def restore(data: Any, known: str | None = None) -> Encoded:
    """An encoded message from its bytes; ``known`` is their digest, where it is known."""
    return Encoded(decode(data), pa.py_buffer(data), digest(data) if known is None else known)


def decode(data: Any, largest: int = 1 << 40) -> Message:
    """The message in these bytes, its arrays as read-only views of them, or InvalidMessageError."""
    try:
        buffer = pa.py_buffer(data)
        if buffer.size > largest:
            raise InvalidMessageError(f"a message of {buffer.size:,} bytes, at most {largest:,} are taken")
        schema, body = _read(buffer)
        header = _header(schema)
        if set(schema.names) != set(header.arrays):
            raise InvalidMessageError("announced and actual arrays differ")
        arrays = {
            name: _array(name, body.column(place), schema.field(place).type, *header.arrays[name])
            for place, name in enumerate(schema.names)
        }
        check_arrays(header.kind, arrays)
        fields = check_fields(header.kind, header.fields)
        return Message(header.kind, header.task, header.version, header.request, fields, arrays)
    except InvalidMessageError:
        raise
    # Errors of libraries about bytes of a peer:
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise InvalidMessageError(f"not a message: {type(error).__name__}: {error!s:.200}") from error
    except (struct.error, StopIteration, RecursionError, MemoryError) as error:
        raise InvalidMessageError(f"not a message: {type(error).__name__}") from error


def digest(data: Any) -> str:
    """The SHA-256 of these bytes: ``sha256:`` and 64 hex digits."""
    return "sha256:" + hashlib.sha256(memoryview(data)).hexdigest()


def _column(array: NDArray[Any]) -> pa.Array:
    """An array as the list of the only row; numbers share their memory."""
    flat, name = np.ascontiguousarray(array).reshape(-1), type_name(array)
    if name == "str":
        values = pa.array(flat, type=TYPES[name])
    else:  # without pyarrow's inspection of the values a small message takes half the time
        little = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
        values = pa.Array.from_buffers(TYPES[name], len(flat), [None, pa.py_buffer(little)])
    ends = pa.py_buffer(_ENDS.pack(0, len(values)))
    return pa.Array.from_buffers(LISTS[name], 1, [None, ends], children=[values])


def _read(buffer: pa.Buffer) -> tuple[pa.Schema, pa.RecordBatch]:
    """Schema and the only batch; content that is expensive or unsafe to read is refused first."""
    messages = pa.ipc.MessageReader.open_stream(buffer)
    first = messages.read_next_message()
    if first.type != "schema" or first.metadata.size > LARGEST_HEADER + (1 << 16):
        raise InvalidMessageError(f"begins with {first.type!r} of {first.metadata.size} bytes, not a schema")
    schema = pa.ipc.read_schema(first)
    if any(one.type not in LISTS.values() or one.metadata for one in schema):
        raise InvalidMessageError(
            f"a column of a type that messages do not have: {[str(t) for t in schema.types]!s:.200}"
        )
    second = messages.read_next_message()
    if second.type != "record batch":
        raise InvalidMessageError(f"a {second.type!r} where the record batch should be")
    if is_compressed(second.metadata):
        raise InvalidMessageError(
            "the arrays are compressed, which is refused: a few bytes could become many"
        )
    batch = pa.ipc.read_record_batch(second, schema)
    batch.validate(full=True)
    try:
        messages.read_next_message()
    except StopIteration:
        return schema, batch
    raise InvalidMessageError("more than one record batch")


def is_compressed(metadata: pa.Buffer) -> bool:
    """Whether this record batch names a compression, a field in Arrow's flatbuffer (Message.fbs).

    pyarrow has no option to refuse it, and would unpack any amount.
    """
    data = memoryview(metadata)
    message = struct.unpack_from("<I", data, 0)[0]
    batch = _flatbuffer_field(data, message, 2)
    if batch is None:
        raise InvalidMessageError("a record batch without a header")
    return _flatbuffer_field(data, batch + struct.unpack_from("<I", data, batch)[0], 3) is not None


def _flatbuffer_field(data: memoryview, table: int, number: int) -> int | None:
    """The place of a flatbuffer table's field; None where it is left out."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0 or table < 0:
        raise InvalidMessageError("a table outside of the message")
    size, place = struct.unpack_from("<H", data, vtable)[0], 4 + 2 * number
    if place + 2 > size:
        return None
    offset = struct.unpack_from("<H", data, vtable + place)[0]
    return table + int(offset) if offset else None


def _header(schema: pa.Schema) -> MessageHeader:
    metadata = schema.metadata or {}
    if list(metadata) != [HEADER] or len(metadata[HEADER]) > LARGEST_HEADER:
        raise InvalidMessageError("no header, or more than one, or too large a one")
    if len(set(schema.names)) != len(schema.names):
        raise InvalidMessageError("two arrays of one name")
    return _checked("header", MessageHeader.model_validate_json, metadata[HEADER])


def _array(
    name: str, column: pa.Array, column_type: pa.DataType, kind: str, shape: list[int]
) -> NDArray[Any]:
    """One announced array, if the column is as announced."""
    if column_type != LISTS[kind] or len(column) != 1 or column.null_count:
        raise InvalidMessageError(f"array {name!r:.40}: announced as {kind}, came as {column_type}")
    start, end = column.offsets.to_pylist()
    values = column.values.slice(start, end - start)
    if values.null_count or len(values) != math.prod(shape):
        raise InvalidMessageError(
            f"array {name!r:.40}: {len(values)} values with {values.null_count} gaps for shape {shape}"
        )
    return _flat(values, kind).reshape(shape)


def _flat(values: pa.Array, kind: str) -> NDArray[Any]:
    """The values of an array, read-only; numbers share their memory.

    pyarrow's own conversion would import pandas: 40 MB that a node does not need.
    """
    found: NDArray[Any]
    if kind == "str":
        found = np.array(values.to_pylist(), dtype=object)
    elif len(values) == 0:
        found = np.zeros(0, NUMBERS[kind])
    else:
        dtype = NUMBERS[kind]
        found = np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * dtype.itemsize)
    found.flags.writeable = False
    return found


def _checked(subject: str, check: Callable[[Any], Model], values: Any) -> Model:
    """Values as a pydantic model, or an error that names the first wrong one."""
    try:
        return check(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidMessageError(f"{subject}: {place!r:.60}: {first['msg']!s:.200}") from None


def check_fields(kind: str, fields: Any) -> dict[str, Any]:
    """The fields with all defaults, or an error that names the first wrong one."""
    return _checked(kind, KINDS[kind].fields.model_validate, fields).model_dump()


def check_arrays(kind: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Whether these are the arrays of this kind, with its types and axes."""
    rules = KINDS[kind].arrays
    lacking = [name for name, rule in rules.items() if name not in arrays and not rule.optional]
    strange = [name for name in arrays if name not in rules]
    if lacking or strange:
        raise InvalidMessageError(f"{kind}: arrays {lacking} are missing, {strange!s:.80} do not belong here")
    for name, array in arrays.items():
        rule = rules[name]
        if type_name(array) not in rule.types or array.ndim != rule.axes:
            raise InvalidMessageError(
                f"{kind}: {name} must be {' or '.join(rule.types)} with {rule.axes} axes, got "
                f"{type_name(array)} of shape {array.shape}"
            )
