"""Learning again by the calendar: when it is due, once, and never a worse version."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")

from gal.errors import ConfigurationError, TaskError
from gal.node.config.configuration import read_configuration
from gal.node.config.operating import ScheduleSection
from gal.node.runtime.schedule import Schedule, next_time
from gal.node.store.state import State, TaskRecord
from gal.node.store.stored_versions import LearnedVersion
from small_network import Network, numbers, quiet, running
from small_terms import small_terms

WEEKLY = ScheduleSection(learn=("risk",), every_days=7, at="03:00")
STARTED = datetime(2026, 1, 5, 22, 30, tzinfo=UTC)
RISK = TaskRecord("a" * 32, "risk", "label holder", "bank", small_terms("a" * 32, "risk", "bank"))
LEARNED = LearnedVersion(n_rows=5, n_without_label=1, started=STARTED.isoformat(), privacy={})


class Holder:
    """Remembers what it was asked to learn."""

    def __init__(self, problem: str = "") -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.problem = problem

    def learn(self, task: str, **how: Any) -> dict[str, Any]:
        self.asked.append(how)
        if self.problem:
            raise TaskError(self.problem)
        return {"version": 2, "active": 2, "why_not_active": ""}


def test_the_day_counts_and_not_the_hour() -> None:
    assert next_time(STARTED, WEEKLY) == datetime(2026, 1, 12, 3, tzinfo=UTC)
    assert next_time(STARTED.replace(hour=1), WEEKLY) == datetime(2026, 1, 12, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('at = "25:00"', "time of day"),
        ("every_days = 0", "every_days"),
        ('learn = [""]', "learn"),
        ('often = "yes"', "often"),
    ],
)
def test_what_cannot_be_a_schedule(tmp_path: Path, lines: str, said: str) -> None:
    (tmp_path / "node.toml").write_text(f'name = "lab"\n[schedule]\n{lines}\n')
    with pytest.raises(ConfigurationError, match=said):
        read_configuration(tmp_path)


def test_a_task_is_learned_again_when_it_is_due_and_a_worse_version_does_not_predict(tmp_path: Path) -> None:
    with running(Network(tmp_path, numbers(organizations=("clinic", "lab")))) as network:
        record = network.invite("risk", rounds=2)
        network.wait_until_joined(record)
        node, now = network.nodes["clinic"], datetime.now(UTC)
        clock = [now]

        def schedule() -> Schedule:
            return Schedule(WEEKLY, network.holder, node.state, quiet(), lambda: clock[0], threading.Event())

        assert schedule().look() == [], "the first version is for people to learn"
        network.learn("risk")
        assert schedule().look() == []
        clock[0] = now + timedelta(days=8)
        table = network.tables["clinic"]
        table["y"] = table["y"].sample(frac=1, random_state=1).to_numpy() * 3  # nothing to learn any more
        network.write("clinic", table)
        node.worker.restart()
        assert schedule().look() == ["risk"]
        statuses = node.state.statuses(record.id, "label holder")
        assert statuses == {1: "finished", 2: "finished"}
        assert node.state.find_task("risk").active == 1


def test_what_failed_is_tried_again_after_an_hour_and_what_was_interrupted_is_resumed(
    tmp_path: Path,
) -> None:
    with closing(State(tmp_path)) as state:
        state.add_task(RISK)
        state.put_version(RISK.id, 1, replace(LEARNED, status="finished"))
        state.put_version(RISK.id, 2, LEARNED)
        clock, holder, stopping = [STARTED + timedelta(days=30)], Holder("nobody is there"), threading.Event()
        schedule = Schedule(WEEKLY, holder, state, quiet(), lambda: clock[0], stopping)  # type: ignore[arg-type]
        assert schedule.look() == ["risk"]
        assert schedule.look() == [], "not at once"
        clock[0] += timedelta(minutes=61)
        assert schedule.look() == ["risk"]
        assert [how["resume"] for how in holder.asked] == [True, True]
        assert [how["acceptance"].activate for how in holder.asked] == [False, False]
        stopping.set()
        clock[0] += timedelta(days=1)
        assert schedule.look() == []
