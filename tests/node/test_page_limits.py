"""The page on nodes says the limits that there are: who changes one has to change it, and is seen to."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("grpc")
pytest.importorskip("fastapi")

from gal.node.assistant import prediction_checks
from gal.node.journal import records
from gal.node.store import charges
from gal.node.web import app, server
from gal.transport import passages, stream
from gal.transport.front import LOOK, Limits

PAGE = Path(__file__).parents[2] / "docs" / "explanation-nodes.md"
PORT, HTTP = Limits(), server.STRANGERS
SAID = {
    "silent": f"What says nothing is dropped after {PORT.hello_seconds:g} seconds",
    "admission": f"what has no stream of a known key after {PORT.admission_seconds:g} seconds",
    "connections": f"**Strangers have {PORT.per_address} connections for each source address** (IPv6: each "
    f"/64) **and {PORT.in_all:,} in all**",
    "handshakes": f"An address may begin {PORT.handshakes_at_once} at once and "
    f"{PORT.handshakes_per_second:g} a second from then on",
    "streams": f"**A member opens {PORT.streams_at_once} streams at once and {PORT.streams_per_second:g} a "
    "second from then on**",
    "small frames": f"smaller than they have to be ({stream.SMALL_FRAMES:g} a second)",
    "small pieces": f"beyond {passages.MOST_SMALL / LOOK:,.0f} such pieces a second",
    "refusals": f"The first {records.SINGLY} refusals of one kind and peer within a minute",
    "wasted bytes": f"up to {records.WASTED_BYTES // 10**6} MB that were no message",
    "asking": f"A connection that has not asked within {server.HEAD_SECONDS:g} seconds is ended "
    f"({server.IDLE_SECONDS + server.HEAD_SECONDS:g} after an answer); at most {server.MOST_WAITING:,} wait",
    "TLS": f"a hello has {HTTP.hello_seconds:g} seconds and the handshake {HTTP.admission_seconds:g}",
    "TLS connections": f"without a finished one there are {HTTP.per_address} for each source address and "
    f"{HTTP.in_all:,} in all",
    "TLS handshakes": f"An address may begin {HTTP.handshakes_at_once} handshakes at once and "
    f"{HTTP.handshakes_per_second:g} a second from then on",
    "body": f"A body has {app.BODY_SECONDS:g} seconds and {app.LARGEST >> 20} MiB",
    "reading": f"reads less than {server.LEAST_READ >> 10} KiB of its answer in {server.READ_SECONDS:g} "
    "seconds, while more waits for it, is dropped",
    "exchanges": f"At most {prediction_checks.EXCHANGES} exchanges a day are for beginnings, and "
    f"{prediction_checks.UNFINISHED} may be begun and not gone on with",
    "again": f"charged once, up to {charges.AGAIN} times and among her last {charges.KEPT}",
}


@pytest.mark.parametrize("limit", SAID)
def test_the_page_says_the_limits_that_there_are(limit: str) -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert SAID[limit] in page, f"docs/{PAGE.name} does not say: {SAID[limit]}"
