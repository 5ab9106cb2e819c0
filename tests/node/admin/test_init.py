"""A new node's folder, and a new key for an old one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gal.errors import IdentityError, InvalidInputError
from gal.node.admin.init import init_node, rotate_key
from gal.node.config.configuration import read_configuration
from gal.transport import (
    CardFolder,
    load_identity,
    read_card,
)


def test_everything_is_there(tmp_path: Path) -> None:
    home = tmp_path / "a home with spaces" / "bank"
    identity = init_node(
        home,
        "bank",
        source="../rows.csv",
        row_id="id",
        label="paid",
        bind="0.0.0.0:7443",
        address="bank.example:7443",
    )
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "key.pem").stat().st_mode) == 0o600
    configuration = read_configuration(home)
    assert configuration.name == "bank"
    assert configuration.data is not None
    assert (configuration.data.row_id, configuration.data.label) == ("id", "paid")
    assert configuration.listen is not None
    assert configuration.listen.bind == "0.0.0.0:7443"
    card = read_card(home / "bank.card")
    assert (card.name, card.address, card.fingerprint) == ("bank", "bank.example:7443", identity.fingerprint)
    assert load_identity(home, "bank").fingerprint == identity.fingerprint
    assert b"PRIVATE" not in (home / "bank.card").read_bytes()


def test_one_that_only_helps_has_no_address(tmp_path: Path) -> None:
    init_node(tmp_path / "lab", "lab", source="rows.csv", row_id="id")
    assert read_card(tmp_path / "lab" / "lab.card").address is None
    assert read_configuration(tmp_path / "lab").listen is None


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    before = init_node(tmp_path / "lab", "lab")
    with pytest.raises(InvalidInputError, match="there is a node in"):
        init_node(tmp_path / "lab", "other")
    assert load_identity(tmp_path / "lab", "lab").fingerprint == before.fingerprint


@pytest.mark.parametrize("name", ["", "../x", "a b", ".hidden", "x" * 65, "a/b", "a\nb"])
def test_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError):
        init_node(tmp_path / "home", name)
    assert not (tmp_path / "home").exists()


def test_a_new_key_is_taken_on_purpose(tmp_path: Path) -> None:
    home, cards = tmp_path / "lab", CardFolder(tmp_path / "cards")
    old = init_node(home, "lab", bind="127.0.0.1:7443")
    cards.add(read_card(home / "lab.card"))
    path, fingerprint = rotate_key(home, read_configuration(home))
    card = read_card(path)
    assert load_identity(home, "lab").fingerprint == fingerprint == card.fingerprint != old.fingerprint
    assert card.address == "127.0.0.1:7443"
    with pytest.raises(IdentityError, match="gal cards add FILE --replace"):
        cards.add(card)
    cards.add(card, replace=True)
    assert cards.by_fingerprint(old.fingerprint) is None
    assert cards.all()["lab"].fingerprint == fingerprint
