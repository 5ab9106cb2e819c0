"""Tens of thousands of broken messages over open streams: no node falls, everything refused is on record.

Each is a valid message of some kind with something wrong: bits flipped, pieces cut out, doubled or taken from
another message; or a header that says what no node would, in valid Arrow and valid frames. Draws are seeded.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gal.errors import InvalidMessageError
from gal.node.config.invitations import TaskTerms
from gal.protocol import KINDS, Message, decode, encode
from hostile import (
    ZERO_DIGEST,
    Asker,
    Network,
    Peer,
    asker,
    dialed,
    files_below,
    joined,
    listening,
    network,
    opened,
    raw,
)
from patience import patient

FEW, MANY, MOST = 1_000, 10_000, 30_000
Rng = np.random.Generator

NASTY: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31, 2**53 + 1, 2**64, 10**300, -0.5, 1e308),
    *("", "../../x", "/etc/passwd", "x" * 100_000, "\x00", "\x1b[31m\x07\r\n", "\u202ecba", "\ud800"),
    *("'; DROP TABLE tasks; --", "sha256:" + "f" * 64, "e" * 32, "alone", "psi", "hashed", "NaN"),
    *([], [[]], [1] * 10_000, {}, {"a": {"b": {"c": {}}}}),
)


def valid_messages(task: Asker) -> list[Message]:
    """One of every kind at least; what is asked for is a task that this peer has."""
    terms = task.terms
    flags, values = np.ones(60, dtype=np.uint8), np.ones((1, 60, 1), dtype=np.float32)
    fitted = {"answers": ZERO_DIGEST, "rows": task.rows, "round": 1}
    parts = np.arange(60, dtype=np.int32) % 3
    texts = np.array([f"row {one}" for one in range(60)], dtype=object)
    hashes = np.arange(60 * 16, dtype=np.uint8).reshape(60, 16)
    some = [
        Message("hello", fields={"versions": [1], "software": "x", "nonce": "ab" * 32}),
        Message("welcome", fields={"version": 1, "software": "x", "proof": "eA=="}),
        Message("refusal", terms.task, 1, "begin", {"code": "no", "message": "no", "answers": ZERO_DIGEST}),
        joined(terms),
        Message("leave", terms.task),
        task.blind("setup"),
        task.blind("response", content=b"x" * 66, n=2),
        Message("blinded", terms.task, 1, "x", {"answers": ZERO_DIGEST}, {"bytes": flags}),
        task.begin(version=2),
        task.begin(version=3, arrays={"folds": parts, "parts": parts}),
        task.begin(arrays={"integers": None, "texts": texts}, kind="text"),
        task.begin(arrays={"integers": None, "hashes": hashes}, method="hashed", secret="ab" * 16),
        Message(
            "begun",
            terms.task,
            1,
            "x",
            {"answers": ZERO_DIGEST, "rows": ZERO_DIGEST, "n_rows": 60},
            {"known": flags},
        ),
        task.fit(),
        task.fit(2, weight=np.ones(60)),
        Message("fitted", terms.task, 1, "x", fitted, {"fitted": values[0]}),
        task.predict(),
        task.predict(rounds=[1, 2, 3]),
        task.revisit(),
        Message(
            "predicted",
            terms.task,
            1,
            "x",
            {"answers": ZERO_DIGEST, "rows": ZERO_DIGEST},
            {"known": flags, "values": values},
        ),
        task.end(version=3),
        Message("done", terms.task, 1, "x", {"answers": ZERO_DIGEST}),
        *messages_of_sums(terms.task),
    ]
    assert {one.kind for one in some} == set(KINDS)
    return some


def messages_of_sums(task: str) -> list[Message]:
    """Of every kind that a sum takes."""
    group, rows = {"circle": "ab" * 32}, {"kind": "integer", "method": "plain", "secret": ""}
    numbers, members, of = {"numbers": [1, 2]}, {"members": ["a", "b", "lab"]}, {"answers": ZERO_DIGEST}
    keys, boxes = np.ones((2, 96), dtype=np.uint8), np.ones((2, 3, 82), dtype=np.uint8)
    signed, flags = np.ones((2, 80), dtype=np.uint8), np.ones(60, dtype=np.uint8)
    every = {"keys": np.stack([keys] * 3), "signatures": np.stack([signed] * 3)}
    words = {"of": ZERO_DIGEST, "content": "cd" * 32, "unit": 0.5, "shape": [60, 1], "round": 1}
    made: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("keys", group | numbers, {}),
        ("offers", of, {"keys": keys, "signatures": signed}),
        ("share", group | numbers | members, every),
        ("shares", of, {"boxes": boxes}),
        ("sum", group | members | words | {"number": 1}, {"boxes": boxes[0], "rows": flags}),
        ("masked", of, {"values": np.ones((60, 1), dtype=np.int32)}),
        ("open", group | members | {"number": 1}, {}),
        ("opened", of, {"seeds": boxes[0, :, :33], "keys": boxes[0, :0, :33]}),
        ("total", rows | {"track": "assisted", "rounds": [1], "rates": [0.5]}, {"integers": np.arange(60)}),
        ("found", of | {"rows": ZERO_DIGEST, "learned": "0" * 64, "unit": 1.0}, {"known": flags}),
    ]
    return [Message(kind, task, 1, "x", fields, arrays) for kind, fields, arrays in made]


# Bytes


def flip_bits(data: bytes, rng: Rng) -> bytes:
    broken = bytearray(data)
    for place in rng.integers(len(broken), size=rng.integers(1, 9)):
        broken[place] ^= 1 << int(rng.integers(8))
    return bytes(broken)


def set_bytes(data: bytes, rng: Rng) -> bytes:
    """Some bytes become the ones that numbers and lengths break at."""
    broken = bytearray(data)
    for place in rng.integers(len(broken), size=rng.integers(1, 5)):
        broken[place] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF]))
    return bytes(broken)


def set_words(data: bytes, rng: Rng) -> bytes:
    """Four or eight bytes at a multiple of four become a length or an offset out of range."""
    broken, size = bytearray(data), int(rng.choice([4, 8]))
    place = 4 * int(rng.integers(max(1, (len(data) - size) // 4)))
    value = int(rng.choice([0, 1, -1, 2**31 - 1, -(2**31), 64, 2**20]))
    broken[place : place + size] = value.to_bytes(size, "little", signed=True)
    return bytes(broken)


def cut(data: bytes, rng: Rng) -> bytes:
    return data[: rng.integers(len(data))]


def take_out(data: bytes, rng: Rng) -> bytes:
    first, last = np.sort(rng.integers(len(data), size=2))
    return data[:first] + data[last:]


def double(data: bytes, rng: Rng) -> bytes:
    first, last = np.sort(rng.integers(len(data), size=2))
    return data[:last] + data[first:]


BYTES: tuple[Callable[[bytes, Rng], bytes], ...] = (flip_bits, set_bytes, set_words, cut, take_out, double)

# Headers


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places in a JSON value."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in below for place in places(one, (*path, key)))]


def edited(header: Any, rng: Rng) -> Any:
    """Another value, a missing or a strange entry somewhere in a header."""
    place = places(header)[1:][rng.integers(len(places(header)) - 1)]
    inside = header
    for key in place[:-1]:
        inside = inside[key]
    how = rng.integers(6)
    if how == 0:
        del inside[place[-1]]
    elif how == 1 and isinstance(inside, dict):
        inside[str(NASTY[rng.integers(len(NASTY))])[:200]] = _copy(inside[place[-1]])
    else:
        inside[place[-1]] = _copy(NASTY[rng.integers(len(NASTY))])
    return header


def renamed(columns: dict[str, pa.Array], rng: Rng) -> dict[str, pa.Array]:
    """One column less, or by another name."""
    name = sorted(columns)[rng.integers(len(columns))]
    moved = columns.pop(name)
    if rng.integers(2):
        columns[["../../x", "integers", "fit", "values", "x" * 1000][rng.integers(5)]] = moved
    return columns


def broken(messages: list[Message], n: int, seed: int) -> Iterator[bytes]:
    """So many messages with something wrong, about half of them with a wrong header."""
    rng = np.random.default_rng(seed)
    whole, taken = [bytes(encode(one)) for one in messages], [opened(one) for one in messages]
    for number in range(n):
        which = number % len(messages)
        if rng.integers(2):
            data = BYTES[rng.integers(len(BYTES))](whole[which], rng)
            yield data if rng.integers(10) else data + whole[rng.integers(len(whole))]
            continue
        header, columns = _copy(taken[which][0]), dict(taken[which][1])
        for _ in range(rng.integers(1, 3)):
            header = edited(header, rng)
        yield bytes(raw(header, renamed(columns, rng) if columns and not rng.integers(8) else columns))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(one) for key, one in value.items()}
    return [_copy(one) for one in value] if isinstance(value, list) else value


# The tests


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    without_end = "[policy]\nrefusals_per_day = 1_000_000_000\n"
    with network(tmp_path_factory.mktemp("mutations"), clinic=without_end, lab=without_end) as made:
        yield made


def test_mutations_hit_every_check() -> None:
    """Most are refused, and for many different reasons; otherwise the tests below would show little."""
    messages = valid_messages(Asker(some_terms(), np.arange(60, dtype=np.int64)))
    reasons, valid = Counter[str](), 0
    for data in broken(messages, 3000, seed=3):
        try:
            decode(data, 10**7)
            valid += 1
        except InvalidMessageError as error:
            reasons[str(error)[:30]] += 1
    assert valid < 900
    assert len(reasons) > 40


def some_terms() -> TaskTerms:
    return TaskTerms(
        task="0" * 32,
        name="x",
        label_holder="mallory",
        fingerprint=ZERO_DIGEST,
        organizations=(),
        outputs=1,
        rounds=3,
    )


def send_all(peer: Peer, messages: list[Message], n: int, seed: int) -> None:
    """Send so many broken messages, and a frame here and there that is none."""
    rng = np.random.default_rng(seed)
    for number, data in enumerate(broken(messages, n, seed)):
        peer.send_bytes(data)
        if number % 100 == 0:
            peer.send_frame(rng.bytes(int(rng.integers(40))))


def check_records(net: Network, node: str, since: int, at_least: int) -> None:
    """Every refusal has a code, the chain holds, and no entry holds what a terminal would obey."""
    codes = Counter(net.refusals(node, since))
    assert codes.total() >= at_least
    assert codes["invalid-message"] > at_least // 2
    assert all(code.replace("-", "").isalnum() for code in codes), codes
    entries = [one for one in net.audited(node) if one.seq > since]
    assert all(one.note.isprintable() for one in entries)
    assert {one.peer for one in entries if one.kind == "refused"} == {"mallory"}


def check_files(net: Network, before: set[str]) -> None:
    """Only known places have new files: nothing outside of the homes, and
    there only what belongs to a task.
    """
    tasks = {task.id for node in net.nodes.values() for task in node.state.tasks()}
    for path in files_below(net.root) - before:
        parts = Path(path).parts
        if len(parts) == 1:
            assert parts[0].endswith(".invitation")
        elif parts[1] == "tasks":
            assert parts[2] in tasks
            assert parts[4] in {"organization", "label-holder"}
        else:
            databases = {
                f"{one}.sqlite{part}" for one in ("state", "ledger") for part in ("", "-wal", "-shm")
            }
            assert parts[1] in databases | {"node.lock"}


def mutate_for_the_label_holder(net: Network, n: int, seed: int) -> None:
    terms = net.offer(f"bait-{seed}", net.mallory)
    before, since = files_below(net.root), net.mark("clinic")
    with dialed(net.mallory, net.clinic) as peer:
        peer.send(joined(terms))
        send_all(peer, valid_messages(Asker(terms, np.arange(60, dtype=np.int64) + 1000)), n, seed)
        peer.send(Message("leave", "e" * 32, request="the last one"))
        last = peer.wait_for(lambda one: one.request == "the last one", "the end", seconds=patient(250))
        assert last.fields["code"] == "not-invited"
    check_records(net, "clinic", since, n // 2)
    check_files(net, before)


def mutate_for_the_organization(net: Network, n: int, seed: int) -> None:
    """The process that computes, which a node starts when it is needed, must be the same in the end."""
    before, since = files_below(net.root), net.mark("lab")
    with listening(net.mallory) as came:
        task = asker(net, f"bait-{seed}")
        peer = came.get(timeout=patient(30))
        assert peer.ask(task.begin()).kind == "begun"
        assert peer.ask(task.fit()).kind == "fitted"
        worker = net.nodes["lab"].worker.pid
        send_all(peer, valid_messages(task), n, seed)
        # One after another in the same queue as fits, so that all of these are through:
        last = Message("end", "e" * 32, 1, "the last one", {"kept": 0})
        assert peer.refused(last) == "not-joined"
    assert worker is not None
    assert net.nodes["lab"].worker.pid == worker, "the process that computes ended"
    check_records(net, "lab", since, n // 2)
    check_files(net, before)


def learn_as_ever(net: Network, name: str) -> None:
    """The honest ones go on, to the same bits as without a network."""
    net.offer(name, net.lab)
    assert net.learned(name) == net.expected("clinic", "lab")


AMOUNTS = pytest.mark.parametrize("n", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


@AMOUNTS
def test_a_label_holder_survives_mutations(net: Network, n: int) -> None:
    mutate_for_the_label_holder(net, n, seed=n + 1)
    learn_as_ever(net, f"one-after-{n}")


@AMOUNTS
def test_an_organization_survives_mutations(net: Network, n: int) -> None:
    mutate_for_the_organization(net, n, seed=n + 2)
    learn_as_ever(net, f"two-after-{n}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_both_survive_many_mutations_while_they_learn(net: Network, seed: int) -> None:
    """Both directions at once, with learning going on beside it."""
    problems: list[BaseException] = []

    def beside(mutate: Callable[[Network, int, int], None]) -> None:
        try:
            mutate(net, MOST, seed)
        except BaseException as error:
            problems.append(error)

    threads = [
        threading.Thread(target=beside, args=(one,))
        for one in (mutate_for_the_label_holder, mutate_for_the_organization)
    ]
    for thread in threads:
        thread.start()
    learn_as_ever(net, f"meanwhile-{seed}")
    for thread in threads:
        thread.join()
    assert problems == [], "".join(traceback.format_exception(problems[0]))
    learn_as_ever(net, f"after-{seed}")
