"""Messages as bytes: every kind comes back as it was, and nothing that is not a message is taken for one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gal.errors import InvalidMessageError
from gal.protocol import KINDS, Message, decode, digest, encode, prepare
from gal.protocol.codec import HEADER, LARGEST_HEADER
from gal.protocol.messages import WITHOUT_TASK, ArrayRule

# Every kind, with any content that it may have

hexes = st.text("0123456789abcdef", min_size=64, max_size=64)
digests = hexes.map(lambda one: f"sha256:{one}")
task_ids = st.text("0123456789abcdef", min_size=32, max_size=32)
printable = st.text(st.characters(exclude_categories=("C", "Z")), max_size=50)
positive = st.integers(1, 1_000_000)
rounds = st.lists(positive, min_size=1, max_size=5)
tracks, id_kinds = st.sampled_from(["assisted", "alone"]), st.sampled_from(["integer", "text"])
methods = st.sampled_from(["plain", "hashed", "psi"])
secrets = st.one_of(st.just(""), task_ids)
name = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
row_fields = {"kind": id_kinds, "method": methods, "secret": secrets}
joined_task = st.fixed_dictionaries({"task": task_ids, "terms": digests, "moving": st.booleans()})
sum_numbers = st.lists(st.integers(1, 2**53 - 1), min_size=1, max_size=64)
members = st.lists(name, min_size=1, max_size=5)

FIELDS: Mapping[str, Mapping[str, st.SearchStrategy[Any]]] = {
    "hello": {"versions": st.lists(positive, max_size=16), "software": printable, "nonce": hexes},
    "welcome": {"version": positive, "software": printable, "proof": printable},
    "refusal": {
        "code": st.from_regex(r"\A[a-z0-9-]{1,40}\Z"),
        "message": printable,
        "answers": st.one_of(st.none(), digests),
    },
    "joined": {"tasks": st.lists(joined_task, max_size=4)},
    "leave": {"reason": printable},
    "blind": {
        "step": st.sampled_from(["setup", "response"]),
        "kind": id_kinds,
        "exchange": task_ids,
        "n_rows": st.integers(1, 2**62),
    },
    "blinded": {"answers": digests},
    "begin": row_fields
    | {
        "terms": digests,
        "organization": name,
        "n_outputs": positive,
        "rounds": positive,
        "further": st.integers(0, 1000),
        "seed": st.integers(0, 2**63 - 1),
    },
    "begun": {"answers": digests, "rows": digests, "n_rows": st.integers(0, 2**62)},
    "fit": {
        "rows": digests,
        "round": positive,
        "track": tracks,
        "part": st.one_of(st.none(), st.integers(0, 1000)),
        "target": st.sampled_from(["residual", "random", "probe"]),
    },
    "fitted": {"answers": digests, "rows": digests, "round": positive},
    "predict": row_fields | {"track": tracks, "rounds": rounds},
    "revisit": {"rows": digests, "track": tracks, "rounds": rounds},
    "predicted": {"answers": digests, "rows": digests},
    "end": {"kept": st.integers(0, 1_000_000)},
    "done": {"answers": digests},
    "keys": {"circle": hexes, "numbers": sum_numbers},
    "offers": {"answers": digests},
    "share": {"circle": hexes, "numbers": sum_numbers, "members": members},
    "shares": {"answers": digests},
    "sum": {
        "circle": hexes,
        "number": st.integers(1, 2**53 - 1),
        "members": members,
        "of": digests,
        "content": hexes,
        "unit": st.floats(min_value=0, exclude_min=True, allow_infinity=False),
        "shape": st.lists(st.integers(0, 2**40), min_size=2, max_size=2),
        "round": st.integers(0, 1_000_000),
    },
    "masked": {"answers": digests},
    "open": {"circle": hexes, "number": st.integers(1, 2**53 - 1), "members": members},
    "opened": {"answers": digests},
    "total": row_fields
    | {
        "track": tracks,
        "rounds": rounds,
        "rates": st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5),
    },
    "found": {
        "answers": digests,
        "rows": digests,
        "learned": hexes,
        "unit": st.floats(min_value=2.0**-1000, max_value=2.0**1000),
    },
}


@st.composite
def arrays(draw: st.DrawFn, rule: ArrayRule) -> Any:
    """Any array that a rule allows; small, of any values that its type has."""
    kind = draw(st.sampled_from(rule.types))
    shape = tuple(draw(st.integers(0, 4)) for _ in range(rule.axes))
    size = int(np.prod(shape))
    if kind == "str":
        made = np.empty(size, dtype=object)
        made[:] = draw(st.lists(st.text(max_size=5), min_size=size, max_size=size))
        return made.reshape(shape)
    data = draw(st.binary(min_size=size * np.dtype(kind).itemsize, max_size=size * np.dtype(kind).itemsize))
    return np.frombuffer(data, dtype=kind).reshape(shape)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind = draw(st.sampled_from(sorted(KINDS)))
    rules = KINDS[kind].arrays
    given = {name: rule for name, rule in rules.items() if not rule.optional or draw(st.booleans())}
    task = draw(st.one_of(st.just(""), task_ids) if kind in WITHOUT_TASK else task_ids)
    return Message(
        kind,
        task,
        draw(st.integers(0, 1_000_000)),
        draw(printable),
        draw(st.fixed_dictionaries(dict(FIELDS[kind]))),
        {name: draw(arrays(rule)) for name, rule in given.items()},
    )


def same(one: Message, other: Message) -> bool:
    """Equal in everything, bit for bit in the arrays (NaN is not equal to itself)."""
    if replace(one, arrays={}) != replace(other, arrays={}) or set(one.arrays) != set(other.arrays):
        return False
    return all(_same_bits(one.arrays[name], other.arrays[name]) for name in one.arrays)


def _same_bits(one: Any, other: Any) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool((one == other).all()) if one.dtype == object else one.tobytes() == other.tobytes()


def test_every_kind_has_a_strategy() -> None:
    assert set(FIELDS) == set(KINDS)
    for kind, fields in FIELDS.items():
        assert set(fields) == set(KINDS[kind].fields.model_fields)


@given(messages())
@settings(max_examples=300)
def test_every_message_comes_back_and_cannot_be_written_to(message: Message) -> None:
    data = encode(message)
    for way in (data, bytes(data), bytearray(data), memoryview(data)):
        assert same(decode(way, data.size), message)
    for array in decode(bytes(data)).arrays.values():
        assert array.dtype == object or not array.flags.writeable


@given(messages())
def test_the_same_message_has_the_same_bytes(message: Message) -> None:
    """Whatever the order in which its fields and arrays were given, and after having travelled."""
    fields, arrays = (dict(reversed(list(one.items()))) for one in (message.fields, message.arrays))
    turned = replace(message, fields=fields, arrays=arrays)
    first = prepare(message)
    assert first.digest == digest(encode(turned)) == digest(encode(decode(first.data)))


@given(messages(), st.integers(1, 1000))
def test_too_many_bytes_are_refused(message: Message, fewer: int) -> None:
    data = encode(message)
    with pytest.raises(InvalidMessageError, match="at most"):
        decode(data, data.size - fewer)


def fitted(values: Any) -> Message:
    fields = {"answers": "sha256:" + "0" * 64, "rows": "sha256:" + "0" * 64, "round": 1}
    return Message("fitted", "0" * 32, 1, "1.0", fields, {"fitted": values})


# What is refused, by the sender too

ONES = np.ones((2, 1), dtype=np.float32)


@pytest.mark.parametrize(
    "message",
    [
        Message("unknown", "0" * 32),
        Message("begun", "0" * 32),
        Message("end", "", 1, "", {"kept": 1}),
        Message("end", "../../x", 1, "", {"kept": 1}),
        Message("end", "A" * 32, 1, "", {"kept": 1}),
        Message("end", "0" * 32, -1, "", {"kept": 1}),
        Message("end", "0" * 32, 1_000_001, "", {"kept": 1}),
        Message("end", "0" * 32, 1, "a\nb", {"kept": 1}),
        Message("end", "0" * 32, 1, "\u202e", {"kept": 1}),
        Message("end", "0" * 32, 1, "x" * 201, {"kept": 1}),
        Message("end", "0" * 32, 1, "", {"kept": -1}),
        Message("end", "0" * 32, 1, "", {"kept": "1"}),
        Message("end", "0" * 32, 1, "", {"kept": True}),
        Message("end", "0" * 32, 1, "", {"kept": 1, "more": 1}),
        Message("end", "0" * 32, 1, "", {}),
        Message("end", "0" * 32, 1, "", {"kept": 1}, {"more": ONES}),
        fitted(np.ones(2, dtype=np.float32)),
        fitted(np.ones((2, 1), dtype=np.float64)),
        fitted(np.array([["a"]], dtype=object)),
        fitted(np.ones((2, 1), dtype=np.bool_)),
        fitted(np.ones((2, 1), dtype="M8[s]")),
    ],
    ids=lambda one: f"{one.kind} {one.request!r:.10} {dict(one.fields)!s:.30} {one.shape}",
)
def test_invalid_messages_are_not_encoded(message: Message) -> None:
    with pytest.raises(InvalidMessageError):
        encode(message)


# What is refused when it arrives: valid Arrow with something wrong


def raw(header: Any, columns: Mapping[str, pa.Array] | None = None, **how: Any) -> bytes:
    """An Arrow stream with this header (bytes are taken as they are) and these columns."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    columns = dict(columns or {})
    fields = [pa.field(name, one.type, metadata=how.get("field_metadata")) for name, one in columns.items()]
    schema = pa.schema(fields, metadata=how.get("metadata", {}) | {HEADER: text})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=how.get("compression"))
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for _ in range(how.get("batches", 1)):
            writer.write_batch(pa.record_batch(list(columns.values()), schema=schema))
    return bytes(sink.getvalue())


def header_of(message: Message, **changes: Any) -> dict[str, Any]:
    found = json.loads(pa.ipc.open_stream(encode(message)).schema.metadata[HEADER])
    return {**found, **changes}


HEAD = header_of(fitted(ONES))


def listed(values: Any, type: pa.DataType | None = None, offsets: tuple[int, ...] = ()) -> pa.Array:
    """Values as the list of one row."""
    flat = values if isinstance(values, pa.Array) else pa.array(values, type=type or pa.float32())
    ends = offsets or (0, len(flat))
    return pa.LargeListArray.from_arrays(pa.array(ends, type=pa.int64()), flat)


GOOD = {"fitted": listed([1.0, 1.0])}


def test_the_hand_made_message_is_valid() -> None:
    """Otherwise the refusals below would show nothing."""
    assert same(decode(raw(HEAD, GOOD)), fitted(ONES))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_arrays_are_refused(compression: str) -> None:
    """A few bytes could become many: two megabytes of zeros are a few hundred bytes here."""
    zeros = np.zeros((500_000, 1), dtype=np.float32)
    data = raw(header_of(fitted(zeros)), {"fitted": listed(zeros[:, 0])}, compression=compression)
    assert len(data) < 100_000
    with pytest.raises(InvalidMessageError, match="compressed"):
        decode(data)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, 1.0], type=pa.float32()),
        pa.array([[1.0, 1.0]], type=pa.list_(pa.float32())),
        pa.array([[1.0, 1.0]], type=pa.list_view(pa.float32())),
        pa.array([[[1.0], [1.0]]], type=pa.large_list(pa.large_list(pa.float32()))),
        pa.array([{"a": 1.0}], type=pa.struct({"a": pa.float32()})),
        pa.array([[(1.0, 1.0)]], type=pa.map_(pa.float32(), pa.float32())),
        listed(pa.array(["a", "a"]).dictionary_encode()),
        listed([True, False], pa.bool_()),
        listed([1, 1], pa.int8()),
        listed(["a", "b"], pa.string()),
        listed([b"a", b"b"], pa.large_binary()),
        listed([1, 1], pa.timestamp("s")),
        listed([None, None], pa.null()),
        pa.nulls(1),
        pa.ExtensionArray.from_storage(pa.opaque(pa.large_list(pa.float32()), "a", "b"), listed([1.0, 1.0])),
        listed(pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 1], type=pa.int8()))),
        pa.RunEndEncodedArray.from_arrays([1], pa.array([1.0], type=pa.float32())),
    ],
    ids=lambda one: str(one.type)[:40],
)
def test_other_types_of_columns_are_refused(column: pa.Array) -> None:
    with pytest.raises(InvalidMessageError):
        decode(raw(HEAD, {"fitted": column}))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None], type=pa.large_list(pa.float32())),
        listed([1.0, None]),
        pa.array([[1.0], [1.0]], type=pa.large_list(pa.float32())),
        pa.array([], type=pa.large_list(pa.float32())),
        listed([1.0, 1.0, 1.0]),
        listed([1.0]),
        listed([1.0, 1.0], pa.float64()),
    ],
    ids=str,
)
def test_gaps_and_other_lengths_are_refused(column: pa.Array) -> None:
    with pytest.raises(InvalidMessageError):
        decode(raw(HEAD, {"fitted": column}))


@pytest.mark.parametrize(
    "offsets",
    [(0, 10**12), (0, -2), (12_345, 0), (-12_345, 0), (-(2**63), 2**63 - 1), (0, 12_346), (1, 12_346)],
    ids=str,
)
def test_wrong_offsets_are_refused(offsets: tuple[int, int]) -> None:
    """The library would not write these, so they are put into the bytes."""
    data = bytes(encode(fitted(np.ones((12_345, 1), dtype=np.float32))))
    right, wrong = (np.array(one, dtype=np.int64).tobytes() for one in ((0, 12_345), offsets))
    at = data.rindex(right)  # the last one is in the body, after all metadata
    assert decode(data)
    with pytest.raises(InvalidMessageError):
        decode(data[:at] + wrong + data[at + len(right) :])


def test_text_that_is_none_is_refused() -> None:
    ends = pa.py_buffer(np.array([0, 2], dtype=np.int64).tobytes())
    column = listed(pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(b"\xff\xfe")]))
    fields = {"kind": "text", "method": "plain", "secret": "", "track": "assisted", "rounds": [1]}
    message = Message("predict", "0" * 32, 1, "", fields, {"texts": np.array(["ab"], dtype=object)})
    assert decode(raw(header_of(message), {"texts": listed(["ab"], pa.large_string())})).arrays["texts"] == [
        "ab"
    ]
    with pytest.raises(InvalidMessageError):
        decode(raw(header_of(message), {"texts": column}))


@pytest.mark.parametrize(
    "how",
    [
        {"batches": 0},
        {"batches": 2},
        {"metadata": {b"more": b"x"}},
        {"field_metadata": {b"more": b"x"}},
        {"field_metadata": {b"ARROW:extension:name": b"arrow.uuid", b"ARROW:extension:metadata": b""}},
    ],
    ids=str,
)
def test_more_or_less_than_one_message_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessageError):
        decode(raw(HEAD, GOOD, **how))


def test_strange_arrays_are_refused() -> None:
    for columns in ({}, {"other": GOOD["fitted"]}, GOOD | {"other": GOOD["fitted"]}):
        with pytest.raises(InvalidMessageError):
            decode(raw(HEAD, columns))
    schema = pa.schema(
        [pa.field("fitted", GOOD["fitted"].type)] * 2, metadata={HEADER: json.dumps(HEAD).encode()}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([GOOD["fitted"]] * 2, schema=schema))
    with pytest.raises(InvalidMessageError, match="two arrays"):
        decode(sink.getvalue())


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        None,
        {"fitted": None},
        {"fitted": ["float32"]},
        {"fitted": ["float32", [2, 1], 1]},
        {"fitted": ["float64", [2, 1]]},
        {"fitted": ["pickle", [2, 1]]},
        {"fitted": [["float32"], [2, 1]]},
        {"fitted": ["float32", [1, 1]]},
        {"fitted": ["float32", [2.0, 1]]},
        {"fitted": ["float32", [2, True]]},
        {"fitted": ["float32", [2]]},
        {"fitted": ["float32", [2, 1, 1, 1, 1]]},
        {"fitted": ["float32", [2**32, 2**32]]},
        {"fitted": ["float32", 2]},
        {"fitted": ["float32", [2, 1]], "more": ["float32", [0]]},
    ],
    ids=str,
)
def test_wrong_announcements_are_refused(arrays: Any) -> None:
    with pytest.raises(InvalidMessageError):
        decode(raw({**HEAD, "arrays": arrays}, GOOD))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b"{" * 100_000,
        b"[" * 500_000,
        b"9" * 500_000,
        b" " * (LARGEST_HEADER + 1),
        json.dumps(HEAD).replace('"round": 1', '"round": NaN').encode(),
        json.dumps(HEAD).replace('"round": 1', '"round": Infinity').encode(),
        json.dumps(HEAD).replace('"round": 1', '"round": 1e0').encode(),
        json.dumps(HEAD).replace('"round": 1', '"round": ' + "9" * 5000).encode(),
        json.dumps({**HEAD, "more": 1}).encode(),
        json.dumps({name: value for name, value in HEAD.items() if name != "kind"}).encode(),
    ],
    ids=lambda one: f"{one[:12]!r} {len(one)}",
)
def test_headers_that_are_none_are_refused(text: bytes) -> None:
    with pytest.raises(InvalidMessageError):
        decode(raw(text, GOOD))


def test_many_fields_and_entries_are_refused() -> None:
    many = [{"task": "0" * 32, "terms": "sha256:" + "0" * 64, "moving": False}] * 10_001
    for kind, fields in (
        ("joined", {"tasks": many}),
        ("hello", {"versions": [1] * 17, "software": "", "nonce": "0" * 64}),
        ("refusal", {"code": "x", "message": "x" * 2001}),
        ("refusal", {"code": "x" * 41, "message": ""}),
        ("refusal", {"code": "x\n", "message": ""}),
    ):
        with pytest.raises(InvalidMessageError):
            decode(raw({**HEAD, "kind": kind, "fields": fields, "arrays": {}}))


# Anything at all

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | digests | task_ids,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


def taken_or_refused(data: bytes) -> None:
    """A message that comes back the same, or the one error that says it is none."""
    try:
        message = decode(data, 1 << 22)
    except InvalidMessageError:
        return
    assert same(decode(encode(message)), message)


@given(st.data(), messages())
@settings(max_examples=300)
def test_any_header_is_taken_or_refused(data: st.DataObject, message: Message) -> None:
    """One or two entries of a valid header become anything."""
    reader = pa.ipc.open_stream(encode(message))
    columns = dict(zip(reader.schema.names, reader.read_next_batch().columns, strict=True))
    header = header_of(message)
    for _ in range(data.draw(st.integers(1, 2))):
        within = data.draw(st.sampled_from([header, header["fields"], header["arrays"]]))
        if isinstance(within, dict):
            key = data.draw(st.sampled_from(sorted(within)) if within else st.text(max_size=5))
            within[key] = data.draw(json_values)
        if not isinstance(header.get("fields"), dict) or not isinstance(header.get("arrays"), dict):
            break
    taken_or_refused(raw(header, columns))


@given(messages(), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=8))
@settings(max_examples=600)
def test_any_bytes_changed_are_taken_or_refused(message: Message, changes: list[tuple[int, int]]) -> None:
    broken = bytearray(encode(message))
    for place, value in changes:
        broken[place % len(broken)] = value
    taken_or_refused(bytes(broken))


@given(st.binary(max_size=300))
@example(b"")
@example(b"\xff" * 8)
@example(b"ARROW1\0\0")
@settings(max_examples=300)
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessageError):
        decode(data, 1 << 22)
