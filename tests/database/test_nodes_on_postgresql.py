"""Real nodes whose rows are in a real PostgreSQL: the model of files, whatever dies, and no password told.

``make test-database`` runs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gal.errors import GALError
from ports import free_port
from postgresql import PASSWORD, PostgreSQL, programs
from real_nodes import HOLDER, Network

if not os.environ.get("GAL_DATABASE"):
    pytest.skip("databases are started by make test-database only", allow_module_level=True)
if programs() is None:
    pytest.skip("there is no PostgreSQL here: apt-get install postgresql", allow_module_level=True)

csv = pytest.importorskip("pyarrow.csv")
pytestmark = pytest.mark.database


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    with PostgreSQL(free_port()) as made:
        yield made


@pytest.fixture
def network(tmp_path: Path, server: PostgreSQL) -> Iterator[Network]:
    """Everybody's rows are in the database; the file of rows to predict has ids only."""
    options = {"cross_validation": 0, "validation_fraction": 0.25}
    with Network(tmp_path / "net", ("lab", "hospital"), rounds=3, paced=["lab"], options=options) as made:
        for name in made.names:
            server.put(name, csv.read_csv(made.root / f"{name}.csv"), key='"row"')
            (made.root / f"{name}.csv").unlink()
            path = made.home(name) / "node.toml"
            there = f'source = "{server.uri}"\ntable = "{name}"'
            path.write_text(path.read_text().replace(f'source = "../{name}.csv"', there))
        ids = "\n".join(str(1000 + row) for row in range(made.n_rows))
        (made.root / f"{HOLDER}.csv").write_text(f"row\n{ids}\n")
        yield made


def told(network: Network) -> str:
    """Where the password stands in what nodes wrote, files, logs and the audit; empty: nowhere."""
    needles = [PASSWORD.encode(), PASSWORD.replace("!", "%21").encode()]
    found = [path for path in network.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(found) > 20
    return ", ".join(str(path) for path in found if any(one in path.read_bytes() for one in needles))


def test_nodes_outlive_their_database(network: Network, server: PostgreSQL) -> None:
    """It dies in the middle of a learning, and in a prediction; the model is that of files, bit for bit."""
    network.serve(*network.names, GAL_DATA_PASSWORD=PASSWORD)
    learning = network.beside(network.learn)
    network.allow("lab", 1)
    network.until_round(1)
    server.stop()  # rounds need the view only
    network.allow("lab")
    assert learning.result()["rounds"] == 3
    assert not any(network.missed().values())
    with pytest.raises(
        GALError, match=r"cannot be reached \(tried 4 times\): .*Start it, or correct"
    ) as error:
        network.predictions()
    assert PASSWORD not in str(error.value)
    server.start()
    network.check_same()
    assert told(network) == ""


def test_a_wrong_password_is_said_and_not_told(network: Network) -> None:
    wrong = PASSWORD + "-not"
    network.serve(*network.names, GAL_DATA_PASSWORD=wrong)
    with pytest.raises(GALError, match=r"refuses this node: .*authentication failed.*password_file") as error:
        network.learn()
    assert PASSWORD not in str(error.value)
    assert told(network) == ""
