"""Strangers: connections without an admitted stream, so many for each source address and in all.

Nobody is locked out by a full house: a new connection displaces an old one of the same address, first
one that has said nothing, then one that began a TLS handshake and left it, and only then one whose
handshake goes on. A member behind the address of a flood takes milliseconds for its handshake, and is
no stranger any more after it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from enum import IntEnum
from typing import Generic, TypeVar

Connection = TypeVar("Connection", bound=Hashable)


class Reached(IntEnum):
    """How far a stranger has come; who came further is displaced later."""

    SILENT = 0
    """No whole TLS hello came."""
    GREETED = 1
    """Its hello was handed on."""
    ANSWERED = 2
    """It went on after the server's part of the handshake."""


class Strangers(Generic[Connection]):
    """Who is here without an admitted stream, by source address and by how
    far they came, the oldest first.
    """

    def __init__(self, per_address: int, in_all: int) -> None:
        self.per_address, self.in_all = per_address, in_all
        self._where: dict[Connection, tuple[str, Reached]] = {}
        self._by_address: dict[str, tuple[dict[Connection, None], ...]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._where))

    def add(self, one: Connection, address: str, reached: Reached) -> Connection | None:
        """Takes in a connection; the one that has to go for it, if one has to."""
        gone = self._displaced(address)
        self._put(one, address, reached)
        return gone

    def move(self, one: Connection, reached: Reached) -> None:
        """A stranger has come further."""
        found = self._where.get(one)
        if found is not None and found[1] != reached:
            self.remove(one)
            self._put(one, found[0], reached)

    def remove(self, one: Connection) -> None:
        """It is gone, or no stranger any more."""
        found = self._where.pop(one, None)
        if found is None:
            return
        address, reached = found
        by_reach = self._by_address[address]
        del by_reach[reached][one]
        if not any(by_reach):
            del self._by_address[address]

    def oldest(self) -> Connection | None:
        """The first to go, of the address that has the most; None where nobody is here."""
        if not self._by_address:
            return None
        most = max(self._by_address, key=self._count)
        return self._first(most)

    def _put(self, one: Connection, address: str, reached: Reached) -> None:
        self._where[one] = (address, reached)
        self._by_address.setdefault(address, tuple({} for _ in Reached))[reached][one] = None

    def _displaced(self, address: str) -> Connection | None:
        gone = None
        if self._count(address) >= self.per_address:
            gone = self._first(address)
        elif len(self._where) >= self.in_all:
            gone = self.oldest()
        if gone is not None:
            self.remove(gone)
        return gone

    def _count(self, address: str) -> int:
        return sum(map(len, self._by_address.get(address, ())))

    def _first(self, address: str) -> Connection:
        return next(one for those in self._by_address[address] for one in those)
