"""gal doctor: finds what is wrong, says what to do, and never fails itself."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from gal.node.admin import doctor
from gal.node.admin.doctor import Finding, examine
from gal.node.admin.init import init_node
from gal.node.runtime.control import ControlServer
from gal.node.worker.sandbox import landlock_version
from gal.node.worker.worker import Worker
from gal.transport import CardFolder, Identity, Listener, card_of, make_identity, read_card
from ports import free_port
from small_network import WorkerHere

ROWS = "id,age,town,y\n" + "".join(f"{row},{row % 7},{'ab'[row % 2]},{row % 2}\n" for row in range(30))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def tried_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are tried in this process: a new one takes seconds to import."""
    monkeypatch.setattr(doctor, "Worker", WorkerHere)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "lab"
    init_node(folder, "lab", source="rows.csv", row_id="id", label="y")
    (folder / "rows.csv").write_text(ROWS)
    return folder


def by_what(home: Path) -> dict[str, Finding]:
    return {one.what: one for one in examine(home)}


def add_line(home: Path, section: str, line: str) -> None:
    path = home / "node.toml"
    path.write_text(path.read_text().replace(f"[{section}]\n", f"[{section}]\n{line}\n", 1))


@contextmanager
def bank_listening(folder: Path, bank: Identity, *known: Identity) -> Iterator[str]:
    """A label holder's listener on loopback; its address."""
    cards = CardFolder(folder / "cards of bank")
    for one in known:
        cards.add(card_of(one))
    with Listener(
        "127.0.0.1:0",
        bank,
        cards,
        on_stream=lambda stream: stream.receive(),
        on_refused=lambda fingerprint, why: None,
        largest=10**6,
        software="test",
    ) as listener:
        yield f"127.0.0.1:{listener.port}"


def test_a_new_node_with_data_is_fine(home: Path) -> None:
    found = by_what(home)
    assert {name: one.ok for name, one in found.items()} == {
        "folder": True,
        "configuration": True,
        "data": True,
        "columns": True,
        "sandbox": True if landlock_version() else None,
        "label": True,
        "model": True,
        "key": True,
        "card": True,
        "cards": None,
    }
    assert found["data"].message == "30 rows with integer ids, 2 features (1 of text)"
    assert all(one.fix for one in found.values() if one.ok is not True)
    assert "gal cards add" in found["cards"].fix


def test_no_folder_and_no_configuration(tmp_path: Path) -> None:
    found = by_what(tmp_path / "nowhere")
    assert (found["folder"].ok, found["configuration"].ok) == (False, False)
    assert "gal init NAME" in found["configuration"].fix
    assert by_what(tmp_path)["configuration"].ok is False


def write_rows(text: str) -> Callable[[Path], object]:
    return lambda home: (home / "rows.csv").write_text(text)


def use(model: str, rows: str = ROWS) -> Callable[[Path], object]:
    def change(home: Path) -> None:
        (home / "rows.csv").write_text(rows)
        path = home / "node.toml"
        path.write_text(path.read_text().replace('use = "tabular"', f'use = "{model}"'))

    return change


def other_key(home: Path) -> None:
    (home / "key.pem").write_bytes(make_identity("lab").private_key)


WRONG: dict[str, tuple[Callable[[Path], object], str, bool | None, str]] = {
    "an unknown key": (
        lambda home: add_line(home, "policy", "max_ronds = 3"),
        *("configuration", False, "did you mean max_rounds"),
    ),
    "one id twice": (write_rows("id,x,y\n1,2,0\n1,3,1\n"), "data", False, "such as 1 in rows 1 and 2"),
    "no label": (write_rows("id,x,y\n1,2,0\n2,3,\n"), "label", None, "1 of 2 rows have no label"),
    "no data": (lambda home: (home / "node.toml").write_text('name = "lab"'), "data", None, ""),
    "text": (use("ridge"), "model", False, "onvert"),
    "no package": (use("no_such_package:Model"), "model", False, "No module named"),
    "missing values": (use("ridge", "id,x,y\n1,,0\n2,1,0\n3,2,0\n"), "model", False, "NaN"),
    "options": (
        lambda home: add_line(home, "model", "options = { alhpa = 3 }"),
        *("model", False, "alhpa"),
    ),
    "an open key": (lambda home: (home / "key.pem").chmod(0o644), "key", False, "chmod 600"),
    "no key": (lambda home: (home / "key.pem").unlink(), "key", False, ""),
    "another key": (other_key, "key", False, ""),
    "no card": (
        lambda home: (home / "cards" / "bank.card").write_text("nonsense"),
        *("cards", False, "bank.card"),
    ),
    "an open folder": (lambda home: home.chmod(0o755), "folder", None, "mode 0755"),
}


@pytest.mark.parametrize(("change", "what", "ok", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_found(
    home: Path, change: Callable[[Path], object], what: str, ok: bool | None, message: str
) -> None:
    change(home)
    [found, *_] = [one for one in examine(home) if one.what == what]
    assert (found.ok, bool(found.fix)) == (ok, True)
    assert message in f"{found.message} {found.fix}"


def test_a_card_of_another_key_or_address_or_none(home: Path) -> None:
    own = home / "lab.card"
    text = own.read_text()
    own.write_text(text.replace("certificate", 'address = "lab.example:7443"\ncertificate', 1))
    assert "lab.example:7443" in by_what(home)["card"].message
    other = home.parent / "other"
    init_node(other, "lab")
    own.write_text((other / "lab.card").read_text())
    assert "of another key" in by_what(home)["card"].message
    own.unlink()
    assert "there is no card" in by_what(home)["card"].message


def test_a_secret(home: Path) -> None:
    add_line(home, "data", 'secret_file = "alignment.secret"')
    assert by_what(home)["secret"].ok is False
    secret = home / "alignment.secret"
    secret.write_text("0123456789abcdef\n")
    secret.chmod(0o644)
    assert by_what(home)["secret"].ok is None
    secret.chmod(0o600)
    assert by_what(home)["secret"].ok is True


def test_little_room_is_noted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LITTLE", 10**30)
    assert by_what(home)["folder"].ok is None


def test_a_label_holder_that_answers_and_knows_us(home: Path, tmp_path: Path) -> None:
    bank = make_identity("bank")
    card = read_card(home / "lab.card")
    us = Identity("lab", (home / "key.pem").read_bytes(), card.certificate)
    with bank_listening(tmp_path, bank, us) as address:
        CardFolder(home / "cards").add(card_of(bank, address))
        found = by_what(home)
    assert found["bank"].ok is True
    assert "accepts this node" in found["bank"].message
    assert found["cards"].message == "1 known: bank"


def test_a_label_holder_that_does_not_know_us(home: Path, tmp_path: Path) -> None:
    bank = make_identity("bank")
    with bank_listening(tmp_path, bank, make_identity("another")) as address:
        CardFolder(home / "cards").add(card_of(bank, address))
        found = by_what(home)["bank"]
    assert found.ok is False
    assert "card" in found.fix


def test_a_label_holder_with_another_key(home: Path, tmp_path: Path) -> None:
    with bank_listening(tmp_path, make_identity("bank")) as address:
        CardFolder(home / "cards").add(card_of(make_identity("bank"), address))
        assert by_what(home)["bank"].ok is False


def test_a_label_holder_that_cannot_be_reached(home: Path) -> None:
    CardFolder(home / "cards").add(card_of(make_identity("bank"), f"127.0.0.1:{free_port()}"))
    found = by_what(home)["bank"]
    assert found.ok is None, "who does not learn now need not be there"
    assert "cannot be reached" in found.message
    assert "ask bank whether its node runs" in found.fix


def test_a_full_disk_is_not_writable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    found = by_what(home)["folder"]
    assert found.ok is False
    assert "is full" in found.message
    assert "make room" in found.fix


def test_a_running_node_is_not_disturbed(home: Path) -> None:
    """Its label holder would end its stream for a second one with the same key."""
    with socket.create_server(("127.0.0.1", 0)) as server, ControlServer(home, {}):
        CardFolder(home / "cards").add(card_of(make_identity("bank"), f"127.0.0.1:{server.getsockname()[1]}"))
        found = by_what(home)["bank"]
    assert found.ok is True
    assert found.fix == "gal status"


def label_holder(tmp_path: Path, bind: str) -> Path:
    folder = tmp_path / "bank"
    init_node(folder, "bank", bind=bind, address="bank.example:7443")
    return folder


def test_a_port_that_is_free_taken_or_held_by_the_node_itself(tmp_path: Path) -> None:
    port = free_port()
    folder = label_holder(tmp_path, f"127.0.0.1:{port}")
    assert by_what(folder)["port"].ok is True
    with socket.create_server(("127.0.0.1", port)):
        found = by_what(folder)["port"]
        assert found.ok is False
        assert "listen.bind" in found.fix
        with ControlServer(folder, {}):
            assert by_what(folder)["port"].ok is True


def test_what_it_stumbles_over_is_a_finding(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: object, **__: object) -> Iterator[Finding]:
        yield Finding("never", 1 / 0 > 0, "")

    for name in ("_folder", "_data", "_model", "_secret", "_identity", "_cards", "_port"):
        monkeypatch.setattr(doctor, name, stumble)
    broken = [one for one in examine(home) if "ZeroDivisionError" in one.message]
    assert len(broken) == 7
    assert all(one.ok is False for one in broken)


def test_a_kernel_without_landlock_is_noted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "landlock_version", lambda: 0)
    found = by_what(home)["sandbox"]
    assert found.ok is None
    assert "can reach whatever this user can" in found.message
    assert "a user of its own" in found.fix


def test_a_model_that_ends_its_process_is_a_finding(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "Worker", Worker)
    folder = home.parent / "models"
    folder.mkdir()
    (folder / "brutal.py").write_text(
        "import os\nfrom sklearn.linear_model import Ridge\n\n"
        "class Brutal(Ridge):\n    def fit(self, X, y):\n        print('going')\n        os._exit(7)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    text = (home / "node.toml").read_text()
    (home / "node.toml").write_text(text.replace('use = "tabular"', 'use = "brutal:Brutal"'))
    [finding] = [one for one in examine(home) if one.what == "model"]
    assert finding.ok is False
    assert "status 7" in finding.message
    assert "fit_memory" in finding.fix
