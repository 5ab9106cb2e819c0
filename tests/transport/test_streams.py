"""Streams against a live listener: messages both ways, and every way in which a stream can end."""

from __future__ import annotations

import logging
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gal.errors import InvalidMessageError, LinkLostError, NodeError, RefusedError
from gal.protocol import FRAME, VERSIONS, Message
from gal.protocol.frames import FIRST, MORE, SIZE
from gal.transport import CardFolder, Stream, card_of, save_identity
from gal.transport.stream import Outgoing
from loopback import (
    SMALL,
    Live,
    Organization,
    dialed,
    echo,
    frames_of,
    hello,
    listening,
    make_organization,
    raw_call,
    residual_message,
    settled,
)
from patience import LONGEST, patient, until

pytestmark = pytest.mark.timeout(60)


def test_messages_of_all_sizes_come_back_as_they_were(bank: Organization, hospital: Organization) -> None:
    rng = np.random.default_rng(0)
    with listening(bank) as live:
        stream = dialed(hospital, live.card())
        assert (stream.peer, stream.fingerprint) == ("bank", bank.fingerprint)
        assert (stream.version, stream.software) == (VERSIONS[-1], "gal-learn of the bank")
        for n_rows in (0, 1, FRAME // 4, 5_000_000):
            message = residual_message(n_rows, 0.0)
            values = rng.normal(size=(n_rows, 1)).astype(np.float32)
            fields = {**message.fields, "target": "residual"}
            sent = stream.send(Message("fit", message.task, 1, "q", fields, {"residual": values}))
            back = stream.receive()
            assert (back.digest, back.n_bytes) == (sent.digest, sent.n_bytes)
            np.testing.assert_array_equal(back.message.arrays["residual"], values)
        assert live.listener.peers() == ["hospital"]
        stream.close()
        until(lambda: live.listener.peers() == [], "the listener forgets a stream that ended")
        assert live.refused == []


def test_messages_of_several_threads_do_not_interleave(bank: Organization, hospital: Organization) -> None:
    received: queue.Queue[Message] = queue.Queue()

    def collect(stream: Stream) -> None:
        while True:
            received.put(stream.receive().message)

    with listening(bank, collect) as live:
        stream = dialed(hospital, live.card())

        def send(number: int) -> None:
            for _ in range(5):
                stream.send(residual_message(700_000, float(number), number))

        threads = [threading.Thread(target=send, args=(number,)) for number in (1, 2, 3)]
        for thread in threads:
            thread.start()
        messages = [received.get(timeout=patient(30)) for _ in range(15)]
        for thread in threads:
            thread.join()
        stream.close()
    for message in messages:
        assert (message.arrays["residual"] == message.fields["round"]).all()
    assert sorted(message.fields["round"] for message in messages) == [1] * 5 + [2] * 5 + [3] * 5


@pytest.mark.parametrize("who", ["dialer", "listener"])
def test_a_peer_that_stops_reading_stops_the_sender_and_not_the_memory(
    bank: Organization, hospital: Organization, who: str
) -> None:
    sent: list[int] = []
    ended: queue.Queue[Exception] = queue.Queue()
    closed = threading.Event()

    def pour(stream: Stream) -> None:
        try:
            for number in range(1, 201):
                stream.send(residual_message(FRAME // 4, 0.0, number))
                sent.append(number)
        except NodeError as error:
            ended.put(error)

    def sleep(stream: Stream) -> None:
        closed.wait(patient(50))

    with listening(bank, pour if who == "listener" else sleep) as live:
        stream = dialed(hospital, live.card())
        pouring = threading.Thread(target=pour, args=(stream,))
        if who == "dialer":
            pouring.start()
        until(lambda: len(sent) > 0, "the first message is sent")
        assert settled(lambda: len(sent)) < 60, "200 messages of 1 MiB must not all wait in memory"
        stream.close()
        assert isinstance(ended.get(timeout=LONGEST), LinkLostError)
        closed.set()
    if who == "dialer":
        pouring.join(LONGEST)
        assert not pouring.is_alive()


def test_leaving_the_listener_ends_all_streams(tmp_path: Path, bank: Organization) -> None:
    peers = [make_organization(tmp_path, f"peer{number}") for number in range(3)]
    bank.knows(*peers)
    lost: list[str] = []

    def wait(stream: Stream) -> None:
        try:
            if stream.peer == "peer0":
                while True:
                    stream.send(residual_message(FRAME // 4, 0.0))
            stream.receive()
        except NodeError:
            lost.append(stream.peer)
            raise

    with listening(bank, wait) as live:
        streams = [dialed(peer, live.card()) for peer in peers]
        until(lambda: len(live.listener.peers()) == 3, "all are there")
    assert sorted(lost) == ["peer0", "peer1", "peer2"]
    for stream in streams[1:]:
        with pytest.raises(LinkLostError):
            stream.receive()
    for stream in streams:
        stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gal peer")]


def test_a_new_stream_of_a_peer_ends_its_old_one(bank: Organization, hospital: Organization) -> None:
    with listening(bank) as live:
        first = dialed(hospital, live.card())
        second = dialed(hospital, live.card())
        with pytest.raises(RefusedError, match="opened another stream: does a second node run") as caught:
            first.receive()
        assert caught.value.code == "replaced"
        second.send(SMALL)
        assert second.receive().message == SMALL
        first.close()
        second.send(SMALL)
        assert second.receive().message == SMALL
        second.close()


def test_a_failure_in_the_node_ends_that_stream_only(
    bank: Organization, hospital: Organization, caplog: pytest.LogCaptureFixture
) -> None:
    turns: list[int] = []

    def fail_first(stream: Stream) -> None:
        turns.append(1)
        if len(turns) == 1:
            raise ZeroDivisionError("on purpose")
        echo(stream)

    with listening(bank, fail_first) as live, caplog.at_level(logging.ERROR):
        stream = dialed(hospital, live.card())
        with pytest.raises(RefusedError, match="bank failed; see its log"):
            stream.receive()
        stream.close()
        assert "on purpose" in caplog.text
        again = dialed(hospital, live.card())
        again.send(SMALL)
        assert again.receive().message == SMALL
        again.close()


def test_a_refusal_of_the_node_reaches_the_peer(bank: Organization, hospital: Organization) -> None:
    def refuse(stream: Stream) -> None:
        raise RefusedError("busy", "too many tasks at once: come back tomorrow")

    with listening(bank, refuse) as live:
        stream = dialed(hospital, live.card())
        with pytest.raises(RefusedError, match="bank refused: too many tasks at once") as caught:
            stream.receive()
        assert caught.value.code == "busy"
        stream.close()
        until(lambda: len(live.refused) == 1, "the refusal is told")
        assert live.refused[0][0] == hospital.fingerprint


SERVER = """
import sys
from pathlib import Path
from gal.transport import CardFolder, Listener, load_identity
home = Path(sys.argv[1])
listener = Listener("127.0.0.1:0", load_identity(home, "bank"), CardFolder(home / "cards"),
    on_stream=lambda stream: stream.receive(), on_refused=print, largest=1 << 20, software="gal")
with listener:
    print(listener.port, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def distant_bank(
    tmp_path: Path, bank: Organization, hospital: Organization
) -> Iterator[subprocess.Popen[str]]:
    """The bank's listener in a process of its own, which prints its port."""
    home = tmp_path / "home"
    save_identity(bank.identity, home)
    CardFolder(home / "cards").add(card_of(hospital.identity))
    command = [sys.executable, "-c", SERVER, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server
        finally:
            server.kill()


def port_of(server: subprocess.Popen[str]) -> int:
    assert server.stdout is not None
    return int(server.stdout.readline())


def test_a_listener_that_is_killed_loses_the_link(
    bank: Organization, hospital: Organization, distant_bank: subprocess.Popen[str]
) -> None:
    stream = dialed(hospital, card_of(bank.identity, f"127.0.0.1:{port_of(distant_bank)}"))
    distant_bank.send_signal(signal.SIGKILL)
    with pytest.raises(LinkLostError, match=r"the stream to bank at 127\.0\.0\.1:\d+ was lost"):
        stream.receive()
    with pytest.raises(LinkLostError):
        stream.send(SMALL)
    stream.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_listener_that_hangs_loses_the_link(
    bank: Organization, hospital: Organization, distant_bank: subprocess.Popen[str]
) -> None:
    stream = dialed(hospital, card_of(bank.identity, f"127.0.0.1:{port_of(distant_bank)}"))
    distant_bank.send_signal(signal.SIGSTOP)
    with pytest.raises(LinkLostError, match="the stream to bank"):
        stream.receive()
    stream.close()


def test_garbage_is_refused_and_the_stream_goes_on(bank: Organization, hospital: Organization) -> None:
    got: list[str] = []

    def collect(stream: Stream) -> None:
        while True:
            try:
                got.append(stream.receive().message.kind)
            except InvalidMessageError as error:
                got.append(str(error))

    announced = FIRST + SIZE.pack(1 << 40) + b"x"
    frames = [
        *hello(),
        b"",
        b"garbage",
        MORE + b"of nothing",
        FIRST + b"\x00",
        FIRST + SIZE.pack(4) + b"abcd",
        announced,
        MORE + b"y" * 1000,
        MORE + b"z" * 1000,
        FIRST + SIZE.pack(3) + b"four",
        *frames_of(SMALL),
    ]
    with listening(bank, collect) as live:
        with raw_call(hospital, live.card(), frames) as call:
            next(call)
            until(lambda: got[-1:] == ["joined"], "the valid message after the garbage arrives")
        assert_each_was_refused_once(got[:-1])
        assert_serves(live, hospital)


def assert_each_was_refused_once(got: list[str]) -> None:
    assert all("hospital sent an invalid message" in one for one in got)
    assert sum("is announced, at most" in one for one in got) == 1
    assert sum("more came than the 3 bytes" in one for one in got) == 1
    assert 5 <= len(got) <= 7


def assert_serves(live: Live, who: Organization) -> None:
    """The listener still admits this organization."""
    stream = dialed(who, live.card())
    stream.send(SMALL)
    stream.close()
    until(lambda: live.listener.peers() == [], "the stream ended")


def test_a_frame_that_is_too_large_ends_the_stream_but_not_the_service(
    bank: Organization, hospital: Organization
) -> None:
    ended: queue.Queue[Exception] = queue.Queue()

    def wait(stream: Stream) -> None:
        try:
            stream.receive()
        except NodeError as error:
            ended.put(error)

    with listening(bank, wait) as live:
        with raw_call(hospital, live.card(), [*hello(), FIRST + b"\0" * (4 * FRAME)]):
            assert isinstance(ended.get(timeout=LONGEST), LinkLostError)
        assert_serves(live, hospital)


def before_the_greeting(*frames: bytes) -> Stream:
    """The stream of a peer before its welcome, which has sent these frames."""
    return Stream(
        "unknown",
        "sha256:0",
        incoming=iter(frames),
        outgoing=Outgoing(),
        is_known=lambda: True,
        loss_reason=lambda: LinkLostError("gone"),
        cancel=lambda: None,
    )


def test_before_it_is_welcome_a_peer_can_send_64_kibibytes_and_no_more() -> None:
    longest = {"versions": list(range(1, 17)), "software": "x" * 200, "nonce": "0" * 64}
    largest_hello = b"".join(frames_of(Message("hello", fields=longest)))
    assert before_the_greeting(largest_hello).receive().message.kind == "hello"
    for size, reason in (
        (65_536, "an invalid message"),
        (65_537, "65,537 bytes is announced, at most 65,536"),
    ):
        frame = FIRST + SIZE.pack(size) + bytes(size)
        with pytest.raises(InvalidMessageError, match=reason) as caught:
            before_the_greeting(frame).receive()
        assert ("announced" in str(caught.value)) == (size > 65_536)
