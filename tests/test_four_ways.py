"""One table, four ways: the estimator, ``gal.learn``, ``gal simulate`` and nodes learn the
same and predict the same bits.

Nothing is given but the columns of each organization: the kind of the labels, validation rows, whether there
is a stacker, and what dates and text become, all follow from the same facts everywhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import gal
from gal import GALClassifier, GALRegressor, Organization
from gal.alignment import row_ids
from gal.cli.tables import read_frame
from gal.core.losses import BinaryLogLoss, MultinomialLogLoss
from gal.evaluate.profile import models_with_kinds, used_columns
from gal.learner.labels import are_classes
from patience import LONGEST
from small_network import LABEL, ROW_ID, Network, running

ROUNDS = 3
SEED = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
"""What the estimators draw from random_state=0."""
PARTS = {"clinic": ["a", "b"], "lab": ["c", "d"]}
MANY = 600
"""Rows that are many here: how many are many is a number of its own, and all ways must read the same one."""
Columns = dict[str, Any]
Rounds = int | str


def _words(rng: np.random.Generator, n: int, kinds: int = 4) -> Any:
    return np.array([f"kind {k}" for k in range(kinds)])[rng.integers(kinds, size=n)]


def _some_missing(rng: np.random.Generator, column: Any) -> Any:
    return pd.Series(column).mask(rng.random(len(column)) < 0.1)


def numbers(rng: np.random.Generator, n: int) -> Columns:
    return {name: rng.normal(size=n) for name in "abcd"}


def categories(rng: np.random.Generator, n: int) -> Columns:
    return numbers(rng, n) | {"b": _words(rng, n), "c": _words(rng, n, 70)}


def gaps(rng: np.random.Generator, n: int) -> Columns:
    made = {name: _some_missing(rng, column) for name, column in categories(rng, n).items()}
    return made | {"d": [None] * n}


def dates(rng: np.random.Generator, n: int) -> Columns:
    days = pd.Timestamp("1969-06-01") + pd.to_timedelta(rng.integers(20000, size=n), unit="D")
    return numbers(rng, n) | {"c": days.strftime("%Y-%m-%d"), "b": _words(rng, n)}


def as_people_write(rng: np.random.Generator, n: int) -> Columns:
    days = pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(1500, size=n), unit="D")
    return {
        "a": pd.Series([f"${one:,.2f}" for one in rng.uniform(1000, 9000, n)]),
        "b": pd.Series(np.where(rng.random(n) < 0.5, "Yes", "no ")),
        "c": pd.Series(days.strftime("%d.%m.%Y")),
        "d": _some_missing(rng, pd.Series([f"{one:.1f}%" for one in rng.uniform(10, 99, n)])),
    }


def _signal(columns: Columns) -> Any:
    """A number that hangs on all columns, and on what they say together."""
    codes = [pd.Series(columns[name]).rank().fillna(0).to_numpy() for name in "abcd"]
    a, b, c, d = ((code - code.mean()) / (code.std() or 1.0) for code in codes)
    return a + 0.5 * b - c + 0.3 * d + a * c


def number(signal: Any) -> Any:
    return signal


def product(signal: Any) -> Any:
    """Which of two classes shows only where columns of both are seen: see ``made``."""
    return two(signal)


def two(signal: Any) -> Any:
    return (signal > 0).astype(int)


def yes_no(signal: Any) -> Any:
    return np.where(signal > 0.3, "yes", "no")


def far(signal: Any) -> Any:
    """What a sum over organizations cannot tell."""
    return np.where(np.abs(signal - 0.5) > 1, "yes", "no")


def three(signal: Any) -> Any:
    return np.array(["low", "middle", "high"])[np.digitize(signal, [-0.7, 0.7])]


TABLES: dict[str, tuple[Callable[..., Columns], Callable[[Any], Any], int]] = {
    "numbers": (numbers, number, 150),
    "numbers, too few to validate": (numbers, number, 40),
    "numbers, two classes": (numbers, two, 150),
    "categories, three classes": (categories, three, 200),
    "missing values, yes and no": (gaps, yes_no, 150),
    "dates": (dates, number, 150),
    "as people write, three classes": (as_people_write, three, 200),
    "many rows with dates, three classes, closed": (dates, three, MANY),
    "many rows with gaps, yes and no, closed": (gaps, far, MANY),
    "many rows, three classes, closed": (numbers, three, MANY),
    "many rows, probed and closed": (numbers, product, MANY),
}


def made(name: str) -> tuple[pd.DataFrame, Any]:
    """The whole table with ids, and its labels."""
    columns, label, n = TABLES[name]
    drawn = columns(np.random.default_rng(0), n)
    noise = 0.2 * np.random.default_rng(1).normal(size=n)
    table = pd.DataFrame({ROW_ID: 500 + np.arange(n)} | {one: drawn[one] for one in "abcd"})
    signal = drawn["a"] * drawn["c"] + 0.8 * drawn["d"] if label is product else _signal(drawn)
    return table, label(signal + noise)


def by_estimator(table: pd.DataFrame, y: Any, rounds: Rounds, *, probed: bool) -> tuple[Any, Any]:
    estimator = GALClassifier if are_classes(y) else GALRegressor
    model = estimator(PARTS, rounds=rounds, interactions=probed, random_state=0).fit(table, y)
    return model.ensemble_, model.predict_proba(table) if are_classes(y) else model.predict(table)[:, None]


def by_parts(table: pd.DataFrame, y: Any, rounds: Rounds, *, probed: bool) -> tuple[Any, Any]:
    members = [Organization(name, table[columns]) for name, columns in PARTS.items()]
    ensemble = gal.learn(y, members, rounds=rounds, interactions=probed, seed=SEED)
    output = gal.predict(ensemble, members).output
    if not are_classes(y):
        return ensemble, output
    loss = BinaryLogLoss() if output.shape[1] == 1 else MultinomialLogLoss(output.shape[1])
    return ensemble, loss.inverse_link(output)


def by_simulation(path: Path, table: pd.DataFrame, y: Any, rounds: Rounds) -> tuple[Any, Any]:
    table.assign(**{LABEL: y}).to_csv(path, index=False)
    found = read_frame(path)
    rows, models = models_with_kinds(found.drop(columns=LABEL), used_columns(found, PARTS), None)
    estimator = GALClassifier if are_classes(y) else GALRegressor
    model = estimator(PARTS, local_models=models, rounds=rounds, random_state=0).fit(rows, found[LABEL])
    said = model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)[:, None]
    return model.ensemble_, said


def by_nodes(
    root: Path,
    table: pd.DataFrame,
    y: Any,
    rounds: Rounds = ROUNDS,
    model: str = "tabular",
    *,
    probed: bool = False,
) -> tuple[Any, Any]:
    tables = {name: table[[ROW_ID, *columns]] for name, columns in PARTS.items()}
    tables["clinic"] = tables["clinic"].assign(**{LABEL: y})
    tables["lab"] = tables["lab"].sample(frac=1, random_state=1)
    models = dict.fromkeys(PARTS, f'use = "{model}"')
    consent = dict.fromkeys(PARTS, "[policy]\ninteractions = true\n") if probed else {}
    with running(Network(root, tables, models=models, more=consent)) as network:
        record = network.invite("task", rounds=rounds, interactions=probed, seed=SEED)
        network.wait_until_joined(record)
        network.learn("task")
        record = network.nodes["clinic"].state.find_task("task")
        ids = row_ids(table[ROW_ID].to_numpy(), "clinic", ROW_ID)
        found = network.holder.predictor.predict(record, ids, seconds=LONGEST)
        assert not found.missing, found.missing
        return network.ensemble(record), found.prediction


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """The view of an organization that knows the kinds of its columns."""
    known = table.drop(columns=ROW_ID)
    for name in known:
        first = str(known[name].dropna().iloc[0]) if known[name].notna().any() else ""
        if first[4:5] == "-" and first[:4].isdigit():
            known[name] = pd.to_datetime(known[name])
        elif first[2:3] == ":":
            known[name] = pd.to_timedelta(known[name])
    return known


@pytest.mark.usefixtures("small_forests")
@pytest.mark.parametrize("name", TABLES)
def test_all_ways_predict_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signs = 4 if "probed" in name else 1  # enough to compare, and less time
    monkeypatch.setattr("gal.learner.task_making.PROBES", signs)
    monkeypatch.setattr("gal.learner.task_making.PROBES_FOR_THREE", 1)
    monkeypatch.setattr("gal.learner.task_making.LARGE", MANY - 50)
    rounds = ROUNDS
    (table, y), probed = made(name), "probed" in name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ways = {
            "estimator": by_estimator(typed(table), y, rounds, probed=probed),
            "parts": by_parts(typed(table), y, rounds, probed=probed),
            "nodes": by_nodes(tmp_path / "nodes", table, y, rounds, probed=probed),
        }
        if not probed:  # a simulation has no interaction probes
            ways["simulation"] = by_simulation(tmp_path / "whole.csv", table, y, rounds)
    ensemble, expected = ways["estimator"]
    assert ensemble.n_rounds > 0  # else all would agree on a constant
    assert (ensemble.stacker is not None) == name.endswith("closed")
    assert (ensemble.probes is not None) == probed
    for way, (found, said) in ways.items():
        assert found.coefficients == ensemble.coefficients, way
        np.testing.assert_array_equal(said, expected, err_msg=way)


def test_nodes_fit_ridge_as_one_process_does(tmp_path: Path) -> None:
    """scikit-learn's Ridge, whose columns are looked through once for all rounds and parts."""
    table, y = made("numbers, two classes")
    members = [Organization(name, table[columns], Ridge()) for name, columns in PARTS.items()]
    ensemble = gal.learn(y, members, rounds=ROUNDS, seed=SEED)
    expected = BinaryLogLoss().inverse_link(gal.predict(ensemble, members).output)
    found, said = by_nodes(tmp_path, table, y, model="sklearn.linear_model:Ridge")
    assert ensemble.n_rounds > 0
    assert found.coefficients == ensemble.coefficients
    np.testing.assert_array_equal(said, expected)
