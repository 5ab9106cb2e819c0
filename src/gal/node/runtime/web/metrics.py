"""What Prometheus gets when it asks: what a node has counted, and how it stands now."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gal.node.assistant.answer_guard import SUBJECT as ANSWERS
from gal.node.config.configuration import LEDGER
from gal.node.label_holder.holder_node import waited_for
from gal.node.runtime.web.health import free_disk

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from gal.node.runtime.web.node_facts import WatchedNode

LOOK = 60.0
"""Seconds for which what is left of privacy is remembered: to add it up takes a while."""
COUNTED = {
    "messages": ("Messages.", ("direction", "peer", "kind")),
    "message_bytes": ("Bytes of messages.", ("direction", "peer", "kind")),
    "refusals": ("Requests refused.", ("code",)),
    "limited": ("Times that a peer met a limit.", ("peer", "limit")),
}


class NodeMetrics:
    """A collector of one node's metrics; ``text`` is what Prometheus reads."""

    def __init__(self, node: WatchedNode) -> None:
        self._node = node
        self._epsilon: tuple[float, dict[str, float]] = (-math.inf, {})
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing beforehand: what there is depends on what goes on."""
        return []

    def collect(self) -> Iterator[Metric]:
        node, now = self._node, time.time()
        facts = node.records.activity.facts()
        for what, (said, labels) in COUNTED.items():
            family = CounterMetricFamily(f"gal_{what}", said, labels=labels)
            for key, n in facts["counts"].items():
                if key[0] == what:
                    family.add_metric(key[1:], n)
            yield family
        learning, online, peers = facts["learning"], facts["predictions"], facts["peers"]
        goes_on = learning is not None and learning["state"] == "learning"
        yield GaugeMetricFamily("gal_learning", "Whether an own task is being learned.", float(goes_on))
        rounds = {} if learning is None else {learning["task"]: learning["round"]}
        yield _gauge("gal_round", "Rounds done of the newest learning.", rounds, "task")
        waiting = waited_for(node.state, node.assistants, learning if goes_on else None)
        since = {one["organization"]: one["for_seconds"] for one in waiting}
        yield _gauge("gal_waited_for_seconds", "For how long a peer has been waited for.", since, "peer")
        links = (peer for peer, why in node.links.problems().items() if not why)
        there = len({*node.assistants.connected(), *links})
        yield GaugeMetricFamily("gal_connected_peers", "Peers with an open stream.", there)
        seen = {name: now - one["seen"] for name, one in peers.items() if one["seen"]}
        yield _gauge("gal_seconds_since_message", "Seconds since a peer's last message.", seen, "peer")
        missed = {name: one["missed"] for name, one in peers.items()}
        yield _gauge("gal_missed_rounds", "Rounds that a peer missed since the start.", missed, "peer")
        outside = CounterMetricFamily(
            "gal_outside_rows", "Rows answered unlike in learning.", labels=["peer"]
        )
        for name, one in peers.items():
            outside.add_metric([name], one["outside"])
        yield outside
        drift = "How far a peer's last answers are from those in learning: 0 to 1."
        yield _gauge("gal_answer_drift", drift, {name: one["drift"] for name, one in peers.items()}, "peer")
        for key, said in (
            ("rows", "Rows predicted for own applications over HTTP."),
            ("degraded", "Of these rows: degraded ones."),
            ("failed", "Requests of own applications that could not be answered."),
        ):
            yield CounterMetricFamily(f"gal_online_{key}", said, online[key])
        took = {which: online[f"p{which}_seconds"] for which in ("50", "99")}
        took = {which: seconds for which, seconds in took.items() if seconds is not None}
        yield _gauge("gal_online_seconds", "Seconds of recent requests.", took, "percentile")
        free = free_disk(node.configuration.home)
        yield GaugeMetricFamily("gal_free_disk_bytes", "Bytes free where the node lives.", free)
        yield _gauge("gal_epsilon_left", "What is left of a privacy budget.", self._left(), "of")

    def _left(self) -> dict[str, float]:
        """By subject with a budget: what is left of it."""
        when, found = self._epsilon
        if time.monotonic() - when > LOOK:
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


def _gauge(name: str, said: str, values: Mapping[str, float], label: str) -> Metric:
    family = GaugeMetricFamily(name, said, labels=[label])
    for one, value in values.items():
        family.add_metric([one], value)
    return family
