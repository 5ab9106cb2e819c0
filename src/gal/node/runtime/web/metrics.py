"""Metrics of a running node for Prometheus: its counters and its present state."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gal.node.assistant.answer_guard import SUBJECT as ANSWERS
from gal.node.config.configuration import LEDGER
from gal.node.label_holder.holder_node import waited_for
from gal.node.runtime.web.node_facts import free_disk

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from gal.node.runtime.web.node_facts import WatchedNode

REFRESH_SECONDS = 60.0
"""For which the remaining privacy budget is cached, as its sum is slow."""
COUNTED = {
    "messages": ("Messages.", ("direction", "peer", "kind")),
    "message_bytes": ("Bytes of messages.", ("direction", "peer", "kind")),
    "refusals": ("Requests refused.", ("code",)),
    "limited": ("Times that a peer met a limit.", ("peer", "limit")),
}


class NodeMetrics:
    """A collector of one node's metrics; ``text`` is in Prometheus' format."""

    def __init__(self, node: WatchedNode) -> None:
        self._node = node
        self._epsilon: tuple[float, dict[str, float]] = (-math.inf, {})
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        node, now = self._node, time.time()
        facts = node.records.activity.facts()
        learning, online, peers = facts["learning"], facts["predictions"], facts["peers"]
        for what, (words, labels) in COUNTED.items():
            counts = {key[1:]: n for key, n in facts["counts"].items() if key[0] == what}
            yield _family(CounterMetricFamily, what, words, labels, counts)
        learns = learning is not None and learning["state"] == "learning"
        waiting = waited_for(node.state, node.assistants, learning if learns else None)
        links = (peer for peer, why in node.links.problems().items() if not why)
        there = len({*node.assistants.connected(), *links})
        free = free_disk(node.configuration.home)
        for name, words, value in (
            ("learning", "Whether an own task is being learned.", float(learns)),
            ("connected_peers", "Peers with an open stream.", there),
            ("free_disk_bytes", "Bytes free on the disk of the home folder.", free),
        ):
            yield GaugeMetricFamily(f"gal_{name}", words, value)
        rounds = {} if learning is None else {learning["task"]: learning["round"]}
        since = {one["organization"]: one["for_seconds"] for one in waiting}
        seen = {name: now - one["seen"] for name, one in peers.items() if one["seen"]}
        missed, drift = ({name: one[key] for name, one in peers.items()} for key in ("missed", "drift"))
        took = {which: online[f"p{which}_seconds"] for which in ("50", "99")}
        took = {which: seconds for which, seconds in took.items() if seconds is not None}
        for name, words, label, values in (
            ("round", "Rounds done of the newest learning.", "task", rounds),
            ("waited_for_seconds", "For how long a peer has been waited for.", "peer", since),
            ("seconds_since_message", "Seconds since a peer's last message.", "peer", seen),
            ("missed_rounds", "Rounds that a peer missed since the start.", "peer", missed),
            ("answer_drift", "Distance of a peer's last replies from those in learning.", "peer", drift),
            ("online_seconds", "Seconds of recent requests.", "percentile", took),
            ("epsilon_left", "Remaining privacy budget.", "of", self._left()),
        ):
            yield _family(GaugeMetricFamily, name, words, [label], {(key,): n for key, n in values.items()})
        outside = {(name,): one["outside"] for name, one in peers.items()}
        words = "Predicted rows outside the range in learning."
        yield _family(CounterMetricFamily, "outside_rows", words, ["peer"], outside)
        for key, words in (
            ("rows", "Rows predicted for own applications over HTTP."),
            ("degraded", "Of these rows: degraded ones."),
            ("failed", "Requests of own applications that failed."),
        ):
            yield CounterMetricFamily(f"gal_online_{key}", words, online[key])

    def _left(self) -> dict[str, float]:
        """The rest of each privacy budget, by subject."""
        when, found = self._epsilon
        if time.monotonic() - when > REFRESH_SECONDS:
            configuration = self._node.configuration
            data, privacy = configuration.data, configuration.privacy
            budgets = {ANSWERS: privacy.answer_budget}
            if data is not None and data.label is not None:
                budgets[f"labels: {data.label}"] = privacy.label_budget
            limited = {subject: budget for subject, budget in budgets.items() if budget is not None}
            found = {subject: budget.epsilon for subject, budget in limited.items()}
            if limited and (configuration.home / LEDGER).exists():
                for subject, budget in limited.items():
                    spent = self._node.ledger.spent(subject, budget.delta)
                    found[subject] = max(0.0, budget.epsilon - spent)
            self._epsilon = time.monotonic(), found
        return found


def _family(kind: Any, name: str, words: str, labels: Any, values: Mapping[Any, float]) -> Metric:
    family: Metric = kind(f"gal_{name}", words, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)  # type: ignore[attr-defined]
    return family
