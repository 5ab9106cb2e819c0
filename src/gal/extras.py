"""Extras and their packages; code that needs one raises :class:`gal.errors.MissingExtraError`."""

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
"""By extra: modules, and the packages that have them."""


def require(extra: str, purpose: str) -> None:
    """MissingExtraError where a package of this extra is not installed; imports nothing."""
    for module, package in EXTRAS[extra].items():
        if not is_installed(module):
            raise MissingExtraError(extra, package, purpose)


def is_installed(module: str) -> bool:
    """Whether a package is installed, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a broken or blocked package
        return False


def extra_of(module: str) -> str | None:
    """The extra with this module, if any."""
    top = module.split(".")[0]
    return next(
        (extra for extra, names in EXTRAS.items() if top in {name.split(".")[0] for name in names}), None
    )
