"""Backup and restore: everything comes back, and nothing that was released since is released again."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("grpc")

from gal.errors import BudgetSpentError, InvalidInputError, RefusedError, TaskError
from gal.node.admin import backup as backups
from gal.node.admin.backup import Sealed, Unsealed, back_up, bring_back
from gal.node.assistant.request_checks import RequestChecks
from gal.node.config.configuration import read_configuration
from gal.node.config.requests import IncomingRequest
from gal.node.store.audit import AuditLog
from gal.node.store.state import Restore, State, TaskRecord
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
    monkeypatch.setattr(backups, "WORK", 2)


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
    assert not (home / backups.STAGING).exists()
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
    with pytest.raises(TaskError, match=r"lab refused .*restored from a backup.*Invite it to a new"):
        network.learn("risk")
    ids = network.tables["clinic"]
    ids[["id"]].head(30).to_csv(tmp_path / "new.csv", index=False)
    said = network.holder.predict_file("risk", tmp_path / "new.csv")
    assert said["degraded"] == 30, "limits of the day are used up"


def test_only_the_newest_head_shows_that_nothing_was_released_since(network: Network, tmp_path: Path) -> None:
    network.wait_until_joined(network.invite("risk", rounds=2))
    network.learn("risk")
    home = network.root / "lab"
    early = network.nodes["lab"].records.audit.append("out", "fitted", peer="clinic").hash
    network.stop("lab")
    back_up(home, tmp_path / "lab.backup", WORDS)
    newest = newest_head(home)
    home.rename(network.root / "lost")
    for head, why in {None: "no head", early: "nothing of what came later"}.items():
        facts = bring_back(tmp_path / "lab.backup", home, WORDS, head=head)
        assert not facts["proven"]
        assert why in facts["why"]
        shutil.rmtree(home)
    assert bring_back(tmp_path / "lab.backup", home, WORDS, head=newest)["proven"]
    network.start("lab")
    network.wait_until_joined(network.holder.node.state.find_task("risk"), "lab")
    assert network.learn("risk")["missed"] == {}


# The privacy account


def test_an_account_that_counts_as_spent_lets_only_the_same_draw_through(tmp_path: Path) -> None:
    rows = row_keys(np.arange(5))
    drawn = Charge("task/version 1/draw", "labels: y", "risk", ("lab",), Event("randomised-response", 1.0))
    with Ledger(tmp_path / "ledger.sqlite") as before:
        before.charge(drawn, rows[:3], None)
    why = "this node was restored"
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
    charge = Charge("k", "labels: y", "risk", ("lab",), Event("randomised-response", 1.0))
    node.ledger.charge(charge, row_keys(np.arange(3)), None)
    node.state.add_restore(Restore("2026-01-02", "2026-01-01", "lost"))
    with pytest.raises(BudgetSpentError, match="restored on 2026-01-02"):
        node.ledger.charge(charge, row_keys(np.arange(5)), None)


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
    move = os.replace

    def dies(path: Path, target: Path) -> None:
        if path.name == "node.toml":
            raise KeyboardInterrupt
        moved.append(path.name)
        move(path, target)

    monkeypatch.setattr(os, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        bring_back(tmp_path / "lab.backup", tmp_path / "new", WORDS)
    assert "state.sqlite" in moved
    assert "tasks" in moved
    assert not (tmp_path / "new" / "node.toml").exists()
    monkeypatch.undo()
    monkeypatch.setattr(backups, "WORK", 2)
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
        state.add_restore(Restore(day.isoformat(timespec="seconds"), "2026-02-01", "lost"))
        checks.current(asked._replace(own=True), task)
        if refused:
            with pytest.raises(RefusedError, match="its limits count as used up") as error:
                checks.current(asked, task)
            assert error.value.code == "restored"
        else:
            checks.current(asked, task)


# The file


def seal(path: Path, parts: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    """A backup with these parts, sealed as it should be: who made it knows the passphrase."""
    with path.open("wb") as file:
        writer = Sealed(file, WORDS)
        with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
            for one, data in parts:
                one.size = len(data)
                tar.addfile(one, io.BytesIO(data))
        writer.close()
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def gaps() -> tarfile.TarInfo:
    """A terabyte in 512 bytes."""
    made = member("x")
    made.pax_headers = {
        **{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
        **{"GNU.sparse.name": "node.toml", "GNU.sparse.realsize": str(10**12)},
    }
    return made


@pytest.mark.parametrize(
    "part",
    [
        member("../../outside/x"),
        member("/outside/x"),
        member("outside", tarfile.SYMTYPE, "/etc"),
        member("outside", tarfile.LNKTYPE, "../../x"),
        member("outside", tarfile.FIFOTYPE),
        member(".restoring/x"),
        member("node.lock"),
        gaps(),
    ],
    ids=lambda one: f"{one.name} {one.type!r}",
)
def test_nothing_is_written_outside_of_the_folder(tmp_path: Path, part: tarfile.TarInfo) -> None:
    data = b"1\n0\n0\n".ljust(512, b"\0") if part.pax_headers else b""
    backup = seal(tmp_path / "x.backup", [(part, data)])
    with pytest.raises(InvalidInputError, match="no file of a node"):
        bring_back(backup, tmp_path / "new" / "home", WORDS)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["new", "x.backup"]
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["home"]
    assert not (tmp_path / "new" / "home" / "node.toml").exists()


@pytest.mark.parametrize("size", [0, 63, 64, 65, 192, 200])
def test_what_was_sealed_comes_back_and_every_byte_counts(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(backups, "PIECE", 64)

    def unseal(data: bytes, passphrase: str = WORDS) -> bytes:
        reader, found = Unsealed(io.BytesIO(data), passphrase, "node.backup"), bytearray()
        while piece := reader.read(30):
            found += piece
        return bytes(found)

    content, file = bytes(range(200))[:size], io.BytesIO()
    writer = Sealed(file, WORDS)
    for at in range(0, size, 50):
        writer.write(content[at : at + 50])
    writer.close()
    whole = file.getvalue()
    assert unseal(whole) == content
    assert size == 0 or content[:60] not in whole
    start, piece = len(backups.MAGIC) + backups.SALT + backups.PREFIX, 64 + backups.TAG
    swapped = whole[:start] + whole[start + piece : start + 2 * piece] + whole[start : start + piece]
    wrong = [bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]]) for at in range(0, len(whole), 7)]
    wrong += [
        whole[:end] for end in (0, 5, start, start + 10, start + piece, len(whole) - 1) if end < len(whole)
    ]
    for data in [*wrong, swapped + whole[start + 2 * piece :]] if size > 128 else wrong:
        with pytest.raises(InvalidInputError, match=r"node\.backup.*damaged"):
            unseal(data)
    with pytest.raises(InvalidInputError, match=r"passphrase is another one.*Nothing was restored"):
        unseal(whole, "correct horse battery stable")
