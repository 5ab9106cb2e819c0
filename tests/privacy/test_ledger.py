"""The ledger keeps what every row has cost: exactly, on disk, and before anything is sent."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gal.errors import BudgetSpentError, InvalidInputError, PrivacyError
from gal.privacy.accounting import Event, spent
from gal.privacy.ledger import Budget, Charge, Ledger, row_keys
from patience import patient

LABELS = "labels: outcome"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KEYS = row_keys(range(8))


def charge(
    key: str = "task-1/version 1",
    epsilon: float = 1.0,
    *,
    event: Event | None = None,
    peers: tuple[str, ...] = ("bank", "shop"),
    subject: str = LABELS,
    task: str = "churn",
) -> Charge:
    return Charge(key, subject, task, peers, event or Event("randomised-response", epsilon))


def rows(*ids: int) -> Any:
    return row_keys(ids)


class TestRowKeys:
    def test_the_same_id_has_the_same_key_everywhere_and_always(self) -> None:
        assert row_keys(["ann", "bob"]).tolist() == [5088345978781694418, 4213563397267214921]
        assert row_keys([7]).tolist() == row_keys(np.array([7], dtype=np.int32)).tolist()
        assert row_keys(np.array(["ann"])).tolist() == row_keys(["ann"]).tolist()

    def test_keys_are_different_and_not_negative(self) -> None:
        keys = row_keys(range(20_000))
        assert len(np.unique(keys)) == 20_000
        assert keys.min() >= 0
        assert keys.dtype == np.int64

    def test_other_ids_are_refused(self) -> None:
        for strange in (1.5, None, True, b"ann"):
            with pytest.raises(InvalidInputError, match="whole numbers or text"):
                row_keys([strange])


class TestBudget:
    def test_a_budget_can_be_spent_to_its_end_and_not_beyond(self) -> None:
        with Ledger(":memory:") as ledger:
            for key, epsilon in (("a", 0.1), ("b", 0.2)):  # their sum is a little above 0.3
                ledger.charge(charge(key, epsilon), rows(1), Budget(0.3))
            with pytest.raises(BudgetSpentError):
                ledger.charge(charge("c", 0.001), rows(1), Budget(0.3))
            ledger.charge(charge("c", 0.001), rows(2), Budget(0.3))

    def test_a_refusal_writes_nothing(self) -> None:
        with Ledger(":memory:") as ledger:
            ledger.charge(charge("a", 2.0), rows(1), None)
            before = ledger.entries()
            with pytest.raises(BudgetSpentError, match="1 is left"):
                ledger.charge(charge("b", 2.0), rows(*range(100)), Budget(3.0))
            assert ledger.entries() == before
            assert ledger.spent(LABELS, 0.0, rows=rows(2)) == 0.0

    @pytest.mark.parametrize(
        ("event", "remedy"),
        [(Event("none", 0.0), "mechanism with a guarantee"), (Event("gaussian", 5.0), "delta above 0")],
    )
    def test_what_no_budget_allows(self, event: Event, remedy: str) -> None:
        with Ledger(":memory:") as ledger, pytest.raises(BudgetSpentError, match=remedy):
            ledger.charge(charge(event=event), rows(1), Budget(100.0))

    def test_resuming_costs_nothing_even_where_nothing_is_left(self) -> None:
        with Ledger(":memory:") as ledger:
            ledger.charge(charge(epsilon=2.0), rows(1, 2), Budget(2.0))
            ledger.charge(charge(epsilon=2.0), rows(1, 2), Budget(1.0))
            ledger.charge(charge(epsilon=2.0, peers=("farm",)), rows(1, 2), Budget(1.0))
            assert ledger.spent(LABELS, 0.0, peer="farm") == 2.0
            with pytest.raises(BudgetSpentError):
                ledger.charge(charge(epsilon=2.0), rows(1, 2, 3), Budget(1.0))
            with pytest.raises(BudgetSpentError):
                ledger.charge(charge(epsilon=2.0), rows(1), Budget(2.0), again=True)


class Model:
    """What the ledger should say, in the plainest way: a list of everything that was charged."""

    def __init__(self) -> None:
        self.done: list[tuple[Charge, int, bool]] = []

    def add(self, what: Charge, ids: Iterable[int], again: bool) -> None:
        self.done += [(what, one, again) for one in ids]

    def events(self, row: int, peer: str | None = None, task: str | None = None) -> list[Event]:
        once: set[tuple[str, Event]] = set()
        events: list[Event] = []
        for what, one, again in self.done:
            if one != row or (peer and peer not in what.peers) or (task and task != what.task):
                continue
            if again:
                events.append(what.event)
            else:
                once.add((what.key, what.event))
        return events + [event for _, event in once]

    def spent(self, delta: float, ids: Iterable[int] = range(8), **which: Any) -> float:
        return max((spent(self.events(row, **which), delta) for row in ids), default=0.0)


PURE = [Event("randomised-response", 0.5), Event("laplace", 4.0, 2)]
ANY = [*PURE, Event("gaussian", 6.0), Event("gaussian", 3.0, 2)]


def operations(events: Sequence[Event]) -> Any:
    """Charges of few keys to few rows, so that many of them meet."""
    what = st.builds(
        charge,
        st.sampled_from(["a", "b"]),
        event=st.sampled_from(events),
        peers=st.sampled_from([("bank",), ("shop",), ("shop", "bank")]),
        task=st.sampled_from(["churn", "fraud"]),
    )
    return st.lists(st.tuples(what, st.lists(st.integers(0, 7), max_size=5), st.booleans()), max_size=7)


class TestLaws:
    @given(operations(PURE), st.lists(st.integers(0, 7)), st.randoms(use_true_random=False))
    @settings(max_examples=20, derandomize=True)
    def test_exact_over_rows_peers_and_tasks_in_any_order(
        self, done: list[Any], some: list[int], random: Any
    ) -> None:
        model = Model()
        with Ledger(":memory:") as ledger, Ledger(":memory:") as shuffled:
            for what, ids, again in done:
                ledger.charge(what, KEYS[ids], None, again=again)
                model.add(what, ids, again)
            for what, ids, again in random.sample(done, len(done)):
                shuffled.charge(what, KEYS[ids], None, again=again)
            whole = ledger.spent(LABELS, 0.0)
            assert whole == pytest.approx(model.spent(0.0))
            assert shuffled.spent(LABELS, 0.0) == whole
            assert ledger.spent(LABELS, 0.0, rows=KEYS[some]) == pytest.approx(model.spent(0.0, some))
            queries: list[dict[str, Any]] = [{"peer": "bank"}, {"peer": "shop"}, {"task": "fraud"}]
            for which in queries:
                assert ledger.spent(LABELS, 0.0, **which) == pytest.approx(model.spent(0.0, **which))
                assert ledger.spent(LABELS, 0.0, **which) <= whole

    @given(operations(ANY))
    @settings(max_examples=5, derandomize=True)
    def test_exact_over_rows_with_a_delta(self, done: list[Any]) -> None:
        pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")
        model = Model()
        with Ledger(":memory:") as ledger:
            for what, ids, again in done:
                ledger.charge(what, KEYS[ids], None, again=again)
                model.add(what, ids, again)
            assert ledger.spent(LABELS, 1e-5) == pytest.approx(model.spent(1e-5), abs=1e-6)
            assert ledger.spent(LABELS, 1e-5, peer="bank") <= ledger.spent(LABELS, 1e-5) + 1e-6

    @given(operations(PURE), st.sampled_from([0.6, 1.0, 2.1]))
    @settings(max_examples=20, derandomize=True)
    def test_a_budget_is_kept_and_nothing_within_it_is_refused(self, done: list[Any], epsilon: float) -> None:
        model = Model()
        with Ledger(":memory:") as ledger:
            for what, ids, again in done:
                attempt = Model()
                attempt.done = list(model.done)
                attempt.add(what, ids, again)
                grown = [row for row in ids if Counter(attempt.events(row)) != Counter(model.events(row))]
                if attempt.spent(0.0, grown) > epsilon + 1e-6:
                    with pytest.raises(BudgetSpentError):
                        ledger.charge(what, KEYS[ids], Budget(epsilon), again=again)
                else:
                    ledger.charge(what, KEYS[ids], Budget(epsilon), again=again)
                    model = attempt
                assert ledger.spent(LABELS, 0.0) == pytest.approx(model.spent(0.0))


def test_entries_say_who_what_how_much_and_when() -> None:
    times = (NOW + timedelta(hours=hours) for hours in range(9))
    with Ledger(":memory:", clock=lambda: next(times)) as ledger:
        ledger.charge(charge(peers=("shop", "bank")), rows(1, 2), None)
        ledger.charge(charge(), rows(), None)
        ledger.charge(charge(), rows(1, 2), None)
        ledger.charge(charge(), rows(2, 3), None)
        ledger.charge(charge("b", event=Event("laplace", 2.5, 3)), rows(1), None, again=True)
        first, second = ledger.entries()
    assert (first.key, first.subject, first.task) == ("task-1/version 1", LABELS, "churn")
    assert (first.peers, first.event) == (("bank", "shop"), Event("randomised-response", 1.0))
    assert (first.again, first.n_rows, first.most) == (False, 3, 1)
    assert (first.first, first.last) == (NOW, NOW + timedelta(hours=1))
    assert (second.event, second.again, second.n_rows) == (Event("laplace", 2.5, 3), True, 1)


@pytest.mark.parametrize("strange", [np.array([1.0]), np.array([[1]]), np.array(["ann"])])
def test_rows_that_are_no_row_keys_are_refused(strange: Any) -> None:
    with Ledger(":memory:") as ledger, pytest.raises(InvalidInputError, match="row_keys"):
        ledger.charge(charge(), strange, None)


class TestFile:
    def test_only_its_owner_can_read_it(self, tmp_path: Path) -> None:
        with Ledger(tmp_path / "ledger.sqlite") as ledger:
            ledger.charge(charge(), rows(1), None)
            assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}

    def test_commits_reach_the_disk(self, tmp_path: Path) -> None:
        with Ledger(tmp_path / "ledger.sqlite") as ledger:
            assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
            assert ledger._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    def test_another_reads_while_a_charge_is_being_written(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger.sqlite"
        seen: list[float] = []

        def look() -> datetime:
            """The clock is asked in the middle of a charge."""
            with Ledger(path) as reader:
                seen.append(reader.spent(LABELS, 0.0))
            return NOW

        with Ledger(path, clock=look) as ledger:
            ledger.charge(charge("a"), rows(1), None)
            ledger.charge(charge("b"), rows(1), None)
            assert seen == [0.0, 1.0]
            assert ledger.spent(LABELS, 0.0) == 2.0

    def test_a_file_that_is_no_ledger_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger.sqlite"
        path.write_text("no database " * 100)
        with pytest.raises(PrivacyError, match=r"ledger\.sqlite cannot be opened"):
            Ledger(path)
        with pytest.raises(PrivacyError, match="cannot be opened"):
            Ledger(tmp_path / "missing" / "ledger.sqlite")

    def test_a_later_format_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger.sqlite"
        Ledger(path).close()
        database = sqlite3.connect(path)
        database.execute("PRAGMA user_version = 3")
        database.close()
        with pytest.raises(PrivacyError, match="format 3"):
            Ledger(path)


PROCESSES = """
import os, sys, traceback
from pathlib import Path
from gal.errors import BudgetSpentError
from gal.privacy.accounting import Event
from gal.privacy.ledger import Budget, Charge, Ledger, row_keys

folder = Path(sys.argv[1])
what = Charge("k", "labels: outcome", "churn", ("bank",), Event("randomised-response", 0.5))
everybody = row_keys(range(2000))

def after():
    Ledger(folder / "after.sqlite").charge(what, everybody, Budget(9.0))

def inside():
    Ledger(folder / "inside.sqlite", clock=lambda: os._exit(9)).charge(what, everybody, Budget(9.0))

def together():
    with Ledger(folder / "together.sqlite") as ledger:
        for _ in range(10):
            try:
                ledger.charge(what, everybody[:50], Budget(9.0), again=True)
            except BudgetSpentError:
                (folder / f"refused-{os.getpid()}").touch()

def begin(work):
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child

children = [begin(work) for work in (after, inside, together, together, together)]
print(*[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ledgers of processes: killed after a charge, killed inside
    one, and three at the same time.
    """
    folder = tmp_path_factory.mktemp("processes")
    command = [sys.executable, "-c", PROCESSES, str(folder)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=patient(120), check=True).stdout
    assert said.split() == ["0", "9", "0", "0", "0"]
    return folder


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
class TestProcesses:
    @pytest.mark.parametrize(("when", "cost"), [("after", 0.5), ("inside", 0.0)])
    def test_a_crash_leaves_all_of_a_charge_or_nothing(self, ended: Path, when: str, cost: float) -> None:
        """Killed right after ``charge`` returned, before anything is sent; or while it writes."""
        everybody = row_keys(range(2000))
        with Ledger(ended / f"{when}.sqlite") as ledger:
            costs = {ledger.spent(LABELS, 0.0, rows=everybody[[one]]) for one in (0, 999, 1999)}
            assert costs == {cost}
            assert [entry.n_rows for entry in ledger.entries()] == [2000] * (cost > 0)
            ledger.charge(charge("k", 0.5, peers=("bank",)), everybody, Budget(0.5))
            assert ledger.spent(LABELS, 0.0) == 0.5  # resumed: the same release, once

    def test_processes_that_start_together_share_a_budget(self, ended: Path) -> None:
        with Ledger(ended / "together.sqlite") as ledger:
            assert ledger.spent(LABELS, 0.0) == 9.0  # they asked for 15
            assert ledger.entries()[0].most == 18
        assert list(ended.glob("refused-*"))
