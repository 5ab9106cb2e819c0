"""Sums as an option of a task: what is agreed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gal.core.state import Ensemble
from gal.errors import InvalidOptionError

SUM = "the others together"
"""Stands where an organization's name does, for all whose answers come as one sum."""


def from_sums(ensemble: Ensemble) -> bool:
    """Whether a prediction of this model is asked for as a sum."""
    return SUM in ensemble.requested()


FEWEST = 3
"""Answers in a sum, the label holder's own not counted: a sum of one is an answer, and of two each of both
organizations could take its own away.
"""


@dataclass(frozen=True)
class Sums:
    """Answers arrive as one sum; ``drop_outs`` organizations may be lost on the way, for good.

    With 0 a sum is opened with everybody's answer in it, or not at all. With more, who dropped out stays
    out, and the label holder can come close to one of its answers: see docs/concepts/secure-aggregation.md.
    """

    drop_outs: int = 0

    def __post_init__(self) -> None:
        number = isinstance(self.drop_outs, int | np.integer) and not isinstance(self.drop_outs, bool)
        if not number or self.drop_outs < 0:
            raise InvalidOptionError(f"drop_outs must be a whole number from 0 on, got {self.drop_outs!r}")

    def check(self, members: int) -> None:
        """An error where so many assisting organizations are too few."""
        least = max(FEWEST + self.drop_outs, 2 * self.drop_outs + 1)
        if members < least:
            spare = f" of which {self.drop_outs} may drop out," if self.drop_outs else ""
            raise InvalidOptionError(
                f"secrecy='sums' needs at least {least} organizations beside the label holder,{spare} and "
                f"there are {members}: a sum of fewer than {FEWEST} answers tells too much about each of them"
            )


def read_secrecy(secrecy: Any) -> Sums | None:
    """The option ``secrecy``: None, "sums", or :class:`Sums`."""
    if secrecy is None or isinstance(secrecy, Sums):
        return secrecy
    if isinstance(secrecy, str) and secrecy == "sums":
        return Sums()
    raise InvalidOptionError(
        f"secrecy must be None, 'sums' or gal.secure_aggregation.Sums(...), got {secrecy!r}"
    )
