"""Organizations with keys and cards, live listeners on loopback, and peers that do not behave; no nodes."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from gal.protocol import Message, encode, split
from gal.transport import Card, CardFolder, Identity, Listener, Stream, card_of, dial, make_identity
from gal.transport.wire import grpc
from patience import patient

LARGEST = 64 << 20
SMALL = Message("joined", fields={"tasks": []})


@dataclass
class Organization:
    """One organization: its identity and the cards that it has of others."""

    identity: Identity
    cards: CardFolder
    warnings: list[str] = field(default_factory=list)
    home: Path = Path()
    """Its folder, where it is an organization of a network."""
    address: str | None = None

    @property
    def fingerprint(self) -> str:
        return self.identity.fingerprint

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def card(self) -> Card:
        """What others know of it."""
        return card_of(self.identity, self.address)

    def knows(self, *others: Organization) -> None:
        for other in others:
            self.cards.add(card_of(other.identity))


@dataclass
class Live:
    """A listener that runs, and whom it turned away."""

    listener: Listener
    organization: Organization
    refused: list[tuple[str | None, str]]

    def card(self, host: str = "127.0.0.1") -> Card:
        return card_of(self.organization.identity, f"{host}:{self.listener.port}")


def make_organization(folder: Path, name: str, identity: Identity | None = None) -> Organization:
    warnings: list[str] = []
    cards = CardFolder(folder / f"cards of {name}", on_warning=warnings.append)
    return Organization(identity or make_identity(name), cards, warnings)


def echo(stream: Stream) -> None:
    while True:
        stream.send(stream.receive().message)


@contextmanager
def listening(
    who: Organization,
    on_stream: Callable[[Stream], object] = echo,
    *,
    bind: str = "127.0.0.1:0",
    hello_seconds: float = patient(10.0),
) -> Iterator[Live]:
    refused: list[tuple[str | None, str]] = []
    listener = Listener(
        bind,
        who.identity,
        who.cards,
        on_stream=on_stream,
        on_refused=lambda fingerprint, why: refused.append((fingerprint, why)),
        largest=LARGEST,
        software="gal-learn of the bank",
        hello_seconds=hello_seconds,
    )
    with listener:
        yield Live(listener, who, refused)


def dialed(
    who: Organization, card: Card, *, proxy: str | None = None, timeout: float = patient(20.0)
) -> Stream:
    """A stream of this organization to the node of this card, which it adds to its own cards."""
    who.cards.add(card)
    return dial(
        card,
        who.identity,
        cards=who.cards,
        largest=LARGEST,
        software="gal-learn of the hospital",
        proxy=proxy,
        timeout=timeout,
    )


@contextmanager
def raw_call(who: Organization, card: Card, frames: Iterable[bytes]) -> Iterator[Any]:
    """gRPC's own call with these frames, for peers that do not keep to the
    protocol; stays open after them.
    """
    end = threading.Event()

    def kept_open() -> Iterator[bytes]:
        yield from frames
        end.wait(patient(60))

    credentials = grpc.ssl_channel_credentials(
        card.certificate, who.identity.private_key, who.identity.certificate
    )
    options = [("grpc.ssl_target_name_override", "node.gal"), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(card.address, credentials, options=options) as channel:
        call = channel.stream_stream("/gal.Node/Connect")(kept_open())
        try:
            yield call
        finally:
            end.set()
            call.cancel()


def hello(versions: list[int] | None = None) -> list[bytes]:
    """The frames of a hello."""
    fields = {"versions": versions or [2], "software": "a test", "nonce": "ab" * 32}
    return frames_of(Message("hello", fields=fields))


def frames_of(*messages: Message) -> list[bytes]:
    return [frame for message in messages for frame in split(encode(message))]


def residual_message(n_rows: int, value: float, number: int = 1) -> Message:
    """A message with one array of n_rows float32."""
    fields = {"rows": "sha256:" + "0" * 64, "round": number, "track": "assisted", "part": None}
    residual = np.full((n_rows, 1), value, dtype=np.float32)
    return Message("fit", "0" * 32, 1, f"request {number}", fields, {"residual": residual})


def issue(
    subject: Identity, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, *, hosts: list[x509.GeneralName]
) -> bytes:
    """A certificate for the subject's own key and name, signed by ``key``."""
    public = x509.load_pem_x509_certificate(subject.certificate).public_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject.name)])
    certificate = _builder(name, issuer, public).add_extension(
        x509.SubjectAlternativeName(hosts), critical=False
    )
    return certificate.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def issued_by(known: Identity, name: str, *, with_chain: bool) -> Identity:
    """What a known organization can make: a certificate in another's name, signed with its own key."""
    fresh = make_identity(name)
    key = load_pem_private_key(known.private_key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(known.certificate).subject
    leaf = issue(fresh, key, issuer, hosts=[x509.DNSName("node.gal")])
    return Identity(name, fresh.private_key, leaf + (known.certificate if with_chain else b""))


def settled(count: Callable[[], int], quiet: float = 0.4) -> int:
    """The count once it has not changed for a while (seconds)."""
    last, since = count(), time.monotonic()
    while time.monotonic() - since < quiet:
        time.sleep(0.02)
        if count() != last:
            last, since = count(), time.monotonic()
    return last


def _builder(subject: x509.Name, issuer: x509.Name, public: Any) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2199, 1, 1, tzinfo=datetime.UTC))
    )


def pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
