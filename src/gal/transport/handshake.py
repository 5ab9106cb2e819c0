"""The handshake of a stream: the protocol's version, and a proof of the listener's key.

The listener signs the dialer's nonce together with both keys, which no relay can do: carriers other than gRPC
have no TLS from node to node.
"""

from __future__ import annotations

import base64
import binascii
import secrets

from gal.errors import IdentityError, InvalidMessageError, RefusedError
from gal.protocol import VERSIONS, Message
from gal.transport.cards import Card
from gal.transport.identity import Identity, verify
from gal.transport.stream import Stream


def greet(stream: Stream, card: Card, identity: Identity, *, software: str, largest: int) -> None:
    """The dialing side: sends hello, and checks that the reply is signed by the card's key."""
    nonce = secrets.token_hex(32)
    fields = {"versions": list(VERSIONS), "software": software, "nonce": nonce}
    stream.send(Message("hello", fields=fields))
    try:
        reply = stream.receive().message
    except InvalidMessageError as error:
        raise IdentityError(
            f"{stream.peer} did not reply as a node does: {error}. If {stream.peer} runs another gal-learn, "
            f"upgrade the older of the two; here runs {software}, with protocol {_supported_versions()}"
        ) from error
    if reply.kind == "refusal":
        raise RefusedError(reply.fields["code"], f"{stream.peer} refused: {reply.fields['message']}")
    if reply.kind != "welcome" or reply.fields["version"] not in VERSIONS:
        raise IdentityError(
            f"{stream.peer} replied {reply.kind!r}, which is no welcome for protocol "
            f"{_supported_versions()}: upgrade gal-learn at {stream.peer} "
            f"(pip install --upgrade gal-learn); here runs {software}"
        )
    version = reply.fields["version"]
    signed = _signed(nonce, identity.fingerprint, card.fingerprint, version)
    if not verify(card.certificate, signed, _proof(reply.fields["proof"])):
        raise IdentityError(
            f"the node at {card.address} could not prove that it is {stream.peer}: it does not hold the "
            f"key {card.fingerprint}, or it relays messages of another node. No data was sent to it"
        )
    stream.agree(version, reply.fields["software"], largest)


def welcome(stream: Stream, identity: Identity, *, software: str, largest: int) -> None:
    """The listening side: reads the hello, chooses the protocol, and proves its key."""
    try:
        hello = stream.receive().message
    except InvalidMessageError as error:
        raise RefusedError(
            "no-hello",
            f"{error}. Upgrade the older of the two gal-learn: {identity.name} runs {software}, with "
            f"protocol {_supported_versions()}",
        ) from error
    if hello.kind != "hello":
        raise RefusedError("no-hello", f"{stream.peer} began with {hello.kind!r}, not with a hello")
    theirs = hello.fields["versions"]
    version = max(set(VERSIONS) & set(theirs), default=0)  # the newest that both speak
    if not version:
        older = stream.peer if max(theirs, default=0) < min(VERSIONS) else identity.name
        raise RefusedError(
            "unknown-version",
            f"{stream.peer} speaks protocol {', '.join(map(str, theirs)) or 'none'}, {identity.name} "
            f"{_supported_versions()}: upgrade gal-learn at {older} (pip install --upgrade gal-learn)",
        )
    proof = identity.sign(_signed(hello.fields["nonce"], stream.fingerprint, identity.fingerprint, version))
    fields = {"version": version, "software": software, "proof": base64.b64encode(proof).decode()}
    stream.send(Message("welcome", fields=fields))
    stream.agree(version, hello.fields["software"], largest)


def _supported_versions() -> str:
    return ", ".join(map(str, VERSIONS))


def _signed(nonce: str, dialing: str, listening: str, version: int) -> bytes:
    """The signed bytes; all fields have fixed lengths, so that no two handshakes have the same."""
    return b"gal welcome\0" + f"{nonce}{dialing}{listening}{version:08d}".encode()


def _proof(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
