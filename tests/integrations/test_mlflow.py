"""MLflow: our own file and its card are logged, of a node's task no model; autologging stays quiet."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal import GALClassifier, GALRegressor
from gal.errors import InvalidInputError, NodeError, StoredModelError
from gal.extras import is_installed
from patience import LONGEST

pytestmark = [
    pytest.mark.skipif(not is_installed("mlflow"), reason="needs the extra mlflow"),
    pytest.mark.filterwarnings("ignore"),  # MLflow's own, of its own dependencies
    pytest.mark.timeout(LONGEST),
]

PARTS = {"clinic": ["a", "b"], "lab": ["c", "d"]}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=list("abcd"))


@pytest.fixture(scope="module")
def regressor(table: pd.DataFrame) -> GALRegressor:
    return GALRegressor(PARTS, rounds=2, random_state=0).fit(table, table["a"] + 2 * table["c"])


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow with a folder of its own."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("DO_NOT_TRACK", "true")
    import mlflow

    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield mlflow
    mlflow.set_tracking_uri("")


@pytest.fixture
def integration(runs: Any) -> Any:
    import gal.integrations.mlflow

    return gal.integrations.mlflow


def test_an_estimator_comes_back_and_its_card_lies_beside_it(
    integration: Any, runs: Any, regressor: GALRegressor, table: pd.DataFrame
) -> None:
    with runs.start_run():
        uri = integration.log_model(regressor).model_uri
    expected = regressor.predict(table)
    assert integration.load_model(uri).predict(table).tolist() == expected.tolist()
    generic = runs.pyfunc.load_model(uri)
    assert generic.predict(table).tolist() == expected.tolist()
    folder = Path(runs.artifacts.download_artifacts(uri))
    assert (next(folder.rglob("card.md"))).read_text() == regressor.card()
    assert not [file for file in folder.rglob("*") if file.suffix == ".pkl"], "nothing that runs"


def test_a_classifier_gives_probabilities(
    integration: Any, runs: Any, table: pd.DataFrame, tmp_path: Path
) -> None:
    model = GALClassifier(PARTS, rounds=1, random_state=0).fit(table, np.where(table["c"] > 0, "yes", "no"))
    model.save(tmp_path / "model.gal")
    loaded = integration._load_pyfunc(str(tmp_path))
    found = loaded.predict(table, {"method": "predict_proba"})
    assert found.tolist() == model.predict_proba(table).tolist()
    with pytest.raises(InvalidInputError, match="method must be predict"):
        loaded.predict(table, {"method": "save"})
    with runs.start_run():
        generic = runs.pyfunc.load_model(integration.log_model(model).model_uri)
    assert generic.predict(table).tolist() == model.predict(table).tolist()
    found = generic.predict(table, params={"method": "predict_proba"})
    assert found.tolist() == model.predict_proba(table).tolist()


@pytest.fixture
def node() -> Iterator[tuple[str, list[Any]]]:
    """A node's endpoint, and what it was asked with which token."""
    asked: list[Any] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, self.headers["Authorization"], body))
            ids = body.get("ids") or [row["id"] for row in body["rows"]]
            found = {"predictions": [{"id": one, "prediction": 1.5, "degraded": False} for one in ids]}
            said = json.dumps(found if body["task"] == "risk" else {"error": "no such task"}).encode()
            self.send_response(200 if body["task"] == "risk" else 404)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_a_node_is_asked_and_nothing_of_it_is_logged(
    integration: Any, runs: Any, node: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, asked = node
    monkeypatch.setenv("GAL_TOKEN", "the token\n")
    with runs.start_run():
        uri = integration.log_node(address, "risk", row_id="patient").model_uri
    folder = Path(runs.artifacts.download_artifacts(uri))
    logged = json.loads(next(folder.rglob("node.json")).read_text())
    assert logged == {"address": address, "task": "risk", "row_id": "patient", "seconds": 30.0}
    assert not any("the token" in file.read_text() for file in folder.rglob("*") if file.is_file())
    model = runs.pyfunc.load_model(uri)
    found = model.predict(pd.DataFrame({"patient": [7, 8], "bp": [1.0, np.nan]}))
    assert found["id"].tolist() == [7, 8]
    assert found["prediction"].tolist() == [1.5, 1.5]
    assert asked == [
        (
            "/v1/predict",
            "Bearer the token",
            {"task": "risk", "rows": [{"id": 7, "bp": 1.0}, {"id": 8, "bp": None}]},
        )
    ]
    with pytest.raises(StoredModelError, match="holds no estimator"):
        integration.load_model(uri)


def test_what_a_node_cannot_answer_is_said(
    integration: Any, node: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pd.DataFrame({"id": [1]})
    monkeypatch.delenv("GAL_TOKEN", raising=False)
    with pytest.raises(NodeError, match="set GAL_TOKEN"):
        integration.NodeModel(node[0], "risk", "id", 5.0).predict(rows)
    monkeypatch.setenv("GAL_TOKEN", "x")
    with pytest.raises(NodeError, match=r"refuses to predict 'gone'.*no such task"):
        integration.NodeModel(node[0], "gone", "id", 5.0).predict(rows)
    with pytest.raises(NodeError, match="does gal serve --page run"):
        integration.NodeModel("http://127.0.0.1:9", "risk", "id", 5.0).predict(rows)
    with pytest.raises(InvalidInputError, match="need the column 'id'"):
        integration.NodeModel(node[0], "risk", "id", 5.0).predict(rows.rename(columns={"id": "x"}))
    with pytest.raises(InvalidInputError, match="http:// or https://"):
        integration.log_node("127.0.0.1:8470", "risk")


def test_autologging_makes_no_run_of_a_local_fit(runs: Any, table: pd.DataFrame) -> None:
    from sklearn.linear_model import LinearRegression

    runs.sklearn.autolog(log_models=False, silent=True)
    try:
        model = GALRegressor(PARTS, local_models=LinearRegression(), rounds=1, random_state=0)
        model.fit(table, table["a"] + table["c"])
        assert runs.search_runs(output_format="list") == []
        LinearRegression().fit(table, table["a"])
        assert len(runs.search_runs(output_format="list")) == 1, "her own fits are logged as before"
    finally:
        runs.sklearn.autolog(disable=True)
