"""A new node's folder, and a new key for an old one."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gal.errors import IdentityError, InvalidInputError
from gal.node.admin.init import init_node, rotate_key
from gal.node.config.configuration import read_configuration
from gal.transport import (
    CardFolder,
    identity,
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


def test_a_company_s_key_that_is_not_there(tmp_path: Path) -> None:
    gone = tmp_path / "gone.pem"
    with pytest.raises(InvalidInputError, match=r"gone\.pem cannot be read"):
        init_node(tmp_path / "lab", "lab", company=(gone, gone, gone))


def test_a_company_s_certificate_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "any.pem"
    path.write_text("not a certificate")
    with pytest.raises(IdentityError):
        init_node(tmp_path / "lab", "lab", company=(path, path, path))


def test_a_new_key_is_known_by_the_old_one(tmp_path: Path) -> None:
    old = init_node(tmp_path / "lab", "lab")
    cards = CardFolder(tmp_path / "cards")
    (tmp_path / "cards").mkdir()
    cards.add(read_card(tmp_path / "lab" / "lab.card"))
    path, fingerprint = rotate_key(tmp_path / "lab", read_configuration(tmp_path / "lab"))
    assert fingerprint != old.fingerprint
    assert load_identity(tmp_path / "lab", "lab").fingerprint == fingerprint
    assert cards.add(read_card(path)) == "lab"
    assert cards.by_fingerprint(old.fingerprint) is None
    assert cards.all()["lab"].fingerprint == fingerprint


@pytest.mark.parametrize("n_done", range(4))
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_rotation_that_was_interrupted_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_done: int, error: type[BaseException]
) -> None:
    """Wherever the disk is full, or somebody stops it: who knew the old key takes the next card."""
    home, partner = tmp_path / "lab", CardFolder(tmp_path / "cards")
    init_node(home, "lab", bind="127.0.0.1:7443")
    partner.add(read_card(home / "lab.card"))
    done = iter(range(n_done))

    def full(path: Path, to: Path, replace: Any = Path.replace) -> Any:
        if next(done, None) is None:
            raise error(28, "No space left on device")
        return replace(path, to)

    with monkeypatch.context() as patch, suppress(error):
        patch.setattr(Path, "replace", full)
        rotate_key(home, read_configuration(home))
    if load_identity(home, "lab").fingerprint != partner.all()["lab"].fingerprint:
        partner.add(read_card(home / "lab.card"))
    path, fingerprint = rotate_key(home, read_configuration(home))
    card = read_card(path)
    assert load_identity(home, "lab").fingerprint == fingerprint == card.fingerprint
    assert card.address == "127.0.0.1:7443"
    assert partner.add(card) == "lab"


def test_somebody_may_read_the_key_while_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds the new key puts its certificate in its place, before whoever rotates it does."""
    home = tmp_path / "lab"
    init_node(home, "lab")
    write, seen = identity.write_file, list[str]()

    def and_read(path: Path, *given: Any, **named: Any) -> None:
        write(path, *given, **named)
        if path.name == "key.pem":
            seen.append(load_identity(home, "lab").fingerprint)

    monkeypatch.setattr(identity, "write_file", and_read)
    _, fingerprint = rotate_key(home, read_configuration(home))
    assert seen == [fingerprint] == [load_identity(home, "lab").fingerprint]
