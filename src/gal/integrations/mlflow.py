"""MLflow: a fitted estimator as a logged model, or a task of a node that is asked over HTTP.

Around our own file, which holds nothing that runs. ``mlflow.pyfunc.load_model`` and MLflow's server read
both. Needs the extra ``mlflow``.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
import pandas as pd

import gal
from gal.errors import InvalidInputError, NodeError, StoredModelError
from gal.estimators import GALClassifier, GALRegressor
from gal.extras import require

MODEL, CARD, NODE = "model.gal", "card.md", "node.json"
"""The files of a logged model: an estimator with its card, or where a node is."""
TOKEN = "GAL_TOKEN"
"""The environment variable with the content of the node's file http.token; no logged model has it."""


def log_model(model: GALClassifier | GALRegressor, name: str = "model", **options: Any) -> Any:
    """Log a fitted estimator in the active run, with its card beside it; MLflow's ``ModelInfo``.

    ``options`` go to ``mlflow.pyfunc.log_model``: ``signature``, ``input_example``,
    ``registered_model_name`` and so on. A classifier's default signature has the parameter ``method``:
    ``predict(rows, params={"method": "predict_proba"})`` of what MLflow loads gives probabilities.
    """
    require("mlflow", "logging models with MLflow")
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / MODEL)
        (Path(folder) / CARD).write_text(model.card(), encoding="utf-8")
        return _log(folder, name, _takes_method() | options if hasattr(model, "predict_proba") else options)


def _takes_method() -> dict[str, Any]:
    """A signature by which MLflow hands ``params={"method": ...}`` on; without one it drops them."""
    from mlflow.models import ModelSignature
    from mlflow.types import DataType, ParamSchema, ParamSpec

    method = ParamSpec("method", DataType.string, "predict")
    return {"signature": ModelSignature(params=ParamSchema([method]))}


def load_model(model_uri: str, *, trusted: Sequence[str] = ()) -> GALClassifier | GALRegressor:
    """The estimator that was logged; types of other packages than scikit-learn must be ``trusted``."""
    require("mlflow", "loading models from MLflow")
    from mlflow.artifacts import download_artifacts

    found = sorted(Path(download_artifacts(model_uri)).rglob(MODEL))
    if not found:
        raise StoredModelError(
            f"{model_uri!r} holds no estimator of gal.integrations.mlflow.log_model; a node's task is loaded "
            "with mlflow.pyfunc.load_model"
        )
    return _read(found[0], trusted)


def log_node(
    address: str, task: str, name: str = "model", *, row_id: str = "id", seconds: float = 30.0, **options: Any
) -> Any:
    """Log a task that a node predicts: where it is asked, and no model of anybody.

    ``address`` is that of ``gal serve --page`` or ``gal predict --listen``. Who loads it has the node's
    token in ``GAL_TOKEN``. Rows have a column ``row_id`` and, where the node's source lacks them, the label
    holder's own.
    """
    require("mlflow", "logging models with MLflow")
    if not address.startswith(("http://", "https://")):
        raise InvalidInputError(f"address must begin with http:// or https://, got {address!r}")
    facts = {"address": address.rstrip("/"), "task": task, "row_id": row_id, "seconds": seconds}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / NODE).write_text(json.dumps(facts), encoding="utf-8")
        return _log(folder, name, options)


def _log(folder: str, name: str, options: Mapping[str, Any]) -> Any:
    import mlflow

    needs = {"pip_requirements": [f"gal-learn[mlflow]=={gal.__version__}"]}
    return mlflow.pyfunc.log_model(
        name=name, loader_module=__name__, data_path=folder, **(needs | dict(options))
    )


def _read(path: Path, trusted: Sequence[str] = ()) -> GALClassifier | GALRegressor:
    """Whichever of the two a file holds."""
    try:
        return GALRegressor.load(path, trusted=trusted)
    except StoredModelError as error:
        if "GALClassifier.load" not in str(error):
            raise
    return GALClassifier.load(path, trusted=trusted)


def _load_pyfunc(path: str) -> EstimatorModel | NodeModel:
    """What MLflow calls to load a model: ``path`` is the folder that was logged."""
    where = Path(path) / NODE
    if where.is_file():
        return NodeModel(**json.loads(where.read_text(encoding="utf-8")))
    return EstimatorModel(_read(Path(path) / MODEL))


class EstimatorModel:
    """A logged estimator as MLflow asks it."""

    def __init__(self, model: GALClassifier | GALRegressor) -> None:
        self.model = model

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Predictions; ``params={"method": "predict_proba"}`` for probabilities of classes."""
        method = (params or {}).get("method", "predict")
        if method not in {"predict", "predict_proba"} or not hasattr(self.model, method):
            raise InvalidInputError(
                f"method must be predict, or predict_proba of a classifier, got {method!r} for a "
                f"{type(self.model).__name__}"
            )
        return getattr(self.model, method)(model_input)


class NodeModel:
    """A task of a node: every prediction is asked there, and nothing is known here."""

    def __init__(self, address: str, task: str, row_id: str, seconds: float) -> None:
        self.address, self.task, self.row_id, self.seconds = address, task, row_id, seconds

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> pd.DataFrame:  # noqa: ARG002
        """One row per row: id, prediction, whether it is degraded, and probabilities of classes."""
        rows = pd.DataFrame(model_input)
        if self.row_id not in rows.columns:
            raise InvalidInputError(
                f"rows to predict need the column {self.row_id!r}, which names a row; there are "
                f"{', '.join(map(str, rows.columns))}"
            )
        ids = [_plain(one) for one in rows[self.row_id]]
        body: dict[str, Any] = {"task": self.task, "ids": ids}
        if len(rows.columns) > 1:
            others = rows.drop(columns=self.row_id).to_dict("records")
            filled = [{str(name): _plain(value) for name, value in one.items()} for one in others]
            body = {
                "task": self.task,
                "rows": [{"id": row} | one for row, one in zip(ids, filled, strict=True)],
            }
        return pd.DataFrame(self._ask(body)["predictions"])

    def _ask(self, body: Mapping[str, Any]) -> Any:
        token = os.environ.get(TOKEN, "")
        if not token:
            raise NodeError(
                f"set {TOKEN} to the content of the file http.token of the node at {self.address}"
            )
        headers = {"Authorization": f"Bearer {token.strip()}", "Content-Type": "application/json"}
        request = Request(f"{self.address}/v1/predict", json.dumps(body).encode(), headers)
        try:
            with urlopen(request, timeout=self.seconds) as answer:
                return json.load(answer)
        except HTTPError as error:
            said = error.read(2000).decode(errors="replace")
            raise NodeError(f"the node at {self.address} refuses to predict {self.task!r}: {said}") from error
        except (URLError, OSError, ValueError) as error:
            raise NodeError(
                f"the node at {self.address} cannot be asked for {self.task!r}: {error}; does "
                "gal serve --page run?"
            ) from error


def _plain(value: Any) -> Any:
    """A value as JSON has it; None where it is missing."""
    if value is None or (isinstance(value, float) and np.isnan(value)) or value is pd.NA:
        return None
    return value.item() if isinstance(value, np.generic) else value


__all__ = ["EstimatorModel", "NodeModel", "load_model", "log_model", "log_node"]
