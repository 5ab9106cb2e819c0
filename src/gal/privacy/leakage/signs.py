"""What interaction probes tell: beside a residual of the rounds, each gives the sign bits in it.

A sign is one bit of what another organization replies, and so of its columns, or of the label holder's; a
dozen of them are a fine code of these. Neither leaving plain residuals out nor turning a whole vector round
hides it, since earlier rounds gave the residual, and products of two probes the product of their sign bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
class SignColumn:
    """What signs alone tell of one column of another organization."""

    organization: str
    """Whose column it is."""
    column: str
    told: float
    """The share of its variance, on rows not looked at (R2); 0 where they tell nothing. Of a category the
    value counts that is told best.
    """


@dataclass(frozen=True)
class SignLeak:
    """What one organization can read from the interaction probes that it received."""

    organization: str
    vectors: int
    bits: float
    """Entropy of a row's signs together, in bits: at most one each, and at most log2 of the rows."""
    columns: tuple[SignColumn, ...]
    """Of the label holder and of every other organization whose columns are at hand."""

    @property
    def most(self) -> SignColumn:
        """The column that they tell most of."""
        return max(self.columns, key=lambda one: one.told)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return vars(self) | {"columns": [asdict(one) for one in self.columns]}

    def sentence(self) -> str:
        """What it means, in plain words."""
        signs = "sign" if self.vectors == 1 else "signs"
        return (
            f"Interaction probes gave {self.organization} {self.vectors} {signs} of every row "
            f"({self.bits:.1f} bits): they alone explain {100 * self.most.told:.0f} % of "
            f"{self.most.column!r} of {self.most.organization}."
        )


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
    transcript: Transcript, organization: str, views: Mapping[str, Any], roles: Rows, *, seed: int = 0
) -> SignLeak:
    """What an organization learns from signs alone of the columns of others.

    ``views`` (all rows) by organization, the label holder's among them.
    """
    read = {name: columns_as_numbers(view) for name, view in views.items() if name != organization}
    signs = recovered_signs(transcript, organization, roles)
    rows = probed_rows(transcript, roles)[0]
    counts = np.unique(signs, axis=0, return_counts=True)[1] if signs.size else np.ones(1)
    shares = counts / counts.sum()
    drawn = np.random.default_rng(seed).permutation(len(signs))[:MOST_READING]
    seen, kept = np.split(drawn, [len(drawn) // 2])
    columns: list[SignColumn] = []
    for name, (numbers, places, labels) in read.items():
        truth = numbers[rows]
        told = np.zeros(truth.shape[1])
        if signs.size:
            target = truth[seen] if truth.shape[1] > 1 else truth[seen, 0]
            forest = ExtraTreesRegressor(30, min_samples_leaf=10, random_state=seed).fit(signs[seen], target)
            said = forest.predict(signs[kept]).reshape(len(kept), -1)
            error, spread = np.square(truth[kept] - said).mean(axis=0), truth[kept].var(axis=0)
            told = 1.0 - np.divide(error, spread, out=np.ones_like(error), where=spread > 0)
        columns += [
            SignColumn(name, label, float(max(0.0, told[place].max(initial=0.0))))
            for label, place in zip(labels, places, strict=True)
        ]
    return SignLeak(organization, signs.shape[1], float(-(shares * np.log2(shares)).sum()), tuple(columns))
