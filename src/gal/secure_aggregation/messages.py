"""Messages between the members of a group, all carried by the label holder.

1. Every member sends an ``Offer`` (signed keys for one sum).
2. Every member sends ``SealedShares`` of its secrets for the others.
3. An ``Ask`` fixes members and content of the sum, for ``Masked`` values.
4. ``Opening``s follow.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gal.core.requests import FitRequest
from gal.errors import IdentityError, RefusedError
from gal.secure_aggregation.masking import Ring, public_key, sha256_of
from gal.transport.identity import Identity, fingerprint_of, verify


@dataclass(frozen=True)
class Group:
    """The members of all sums of a label holder: agreed before the first sum, and never changed."""

    holder: str
    """The label holder's fingerprint."""
    members: Mapping[str, str]
    """The assisting organizations' fingerprints by name."""
    drop_outs: int = 0
    """How many of them may be lost, for good."""
    noise: tuple[float, ...] = ()
    """Discrete Gaussian noise on each sum: its multiplier, and the clip of values in units; none without."""

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, in order."""
        return tuple(sorted(self.members))

    @property
    def threshold(self) -> int:
        """How many members must help to open a sum."""
        return len(self.members) - self.drop_outs

    @property
    def shares(self) -> bool:
        """Whether secrets are divided among the members: for those who drop out, where some may."""
        return self.drop_outs > 0

    @cached_property
    def digest(self) -> str:
        """Of everything in it."""
        noise = [list(self.noise)] if self.noise else []
        return sha256_of(plain_bytes([self.holder, dict(self.members), self.drop_outs, *noise]))

    def place(self, name: str) -> int:
        """A member's place among the shares: 1, 2, ..."""
        return self.names.index(name) + 1


@dataclass(frozen=True)
class Offer:
    """A member's public keys for one sum."""

    name: str
    number: int
    """Of the sum: 1, 2, ..., never twice in a group."""
    mask_key: bytes
    """X25519: for masks that cancel."""
    box_key: bytes
    """X25519: for shares that only their receiver can read; empty where there are none."""
    promise: str
    """The digest of the seed of its own mask."""
    certificate: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def signed_words(self, group: str) -> bytes:
        """What is signed; ``group`` is the group's digest."""
        keys = self.mask_key.hex(), self.box_key.hex(), self.promise
        return plain_bytes(["offer", group, self.name, self.number, *keys])


@dataclass(frozen=True)
class Secrets:
    """What a member keeps of a sum, until it is opened; in memory only."""

    mask_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    box_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def offer(self, group: Group, number: int, identity: Identity) -> Offer:
        """The public side of it, signed."""
        box_key = public_key(self.box_key) if group.shares else b""
        public = public_key(self.mask_key), box_key, sha256_of(self.seed)
        made = Offer(identity.name, number, *public, identity.certificate, b"")
        return replace(made, signature=identity.sign(made.signed_words(group.digest)))


def check_offer(group: Group, number: int, offer: Offer) -> None:
    """An error where an offer is not of this sum, or not signed by the member in whose name it comes."""
    expected = group.members.get(offer.name)
    if expected is None or offer.number != number:
        raise RefusedError(
            "offer",
            f"an offer of {offer.name!r} for sum {offer.number} came, expected one of "
            f"{', '.join(group.names)} for sum {number}: ask the members again",
        )
    try:
        found = fingerprint_of(offer.certificate)
        signed = verify(offer.certificate, offer.signed_words(group.digest), offer.signature)
    except (IdentityError, ValueError) as error:
        raise RefusedError("offer", f"the certificate of {offer.name!r} cannot be used: {error}") from error
    if found != expected or not signed:
        raise RefusedError(
            "offer",
            f"the keys that came for {offer.name!r} are not signed by {expected}, under which the group "
            f"knows it (the certificate is of {found}): they are forged. Nothing was sent",
        )


@dataclass(frozen=True)
class SealedShares:
    """A member's shares of both of its secrets, sealed for each of the others; none without drop-outs."""

    name: str
    number: int
    boxes: Mapping[str, bytes]


@dataclass(frozen=True)
class Ask:
    """Members and content of a sum, the same for all members: masks follow from it.

    If two members receive different ones, their masks do not cancel, and the label holder gets noise.
    """

    number: int
    members: tuple[str, ...]
    content: str
    """The digest of a residual, or of rows and coefficients."""
    shape: tuple[int, ...]
    unit: float
    """Of the numbers."""

    @cached_property
    def digest(self) -> str:
        """Of everything in it."""
        return sha256_of(plain_bytes(asdict(self)))


@dataclass(frozen=True)
class Masked:
    """One member's answer under its masks."""

    name: str
    number: int
    values: Ring


@dataclass(frozen=True)
class Opening:
    """One member's help to open a sum: of every other member one share, of one of its secrets. Without
    drop-outs: its own seed, whole.
    """

    name: str
    number: int
    seeds: Mapping[str, bytes]
    """Shares of the seeds of the members in the sum."""
    keys: Mapping[str, bytes]
    """Shares of the mask keys of those who dropped out."""


@dataclass(frozen=True)
class KeysRequest:
    """The label holder's request for an ``Offer``."""

    number: int


@dataclass(frozen=True)
class SharesRequest:
    """Its request for ``SealedShares``: everybody's offers."""

    number: int
    offers: tuple[Offer, ...]


@dataclass(frozen=True)
class MaskedRequest:
    """Its request for ``Masked`` numbers: one ``Ask`` for all, and what the others sealed for this member."""

    ask: Ask
    boxes: Mapping[str, bytes]


@dataclass(frozen=True)
class OpeningRequest:
    """Its request for an ``Opening``: the members with a reply, and those without."""

    number: int
    members: tuple[str, ...]
    dropped: tuple[str, ...]


SumRequest = KeysRequest | SharesRequest | MaskedRequest | OpeningRequest
SumReply = Offer | SealedShares | Masked | Opening


def plain_bytes(value: Any) -> bytes:
    """A value of plain JSON as bytes: the same for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def fit_content(request: FitRequest) -> str:
    """A digest of a residual and what else there is to fit: of each there is one sum."""
    weight = b"" if request.sample_weight is None else np.ascontiguousarray(request.sample_weight).tobytes()
    words = plain_bytes(["fit", list(request.residual.shape), request.fold, len(weight)])
    return sha256_of(words + np.ascontiguousarray(request.residual).tobytes() + weight)
