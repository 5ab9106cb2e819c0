"""What is installed only if asked for: one table of extras, the packages they bring, and what for.

``pip install gal-learn`` brings the estimators and ``gal simulate``. What needs more says so in one sentence
with the command to type (:class:`gal.errors.MissingExtraError`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from gal.errors import MissingExtraError

EXTRAS: Mapping[str, Mapping[str, str]] = {
    "node": {
        "grpc": "grpcio",
        "duckdb": "duckdb",
        "cryptography": "cryptography",
        "prometheus_client": "prometheus-client",
        "pyarrow": "pyarrow",
        "fastapi": "fastapi",
        "uvicorn": "uvicorn",
    },
    "deep": {"torch": "torch", "safetensors": "safetensors"},
    "privacy": {"opendp": "opendp", "dp_accounting": "dp-accounting"},
    "psi": {"private_set_intersection": "openmined.psi"},
    "figures": {"matplotlib": "matplotlib"},
    "polars": {"polars": "polars"},
    "excel": {"openpyxl": "openpyxl"},
    "postgresql": {
        "adbc_driver_manager": "adbc-driver-manager",
        "adbc_driver_postgresql": "adbc-driver-postgresql",
    },
    "dask": {
        "dask": "dask",
        "distributed": "distributed",
        "pyarrow": "pyarrow",
    },
    "lightgbm": {"lightgbm": "lightgbm"},
}
"""By extra: what is imported, and what it is called where packages are installed from."""


def require(extra: str, purpose: str) -> None:
    """An error that says what to install, where a package of this extra is missing; imports nothing."""
    for module, package in EXTRAS[extra].items():
        if not is_installed(module):
            raise MissingExtraError(extra, package, purpose)


def is_installed(module: str) -> bool:
    """Whether a package is there, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a broken one, or one that something keeps away
        return False


def extra_of(module: str) -> str | None:
    """The extra that brings what is imported under this name; None where it is no extra's."""
    top = module.split(".")[0]
    return next(
        (extra for extra, names in EXTRAS.items() if top in {name.split(".")[0] for name in names}), None
    )
