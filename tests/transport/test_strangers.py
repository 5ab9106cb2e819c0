"""Who has to go when strangers fill the house: nobody of another address, and
nobody whose handshake goes on.
"""

from __future__ import annotations

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flood import client_hello
from gal.transport import listener
from gal.transport.front import Limits
from gal.transport.passages import hello_in
from gal.transport.ports import address_of
from gal.transport.strangers import Reached, Strangers

SILENT, GREETED, ANSWERED = Reached


def test_a_full_address_displaces_its_own_oldest() -> None:
    here: Strangers[int] = Strangers(per_address=3, in_all=100)
    assert here.add(0, "other", SILENT) is None
    assert [here.add(one, "flood", SILENT) for one in range(1, 6)] == [None, None, None, 1, 2]
    assert sorted(here) == [0, 3, 4, 5]


def test_who_came_further_goes_later() -> None:
    here: Strangers[str] = Strangers(per_address=3, in_all=100)
    for one in ("member", "begun", "silent"):
        here.add(one, "address", SILENT)
    here.move("member", GREETED)
    here.move("begun", GREETED)
    here.move("member", ANSWERED)
    assert [here.add(f"new {one}", "address", GREETED) for one in range(4)] == [
        "silent",
        "begun",
        "new 0",
        "new 1",
    ]
    assert "member" in set(here)


def test_a_full_house_displaces_from_the_address_with_the_most() -> None:
    here: Strangers[int] = Strangers(per_address=8, in_all=10)
    for one in range(3):
        here.add(one, f"member {one}", SILENT)
    for one in range(3, 10):
        here.add(one, "flood", SILENT)
    assert here.add(10, "member 4", SILENT) == 3
    assert len(here) == 10


def test_one_who_is_admitted_or_gone_counts_no_more() -> None:
    here: Strangers[int] = Strangers(per_address=1, in_all=1)
    here.add(1, "address", SILENT)
    here.remove(1)
    here.remove(1)
    here.move(1, ANSWERED)
    assert here.add(2, "address", SILENT) is None
    assert list(here) == [2]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([*Reached]), st.booleans()), max_size=60),
    st.integers(1, 5),
    st.integers(1, 9),
)
def test_limits_hold_whatever_comes(
    comings: list[tuple[int, Reached, bool]], per_address: int, in_all: int
) -> None:
    here: Strangers[int] = Strangers(per_address, in_all)
    inside: dict[int, int] = {}
    for number, (address, reached, leaves) in enumerate(comings):
        gone = here.add(number, str(address), reached)
        inside[number] = address
        if gone is not None:
            del inside[gone]
        if leaves:
            first = min(inside)
            here.remove(first)
            del inside[first]
        assert set(here) == set(inside)
        assert len(here) <= in_all
        assert all([*inside.values()].count(one) <= per_address for one in range(4))


@pytest.mark.parametrize(
    ("peer", "counts_for"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_whom_a_connection_counts_for(peer: str, counts_for: str) -> None:
    assert address_of(peer) == counts_for


def test_a_hello_must_be_whole_and_of_tls() -> None:
    hello = client_hello()
    assert hello_in(bytearray(hello)) == "whole"
    assert {hello_in(bytearray(hello[:size])) for size in range(1, len(hello))} == {"part"}
    assert hello_in(bytearray(b"GET / HTTP/1.1\r\n\r\n")) == "none"
    assert hello_in(bytearray(b"\x16\x03\x01\xff\xff")) == "none"


@pytest.mark.parametrize(
    ("descriptors", "in_all"),
    [(resource.RLIM_INFINITY, 2048), (65_536, 2048), (2560, 512), (100, 64)],
    ids=["no limit", "many", "few", "hardly any"],
)
def test_strangers_leave_the_node_descriptors(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, in_all: int
) -> None:
    """Where the system allows few, strangers have fewer connections: each takes up to four descriptors."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (descriptors, resource.RLIM_INFINITY))
    found = listener.default_limits()
    assert found.in_all == in_all
    assert (found.per_address, found.hello_seconds) == (Limits().per_address, Limits().hello_seconds)
