"""Experiments: what assistance would bring, measured on data at hand."""

from gal.experiments.simulation import Interval, Simulation, simulate

__all__ = ["Interval", "Simulation", "simulate"]
