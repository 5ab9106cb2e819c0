"""Columns as numbers, for peers that take no text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from gal.models.tabular import TableEncoder
from gal.models.tabular.frames import as_table
from gal_bench.peers.tables import PeerTable

Floats = NDArray[np.float64]
JUDGES = 0.1
"""Share of the rows to learn from on which peers stop early."""


@dataclass(frozen=True)
class Codes:
    """Codes of rows to learn from and of rows to judge on, and which columns are categories."""

    train: Floats
    test: Floats
    is_category: list[bool]
    encoder: TableEncoder


def codes_of(table: PeerTable, columns: Sequence[str]) -> Codes:
    """These columns, encoded as the rows to learn from have them."""
    encoder = TableEncoder().fit(as_table(table.X[list(columns)]))
    train, test = (encoder.codes(as_table(rows[list(columns)])) for rows in (table.X, table.X_test))
    return Codes(train, test, encoder.is_category_, encoder)


def judges(y: NDArray[Any], seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to fit, and rows that say when to stop."""
    fit, stop = train_test_split(np.arange(len(y)), test_size=JUDGES, random_state=seed, stratify=y)
    return np.asarray(fit), np.asarray(stop)
