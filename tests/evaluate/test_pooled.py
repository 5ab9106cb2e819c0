"""The best model on all columns together: which one is taken, by which losses, and what is tried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from gal.evaluate import pooled as module
from gal.evaluate.pooled import NAMES
from small_tables import PARTS, health, ill, stages

pytestmark = pytest.mark.usefixtures("few_trees")


def pooled(**options: Any) -> Any:
    common = {"classes": False, "organizations": PARTS, "local_models": Ridge()}
    return module.pooled(**common | {"random_state": 0} | options)


def test_pooled_takes_the_linear_model_for_a_line() -> None:
    X, y = health(200)
    model = pooled().fit(X, y)
    assert model.chosen_ == "linear model"
    assert set(model.losses_) == set(NAMES)
    assert min(model.losses_, key=lambda name: model.losses_[name]) == model.chosen_


def xor(seed: int = 0) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform(-1, 1, size=(300, 4)), columns=["income", "debt", "sugar", "pulse"])
    return X, ((X["income"] > 0) != (X["sugar"] > 0)).to_numpy()


def test_pooled_takes_trees_for_a_chessboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 100)
    X, y = xor()
    trees = {"histogram gradient boosting"}
    assert pooled().fit(X, 10.0 * y).chosen_ in trees
    model = pooled(classes=True).fit(X, y)
    assert model.chosen_ in trees
    fresh, truth = xor(seed=1)
    assert (model.predict(fresh) == truth).mean() > 0.9


def test_pooled_losses_are_what_they_say() -> None:
    X, y = health(200)
    halves = pooled().fit(X, y).losses_
    absolute = pooled(loss="absolute_error").fit(X, y).losses_
    # Gaussian errors of size s: half a square is s^2 / 2, an absolute error s * sqrt(2 / pi).
    spread = np.sqrt(2 * halves["linear model"])
    assert absolute["linear model"] == pytest.approx(spread * np.sqrt(2 / np.pi), rel=0.1)
    assert spread == pytest.approx(0.3, rel=0.2)
    by_paper = pooled(preset="paper").fit(X, y).losses_
    assert by_paper == absolute


def test_pooled_log_loss_of_a_class_that_a_part_lacks() -> None:
    X, y = stages(60)
    y = y.copy()
    y[7] = "rare"
    model = pooled(classes=True).fit(X, y)
    assert np.isfinite(list(model.losses_.values())).all()
    assert model.predict_proba(X).shape == (60, 4)


def test_pooled_mixed_table_with_gaps() -> None:
    X, y = health(200)
    mixed = X.assign(debt=np.where(X["debt"] > 0, "much", "little"), sugar=X["sugar"].where(X["sugar"] < 1.5))
    mixed.loc[3, "debt"] = None
    for only in NAMES:
        model = pooled(candidates=[only]).fit(mixed, y)
        assert (model.chosen_, set(model.losses_)) == (only, {only})
        assert model.score(mixed, y) > 0.6
    changed = mixed.assign(debt="unknown")
    assert np.isfinite(model.predict(changed)).all()


@pytest.mark.parametrize("classes", [False, True])
def test_boosting_has_as_many_trees_as_validation_rows_bear(
    classes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large table it stops on validation rows; in a small one it has as many trees as were best."""
    X, y = ill(300) if classes else health(300)
    monkeypatch.setattr(module, "MOST", 200)
    noise = np.random.default_rng(0).permutation(y)
    only = {"classes": classes, "candidates": ["histogram gradient boosting"]}
    signal, nothing = pooled(**only).fit(X, y), pooled(**only).fit(X, noise)
    assert 10 < signal.model_[-1].n_iter_ < 200
    assert nothing.model_[-1].n_iter_ < 10, "every tree on noise is one too many"
    monkeypatch.setattr(module, "SMALL", 100)
    monkeypatch.setattr(module, "ENOUGH", 200)
    large = pooled(**only).fit(X, y)
    assert large.model_[-1].early_stopping is True
    assert large.score(X, y) > 0.6


def test_logistic_regression_is_as_strong_as_validation_rows_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STRENGTHS", (0.01, 10.0))
    X, y = ill(60)
    only = {"classes": True, "candidates": ["linear model"]}
    wide = X.assign(**{f"noise {k}": np.random.default_rng(k).normal(size=60) for k in range(80)})
    weak = pooled(**only | {"organizations": {"all": list(wide)}}).fit(
        wide, np.random.default_rng(0).permutation(y)
    )
    assert weak.model_[-1].C < pooled(**only).fit(X, y).model_[-1].C


def shops(n: int, seed: int = 0, many: int = 120) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """Numbers that follow from which of many shops a row is of, and from one column."""
    effects = np.random.default_rng(7).normal(size=many)
    rng = np.random.default_rng(seed)
    shop, size = rng.integers(0, many, n), rng.normal(size=n)
    table = pd.DataFrame({"shop": [f"shop {one}" for one in shop], "size": size})
    return table, effects[shop] + size / 2 + rng.normal(0, 0.5, n)


@pytest.mark.parametrize("kind", ["numbers", "two classes", "three classes"])
@pytest.mark.parametrize("only", NAMES)
def test_pooled_reads_a_column_with_many_categories(kind: str, only: str) -> None:
    (X, y), (fresh, truth) = shops(1500), shops(500, seed=1)
    cuts = np.quantile(y, [0.5] if kind == "two classes" else [1 / 3, 2 / 3])
    classes = kind != "numbers"
    model = pooled(classes=classes, organizations={"a": ["shop"], "b": ["size"]}, candidates=[only])
    model.fit(X, np.digitize(y, cuts) if classes else y)
    if classes:
        assert (model.predict(fresh) == np.digitize(truth, cuts)).mean() > (0.72 if len(cuts) == 1 else 0.55)
    else:
        assert r2_score(truth, model.predict(fresh)) > 0.55
    unknown = fresh.assign(shop=pd.Series(["a new one"]).reindex(fresh.index))  # and missing ones
    assert np.isfinite(model.predict(unknown)).all()


def test_pooled_is_as_good_as_a_ridge_with_a_column_for_each_of_many_categories() -> None:
    (X, y), (fresh, truth) = shops(1500, many=1000), shops(1500, seed=1, many=1000)
    one_hot = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["shop"]), (StandardScaler(), ["size"])
    )
    ridge = make_pipeline(one_hot, Ridge(0.5)).fit(X, y)
    found = pooled(organizations={"a": ["shop"], "b": ["size"]}).fit(X, y)
    assert r2_score(truth, found.predict(fresh)) > r2_score(truth, ridge.predict(fresh)) - 0.03
