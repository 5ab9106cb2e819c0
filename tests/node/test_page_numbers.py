"""Numbers of the page that says what protects whom: those of the code, in the sentences that name them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("grpc")

from gal.core.guards import plausible
from gal.node.agreement import effective_rows
from gal.node.assistant import links, prediction_checks, request_checks
from gal.node.config.operating import WorkerSection
from gal.node.journal import records
from gal.node.store import charges
from gal.node.web import app, batching, predictions, server
from gal.node.work import learned_rows
from gal.transport.front import LOOK, REPORT, Limits
from gal.transport.passages import FAREWELL, MOST_SMALL
from gal.transport.stream import SMALL_FRAMES
from gal.transport.wire import SERVER_OPTIONS

PAGE = Path(__file__).parents[2] / "docs" / "explanation-nodes.md"
FRONT, HTTP, WIRE = Limits(), server.STRANGERS, dict(SERVER_OPTIONS)
SILENCE = WIRE["grpc.keepalive_time_ms"] + WIRE["grpc.keepalive_timeout_ms"]
IN_WORDS = {1: "a second", 60: "once a minute", 3: "third", 5: "five", 7: "seven", 30: "half a minute"}
SHARES = {0.5: "half", 0.1: "a tenth"}


@pytest.fixture(scope="module")
def page() -> str:
    """The whole text, without its line breaks."""
    return " ".join(PAGE.read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    "sentence",
    [
        f"idle for {IN_WORDS[round(WorkerSection().idle_seconds) // 60]} minutes (`worker.idle_seconds`)",
        # Strangers at the port
        f"refused with their first stream, and dropped {IN_WORDS[round(FAREWELL)]} later",
        f"What says nothing is dropped after {FRONT.hello_seconds:g} seconds",
        f"what has no stream of a known key after {FRONT.admission_seconds:g} seconds",
        f"{FRONT.per_address} connections for each source address",
        f"** (IPv6: each /64) **and {FRONT.in_all:,} in all**",
        f"may begin {FRONT.handshakes_at_once} at once and {FRONT.handshakes_per_second:g} a second",
        f"are dropped {FRONT.hello_seconds:g} seconds after they came",
        f"say, {IN_WORDS[round(REPORT)]} at most, how many were dropped",
        # How much one peer may send
        f"The first {records.SINGLY} refusals of one kind and peer within a minute",
        f"refusals and up to {records.WASTED_BYTES // 10**6} MB that were no message",
        f"before a fit, at most every {request_checks.LOOK_AT_DISK:g} seconds",
        f"has not asked within {server.HEAD_SECONDS:g} seconds is ended "
        f"({server.IDLE_SECONDS + server.HEAD_SECONDS:g} after an answer)",
        f"at most {server.MOST_WAITING:,} wait",
        f"a hello has {HTTP.hello_seconds:g} seconds and the handshake {HTTP.admission_seconds:g}",
        f"there are {HTTP.per_address} for each source address and {HTTP.in_all:,} in all",
        f"begin {HTTP.handshakes_at_once} handshakes at once and {HTTP.handshakes_per_second:g} a second",
        f"A body has {app.BODY_SECONDS:g} seconds and {app.LARGEST >> 20} MiB",
        f"reads less than {server.LEAST_READ >> 10} KiB of its answer in {server.READ_SECONDS:g} seconds",
        f"more than {predictions.MOST_UNPACKED >> 20} MiB as numbers",
        f"smaller than they have to be ({SMALL_FRAMES:g} a second)",
        f"beyond {MOST_SMALL / LOOK:,.0f} such pieces a second",
        f"opens {Limits().streams_at_once} streams at once and {Limits().streams_per_second:g} a second",
        # Who is a customer of whom
        f"At most {prediction_checks.EXCHANGES} exchanges a day are for beginnings",
        f"and {prediction_checks.UNFINISHED} may be begun and not gone on with",
        f"is below {SHARES[effective_rows.SHARE_BY_RESIDUAL]} of it",
        # Answers that are not believed
        f"smallest, largest and {IN_WORDS[len(plausible.SHARES) - 2]} quantiles",
        f"further outside than {SHARES[plausible.MARGIN]} the width of the range",
        f"at least {plausible.FEWEST} such rows, and {100 * plausible.SHARE:g} % of its last "
        f"{plausible.RECENT:,},",
        f"from the {IN_WORDS[plausible.FEWEST]} answer outside on",
        f"of large sources {learned_rows.SAMPLE:,} rows are looked at",
        f"more than {100 * learned_rows.CHANGED:g} % of the rows have other values",
        f"differs by a share of more than {100 * learned_rows.APART:g} %",
        f"by their digests, from {learned_rows.FEW} of them on",
        # What survives
        f"is charged once, up to {charges.AGAIN} times and among her last {charges.KEPT}",
        f"noticed within about {IN_WORDS[SILENCE // 1000]}",
        f"after a longer pause, at most {links.LATEST:g} s",
        f"(at least {batching.LEAST_SHARED:g} s, at most {batching.MOST_SHARED:g} s)",
    ],
)
def test_a_number_of_the_page_is_that_of_the_code(page: str, sentence: str) -> None:
    assert sentence in page
