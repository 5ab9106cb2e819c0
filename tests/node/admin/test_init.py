"""A new node's folder, and a new key for an old one."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gal.cli.app import app
from gal.errors import IdentityError, InvalidInputError
from gal.node.admin import init
from gal.node.admin.init import init_node, mend_card, rotate_key
from gal.node.config.configuration import read_configuration
from gal.node.runtime import commands
from gal.transport import (
    CardFolder,
    card_of,
    card_text,
    identity,
    load_identity,
    make_identity,
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


@pytest.mark.parametrize("n_written", [0, 1, 2])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_key_that_cannot_be_replaced_stays_with_its_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_written: int, error: type[BaseException]
) -> None:
    """Wherever the disk is full, or somebody stops it: key, certificate and card are of one key."""
    old, home = init_node(tmp_path / "lab", "lab"), tmp_path / "lab"
    written = iter(range(n_written))

    def full(path: Path, to: Path, replace: Any = Path.replace) -> Any:
        if to.name in {"key.pem", "certificate.pem", "certificate.pem.next"} and next(written, None) is None:
            raise error(28, "No space left on device")
        return replace(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(error):
            rotate_key(home, read_configuration(home))
    mend_card(home, read_configuration(home))  # as the next command does
    found = load_identity(home, "lab")
    assert (found.fingerprint == old.fingerprint) == (n_written < 2)
    card = read_card(home / "lab.card")
    assert card.fingerprint == found.fingerprint
    assert (card.replaces is None) == (n_written < 2)
    assert rotate_key(home, read_configuration(home))[1] != found.fingerprint


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


@contextmanager
def killed_after(n_done: int) -> Iterator[None]:
    """Whoever rotates a key is killed when it has put so many files in their places, and mends nothing."""
    left = iter(range(n_done))

    def killed(path: Path, to: Path, replace: Any = Path.replace) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return replace(path, to)

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)
        patch.setattr(init, "mend_card", lambda home, configuration: False)
        yield


@pytest.mark.parametrize("command", [("cards", "list"), ("cards", "add", "other.card"), ("serve",)])
@pytest.mark.parametrize("n_done", range(5))
def test_after_a_kill_the_next_command_puts_the_card_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_done: int, command: tuple[str, ...]
) -> None:
    """Killed at each point of a rotation: the card is of the key that is there, and who knew the old one
    takes it.
    """
    old, home = init_node(tmp_path / "lab", "lab", bind="127.0.0.1:7443"), tmp_path / "lab"
    partner = CardFolder(tmp_path / "cards")
    partner.add(read_card(home / "lab.card"))
    (tmp_path / "other.card").write_text(card_text(card_of(make_identity("other"))))
    with killed_after(n_done):
        rotate_key(home, read_configuration(home))

    def ended(*given: Any, **named: Any) -> None:
        raise InvalidInputError("far enough")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "serving", ended)
    CliRunner().invoke(app, [*command, "--home", str(home)])
    present, card = load_identity(home, "lab"), read_card(home / "lab.card")
    assert (present.fingerprint == old.fingerprint) == (n_done < 3)
    assert (card.fingerprint, card.address) == (present.fingerprint, "127.0.0.1:7443")
    assert partner.add(card) == "lab"
    assert rotate_key(home, read_configuration(home))[1] == read_card(home / "lab.card").fingerprint


@pytest.mark.parametrize("n_done", range(5))
def test_a_rotation_that_was_killed_is_repeated(tmp_path: Path, n_done: int) -> None:
    """Whoever knew the key of before takes the card, not one that replaces a key nobody has seen."""
    home, partner = tmp_path / "lab", CardFolder(tmp_path / "cards")
    init_node(home, "lab", bind="127.0.0.1:7443")
    partner.add(read_card(home / "lab.card"))
    with killed_after(n_done):
        rotate_key(home, read_configuration(home))
    path, fingerprint = rotate_key(home, read_configuration(home))
    assert load_identity(home, "lab").fingerprint == fingerprint == read_card(path).fingerprint
    assert partner.add(read_card(path)) == "lab"


@pytest.mark.parametrize("text", ["no card", "of another key"])
def test_a_card_of_any_other_key_is_for_its_operator_to_look_at(tmp_path: Path, text: str) -> None:
    init_node(tmp_path / "lab", "lab")
    path, waiting = tmp_path / "lab" / "lab.card", tmp_path / "lab" / "lab.card.next"
    right, other = path.read_bytes(), card_text(card_of(make_identity("lab")))
    waiting.write_text(other if text == "of another key" else text)
    assert not mend_card(tmp_path / "lab", read_configuration(tmp_path / "lab"))
    assert path.read_bytes() == right
