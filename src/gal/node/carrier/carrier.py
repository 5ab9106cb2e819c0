"""A carrier: all that learning and prediction need of whatever connects the organizations.

Above it everything is the same as between nodes: ``calls.py`` and ``called.py`` make an ordinary
:class:`~gal.transport.Stream` of a carrier, so that gathering, quorum, deadlines, drop-outs, resuming,
policy, audit and privacy do not know what they travel on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Carrier(Protocol):
    """Takes bytes to an organization and brings its answer; safe to call from several threads.

    One question at a time is asked of each organization. Who an organization is, the carrier knows: the
    names are those of the cards.
    """

    def present(self) -> Collection[str]:
        """Names of the organizations that can be asked now."""

    def ask(self, name: str, data: bytes, deadline: float) -> bytes:
        """What an organization answers; LinkLostError where nothing came within ``deadline`` seconds."""
