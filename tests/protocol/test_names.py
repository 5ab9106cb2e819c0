"""Names are safe wherever they are put; an address is host and port, or a sentence says what it must be."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gal.errors import InvalidInputError
from gal.protocol import check_name, is_name
from gal.protocol.names import check_proxy, join_address, parse_address

names = st.from_regex(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII), fullmatch=True)


@given(names)
def test_a_name_is_itself_one_part_of_a_path_and_one_word(name: str) -> None:
    assert check_name(name, "a task") == name
    assert PurePosixPath("folder", name).parts == ("folder", name)
    assert name.isascii()
    assert name.isprintable()
    assert len(name.split()) == 1


@given(st.text())
def test_everything_else_is_refused(text: str) -> None:
    good = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text) is not None
    assert is_name(text) is good
    if not good:
        with pytest.raises(InvalidInputError, match="a task needs a name"):
            check_name(text, "a task")


@pytest.mark.parametrize("text", ["", "..", "a/b", "a\n", "-a", "a\0", "a" * 65, "\u202ea", "ａ"])
def test_tricks_are_refused_and_shown_escaped(text: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_name(text, "an organization")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("value", [None, 1, b"bank", ["bank"], True])
def test_only_text_is_a_name(value: object) -> None:
    assert not is_name(value)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:7443", "localhost", 7443),
        ("192.0.2.7:65535", "192.0.2.7", 65535),
        ("[::1]:7443", "::1", 7443),
        ("node_1.internal.:80", "node_1.internal.", 80),
    ],
)
def test_good_addresses(text: str, host: str, port: int) -> None:
    assert parse_address(text, "bank") == (host, port)
    assert join_address(host, port) == text


@pytest.mark.parametrize(
    "text",
    [
        *("bank.example", ":7443", "", "bank.example:", "bank.example:https", "bank.example:65536"),
        *("bank.example:-1", "bank.example:٣", "bank.example:0", "::1:7443", "[::g]:7443", "unix:/run/x:1"),
        *("https://bank.example:7443", "bank example:7443", "-bank:7443"),
    ],
)
def test_bad_addresses(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^the card of bank: the address must be"):
        parse_address(text, "the card of bank")


def test_port_zero_is_for_listening_only() -> None:
    assert parse_address("127.0.0.1:0", "listen.bind", any_port=True) == ("127.0.0.1", 0)


def test_proxies() -> None:
    for good in ("http://proxy:3128", "http://user:secret@proxy:3128"):
        assert check_proxy(good) == good
    for wrong in (
        "proxy:3128",
        "https://user:secret@proxy:1",
        "http://proxy",
        "http://user:secret@:3128/path",
    ):
        with pytest.raises(InvalidInputError, match=r"network\.proxy") as caught:
            check_proxy(wrong)
        assert "secret" not in str(caught.value)
