"""Online prediction: what applications send, and what they get."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from gal.errors import InvalidInputError, TaskError
from gal.node.holder import endpoint as module
from gal.node.holder.endpoint import Endpoint
from patience import patient
from small_network import LABEL, ROW_ID, Network, numbers, running

OPTIONS: dict[str, Any] = {"rounds": 2, "cross_validation": 0, "validation_fraction": 0.0}


def tables(n: int = 70) -> dict[str, pd.DataFrame]:
    """Ids of text with leading zeros, and a column of text."""
    made = numbers(n)
    for table in made.values():
        table[ROW_ID] = [f"p{one:06d}" for one in table[ROW_ID]]
    made["clinic"].insert(1, "town", [["north", "south"][place % 2] for place in range(n)])
    return made


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    models = {"clinic": 'use = "tabular"'}
    with running(Network(tmp_path_factory.mktemp("net"), tables(), models=models)) as made:
        made.invite("risk", **OPTIONS)
        made.learn("risk")
        yield made


@pytest.fixture(scope="module")
def served(network: Network) -> Iterator[Endpoint]:
    with Endpoint(network.holder, "risk", "127.0.0.1:0", 20.0) as serving:
        yield serving


def ask(served: Endpoint, body: Any, path: str = "/predict", method: str = "POST") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=patient(60))
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, None if method == "GET" else data)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def batch(network: Network) -> dict[str, float]:
    ids = network.tables["clinic"][[ROW_ID]]
    path = network.root / "batch.csv"
    ids.to_csv(path, index=False)
    rows = network.holder.predict_file("risk", path, join=patient(20.0))["rows"]
    return {row["id"]: row["prediction"] for row in rows}


def test_by_ids_as_in_a_batch(network: Network, served: Endpoint) -> None:
    expected = batch(network)
    ids = ["p001003", "p001000", "p001042"]
    status, said = ask(served, {"ids": ids})
    assert status == 200
    assert [row["id"] for row in said["predictions"]] == ids
    assert [row["prediction"] for row in said["predictions"]] == [expected[one] for one in ids]
    assert (said["version"], said["n_rows"], said["degraded"], said["missing"]) == (1, 3, 0, {})


def test_by_rows_with_own_columns(network: Network, served: Endpoint) -> None:
    expected = batch(network)
    own = network.tables["clinic"].drop(columns=[LABEL]).set_index(ROW_ID)
    rows = [{"id": one} | own.loc[one].to_dict() for one in ("p001003", "p001000")]
    status, said = ask(served, {"rows": [dict(reversed(row.items())) for row in rows]})
    assert status == 200, said
    assert [row["prediction"] for row in said["predictions"]] == [expected["p001003"], expected["p001000"]]
    status, said = ask(served, {"rows": [rows[0] | {"town": None, "clinic_b": None}]})
    assert status == 200
    assert said["missing"] == {}
    assert said["predictions"][0]["prediction"] != expected["p001003"]


def test_rows_without_all_own_columns(served: Endpoint) -> None:
    status, said = ask(served, {"rows": [{"id": "p001003", "town": "north"}]})
    assert status == 400, said
    assert "rows lack the own columns clinic_a, clinic_b" in said["error"]


def test_an_unknown_row_is_degraded(served: Endpoint) -> None:
    status, said = ask(served, {"ids": ["p001003", "p999999"]})
    assert status == 200
    assert [row["degraded"] for row in said["predictions"]] == [False, True]
    assert said["unknown"] == {"clinic": 1, "lab": 1, "ward": 1}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 50_000, "not JSON"),
        ([1, 2], "the request needs"),
        ({"ids": ["a"], "rows": []}, "the request needs"),
        ({}, "the request needs"),
        ({"ids": []}, "at least one"),
        ({"ids": "p001003"}, "a list"),
        ({"ids": [3, 4]}, "ids must be text, got integer"),
        ({"ids": [3, "a"]}, "ids"),
        ({"ids": [None]}, "no id"),
        ({"ids": [["a"]]}, "ids"),
        ({"ids": [{"a": 1}]}, "ids"),
        ({"ids": ["a", "a"]}, "'a'"),
        ({"rows": []}, "at least one"),
        ({"rows": [{"town": "north"}]}, '"id"'),
        ({"rows": ["p001003"]}, '"id"'),
        ({"rows": {"id": "a"}}, '"id"'),
    ],
    ids=lambda value: str(value)[:30],
)
def test_requests_that_cannot_be_answered(served: Endpoint, body: Any, said: str) -> None:
    status, answer = ask(served, body)
    assert status == 400, answer
    assert said in answer["error"]
    assert ask(served, {"ids": ["p001003"]})[0] == 200


def test_paths_and_methods(served: Endpoint) -> None:
    assert ask(served, {}, "/elsewhere")[0] == 404
    assert ask(served, {}, "/elsewhere", "GET")[0] == 404
    status, said = ask(served, {}, "/health", "GET")
    assert (status, said) == (200, {"task": "risk", "version": 1, "connected": ["lab", "ward"]})


def raw(served: Endpoint, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", served.port), timeout=patient(60)) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()


@pytest.mark.parametrize("length", [b"99999999999", b"-1", b"many", b"\xb2", b""])
def test_lengths_that_cannot_be(served: Endpoint, length: bytes) -> None:
    answer = raw(served, b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\n\r\n{}")
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert str(module.LARGEST).encode() in answer
    assert ask(served, {"ids": ["p001003"]})[0] == 200


def test_one_that_hangs_up_in_the_middle(served: Endpoint) -> None:
    raw(served, b'POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{"ids"')
    assert ask(served, {"ids": ["p001003"]})[0] == 200


def test_one_connection_for_many_requests(served: Endpoint) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=patient(60))
    try:
        for body, status in (({"ids": ["p001003"]}, 200), ({"ids": []}, 400), ({"ids": ["p001004"]}, 200)):
            connection.request("POST", "/predict", json.dumps(body))
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
            assert not answer.will_close
    finally:
        connection.close()


def test_many_at_once(network: Network, served: Endpoint) -> None:
    expected = batch(network)
    found: dict[str, Any] = {}

    def one(name: str) -> None:
        found[name] = ask(served, {"ids": [name]})

    names = list(expected)[:12]
    threads = [threading.Thread(target=one, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: said["predictions"][0]["prediction"] for name, (_, said) in found.items()} == {
        name: expected[name] for name in names
    }


def test_what_cannot_be_served(network: Network) -> None:
    with pytest.raises(TaskError, match="no own task"):
        Endpoint(network.holder, "other", "127.0.0.1:0")
    for address in ("nonsense", "127.0.0.1:99999", "256.1.1.1:80"):
        with pytest.raises(InvalidInputError):
            Endpoint(network.holder, "risk", address)
    with (
        Endpoint(network.holder, "risk", "127.0.0.1:0") as serving,
        pytest.raises(InvalidInputError, match="in use"),
    ):
        Endpoint(network.holder, "risk", f"127.0.0.1:{serving.port}")


def test_what_changes_while_it_runs(network: Network, served: Endpoint) -> None:
    """A new version answers at once, so does a rollback; one who is away is named; a forgotten task is gone."""
    record = network.nodes["clinic"].state.find_task("risk")
    first = ask(served, {"ids": ["p001003"]})[1]
    grown = tables(90)
    for name, table in grown.items():
        network.write(name, table)
    network.learn("risk")
    second = ask(served, {"ids": ["p001003"]})[1]
    assert (first["version"], second["version"]) == (1, 2)
    assert first["predictions"] != second["predictions"]
    network.nodes["clinic"].state.set_active(record.id, 1)
    assert ask(served, {"ids": ["p001003"]})[1] == first
    network.stop("ward")
    status, said = ask(served, {"ids": ["p001003"]})
    assert status == 200
    assert set(said["missing"]) == {"ward"}
    assert said["degraded"] == 1
    network.start("ward")
    network.wait_until_joined(record)
    network.nodes["clinic"].state.forget(record.id)
    status, said = ask(served, {"ids": ["p001003"]})
    assert status == 503
    assert "forgotten" in said["error"]
