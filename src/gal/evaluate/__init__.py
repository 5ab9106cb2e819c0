"""Experiments: what assistance would bring, measured on data at hand."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from gal.on_demand import on_demand as _on_demand

if _TYPE_CHECKING:
    from gal.evaluate.reporting.writing import report
    from gal.evaluate.simulation import Interval, Simulation, Verdict, simulate

__all__ = ["Interval", "Simulation", "Verdict", "report", "simulate"]

_SIMULATION = dict.fromkeys(("Interval", "Simulation", "Verdict", "simulate"), "simulation")
__getattr__, __dir__ = _on_demand(__name__, globals(), {"report": "reporting.writing"} | _SIMULATION)
