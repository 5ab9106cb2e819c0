"""Backup and restore: everything comes back, and nothing that was released since is released again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("grpc")

from gal.errors import BudgetSpentError, InvalidInputError, RefusedError, TaskError
from gal.node.admin import restore as restoring
from gal.node.admin import sealed
from gal.node.admin.backup import back_up
from gal.node.admin.restore import bring_back, prove
from gal.node.agreement.incoming import IncomingRequest
from gal.node.assistant.request_checks import RequestChecks
from gal.node.config.configuration import read_configuration
from gal.node.store.audit import AuditLog
from gal.node.store.restores import Restore, kept_time
from gal.node.store.state import State, TaskRecord
from gal.privacy.accounting import Event
from gal.privacy.ledger import Charge, Ledger, row_keys
from gal.protocol import Message
from patience import LONGEST
from real_nodes import HOLDER, text_of
from real_nodes import Network as Processes
from small_network import Network, numbers, running
from small_terms import small_terms

WORDS = "correct horse battery staple"
ONE_FIT = {"cross_validation": 0, "validation_fraction": 0.0, "patience": None}


@pytest.fixture(autouse=True)
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "WORK", 2)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    tables = numbers(organizations=("clinic", "lab"))
    helpful = tables["lab"].set_index("id")["lab_a"]
    tables["clinic"]["y"] = tables["clinic"]["clinic_a"] + 2 * helpful[tables["clinic"]["id"]].to_numpy()
    with running(Network(tmp_path / "nodes", tables)) as made:
        yield made


def files_of(home: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if "sqlite" not in name and name != "node.lock"}


def newest_head(home: Path) -> str:
    with AuditLog(home / "state.sqlite") as audit:
        return audit.verify().head


def lose(network: Network, name: str) -> Path:
    """The node ends, and its disk is gone; where it still lies, for the test."""
    network.stop(name)
    lost = network.root / f"{name}-lost"
    (network.root / name).rename(lost)
    return lost


def test_all_that_a_node_is_comes_back(network: Network, tmp_path: Path) -> None:
    network.wait_until_joined(network.invite("risk", rounds=2))
    network.learn("risk")
    facts = back_up(network.root / "lab", tmp_path / "lab.backup", WORDS)  # while it runs
    lost = lose(network, "lab")
    found = bring_back(tmp_path / "lab.backup", network.root / "lab", WORDS, head=str(facts["head"]))
    assert found["organization"] == "lab"
    home = network.root / "lab"
    kept = files_of(lost)
    came = files_of(home)
    assert came == kept
    assert {"key.pem", "node.toml", "rows.csv"} <= set(came)
    assert (home / "key.pem").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    assert not (home / restoring.STAGING).exists()
    with AuditLog(home / "state.sqlite") as audit:
        assert [one.kind for one in audit.entries()][-2:] == ["backup", "restored"]
        audit.verify()
    secret = (lost / "key.pem").read_bytes()[40:90]
    assert secret not in (tmp_path / "lab.backup").read_bytes()
    assert (tmp_path / "lab.backup").stat().st_mode & 0o777 == 0o600


def test_what_was_released_since_is_not_released_again(network: Network, tmp_path: Path) -> None:
    """The backup is of before version 2: a node that is brought back from it must not answer anew."""
    network.wait_until_joined(network.invite("risk", rounds=2))
    network.learn("risk")
    back_up(network.root / "lab", tmp_path / "lab.backup", WORDS)
    network.learn("risk")
    lost = lose(network, "lab")
    newest = newest_head(lost)
    facts = bring_back(tmp_path / "lab.backup", network.root / "lab", WORDS, head=newest)
    assert not facts["proven"]
    assert "not in the backup" in facts["why"]
    network.start("lab")
    record = network.holder.node.state.find_task("risk")
    network.wait_until_joined(record, "lab")
    with pytest.raises(
        TaskError, match=r"lab refuses to begin.*brought back from a backup.*Invite it to a new"
    ):
        network.learn("risk")
    ids = network.tables["clinic"]
    ids[["id"]].head(30).to_csv(tmp_path / "new.csv", index=False)
    said = network.holder.predict_file("risk", tmp_path / "new.csv")
    assert said["degraded"] == 30, "limits of the day are used up"
    with pytest.raises(InvalidInputError, match="that shows nothing"):
        prove(network.root / "lab", newest)


def test_who_shows_the_newest_head_goes_on(network: Network, tmp_path: Path) -> None:
    network.wait_until_joined(network.invite("risk", rounds=2))
    network.learn("risk")
    network.stop("lab")
    back_up(network.root / "lab", tmp_path / "lab.backup", WORDS)
    head = newest_head(network.root / "lab")
    (network.root / "lab").rename(network.root / "lost")
    facts = bring_back(tmp_path / "lab.backup", network.root / "lab", WORDS)
    assert not facts["proven"], "without a proof everything counts as spent"
    with pytest.raises(InvalidInputError, match="that shows nothing"):
        prove(network.root / "lab", "sha256:" + "0" * 64)
    assert prove(network.root / "lab", head)["proven"]
    with pytest.raises(InvalidInputError, match="nothing to settle"):
        prove(network.root / "lab", head)
    network.start("lab")
    network.wait_until_joined(network.holder.node.state.find_task("risk"), "lab")
    assert network.learn("risk")["missed"] == {}


def test_an_earlier_head_shows_nothing(network: Network, tmp_path: Path) -> None:
    home = network.root / "lab"
    early = network.nodes["lab"].records.audit.append("own", "joined").hash
    network.nodes["lab"].records.audit.append("out", "fitted", peer="clinic")
    back_up(home, tmp_path / "lab.backup", WORDS)
    lose(network, "lab")
    facts = bring_back(tmp_path / "lab.backup", home, WORDS, head=early)
    assert not facts["proven"]
    assert "says nothing of what came later" in facts["why"]


# The privacy account


def test_an_account_that_counts_as_spent_lets_only_the_same_draw_through(tmp_path: Path) -> None:
    rows = row_keys(np.arange(5))
    drawn = Charge(
        "task/version 1/draw", "labels: y", "risk", ("lab",), Event("randomised-response", 1.0, 1, 2)
    )
    with Ledger(tmp_path / "ledger.sqlite") as before:
        before.charge(drawn, rows[:3], None)
    why = "this node was brought back"
    with Ledger(tmp_path / "ledger.sqlite", as_spent=lambda: why) as ledger:
        ledger.charge(drawn, rows[:3], None)  # noise that is on the disk tells nothing new
        anew = Charge("task/version 2/draw", "labels: y", "risk", ("lab",), drawn.event)
        for charge, some in ((drawn, rows), (anew, rows[:3])):
            with pytest.raises(BudgetSpentError, match=rf"{why}\. Nothing was charged"):
                ledger.charge(charge, some, None)
        with pytest.raises(BudgetSpentError, match=why):
            ledger.charge(drawn, rows[:3], None, again=True)
        plain = Charge("task/version 2", "labels: y", "plain", ("lab",), Event("none", 0.0))
        ledger.charge(plain, rows, None)  # there is no account to be spent
        why = ""
        ledger.charge(anew, rows, None)


def test_a_running_node_asks_whether_its_account_counts_as_spent(network: Network) -> None:
    node = network.nodes["clinic"]
    charge = Charge("k", "labels: y", "risk", ("lab",), Event("randomised-response", 1.0, 1, 2))
    node.state.restores.add(Restore("2026-01-02", "2026-01-01", 1, "sha256:1", "lost"))
    with pytest.raises(BudgetSpentError, match="brought back on 2026-01-02"):
        node.ledger.charge(charge, row_keys(np.arange(3)), None)
    node.state.restores.prove("sha256:1", "shown")
    node.ledger.charge(charge, row_keys(np.arange(3)), None)


# What goes wrong


def test_what_cannot_be_backed_up_or_brought_back(network: Network, tmp_path: Path) -> None:
    home, file = network.root / "lab", tmp_path / "lab.backup"
    with pytest.raises(InvalidInputError, match="at least 12"):
        back_up(home, file, "short")
    with pytest.raises(InvalidInputError, match="folder of the node itself"):
        back_up(home, home / "lab.backup", WORDS)
    back_up(home, file, WORDS)
    with pytest.raises(InvalidInputError, match="choose another name"):
        back_up(home, file, WORDS)
    with pytest.raises(InvalidInputError, match="there is a node in"):
        bring_back(file, home, WORDS)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").touch()
    with pytest.raises(InvalidInputError, match=r"not empty \(letter\.txt\)"):
        bring_back(file, tmp_path / "full", WORDS)
    with pytest.raises(InvalidInputError, match="passphrase is another one"):
        bring_back(file, tmp_path / "new", WORDS + "!")
    assert not (tmp_path / "new" / "node.toml").exists()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InvalidInputError, match="damaged"):
        bring_back(file, tmp_path / "new", WORDS)
    assert not (tmp_path / "new" / "node.toml").exists()


def test_a_restore_that_was_killed_is_no_node_and_can_be_done_again(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.wait_until_joined(network.invite("risk", rounds=2))
    network.learn("risk")
    back_up(network.root / "lab", tmp_path / "lab.backup", WORDS)
    moved: list[str] = []
    move = restoring._move

    def dies(path: Path, target: Path) -> None:
        if path.name == "node.toml":
            raise KeyboardInterrupt
        moved.append(path.name)
        move(path, target)

    monkeypatch.setattr(restoring, "_move", dies)
    with pytest.raises(KeyboardInterrupt):
        bring_back(tmp_path / "lab.backup", tmp_path / "new", WORDS)
    assert "state.sqlite" in moved
    assert "tasks" in moved
    assert not (tmp_path / "new" / "node.toml").exists()
    monkeypatch.undo()
    monkeypatch.setattr(sealed, "WORK", 2)
    bring_back(tmp_path / "lab.backup", tmp_path / "new", WORDS)
    expected = files_of(network.root / "lab").keys()
    assert files_of(tmp_path / "new").keys() == expected


def test_after_a_kill_a_node_is_moved_elsewhere_and_learning_goes_on(tmp_path: Path) -> None:
    """Killed in the middle of learning, backed up as it lies, brought back, and the model is the same."""
    with Processes(tmp_path, organizations=("lab",), paced=("lab",), options=ONE_FIT) as network:
        network.serve(HOLDER, "lab")
        network.allow("lab", 2)
        learning = network.beside(network.learn)
        network.until_round(2)
        network.kill("lab")
        home = network.home("lab")
        back_up(home, tmp_path / "lab.backup", WORDS)
        head = newest_head(home)
        shutil.rmtree(home)
        assert bring_back(tmp_path / "lab.backup", home, WORDS, head=head)["proven"]
        network.allow("lab")
        network.serve("lab")
        learning.result(LONGEST)
        assert [one for one in network.missed().values() if one] == []
        assert text_of(network.ensemble()) == text_of(network.expected()[0])


@pytest.mark.parametrize(
    ("kind", "days", "made", "refused"),
    [
        ("predict", 0, "2026-01-01", True),
        ("predict", 1, "2026-01-01", False),
        ("blind", 0, "2026-04-01", True),
        ("begin", 9, "2026-01-01", True),
        ("fit", 9, "2026-01-01", True),
        ("begin", 0, "2026-04-01", False),
    ],
)
def test_limits_of_the_day_are_used_up_for_a_day_and_tasks_of_before_for_good(
    tmp_path: Path, kind: str, days: int, made: str, refused: bool
) -> None:
    (tmp_path / "node.toml").write_text('name = "lab"\n')
    day = datetime(2026, 3, 1, 12, tzinfo=UTC)
    with closing(State(tmp_path)) as state:
        checks = RequestChecks(read_configuration(tmp_path), state, lambda: day + timedelta(days=days))
        task = TaskRecord(
            "a" * 32, "risk", "organization", "clinic", small_terms("a" * 32, "risk"), made=made
        )
        asked = IncomingRequest("clinic", Message(kind, task.id), b"", "sha256:1")
        checks.current(asked, task)
        state.restores.add(Restore(kept_time(day), "2026-02-01", 1, "sha256:1", "lost"))
        checks.current(asked._replace(own=True), task)
        if refused:
            with pytest.raises(RefusedError, match="its limits count as used up") as error:
                checks.current(asked, task)
            assert error.value.code == "restored"
        else:
            checks.current(asked, task)
