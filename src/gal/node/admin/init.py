"""A new node (key, certificate, card, configuration), and a new key for an old one."""

from __future__ import annotations

from pathlib import Path

from gal.errors import InvalidInputError
from gal.node.config.configuration import NodeConfiguration, new_configuration_text
from gal.node.store.files import ensure_token
from gal.protocol import check_name
from gal.transport import Identity, card_of, card_text, make_identity, save_identity
from gal.transport.identity import write_file


def init_node(home: Path, name: str, **given: str | None) -> Identity:
    """Make a home folder, without overwriting one; ``given`` as in `new_configuration_text`."""
    check_name(name, "an organization")
    if (home / "node.toml").exists():
        raise InvalidInputError(
            f"there is a node in {str(home)!r} already: choose another folder, or edit its node.toml"
        )
    address = given.get("address") or given.get("bind")
    # Errors come before there is a key, which the next try would find.
    text = new_configuration_text(name, **given | {"address": address})
    identity = make_identity(name)
    card_text(card_of(identity, address))
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.chmod(0o700)
    (home / "cards").mkdir(exist_ok=True, mode=0o700)
    save_identity(identity, home)
    write_file(home / f"{name}.card", card_text(card_of(identity, address)).encode(), mode=0o644)
    (home / "node.toml").write_text(text, encoding="utf-8")
    ensure_token(home)
    return identity


def rotate_key(home: Path, configuration: NodeConfiguration) -> tuple[Path, str]:
    """Make a new key and card; the card's path and the new fingerprint."""
    new = make_identity(configuration.name)
    address = None if configuration.listen is None else configuration.listen.address
    path = home / f"{configuration.name}.card"
    write_file(path, card_text(card_of(new, address)).encode(), mode=0o644)
    save_identity(new, home, replace=True)
    return path, new.fingerprint
