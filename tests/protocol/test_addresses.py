"""Addresses: host and port, or a sentence that says what is wrong."""

from __future__ import annotations

import pytest

from gal.errors import InvalidInputError
from gal.transport import check_proxy, join_address, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:7443", "localhost", 7443),
        ("bank.example:1", "bank.example", 1),
        ("192.0.2.7:65535", "192.0.2.7", 65535),
        ("[::1]:7443", "::1", 7443),
        ("node_1.internal.:80", "node_1.internal.", 80),
    ],
)
def test_good_addresses(text: str, host: str, port: int) -> None:
    assert parse_address(text, "bank") == (host, port)
    assert join_address(host, port) == text


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("bank.example", "must be host:port"),
        (":7443", "must be host:port"),
        ("", "must be host:port"),
        ("bank.example:", "the port must be a number"),
        ("bank.example:https", "the port must be a number"),
        ("bank.example:65536", "the port must be a number"),
        ("bank.example:-1", "the port must be a number"),
        ("bank.example:٣", "the port must be a number"),
        ("bank.example:0", "port 0 cannot be dialed"),
        ("::1:7443", "needs brackets"),
        ("[::g]:7443", "not an IPv6 address"),
        ("unix:/run/x:1", "not the name of a host"),
        ("https://bank.example:7443", "not the name of a host"),
        ("bank example:7443", "not the name of a host"),
        ("-bank:7443", "not the name of a host"),
    ],
)
def test_bad_addresses(text: str, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match) as caught:
        parse_address(text, "the card of bank")
    assert str(caught.value).startswith("the card of bank")


def test_port_zero_is_for_listening_only() -> None:
    assert parse_address("127.0.0.1:0", "listen.bind", any_port=True) == ("127.0.0.1", 0)


def test_proxies() -> None:
    assert check_proxy("http://proxy:3128") == "http://proxy:3128"
    assert check_proxy("http://user:secret@proxy:3128") == "http://user:secret@proxy:3128"
    for wrong in (
        "proxy:3128",
        "https://user:secret@proxy:3128",
        "http://proxy",
        "http://user:secret@:3128/path",
    ):
        with pytest.raises(InvalidInputError, match=r"network\.proxy") as caught:
            check_proxy(wrong)
        assert "secret" not in str(caught.value)
