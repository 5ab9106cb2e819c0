"""Residuals by the curve of the loss: what Newton's step would ask for, instead of the steepest one.

A log loss bends little where the output is already sure, so a step that suits all rows is too short for
these: ten rounds end before they are done. Dividing each row's residual by how much its loss bends, and
counting the row by as much, lets one fit ask for the whole step (as boosted trees do in their leaves).

Nobody is told more: with ``r = y - p`` the bend is ``sum_k |r_k| (1 - |r_k|)``, which whoever has a plain
residual can compute.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss
from gal.core.passes import over_blocks

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

FLATTEST = 0.02
"""No row counts as flatter than this: one that is sure and wrong would ask for a step of any size."""


def bends(loss: Loss) -> bool:
    """Whether the curve of this loss follows from its residual."""
    return isinstance(loss, BinaryLogLoss | MultinomialLogLoss)


def curved_residual(
    loss: Loss, y: Floats, output: Floats, importance: Floats | None
) -> tuple[Floats32, Floats]:
    """Residual over bend, shape (n, K), and how much each row counts: its bend times its importance."""
    residual = np.empty(output.shape, dtype=np.float32)
    counts = np.empty(len(output))

    def fill(block: slice) -> None:
        part = loss.pseudo_residual(y[block], output[block])
        size = np.abs(part)
        bend = np.maximum((size * (1.0 - size)).sum(axis=1), FLATTEST)
        residual[block] = part / bend[:, None]
        counts[block] = bend if importance is None else bend * importance[block]

    over_blocks(fill, *output.shape)
    # As exact as they need to be: half of the digits are half of the bytes where messages are packed.
    return residual, counts.astype(np.float32).astype(np.float64)
