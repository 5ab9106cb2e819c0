"""Dialing: an organization's way to a label holder, out of its house, through a proxy where one is set."""

from __future__ import annotations

import threading
from typing import Any

from gal.errors import IdentityError, LinkLostError, NodeError
from gal.protocol.names import check_proxy, join_address, parse_address
from gal.transport.cards import Card, CardFolder
from gal.transport.handshake import greet
from gal.transport.identity import HOST, Identity
from gal.transport.stream import Outgoing, Stream
from gal.transport.wire import CLIENT_OPTIONS, METHOD, SERVICE, explain, grpc


def dial(
    card: Card,
    identity: Identity,
    *,
    cards: CardFolder,
    largest: int,
    software: str,
    proxy: str | None = None,
    timeout: float = 20.0,
) -> Stream:
    """A stream to the node of this card, once both sides know who the other is.

    ``proxy`` is ``http://host:port``; without it gRPC looks at https_proxy and no_proxy in the environment.
    ``largest`` is in bytes, ``timeout`` in seconds.
    """
    known = cards.by_fingerprint(card.fingerprint)
    if known is None:
        raise IdentityError(
            f"the key {card.fingerprint} of {card.name} is in no card here: add its card first"
        )
    address = _address(card, known[0])
    where = address if proxy is None else f"{address} (through the proxy)"
    channel = _channel(card, identity, address, proxy)
    stream = _open(channel, card, known[0], where, cards)
    in_time = _Deadline(stream, timeout)
    try:
        greet(stream, card, identity, software=software, largest=largest)
    except BaseException as error:
        stream.abandon()
        if in_time.passed and isinstance(error, NodeError):
            raise LinkLostError(
                f"{known[0]} at {where} did not answer within {timeout:g} s: does its node run, and does a "
                "firewall "
                "let the connection through?"
            ) from error
        raise
    finally:
        in_time.stop()
    return stream


class _Deadline:
    """Ends a stream whose greeting takes too long."""

    def __init__(self, stream: Stream, seconds: float) -> None:
        self.passed = False
        self._stream = stream
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True
        self._timer.start()

    def _pass(self) -> None:
        self.passed = True
        self._stream.abandon()

    def stop(self) -> None:
        self._timer.cancel()


def _address(card: Card, name: str) -> str:
    if card.address is None:
        raise IdentityError(
            f"the card of {name} has no address: only label holders listen. Ask {name} for a card with its "
            "address"
        )
    return join_address(*parse_address(card.address, f"the card of {name}"))


def _channel(card: Card, identity: Identity, address: str, proxy: str | None) -> Any:
    options: list[tuple[str, object]] = [*CLIENT_OPTIONS, ("grpc.ssl_target_name_override", HOST)]
    if proxy is not None:
        options.append(("grpc.http_proxy", check_proxy(proxy)))
    credentials = grpc.ssl_channel_credentials(card.certificate, identity.private_key, identity.certificate)
    return grpc.secure_channel(f"dns:///{address}", credentials, options=options)


def _open(channel: Any, card: Card, name: str, where: str, cards: CardFolder) -> Stream:
    outgoing = Outgoing()
    call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(outgoing)
    stream = Stream(
        name,
        card.fingerprint,
        incoming=call,
        outgoing=outgoing,
        is_known=lambda: cards.is_known(name, card.fingerprint),
        why_lost=lambda: explain(call, name, where),
        cancel=call.cancel,
        after=channel.close,
    )
    if not call.add_callback(stream.gone):
        stream.gone()
    return stream
