"""What releases cost: epsilon and delta of one guarantee (``costs``), and of
many together (``composition``).
"""

from gal.privacy.accounting.composition import (
    Costliest,
    Event,
    canonical,
    gaussian_multiplier,
    laplace_multiplier,
    simply_summed,
    spent,
)
from gal.privacy.accounting.costs import Cost, check_bounds, check_delta, check_epsilon

__all__ = [
    "Cost",
    "Costliest",
    "Event",
    "canonical",
    "check_bounds",
    "check_delta",
    "check_epsilon",
    "gaussian_multiplier",
    "laplace_multiplier",
    "simply_summed",
    "spent",
]
