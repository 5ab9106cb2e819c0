"""What a carrier delivers is not trusted: parcels are checked, sessions are kept apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gal.errors import InvalidMessageError
from gal.node.runtime import carrier as carrier_module
from gal.node.runtime.carrier import LENGTH, Call, Called, Header, Pace, Parcel, parcel_of
from loopback import make_organization, settled
from patience import until

ONE, OTHER = "ab" * 16, "cd" * 16


def parcel(number: int, session: str = ONE, ended: bool = False) -> bytes:
    return Parcel(Header(session=session, number=number, ended=ended)).to_bytes()


@given(
    frames=st.lists(st.binary(max_size=50), max_size=5), number=st.integers(1, 2**62), hold=st.floats(0, 60)
)
def test_a_parcel_comes_out_as_it_went_in(frames: list[bytes], number: int, hold: float) -> None:
    made = Parcel(Header(session=ONE, number=number, hold=hold), frames)
    found = parcel_of(made.to_bytes())
    assert (found.header, list(found.frames)) == (made.header, frames)


@settings(max_examples=200)
@given(data=st.binary(max_size=200))
def test_bytes_that_are_no_parcel_are_refused_in_words(data: bytes) -> None:
    with pytest.raises(InvalidMessageError):
        parcel_of(data)


@pytest.mark.parametrize(
    "data",
    [
        parcel(1)[:-1],
        parcel(1) + b"\0\0",
        parcel(1) + LENGTH.pack(1 << 30),
        LENGTH.pack(2) + b"{}",
        parcel(1).replace(b'"hold": 0.0', b'"hold": 1e9'),
        parcel(1).replace(b'"ended": false', b'"ended": 0    '),
    ],
)
def test_what_is_cut_or_says_too_much_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessageError):
        parcel_of(data)


def test_a_session_goes_on_in_order_only() -> None:
    called = Called("clinic")

    def ended(data: bytes) -> bool:
        return parcel_of(called.answer(data)).header.ended

    assert ended(parcel(2))  # before any call
    assert not ended(parcel(1))
    assert not ended(parcel(2))
    assert ended(parcel(2))  # the same question again, and one left out
    assert ended(parcel(4))
    assert not ended(parcel(3))
    assert not ended(parcel(1, OTHER))  # a new call ends the first session
    assert ended(parcel(4))
    assert ended(parcel(2, OTHER, ended=True))
    assert ended(parcel(3, OTHER))
    called.close()
    assert ended(parcel(1))


def test_a_label_holder_stops_while_frames_are_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier_module, "MOST_UNREAD", 1000)
    clinic, lab = make_organization(tmp_path, "clinic"), make_organization(tmp_path, "lab")
    clinic.knows(lab)
    asked: list[int] = []

    class Flooding:
        def present(self) -> set[str]:
            return {"lab"}

        def ask(self, name: str, data: bytes, deadline: float) -> bytes:
            header = parcel_of(data).header
            asked.append(header.number)
            return Parcel(Header(session=header.session, number=header.number), [b""] * 3).to_bytes()

    pace = Pace(look=0.001, hold=0.0)
    call = Call("lab", Flooding(), clinic.cards, lambda name: True, pace)
    until(lambda: len(asked) == 5, "four answers are taken in, and one waits")
    assert settled(lambda: len(asked)) == 5
    call.stream.abandon()
