"""Traces of what a node does, for an OpenTelemetry collector of its own organization (extra ``otel``).

A label holder's round is one trace, with a span for each organization that was asked; what an organization
answers is a trace of its own. **No trace context travels with messages**: it would be one more thing that
leaves, and would tell each side how the other works inside. Who wants to lay two houses' traces side by side
finds the request's digest in both, as in both audit logs.

Spans have names, numbers, digests and sizes; never data.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gal.extras import require

Attributes = Mapping[str, object]
"""Names, numbers and digests."""


class RoundTrace:
    """One round of a label holder: whom she asked, and how long each took. Threads may answer at once."""

    def __init__(self, tracer: Any = None, context: Any = None) -> None:
        self._tracer, self._context = tracer, context
        self._lock = threading.Lock()
        self._spans: dict[str, Any] = {}
        self._open: dict[str, int] = {}

    def asked(self, organization: str, digest: str, n_bytes: int) -> None:
        """A request goes out; an organization has one span, however many requests a round has."""
        if self._tracer is None:
            return
        with self._lock:
            if organization not in self._spans:
                facts = {"gal.organization": organization}
                self._spans[organization] = self._tracer.start_span(
                    f"ask {organization}", self._context, attributes=facts
                )
            self._open[organization] = self._open.get(organization, 0) + 1
            self._spans[organization].add_event("asked", {"gal.request": digest, "gal.bytes": n_bytes})

    def answering(self, organization: str, keep: Callable[..., None]) -> Callable[..., None]:
        """``keep``, which ends the span once it has kept the last answer that was waited for."""

        def kept(*answer: Any) -> None:
            keep(*answer)
            self._answered(organization)

        return keep if self._tracer is None else kept

    def _answered(self, organization: str) -> None:
        with self._lock:
            span = self._spans.get(organization)
            if span is None:  # the round was closed meanwhile
                return
            self._open[organization] -= 1
            span.add_event("answered")
            if self._open[organization] == 0:
                self._spans.pop(organization).end()

    def close(self) -> None:
        """The round is over: who has not answered is missed."""
        with self._lock:
            for span in self._spans.values():
                _fail(span, "did not answer in time")
                span.end()
            self._spans = {}


class Traces:
    """What is traced; without a tracer nothing is."""

    def __init__(self, tracer: Any = None, close: Callable[[], object] = lambda: None) -> None:
        self._tracer, self.close = tracer, close

    @contextmanager
    def round(self, what: str, attributes: Attributes) -> Iterator[RoundTrace]:
        """A label holder's round, from the first request to its end: a trace of its own."""
        if self._tracer is None:
            yield RoundTrace()
            return
        from opentelemetry import context, trace

        with self._tracer.start_as_current_span(what, context.Context(), attributes=attributes) as span:
            inside = RoundTrace(self._tracer, trace.set_span_in_context(span))
            try:
                yield inside
            finally:
                inside.close()

    @contextmanager
    def answer(self, kind: str, attributes: Attributes) -> Iterator[Callable[[str], None]]:
        """What an organization answers: a trace of its own; call what comes with why it was refused."""
        if self._tracer is None:
            yield lambda why: None  # noqa: ARG005
            return
        from opentelemetry import context

        with self._tracer.start_as_current_span(
            f"answer {kind}", context.Context(), attributes=attributes
        ) as span:
            yield lambda why: _fail(span, why)


def _fail(span: Any, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, why))


def traces_to(exporter: Any, organization: str) -> Traces:
    """Traces that an exporter of OpenTelemetry is given, in the background."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    about = Resource.create({"service.name": "gal-node", "service.instance.id": organization})
    provider = TracerProvider(resource=about, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Traces(provider.get_tracer("gal.node"), provider.shutdown)


def open_traces(endpoint: str | None, organization: str) -> Traces:
    """Traces to the collector that node.toml names; none where it names none."""
    if endpoint is None:
        return Traces()
    require("otel", "traces.endpoint in node.toml")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return traces_to(OTLPSpanExporter(endpoint=endpoint), organization)
