"""What one alerts on, looked up when Prometheus asks: rounds, who is waited for, disk, privacy."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gal.node.assistant.answer_guard import SUBJECT as ANSWERS
from gal.node.config.configuration import LEDGER
from gal.node.holder.doing import waited_for

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from gal.node.web.node_facts import WatchedNode

LOOK = 60.0
"""Seconds for which what is left of privacy is remembered: to add it up takes a while."""


class Alerts:
    """A collector for the registry of a node's metrics."""

    def __init__(self, node: WatchedNode) -> None:
        self._node = node
        self._epsilon: tuple[float, dict[str, float]] = (-math.inf, {})

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is depends on what goes on."""
        return ()

    def collect(self) -> Iterable[Metric]:
        node, now = self._node, time.time()
        facts, known = node.records.metrics.activity.facts(), node.cards.all()
        learning, online = facts["learning"], facts["predictions"]
        goes_on = learning is not None and learning["state"] == "learning"
        waiting = waited_for(node.state, node.assistants, learning if goes_on else None)
        peers = {name: one for name, one in facts["peers"].items() if name in known}
        rounds = {} if learning is None else {learning["task"]: learning["round"]}
        most = {} if learning is None else {learning["task"]: learning["rounds"]}
        took = {which: online[f"p{which}_seconds"] for which in ("50", "99")}
        yield _gauge("gal_learning", "Whether a task of one's own is being learned.", float(goes_on))
        yield _gauge("gal_round", "Rounds done of the newest learning.", rounds, "task")
        yield _gauge("gal_rounds", "Most rounds of it.", most, "task")
        since = {one["organization"]: one["for_seconds"] for one in waiting}
        yield _gauge("gal_waited_for_seconds", "For how long a peer has been waited for.", since, "peer")
        for key, what in (("answered", "answer"), ("seen", "message")):
            last = {name: now - one[key] for name, one in peers.items() if one[key]}
            yield _gauge(f"gal_seconds_since_{what}", f"Seconds since a peer's last {what}.", last, "peer")
        missed = {name: one["missed"] for name, one in peers.items()}
        yield _gauge("gal_missed_rounds", "Rounds that a peer missed since the start.", missed, "peer")
        for key, said in (
            ("rows", "Rows predicted for own applications over HTTP."),
            ("degraded", "Of these rows: degraded ones."),
            ("failed", "Requests of own applications that could not be answered."),
        ):
            yield CounterMetricFamily(f"gal_online_{key}", said, online[key])
        answered = {which: seconds for which, seconds in took.items() if seconds is not None}
        percentiles = "Seconds of recent requests, by percentile."
        yield _gauge("gal_online_seconds", percentiles, answered, "percentile")
        free = shutil.disk_usage(node.configuration.home).free
        yield _gauge("gal_free_disk_bytes", "Bytes free where the node lives.", free)
        yield _gauge("gal_epsilon_left", "What is left of a privacy budget.", self._left(), "of")

    def _left(self) -> dict[str, float]:
        when, found = self._epsilon
        if time.monotonic() - when > LOOK:
            found = self._left_now()
            self._epsilon = time.monotonic(), found
        return found

    def _left_now(self) -> dict[str, float]:
        configuration = self._node.configuration
        data, privacy = configuration.data, configuration.privacy
        budgets = {ANSWERS: privacy.answer_budget}
        if data is not None and data.label is not None:
            budgets[f"labels: {data.label}"] = privacy.label_budget
        limited = {subject: budget for subject, budget in budgets.items() if budget is not None}
        if not limited or not (configuration.home / LEDGER).exists():
            return {subject: budget.epsilon for subject, budget in limited.items()}
        spent = {name: self._node.ledger.spent(name, budget.delta) for name, budget in limited.items()}
        return {name: max(0.0, budget.epsilon - spent[name]) for name, budget in limited.items()}


def _gauge(name: str, said: str, values: float | dict[str, float], label: str | None = None) -> Metric:
    if not isinstance(values, dict):
        return GaugeMetricFamily(name, said, values)
    family = GaugeMetricFamily(name, said, labels=[str(label)])
    for one, value in values.items():
        family.add_metric([one], value)
    return family
