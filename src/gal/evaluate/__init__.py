"""Experiments: what assistance would bring, measured on data at hand."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from gal.evaluate.simulation import Interval, Simulation, simulate

__all__ = ["Interval", "Simulation", "simulate"]


def __getattr__(name: str) -> _Any:
    """What tables need is imported when it is asked for: deep runs do without pandas."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gal.evaluate import simulation

    value = globals()[name] = getattr(simulation, name)
    return value
