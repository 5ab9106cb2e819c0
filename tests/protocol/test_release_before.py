"""This release and the one before understand each other: against what that one wrote as bytes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from gal.protocol import KINDS, Message, decode, encode, in_version, prepare
from gal.protocol.versions import SINCE
from gal.transport import Card, make_identity
from gal.transport.handshake import greet, welcome
from gal.transport.identity import fingerprint_of, verify
from recording import DIALER, NONCE, messages

RECORDED = json.loads(Path(__file__).with_name("recorded").joinpath("0.1.0.json").read_text("utf-8"))
BYTES = {kind: base64.b64decode(text) for kind, text in RECORDED["messages"].items()}
BYTES["welcome"] = base64.b64decode(RECORDED["welcome"])
SENT = sorted(set(BYTES) - {"welcome"})


class OneEnd:
    """One end of a stream, at whose other end the release before has said this."""

    def __init__(self, peer: str, fingerprint: str, hears: bytes) -> None:
        self.peer, self.fingerprint, self.hears = peer, fingerprint, hears
        self.said: list[Message] = []
        self.agreed: tuple[int, str, int] | None = None

    def send(self, message: Message) -> None:
        self.said.append(message)

    def receive(self) -> Any:
        return type("Received", (), {"message": decode(self.hears)})

    def agree(self, version: int, software: str, largest: int) -> None:
        self.agreed = version, software, largest


def fields_of(data: Any) -> set[str]:
    """The fields that are really among the bytes, without those that are filled in on reading."""
    return set(json.loads(pa.ipc.open_stream(data).schema.metadata[b"gal"])["fields"])


def test_every_kind_was_recorded() -> None:
    of_sums = {"keys", "offers", "share", "shares", "sum", "masked", "open", "opened", "total", "found"}
    assert set(BYTES) == set(KINDS) - of_sums, "it cannot join a task with sums: its invitation is refused"


@pytest.mark.parametrize("kind", SENT)
def test_what_the_release_before_wrote_is_read(kind: str) -> None:
    found, meant = decode(BYTES[kind]), next(one for one in messages() if one.kind == kind)
    assert {name: found.fields[name] for name in meant.fields} == meant.fields
    for name, array in meant.arrays.items():
        assert np.array_equal(found.arrays[name], array)


@pytest.mark.parametrize("kind", SENT)
def test_the_same_is_written_to_it_to_the_last_bit(kind: str) -> None:
    message = next(one for one in messages() if one.kind == kind)
    newer = {"changed": True} if kind == "predicted" else {}
    said = prepare(Message(kind, message.task, 3, "r", {**message.fields, **newer}, message.arrays))
    if message.task:
        assert bytes(in_version(said, 1).data) == BYTES[kind]
    assert fields_of(in_version(said, 1).data) == fields_of(BYTES[kind])  # it refuses what it does not know


def test_what_is_newer_is_said_to_who_speaks_it() -> None:
    message = next(one for one in messages() if one.kind == "predicted")
    said = prepare(
        Message("predicted", message.task, 3, "r", {**message.fields, "changed": True}, message.arrays)
    )
    assert in_version(said, 2) is said
    assert in_version(said, 1).digest != said.digest
    for kind, newer in SINCE.items():
        assert not set(newer) & fields_of(BYTES[kind])


def test_its_welcome_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: NONCE)
    certificate = RECORDED["certificate"].encode()
    card = Card("clinic", fingerprint_of(certificate), certificate, "clinic.example:7000")
    dialer = type("Dialer", (), {"fingerprint": DIALER})
    stream = OneEnd("clinic", card.fingerprint, BYTES["welcome"])
    greet(cast(Any, stream), card, cast(Any, dialer), software="now", largest=5)
    assert stream.agreed == (1, "gal-learn 0.1.0", 5)


def test_its_hello_is_answered_as_it_expects() -> None:
    clinic = make_identity("clinic")
    stream = OneEnd("lab", DIALER, BYTES["hello"])
    welcome(cast(Any, stream), clinic, software="now", largest=5)
    assert stream.agreed == (1, "gal-learn 0.1.0", 5)
    (answer,) = stream.said
    assert answer.fields["version"] == 1
    assert fields_of(encode(answer)) == fields_of(BYTES["welcome"])
    signed = b"gal welcome\0" + f"{NONCE}{DIALER}{clinic.fingerprint}00000001".encode()
    assert verify(clinic.certificate, signed, base64.b64decode(answer.fields["proof"]))
