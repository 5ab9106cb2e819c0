"""A new node: its folder, key, certificate, card and configuration; and a new key for an old one."""

from __future__ import annotations

from pathlib import Path

from gal.errors import InvalidInputError
from gal.node.config.configuration import NodeConfiguration, new_configuration_text
from gal.node.web.token import ensure_token
from gal.protocol import check_name
from gal.transport import (
    Identity,
    card_of,
    card_text,
    fingerprint_of,
    load_identity,
    make_identity,
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

    The card is written first: after a kill, or on a full disk, the old key is still there to sign another.
    """
    old = load_identity(home, configuration.name)
    if old.roots is not None:
        raise InvalidInputError(
            "this key is certified by a company CA: have a new one issued there, and gal init anew"
        )
    new = make_identity(configuration.name)
    address = None if configuration.listen is None else configuration.listen.address
    path = home / f"{configuration.name}.card"
    write_file(path, card_text(card_of(new, address, replaced_by(old, new))).encode(), mode=0o644)
    save_identity(new, home, replace=True)
    return path, new.fingerprint
