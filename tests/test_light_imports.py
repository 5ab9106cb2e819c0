"""The engine runs where only numpy, scipy and scikit-learn are installed: a GPU machine, a small node."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from gal.learner.labels import is_missing

MODULES = [
    "gal",
    "gal.functional",
    "gal.estimators",
    "gal.models",
    "gal.learner.organization",
    "gal.learner.drivers",
    "gal.learner.options",
    "gal_bench.baselines",
    "gal.privacy.mechanisms.paper",
    "gal.learner.stacking",
    "gal.storage",
]

BLOCKED = ("pandas", "rich", "pydantic", "skops", "typer", "torch", "polars", "pyarrow", "matplotlib")

PREAMBLE = f"""
import sys
import warnings

warnings.simplefilter("error")

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED}:
            raise ImportError(f"{{name}} is not installed here")

sys.meta_path.insert(0, Absent())
"""

DATA = """
import numpy as np
from sklearn.linear_model import Ridge
import gal
from gal import GALClassifier, GALRegressor, Organization
from gal.learner.drivers import Traffic
from gal.learner.labels import class_labels, regression_labels
from gal.learner.options import Options
from gal.learner.task_making import make_task

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 6))
y = X @ [1, 0, -1, 0, 2, 0] + 0.1 * rng.normal(size=120)
classes = np.where(y > 0, "yes", "no")
names = ["a", "b", "c"]

def members(model=None):
    return [Organization(name, X[:, 2 * m : 2 * m + 2], model) for m, name in enumerate(names)]
"""

PARTS = """
for labels in (y, classes, (y > 0), np.array(["yes" if one else "no" for one in y > 0], dtype=object)):
    for model in (Ridge(), None):
        organizations = members(model)
        traffic = Traffic()
        ensemble = gal.learn(labels, organizations, rounds=2, traffic=traffic)
        output = gal.predict(ensemble, organizations).output
        assert output.shape == (120, 1)
        assert traffic.trips == 4  # two rounds, before them two of the part that is learned first
        assert ensemble.train_loss < 0.8 * ensemble.initial_train_loss
"""

ESTIMATORS = """
parts = {"a": [0, 1], "b": [2, 3], "c": [4, 5]}
assert GALRegressor(parts, rounds=2, random_state=0).fit(X, y).score(X, y) > 0.8
assert GALClassifier(parts, rounds=2, random_state=0).fit(X, classes).score(X, classes) > 0.8
linear = GALClassifier(parts, local_models=Ridge(), rounds=2, random_state=0).fit(X, list(classes))
assert linear.score(X, classes) > 0.8
"""

LEARNERS = """
from gal_bench.baselines import METHODS, learn_assisted
options = Options(rounds=2, cross_validation=0, stacking=False)
for labels in (regression_labels(y, options), class_labels(classes, options)):
    task = make_task(labels, names, options, label_holder="a")
    them = {one.name: one for one in members(Ridge())}
    ensemble = learn_assisted(task, them, order=names)
    assert gal.predict(ensemble, list(them.values())).output.shape == (120, 1)
    assert ensemble.train_loss < ensemble.initial_train_loss
for method in METHODS.values():
    made = method(classes=False, organizations={"a": [0, 1], "b": [2, 3, 4, 5]}, rounds=2, random_state=0)
    assert made.fit(X, y).predict(X).shape == (120,)
"""


def errors_of(code: str) -> str:
    """What it says in a fresh interpreter that lacks all but numpy, scipy and scikit-learn."""
    source = Path(__file__).resolve().parent.parent / "src"
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
    )
    return done.stdout + done.stderr


def test_modules_import_with_numpy_scipy_and_scikit_learn_alone() -> None:
    imports = "\n".join(f"import {name}" for name in MODULES)
    assert errors_of(f"{imports}\nassert not set({BLOCKED}) & set(sys.modules)") == ""


def test_learning_and_predicting_with_arrays_needs_nothing_else() -> None:
    assert errors_of(DATA + PARTS + ESTIMATORS + LEARNERS) == ""


HELP = """
import sys
import gal
COMPUTING = {"scipy.stats", "sklearn", "pandas", "joblib", "pyarrow", "grpc", "duckdb", "torch", "matplotlib"}
assert not (COMPUTING | {"numpy", "rich"}) & set(sys.modules)
from gal.cli import main
from gal.cli.app import COMMANDS
for words in (["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)):
    sys.argv = ["gal", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
    found = COMPUTING & set(sys.modules)
    assert not found, f"gal {' '.join(words)} imported {', '.join(sorted(found))}"
"""


def test_importing_gal_and_printing_help_imports_nothing_that_computes() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert "Usage: gal bench" in done.stdout.replace("\x1b[1m", "")


MISSING: dict[str, list[Any]] = {
    "numbers": [1.0, np.nan, 2.0],
    "text": ["a", None, "b"],
    "text and NaN": ["a", np.nan, "b"],
    "pandas": [pd.NA, 1, pd.NaT],
    "decimals": [Decimal("NaN"), Decimal(1), Decimal(2)],
    "dates": [np.datetime64("2020-01-01"), np.datetime64("NaT"), np.datetime64("2021-01-01")],
    "whole numbers": [1, 2, 3],
    "tuples": [(1, 2), (np.nan, 1), None],
}


@pytest.mark.parametrize("labels", MISSING.values(), ids=MISSING.keys())
@pytest.mark.parametrize("kind", [None, object])
def test_missing_labels_are_found_as_pandas_finds_them(labels: list[Any], kind: Any) -> None:
    given: NDArray[Any] = np.empty(3, dtype=object)
    given[:] = labels
    if kind is None and not any(isinstance(one, tuple) for one in labels):
        given = np.array(labels)
    np.testing.assert_array_equal(is_missing(given), pd.isna(given))
