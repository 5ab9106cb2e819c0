"""What crossed residuals tell: beside a residual of the rounds, each gives the sign that it was crossed with.

A sign is one bit of what another organization answers, mostly of the label holder's own columns; a dozen of
them are a fine code of these. Neither leaving plain residuals out nor turning a whole vector round hides it,
since earlier rounds gave the residual, and products of two crossed ones the product of their signs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from gal.core.rows import Rows
from gal.privacy.leakage.reconstruction import columns_as_numbers
from gal.privacy.leakage.transcript import Transcript

Signs = NDArray[np.int8]

MOST_READING = 10_000
"""Rows from which, and about which, an organization guesses: more tell it hardly more."""


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
    names: tuple[str, ...] = ()
    """What these columns are called, where they have names."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return vars(self) | {"columns": list(self.columns), "names": list(self.names)}

    def sentence(self) -> str:
        """What it means, in plain words."""
        said = (
            f"Interaction probes gave {self.organization} {self.vectors} "
            f"{'sign' if self.vectors == 1 else 'signs'} of every row ({self.bits:.1f} bits)"
        )
        most = int(np.argmax(self.columns))
        called = repr(self.names[most]) if self.names else f"column {most}"
        return f"{said}: they alone explain {100 * self.columns[most]:.0f} % of {called} of the label holder."


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
    rows = np.random.default_rng(seed).permutation(len(signs))[:MOST_READING]
    seen, kept = np.split(rows, [len(rows) // 2])
    target = columns[seen] if columns.shape[1] > 1 else columns[seen, 0]
    forest = ExtraTreesRegressor(30, min_samples_leaf=10, random_state=seed).fit(signs[seen], target)
    said = forest.predict(signs[kept]).reshape(len(kept), -1)
    error, spread = np.square(columns[kept] - said).mean(axis=0), columns[kept].var(axis=0)
    shown = 1.0 - np.divide(error, spread, out=np.ones_like(error), where=spread > 0)
    told = tuple(float(max(0.0, one)) for one in shown)
    return SignLeak(organization, signs.shape[1], float(-(shares * np.log2(shares)).sum()), told)


def signs_of(
    transcript: Transcript, roles: Rows, own_view: Any, label_holder: str | None, *, seed: int = 0
) -> list[SignLeak]:
    """What every other organization that received crossed residuals reads of the label holder's view.

    Of a category the value counts that is told best.
    """
    heard = sorted(set(transcript.crossed) - {label_holder})
    if not heard or own_view is None:
        return []
    fit = roles.fit if transcript.kept is None else roles.fit[np.isin(roles.fit, transcript.kept)]
    numbers, places, names = columns_as_numbers(own_view)
    found = [measure_signs(transcript, name, numbers[fit], seed=seed) for name in heard]
    return [
        replace(
            one, columns=tuple(max(one.columns[place], default=0.0) for place in places), names=tuple(names)
        )
        for one in found
    ]
