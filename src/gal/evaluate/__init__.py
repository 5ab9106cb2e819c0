"""Experiments: what assistance would bring, measured on data at hand."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from gal.evaluate.reporting.displays import plot_calibration, plot_contributions, plot_rounds
    from gal.evaluate.reporting.writing import report
    from gal.evaluate.simulation import Interval, Simulation, Verdict, simulate

__all__ = [
    "Interval",
    "Simulation",
    "Verdict",
    "plot_calibration",
    "plot_contributions",
    "plot_rounds",
    "report",
    "simulate",
]

_HOMES = {"report": "reporting.writing"} | dict.fromkeys(
    ("plot_calibration", "plot_contributions", "plot_rounds"), "reporting.displays"
)


def __getattr__(name: str) -> _Any:
    """What tables need is imported when it is asked for: deep runs do without pandas."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = import_module(f"{__name__}.{_HOMES.get(name, 'simulation')}")
    value = globals()[name] = getattr(home, name)
    return value
