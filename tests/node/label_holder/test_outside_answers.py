"""An organization that was honest in learning and then answers anything does no more
harm than one that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.node.worker.local_work import LocalWork
from patience import LONGEST, patient
from small_network import LABEL, ROW_ID, Network, numbers, running

OPTIONS: dict[str, Any] = {"rounds": 3, "cross_validation": 0, "validation_fraction": 0.0}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with running(Network(tmp_path_factory.mktemp("net"), numbers(200))) as made:
        made.invite("risk", **OPTIONS)
        made.learn("risk")
        yield made


@pytest.fixture
def ward_says(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Have the ward multiply what it answers in prediction."""
    honest = LocalWork._for_others

    def make(factor: float) -> None:
        def turned(self: LocalWork, *given: Any) -> Any:
            found = honest(self, *given)
            with np.errstate(over="ignore"):
                return np.float32(factor) * found if self.configuration.name == "ward" else found

        monkeypatch.setattr(LocalWork, "_for_others", turned)

    return make


def predict(
    network: Network, folder: Path, rows: slice = slice(None), *, join: float = patient(20.0)
) -> dict[str, Any]:
    table = network.tables["clinic"][[ROW_ID]].iloc[rows]
    table.to_csv(folder / "new.csv", index=False)
    network.holder.predictor.close()  # each test begins with no bad name
    return network.holder.predict_file("risk", folder / "new.csv", join=join)


def rmse(network: Network, found: dict[str, Any]) -> float:
    said = pd.Series({row["id"]: row["prediction"] for row in found["rows"]})
    true = network.tables["clinic"].set_index(ROW_ID)[LABEL].loc[said.index]
    return float(np.sqrt(np.mean((said - true) ** 2)))


@pytest.mark.parametrize("factor", [-20.0, 1e30])
def test_no_more_harm_than_missing(
    network: Network, tmp_path: Path, ward_says: Callable[[float], None], factor: float
) -> None:
    record = network.nodes["clinic"].state.find_task("risk")
    assistants = network.nodes["clinic"].assistants
    network.stop("ward")
    assert assistants.wait_for(lambda: "ward" not in assistants.present(record.id), LONGEST)
    missing = predict(network, tmp_path, join=0.0)
    assert set(missing["missing"]) == {"ward"}
    network.start("ward")
    network.wait_until_joined(record)
    ward_says(factor)
    found = predict(network, tmp_path)
    assert rmse(network, found) == rmse(network, missing)
    assert found["degraded"] == len(found["rows"])
    assert "none of its predictions is used" in found["missing"]["ward"]
    assert found["outside"]["ward"] > 100
    peers = network.nodes["clinic"].records.activity.facts()["peers"]
    assert peers["ward"]["outside"] >= found["outside"]["ward"]


def test_drift_is_told_and_counted(
    network: Network, tmp_path: Path, ward_says: Callable[[float], None]
) -> None:
    ward_says(0.01)
    found = predict(network, tmp_path)
    assert (set(found["drifted"]), found["outside"], found["degraded"]) == ({"ward"}, {}, 0)
    peers = network.nodes["clinic"].records.activity.facts()["peers"]
    assert peers["ward"]["drift"] == found["drifted"]["ward"]
    assert peers["lab"]["drift"] == 0
