"""A label holder's tasks are learned again by the calendar: ``[schedule]`` in node.toml.

A version that is validated worse than the active one does not predict, as with ``gal learn``. What failed is
tried again after an hour; what was interrupted is resumed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta

from gal.errors import GALError, LearningInterruptedError
from gal.node.config.operating import ScheduleSection
from gal.node.holder.label_holder import LabelHolder
from gal.node.holder.learning.acceptance import Acceptance
from gal.node.journal.logs import Log
from gal.node.store.state import State

LOOK = 30.0
"""Seconds between looks at the clock."""
AGAIN = timedelta(hours=1)
"""After what failed."""


def next_time(started: datetime, wanted: ScheduleSection) -> datetime:
    """When a task is due whose last finished version was started then."""
    day = started.astimezone(UTC).date() + timedelta(days=wanted.every_days)
    return datetime.combine(day, time.fromisoformat(wanted.at).replace(tzinfo=UTC))


class Schedule:
    """Learns what is due, one task after the other, in a thread of its own."""

    def __init__(
        self,
        wanted: ScheduleSection,
        holder: LabelHolder,
        state: State,
        log: Log,
        clock: Callable[[], datetime],
        stopping: threading.Event,
    ) -> None:
        self._wanted, self._holder, self._state = wanted, holder, state
        self._log, self._clock, self._stopping = log, clock, stopping
        self._not_before: dict[str, datetime] = {}
        self._thread = threading.Thread(target=self._keep, name="schedule", daemon=True)

    def start(self) -> None:
        """Look now, and from then on; nothing happens where no task is named."""
        if self._wanted.learn:
            self._thread.start()

    def look(self) -> list[str]:
        """Learn what is due now; the tasks that were tried."""
        tried = []
        for name in self._wanted.learn:
            now = self._clock()
            if self._stopping.is_set() or now < self._not_before.get(name, now):
                continue
            try:
                if self._is_due(name, now):
                    tried.append(name)
                    self._learn(name)
            except LearningInterruptedError:
                return tried  # the node ends; the next one goes on with it
            except GALError as error:
                self._not_before[name] = now + AGAIN
                self._log.warning("scheduled learning failed", task=name, why=str(error))
        return tried

    def _is_due(self, name: str, now: datetime) -> bool:
        record = self._state.find_task(name, "label holder")
        finished = [
            datetime.fromisoformat(one.started)
            for one in self._state.learned_versions(record.id).values()
            if one.status == "finished"
        ]
        return bool(finished) and now >= next_time(max(finished), self._wanted)

    def _learn(self, name: str) -> None:
        record = self._state.find_task(name, "label holder")
        begun = "begun" in self._state.statuses(record.id, "label holder").values()
        self._log.info("scheduled learning", task=name, resumed=begun)
        facts = self._holder.learn(
            name,
            resume=begun,
            acceptance=Acceptance(require_all=self._wanted.require_all),
            on_event=lambda event: None,  # noqa: ARG005
            stopping=self._stopping,
        )
        if facts["why_not_active"]:
            self._log.warning(
                "scheduled version does not predict",
                task=name,
                version=facts["version"],
                active=facts["active"],
                why=facts["why_not_active"],
            )
        else:
            self._log.info("scheduled version predicts", task=name, version=facts["version"])

    def _keep(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look()
            except Exception as error:  # whatever it is, the next look is not the last
                self._log.error("schedule", why=f"{type(error).__name__}: {error}")
            self._stopping.wait(LOOK)
