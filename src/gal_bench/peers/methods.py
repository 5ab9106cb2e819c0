"""The peers: each gets a table and a seed and says the classes' probabilities of the rows to judge on.

The number of lines of each function is what the page calls the lines that a user writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from gal import GALClassifier
from gal.engine.task_making import LARGE
from gal_bench.peers.encoding import codes_of, judges
from gal_bench.peers.tables import PeerTable

Floats = NDArray[np.float64]
Said = tuple[Floats, int]
"""Probabilities (rows, classes), and the bytes that learning moved between organizations."""

STEPS = 1000
RATE = 0.1
PATIENCE = 20


def gal_default(table: PeerTable, seed: int) -> Said:
    probed = len(table.y) >= LARGE  # where there are rows to judge interaction probes on
    model = GALClassifier(table.organizations, random_state=seed, interactions=probed).fit(table.X, table.y)
    return model.predict_proba(table.X_test), model.traffic_.sent + model.traffic_.received


def gal_not_crossed(table: PeerTable, seed: int) -> Said:
    model = GALClassifier(table.organizations, random_state=seed).fit(table.X, table.y)
    return model.predict_proba(table.X_test), model.traffic_.sent + model.traffic_.received


def gal_alone(table: PeerTable, seed: int) -> Said:
    columns = {"label holder": table.own}
    model = GALClassifier(columns, random_state=seed).fit(table.X, table.y)
    return model.predict_proba(table.X_test), 0


def xgboost_alone(table: PeerTable, seed: int) -> Said:
    return _xgboost(table, table.own, seed), 0


def xgboost_pooled(table: PeerTable, seed: int) -> Said:
    return _xgboost(table, list(table.X.columns), seed), 0


def lightgbm_pooled(table: PeerTable, seed: int) -> Said:
    from lightgbm import LGBMClassifier, early_stopping

    codes, (fit, stop) = codes_of(table, list(table.X.columns)), judges(table.y, seed)
    model = LGBMClassifier(n_estimators=STEPS, learning_rate=RATE, n_jobs=1, verbose=-1, random_state=seed)
    model.fit(
        codes.train[fit],
        table.y[fit],
        eval_X=codes.train[stop],
        eval_y=table.y[stop],
        categorical_feature=[j for j, category in enumerate(codes.is_category) if category],
        callbacks=[early_stopping(PATIENCE, verbose=False)],
    )
    return np.asarray(model.predict_proba(codes.test)), 0


def boosting_pooled(table: PeerTable, seed: int) -> Said:
    codes = codes_of(table, list(table.X.columns))
    model = HistGradientBoostingClassifier(
        max_iter=STEPS,
        early_stopping=True,
        n_iter_no_change=PATIENCE,
        categorical_features=codes.is_category,
        random_state=seed,
    )
    return model.fit(codes.train, table.y).predict_proba(codes.test), 0


def forest_pooled(table: PeerTable, seed: int) -> Said:
    codes = codes_of(table, list(table.X.columns))
    forest = RandomForestClassifier(random_state=seed).fit(codes.train, table.y)
    return forest.predict_proba(codes.test), 0


def _xgboost(table: PeerTable, columns: Sequence[str], seed: int) -> Floats:
    from xgboost import XGBClassifier

    codes, (fit, stop) = codes_of(table, columns), judges(table.y, seed)
    model: Any = XGBClassifier(
        n_estimators=STEPS,
        learning_rate=RATE,
        early_stopping_rounds=PATIENCE,
        enable_categorical=True,
        feature_types=["c" if category else "q" for category in codes.is_category],
        n_jobs=1,
        random_state=seed,
    )
    model.fit(codes.train[fit], table.y[fit], eval_set=[(codes.train[stop], table.y[stop])], verbose=False)
    return np.asarray(model.predict_proba(codes.test), dtype=np.float64)
