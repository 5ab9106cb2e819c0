"""Keys for one sum: made fresh by each member, and signed with the key that the others know it by."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Protocol

from gal.errors import IdentityError, RefusedError
from gal.secrecy.masks import public_key, sha256_of
from gal.secrecy.messages import Circle, Offer, signed_words
from gal.transport.identity import fingerprint_of, verify


class Signs(Protocol):
    """Who a member is: :class:`gal.transport.Identity`."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def certificate(self) -> bytes:
        """In PEM, with its public key."""

    def sign(self, data: bytes) -> bytes:
        """A signature with its private key."""


@dataclass(frozen=True)
class Secrets:
    """What a member keeps of a sum, until it is opened; in memory only."""

    mask_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    box_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def offer(self, circle: Circle, number: int, identity: Signs) -> Offer:
        """The public side of it, signed."""
        box_key = public_key(self.box_key) if circle.shares else b""
        public = public_key(self.mask_key), box_key, sha256_of(self.seed)
        signature = identity.sign(signed_words(circle.digest, identity.name, number, *public))
        return Offer(identity.name, number, *public, identity.certificate, signature)


def check_offer(circle: Circle, number: int, offer: Offer) -> None:
    """An error where an offer is not of this sum, or not signed by the member in whose name it comes."""
    expected = circle.members.get(offer.name)
    if expected is None or offer.number != number:
        raise RefusedError(
            "offer",
            f"an offer of {offer.name!r} for sum {offer.number} came, expected one of "
            f"{', '.join(circle.names)} for sum {number}: ask the members again",
        )
    try:
        found = fingerprint_of(offer.certificate)
        signed = verify(offer.certificate, offer.signed_words(circle.digest), offer.signature)
    except (IdentityError, ValueError) as error:
        raise RefusedError("offer", f"the certificate of {offer.name!r} cannot be used: {error}") from error
    if found != expected or not signed:
        raise RefusedError(
            "offer",
            f"the keys that came for {offer.name!r} are not signed by {expected}, under which the circle "
            f"knows it (the certificate is of {found}): somebody else made them. Nothing was sent",
        )
