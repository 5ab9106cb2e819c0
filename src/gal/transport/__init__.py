"""Transport: identities of nodes, cards of peers, and authenticated streams of messages.

A label holder has a :class:`Listener`, an organization calls :func:`dial`; both get a :class:`Stream`. The
cards in a :class:`CardFolder` decide which keys may connect, never names.
"""

# ruff: noqa: E402
from gal.extras import require as _require

_require("node", "talking to nodes")

from gal.protocol.names import check_proxy, join_address, parse_address
from gal.transport.cards import (
    Card,
    CardFolder,
    card_of,
    card_text,
    parse_card,
    read_card,
)
from gal.transport.dialing import dial
from gal.transport.identity import (
    Identity,
    fingerprint_of,
    load_identity,
    make_identity,
    save_identity,
    verify,
)
from gal.transport.listener import Listener
from gal.transport.stream import Received, Sent, Stream

__all__ = [
    "Card",
    "CardFolder",
    "Identity",
    "Listener",
    "Received",
    "Sent",
    "Stream",
    "card_of",
    "card_text",
    "check_proxy",
    "dial",
    "fingerprint_of",
    "join_address",
    "load_identity",
    "make_identity",
    "parse_address",
    "parse_card",
    "read_card",
    "save_identity",
    "verify",
]
