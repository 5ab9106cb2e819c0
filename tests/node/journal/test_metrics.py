"""Metrics: what is counted, served over HTTP, with label values that nobody can multiply."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gal.node.journal.metrics import (
    MOST_VALUES,
    Metrics,
)

pytest.importorskip("prometheus_client")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: {"bank", "insurer"})


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def use(metrics: Metrics) -> None:
    """One of everything."""
    metrics.message("in", "bank", "residual", 1000)
    metrics.message("in", "bank", "residual", 500)
    metrics.message("out", "bank", "fitted", 400)
    metrics.answered("bank")
    metrics.fitted(0.2)
    metrics.refused("too-few-rows")
    metrics.connected("bank", True)
    metrics.predicted("bank", 25)


def test_everything_is_counted(metrics: Metrics) -> None:
    use(metrics)
    coming = {"direction": "in", "peer": "bank", "kind": "residual"}
    assert value(metrics, "gal_messages_total", **coming) == 2
    assert value(metrics, "gal_message_bytes_total", **coming) == 1500
    assert value(metrics, "gal_message_bytes_total", direction="out", peer="bank", kind="fitted") == 400
    assert value(metrics, "gal_rounds_answered_total", peer="bank") == 1
    assert value(metrics, "gal_fit_seconds_count") == 1
    assert value(metrics, "gal_fit_seconds_sum") == 0.2
    assert value(metrics, "gal_refusals_total", code="too-few-rows") == 1
    assert value(metrics, "gal_connected_peers") == 1
    assert value(metrics, "gal_predicted_rows_total", peer="bank") == 25


def test_a_peer_with_two_streams_is_one(metrics: Metrics) -> None:
    seen = []
    for peer, now in [("bank", True), ("bank", True), ("insurer", True), ("bank", False), ("bank", False)]:
        metrics.connected(peer, now)
        seen.append(value(metrics, "gal_connected_peers"))
    metrics.connected("bank", False)
    assert seen == [1, 1, 2, 2, 1]
    assert value(metrics, "gal_connected_peers") == 1


def count_of(metrics: Metrics, family: str) -> int:
    return sum(
        sample.name.endswith("_total")
        for found in metrics.registry.collect()
        if found.name == family
        for sample in found.samples
    )


def test_made_up_names_do_not_make_series(metrics: Metrics) -> None:
    for i in range(200):
        metrics.message("in", f"stranger{i}", "residual", 1)
    assert count_of(metrics, "gal_messages") == 1
    assert value(metrics, "gal_messages_total", direction="in", peer="unknown", kind="residual") == 200


@pytest.mark.parametrize(
    ("count", "family"),
    [
        (lambda metrics, name: metrics.message("in", "bank", name, 1), "gal_messages"),
        (lambda metrics, name: metrics.refused(name), "gal_refusals"),
    ],
)
def test_made_up_kinds_and_codes_are_bounded(
    metrics: Metrics, count: Callable[[Metrics, str], None], family: str
) -> None:
    for i in range(MOST_VALUES + 100):
        count(metrics, f"made-up-{i}")
    count(metrics, "line\nbreak")
    assert count_of(metrics, family) == MOST_VALUES + 1


def test_a_peer_that_is_added_later_is_known_from_then_on() -> None:
    peers: set[str] = set()
    metrics = Metrics(lambda: peers)
    metrics.answered("bank")
    peers.add("bank")
    metrics.answered("bank")
    assert value(metrics, "gal_rounds_answered_total", peer="unknown") == 1
    assert value(metrics, "gal_rounds_answered_total", peer="bank") == 1


def test_who_met_a_limit() -> None:
    metrics = Metrics(lambda: {"lab"})
    metrics.limited("lab", "bytes_per_day")
    metrics.limited("nobody", "bytes_per_day")
    for peer in ("lab", "unknown"):
        labels = {"peer": peer, "limit": "bytes_per_day"}
        assert metrics.registry.get_sample_value("gal_limited_total", labels) == 1
