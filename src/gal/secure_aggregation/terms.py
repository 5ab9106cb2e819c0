"""Sums as an option of a task: what is agreed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gal.core.state import Ensemble
from gal.errors import InvalidOptionError

SUM = "the others together"
"""Stands where an organization's name does, for all members of one sum."""


def from_sums(ensemble: Ensemble) -> bool:
    """Whether predictions of this model are sums."""
    return SUM in ensemble.requested()


FEWEST = 3
"""Answers in a sum, the label holder's own not counted: a sum of one is an answer, and of two each of both
organizations could take its own away.
"""


@dataclass(frozen=True)
class Sums:
    """Fitted values arrive as one sum; see docs/concepts/secure-aggregation.md.

    Parameters
    ----------
    drop_outs : how many organizations may be lost, for good. With 0, a sum has everybody's values in it or is
        not opened.
    noise_multiplier : standard deviation / L2 sensitivity of the discrete Gaussian noise on each sum, from
        ``gal.privacy.noise_multiplier(epsilon, delta, releases)``. Every member adds its share. 0: none
    clip : public bound of fitted values where there is noise. Residuals have a root mean square of about 1.
    """

    drop_outs: int = 0
    noise_multiplier: float = 0.0
    clip: float = 2.0

    def __post_init__(self) -> None:
        number = isinstance(self.drop_outs, int | np.integer) and not isinstance(self.drop_outs, bool)
        if not number or self.drop_outs < 0:
            raise InvalidOptionError(f"drop_outs must be a whole number from 0 on, got {self.drop_outs!r}")
        if not (0 <= self.noise_multiplier < 1e4 and 1e-2 <= self.clip <= 1e3):
            raise InvalidOptionError(
                "noise_multiplier must be from 0 (no noise) to below 10,000 and clip from 0.01 to 1,000, got "
                f"{self.noise_multiplier!r} and {self.clip!r}"
            )

    @property
    def noise(self) -> tuple[float, ...]:
        """Multiplier and clip; none without noise."""
        return (self.noise_multiplier, self.clip) if self.noise_multiplier else ()

    def check(self, members: int) -> None:
        """An error where so many assisting organizations are too few."""
        least = max(FEWEST + self.drop_outs, 2 * self.drop_outs + 1)
        if members < least:
            spare = f" of which {self.drop_outs} may drop out," if self.drop_outs else ""
            raise InvalidOptionError(
                f"secure_aggregation='sums' needs at least {least} organizations beside the label holder,"
                f"{spare} and there are {members}: fewer than {FEWEST} replies reveal too much of each"
            )


def read_secure_aggregation(secure_aggregation: Any) -> Sums | None:
    """The option ``secure_aggregation``: None, "sums", or :class:`Sums`."""
    if secure_aggregation is None or isinstance(secure_aggregation, Sums):
        return secure_aggregation
    if isinstance(secure_aggregation, str) and secure_aggregation == "sums":
        return Sums()
    raise InvalidOptionError(
        "secure_aggregation must be None, 'sums' or gal.secure_aggregation.Sums(...), got "
        f"{secure_aggregation!r}"
    )
