"""What interaction probes would bring is told where it is sure, on rows that were not learned from."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.linear_model import Ridge

from gal.cli.simulation import print_simulation
from gal.core.probes.kept_probes import PROBES_REVEAL
from gal.evaluate import Simulation, simulate
from gal.evaluate.metrics import METRICS
from gal.evaluate.probe_gain import FEWEST_VALIDATION, MOST_ROWS, ProbeGain, probe_gain
from gal.evaluate.reporting.simulated import facts_of_simulation, probes_in_words

N = 2400
PARTS = {"bank": ["a", "b"], "shop": ["c", "d"]}


def columns(n: int = N) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(0).normal(size=(n, 4)), columns=list("abcd"))


def setting(classes: bool = False, organizations: Any = PARTS) -> dict[str, Any]:
    return {
        "classes": classes,
        "organizations": organizations,
        "label_holder": "bank",
        "local_models": Ridge(),
        "rounds": 2,
        "random_state": 0,
    }


def fit(model: Any, X: pd.DataFrame, y: Any) -> Any:
    return model.fit(X, y)


@pytest.mark.usefixtures("small_forests")
def test_a_product_across_organizations_is_told() -> None:
    X = columns()
    y = X["a"] + X["c"] + 2 * X["a"] * X["d"] + 0.3 * np.random.default_rng(1).normal(size=N)
    found = probe_gain(X, y.to_numpy(), setting(), METRICS["r2"], fit, print)
    assert found is not None
    assert (found.learned_rows, found.validation_rows) == (2000, N - 2000)
    assert found.probed > found.without + 0.2
    labels = (X["a"] * X["d"] + 0.2 * X["b"] > 0).to_numpy(int)
    classes = probe_gain(X, labels, setting(classes=True), METRICS["auc"], fit, print)
    assert classes is not None
    assert classes.probed > classes.without + 0.2


def never(*_: Any) -> Any:
    raise AssertionError("nothing is learned here")


@pytest.mark.parametrize("n", [FEWEST_VALIDATION, 2000 + FEWEST_VALIDATION - 1])
def test_too_few_rows_are_not_looked_at(n: int) -> None:
    assert probe_gain(columns(n), np.zeros(n), setting(), METRICS["r2"], never, print) is None
    alone = setting(organizations={"bank": ["a"]})
    assert probe_gain(columns(), np.zeros(N), alone, METRICS["r2"], never, print) is None
    assert probe_gain(columns(), np.zeros(N, dtype=int), setting(True), METRICS["auc"], never, print) is None


class Predicts:
    """Stands in for a fitted estimator: what it predicts is a column."""

    probes_ = SimpleNamespace(share=1.0)

    def __init__(self, column: str) -> None:
        self.column = column

    def predict(self, X: pd.DataFrame) -> Any:
        return X[self.column].to_numpy()


@pytest.mark.parametrize(
    ("better_by", "noise", "is_told"), [(0.2, 0.1, True), (0.003, 0.001, False), (0.05, 0.7, False)]
)
def test_chance_and_trifles_are_not_told(better_by: float, noise: float, is_told: bool) -> None:
    """``better_by``: the share of the loss that is saved; ``noise``: how differently rows gain."""
    rng = np.random.default_rng(3)
    error = rng.choice([-1.0, 1.0], size=N)
    saved = better_by + noise * rng.choice([-1.0, 1.0], size=N)
    X = pd.DataFrame({"plain": error, "probed": error * np.sqrt(1 - saved), "c": 0.0})
    learned: list[tuple[bool, int]] = []

    def predicting(model: Any, rows: pd.DataFrame, _: Any) -> Any:
        learned.append((bool(model.interactions), len(rows)))
        return Predicts("probed" if model.interactions else "plain")

    y = 0.01 * rng.normal(size=N)
    found = probe_gain(X, y, setting(), METRICS["neg_mae"], predicting, print)
    assert learned == [(True, 2000), (False, 2000)]  # once each, on the same rows
    assert (found is not None) == is_told


def test_a_large_table_is_sampled_and_rare_classes_are_left_out() -> None:
    n, seen = 4 * MOST_ROWS, []
    y = np.arange(n) % 2 + 1
    y[:9] = 0  # classes are codes of the whole table; few rows of this one are drawn

    def noted(model: Any, X: pd.DataFrame, y: Any) -> Any:
        seen.append((len(X), set(y.tolist())))
        return SimpleNamespace(probes_=None)

    assert probe_gain(columns(n), y, setting(classes=True), METRICS["accuracy"], noted, print) is None
    assert seen[0] == (MOST_ROWS, {0, 1})


GAIN = ProbeGain("r2", 0.72, 0.89, 3750, 1250)


@pytest.fixture(params=[GAIN, None], ids=["a gain", "no gain"])
def simulated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, few_trees: None) -> Simulation:
    monkeypatch.setattr("gal.evaluate.simulation.probe_gain", lambda *_: request.param)
    X = columns(80)
    return simulate(X.assign(y=X["a"] + X["c"]), "y", PARTS, folds=2, rounds=1, local_models=Ridge())


def test_people_and_machines_are_told_the_same(simulated: Simulation) -> None:
    """In the terminal, in JSON and in the report; where probes gain nothing there is not a word of them."""
    out = Console(width=1000, record=True, file=io.StringIO())
    print_simulation(simulated, out)
    printed, facts = out.export_text(), facts_of_simulation(simulated)
    there = simulated.interaction_probes is not None
    assert (probes_in_words(GAIN) in printed) == there
    assert (probes_in_words(GAIN) in facts.more) == there
    assert ("probes" in printed) == there
    told = json.loads(json.dumps(simulated.to_json()))["interaction_probes"]
    assert told == (
        {
            "metric": "r2",
            "without": 0.72,
            "probed": 0.89,
            "learned_rows": 3750,
            "validation_rows": 1250,
            "reveals": PROBES_REVEAL,
        }
        if there
        else None
    )
