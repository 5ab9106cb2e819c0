"""Facts of whatever a report can be about."""

from __future__ import annotations

from typing import Any

from gal.errors import InvalidInputError
from gal.evaluate.reporting.facts import ReportFacts
from gal.evaluate.reporting.learned import facts_of_model
from gal.evaluate.reporting.simulated import facts_of_simulation
from gal.evaluate.simulation import Simulation


def gathered(found: Any, X: Any = None, y: Any = None) -> ReportFacts:
    """Of a simulation, or of a fitted ``GALClassifier`` or ``GALRegressor``."""
    if isinstance(found, Simulation):
        return facts_of_simulation(found)
    if not hasattr(found, "ensemble_"):
        raise InvalidInputError(
            f"a report is about a simulation or a fitted GALClassifier or GALRegressor, not about a "
            f"{type(found).__name__}: fit it first"
        )
    return facts_of_model(found, X, y)


__all__ = ["gathered"]
