"""The tables on which pieces of the learner are switched off: real ones, made-up ones and attacked ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gal.learner.task_making import LARGE
from gal_bench.data.datasets import Dataset, Partition, load
from gal_bench.data.splits import random_partition

Floats = NDArray[np.float64]
Kind = Literal["numbers", "two", "several"]

FIRST_SPLIT = 3600
"""Splits are drawn with numbers that no choice of the defaults was made with."""
TEST_ROWS = 10_000
"""Test rows, at most."""
NAMES = ("alice", "bob", "carol", "dave")
WIDTH = 4
"""Columns of each organization in made-up tables."""
CLASSES = 5
CATEGORIES = {"bob": 400, "dave": 1500}
ORGANIZATIONS = 4


@dataclass(frozen=True, eq=False)
class Table:
    """Rows to learn from, test rows, and who holds which columns; the label holder is the first."""

    X: pd.DataFrame
    y: NDArray[Any]
    X_test: pd.DataFrame
    y_test: NDArray[Any]
    organizations: Partition


@dataclass(frozen=True)
class Source:
    """Where the splits of a table come from, and what decides which pieces act on it."""

    rows: int
    """To learn from; about, for real tables."""
    kind: Kind
    draw: Callable[[int], Table]
    attack: str = ""
    """What the last organization does, by its name in ``adversaries.ATTACKS`` of the tests."""
    categories: bool = False
    """Whether a column has many categories."""
    splits: int = 8
    real: bool = False

    @property
    def is_large(self) -> bool:
        """Whether rows are held back, where fewer would be cross-validated."""
        return self.rows >= LARGE


# --- made up


def _signals(form: str, views: list[Floats]) -> Floats:
    """What labels follow, shape (n,), or (n, classes)."""
    a, b, c, d = views
    if form == "additive":
        smooth = a[:, 0] + np.sin(2 * b[:, 0]) + np.abs(c[:, 0]) - 0.8
        return np.asarray(smooth + 0.7 * a[:, 1] - 1.2 * (d[:, 0] > 0.3) + 0.5 * c[:, 1])
    if form == "product":
        return np.asarray(a[:, 0] + b[:, 0] + c[:, 0] + d[:, 1] + 1.2 * a[:, 1] * b[:, 1] + c[:, 2] ** 2)
    if form == "sum and product":
        return np.asarray(a[:, 0] + b[:, 0] + 2 * a[:, 0] * b[:, 0] + 0.5 * d[:, 0])
    if form == "xor":
        return np.asarray(4 * np.sign(a[:, 0] * b[:, 0]))
    if form == "parity":
        return np.asarray(4 * np.sign(a[:, 0] * b[:, 0] * c[:, 0]))
    if form == "ring":
        return np.asarray(8.0 * (a[:, 0] ** 2 + b[:, 0] ** 2 < 1.4) - 4)
    if form == "noisy":
        return np.asarray(0.3 * (a[:, 0] + b[:, 0] + c[:, 0] + d[:, 0]) + 0.2 * b[:, 1] ** 2)
    if form == "within":  # what columns of one organization say together
        pairs = sum(view[:, 0] * view[:, 1] for view in views)
        return np.asarray(
            0.8 * pairs + 1.5 * (a[:, 2] > 0) * (a[:, 3] > 0) - 1.5 * (b[:, 2] > 0) * (b[:, 3] > 0)
        )
    if form == "useless":
        return np.asarray(1.5 * a[:, 0] + np.abs(a[:, 1]) - 0.8)
    assert form == "several"
    fixed = np.random.default_rng(7)
    whole = np.hstack([view[:, :3] for view in views])
    lines = whole @ fixed.normal(size=(whole.shape[1], CLASSES))
    squares = (whole @ fixed.normal(size=(whole.shape[1], CLASSES))) ** 2
    return np.asarray(0.6 * lines + 0.15 * squares)


def made(form: str, rows: int, split: int) -> Table:
    """One draw of a made-up table."""
    rng = np.random.default_rng([split, rows])
    n = rows + TEST_ROWS
    views = [rng.normal(size=(n, WIDTH)) for _ in NAMES]
    X = pd.DataFrame(np.hstack(views), columns=[f"{name}_{j}" for name in NAMES for j in range(WIDTH)])
    parts = {name: [f"{name}_{j}" for j in range(WIDTH)] for name in NAMES}
    if form == "categories":
        signal = 0.8 * views[0][:, 0] + 0.8 * views[2][:, 0]
        for name, many in CATEGORIES.items():
            effects = np.random.default_rng(many).normal(size=many)
            drawn = (many * rng.random(n) ** 2).astype(np.intp)  # some categories have many rows, most few
            signal = signal + effects[drawn]
            X[f"{name}_place"] = np.array([f"place {one}" for one in range(many)], dtype=object)[drawn]
            parts[name].append(f"{name}_place")
    else:
        signal = _signals(form, views)
    y: NDArray[Any]
    if form == "product":
        y = signal + 0.6 * rng.normal(size=n)
    elif form == "several":
        y = (signal + rng.gumbel(size=signal.shape)).argmax(axis=1)
    else:
        y = (rng.random(n) < 1 / (1 + np.exp(-signal))).astype(np.int64)
    return _divided(X, y, np.arange(rows), np.arange(rows, n), parts)


# --- real


@cache
def _loaded(name: str) -> Dataset:
    if name != "Digits":
        return load(name)
    digits = load_digits(as_frame=True)
    return Dataset(name, digits.data, digits.target.to_numpy().astype(np.int64), True)


def real(name: str, rows: int | None, two: bool, split: int) -> Table:
    """So many rows (None: four fifths) drawn at random to learn from; columns are divided by name where that
    is known, else at random.

    ``two``: whether a row is of the first class or not.
    """
    data = _loaded(name)
    y = (data.y == 1).astype(np.int64) if two else data.y
    n = len(y)
    learned = int(0.8 * n) if rows is None else rows
    train, test = train_test_split(
        np.arange(n),
        train_size=learned,
        test_size=min(n - learned, max(TEST_ROWS, learned // 4)),
        random_state=split,
        stratify=y if data.classes else None,
    )
    parts = data.partition or random_partition(list(data.X.columns), ORGANIZATIONS, split)
    return _divided(data.X, y, train, test, parts)


def _divided(
    X: pd.DataFrame, y: NDArray[Any], train: NDArray[Any], test: NDArray[Any], parts: Partition
) -> Table:
    tables = (X.iloc[rows].reset_index(drop=True) for rows in (train, test))
    return Table(next(tables), y[train], next(tables), y[test], parts)


# --- all


def _made(form: str, rows: int, kind: Kind, **facts: Any) -> dict[str, Source]:
    draw = partial(made, form, rows)
    return {f"{form} {rows:,}": Source(rows, kind, draw, categories=form == "categories", **facts)}


def _real(
    name: str, rows: int | None, about: int, kind: Kind, *, two: bool = False, splits: int = 8
) -> dict[str, Source]:
    short = name if rows is None else f"{name} {rows:,}"
    draw = partial(real, name, rows, two)
    return {f"{short}, two classes" if two else short: Source(about, kind, draw, splits=splits, real=True)}


def _attacked(attack: str, rows: int) -> dict[str, Source]:
    draw = partial(made, "additive", rows)
    return {f"attack: {attack} {rows:,}": Source(rows, "two", draw, attack=attack)}


ATTACKED = ("memorised", "copies fitted rows", "honest first", "reversed", "noise answers")

TABLES: dict[str, Source] = {
    **_made("additive", 1000, "two"),
    **_made("noisy", 1000, "two"),
    **_made("product", 1000, "numbers"),
    **_made("several", 1000, "several"),
    **_real("QSAR", None, 844, "two"),
    **_real("Diabetes", None, 353, "numbers"),
    **_made("additive", 3000, "two"),
    **_made("noisy", 3000, "two"),
    **_made("product", 3000, "numbers"),
    **_made("several", 3000, "several"),
    **_made("categories", 3000, "two"),
    **_real("Adult", 20_000, 20_000, "two"),
    **_real("CreditDefault", 22_500, 22_500, "two"),
    **_real("Covertype", 20_000, 20_000, "two", two=True),
    **_made("within", 1000, "two"),
    **_made("within", 3000, "two"),
    **_made("useless", 1000, "two"),
    **_made("useless", 3000, "two"),
    **_made("categories", 1000, "two"),
    **_real("BostonHousing", None, 404, "numbers"),
    **_real("BreastCancer", None, 455, "two"),
    **_real("Wine", None, 142, "several"),
    **_real("Digits", None, 1437, "several"),
    **_made("ring", 3000, "two"),
    **_made("xor", 3000, "two"),
    **_made("product", 20_000, "numbers"),
    **_made("sum and product", 20_000, "two"),
    **_made("additive", 20_000, "two"),
    **_made("within", 20_000, "two"),
    **_made("categories", 20_000, "two"),
    **_made("several", 20_000, "several"),
    **_made("parity", 20_000, "two"),
    **_real("Covertype", 10_000, 10_000, "several", splits=4),
    **{
        name: one
        for rows in (1000, 3000)
        for attack in ATTACKED
        for name, one in _attacked(attack, rows).items()
    },
    **_made("sum and product", 300_000, "two", splits=4),
    **_real("Covertype", 225_000, 225_000, "two", two=True, splits=4),
    **_real("Covertype", 45_000, 45_000, "several", splits=4),
}
