"""The command ``gal``."""

from gal.cli.app import main

__all__ = ["main"]
