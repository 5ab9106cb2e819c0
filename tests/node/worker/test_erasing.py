"""One person's row is erased: nothing of it is left in the home folder, and nothing is answered for it."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("grpc")

from typer.testing import CliRunner

from gal.cli.app import app
from gal.errors import InvalidInputError, NodeRunsError, TaskError
from gal.node.admin.membership import forget_rows
from gal.node.assistant.service import Service
from gal.node.label_holder.labels.label_guard import Drawn
from gal.node.source.data import read_source
from gal.node.store.audit import AuditLog
from gal.node.store.row_index import forgotten_rows
from gal.node.store.state import TaskRecord
from gal.privacy.ledger import row_keys
from small_network import ROW_ID, Network, numbers, running

GONE = 7_300_001_017
"""No number that is in a file by chance."""
NEXT = GONE + 1
ONE_FIT: dict[str, Any] = {
    "cross_validation": 0,
    "validation_fraction": 0.0,
    "patience": None,
    "kind": "regression",
}


def traces(home: Path, table: pd.DataFrame, row: int = GONE) -> list[str]:
    """Where a row is still found in a home folder: its id and values as text and as bytes, also in archives.

    The source is the operator's, and not looked at.
    """
    values = table.loc[table[ROW_ID] == row].drop(columns=[ROW_ID]).to_numpy(dtype=np.float64)[0].tolist()
    sought = [str(row).encode(), struct.pack("<q", row), struct.pack("<d", row)]
    for one in values:
        sought += [struct.pack("<d", one), struct.pack("<f", one), repr(one).encode(), f"{one:.12g}".encode()]
    found = []
    for path in sorted(home.rglob("*")):
        if path.is_file() and path.name not in {"rows.csv", "key.pem"}:
            found += [
                f"{path.relative_to(home)}: {one!r}"
                for one in sought
                if any(one in c for c in contents(path))
            ]
    return found


def contents(path: Path) -> list[bytes]:
    data = path.read_bytes()
    if not zipfile.is_zipfile(path):
        return [data]
    with zipfile.ZipFile(path) as archive:
        return [data, *(archive.read(name) for name in archive.namelist())]


def tables() -> dict[str, pd.DataFrame]:
    return {name: one.assign(**{ROW_ID: one[ROW_ID] + 7_300_000_000}) for name, one in numbers(80).items()}


def without(table: pd.DataFrame, row: int = GONE) -> pd.DataFrame:
    return table.loc[table[ROW_ID] != row]


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """Three organizations with one row more than they need, and wholly odd values in it."""
    with running(Network(tmp_path, tables())) as made:
        yield made


def learned(network: Network) -> TaskRecord:
    record = network.invite("risk", rounds=2, **ONE_FIT)
    network.wait_until_joined(record)
    network.learn("risk")
    return record


def tell(network: Network, name: str, *ids: Any, drop_versions: bool = False) -> dict[str, Any]:
    """The node ends, forgets rows, and starts again."""
    network.stop(name)
    try:
        return forget_rows(network.root / name, [str(one) for one in ids], drop_versions=drop_versions)
    finally:
        network.start(name)


def predicted(network: Network, ids: list[int], path: Path) -> dict[str, Any]:
    pd.DataFrame({ROW_ID: ids}).to_csv(path, index=False)
    return network.holder.predict_file("risk", path)


def test_nothing_of_a_row_is_left_and_nothing_is_answered_for_it(network: Network, tmp_path: Path) -> None:
    learned(network)
    before = predicted(network, [GONE, NEXT], tmp_path / "ask.csv")
    assert before["unknown"] == {}
    for name in ("clinic", "lab"):
        home, table = network.root / name, network.tables[name]
        done = tell(network, name, GONE)
        assert traces(home, table) == []
        assert [(one["task"], one["version"], one["dropped"]) for one in done["versions"]] == [
            ("risk", 1, False)
        ]
        assert done["versions"][0]["relearn"].startswith("gal learn risk")
        with AuditLog(home / "state.sqlite") as audit:
            entry = next(one for one in audit.entries() if one.kind == "forgot-row")
            assert f"{forgotten_rows(home).of([GONE])[0]:016x}" in entry.note
            audit.verify()
    with pytest.raises(
        InvalidInputError, match=r"1 of 2 rows were forgotten here .* in place 1: take them out"
    ):
        predicted(network, [GONE, NEXT], tmp_path / "ask.csv")
    assert predicted(network, [NEXT], tmp_path / "ask.csv")["unknown"] == {}


def test_it_is_not_learned_from_again(network: Network) -> None:
    record = learned(network)
    tell(network, "clinic", GONE)
    network.learn("risk")
    version = network.nodes["clinic"].state.learned_version(record.id, 2)
    assert version is not None
    assert version.n_rows == 79
    for name in network.tables:
        if name != "clinic":
            assert network.nodes[name].state.version(record.id, 2).n_rows == 79  # type: ignore[union-attr]


def test_versions_go_where_that_is_wanted(network: Network, tmp_path: Path) -> None:
    record = learned(network)
    done = tell(network, "clinic", GONE, drop_versions=True)
    assert done["versions"][0]["dropped"]
    state = network.nodes["clinic"].state
    assert state.statuses(record.id, "label holder") == {1: "abandoned"}
    assert state.find_task("risk").active == 0
    assert list((network.root / "clinic" / "tasks" / record.id).rglob("*.gal")) == []
    with pytest.raises(TaskError, match="no finished version"):
        predicted(network, [NEXT], tmp_path / "ask.csv")


def test_a_version_that_is_learned_is_not_disturbed_unless_it_may_be(network: Network) -> None:
    record = learned(network)
    state = network.nodes["lab"].state
    version = state.version(record.id, 1)
    assert version is not None
    state.put_version(record.id, 2, replace(version, status="begun"))
    (state.folder(record.id, 2) / "begin.arrow").write_bytes(struct.pack("<q", GONE))
    with pytest.raises(TaskError, match=r"version 2 of 'risk' is being learned.*--drop-versions"):
        tell(network, "lab", GONE)
    assert len(forgotten_rows(network.root / "lab")) == 0
    done = tell(network, "lab", GONE, drop_versions=True)
    assert done["given_up"] == ["version 2 of 'risk'"]
    assert traces(network.root / "lab", network.tables["lab"]) == []


def test_a_node_that_runs_is_ended_first_and_a_row_stays_forgotten(network: Network) -> None:
    learned(network)
    with pytest.raises(NodeRunsError, match="end it first"):
        forget_rows(network.root / "lab", [str(GONE)])
    network.stop("lab")
    forget_rows(network.root / "lab", [str(GONE)])
    assert traces(network.root / "lab", network.tables["lab"]) == []
    network.start("lab")
    configuration = network.nodes["lab"].configuration
    assert GONE not in read_source(configuration).ids.values
    assert len(read_source(configuration)) == 79


def test_models_that_keep_their_rows_go_where_that_is_wanted(tmp_path: Path) -> None:
    models = {"lab": 'use = "sklearn.neighbors:KNeighborsRegressor"'}
    with running(Network(tmp_path, tables(), models=models)) as network:
        learned(network)
        tell(network, "lab", GONE)
        assert traces(network.root / "lab", network.tables["lab"])
        tell(network, "lab", GONE, drop_versions=True)
        assert traces(network.root / "lab", network.tables["lab"]) == []


# What a kill left


def test_files_of_a_version_that_did_not_quite_begin_go(network: Network) -> None:
    record = learned(network)
    state = network.nodes["lab"].state
    for folder in (state.folder(record.id, 2), state.folder("ab" * 16, 1)):  # neither is on record
        (folder / "view").write_bytes(struct.pack("<q", GONE))
    (state.folder(record.id, 1) / "view.1.part").write_bytes(struct.pack("<q", GONE))
    tell(network, "lab", GONE)
    assert traces(network.root / "lab", network.tables["lab"]) == []
    own = network.nodes["clinic"].state.folder(record.id, 2, "label holder")
    (own / "labels.arrow").write_bytes(struct.pack("<q", GONE))
    (own / "draw").write_bytes(b"paid for")
    tell(network, "clinic", GONE)
    assert traces(network.root / "clinic", network.tables["clinic"]) == []
    assert (own / "draw").exists()


def test_rows_to_predict_that_were_left_go(network: Network) -> None:
    network.stop("lab")
    for left in (network.root / "lab" / "tmp" / "rows-x" / "ask.csv", network.root / "lab" / "tmp" / "y.csv"):
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text(f"id\n{GONE}\n", encoding="utf-8")
    forget_rows(network.root / "lab", [str(GONE)])
    assert traces(network.root / "lab", network.tables["lab"]) == []


def test_the_next_start_deletes_them_as_well(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(Service, "clean", lambda *_: None)
        learned(network)
    home = network.root / "lab"
    state = network.nodes["lab"].state
    (state.folder("ab" * 16, 1) / "view").write_bytes(b"of a task that was forgotten")
    network.stop("lab")
    (home / "tmp" / "rows-x").mkdir(parents=True)
    network.start("lab")
    assert {path.name for path in home.rglob("*")}.isdisjoint({"view", "begin.arrow", "rows-x"})
    assert predicted(network, [GONE, NEXT], network.root / "ask.csv")["unknown"] == {}


def test_noisy_labels_go(network: Network) -> None:
    record = learned(network)
    state = network.nodes["clinic"].state
    folder = state.folder(record.id, 1)
    ids = network.tables["clinic"][ROW_ID].to_numpy()
    drawn = Drawn(row_keys(ids), np.arange(80.0), np.full(80, "a draw", dtype=object))
    drawn.write(folder.parent / "noisy-labels.arrow")
    tell(network, "clinic", GONE)
    left = Drawn.read(folder.parent / "noisy-labels.arrow")
    assert (len(left.keys), set(left.draws)) == (79, {"a draw"})
    assert not np.isin(row_keys([GONE]), left.keys).any()
    assert np.isin(row_keys([NEXT]), left.keys).all()


def test_the_command_says_what_is_left(network: Network, tmp_path: Path) -> None:
    learned(network)
    network.stop("lab")
    (tmp_path / "ids.txt").write_text(f"{GONE}\n\n{NEXT}\n", encoding="utf-8")
    where = ["--yes", "--home", str(network.root / "lab")]
    runner = CliRunner()
    said = runner.invoke(app, ["forget", "--row", str(GONE), *where])
    assert said.exit_code == 0, said.output
    assert "Delete them in the source, too." in said.output
    assert "at clinic: gal learn risk" in said.output
    facts = json.loads(
        runner.invoke(app, ["forget", "--rows-from", str(tmp_path / "ids.txt"), "--json", *where]).stdout
    )
    assert (len(facts["hashes"]), len(facts["versions"])) == (2, 1)
    assert str(GONE) not in json.dumps(facts)
    assert isinstance(runner.invoke(app, ["forget", *where]).exception, InvalidInputError)
