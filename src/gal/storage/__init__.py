"""Storage: fitted models as files, without pickle."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from gal.on_demand import on_demand as _on_demand

if _TYPE_CHECKING:
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

__getattr__, __dir__ = _on_demand(
    __name__,
    globals(),
    {
        "load_ensemble": "fitted",
        "load_models": "fitted",
        "load_organization": "fitted",
        "read_archive": "archive",
        "save_ensemble": "fitted",
        "save_models": "fitted",
        "save_organization": "fitted",
        "write_archive": "archive",
    },
)
