"""Online prediction: what applications send, and what they get."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.alignment import RowIds
from gal.errors import ConfigurationError, InvalidInputError, TaskError
from gal.node.label_holder.predicting import NodePrediction
from gal.node.runtime.web import app as module
from gal.node.runtime.web.predictions import SharedExchanges
from gal.node.store.files import ensure_token
from patience import LONGEST, patient
from sites import Site, site_of
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
def site(network: Network) -> Iterator[Site]:
    with site_of(network, "clinic") as made:
        yield made


def batch(network: Network) -> dict[str, float]:
    ids = network.tables["clinic"][[ROW_ID]]
    path = network.root / "batch.csv"
    ids.to_csv(path, index=False)
    rows = network.holder.predict_file("risk", path, join=patient(20.0))["rows"]
    return {row["id"]: row["prediction"] for row in rows}


def test_by_ids_as_in_a_batch(network: Network, site: Site) -> None:
    expected = batch(network)
    ids = ["p001003", "p001000", "p001042"]
    status, said = site.predict({"ids": ids})
    assert status == 200
    assert [row["id"] for row in said["predictions"]] == ids
    assert [row["prediction"] for row in said["predictions"]] == [expected[one] for one in ids]
    assert (said["version"], said["n_rows"], said["degraded"], said["missing"]) == (1, 3, 0, {})


def test_by_rows_with_own_columns(network: Network, site: Site) -> None:
    expected = batch(network)
    own = network.tables["clinic"].drop(columns=[LABEL]).set_index(ROW_ID)
    rows = [{"id": one} | own.loc[one].to_dict() for one in ("p001003", "p001000")]
    status, said = site.predict({"rows": [dict(reversed(row.items())) for row in rows]})
    assert status == 200, said
    assert [row["prediction"] for row in said["predictions"]] == [expected["p001003"], expected["p001000"]]
    status, said = site.predict({"rows": [rows[0] | {"town": None, "clinic_b": None}]})
    assert status == 200
    assert said["missing"] == {}
    assert said["predictions"][0]["prediction"] != expected["p001003"]


def test_rows_without_all_own_columns(site: Site) -> None:
    status, said = site.predict({"rows": [{"id": "p001003", "town": "north"}]})
    assert status == 400, said
    assert "rows lack the own columns clinic_a, clinic_b" in said["error"]


def test_an_unknown_row_is_degraded(site: Site) -> None:
    status, said = site.predict({"ids": ["p001003", "p999999"]})
    assert status == 200
    assert [row["degraded"] for row in said["predictions"]] == [False, True]
    assert said["unknown"] == {"clinic": 1, "lab": 1, "ward": 1}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "Invalid JSON"),
        (b"[" * 50_000, "recursion"),
        ([1, 2], "must be"),
        ({"ids": ["a"], "rows": [{"id": "a"}]}, "the request needs"),
        ({"ids": []}, "at least 1 item"),
        ({"ids": "p001003"}, "ids: Input should be a valid"),
        ({"ids": [3, 4]}, "ids must be text, got integer"),
        ({"ids": [None]}, "no id"),
        ({"ids": [{"a": 1}]}, "ids"),
        ({"ids": ["a", ["b", "c"]]}, "these values cannot name rows"),
        (gzip.compress(b'{"ids": ["p001003"]}', mtime=0), "Invalid JSON"),
        ({"ids": ["a", "a"]}, "'a'"),
        ({"rows": [{"town": "north"}]}, '"id"'),
        ({"rows": {"id": "a"}}, "rows: Input should be a valid"),
        ({"rows": [{"id": "p001003", "town": "\ud800"}]}, "Invalid JSON"),
        (b'{"ids": [' + b"1," * 1_000_000 + b"1]}", "at most 1000000 items"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_requests_that_cannot_be_answered(site: Site, body: Any, said: str) -> None:
    status, answer = site.predict(body)
    assert status == 400, answer
    assert said in answer["error"]
    assert site.predict({"ids": ["p001003"]})[0] == 200


def test_paths_and_methods(site: Site) -> None:
    assert site.json("/elsewhere", {})[0] == site.json("/elsewhere")[0] == 404
    assert site.json("/v1/predict")[0] == 405


def raw(site: Site, request: bytes) -> bytes:
    """What comes back first."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=patient(60)) as connection:
        connection.sendall(request)
        answer = connection.recv(10_000)
        while answer and b"\r\n\r\n" not in answer:
            answer += connection.recv(10_000)
        return answer + (b"" if b"400 Bad" not in answer or b"}" in answer else connection.recv(10_000))


def head(site: Site, *lines: bytes) -> bytes:
    token = site.bearer["Authorization"].encode()
    return b"\r\n".join(
        (b"POST /v1/predict HTTP/1.1", b"Host: localhost", b"Authorization: " + token, *lines, b"", b"")
    )


@pytest.mark.parametrize(
    "length", [b"99999999999", b"-1", b"many", b"\xb2", b"", b"9" * 5000], ids=lambda one: repr(one)[:20]
)
def test_lengths_that_cannot_be(site: Site, length: bytes) -> None:
    answer = raw(site, head(site, b"Content-Length: " + length) + b"{}")
    assert answer.startswith(b"HTTP/1.1 400"), answer
    if length == b"99999999999":
        assert str(module.LARGEST).encode() in answer
    assert site.predict({"ids": ["p001003"]})[0] == 200


def test_a_body_larger_than_it_says_nothing_of(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 10)
    chunk = b"20\r\n" + b" " * 32 + b"\r\n0\r\n\r\n"
    answer = raw(site, head(site, b"Transfer-Encoding: chunked") + chunk)
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert b"at most 10 bytes" in answer


def test_a_slow_request_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", site.port), timeout=patient(60)) as connection:
        connection.sendall(head(site, b"Content-Length: 500"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    ("headers", "status", "said"),
    [
        ({}, 401, "http.token"),
        ({"Authorization": "Bearer guessed"}, 401, "http.token"),
        ({"Authorization": "Basic dXNlcjpwYXNz"}, 401, "http.token"),
        ({"Host": "evil.example"}, 421, "host name"),
        ({"Origin": "https://evil.example"}, 403, "other origins"),
        ({"Origin": "null"}, 403, "other origins"),
        ({"Origin": "http://localhost:1", "Host": "localhost"}, 200, None),
    ],
    ids=str,
)
def test_who_may_ask(site: Site, headers: dict[str, str], status: int, said: str | None) -> None:
    found, answer = site.predict({"ids": ["p001003"]}, headers=headers, token=status != 401)
    assert found == status, answer
    assert said is None or said in answer["error"]


def test_alive_without_a_token_and_described_with_one(site: Site) -> None:
    assert site.json("/livez", token=False) == (200, {"alive": True})
    assert site.json("/openapi.json", token=False)[0] == 401
    status, described = site.json("/openapi.json")
    assert status == 200
    assert "requestBody" in described["paths"]["/v1/predict"]["post"]


def test_the_token_is_the_users_alone(tmp_path: Path) -> None:
    token = ensure_token(tmp_path)
    assert ensure_token(tmp_path) == token
    path = tmp_path / "http.token"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        ensure_token(tmp_path)
    path.chmod(0o600)
    path.write_text("x\n")
    with pytest.raises(ConfigurationError, match="holds no token"):
        ensure_token(tmp_path)


def test_one_connection_for_many_requests(site: Site) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=patient(60))
    try:
        for body, status in (({"ids": ["p001003"]}, 200), ({"ids": []}, 400), ({"ids": ["p001004"]}, 200)):
            connection.request("POST", "/v1/predict", json.dumps(body), site.bearer)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
            assert not answer.will_close
    finally:
        connection.close()


def test_an_address_without_a_socket(network: Network) -> None:
    with site_of(network, "clinic") as there:
        for address in ("nonsense", "127.0.0.1:99999", "256.1.1.1:80", f"127.0.0.1:{there.port}"):
            with pytest.raises(InvalidInputError), site_of(network, "clinic", address):
                pass


def test_what_changes_while_it_runs(network: Network, site: Site) -> None:
    """A new version answers at once, so does a rollback; one who is away is
    named; a forgotten task is gone.
    """
    record = network.nodes["clinic"].state.find_task("risk")
    first = site.predict({"ids": ["p001003"]})[1]
    grown = tables(90)
    for name, table in grown.items():
        network.write(name, table)
    network.learn("risk")
    second = site.predict({"ids": ["p001003"]})[1]
    assert (first["version"], second["version"]) == (1, 2)
    assert first["predictions"] != second["predictions"]
    network.nodes["clinic"].state.set_active(record.id, 1)
    assert site.predict({"ids": ["p001003"]})[1] == first
    network.stop("ward")
    status, said = site.predict({"ids": ["p001003"]})
    assert status == 200
    assert set(said["missing"]) == {"ward"}
    assert said["degraded"] == 1
    network.start("ward")
    network.wait_until_joined(record)
    network.nodes["clinic"].state.forget(record.id)
    status, said = site.predict({"task": "risk", "ids": ["p001003"]})
    assert status == 400
    assert "no own task" in said["error"]


def test_beyond_this_machine_it_speaks_tls(network: Network) -> None:
    with site_of(network, "clinic", "0.0.0.0:0") as site:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # a client pins the certificate of the node
        connection = http.client.HTTPSConnection("127.0.0.1", site.port, timeout=patient(60), context=context)
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        connection.close()
        with pytest.raises((http.client.HTTPException, OSError)):
            site.json("/livez")


# Requests that come together


def predicted(ids: RowIds) -> NodePrediction:
    """Ten times the id; odd rows are unknown to the lab."""
    values = ids.values.astype(np.float64)[:, None] * 10
    odd = ids.values % 2 == 1
    return NodePrediction(values, values, None, odd, {}, {"lab": odd}, 1)


def of(*values: int) -> RowIds:
    return RowIds("integer", np.array(values))


def exchanged(requests: list[RowIds], lanes: int, wrong: bool = False) -> tuple[list[Any], list[list[int]]]:
    """What each gets, where the first is under way when the others come; and what was asked for together."""
    free, begun, asked = threading.Event(), threading.Semaphore(0), list[list[int]]()

    def exchange(ids: RowIds) -> NodePrediction:
        asked.append(ids.values.tolist())
        begun.release()
        assert free.wait(LONGEST)
        if wrong:
            raise TaskError("forgotten")
        return predicted(ids)

    async def run() -> list[Any]:
        exchanges = SharedExchanges(exchange, lanes)
        tasks = []
        for number, one in enumerate(requests):
            tasks.append(asyncio.ensure_future(exchanges.ask(one)))
            if number < lanes:  # it does not wait for those before
                await asyncio.to_thread(begun.acquire, timeout=LONGEST)
        await asyncio.sleep(0)
        free.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        exchanges.close()
        return found

    return asyncio.run(run()), asked


@pytest.mark.parametrize(
    ("lanes", "expected"),
    [(1, [[1], [2, 5, 3]]), (3, [[1], [2, 5], [5, 3]])],
    ids=["one at a time", "side by side"],
)
def test_what_comes_while_others_are_under_way_goes_together(lanes: int, expected: list[list[int]]) -> None:
    found, asked = exchanged([of(1), of(2, 5), of(5, 3)], lanes)
    assert [one.output[:, 0].tolist() for one in found] == [[10], [20, 50], [50, 30]]
    assert [one.unknown for one in found] == [{"lab": 1}, {"lab": 1}, {"lab": 2}]
    assert asked == expected


def test_what_goes_wrong_is_told_to_all() -> None:
    found, asked = exchanged([of(1), of(2), of(3)], 1, wrong=True)
    assert [type(one) for one in found] == [TaskError] * 3
    assert asked == [[1], [2, 3]]
