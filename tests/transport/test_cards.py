"""Cards as files, and the folder that knows the peers."""

from __future__ import annotations

import os
import ssl
import stat
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from gal.errors import IdentityError, InvalidInputError
from gal.transport import (
    CardFolder,
    card_of,
    card_text,
    make_identity,
    parse_card,
    read_card,
)


def test_a_card_is_toml_and_comes_back_as_it_was(tmp_path: Path) -> None:
    bank = make_identity("bank")
    card = card_of(bank, "bank.example:7443")
    text = card_text(card)
    assert parse_card(text) == card
    values = tomllib.loads(text)
    assert values["fingerprint"] == bank.fingerprint
    (tmp_path / "bank.card").write_text(text)
    assert read_card(tmp_path / "bank.card") == card


def test_the_private_key_never_enters_a_card() -> None:
    bank = make_identity("bank")
    careless = replace(bank, certificate=bank.certificate + bank.private_key)
    assert "PRIVATE" not in card_text(card_of(careless))


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("format = 1", "format = 2", "upgrade gal-learn"),
        ("format = 1", "", "format None"),
        ('name = "bank"', 'name = "../bank"', "needs a name"),
        ('name = "bank"', "name = 7", "'name' of a card: Input should be a valid string"),
        ('fingerprint = "sha256:', 'fingerprint = "sha256:0', "altered or damaged"),
        ("bank.example:7443", "bank.example", "must be host:port"),
        ("format = 1", "format = 1\nextra = 2", "'extra' of a card"),
        ("BEGIN CERT", "BEGIN SERT", "no readable certificate"),
        ("format = 1", "format = [", "not a card: .* is the file NAME.card that gal init makes"),
        ("format = 1", "format = 1\nx = " + "[" * 20_000, "not a card"),
        ("format = 1", "format = 1\nx = " + "9" * 5_000, "not a card"),
        ("format = 1", "format = 1\n# -----BEGIN PRIVATE KEY-----", "private key is in it"),
    ],
)
def test_an_invalid_card_is_an_error_with_a_reason(tmp_path: Path, old: str, new: str, match: str) -> None:
    text = card_text(card_of(make_identity("bank"), "bank.example:7443"))
    assert old in text
    path = tmp_path / "bank.card"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(IdentityError, match=match) as caught:
        read_card(path)
    assert str(path) in str(caught.value)


def test_a_key_of_a_kind_that_is_not_known_here(tmp_path: Path) -> None:
    """One byte in the certificate names another curve."""
    card = card_of(make_identity("bank"))
    der = ssl.PEM_cert_to_DER_cert(card.certificate.decode())
    named = bytes.fromhex("06082a8648ce3d030107")  # P-256
    assert der.count(named) == 1
    other = ssl.DER_cert_to_PEM_cert(der.replace(named, named[:-1] + b"\x63"))
    path = tmp_path / "bank.card"
    path.write_text(card_text(card).replace(card.certificate.decode().strip(), other.strip()))
    with pytest.raises(IdentityError, match="key"):
        read_card(path)


def test_files_that_are_no_cards(tmp_path: Path) -> None:
    path = tmp_path / "bank.card"
    with pytest.raises(IdentityError, match="cannot be read"):
        read_card(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(IdentityError, match="not text"):
        read_card(path)
    path.write_bytes(b"#" * 100_000)
    with pytest.raises(IdentityError, match="larger than 64 kB"):
        read_card(path)


def test_the_folder_finds_by_name_and_by_key(tmp_path: Path) -> None:
    cards = CardFolder(tmp_path / "cards")
    assert dict(cards.all()) == {}
    bank, hospital = card_of(make_identity("bank")), card_of(make_identity("hospital"))
    assert cards.add(bank) == "bank"
    assert cards.add(hospital, "the-clinic") == "the-clinic"
    assert dict(cards.all()) == {"bank": bank, "the-clinic": hospital}
    assert cards.by_fingerprint(hospital.fingerprint) == ("the-clinic", hospital)
    assert cards.get("hospital") is None
    cards.remove("bank")
    assert cards.by_fingerprint(bank.fingerprint) is None
    with pytest.raises(IdentityError, match="no card of 'bank' is known; known: the-clinic"):
        cards.remove("bank")
    with pytest.raises(InvalidInputError):
        cards.remove("../key")


def test_files_put_there_and_taken_away_by_hand_count_at_once(tmp_path: Path) -> None:
    cards = CardFolder(tmp_path)
    first, second = card_of(make_identity("bank")), card_of(make_identity("bank"))
    path = tmp_path / "bank.card"
    path.write_text(card_text(first))
    assert cards.get("bank") == first
    facts = path.stat()
    beside = tmp_path / "new"
    beside.write_text(card_text(second))
    # Even with the time of the old file, as a backup or rsync would set it:
    os.utime(beside, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    beside.replace(path)
    assert cards.get("bank") == second
    assert cards.by_fingerprint(first.fingerprint) is None
    path.rename(tmp_path / "insurer.card")
    assert list(cards.all()) == ["insurer"]
    (tmp_path / "insurer.card").unlink()
    assert list(cards.all()) == []


def test_a_broken_file_is_left_out_with_one_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    cards = CardFolder(tmp_path, on_warning=warnings.append)
    cards.add(card_of(make_identity("bank")))
    (tmp_path / "hospital.card").write_text("nonsense")
    (tmp_path / "a b.card").write_text(card_text(card_of(make_identity("shop"))))
    (tmp_path / ".hidden.card").write_text("an editor's copy")
    (tmp_path / "notes.txt").write_text("not meant to be one")
    (tmp_path / "gone.card").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.card").mkdir()
    for _ in range(3):
        assert list(cards.all()) == ["bank"]
    assert len(warnings) == 4
    assert [
        name for name in ("hospital", "a b", "gone", "folder") if any(name in one for one in warnings)
    ] == [
        "hospital",
        "a b",
        "gone",
        "folder",
    ]
    shop = card_of(make_identity("shop"))
    (tmp_path / "hospital.card").write_text(card_text(shop))
    assert cards.get("hospital") == shop
    assert len(warnings) == 4


def test_two_files_of_one_key_are_both_left_out(tmp_path: Path) -> None:
    warnings: list[str] = []
    cards = CardFolder(tmp_path, on_warning=warnings.append)
    bank = card_of(make_identity("bank"))
    cards.add(bank)
    (tmp_path / "insurer.card").write_text(card_text(bank))
    assert dict(cards.all()) == {}
    assert cards.by_fingerprint(bank.fingerprint) is None
    assert "bank and insurer have one key" in warnings[0]
    (tmp_path / "insurer.card").unlink()
    assert cards.by_fingerprint(bank.fingerprint) == ("bank", bank)


def test_a_known_key_has_one_name_and_names_are_not_similar(tmp_path: Path) -> None:
    cards = CardFolder(tmp_path)
    bank = card_of(make_identity("bank"))
    cards.add(bank)
    with pytest.raises(IdentityError, match="already known as 'bank': one key, one name"):
        cards.add(bank, "insurer")
    with pytest.raises(IdentityError, match="'Bank' could be taken for it"):
        cards.add(card_of(make_identity("Bank")))
    assert list(cards.all()) == ["bank"]


def test_another_key_is_taken_on_purpose_only(tmp_path: Path) -> None:
    cards = CardFolder(tmp_path)
    old, new = make_identity("bank"), make_identity("bank")
    cards.add(card_of(old))
    with pytest.raises(IdentityError, match="may be another organization's"):
        cards.add(card_of(new))
    cards.add(card_of(new), replace=True)
    assert cards.by_fingerprint(old.fingerprint) is None
    assert cards.by_fingerprint(new.fingerprint) is not None


def test_the_folder_is_its_owners_and_its_cards_may_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "cards"
    cards = CardFolder(folder)
    cards.add(card_of(make_identity("bank")))
    cards.add(card_of(make_identity("shop")))  # the folder is there by now
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


def test_a_key_is_known_under_its_own_name_only(tmp_path: Path) -> None:
    warnings: list[str] = []
    cards = CardFolder(tmp_path / "cards", on_warning=warnings.append)
    bank, shop = card_of(make_identity("bank")), card_of(make_identity("shop"))
    cards.add(bank)
    assert cards.is_known("bank", bank.fingerprint)
    assert not cards.is_known("shop", bank.fingerprint)
    assert not cards.is_known("bank", shop.fingerprint)
    blocked = CardFolder(tmp_path / "cards" / "bank.card", on_warning=warnings.append)
    assert not blocked.is_known("bank", bank.fingerprint)  # a file where the folder should be
    assert len(warnings) == 1
    assert "cannot be read" in warnings[0]


def test_adding_a_known_card_again_changes_nothing(tmp_path: Path) -> None:
    folder, card = CardFolder(tmp_path), card_of(make_identity("bank"))
    assert [folder.add(card), folder.add(card)] == ["bank", "bank"]
    assert list(folder.all()) == ["bank"]
