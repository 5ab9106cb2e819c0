"""The benchmark of nodes still runs, on few rows; its figures are for people to read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")
pytest.importorskip("duckdb")

from benchmark_scripts import BENCHMARKS, load_benchmark


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield load_benchmark("nodes")


@pytest.fixture(scope="module")
def network(nodes: Any) -> Any:
    """What it measures on."""
    return sys.modules["node_parts.network"]


def test_sources_are_the_same_rows_in_another_order(network: Any, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    network.make_sources(network.Scene(50, 3), tmp_path)
    tables = {path.parent.name: pq.read_table(path) for path in tmp_path.glob("*/rows.parquet")}
    assert set(tables) == {network.OWN, *network.OTHERS}
    ids = [tuple(table.column("id").to_pylist()) for table in tables.values()]
    assert len(set(ids)) == 4
    assert len({frozenset(one) for one in ids}) == 1
    assert [name for name, table in tables.items() if "label" in table.column_names] == [network.OWN]


@pytest.mark.slow
def test_all_parts_run_on_few_rows(nodes: Any) -> None:
    found = nodes.rounds_report(nodes.Scene(3_000, rounds=3))
    assert found["rounds"] == 2
    assert 0 < found["slowest fit"] < found["round"]
    wire = nodes.bytes_report(nodes.Scene(3_000, rounds=3))
    assert wire["from an organization"] > wire["4 N K"]
    assert wire["from an organization / 4 N K"] < 2
    asked = nodes.predict_report(nodes.Scene(3_000, rounds=2), requests=5)
    assert 0 < asked["endpoint p50"] <= asked["endpoint p95"]
    sums = nodes.sums_report(3_000, rounds=3)
    assert 1 < sums["bytes back, x of answers"] < 2.2
    held = nodes.memory_report(nodes.Scene(3_000, 4, nodes.LEAN, rounds=2))
    assert held["MB idle"] > 10
