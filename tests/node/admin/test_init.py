"""A new node's folder, and a new key for an old one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gal.errors import InvalidInputError
from gal.node.admin.init import init_node
from gal.node.config.configuration import read_configuration
from gal.transport import (
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


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    before = init_node(tmp_path / "lab", "lab")
    with pytest.raises(InvalidInputError, match="there is a node in"):
        init_node(tmp_path / "lab", "other")
    assert load_identity(tmp_path / "lab", "lab").fingerprint == before.fingerprint
