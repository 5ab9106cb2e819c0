"""Runs of deep tables on made-up views: every method, model, disturbance and
metric, and the facts about them.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

import torch

from gal.models.deep import (
    cnn_body,
    lstm_body,
    mlp_body,
    residual_cnn_body,
    wide_cnn_body,
)
from gal.models.deep.networks import BODIES
from gal.models.deep.shared_body import PLACES
from gal.models.sequences import Sequences
from gal_bench.cells import DEEP_METHODS, DEEP_MODELS, Cell, Outcome, Sources
from gal_bench.data.sources import ViewSet
from gal_bench.runs import deep_cells, local_models
from gal_bench.runs.deep_cells import run_deep_cell
from gal_bench.runs.local_models import (
    make_deep_model,
)

ROUNDS = 2
WITHOUT = {"cross_validation": 0}
"""Which has tests of its own, and takes most of the time."""
TRAIN, TEST = np.arange(90), np.arange(90, 130)


def parted(name: str, views: dict[str, Any], y: Any, metric: str, whole: Any) -> ViewSet:
    halves = [{key: view[rows] for key, view in views.items()} for rows in (TRAIN, TEST)]
    return ViewSet(name, halves[0], y[TRAIN], halves[1], y[TEST], metric, whole[TRAIN], whole[TEST])


def patches() -> ViewSet:
    """Images of two patches that each say half of three classes."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(130, 1, 4, 8)).astype(np.float32)
    sums = images[:, 0, :, :4].mean(axis=(1, 2)) + images[:, 0, :, 4:].mean(axis=(1, 2))
    y = np.digitize(sums, np.quantile(sums, [1 / 3, 2 / 3])).astype(np.int64)
    return parted("MNIST", {"patch 1": images[..., :4], "patch 2": images[..., 4:]}, y, "accuracy", images)


def stays(metric: str) -> ViewSet:
    """Time series, codes and a table; in this order, the label holder's first."""
    rng = np.random.default_rng(0)
    series = Sequences(rng.normal(size=(130, 3, 2)), rng.integers(1, 4, size=130))
    codes = Sequences(rng.integers(0, 4, size=(130, 2)), np.full(130, 2))
    table = rng.normal(size=(130, 3)).astype(np.float32)
    risk = np.tanh(series.values[:, 0, 0]) + 0.4 * codes.values[:, 0] + table[:, 0]
    y = (risk > np.median(risk)).astype(np.int64) if metric == "auc" else 5 + 2 * risk
    views = {"ward": series, "coder": codes, "desk": table}
    return parted("stays", views, y, metric, series)


SETS: dict[str, Any] = {
    "MNIST": patches,
    "PhysioNet mortality": lambda: stays("auc"),
    "PhysioNet stay": lambda: stays("mad"),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Small networks, short training, made-up views, all on the CPU; returns what was asked of the loader."""
    asked: list[tuple[Any, ...]] = []

    def load(dataset: str, *rest: Any) -> ViewSet:
        asked.append((dataset, *rest))
        made: ViewSet = SETS[dataset]()
        return made

    real = local_models.settings

    def quick(dataset: str, *, paper: bool) -> dict[str, Any]:
        return real(dataset, paper=paper) | {"batch_size": 30}

    def model(name: str, dataset: str, *, paper: bool) -> Any:
        return make_deep_model(name, dataset, paper=paper).set_params(epochs=2)

    bodies = {
        "cnn": partial(cnn_body, widths=(4, 8)),
        "residual_cnn": partial(residual_cnn_body, width=8),
        "wide_cnn": partial(wide_cnn_body, widths=(4, 8)),
        "lstm": partial(lstm_body, hidden=6, embedding=3),
        "mlp": partial(mlp_body, hidden=8),
    }
    monkeypatch.setattr(deep_cells, "_load", load)
    monkeypatch.setattr(local_models, "settings", quick)
    monkeypatch.setattr(local_models, "make_deep_model", model)
    monkeypatch.setattr(deep_cells, "FUSION_EPOCHS", 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name, body in bodies.items():
        monkeypatch.setitem(BODIES, name, body)
    return asked


def cell(dataset: str = "MNIST", **changes: Any) -> Cell:
    how: dict[str, Any] = {"models": ("Network",), "rounds": ROUNDS, "seed": 0, **changes}
    organizations = 2 if dataset == "MNIST" else "by name"
    return Cell(dataset, organizations, "official", how.pop("seed"), **how)


def run(dataset: str = "MNIST", **changes: Any) -> Outcome:
    return run_deep_cell(cell(dataset, **changes), Sources())


@cache
def plain_run(dataset: str) -> Outcome:
    """Made once: a cell has the same outcome every time."""
    return run(dataset, options=WITHOUT)


FACTS = {
    "seconds",
    "fit_seconds",
    "label_holder_seconds",
    "stored_bytes",
    "revisit_bytes",
    "trips",
    "sent",
    "received",
}


# --- every method


@pytest.mark.parametrize("dataset", SETS)
@pytest.mark.parametrize("method", DEEP_METHODS)
def test_every_method_has_an_outcome(dataset: str, method: str) -> None:
    outcome = run(dataset, method=method)
    views: ViewSet = SETS[dataset]()
    assert outcome.metric == views.metric
    assert all(np.isfinite(score) for score in outcome.scores)
    assert outcome.label_holder == views.label_holder
    assert outcome.facts["seconds"] > 0
    assert ("r2" in outcome.facts) == (views.metric == "mad")
    assert ("log_loss" in outcome.facts) == (views.metric != "mad")
    if method in {"late", "intermediate"}:
        assert len(outcome.scores) == 2
        assert not outcome.rates
        return
    assert set(outcome.facts) >= FACTS
    assert len(outcome.rates) == len(outcome.weights) == len(outcome.scores) - 1 <= ROUNDS
    names = {"joint": {"all"}, "alone": {views.label_holder}}.get(method, set(views.train))
    for weights in outcome.weights:
        assert set(weights) == names
    assert outcome.facts["stored_bytes"] > 0
    assert outcome.facts["revisit_bytes"] == 0
    assert (outcome.facts["trips"] > 0) == (method in {"gal", "assisted_learning"})


# --- what a cell may ask for


@pytest.mark.parametrize("model", DEEP_MODELS)
def test_every_local_model(model: str) -> None:
    outcome = run(models=(model,), options=WITHOUT)
    assert len(outcome.rates) >= 1
    assert (outcome.facts["revisit_bytes"] > 0) == (model == "Network shared body")


@pytest.mark.parametrize(
    "changes",
    [
        {"disturbance": "answers", "sigma": 1.0},
        {"disturbance": "laplace"},
        {"disturbance": "interval"},
        {"disturbance": "answers", "sigma": 1.0, "models": ("Network shared body",)},
        {"options": {"preset": "paper"}},
        {"options": {"preset": "paper"}, "models": ("Network shared body",)},
        {"options": {"weights": "uniform"}},
        {"options": {"line_search": 1.0}},
        {"local_losses": ("l1", "l4")},
        {"models": ("Network shared body", "Network")},
    ],
    ids=lambda changes: " ".join(map(str, changes)),
)
@pytest.mark.parametrize("dataset", ["MNIST", "PhysioNet stay"])
def test_every_change(dataset: str, changes: dict[str, Any]) -> None:
    changed = {**changes, "options": WITHOUT | changes.get("options", {})}
    outcome = run(dataset, **changed)
    assert all(np.isfinite(score) for score in outcome.scores)
    if dataset == "MNIST":
        assert outcome.scores == run(dataset, **changed).scores
    plain = plain_run(dataset)
    assert outcome.scores[0] == plain.scores[0]
    assert (outcome.rates, outcome.weights) != (plain.rates, plain.weights)
    for weights in outcome.weights if changed["options"].get("weights") == "uniform" else []:
        assert list(weights.values()) == pytest.approx([1 / len(weights)] * len(weights))


def test_the_same_cell_has_the_same_outcome_and_another_seed_another() -> None:
    first, again, other = plain_run("MNIST"), run(options=WITHOUT), run(options=WITHOUT, seed=1)
    assert first.scores == again.scores
    assert (first.rates, first.weights) == (again.rates, again.weights)
    assert first.rates != other.rates
    for method in ("late", "intermediate"):
        losses = [run(method=method, seed=seed).facts["log_loss"] for seed in (0, 0, 1)]
        assert losses[0] == losses[1] != losses[2]


# --- facts


def test_bytes_of_a_shared_body() -> None:
    plain = run(rounds=3, options=WITHOUT).facts
    shared = run(rounds=3, models=("Network shared body",), options=WITHOUT).facts
    values = 90 * 3 * 4  # rows, classes, bytes of a number
    assert plain["revisit_bytes"] == 0
    assert shared["revisit_bytes"] == 3 * values  # of the other organization and three rounds
    assert (plain["sent"], plain["received"]) == (3 * values, 3 * values)
    assert (shared["sent"], shared["received"]) == (
        3 * values,
        6 * values,
    )  # the label holder's own are at hand
    assert (plain["trips"], shared["trips"]) == (3, 4)
    network = 4 * (9 * (4 + 4 * 8) + 4 * (4 + 8)) + 2 * 8  # weights, and what BatchNorm learns and counts
    head = 4 * (8 + 1) * 3
    assert plain["stored_bytes"] == 2 * 3 * (network + head)
    assert 2 * (network + 3 * head) <= shared["stored_bytes"] <= 2 * (network + PLACES * head)


# --- which views, models and options


def test_large_sets_hold_rows_back(monkeypatch: pytest.MonkeyPatch) -> None:
    views = patches()
    assert deep_cells.options_of(cell(), views) == {}
    monkeypatch.setattr(deep_cells, "LARGE", 90)
    held = deep_cells.options_of(cell(), views)
    assert held == {"fitted": "held-out", "validation_fraction": 0.04}
    own = deep_cells.options_of(cell(options={"fitted": "in-sample"}), views)
    assert own["fitted"] == "in-sample"
    paper = deep_cells.options_of(cell(options={"preset": "paper"}), views)
    assert paper == {"preset": "paper"}
    monkeypatch.setattr(deep_cells, "HELD_OUT", 0.2)
    assert np.isfinite(run().validation_loss or np.nan)
