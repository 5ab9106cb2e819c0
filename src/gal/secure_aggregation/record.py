"""The record of an organization's help with sums: on the disk first, and for good.

A claim (scope, key) has one value for ever. An organization that must not act twice claims first, with the
act as the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import NamedTuple

from gal.sqlite_files import connect, whole_transaction


class Claim(NamedTuple):
    """A key whose value is fixed once."""

    scope: str
    key: str
    value: str


class MemoryRecord:
    """Claims for as long as the process lives: for one process that plays all organizations."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], str] = {}

    def settle(self, claims: Sequence[Claim]) -> list[Claim]:
        """Keep all claims, or none where some on record say otherwise: these are returned."""
        kept = self._kept
        found = [Claim(one.scope, one.key, kept.get((one.scope, one.key), one.value)) for one in claims]
        differing = [there for one, there in zip(claims, found, strict=True) if there != one]
        if not differing:
            kept.update({(one.scope, one.key): one.value for one in claims})
        return differing

    def found(self, scope: str) -> dict[str, str]:
        """All claims of a scope: value by key."""
        return {key: value for (of, key), value in self._kept.items() if of == scope}

    def value(self, scope: str, key: str) -> str | None:
        """What was claimed under this key; None where nothing was."""
        return self._kept.get((scope, key))


class DiskRecord:
    """Claims in a SQLite file; written and synchronised before ``settle`` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._opened() as database:
            database.execute(
                "create table if not exists claims (scope text not null, key text not null, "
                "value text not null, primary key (scope, key)) without rowid"
            )

    @contextmanager
    def _opened(self, *, writing: bool = True) -> Iterator[Connection]:
        with (
            closing(connect(self._path, timeout=30, durable=True)) as database,
            whole_transaction(database, writing=writing),
        ):
            yield database

    def settle(self, claims: Sequence[Claim]) -> list[Claim]:
        """The same, on the disk before it returns."""
        with self._opened() as database:
            differing = []
            for one in claims:
                found = _value(database, one.scope, one.key)
                if found is not None and found != one.value:
                    differing.append(one._replace(value=found))
            if not differing:
                database.executemany("insert or ignore into claims values (?, ?, ?)", claims)
        return differing

    def found(self, scope: str) -> dict[str, str]:
        """All claims of a scope: value by key."""
        with self._opened(writing=False) as database:
            return dict(database.execute("select key, value from claims where scope = ?", (scope,)))

    def value(self, scope: str, key: str) -> str | None:
        """What was claimed under this key; None where nothing was."""
        return self.values(scope, [key])[0]

    def values(self, scope: str, keys: Sequence[str]) -> list[str | None]:
        """What was claimed under each of these keys."""
        with self._opened(writing=False) as database:
            return [_value(database, scope, key) for key in keys]


def _value(database: Connection, scope: str, key: str) -> str | None:
    row = database.execute("select value from claims where scope = ? and key = ?", (scope, key)).fetchone()
    return None if row is None else str(row[0])


Claims = MemoryRecord | DiskRecord
