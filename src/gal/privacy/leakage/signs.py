"""What interaction probes tell: beside a residual of the rounds, each gives the sign bits in it.

A sign is one bit of what another organization replies, mostly of the label holder's own columns; a dozen of
them are a fine code of these. Neither leaving plain residuals out nor turning a whole vector round hides it,
since earlier rounds gave the residual, and products of two probes the product of their sign bits.
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

Positions = NDArray[np.intp]
Signs = NDArray[np.int8]

MOST_READING = 10_000
"""Rows from which, and about which, an organization guesses: more tell it hardly more."""


@dataclass(frozen=True)
class SignLeak:
    """What one organization can read from the interaction probes that it received."""

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


def probed_rows(transcript: Transcript, roles: Rows) -> tuple[Positions, Positions, Positions]:
    """Rows of the task that a plain residual and probes are both known of, where they stand among the rows of
    the plain residual, and among those of the probes.
    """
    fit = roles.fit if transcript.kept is None else roles.fit[np.isin(roles.fit, transcript.kept)]
    rows, plain, probes = np.intersect1d(fit, roles.sample[roles.of_probes.fit], return_indices=True)
    return rows, plain, probes


def recovered_signs(transcript: Transcript, organization: str, roles: Rows) -> Signs:
    """The signs (`probed_rows`, vectors) that an organization reads from what it received.

    It multiplies each probe by the last plain residual; for several outputs it takes the inner product.
    """
    _, places, among = probed_rows(transcript, roles)
    rounds = [round for round, part in transcript.messages if part is None]
    plain = transcript.messages[max(rounds), None].residual[places]
    vectors = [one[among] for one in transcript.probes.get(organization, [])]
    found = [np.where(np.einsum("ij,ij->i", one, plain) >= 0, 1, -1) for one in vectors]
    return np.array(found, dtype=np.int8).reshape(len(found), len(plain)).T


def measure_signs(
    transcript: Transcript, organization: str, columns: Any, roles: Rows, *, seed: int = 0
) -> SignLeak:
    """What an organization learns of the label holder's ``columns`` (n, d) from signs alone."""
    columns = np.asarray(columns, dtype=np.float64)
    if organization not in transcript.probes:
        return SignLeak(organization, 0, 0.0, (0.0,) * columns.shape[1])
    signs = recovered_signs(transcript, organization, roles)
    columns = columns[probed_rows(transcript, roles)[0]]
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
    """What every other organization that received interaction probes reads of the label holder's view.

    Of a category the value counts that is told best.
    """
    probed = sorted(set(transcript.probes) - {label_holder})
    if not probed or own_view is None:
        return []
    numbers, places, names = columns_as_numbers(own_view)
    found = [measure_signs(transcript, name, numbers, roles, seed=seed) for name in probed]
    return [
        replace(
            one, columns=tuple(max(one.columns[place], default=0.0) for place in places), names=tuple(names)
        )
        for one in found
    ]
