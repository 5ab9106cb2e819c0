"""Stays in intensive care, as time series that four organizations hold: PhysioNet 2012 and MIMIC-III.

``series`` turns single measurements into hourly views, ``physionet`` reads the open set (numpy is enough),
``mimic`` the credentialed one and its open demo (with pandas).
"""

from gal_bench.data.medical.mimic import load_mimic
from gal_bench.data.medical.physionet import load_physionet

__all__ = ["load_mimic", "load_physionet"]
