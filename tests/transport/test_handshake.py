"""The handshake without a network: proofs, versions, and every other reply."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest

from gal.errors import IdentityError, InvalidMessageError, RefusedError
from gal.protocol import VERSIONS, Message
from gal.transport import Identity, card_of, make_identity
from gal.transport.handshake import greet, welcome

BANK, HOSPITAL, UNKNOWN = (make_identity(name) for name in ("bank", "hospital", "unknown"))
CARD = card_of(BANK, "bank.example:7000")


class FakeStream:
    """One end: hears what it is given, and keeps what is reason and agreed."""

    def __init__(self, peer: Identity, hears: Message | Exception | None = None) -> None:
        self.peer, self.fingerprint, self.hears = peer.name, peer.fingerprint, hears
        self.reason: list[Message] = []
        self.agreed: tuple[int, str, int] | None = None

    def send(self, message: Message) -> None:
        self.reason.append(message)

    def receive(self) -> Any:
        if isinstance(self.hears, Exception):
            raise self.hears
        received: Any = type("Received", (), {"message": self.hears})
        return received

    def agree(self, version: int, software: str, largest: int) -> None:
        self.agreed = version, software, largest


class Answering(FakeStream):
    """The dialing end, whose other end replies to the hello."""

    def __init__(self, listener: Identity, dialer: Identity = HOSPITAL, **changed: Any) -> None:
        super().__init__(BANK)
        self.listener, self.dialer, self.changed = listener, dialer, changed

    def receive(self) -> Any:
        other = FakeStream(self.dialer, self.reason[-1])
        welcome(cast(Any, other), self.listener, software="2.0", largest=9)
        (answer,) = other.reason
        self.hears = Message("welcome", fields={**answer.fields, **self.changed})
        return super().receive()


class Spaced(Answering):
    """Answers with the right proof, but for blanks in it."""

    def receive(self) -> Any:
        answer = cast(Message, super().receive().message)
        proof = answer.fields["proof"]
        self.hears = Message("welcome", fields={**answer.fields, "proof": f"{proof[:8]} {proof[8:]}"})
        return FakeStream.receive(self)


def dial(stream: FakeStream) -> FakeStream:
    greet(cast(Any, stream), CARD, HOSPITAL, software="1.0", largest=7)
    return stream


def listen(hears: Message | Exception) -> FakeStream:
    stream = FakeStream(HOSPITAL, hears)
    welcome(cast(Any, stream), BANK, software="2.0", largest=9)
    return stream


def hello(**changed: Any) -> Message:
    fields = {"versions": list(VERSIONS), "software": "1.0", "nonce": "ab" * 32}
    return Message("hello", fields=fields | changed)


def test_both_agree_on_version_software_and_size() -> None:
    assert dial(Answering(BANK)).agreed == (max(VERSIONS), "2.0", 7)
    assert listen(hello()).agreed == (max(VERSIONS), "1.0", 9)


def test_every_hello_has_a_nonce_of_its_own() -> None:
    first, second = (dial(Answering(BANK)).reason[0].fields["nonce"] for _ in range(2))
    assert first != second
    assert len(bytes.fromhex(first)) == 32  # too many to meet one twice


@pytest.mark.parametrize(
    "stream",
    [
        Answering(UNKNOWN),  # another key
        Answering(BANK, dialer=UNKNOWN),  # relayed from another handshake
        Answering(BANK, proof=base64.b64encode(b"?" * 64).decode()),
        Answering(BANK, proof="no base64!"),
        Answering(BANK, proof=""),
        Spaced(BANK),
    ],
    ids=["another key", "passed on", "made up", "no base64", "none", "spaced"],
)
def test_a_listener_without_proof_is_refused(stream: Answering) -> None:
    with pytest.raises(
        IdentityError, match=r"bank\.example:7000 could not prove that it is bank.*No data was sent"
    ):
        dial(stream)
    assert stream.agreed is None


def test_an_old_proof_does_not_hold_again() -> None:
    once = Answering(BANK)
    dial(once)
    again = FakeStream(BANK, once.hears)
    with pytest.raises(IdentityError, match="could not prove"):
        dial(again)
    assert again.agreed is None


def test_a_refusal_is_a_refusal_with_its_code() -> None:
    refusal = Message("refusal", fields={"code": "unknown-key", "message": "who are you", "answers": None})
    with pytest.raises(RefusedError, match="bank refused: who are you") as caught:
        dial(FakeStream(BANK, refusal))
    assert caught.value.code == "unknown-key"


def test_another_answer_is_no_welcome() -> None:
    for stream in (FakeStream(BANK, hello(version=VERSIONS[0])), Answering(BANK, version=max(VERSIONS) + 1)):
        with pytest.raises(IdentityError, match="no welcome for"):
            dial(stream)
        assert stream.agreed is None
    with pytest.raises(IdentityError, match="did not reply as a node does: garbage"):
        dial(FakeStream(BANK, InvalidMessageError("garbage")))


def test_a_peer_without_hello_is_refused() -> None:
    for begins in (InvalidMessageError("garbage"), Message("joined", fields={"tasks": []})):
        with pytest.raises(RefusedError) as caught:
            listen(begins)
        assert caught.value.code == "no-hello"
    for versions, older in (([max(VERSIONS) + 1], "bank"), ([1], "hospital"), ([], "hospital")):
        with pytest.raises(RefusedError, match=f"upgrade gal-learn at {older}") as caught:
            listen(hello(versions=versions))
        assert caught.value.code == "unknown-version"
