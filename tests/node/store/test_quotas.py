"""Quotas of peers: what counts, what is delayed or ignored, and what is logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ByteSize

from gal.errors import InvalidMessageError, LinkLostError, RefusedError
from gal.node.assistant.links import Link
from gal.node.config.policy import Policy
from gal.node.label_holder.assistants import Assistants
from gal.node.store.activity import Activity
from gal.node.store.audit import AuditLog
from gal.node.store.records import LimitedError, Quotas, Records
from gal.node.store.state import State
from gal.protocol import Message, prepare
from gal.protocol.frames import FIRST, MORE, SIZE
from gal.transport import Received, Stream
from gal.transport.stream import Outgoing
from patience import LONGEST, patient
from small_network import quiet

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DIGEST = "sha256:" + "0" * 64


@dataclass
class Clock:
    """A clock that is set by hand."""

    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def received(message: Message) -> Received:
    encoded = prepare(message)
    return Received(message, encoded.digest, encoded.data.size, bytearray(encoded.data.to_pybytes()))


JOINED = received(Message("joined", fields={"tasks": []}))
GARBAGE = Received(Message("joined"), "", 0, bytearray())
"""Stands for bytes that are no message."""


@dataclass
class Home:
    """The records of a node."""

    home: Path
    clock: Clock
    policy: Policy
    open: list[AuditLog] = field(default_factory=list)

    def records(self) -> Records:
        """As after a start."""
        audit = AuditLog(self.home / "state.sqlite", clock=self.clock)
        self.open.append(audit)
        return Records(audit, quiet(), Activity(), Quotas(self.policy, clock=self.clock))


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Home]]:
    made: list[Home] = []

    def one(**policy: Any) -> Home:
        made.append(Home(tmp_path, clock, Policy(**policy)))
        return made[-1]

    yield one
    for each in made:
        for audit in each.open:
            audit.close()


# Days


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        ({"messages_per_day": 3}, "messages_per_day"),
        ({"bytes_per_day": ByteSize(3 * JOINED.n_bytes)}, "bytes_per_day"),
        ({"refusals_per_day": 3}, "refusals_per_day"),
    ],
)
def test_a_peer_over_its_quota_is_ignored_until_the_next_day(
    home: Callable[..., Home], clock: Clock, policy: dict[str, Any], limit: str
) -> None:
    records = home(**policy).records()
    done = received(Message("done", "a" * 32, 1, "x", {"answers": DIGEST}))
    for _ in range(3):
        assert records.is_limited("clinic") is None
        records.entered("clinic", JOINED if limit != "refusals_per_day" else done)
        records.entered("bank", done, awaited=True)  # what was asked for does not count
        if limit == "refusals_per_day":
            records.refused("clinic", "not-invited", "no")
    found = records.is_limited("clinic")
    assert found is not None
    assert (found.code, found.limit) == ("limited", limit)
    assert f"'{limit}'" in str(found)
    assert records.is_limited("bank") is None  # its own day
    clock.now += timedelta(hours=11, minutes=59)
    assert records.is_limited("clinic") is not None
    clock.now += timedelta(minutes=2)
    assert records.is_limited("clinic") is None


def test_a_clock_that_is_set_back_gives_no_day_anew(clock: Clock) -> None:
    """Around midnight it would be spent again with each correction of the clock."""
    quotas = Quotas(Policy(messages_per_day=3), clock)
    for hours in (0, 13, 0, 13):
        clock.now = NOON + timedelta(hours=hours)
        quotas.count("lab", messages=1)
    assert quotas.exceeded("lab") is not None
    clock.now = NOON
    assert quotas.exceeded("lab") is not None
    clock.now = NOON + timedelta(days=2)
    assert quotas.exceeded("lab") is None


def test_that_a_day_is_spent_is_written_down_once(home: Callable[..., Home]) -> None:
    records = home(messages_per_day=1).records()
    records.entered("lab", JOINED)
    before = len(records.audit.entries())
    for _ in range(500):
        assert records.is_limited("lab") is not None
    [entry] = records.audit.entries()[before:]
    assert entry.note.startswith("limited: you have sent 1 messages today")
    assert records.activity.facts()["counts"]["limited", "lab", "messages_per_day"] == 500


def test_bytes_of_what_is_no_message_count(home: Callable[..., Home]) -> None:
    """Those of every refusal, and those that no refusal speaks of."""
    records = home(bytes_per_day=ByteSize(10**6)).records()
    for _ in range(60):
        records.refused("lab", "invalid-message", "no", n_bytes=10_000)
    records.wasted("lab", 399_999)
    assert records.is_limited("lab") is None
    with pytest.raises(LimitedError) as error:
        records.wasted("lab", 1)
    assert error.value.limit == "bytes_per_day"


@pytest.mark.parametrize("code", ["disk", "no-room"])
def test_what_fails_for_want_of_room_here_is_not_held_against_the_peer(
    home: Callable[..., Home], code: str
) -> None:
    records = home(refusals_per_day=2).records()
    for _ in range(9):
        records.refused("lab", code, "the disk is full")
    records.refused("lab", "not-asked", "but this counts")
    assert records.is_limited("lab") is None
    records.refused("lab", "not-asked", "and this")
    assert records.is_limited("lab") is not None
    assert records.activity.facts()["counts"]["refusals", code] == 9


# What is written down


def test_made_up_keys_make_a_bounded_number_of_entries(home: Callable[..., Home]) -> None:
    records = home(refusals_per_day=20).records()
    for number in range(500):
        records.turned_away(f"sha256:{number:064d}", "not known here")
    assert len(records.audit.entries()) == 20
    assert {one.peer for one in records.audit.entries()} == {""}


class FakeStream:
    """Yields given messages and ends; records what was sent."""

    fingerprint, software, is_idle, version = "", "", True, 2

    def __init__(self, peer: str, *messages: Received) -> None:
        self.peer, self._messages = peer, list(messages)
        self.sent: list[Message] = []
        self.refused: list[tuple[str, str]] = []

    def receive(self) -> Received:
        if not self._messages:
            raise LinkLostError("gone")
        message = self._messages.pop(0)
        if message is GARBAGE:
            raise InvalidMessageError("sent what is no message", 1000)
        return message

    @property
    def n_left(self) -> int:
        return len(self._messages)

    def send(self, encoded: Any) -> None:
        self.sent.append(encoded.message)

    def refuse(self, code: str, sentence: str, *, drop: bool = False) -> None:
        self.refused.append((code, sentence))

    def close(self) -> None:
        """Nothing to close."""


def test_one_message_with_thousands_of_wrong_tasks_is_refused_once(home: Callable[..., Home]) -> None:
    clinic = home()
    records, state = clinic.records(), State(clinic.home)
    tasks = [{"task": f"{number:032x}", "terms": DIGEST, "moving": False} for number in range(6000)]
    stream = FakeStream("lab", received(Message("joined", fields={"tasks": tasks})))
    before = (clinic.home / "state.sqlite").stat().st_size
    Assistants(state, records).on_stream(cast(Any, stream))
    assert [one.fields["code"] for one in stream.sent] == ["not-invited"]
    kinds = [one.kind for one in records.audit.entries()]
    assert kinds == ["joined", "refused", "refusal"]
    assert (clinic.home / "state.sqlite").stat().st_size - before < 100_000
    state.close()


def test_an_organization_whose_day_is_spent_is_told_and_let_go(home: Callable[..., Home]) -> None:
    clinic = home(messages_per_day=5)
    records, state = clinic.records(), State(clinic.home)
    stream = FakeStream("lab", *[JOINED] * 50)
    assistants = Assistants(state, records)
    assistants.on_stream(cast(Any, stream))
    assert stream.n_left == 45
    assert [code for code, _ in stream.refused] == ["limited"]
    n_entries = len(records.audit.entries())
    for _ in range(20):  # repeated connections are ignored and not logged
        again = FakeStream("lab", *[JOINED] * 50)
        assistants.on_stream(cast(Any, again))
        assert (again.n_left, [code for code, _ in again.refused]) == (50, ["limited"])
    assert len(records.audit.entries()) == n_entries
    state.close()


class FakeService:
    """An organization that refuses whatever it is asked."""

    def __init__(self, policy: Policy) -> None:
        self.configuration = self.state = self
        self.name, self.policy = "lab", policy

    def tasks(self, role: str) -> list[Any]:
        return []

    def moves(self) -> bool:
        return False

    def answer(self, asked: Any) -> Any:
        raise RefusedError("not-joined", "no such task")


def end_when_spent(link: Link) -> None:
    """Close a link once it says that its peer's day is used up, which must come."""
    for _ in range(int(LONGEST * 50)):
        if link.problem.startswith("clinic has used up its quota of today"):
            break
        link._ending.wait(patient(0.02))
    assert link.problem.startswith("clinic has used up its quota of today")
    link.close()


def test_a_label_holder_whose_day_is_spent_is_told_and_not_dialed(home: Callable[..., Home]) -> None:
    lab = home(messages_per_day=5)
    records = lab.records()
    asked = received(Message("end", "a" * 32, 1, "end", {"kept": 0}))
    streams = [FakeStream("clinic", *[asked] * 50)]
    dialed: list[str] = []

    def dial(peer: str) -> Any:
        dialed.append(peer)
        return streams[len(dialed) - 1]

    link = Link("clinic", cast(Any, FakeService(lab.policy)), records, dial)
    end_when_spent(link)
    assert streams[0].n_left == 45
    assert dialed == ["clinic"]
    codes = [one.fields["code"] for one in streams[0].sent if one.kind == "refusal"]
    assert codes.count("limited") == 1


def garbled(*frames: bytes) -> Stream:
    """A stream of these frames."""
    return Stream(
        "lab",
        DIGEST,
        incoming=iter(frames),
        outgoing=Outgoing(1000),
        is_known=lambda: True,
        loss_reason=lambda: LinkLostError("gone"),
        cancel=lambda: None,
    )


BEGINNING = FIRST + SIZE.pack(10**6) + b"x" * 991
"""A frame of 1,000 bytes, of a message that goes on."""
REST = MORE + b"x" * 999
TOO_LARGE = FIRST + SIZE.pack(10**12) + b"x" * 991
NONSENSE = FIRST + SIZE.pack(991) + b"x" * 991


@pytest.mark.parametrize(
    "frames",
    [
        [BEGINNING] * 100,
        [BEGINNING, REST] * 50,
        [TOO_LARGE] + [REST] * 99,
        [NONSENSE] * 100,
        [REST] * 100,
    ],
    ids=["begun", "begun and gone on", "passed over", "not decoded", "continues nothing"],
)
def test_frames_that_make_no_message_use_up_the_bytes_of_a_day(
    home: Callable[..., Home], frames: list[bytes]
) -> None:
    clinic = home(bytes_per_day=ByteSize(20_000))
    records, state = clinic.records(), State(clinic.home)
    stream, left = garbled(), iter(frames)
    stream._incoming = left
    stream.agree(2, "gal", 10**9)
    Assistants(state, records).on_stream(stream)
    assert stream.refusal is not None
    assert "'bytes_per_day'" in str(stream.refusal)
    assert 76 <= len(list(left)) <= 80
    state.close()


@pytest.mark.parametrize("policy", [{"refusals_per_day": 5}, {"bytes_per_day": ByteSize(5_000)}], ids=str)
def test_what_is_no_message_counts_at_an_organization(
    home: Callable[..., Home], policy: dict[str, Any]
) -> None:
    lab = home(**policy)
    stream = FakeStream("clinic", *[GARBAGE] * 50)
    link = Link("clinic", cast(Any, FakeService(lab.policy)), lab.records(), lambda peer: cast(Any, stream))
    end_when_spent(link)
    assert stream.n_left == 45
