"""Epsilon, delta and public bounds: what a privacy guarantee is stated in,
and checks that they make sense.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gal.errors import InvalidOptionError

SMALLEST_EPSILON = 1e-6
"""Below this a keep probability cannot be told from chance, and nothing can be learned anyway."""

LARGEST_EPSILON = 30.0
"""Beyond this a keep probability cannot be told from 1, and nothing is protected anyway."""


@dataclass(frozen=True)
class Cost:
    """(epsilon, delta) of differential privacy for one row's label.

    >>> print(Cost(1.0), "|", Cost(2.0, 1e-6))
    epsilon 1 | epsilon 2, delta 1e-06
    """

    epsilon: float
    delta: float = 0.0

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g}" + (f", delta {self.delta:g}" if self.delta else "")


def check_epsilon(epsilon: Any) -> None:
    """An error where this is no epsilon."""
    if not _is_number(epsilon) or not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise InvalidOptionError(
            f"epsilon must be a number above 0, from {SMALLEST_EPSILON:g} (less teaches nothing) to "
            f"{LARGEST_EPSILON:g} (more "
            f"protects nothing), got {epsilon!r}"
        )


def check_delta(delta: Any) -> None:
    """An error where this is no delta."""
    if not isinstance(delta, float) or not 0 < delta < 1:
        raise InvalidOptionError(f"delta must be a number between 0 and 1, such as 1e-6, got {delta!r}")


def check_bounds(lower: Any, upper: Any) -> None:
    """An error where these are no public bounds."""
    if lower is None or upper is None or not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
        raise InvalidOptionError(
            f"public bounds lower < upper are needed, chosen without looking at the labels, got {lower!r} "
            f"and {upper!r}"
        )


def check_clip(clip: Any, of: str, *, unseen: str) -> None:
    """An error where this is no public bound of residuals or answers (``of``)."""
    if not _is_number(clip) or not 0 < clip < math.inf:
        raise InvalidOptionError(
            f"clip must be a number above 0: a public bound of {of}, chosen without looking at {unseen}, got "
            f"{clip!r}"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
