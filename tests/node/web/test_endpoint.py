"""Online prediction: what applications send, and what they get."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gal.errors import ConfigurationError, InvalidInputError, TaskError
from gal.node.web import app as module
from gal.node.web.endpoint import Endpoint
from gal.node.web.token import ensure_token
from live_nodes import eventually
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


def bearer(served: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {ensure_token(served._holder.node.configuration.home)}"}


def ask(
    served: Endpoint,
    body: Any,
    path: str = "/predict",
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=patient(60))
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, None if method == "GET" else data, headers or bearer(served))
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
        ({"ids": ["a", ["b", "c"]]}, "ids of mixed types: 1 of type str, 1 of type list"),
        (gzip.compress(b'{"ids": ["p001003"]}', mtime=0), "not JSON"),
        ({"ids": ["a", "a"]}, "'a'"),
        ({"rows": []}, "at least one"),
        ({"rows": [{"town": "north"}]}, '"id"'),
        ({"rows": ["p001003"]}, '"id"'),
        ({"rows": {"id": "a"}}, '"id"'),
        ({"rows": [{"id": "p001003", "town": "\ud800"}]}, "not JSON"),
        (b'{"ids": [' + b"1," * 1_000_000 + b"1]}", "at most 1,000,000 rows"),
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
    """What comes back first."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=patient(60)) as connection:
        connection.sendall(request)
        answer = connection.recv(10_000)
        while answer and b"\r\n\r\n" not in answer:
            answer += connection.recv(10_000)
        return answer + (b"" if b"400 Bad" not in answer or b"}" in answer else connection.recv(10_000))


def head(served: Endpoint, *lines: bytes) -> bytes:
    token = bearer(served)["Authorization"].encode()
    return b"\r\n".join(
        (b"POST /predict HTTP/1.1", b"Host: localhost", b"Authorization: " + token, *lines, b"", b"")
    )


@pytest.mark.parametrize(
    "length", [b"99999999999", b"-1", b"many", b"\xb2", b"", b"9" * 5000], ids=lambda one: repr(one)[:20]
)
def test_lengths_that_cannot_be(served: Endpoint, length: bytes) -> None:
    answer = raw(served, head(served, b"Content-Length: " + length) + b"{}")
    assert answer.startswith(b"HTTP/1.1 400"), answer
    if length == b"99999999999":
        assert str(module.LARGEST).encode() in answer
    assert ask(served, {"ids": ["p001003"]})[0] == 200


def test_a_body_larger_than_it_says_nothing_of(served: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 10)
    chunk = b"20\r\n" + b" " * 32 + b"\r\n0\r\n\r\n"
    answer = raw(served, head(served, b"Transfer-Encoding: chunked") + chunk)
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert b"at most 10 bytes" in answer


def test_a_slow_request_is_not_waited_for(served: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", served.port), timeout=patient(60)) as connection:
        connection.sendall(head(served, b"Content-Length: 500"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    ("headers", "status", "said"),
    [
        ({}, 401, "http.token"),
        ({"Authorization": "Bearer guessed"}, 401, "http.token"),
        ({"Authorization": "Basic dXNlcjpwYXNz"}, 401, "http.token"),
        ({"Host": "evil.example"}, 421, "host name"),
        ({"Origin": "https://evil.example"}, 403, "other pages"),
        ({"Origin": "null"}, 403, "other pages"),
        ({"Origin": "http://localhost:1", "Host": "localhost"}, 200, None),
    ],
    ids=str,
)
def test_who_may_ask(served: Endpoint, headers: dict[str, str], status: int, said: str | None) -> None:
    shown = headers if status == 401 else bearer(served) | headers
    found, answer = ask(served, {"ids": ["p001003"]}, headers=shown or {"X": "none"})
    assert found == status, answer
    assert said is None or said in answer["error"]


def test_alive_without_a_token_and_described_with_one(served: Endpoint) -> None:
    assert ask(served, {}, "/livez", "GET", {"X": "none"}) == (200, {"alive": True})
    assert ask(served, {}, "/openapi.json", "GET", {"X": "none"})[0] == 401
    status, described = ask(served, {}, "/openapi.json", "GET")
    assert status == 200
    assert "requestBody" in described["paths"]["/predict"]["post"]


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


def test_one_that_hangs_up_in_the_middle(served: Endpoint) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=patient(60)) as connection:
        connection.sendall(head(served, b"Content-Length: 500") + b'{"ids"')
    assert ask(served, {"ids": ["p001003"]})[0] == 200


def test_one_connection_for_many_requests(served: Endpoint) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=patient(60))
    try:
        for body, status in (({"ids": ["p001003"]}, 200), ({"ids": []}, 400), ({"ids": ["p001004"]}, 200)):
            connection.request("POST", "/predict", json.dumps(body), bearer(served))
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


def test_not_ready_while_nobody_else_is_there(network: Network, served: Endpoint) -> None:
    nobody = {"X": "none"}
    eventually(lambda: ask(served, {}, "/readyz", "GET", nobody)[0] == 200, "all are there")
    for name in ("lab", "ward"):
        network.stop(name)
    eventually(lambda: ask(served, {}, "/readyz", "GET", nobody)[0] == 503, "they are gone")
    problems = ask(served, {}, "/readyz", "GET")[1]["problems"]
    assert problems["quorum"].startswith("risk: 1 of 3 organizations are there, not lab, ward")
    assert problems.keys() == {"quorum"}
    assert ask(served, {}, "/livez", "GET", nobody)[0] == 200
    for name in ("lab", "ward"):
        network.start(name)
    network.wait_until_joined(network.nodes["clinic"].state.find_task("risk"))
    assert ask(served, {}, "/readyz", "GET", nobody)[0] == 200


def test_what_changes_while_it_runs(network: Network, served: Endpoint) -> None:
    """A new version answers at once, so does a rollback; one who is away is
    named; a forgotten task is gone.
    """
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


def test_beyond_this_machine_it_speaks_tls(network: Network) -> None:
    network.invite("elsewhere", **OPTIONS)
    network.learn("elsewhere")
    with Endpoint(network.holder, "elsewhere", "0.0.0.0:0") as serving:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # a client pins the certificate of the node
        connection = http.client.HTTPSConnection(
            "127.0.0.1", serving.port, timeout=patient(60), context=context
        )
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        connection.close()
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(serving, {}, "/livez", "GET")
