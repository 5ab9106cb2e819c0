"""Stored models: archives that hold data and fitted models, never pickled code."""

from gal.storage.archive import read_archive, write_archive

__all__ = ["read_archive", "write_archive"]
