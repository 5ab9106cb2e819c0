"""A partner's changed data are visible: to its operator in words, to the label holder as a flag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.node.admin.doctor import examine
from small_network import ROW_ID, Network, numbers, running

OPTIONS: dict[str, Any] = {"rounds": 2, "cross_validation": 0, "validation_fraction": 0.0}


@pytest.fixture
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with running(Network(tmp_path_factory.mktemp("net"), numbers(120))) as made:
        made.invite("risk", **OPTIONS)
        made.learn("risk")
        yield made


def predict(network: Network, folder: Path, ids: pd.DataFrame) -> dict[str, Any]:
    ids.to_csv(folder / "new.csv", index=False)
    return network.holder.predict_file("risk", folder / "new.csv", join=20.0)


def said_by_doctor(network: Network, name: str) -> list[tuple[bool | None, str]]:
    return [(one.ok, one.said) for one in examine(network.root / name) if one.what == "changes"]


def test_a_shuffled_column_is_noticed(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = network.tables["clinic"][[ROW_ID]]
    metric = network.nodes["ward"].records.metrics.registry.get_sample_value
    assert predict(network, tmp_path, ids)["changed"] == []
    assert metric("gal_data_changed", {"task": "risk"}) == 0
    assert [ok for ok, _ in said_by_doctor(network, "ward")] == [True]
    warned: list[dict[str, Any]] = []
    monkeypatch.setattr(network.nodes["ward"].service.log, "warning", lambda what, **how: warned.append(how))
    shuffled = network.tables["ward"].copy()
    shuffled["ward_a"] = np.random.default_rng(0).permutation(shuffled["ward_a"])
    network.write("ward", shuffled)
    found = predict(network, tmp_path, ids)
    assert found["changed"] == ["ward"]
    predict(network, tmp_path, ids)
    assert metric("gal_data_changed", {"task": "risk"}) == 1
    assert len(warned) == 1  # not with every prediction
    assert "rows that it learned from have other values now" in warned[0]["how"]
    [(ok, said)] = said_by_doctor(network, "ward")
    assert ok is None
    assert "version 1 of 'risk'" in said
    assert [ok for ok, _ in said_by_doctor(network, "lab")] == [True]


def test_nothing_but_a_flag_leaves(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[Any] = []
    resolve = network.nodes["clinic"].assistants._resolve

    def noting(stream: Any, received: Any) -> None:
        came.append((stream.peer, received.message.fields))
        resolve(stream, received)

    monkeypatch.setattr(network.nodes["clinic"].assistants, "_resolve", noting)
    changed = network.tables["ward"].assign(ward_a=lambda one: one["ward_a"] + 100)
    network.write("ward", changed)
    predict(network, tmp_path, network.tables["clinic"][[ROW_ID]])
    fields = dict(came)
    assert set(fields["lab"]) - {"changed"} == {"answers", "rows"}
    assert not fields["lab"].get("changed")
    assert set(fields["ward"]) == {"answers", "rows", "changed"}
    assert fields["ward"]["changed"] is True
