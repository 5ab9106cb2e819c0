"""Storage: fitted models as files, without pickle."""

from gal.storage.archive import read_archive, write_archive
from gal.storage.fitted import (
    load_ensemble,
    load_models,
    load_organization,
    save_ensemble,
    save_models,
    save_organization,
)

__all__ = [
    "load_ensemble",
    "load_models",
    "load_organization",
    "read_archive",
    "save_ensemble",
    "save_models",
    "save_organization",
    "write_archive",
]
