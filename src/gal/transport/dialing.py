"""Dialing: the connection of an organization to a label holder, by a proxy if set."""

from __future__ import annotations

import threading

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
    """A stream to the node of this card, once both sides have proved their keys.

    ``proxy`` is ``http://host:port``; without it gRPC reads https_proxy and no_proxy of the environment.
    ``largest`` is in bytes, ``timeout`` in seconds.
    """
    known = cards.by_fingerprint(card.fingerprint)
    if known is None:
        raise IdentityError(
            f"the key {card.fingerprint} of {card.name} is in no card here: add its card first"
        )
    name = known[0]
    if card.address is None:
        raise IdentityError(
            f"the card of {name} has no address: only label holders listen. Ask {name} for a card with its "
            "address"
        )
    address = join_address(*parse_address(card.address, f"the card of {name}"))
    where = address if proxy is None else f"{address} (through the proxy)"
    options: list[tuple[str, object]] = [*CLIENT_OPTIONS, ("grpc.ssl_target_name_override", HOST)]
    if proxy is not None:
        options.append(("grpc.http_proxy", check_proxy(proxy)))
    credentials = grpc.ssl_channel_credentials(card.certificate, identity.private_key, identity.certificate)
    channel, outgoing = grpc.secure_channel(f"dns:///{address}", credentials, options=options), Outgoing()
    call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(outgoing)
    stream = Stream(
        name,
        card.fingerprint,
        incoming=call,
        outgoing=outgoing,
        is_known=lambda: cards.is_known(name, card.fingerprint),
        loss_reason=lambda: explain(call, name, where),
        cancel=call.cancel,
        after=channel.close,
    )
    if not call.add_callback(stream.disconnected):
        stream.disconnected()
    late = threading.Event()

    def give_up() -> None:
        late.set()
        stream.abandon()

    timer = threading.Timer(timeout, give_up)
    timer.daemon = True
    timer.start()
    try:
        greet(stream, card, identity, software=software, largest=largest)
    except BaseException as error:
        stream.abandon()
        if late.is_set() and isinstance(error, NodeError):
            raise LinkLostError(
                f"{name} at {where} did not reply within {timeout:g} s: does its node run, and does a "
                "firewall allow the connection?"
            ) from error
        raise
    finally:
        timer.cancel()
    return stream
