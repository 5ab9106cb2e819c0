"""The comparison with peers: what is kept, what is left out and why, and what the page says."""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from typer.testing import CliRunner

from gal.cli.app import app
from gal.errors import GALError, MissingDataError
from gal.extras import is_installed
from gal_bench.peers import comparing, fed_tree, tables
from gal_bench.peers.comparing import PEERS, PeerResult, compare_peers, lines_of, measured, read_peers
from gal_bench.peers.counting import CountingRelay
from gal_bench.peers.peers_page import peers_page, share_of_way
from gal_bench.peers.tables import PeerTable, peer_tables
from patience import patient


def small_table(n: int = 400, classes: int = 2) -> PeerTable:
    X, y = make_classification(n, 8, n_informative=6, n_redundant=0, n_classes=classes, random_state=0)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)])
    parts = {"a": ["x0", "x1", "x2", "x3"], "b": ["x4", "x5", "x6", "x7"]}
    half = n // 2
    return PeerTable("Small", "by name", parts, frame[:half], y[:half], frame[half:], y[half:])


PACKAGES = {"XGBoost": "xgboost", "LightGBM": "lightgbm", "SplitNN": "torch", "FedTree": "fedtree"}


def runs_here(name: str) -> bool:
    """Whether what this peer needs is installed: XGBoost is an extra that is not among all."""
    package = PACKAGES.get(name.split()[0])
    return package is None or is_installed(package)


@pytest.mark.parametrize("name", [name for name in PEERS if name != "XGBoost vertical" and runs_here(name)])
@pytest.mark.usefixtures("no_compiler")
def test_peers_learn_something(name: str) -> None:
    table = small_table()
    found = measured(name, PEERS[name], table, 0)
    assert found.auc is not None
    assert found.auc > 0.6
    assert found.log_loss < 0.75
    assert (found.megabytes > 0) == (name in ("GAL", "GAL, not crossed", "SplitNN"))
    assert found.lines >= 1


def test_several_classes_are_judged_by_accuracy() -> None:
    found = measured("GAL", PEERS["GAL"], small_table(classes=3), 0)
    assert found.auc is None
    assert found.score == found.accuracy > 0.4


class FakeTrees:
    """As FedTree is called; the more trees predict, the surer it is, up to 60 rightly."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def fit(self, rows: Any, y: Any) -> None:
        self.fitted = len(rows), len(y)

    def predict_proba(self, rows: Any) -> Any:
        sure = {20: 0.6, 40: 0.7, 60: 0.8, 80: 0.9, 100: 0.99}[self.n_trees]  # type: ignore[attr-defined]
        found = np.full((len(rows), 2), [1 - sure, sure])
        setattr(self, "predict_proba", found)  # noqa: B010  as FedTree does: it can be called once
        return found


def said_by_fedtree(monkeypatch: pytest.MonkeyPatch, package: Any) -> Any:
    monkeypatch.setattr("os.dup2", lambda *_: None)
    monkeypatch.setitem(sys.modules, "fedtree", package)
    here, there = multiprocessing.Pipe(duplex=False)
    y = np.tile([1, 1, 1, 1, 0], 20)
    rows, few = np.ones((100, 2)), np.ones((4, 2))
    fed_tree._work((3, 7), (rows, y, rows, y, few), there)
    return here.recv()


def test_fedtree_predicts_with_as_many_trees_as_rows_to_stop_on_say(monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_by_fedtree(monkeypatch, SimpleNamespace(FLClassifier=FakeTrees))
    np.testing.assert_allclose(said, np.tile([0.2, 0.8], (4, 1)))


def test_without_fedtree_or_its_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_by_fedtree(monkeypatch, None)
    assert "pip install fedtree, apt-get install libntl44" in said
    with pytest.raises(GALError, match="several classes"):
        fed_tree.fedtree_vertical(small_table(classes=3), 0)


def perfect(table: PeerTable, seed: int) -> Any:
    """Says the truth."""
    said = np.eye(table.n_classes)[table.y_test]
    return said, 1000


def failing(table: PeerTable, seed: int) -> Any:
    raise GALError("it did not listen")


def ending(table: PeerTable, seed: int) -> Any:
    raise EOFError  # what a pipe says whose other end is gone


def absent(table: PeerTable, seed: int) -> Any:
    raise ImportError("No module named 'boost'")


def test_what_was_kept_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tables_of(name: str, data_dir: Any, seed: int) -> list[PeerTable]:
        if name == "Letter":
            raise MissingDataError("letter is nowhere")
        return [small_table()]

    monkeypatch.setattr(comparing, "peer_tables", tables_of)
    ran: list[str] = []
    peers = {"failing": failing, "ending": ending, "absent": absent, "perfect": perfect}
    how: dict[str, Any] = {"say": ran.append, "peers": peers}
    found, skipped = compare_peers(["Adult", "Letter"], tmp_path, None, **how)
    assert [(one.peer, one.auc, one.megabytes) for one in found] == [("perfect", 1.0, 0.001)]
    assert skipped["Letter"] == "letter is nowhere"
    assert "did not listen" in skipped["failing on Small, by name"]
    assert "without a word" in skipped["ending on Small, by name"]
    assert "pip install" in skipped["absent"]
    assert [one.peer for one in read_peers(tmp_path / "peers.csv")] == ["perfect"]
    ran.clear()
    compare_peers(["Adult"], tmp_path, None, **how)
    assert not any("perfect" in one for one in ran)


def test_pooled_models_learn_once_for_all_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = [replace(small_table(), split=split) for split in ("alpha 0.1", "alpha 1")]
    monkeypatch.setattr(comparing, "peer_tables", lambda *_: splits)
    ran: list[str] = []
    peers = {"perfect pooled": perfect, "perfect": perfect}
    found, _ = compare_peers(["Small"], tmp_path, None, say=ran.append, peers=peers)
    assert len(ran) == 3
    assert [one.split for one in found if one.peer == "perfect pooled"] == ["alpha 0.1", "alpha 1"]


def test_lines_are_those_of_the_body() -> None:
    assert lines_of(perfect) == 2


def result(peer: str, auc: float, log_loss: float, seed: int = 0) -> PeerResult:
    return PeerResult("Adult", "by name", seed, peer, auc, 0.5, log_loss, 1.0, 2.0, 3.0, 4)


def test_the_page_says_how_far_each_goes() -> None:
    found = [result("XGBoost alone", 0.6, 0.6), result("GAL alone", 0.7, 0.5), result("GAL", 0.85, 0.45)]
    found += [result("forest pooled", 0.8, 0.3), result("XGBoost pooled", 0.9, 0.4)]
    page = peers_page(found, {"Letter": "not here"})
    assert "| GAL | 0.8500 | 0.4500 | 75.0% | 25.0% | 1.0 | 2.0 | 3.0 | 4 |" in page
    assert "| forest pooled | 0.8000 | 0.3000 |  |  |" in page
    assert "- Letter: not here" in page
    assert share_of_way("GAL", {"GAL": [0.5, 0.5]}, 0) is None


def test_of_several_seeds_the_page_says_who_is_better() -> None:
    found = [result("GAL", score, 0.4, seed) for seed, score in enumerate([0.7, 0.8, 0.9])]
    found += [result("SplitNN", score, 0.4, seed) for seed, score in enumerate([0.71, 0.79, 0.96])]
    page = peers_page([*found, result("FedTree vertical", 0.5, 0.6)], {})
    assert page.count("better than GAL by") == 1
    assert "the mean of 3 seeds; all are judged on the same rows" in page
    assert "| 4 | +0.0200 (0.0208) |" in page  # of .01, -.01 and .06
    assert "| GAL | 0.8000 | 0.4000 |  |  | 1.0 | 2.0 | 3.0 | 4 |  |" in page
    assert next(line for line in page.splitlines() if "| FedTree v" in line).endswith("| 4 |  |")  # one seed


def test_letter_is_read_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingDataError, match="letter-recognition"):
        next(peer_tables("Letter", tmp_path, 0))
    monkeypatch.setattr(tables, "LETTERS", 789 + 200)
    rows = np.random.default_rng(0).integers(16, size=(989, 16))
    path = tmp_path / tables.LETTER
    path.parent.mkdir()
    letters = ["A"] * 789 + ["B", "C"] * 100
    path.write_text(
        "".join(f"{letter},{','.join(map(str, row))}\n" for letter, row in zip(letters, rows, strict=True))
    )
    found = list(peer_tables("Letter", tmp_path, 0))
    assert [one.split for one in found] == ["alpha 0.1", "alpha 1", "alpha 100"]
    for one in found:
        held = [column for columns in one.organizations.values() for column in columns]
        assert sorted(held) == sorted(one.X.columns)
    assert found[0].n_classes == 3


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "peer_tables", lambda *_: [small_table()])

    def only_one(*asked: Any, **how: Any) -> Any:
        how["peers"] = {"perfect": perfect}
        return compare_peers(*asked, **how)

    monkeypatch.setattr("gal.cli.benching.peers.compare_peers", only_one)
    done = CliRunner().invoke(
        app, ["bench", "peers", "--dataset", "Adult", "--results", str(tmp_path), "--json"]
    )
    assert json.loads(done.stdout)["results"][0]["peer"] == "perfect"
    assert "## Small, by name" in (tmp_path / "results-peers.md").read_text()
    more = ["--results", str(tmp_path), "--seeds", "2", "--first-seed", "7", "--json"]
    again = CliRunner().invoke(app, ["bench", "peers", "--dataset", "Adult", *more])
    assert [one["seed"] for one in json.loads(again.stdout)["results"]] == [0, 7, 8]
    wrong = CliRunner().invoke(app, ["bench", "peers", "--dataset", "Wine", "--results", str(tmp_path)])
    assert wrong.exit_code != 0


def test_a_relay_counts_both_ways() -> None:
    before = multiprocessing.active_children()
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        client, _ = server.accept()
        client.sendall(client.recv(5) * 2)
        client.close()

    threading.Thread(target=answer, daemon=True).start()
    relay = CountingRelay(server.getsockname()[1])
    with socket.create_connection(("127.0.0.1", relay.port), timeout=patient(5)) as asked:
        asked.sendall(b"hello")
        heard = b""
        while data := asked.recv(100):
            heard += data
    relay.close()
    server.close()
    assert heard == b"hellohello"
    assert relay.count == 15
    assert multiprocessing.active_children() == before
