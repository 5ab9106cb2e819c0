"""Admission: known keys while they are known, never by name."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gal.errors import IdentityError, LinkLostError, NodeError, RefusedError
from gal.protocol.frames import FIRST, SIZE
from gal.transport import Stream, card_of, dial, make_identity
from gal.transport.wire import explain, grpc
from loopback import (
    SMALL,
    Live,
    Organization,
    dialed,
    frames_of,
    hello,
    issued_by,
    listening,
    make_organization,
    raw_call,
    residual_message,
)
from patience import LONGEST, patient, until
from ports import free_port

pytestmark = pytest.mark.timeout(60)


def assert_echo(stream: Stream) -> None:
    stream.send(SMALL)
    assert stream.receive().message == SMALL


def soon_dialed(party: Organization, live: Live) -> Stream:
    """A stream of a new peer, which the next look at the cards admits."""
    streams: list[Stream] = []

    def dialing() -> bool:
        with suppress(RefusedError, LinkLostError):
            streams.append(dialed(party, live.card()))
        return bool(streams)

    until(dialing, "it is let in")
    return streams[0]


@pytest.mark.parametrize("with_chain", [False, True])
def test_a_known_organization_cannot_pose_as_another(
    tmp_path: Path, bank: Organization, hospital: Organization, with_chain: bool
) -> None:
    insurer = make_organization(tmp_path, "insurer")
    bank.knows(insurer)
    impostor = make_organization(
        tmp_path, "impostor", issued_by(insurer.identity, hospital.identity.name, with_chain=with_chain)
    )
    streams: list[str] = []
    with listening(bank, lambda stream: streams.append(stream.peer)) as live:
        with pytest.raises(RefusedError, match="is not known here: send your card to bank") as caught:
            dialed(impostor, live.card())
        assert caught.value.code == "unknown-key"
        # It got past TLS: only the fingerprint gives it away.
        assert [fingerprint for fingerprint, _ in live.refused] == [impostor.fingerprint]
    assert streams == []


def test_an_unknown_key_is_refused(tmp_path: Path, bank: Organization, hospital: Organization) -> None:
    unknown = make_organization(tmp_path, "hospital-2", replace(make_identity("hospital"), name="hospital"))
    with listening(bank) as live:
        with pytest.raises(RefusedError, match="has bank added your card") as caught:
            dialed(unknown, live.card())
        assert caught.value.code == "not-admitted"
        stream = dialed(hospital, live.card())
        assert_echo(stream)
        stream.close()


def test_a_dialer_without_a_certificate_is_refused(bank: Organization, hospital: Organization) -> None:
    with listening(bank) as live:
        credentials = grpc.ssl_channel_credentials(bank.identity.certificate)
        options = [("grpc.ssl_target_name_override", "node.gal")]
        with grpc.secure_channel(live.card().address, credentials, options=options) as channel:
            call = channel.stream_stream("/gal.Node/Connect")(iter(hello()))
            with pytest.raises(grpc.RpcError):
                next(call)
        assert live.listener.peers() == []


def test_a_card_added_while_running_gets_in(tmp_path: Path, bank: Organization) -> None:
    hospital = make_organization(tmp_path, "hospital")
    with listening(bank) as live:
        with pytest.raises(RefusedError):
            dialed(hospital, live.card())
        bank.knows(hospital)
        stream = soon_dialed(hospital, live)
        assert_echo(stream)
        stream.close()


def test_a_card_removed_ends_the_open_stream_and_refuses_a_new_one(
    bank: Organization, hospital: Organization
) -> None:
    with listening(bank) as live:
        stream = dialed(hospital, live.card())
        assert_echo(stream)
        bank.cards.remove("hospital")
        stream.send(SMALL)
        with pytest.raises(RefusedError, match=r"the card of hospital .* was removed or replaced") as caught:
            stream.receive()
        assert caught.value.code == "revoked"
        stream.close()
        with pytest.raises(RefusedError):
            dialed(hospital, live.card())
        until(lambda: len(live.refused) > 0, "the refusal is reported")
        assert live.refused[0][0] == hospital.fingerprint


def test_a_revoked_peer_cannot_open_a_stream_over_its_open_connection(
    bank: Organization, hospital: Organization
) -> None:
    """That needs no new TLS handshake: only the look into the cards refuses it."""
    mine = hospital.identity
    credentials = grpc.ssl_channel_credentials(bank.identity.certificate, mine.private_key, mine.certificate)
    options = [("grpc.ssl_target_name_override", "node.gal")]
    with listening(bank) as live, grpc.secure_channel(live.card().address, credentials, options) as channel:
        connect = channel.stream_stream("/gal.Node/Connect")
        first = connect(iter(hello()))
        next(first)
        bank.cards.remove("hospital")
        second = connect(iter(hello()))
        with pytest.raises(grpc.RpcError):
            next(second)
        refusal = explain(second, "bank", "here")
        assert isinstance(refusal, RefusedError)
        assert refusal.code == "unknown-key"
        first.cancel()


def test_nothing_is_sent_to_a_peer_that_was_revoked(bank: Organization, hospital: Organization) -> None:
    revoked = threading.Event()
    errors: queue.Queue[Exception] = queue.Queue()

    def send_later(stream: Stream) -> None:
        revoked.wait(patient(30))
        try:
            stream.send(residual_message(10, 1.0))
        except NodeError as error:
            errors.put(error)

    with listening(bank, send_later) as live:
        stream = dialed(hospital, live.card())
        bank.cards.remove("hospital")
        revoked.set()
        with pytest.raises(RefusedError, match="bank refused"):
            stream.receive()
        error = errors.get(timeout=LONGEST)
        assert isinstance(error, RefusedError)
        assert error.code == "revoked"
        stream.close()


def test_the_dialing_side_may_revoke_as_well(bank: Organization, hospital: Organization) -> None:
    with listening(bank) as live:
        stream = dialed(hospital, live.card())
        hospital.cards.remove("bank")
        with pytest.raises(RefusedError, match="the card of bank") as caught:
            stream.send(SMALL)
        assert caught.value.code == "revoked"
        stream.close()
        with pytest.raises(IdentityError, match="is in no card here: add its card first"):
            dial(live.card(), hospital.identity, cards=hospital.cards, largest=100, software="gal")


def test_a_key_is_rotated_without_restart(tmp_path: Path, bank: Organization, hospital: Organization) -> None:
    new = make_organization(tmp_path, "hospital with a new key", make_identity("hospital"))
    with listening(bank) as live:
        old_stream = dialed(hospital, live.card())
        bank.cards.add(card_of(new.identity), replace=True)
        new_stream = soon_dialed(new, live)
        assert_echo(new_stream)
        old_stream.send(SMALL)
        with pytest.raises(RefusedError, match="removed or replaced"):
            old_stream.receive()
        with pytest.raises(RefusedError):
            dialed(hospital, live.card())
        assert_echo(new_stream)
        old_stream.close()
        new_stream.close()


def test_a_label_holder_with_another_key_is_refused(
    tmp_path: Path, bank: Organization, hospital: Organization
) -> None:
    thief = make_organization(tmp_path, "thief", make_identity("bank"))
    thief.knows(hospital)
    with listening(thief) as live:
        pretended = card_of(bank.identity, live.card().address)
        with pytest.raises(IdentityError, match="does not hold the key in the card of bank"):
            dialed(hospital, pretended)
        assert live.listener.peers() == []


def test_a_peer_that_does_not_say_hello_is_sent_away(bank: Organization, hospital: Organization) -> None:
    with listening(bank, hello_seconds=0.2) as live, raw_call(hospital, live.card(), []) as call:
        with pytest.raises(grpc.RpcError):
            next(call)
        assert "did not say hello within 0.2 s" in call.details()
        assert isinstance(explain(call, "bank", "here"), RefusedError)
        until(lambda: len(live.refused) == 1, "the refusal is reported")
        assert live.refused[0][0] == hospital.fingerprint


@pytest.mark.parametrize(
    "frames",
    [
        [b"garbage"],
        [b""],
        [FIRST + SIZE.pack(1 << 30) + b"x"],
        [FIRST + SIZE.pack(3) + b"abc"],
        frames_of(SMALL),
        frames_of(residual_message(1_000_000, 0.0)),
    ],
    ids=["garbage", "empty", "announces much", "no message", "another kind", "large"],
)
def test_a_peer_that_begins_with_something_else_is_sent_away(
    bank: Organization, hospital: Organization, frames: list[bytes]
) -> None:
    with listening(bank) as live:
        with raw_call(hospital, live.card(), frames) as call:
            with pytest.raises(grpc.RpcError):
                next(call)
            refusal = explain(call, "bank", "here")
            assert isinstance(refusal, RefusedError)
            assert refusal.code == "no-hello"
        stream = dialed(hospital, live.card())
        assert_echo(stream)
        stream.close()


def test_a_port_in_use_says_so(bank: Organization) -> None:
    with listening(bank) as live:
        second = listening(bank, bind=f"127.0.0.1:{live.listener.port}")
        with pytest.raises(NodeError, match="the port is in use: does this node run already"):
            second.__enter__()


@pytest.mark.parametrize(
    ("bind", "match"),
    [
        ("no-such-host.invalid:0", "no host of this name"),
        ("192.0.2.1:7443", "does not have that address"),
        ("127.0.0.1", "must be host:port"),
    ],
)
def test_where_one_cannot_listen(bank: Organization, bind: str, match: str) -> None:
    with pytest.raises((NodeError, ValueError), match=match), listening(bank, bind=bind):
        pass


def test_dialing_a_closed_port(bank: Organization, hospital: Organization) -> None:
    card = card_of(bank.identity, f"127.0.0.1:{free_port()}")
    with pytest.raises(
        LinkLostError, match=r"bank cannot be reached at 127\.0\.0\.1:\d+ \(Connection refused\)"
    ):
        dialed(hospital, card)


def test_dialing_a_card_without_an_address(bank: Organization, hospital: Organization) -> None:
    with pytest.raises(IdentityError, match="the card of bank has no address"):
        dialed(hospital, card_of(bank.identity))


@contextmanager
def answering(data: bytes | None) -> Iterator[int]:
    """A port that replies to every connection with these bytes, or not at all."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                kept.append(connection)
                if data is not None:
                    connection.sendall(data)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        thread.join(LONGEST)
        for connection in kept:
            connection.close()


def test_dialing_another_server(bank: Organization, hospital: Organization) -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        card = card_of(bank.identity, f"127.0.0.1:{port}")
        with pytest.raises(IdentityError, match="does not speak TLS: check host and port"):
            dialed(hospital, card)


def test_dialing_a_silent_server(bank: Organization, hospital: Organization) -> None:
    with answering(None) as port, pytest.raises(LinkLostError, match=r"did not reply within 0\.3 s"):
        dialed(hospital, card_of(bank.identity, f"127.0.0.1:{port}"), timeout=0.3)


def test_a_change_of_cards_starts_another_server_and_the_streams_of_the_one_before_go_on(
    tmp_path: Path, bank: Organization, hospital: Organization
) -> None:
    insurer = make_organization(tmp_path, "insurer")
    with listening(bank) as live:
        first = dialed(hospital, live.card())
        bank.knows(insurer)
        second = soon_dialed(insurer, live)
        for stream in (first, second):
            assert_echo(stream)
        assert live.listener.n_servers == 2
        first.close()
        until(lambda: live.listener.n_servers == 1, "only the newest is left")
        assert_echo(second)
        second.close()


def test_a_member_opens_so_many_streams(
    bank: Organization, hospital: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gal.transport.listener.STREAMS_AT_ONCE", 2)
    monkeypatch.setattr("gal.transport.listener.STREAMS_PER_SECOND", 0.0)
    with listening(bank) as live:
        for _ in range(2):
            dialed(hospital, live.card()).close()
        with pytest.raises(RefusedError, match="opens one stream after another") as caught:
            dialed(hospital, live.card())
        assert caught.value.code == "too-often"


def test_members_get_in_while_others_are_silent(bank: Organization, hospital: Organization) -> None:
    with listening(bank) as live, ExitStack() as held:
        for _ in range(300):
            held.enter_context(socket.create_connection(("127.0.0.1", live.listener.port)))
        stream = dialed(hospital, live.card())
        assert_echo(stream)
        stream.close()
