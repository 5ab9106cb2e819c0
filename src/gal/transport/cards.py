"""Cards: public files by which nodes know each other, in a folder of peers.

A file in the folder is a known peer, under the file's name. Adding, replacing and deleting files admits,
rotates and revokes peers while the node runs.
"""

from __future__ import annotations

import json
import os
import threading
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import BaseModel, ConfigDict, ValidationError

from gal.errors import GALError, IdentityError
from gal.protocol import check_name
from gal.protocol.names import parse_address
from gal.transport.identity import Identity, certificates, fingerprint_of, write_file

FORMAT = 1
SUFFIX = ".card"
LARGEST = 64 * 1024
"""Bytes of a card at most; a usual one has a hundredth of it."""


class CardFile(BaseModel):
    """The content of a card's file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal[1]
    name: str
    fingerprint: str
    certificate: str
    address: str | None = None


@dataclass(frozen=True)
class Card:
    """The public facts about a node."""

    name: str
    """The node's own name; peers may use another one."""
    fingerprint: str
    certificate: bytes = field(repr=False)
    """PEM: the certificate that TLS trusts for this node."""
    address: str | None = None
    """Where it listens; None for one that only dials."""


def card_of(identity: Identity, address: str | None = None) -> Card:
    """The card of this node, for its peers."""
    if address is not None:
        parse_address(address, f"the address of {identity.name}")
    return Card(identity.name, identity.fingerprint, _clean(identity.certificate), address)


def card_text(card: Card) -> str:
    """The card as TOML."""
    lines = [
        "# A public card of a GAL node: hand it to the organizations that you work with.",
        f"format = {FORMAT}",
        f"name = {json.dumps(card.name)}",
        f"fingerprint = {json.dumps(card.fingerprint)}",
    ]
    if card.address is not None:
        lines.append(f"address = {json.dumps(card.address)}")
    lines.append(f'certificate = """\n{card.certificate.decode()}"""')
    return "\n".join(lines) + "\n"


def read_card(path: Path) -> Card:
    """The card in this file; every error names the file."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > LARGEST:
        raise IdentityError(f"{path} is larger than {LARGEST // 1024} kB: this is not a card")
    try:
        return parse_card(data.decode())
    except UnicodeDecodeError:
        raise IdentityError(f"{path} is not text: this is not a card") from None
    except IdentityError as error:
        raise IdentityError(f"{path}: {error}") from error


def parse_card(text: str) -> Card:
    """The card in this text, checked: its fingerprint is that of its certificate."""
    if "PRIVATE KEY" in text:
        raise IdentityError(
            "a private key is in it: this is not a card. A key that has left its node must be replaced"
        )
    try:
        values = tomllib.loads(text)
        if values.get("format") != FORMAT:
            raise IdentityError(
                f"a card of format {values.get('format')!r:.20}, this version of gal-learn reads {FORMAT}: "
                "upgrade gal-learn, or ask for a card made by gal init"
            )
        file = CardFile.model_validate(values)
        check_name(file.name, "an organization")
        if file.address is not None:
            parse_address(file.address, f"the address of {file.name}")
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise IdentityError(f"{'.'.join(map(str, first['loc']))!r:.40} of a card: {first['msg']}") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, thousands of brackets
        raise IdentityError(
            f"not a card: {error}. A card is the file NAME.card that gal init makes in the other "
            "organization's folder: ask for it"
        ) from None
    certificate = _clean(file.certificate.encode())
    if file.fingerprint != fingerprint_of(certificate):
        raise IdentityError(
            f"the card of {file.name!r} has {file.fingerprint!r:.80}, but its certificate has "
            f"{fingerprint_of(certificate)}: the card was altered or damaged, ask for it again"
        )
    return Card(file.name, file.fingerprint, certificate, file.address)


def _clean(pem: bytes) -> bytes:
    """The certificates in PEM and nothing else: no comments, no other blocks."""
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates(pem))


class CardFolder:
    """The cards of peers in a folder; read again whenever its files change. Safe to use from any thread.

    A file that is no valid card is left out, and so are two files of one key; ``on_warning`` is called once
    for each.
    """

    def __init__(self, folder: Path, *, on_warning: Callable[[str], None] | None = None) -> None:
        self.folder = folder
        self._on_warning = on_warning
        self._lock = threading.RLock()
        self._seen: object = None
        self._cards: dict[str, Card] = {}
        self._names: dict[str, str] = {}
        self._read: dict[str, tuple[object, Card | str]] = {}
        self._warned: set[str] = set()

    def all(self) -> Mapping[str, Card]:
        """All known peers by name."""
        with self._lock:
            self._refresh()
            return MappingProxyType(self._cards)

    def get(self, name: str) -> Card | None:
        """The card of this peer; None where the name is unknown."""
        return self.all().get(name)

    def by_fingerprint(self, fingerprint: str) -> tuple[str, Card] | None:
        """Name and card of the peer with this key; None where it is not known."""
        with self._lock:
            self._refresh()
            name = self._names.get(fingerprint)
            return None if name is None else (name, self._cards[name])

    def is_known(self, name: str, fingerprint: str) -> bool:
        """Whether the card of this name has this key now; False where the folder cannot be read."""
        try:
            known = self.by_fingerprint(fingerprint)
        except IdentityError as error:
            self._warn([str(error)])
            return False
        return known is not None and known[0] == name

    def add(self, card: Card, name: str | None = None, *, replace: bool = False) -> str:
        """Add a peer under ``name`` or its own name, which is returned.

        Another key under a known name is accepted only with ``replace``.
        """
        name = check_name(card.name if name is None else name, "an organization")
        with self._lock:
            self._check_new(card, name, replace)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(self.folder / (name + SUFFIX), card_text(card).encode(), mode=0o644)
            self._refresh()
        return name

    def remove(self, name: str) -> None:
        """Remove a peer: from now on it is refused."""
        check_name(name, "an organization")
        with self._lock:
            try:
                (self.folder / (name + SUFFIX)).unlink()
            except FileNotFoundError:
                raise IdentityError(f"no card of {name!r} is known; known: {self._known()}") from None
            self._refresh()

    def _check_new(self, card: Card, name: str, replace: bool) -> None:
        known = self.by_fingerprint(card.fingerprint)
        if known is not None and known[0] != name:
            raise IdentityError(
                f"the key {card.fingerprint} is already known as {known[0]!r}: one key, one name. Remove "
                "that card first if the name should change"
            )
        similar = [other for other in self.all() if other.lower() == name.lower() and other != name]
        if similar:
            raise IdentityError(
                f"{similar[0]!r} is already known: {name!r} could be taken for it, choose another name"
            )
        mine = self.get(name)
        if mine is None or mine.fingerprint == card.fingerprint or replace:
            return
        raise IdentityError(
            f"{name!r} is known with the key {mine.fingerprint}, this card has {card.fingerprint}: it may be "
            f"another organization's. Compare the new fingerprint with {name} by telephone. If it is theirs: "
            "gal cards add FILE --replace; if both are to be known: --name OTHER"
        )

    def _known(self) -> str:
        return ", ".join(sorted(self.all())) or "none"

    def _refresh(self) -> None:
        """Read the files that changed since the last look, which takes a few microseconds per card."""
        marks = self._marks()
        if marks == self._seen:
            return
        kept = {file: read for file, read in self._read.items() if marks.get(file) == read[0]}
        self._read = {file: kept.get(file) or (mark, self._try(file)) for file, mark in sorted(marks.items())}
        by_key: defaultdict[str, dict[str, Card]] = defaultdict(dict)
        warnings = []
        for file, (_, card) in self._read.items():
            if isinstance(card, str):
                warnings.append(f"left out of the cards: {card}")
            else:
                by_key[card.fingerprint][file.removesuffix(SUFFIX)] = card
        for fingerprint, cards in by_key.items():
            if len(cards) > 1:
                warnings.append(
                    f"left out of the cards: {' and '.join(cards)} have one key ({fingerprint}) in "
                    f"{self.folder}: delete all but one of these files"
                )
        found = {name: card for cards in by_key.values() if len(cards) == 1 for name, card in cards.items()}
        self._cards = dict(sorted(found.items()))
        self._names = {card.fingerprint: name for name, card in found.items()}
        self._warn(warnings)
        self._seen = marks

    def _marks(self) -> dict[str, object]:
        """By file name: what changes with the file's content."""
        try:
            with os.scandir(self.folder) as entries:
                cards = [one for one in entries if one.name.endswith(SUFFIX) and not one.name.startswith(".")]
                return {entry.name: _mark(entry) for entry in cards}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise IdentityError(f"the cards in {self.folder} cannot be read: {error.strerror}") from error

    def _try(self, file: str) -> Card | str:
        """The card in a file of the folder, or its error."""
        path = self.folder / file
        try:
            check_name(path.stem, f"{path}: an organization")
            return read_card(path)
        except GALError as error:
            return str(error)

    def _warn(self, warnings: list[str]) -> None:
        for warning in warnings:
            if warning not in self._warned and self._on_warning is not None:
                self._on_warning(warning)
        self._warned = set(warnings)


def _mark(entry: os.DirEntry[str]) -> object:
    """The inode, too: a file replaced within one tick of the clock has the same time, and often size."""
    try:
        facts = entry.stat()
    except FileNotFoundError:
        return None
    return facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino
