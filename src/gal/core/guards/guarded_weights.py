"""Weights among organizations whose fitted values go along with the residual, significantly.

Fitted values that do not, or that count only because others cancel them, may be a fault, noise or an attack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gal.core.weights import AssistanceWeights, Fitted, Floats, Floats32

CANCELS = 3.0
"""Fitted values that move the output so many times as far as all together are there to be cancelled."""
PROVEN = 2.0
"""Standard errors by which fitted values must go along with the residual on rows that were not fitted."""

AUDIBLE = 0.1
"""Where no fitted values go along with the residual, those smaller than this share of the largest are left
out: they would seem to harm least, and can be anything in prediction.
"""


@dataclass(frozen=True)
class GuardedWeights:
    """The weights of ``finder`` among these organizations; 0 for the others.

    ``proven`` standard errors are needed on rows whose residual was not sent: there noise goes along with it
    by chance only. On rows that were fitted every honest organization goes along, and 0 is enough.
    """

    finder: AssistanceWeights
    proven: float = 0.0

    def __call__(
        self, residual: Floats32, fitted: Sequence[Floats32], sample_weight: Floats | None = None
    ) -> Floats:
        fitted = Fitted.of(fitted, residual, sample_weight)
        gram, m = fitted.gram, len(fitted)
        sizes, along = np.sqrt(np.diag(gram)[:m]), np.full(m, -np.inf)
        errors = sizes * np.sqrt(gram[m, m] / max(len(residual), 1))
        np.divide(gram[:m, m], errors, out=along, where=errors > 0)
        stages = (along > self.proven, along > 0.0, sizes >= AUDIBLE * sizes.max())
        kept = next(np.flatnonzero(some) for some in stages if some.any())
        while True:
            weights = np.zeros(m)
            few = fitted if len(kept) == m else Fitted([fitted[at] for at in kept], residual, sample_weight)
            weights[kept] = self.finder(residual, few, sample_weight)
            together = np.sqrt(max(float(weights @ gram[:m, :m] @ weights), 0.0))
            cancelled = weights * sizes > CANCELS * together
            if not cancelled.any() or cancelled[kept].all():
                return weights
            kept = kept[~cancelled[kept]]
