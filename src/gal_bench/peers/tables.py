"""The tables on which peers are compared, and who holds which columns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from gal.errors import InvalidInputError, MissingDataError
from gal_bench.data.datasets import Dataset, Partition, load
from gal_bench.data.partitions import named_partition, vertibench_partition

PARTIES = 4
ALPHAS = (0.1, 1.0, 100.0)
LETTER = "letter/letter-recognition.data"
LETTERS = 20_000
COVERTYPE_ROWS = 58_101
"""A tenth of Covertype."""

SETS = ("Adult", "CreditDefault", "Covertype", "Letter")


@dataclass(frozen=True, eq=False)
class PeerTable:
    """Rows to learn from and rows to judge on; columns by organization, the label holder first."""

    name: str
    split: str
    """Who holds which columns, in a word."""
    organizations: Partition
    X: pd.DataFrame
    y: NDArray[np.int64]
    X_test: pd.DataFrame
    y_test: NDArray[np.int64]

    @property
    def n_classes(self) -> int:
        """Of the labels."""
        return int(self.y.max()) + 1

    @property
    def own(self) -> list[str]:
        """The label holder's columns."""
        return next(iter(self.organizations.values()))


def peer_tables(name: str, data_dir: Path | None, seed: int) -> Iterator[PeerTable]:
    """A data set as it is divided by name, or at random as VertiBench draws it."""
    data = _letter(data_dir) if name == "Letter" else load(name, data_dir)
    train, test = _rows(data, seed)
    divided = (
        {"by name": named_partition(data)}
        if name in ("Adult", "CreditDefault")
        else {
            f"alpha {alpha:g}": vertibench_partition(list(data.X.columns), PARTIES, alpha, seed)
            for alpha in ALPHAS
        }
    )
    for split, organizations in divided.items():
        X, y = data.X, data.y
        yield PeerTable(
            name, split, organizations, X.iloc[train], y[train], X.iloc[test], y[test].astype(np.int64)
        )


def _rows(data: Dataset, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = np.arange(len(data.y))
    if data.test is not None:
        return np.setdiff1d(rows, data.test), data.test
    if data.name == "Covertype":
        rows = np.sort(np.random.default_rng(seed).permutation(len(rows))[:COVERTYPE_ROWS])
    train, test = train_test_split(rows, test_size=0.2, random_state=seed, stratify=data.y[rows])
    return np.asarray(train), np.asarray(test)


def _letter(data_dir: Path | None) -> Dataset:
    """UCI 'Letter Recognition': the letter, then 16 whole numbers; the rows in any order."""
    folder = data_dir or os.environ.get("GAL_DATA")
    path = None if folder is None else Path(folder) / LETTER
    if path is None or not path.is_file():
        raise MissingDataError(
            f"{LETTER} is not in the data folder: get it from https://archive.ics.uci.edu/dataset/59"
        )
    names = ["letter", *(f"x{j}" for j in range(16))]
    table = pd.read_csv(path, header=None)
    if table.shape != (LETTERS, 17) or int((table[0] == "A").sum()) != 789:
        raise InvalidInputError(f"{str(path)!r} must have {LETTERS} rows of 17 columns, 789 of them A")
    table.columns = pd.Index(names)
    y = (table.pop("letter").map(ord) - ord("A")).to_numpy().astype(np.int64)
    return Dataset("Letter", table.astype(np.float64), y, True, tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
