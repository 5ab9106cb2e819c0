"""The HTTP app of a running node: access, the facts of the page, health and metrics."""

from __future__ import annotations

import http.client
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from urllib.error import HTTPError

import pytest

from gal.node.config.configuration import LEDGER
from gal.node.label_holder.holder_node import CONNECTED
from gal.node.runtime.web import node_facts
from gal.node.runtime.web.app import HEADERS
from gal.node.runtime.web.metrics import NodeMetrics
from gal.privacy.ledger import Budget
from patience import patient, until
from sites import Site, site_of
from small_network import Network, numbers, running

OPTIONS: dict[str, Any] = {"rounds": 3, "cross_validation": 0, "validation_fraction": 0.25}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with running(Network(tmp_path_factory.mktemp("net"), numbers(80))) as made:
        made.invite("risk", **OPTIONS)
        made.learn("risk")
        made.invite("other", **OPTIONS)
        yield made


@pytest.fixture
def _other_learned(network: Network) -> None:
    """For what looks at both tasks, whichever tests ran before in this process."""
    state = network.nodes["clinic"].state
    if not state.learned_versions(state.find_task("other").id):
        network.learn("other")


@pytest.fixture(scope="module")
def sites(network: Network) -> Iterator[dict[str, Site]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(site_of(network, name)) for name in ("clinic", "lab")}


@pytest.fixture(scope="module")
def site(sites: dict[str, Site]) -> Site:
    until(lambda: sites["clinic"].json("/readyz")[0] == 200, "the start")
    return sites["clinic"]


# Access


def test_the_files_of_the_page_are_for_everybody_and_hold_nothing(site: Site) -> None:
    for path in ("/", "/page.css", "/page.js"):
        status, content, headers = site.raw(path, token=False)
        assert status == 200
        assert b"clinic" not in content
        assert {name: headers[name] for name in HEADERS} == HEADERS
        outside = re.findall(rb"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", content)
        assert not outside, f"{path} loads something from elsewhere"
    assert b"innerHTML =" not in site.raw("/page.js", token=False)[1], (
        "names of others become text, never HTML"
    )


@pytest.mark.parametrize(
    "path", ["/v1/node", "/v1/events", "/v1/versions", "/v1/audit", "/v1/privacy", "/metrics"]
)
def test_all_else_needs_the_token(site: Site, path: str) -> None:
    assert site.raw(path, token=False)[0] == 401
    assert site.raw(path, headers={"Origin": "https://evil.example"})[0] == 403
    assert site.raw(path, headers={"Host": "evil.example"})[0] == 421


# What it shows


def test_what_the_node_is_doing(network: Network, site: Site) -> None:
    status, facts = site.json("/v1/node")
    assert status == 200
    assert (facts["organization"], facts["waiting"], facts["computing"]) == ("clinic", [], [])
    assert facts["learning"]["state"] == "finished"
    curve = facts["learning"]["curve"]
    assert [one["round"] for one in curve] == list(range(len(curve)))
    assert curve[-1]["train_loss"] < curve[0]["train_loss"]
    assert all(one["validation_loss"] is not None for one in curve)
    partners = {one["name"]: one for one in facts["partners"]}
    assert set(partners) == {"lab", "ward"}
    assert partners["lab"]["connected"]
    assert partners["lab"]["replied"] > network.nodes["clinic"].records.activity.started
    states = {one["name"]: one["state"] for one in facts["tasks"]}
    assert states == {"risk": "predicts with version 1", "other": "not learned yet"}
    members = {one["name"]: one["members"] for one in facts["tasks"]}
    assert members["risk"] == {"lab": CONNECTED, "ward": CONNECTED}


def test_a_learning_is_seen_while_it_goes_on(network: Network, site: Site) -> None:
    """Told at each round: the facts of that moment; at the end what came of it."""
    seen: list[dict[str, Any]] = []

    def look(event: Any) -> None:
        if event["event"] == "round":
            seen.append(site.json("/v1/node")[1])

    network.learn("other", on_event=look)
    learning = [one["learning"] for one in seen]
    assert [one["round"] for one in learning] == [1, 2, 3][: len(learning)]
    assert {(one["task"], one["rounds"], one["state"]) for one in learning} == {("other", 3, "learning")}
    assert [len(one["curve"]) for one in learning] == [one["round"] + 1 for one in learning]
    assert "learning now, 1 of at most 3 rounds done" in {one["state"] for one in seen[0]["tasks"]}
    assert site.json("/v1/node")[1]["learning"]["state"] == "finished"
    with pytest.raises(ZeroDivisionError):
        network.learn("other", on_event=lambda event: 1 / 0)
    learning_now = site.json("/v1/node")[1]["learning"]
    assert (learning_now["state"], learning_now["problem"]) == ("ended early", "division by zero")
    network.learn("other", anew=True)


def test_who_is_waited_for(network: Network, site: Site) -> None:
    network.wait_until_joined(network.nodes["clinic"].state.find_task("other"), "lab")
    network.stop("ward")
    seen: list[dict[str, Any]] = []

    def look(event: Any) -> None:
        if event["event"] == "waiting" and not seen:
            seen.append(site.json("/v1/node")[1])
            network.start("ward")

    network.learn("other", on_event=look)
    [waiting] = seen[0]["waiting"]
    assert (waiting["organization"], waiting["what"], waiting["connected"]) == ("ward", "connect", False)
    assert 0 < waiting["seconds_left"] <= patient(20.0)
    assert "gal_waited_for_seconds" in site.raw("/metrics")[1].decode()
    learning = seen[0]["learning"]
    assert (learning["round"], learning["rounds"]) == (0, 3), "known before the first round is done"


def test_events_come_as_they_happen(network: Network, site: Site) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=patient(60))
    connection.request("GET", "/v1/events", headers=site.bearer)
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    first = json.loads(answer.readline().removeprefix(b"data: "))
    network.nodes["clinic"].records.activity.predicted(0.1, 7, 0)
    answer.readline()
    second = json.loads(answer.readline().removeprefix(b"data: "))
    assert second["predictions"]["rows"] == first["predictions"]["rows"] + 7
    connection.close()


@pytest.mark.usefixtures("_other_learned")
def test_versions_and_tasks(site: Site) -> None:
    _, said = site.json("/v1/versions?task=risk")
    [version] = said["versions"]
    assert (version["task"], version["version"], version["active"]) == ("risk", 1, True)
    assert len(version["curve"]) == version["rounds_learned"] + 1
    assert {one["task"] for one in site.json("/v1/versions")[1]["versions"]} == {"risk", "other"}
    status, said = site.json("/v1/versions?task=nothing")
    assert (status, "no own task" in said["error"]) == (404, True)


def test_the_audit_log_filtered_and_verified(site: Site) -> None:
    _, said = site.json("/v1/audit?peer=lab&last=5")
    assert said["verified"] is None
    assert len(said["entries"]) == 5
    assert {one["peer"] for one in said["entries"]} == {"lab"}
    assert {one["direction"] for one in said["summary"]} >= {"in", "out"}
    _, anew = site.json("/v1/audit?verify=true&task=risk")
    assert anew["verified"]["holds"]
    assert {one["task_name"] for one in anew["entries"]} == {"risk"}


def test_the_privacy_account(site: Site) -> None:
    status, said = site.json("/v1/privacy")
    assert status == 200
    assert said["labels"][0]["unprotected"]


# Predictions


@pytest.mark.usefixtures("_other_learned")
def test_predictions_of_several_tasks(site: Site) -> None:
    ids = [1003, 1007]
    status, risk = site.json("/v1/predict", {"task": "risk", "ids": ids})
    assert status == 200, risk
    assert [one["id"] for one in risk["predictions"]] == ids
    assert site.json("/v1/predict?task=other", {"ids": ids})[0] == 200
    status, said = site.json("/v1/predict", {"ids": ids})
    assert (status, "say which task" in said["error"]) == (400, True)
    status, said = site.json("/v1/predict", {"task": "nothing", "ids": ids})
    assert (status, "no own task" in said["error"]) == (400, True)
    assert site.json("/v1/predict", {"task": 3, "ids": ids})[0] == 400
    predictions = site.json("/v1/node")[1]["predictions"]
    assert predictions["rows"] >= 4
    assert predictions["p50_seconds"] <= predictions["p99_seconds"]
    assert predictions["last_minute"] >= 2


def test_the_client_in_the_docs(site: Site) -> None:
    page = (Path(__file__).parents[4] / "docs/how-to/operate.md").read_text(encoding="utf-8")
    [code] = re.findall(r"<!-- client: runs as a test -->\n```python\n(.*?)```", page, re.DOTALL)
    known: dict[str, Any] = {"__name__": "client"}
    sys.modules["client"] = ModuleType("client")
    exec(code, known)
    client = known["NodeClient"](f"http://127.0.0.1:{site.port}", site.token)
    assert [one["id"] for one in client.predict("risk", [1003, 1007])] == [1003, 1007]
    assert client.ask("/v1/node")["organization"] == "clinic"
    with pytest.raises(HTTPError, match="400"):
        client.predict("nothing", [1])


# Health and metrics


def test_alive_started_ready(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert site.json("/livez", token=False) == (200, {"alive": True})
    status, said = site.json("/readyz", token=False)
    assert (status, said["ready"]) == (200, True)
    assert set(said["checks"]) == {"source", "quorum", "streams", "disk"}
    monkeypatch.setattr(node_facts, "LEAST_DISK", 1 << 62)
    status, said = site.json("/readyz", token=False)
    assert (status, said["checks"]["disk"], said["checks"]["source"]) == (503, False, True)
    status, said = site.json("/readyz")
    assert status == 503
    assert "make room" in said["problems"]["disk"]
    assert set(said["problems"]) == {"disk"}


def test_not_ready_without_a_source_or_a_quorum(network: Network, sites: dict[str, Site]) -> None:
    site, source = sites["clinic"], network.root / "clinic" / "rows.csv"
    hidden = source.with_suffix(".hidden")
    source.rename(hidden)
    assert "rows.csv" in site.json("/readyz")[1]["problems"]["source"]
    hidden.rename(source)
    network.stop("ward")
    until(lambda: site.json("/readyz")[0] == 200, "two of three are a quorum")
    network.nodes["lab"].links._links["clinic"].problem = "gone"
    assert "no stream to clinic" in sites["lab"].json("/readyz")[1]["problems"]["streams"]
    network.nodes["lab"].links._links["clinic"].problem = ""
    here = network.nodes["clinic"].assistants._streams.pop("lab")
    status, said = site.json("/readyz")
    network.nodes["clinic"].assistants._streams["lab"] = here
    network.start("ward")
    assert status == 503
    assert "1 of 3 organizations are there, not lab, ward" in said["problems"]["quorum"]


@pytest.mark.usefixtures("_other_learned")
def test_metrics_that_one_alerts_on(network: Network, site: Site) -> None:
    assert site.json("/v1/predict", {"task": "risk", "ids": [1003]})[0] == 200
    network.nodes["clinic"].records.activity.count("refusals", "too-few-rows")
    # Another test may just have started one again.
    until(lambda: "gal_connected_peers 2.0" in site.raw("/metrics")[1].decode(), "both are connected")
    text = site.raw("/metrics")[1].decode()
    for line in (
        "gal_learning 0.0",
        'gal_round{task="other"} 3.0',
        'gal_messages_total{direction="out",kind="fit",peer="lab"}',
        'gal_message_bytes_total{direction="in",kind="fitted",peer="ward"}',
        'gal_refusals_total{code="too-few-rows"} 1.0',
        'gal_seconds_since_message{peer="lab"}',
        'gal_missed_rounds{peer="lab"} 0.0',
        "gal_free_disk_bytes ",
        "gal_online_rows_total",
        "gal_online_degraded_total",
        'gal_online_seconds{percentile="99"}',
    ):
        assert line in text, f"{line} is not in the metrics"
    assert "gal_epsilon_left{" not in text


@pytest.mark.parametrize(("spent", "left"), [(0.5, 1.5), (7.0, 0.0), (float("inf"), 0.0)])
def test_what_is_left_of_privacy(tmp_path: Path, spent: float, left: float) -> None:
    privacy = SimpleNamespace(label_budget=Budget(2.0, 1e-6), answer_budget=Budget(9.0, 0.0))
    configuration = SimpleNamespace(data=SimpleNamespace(label="y"), privacy=privacy, home=tmp_path)
    ledger = SimpleNamespace(spent=lambda subject, delta: spent if delta == 1e-6 else 0.0)
    node = SimpleNamespace(configuration=configuration, ledger=ledger)
    assert NodeMetrics(cast(Any, node))._left() == {"labels: y": 2.0, "answers": 9.0}
    (tmp_path / LEDGER).touch()
    assert NodeMetrics(cast(Any, node))._left() == {"labels: y": left, "answers": 9.0}


# What can be done


def test_fits_are_seen_where_they_run(network: Network, sites: dict[str, Site]) -> None:
    activity = network.nodes["lab"].records.activity
    with activity.computing("fit", "clinic", "risk", 2):
        facts = sites["lab"].json("/v1/node")[1]
        [now] = facts["computing"]
        states = {one["name"]: one["state"] for one in facts["tasks"]}
    assert (now["what"], now["for"], now["task"], now["round"]) == ("fit", "clinic", "risk", 2)
    assert now["since"] <= time.time()
    assert states["risk"] == "computing now"
    assert sites["lab"].json("/v1/node")[1]["computing"] == []
