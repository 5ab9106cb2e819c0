"""What one alerts on, looked up when Prometheus asks: rounds, who is waited for, disk, privacy."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

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
        """All of them, as they are now."""
        facts = self._node.records.metrics.activity.facts()
        yield from self._learning(facts["learning"])
        yield from self._partners(facts["peers"])
        yield from _predictions(facts["predictions"])
        free = shutil.disk_usage(self._node.configuration.home).free
        yield _gauge("gal_free_disk_bytes", "Bytes free where the node lives.", [((), free)])
        left = [((subject,), value) for subject, value in self._left().items()]
        yield _gauge("gal_epsilon_left", "What is left of a privacy budget.", left, ("of",))

    def _learning(self, learning: dict[str, Any] | None) -> Iterable[Metric]:
        goes_on = learning is not None and learning["state"] == "learning"
        yield _gauge("gal_learning", "Whether a task of one's own is being learned.", [((), float(goes_on))])
        if learning is not None:
            task = (learning["task"],)
            yield _gauge(
                "gal_round", "Rounds done of the newest learning.", [(task, learning["round"])], ("task",)
            )
            yield _gauge("gal_rounds", "Most rounds of it.", [(task, learning["rounds"])], ("task",))
        waiting = waited_for(self._node.state, self._node.assistants, learning if goes_on else None)
        since = [((one["organization"],), one["for_seconds"]) for one in waiting]
        yield _gauge("gal_waited_for_seconds", "For how long a peer has been waited for.", since, ("peer",))

    def _partners(self, peers: dict[str, dict[str, Any]]) -> Iterable[Metric]:
        now, known = time.time(), self._node.cards.all()
        for key, what in (("answered", "answer"), ("seen", "message")):
            values = [((name,), now - one[key]) for name, one in peers.items() if one[key] and name in known]
            name = f"gal_seconds_since_{what}"
            yield _gauge(name, f"Seconds since a peer's last {what}.", values, ("peer",))
        missed = [((name,), float(one["missed"])) for name, one in peers.items() if name in known]
        yield _gauge("gal_missed_rounds", "Rounds that a peer missed since the start.", missed, ("peer",))

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
        if not limited or not (self._node.configuration.home / LEDGER).exists():
            return {subject: budget.epsilon for subject, budget in limited.items()}
        ledger = self._node.ledger
        return {
            subject: max(0.0, budget.epsilon - ledger.spent(subject, budget.delta))
            for subject, budget in limited.items()
        }


def _predictions(facts: dict[str, Any]) -> Iterable[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for key, said in (
        ("rows", "Rows predicted for own applications over HTTP."),
        ("degraded", "Of these rows: degraded ones."),
        ("failed", "Requests of own applications that could not be answered."),
    ):
        family = CounterMetricFamily(f"gal_online_{key}", said)
        family.add_metric((), facts[key])
        yield family
    took = [((which,), facts[f"p{which}_seconds"]) for which in ("50", "99")]
    known = [(labels, value) for labels, value in took if value is not None]
    yield _gauge("gal_online_seconds", "Seconds of recent requests, by percentile.", known, ("percentile",))


def _gauge(
    name: str, said: str, values: Sequence[tuple[tuple[str, ...], float]], labels: tuple[str, ...] = ()
) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, said, labels=labels)
    for chosen, value in values:
        family.add_metric(chosen, value)
    return family
