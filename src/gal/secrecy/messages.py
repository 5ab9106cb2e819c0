"""What travels between the members of a circle and the label holder, who carries all of it.

1. every member sends an ``Offer`` (keys for one sum, signed), 2. and, when it has everybody's,
``SealedShares`` of its secrets, for each of the others; 3. an ``Ask`` fixes who is in the sum and of what it
is, and is answered with ``Masked`` numbers; 4. told who answered, every member sends its ``Opening``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from gal.secrecy.masks import sha256_of
from gal.secrecy.ring import Ring


@dataclass(frozen=True)
class Circle:
    """Whose answers are added up, for one label holder: agreed before the first sum, and never changed."""

    holder: str
    """The label holder's fingerprint."""
    members: Mapping[str, str]
    """The assisting organizations' fingerprints by name."""
    drop_outs: int = 0
    """How many of them may be lost, for good."""

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
        return sha256_of(plain_bytes([self.holder, dict(self.members), self.drop_outs]))

    def place(self, name: str) -> int:
        """A member's place among the shares: 1, 2, ..."""
        return self.names.index(name) + 1


@dataclass(frozen=True)
class Offer:
    """A member's public keys for one sum."""

    name: str
    number: int
    """Of the sum: 1, 2, ..., never twice in a circle."""
    mask_key: bytes
    """X25519: for masks that cancel."""
    box_key: bytes
    """X25519: for shares that only their receiver can read; empty where there are none."""
    promise: str
    """The digest of the seed of its own mask."""
    certificate: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def signed_words(self, circle: str) -> bytes:
        """What is signed; ``circle`` is the circle's digest."""
        return signed_words(circle, self.name, self.number, self.mask_key, self.box_key, self.promise)


@dataclass(frozen=True)
class SealedShares:
    """A member's shares of both of its secrets, sealed for each of the others; none where nobody may drop
    out: it says then that it has everybody's keys.
    """

    name: str
    number: int
    boxes: Mapping[str, bytes]


@dataclass(frozen=True)
class Ask:
    """Who is in a sum, and of what it is: told to all members in the same words.

    Masks follow from it. Where two members are told different things, their masks do not cancel, and the
    label holder gets noise.
    """

    number: int
    members: tuple[str, ...]
    content: str
    """A digest of what is asked: a residual, or rows and coefficients."""
    shape: tuple[int, ...]
    unit: float
    """What the numbers are written in."""

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
    """One member's help to open a sum: of every other member one share, of one of its secrets. Where nobody
    may drop out: its own seed, whole.
    """

    name: str
    number: int
    seeds: Mapping[str, bytes]
    """Shares of the seeds of those whose answers are in the sum."""
    keys: Mapping[str, bytes]
    """Shares of the mask keys of those who dropped out."""


def signed_words(circle: str, name: str, number: int, mask_key: bytes, box_key: bytes, promise: str) -> bytes:
    """What a member signs of its keys."""
    return plain_bytes(["offer", circle, name, number, mask_key.hex(), box_key.hex(), promise])


def plain_bytes(value: Any) -> bytes:
    """A value of plain JSON as bytes: the same for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
