"""The front of a port: strangers cost little, for a short time, and members get in past them."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from flood import client_hello, flooded, is_dropped, made_by, stranger
from gal.errors import NodeError, RefusedError
from gal.transport import Card, CardFolder, Stream, card_of, front, passages, save_identity
from gal.transport.front import Front, Limits
from gal.transport.passages import Passage
from gal.transport.ports import open_port
from gal.transport.strangers import Reached
from gal.transport.wire import grpc
from live_nodes import (
    SMALL,
    House,
    Live,
    dialed,
    eventually,
    hello,
    house,
    issued_by,
    listening,
    raw_call,
    residual_message,
)
from patience import LONGEST, patient

pytestmark = pytest.mark.timeout(120)

SHORT = Limits(per_address=20, in_all=40, hello_seconds=patient(0.5), admission_seconds=patient(2.0))


def strangers(live: Live) -> int:
    return len(live.listener.front.strangers)


def dialed_again(who: House, card: Card) -> Stream:
    """As a node does it: who does not get through tries again."""
    end = time.monotonic() + LONGEST
    while True:
        try:
            return dialed(who, card)
        except NodeError:
            assert time.monotonic() < end, "a member is locked out"
            time.sleep(0.2)


def descriptors(process: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


@pytest.mark.parametrize("said", [b"", client_hello()[:40], client_hello()], ids=["silent", "part", "half"])
def test_who_does_not_go_on_is_dropped(bank: House, said: bytes) -> None:
    with listening(bank, limits=SHORT) as live, stranger(live.listener.port, said) as one:
        eventually(lambda: strangers(live) == 1, "it is here")
        assert is_dropped(one, LONGEST)
        eventually(lambda: strangers(live) == 0, "it is forgotten")


def test_the_operator_is_told_how_many_were_dropped(bank: House) -> None:
    never = Limits(per_address=5, hello_seconds=LONGEST, admission_seconds=LONGEST)
    dropped: list[int] = []
    with listening(bank, limits=never, on_dropped=dropped.append) as live:
        kept = [stranger(live.listener.port) for _ in range(8)]
        eventually(lambda: sum(dropped) > 0, "it is told")
        assert sum(dropped) <= 3
        for one in kept:
            one.close()


def test_what_is_no_tls_is_dropped_at_once(bank: House) -> None:
    never = Limits(hello_seconds=LONGEST, admission_seconds=LONGEST)
    with (
        listening(bank, limits=never) as live,
        stranger(live.listener.port, b"GET / HTTP/1.1\r\n\r\n") as one,
    ):
        assert is_dropped(one, LONGEST)


def test_an_address_that_has_begun_too_many_handshakes_waits(bank: House, hospital: House) -> None:
    """With whole hellos, too, one address costs only so much; a member at another one gets in at once."""
    few = Limits(handshakes_at_once=3, handshakes_per_second=0.0, hello_seconds=patient(2.0))
    with listening(bank, limits=few) as live:
        flood = [stranger(live.listener.port, client_hello(), "127.0.0.2") for _ in range(6)]
        dialed(hospital, live.card()).close()
        assert sum(is_answered(one) for one in flood) == 3
        for one in flood:
            one.close()


def test_who_waited_has_its_turn(bank: House) -> None:
    slow = Limits(handshakes_at_once=1, handshakes_per_second=5.0, hello_seconds=LONGEST)
    with listening(bank, limits=slow) as live:
        flood = [stranger(live.listener.port, client_hello()) for _ in range(4)]
        assert all(is_answered(one) for one in flood)
        for one in flood:
            one.close()


def test_who_waits_for_its_handshake_holds_no_more_than_a_hello(bank: House) -> None:
    never = Limits(handshakes_at_once=0, handshakes_per_second=0.0, hello_seconds=LONGEST)
    with listening(bank, limits=never) as live, stranger(live.listener.port, client_hello()) as one:
        eventually(lambda: strangers(live) == 1, "it is here")
        one.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                one.send(b"x" * 1_000_000)
        assert all(len(passage.to_inner) < 50_000 for passage in live.listener.front.strangers)


def is_answered(one: socket.socket) -> bool:
    """Whether the other side says anything before it ends this connection."""
    one.settimeout(LONGEST)
    try:
        return bool(one.recv(1))
    except ConnectionError:
        return False


def test_a_member_stays_longer_than_strangers_may(bank: House, hospital: House) -> None:
    with listening(bank, limits=SHORT) as live, stranger(live.listener.port) as one:
        stream = dialed(hospital, live.card())
        assert is_dropped(one, LONGEST)
        with stranger(live.listener.port, client_hello()) as another:
            assert is_dropped(another, LONGEST), "longer than the member's own time as a stranger"
        stream.send(residual_message(500_000, 1.0))
        assert stream.receive().message.arrays["residual"].shape == (500_000, 1)
        stream.close()


def test_a_connection_whose_streams_have_ended_is_a_strangers_again(bank: House, hospital: House) -> None:
    """Members cannot hoard connections either."""
    end = threading.Event()

    def kept_open() -> Iterator[bytes]:
        yield from hello()
        end.wait(LONGEST)

    mine = hospital.identity
    credentials = grpc.ssl_channel_credentials(bank.identity.certificate, mine.private_key, mine.certificate)
    options = [("grpc.ssl_target_name_override", "node.gal")]
    with (
        listening(bank, limits=SHORT) as live,
        grpc.secure_channel(live.card().address, credentials, options) as channel,
    ):
        call = channel.stream_stream("/gal.Node/Connect")(kept_open())
        next(call)
        eventually(lambda: strangers(live) == 0, "it is admitted")
        assert live.listener.front.n_connections == 1
        end.set()
        eventually(lambda: strangers(live) == 1, "it counts again")
        eventually(lambda: live.listener.front.n_connections == 0, "it has no stream, and its time is up")


def test_who_is_turned_away_after_tls_is_dropped_soon(tmp_path: Path, bank: House, hospital: House) -> None:
    impostor = house(tmp_path, "impostor", issued_by(hospital.identity, "hospital", with_chain=False))
    never = Limits(hello_seconds=LONGEST, admission_seconds=LONGEST)
    with listening(bank, limits=never) as live, raw_call(impostor, live.card(), hello()) as call:
        with pytest.raises(grpc.RpcError):
            next(call)
        assert [fingerprint for fingerprint, _ in live.refused] == [impostor.fingerprint]
        eventually(lambda: live.listener.front.n_connections == 0, "its connection ends", patient(20))


def test_one_address_cannot_fill_the_house(bank: House, hospital: House) -> None:
    never = Limits(per_address=20, in_all=40, hello_seconds=LONGEST, admission_seconds=LONGEST)
    with listening(bank, limits=never) as live:
        elsewhere = stranger(live.listener.port, client_hello(), "127.0.0.2")
        kept = [stranger(live.listener.port, client_hello(), "127.0.0.3") for _ in range(60)]
        eventually(lambda: strangers(live) == 21, "the address is full")
        assert not is_dropped(elsewhere, 0.3)
        assert is_dropped(kept[0], LONGEST)
        stream = dialed(hospital, live.card())
        stream.close()
        for one in (elsewhere, *kept):
            one.close()


@pytest.mark.parametrize(("idle", "half"), [(1500, 0), (0, 800)], ids=["idle", "half done"])
def test_members_get_in_during_a_flood_from_their_own_address(
    bank: House, hospital: House, idle: int, half: int
) -> None:
    with listening(bank) as live, flooded(live.listener.port, idle, half) as flood:
        eventually(lambda: strangers(live) > 200, "the flood is here")
        for _ in range(3):
            stream = dialed_again(hospital, live.card())
            stream.send(SMALL)
            assert stream.receive().message == SMALL
            stream.close()
        assert made_by(flood) > 0
        assert strangers(live) <= live.listener.front.limits.per_address


POOR = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
from pathlib import Path
from gal.transport import CardFolder, Listener, load_identity
from gal.transport.front import Limits
home = Path(sys.argv[1])
with Listener("127.0.0.1:0", load_identity(home, "bank"), CardFolder(home / "cards"), limits=Limits(),
    on_stream=lambda stream: stream.send(stream.receive().message), on_refused=print, largest=1 << 20, software="gal"
) as listener:
    print(listener.port, flush=True)
    sys.stdin.read()
"""


def test_members_get_in_where_strangers_use_up_the_descriptors(
    tmp_path: Path, bank: House, hospital: House
) -> None:
    home = tmp_path / "home"
    save_identity(bank.identity, home)
    CardFolder(home / "cards").add(card_of(hospital.identity))
    command = [sys.executable, "-c", POOR, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            kept = [stranger(port) for _ in range(300)]
            stream = dialed(hospital, card_of(bank.identity, f"127.0.0.1:{port}"))
            stream.send(SMALL)
            assert stream.receive().message == SMALL
            stream.close()
            for one in kept:
                one.close()
            assert server.poll() is None
        finally:
            server.kill()


def test_a_change_of_cards_starts_another_server_and_ends_the_old_one_with_its_last_stream(
    tmp_path: Path, bank: House, hospital: House
) -> None:
    insurer = house(tmp_path, "insurer")
    with listening(bank) as live:
        first = dialed(hospital, live.card())
        before = descriptors()
        bank.knows(insurer)
        second = dialed(insurer, live.card())
        assert live.listener.n_servers == 2
        for stream in (first, second):
            stream.send(SMALL)
            assert stream.receive().message == SMALL
        first.close()
        bank.cards.remove("hospital")
        with pytest.raises(RefusedError):
            dialed(hospital, live.card())
        eventually(lambda: live.listener.n_servers == 2, "the first has ended")
        second.close()
        eventually(lambda: live.listener.n_servers == 1, "only the newest is left")
        eventually(lambda: descriptors() <= before, "nothing of the others is left")


def test_a_member_opens_so_many_streams_and_others_their_own(
    bank: House, hospital: House, tmp_path: Path
) -> None:
    """One who opens them without end would cost as much as thousands of messages, and take others' places."""
    shop = house(tmp_path / "shop", "shop")
    for one, other in ((bank, shop), (shop, bank)):
        one.cards.add(card_of(other.identity))
    few = replace(SHORT, streams_at_once=3, streams_per_second=1e-9)
    with listening(bank, limits=few) as live:
        for _ in range(3):
            dialed(hospital, live.card()).close()
        with pytest.raises(RefusedError, match="opens one stream after another") as error:
            dialed(hospital, live.card())
        assert error.value.code == "too-often"
        dialed(shop, live.card()).close()


def test_who_is_turned_away_is_not_read_for_a_moment(
    bank: House, hospital: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []
    monkeypatch.setattr(passages.Handing, "hold", lambda handing, passage: held.append(passage))
    few = replace(SHORT, streams_at_once=1, streams_per_second=1e-9)
    with listening(bank, limits=few) as live:
        stream = dialed(hospital, live.card())
        with pytest.raises(RefusedError):
            dialed(hospital, live.card())
        eventually(lambda: len(held) == 1, "its connection is held")
        stream.close()


def test_what_comes_byte_by_byte_is_handed_on_together(bank: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one connection keeps the port busy for the price of a few bytes."""
    monkeypatch.setattr(passages, "MOST_SMALL", 3)
    monkeypatch.setattr(front, "LOOK", 0.05)
    taken: list[int] = []
    read = passages.Handing._read

    def counting(handing: Any, passage: Any, outer: bool) -> None:
        read(handing, passage, outer)
        taken.append(passage.n_small)

    monkeypatch.setattr(passages.Handing, "_read", counting)
    with listening(bank) as live, socket.create_connection(("127.0.0.1", live.listener.port)) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = client_hello()
        for place in range(len(said)):
            one.sendall(said[place : place + 1])
        one.settimeout(LONGEST)
        assert one.recv(1), "the hello came, and is answered"
    assert max(taken) <= 3, "fewer where all of it came before it was read"
    assert len(taken) < len(said)


class Ending:
    """A server behind the port that answers with as much as goes through, and ends."""

    def __init__(self, folder: Path) -> None:
        self.path, self.sent = folder / "inner.sock", -1
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(self.path))
        self._listening.listen()

    def enter(self) -> None:
        threading.Thread(target=self._answer, daemon=True).start()

    def leave(self) -> None:
        pass

    def _answer(self) -> None:
        one, _ = self._listening.accept()
        sent = 0
        with one:
            one.settimeout(0.3)  # until nothing more is taken on
            with suppress(TimeoutError):
                while True:
                    sent += one.send(b"x" * 65536)
        self.sent = sent
        self._listening.close()


@pytest.mark.parametrize("reads", [True, False])
def test_what_is_on_its_way_when_a_server_ends_has_its_time_and_no_more(tmp_path: Path, reads: bool) -> None:
    """Of a peer that is no stranger: who pauses hears all of it, who reads nothing does not stay for ever."""
    [port] = open_port("127.0.0.1", 0)
    address, behind = port.getsockname(), Ending(tmp_path)
    limits = Limits(farewell_seconds=LONGEST if reads else 0.2, admission_seconds=LONGEST)
    made = Front([port], lambda: behind, limits, on_dropped=lambda _: None)
    made.start()
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(address)
        one.sendall(client_hello())
        eventually(lambda: behind.sent >= 0, "the server has ended")
        [passage] = made._passages
        made.admit(passage.name)
        if reads:
            eventually(lambda: passage.until is not None and passage.streams == 1, "its end is noticed")
            time.sleep(1.5 * passages.FAREWELL)
            one.settimeout(LONGEST)
            came = 0
            while piece := one.recv(65536):
                came += len(piece)
            assert came == behind.sent
        eventually(lambda: made.n_connections == 0, "it is gone")
    made.close(LONGEST)


def test_where_no_descriptor_is_left_a_stranger_goes_or_nobody_is_taken() -> None:
    class Short:
        def accept(self) -> Any:
            raise OSError(errno.EMFILE, "Too many open files")

    [port] = open_port("127.0.0.1", 0)
    never: Any = None
    made, short = Front([port], never, SHORT, on_dropped=never), cast(Any, Short())
    ours, theirs = socket.socketpair()
    passage = Passage(theirs, "10.0.0.1", LONGEST)
    made._passages.add(passage)
    made._take_in(passage, Reached.SILENT)
    made._port.take()
    made._accept(short)
    assert passage.closed
    assert not made._port.paused
    made._accept(short)
    assert made._port.paused
    made.close(LONGEST)
    ours.close()


def test_a_front_that_never_started_can_be_closed() -> None:
    before = descriptors()
    [port] = open_port("127.0.0.1", 0)
    address = port.getsockname()
    never: Any = None
    Front([port], never, SHORT, on_dropped=never).close(LONGEST)
    assert descriptors() == before
    with socket.socket() as again:
        again.bind(address)


def test_nothing_is_left_of_a_listener(bank: House, hospital: House) -> None:
    with listening(bank) as live:
        dialed(hospital, live.card()).close()
    time.sleep(0.1)
    before = descriptors()
    for _ in range(3):
        with listening(bank) as live:
            stream = dialed(hospital, live.card())
            with stranger(live.listener.port):
                pass
            stream.close()
    eventually(lambda: descriptors() <= before, "sockets are closed")
