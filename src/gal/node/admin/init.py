"""A new node: its folder, key, certificate, card and configuration; and a new key for an old one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gal.errors import IdentityError, InvalidInputError
from gal.node.config.configuration import NodeConfiguration, new_configuration_text
from gal.node.web.token import ensure_token
from gal.protocol import check_name
from gal.transport import (
    Card,
    Identity,
    card_of,
    card_text,
    fingerprint_of,
    load_identity,
    make_identity,
    read_card,
    replaced_by,
    save_identity,
)
from gal.transport.identity import write_file


def init_node(
    home: Path, name: str, *, company: tuple[Path, Path, Path] | None = None, **given: str | None
) -> Identity:
    """Make the folder with everything in it; nothing that is there is overwritten.

    ``given``: what is known of its node.toml, as `new_configuration_text` takes it. ``company``: files with
    the key, the certificate (chain) and the roots of a company's own certificate authority.
    """
    check_name(name, "an organization")
    if (home / "node.toml").exists():
        raise InvalidInputError(
            f"there is a node in {str(home)!r} already: choose another folder, or edit its node.toml"
        )
    address = given.get("address") or given.get("bind")
    # What cannot be is said before there is a key that the next try would stumble over.
    text = new_configuration_text(name, **given | {"address": address})
    identity = make_identity(name) if company is None else _of_company(name, *company)
    card_text(card_of(identity, address))
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.chmod(0o700)
    (home / "cards").mkdir(exist_ok=True, mode=0o700)
    save_identity(identity, home)
    write_file(home / f"{name}.card", card_text(card_of(identity, address)).encode(), mode=0o644)
    (home / "node.toml").write_text(text, encoding="utf-8")
    ensure_token(home)
    return identity


def _of_company(name: str, key: Path, certificate: Path, roots: Path) -> Identity:
    try:
        contents = [path.read_bytes() for path in (key, certificate, roots)]
    except OSError as error:
        raise InvalidInputError(f"{error.filename} cannot be read: {error.strerror}") from error
    identity = Identity(name, *contents)
    fingerprint_of(identity.certificate)  # says now what is wrong with it
    return identity


def rotate_key(home: Path, configuration: NodeConfiguration) -> tuple[Path, str]:
    """A new key and certificate, and a card that the old key has signed; its path and the new fingerprint.

    The card waits beside the old one until its key is there: wherever this ends, `mend_card` finds which of
    the two is right.
    """
    old = load_identity(home, configuration.name)
    begun = _card_in(_waiting(home, configuration.name))
    if begun is not None and begun.fingerprint == old.fingerprint:
        # A rotation that was killed is done with this: another would replace a key that nobody knows.
        mend_card(home, configuration)
        return home / f"{configuration.name}.card", old.fingerprint
    if old.roots is not None:
        raise InvalidInputError(
            "this key is certified by a company CA: have a new one issued there, and gal init anew"
        )
    new = make_identity(configuration.name)
    text = card_text(card_of(new, _address(configuration), replaced_by(old, new)))
    write_file(_waiting(home, configuration.name), text.encode(), mode=0o644)  # only the old key can sign it
    try:
        save_identity(new, home, replace=True)
    finally:
        mend_card(home, configuration)
    return home / f"{configuration.name}.card", new.fingerprint


def mend_card(home: Path, configuration: NodeConfiguration) -> bool:
    """Whether the own card was put right after a rotation that was killed: the card that waits is taken if
    its key is here. Nobody may be handed the card of a key that is not there.
    """
    waiting = _waiting(home, configuration.name)
    card = _card_in(waiting)
    if card is None or card.fingerprint != load_identity(home, configuration.name).fingerprint:
        return False
    with suppress(FileNotFoundError):  # somebody else has done it
        waiting.replace(home / f"{configuration.name}.card")
    return True


def _card_in(path: Path) -> Card | None:
    """None where there is none, or something else: that is for ``gal doctor`` to say."""
    try:
        return read_card(path)
    except IdentityError:
        return None


def _waiting(home: Path, name: str) -> Path:
    """The card of a key that is about to be there."""
    return home / f"{name}.card.next"


def _address(configuration: NodeConfiguration) -> str | None:
    return None if configuration.listen is None else configuration.listen.address
