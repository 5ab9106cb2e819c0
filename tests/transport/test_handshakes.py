"""How many handshakes an address may begin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gal.transport.handshakes import MOST_ADDRESSES, HandshakeRate


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.sampled_from("ab")), max_size=200))
def test_nobody_begins_more_than_its_rate_in_any_time(tries: list[tuple[float, str]]) -> None:
    now = 0.0
    rate = HandshakeRate(3, 2.0, lambda: now)
    begun: dict[str, list[float]] = {"a": [], "b": []}
    for pause, address in tries:
        now += pause
        if rate.may_begin(address):
            begun[address].append(now)
    for times in begun.values():
        for first in range(len(times)):
            for last in range(first, len(times)):
                assert last - first + 1 <= 3 + 2.0 * (times[last] - times[first]) + 1e-6


def test_an_address_does_not_pay_for_another_and_has_all_again_later() -> None:
    now = 0.0
    rate = HandshakeRate(2, 1.0, lambda: now)
    assert [rate.may_begin("flood") for _ in range(4)] == [True, True, False, False]
    assert rate.may_begin("member")
    now = 1.5
    assert [rate.may_begin("flood") for _ in range(2)] == [True, False]
    now = 1000.0
    assert [rate.may_begin("flood") for _ in range(3)] == [True, True, False]


def test_addresses_are_not_kept_without_end() -> None:
    now = 0.0
    rate = HandshakeRate(1, 1.0, lambda: now)
    for address in range(5 * MOST_ADDRESSES):
        now += 0.01
        assert rate.may_begin(str(address))
    assert len(rate) <= MOST_ADDRESSES
