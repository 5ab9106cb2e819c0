"""Traces: one for each round, a span for each organization, and nothing of them on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")
pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed: the extra otel")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import gal.extras
import gal.node.runtime.node
from gal.errors import MissingExtraError
from gal.node.journal.traces import RoundTrace, Traces, open_traces, traces_to
from small_network import Network, numbers, running

ORGANIZATIONS = ("clinic", "lab", "ward")


@pytest.fixture
def exporters(monkeypatch: pytest.MonkeyPatch) -> dict[str, InMemorySpanExporter]:
    """By organization: what a collector of its own is given."""
    made: dict[str, InMemorySpanExporter] = {}

    def opened(endpoint: str | None, organization: str) -> Traces:
        assert endpoint == "http://127.0.0.1:4318/v1/traces"
        made[organization] = InMemorySpanExporter()
        return traces_to(made[organization], organization)

    monkeypatch.setattr(gal.node.runtime.node, "open_traces", opened)
    return made


@pytest.fixture
def network(tmp_path: Path, exporters: dict[str, Any]) -> Iterator[Network]:
    section = '[traces]\nendpoint = "http://127.0.0.1:4318/v1/traces"\n'
    made = Network(tmp_path, numbers(organizations=ORGANIZATIONS), more=dict.fromkeys(ORGANIZATIONS, section))
    with running(made):
        yield made


def test_a_round_is_a_trace_with_a_span_for_each_organization(
    network: Network, exporters: dict[str, InMemorySpanExporter]
) -> None:
    network.wait_until_joined(network.invite("risk", rounds=2))
    network.learn("risk")
    network.stop()  # sends what waits
    spans = exporters["clinic"].get_finished_spans()
    rounds = [one for one in spans if one.parent is None]
    both = ("round 1", "round 2")
    first = [f"ask for {one} of the part that is learned first" for one in both]
    assert [one.name for one in rounds] == [*first, *(f"ask for {one}" for one in both)]
    assert len({one.context.trace_id for one in rounds}) == 4
    for one in rounds:
        inside = [span for span in spans if span.parent and span.parent.span_id == one.context.span_id]
        assert {span.name for span in inside} == {f"ask {name}" for name in ORGANIZATIONS}
        assert {span.context.trace_id for span in inside} == {one.context.trace_id}
        assert all(span.status.is_ok or span.status.is_unset for span in inside)
        assert all(one.start_time <= span.start_time <= span.end_time <= one.end_time for span in inside)
        assert one.attributes["gal.task"] == "risk"
    asked = {
        event.attributes["gal.request"]
        for span in spans
        if span.name == "ask lab"
        for event in span.events
        if event.name == "asked"
    }
    answers = [one for one in exporters["lab"].get_finished_spans() if one.name == "answer fit"]
    assert {one.attributes["gal.request"] for one in answers} == asked, (
        "both houses find a request by its digest"
    )
    assert not {one.context.trace_id for one in answers} & {one.context.trace_id for one in rounds}


def test_who_did_not_answer_and_what_was_refused_are_errors() -> None:
    exporter = InMemorySpanExporter()
    traces = traces_to(exporter, "clinic")
    with traces.round("ask for round 1", {}) as trace:
        for name in ("lab", "ward"):
            trace.asked(name, "sha256:1", 10)
        kept: list[int] = []
        late = trace.answering("ward", kept.append)
        trace.answering("lab", kept.append)(1)
    late(2)  # after the end: it counts for whoever keeps it, and is no span any more
    with traces.answer("fit", {}) as failed:
        failed("too-many-rounds")
    traces.close()
    found = {one.name: one.status for one in exporter.get_finished_spans()}
    assert kept == [1, 2]
    assert found["ask lab"].is_unset
    assert found["ask ward"].description == "did not answer in time"
    assert found["answer fit"].description == "too-many-rounds"


def test_a_part_of_the_extra_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = "opentelemetry.exporter.otlp.proto.http"
    monkeypatch.setattr(gal.extras, "find_spec", lambda name: None if name == exporter else True)
    with pytest.raises(MissingExtraError, match=r"otlp-proto-http.*gal-learn\[otel\]"):
        open_traces("http://127.0.0.1:4318/v1/traces", "lab")


def test_without_a_collector_nothing_is_traced_nor_imported() -> None:
    with open_traces(None, "lab").round("ask for round 1", {}) as trace:
        assert isinstance(trace, RoundTrace)
        trace.asked("lab", "sha256:1", 10)
        keep: list[int] = []
        trace.answering("lab", keep.append)(3)
    assert keep == [3]
