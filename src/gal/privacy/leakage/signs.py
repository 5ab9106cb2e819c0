"""What crossed residuals tell: beside a residual of the rounds, each gives the sign that it was crossed with.

A sign is one bit of what another organization answers, mostly of the label holder's own columns; a dozen of
them are a fine code of these. Neither leaving plain residuals out nor turning a whole vector round hides it,
since earlier rounds gave the residual, and products of two crossed ones the product of their signs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from gal.privacy.leakage.transcript import Transcript

Signs = NDArray[np.int8]


@dataclass(frozen=True)
class SignLeak:
    """What one organization can read from the crossed residuals that it received."""

    organization: str
    vectors: int
    bits: float
    """Entropy of a row's signs together, in bits: at most one each, and at most log2 of the rows."""
    columns: tuple[float, ...]
    """Of each of the label holder's columns: what share of its variance the signs
    tell, on rows not looked at (R2); 0 where they tell nothing.
    """


def recovered_signs(transcript: Transcript, organization: str) -> Signs:
    """The signs (rows to fit, vectors) that an organization reads from what it received.

    It multiplies each crossed residual by the last plain one; for several outputs it takes the inner product.
    """
    rounds = [round for round, part in transcript.messages if part is None]
    plain = transcript.messages[max(rounds), None].residual
    vectors = transcript.crossed.get(organization, [])
    found = [np.where(np.einsum("ij,ij->i", one, plain) >= 0, 1, -1) for one in vectors]
    return np.array(found, dtype=np.int8).reshape(len(found), len(plain)).T


def measure_signs(transcript: Transcript, organization: str, columns: Any, *, seed: int = 0) -> SignLeak:
    """What an organization learns of the label holder's ``columns`` (rows to fit, d) from signs alone."""
    signs, columns = recovered_signs(transcript, organization), np.asarray(columns, dtype=np.float64)
    if signs.shape[1] == 0:
        return SignLeak(organization, 0, 0.0, (0.0,) * columns.shape[1])
    _, counts = np.unique(signs, axis=0, return_counts=True)
    shares = counts / counts.sum()
    rows = np.random.default_rng(seed).permutation(len(signs))
    seen, kept = np.split(rows, [len(rows) // 2])
    target = columns[seen] if columns.shape[1] > 1 else columns[seen, 0]
    forest = ExtraTreesRegressor(30, min_samples_leaf=10, random_state=seed).fit(signs[seen], target)
    said = forest.predict(signs[kept]).reshape(len(kept), -1)
    error = np.square(columns[kept] - said).mean(axis=0) / columns[kept].var(axis=0)
    told = tuple(float(max(0.0, 1.0 - one)) for one in error)
    return SignLeak(organization, signs.shape[1], float(-(shares * np.log2(shares)).sum()), told)
