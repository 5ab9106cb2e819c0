"""Weights that leave out answers which cannot be meant to help, before the others are weighed.

An honest answer goes along with the residual, at least a little. One that does not, or that counts only
because another one cancels it, may be a fault, noise or an attack; whatever it is, nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gal.core.weights import AssistanceWeights, Fitted, Floats, Floats32

CANCELS = 3.0
"""An answer that moves the output so many times as far as all together is there to be cancelled."""
PROVEN = 2.0
"""Standard errors by which answers must go along with the residual on rows that nobody has fitted."""
AUDIBLE = 0.1
"""Where nobody's answers go along with the residual, those smaller than this share of the largest are left
out: who says nothing of these rows would seem to harm least, and can say anything of others in prediction.
"""


@dataclass(frozen=True)
class GuardedWeights:
    """The weights of ``finder`` among the answers that are believed; 0 for the others.

    ``proven`` standard errors are asked for on rows whose residual was not sent: there noise goes along with
    it by chance only. On rows that were fitted every honest answer goes along with it, and 0 is enough.
    """

    finder: AssistanceWeights
    proven: float = 0.0

    def __call__(
        self, residual: Floats32, fitted: Sequence[Floats32], sample_weight: Floats | None = None
    ) -> Floats:
        fitted = Fitted.of(fitted, residual, sample_weight)
        gram = fitted.products.gram
        kept = self._along(gram, len(residual))
        while True:
            weights = self._among(kept, residual, fitted, sample_weight)
            apart = _cancelled(weights, gram)
            if not apart.any() or apart[kept].all():
                return weights
            kept = kept[~apart[kept]]

    def _along(self, gram: Floats, n_rows: int) -> NDArray[np.intp]:
        """Whose answers go along with the residual far enough; if nobody's do, a little; else
        everybody's who says something.
        """
        m = len(gram) - 1
        error = np.sqrt(np.diag(gram)[:m] * gram[m, m] / max(n_rows, 1))
        for least in (self.proven, 0.0):
            found = np.flatnonzero(gram[:m, m] > least * error)
            if len(found):
                return found
        sizes = np.sqrt(np.diag(gram)[:m])
        return np.flatnonzero(sizes >= AUDIBLE * sizes.max())

    def _among(
        self,
        kept: NDArray[np.intp],
        residual: Floats32,
        fitted: Fitted,
        sample_weight: Floats | None,
    ) -> Floats:
        if len(kept) == len(fitted):
            return self.finder(residual, fitted, sample_weight)
        weights = np.zeros(len(fitted))
        few = Fitted([fitted[place] for place in kept], residual, sample_weight)
        weights[kept] = self.finder(residual, few, sample_weight)
        return weights


def _cancelled(weights: Floats, gram: Floats) -> NDArray[np.bool_]:
    """Whose answers move the output further than all together do, by far."""
    m = len(weights)
    each = weights * np.sqrt(np.diag(gram)[:m])
    together = np.sqrt(max(float(weights @ gram[:m, :m] @ weights), 0.0))
    return np.asarray(each > CANCELS * together)
