"""Secrecy: the label holder gets the sum of the others' answers, and no single one of them.

Secure aggregation after Bonawitz et al. (2017), for assisted learning: each answer leaves under masks that
cancel in the sum, and under a mask of its own that the others open for the sum only. ``member.py`` is what an
organization does, ``collector.py`` what the label holder does: state machines without input or output.
``summing.py`` and ``predicting.py`` run both in one process, for ``gal.learn(..., secrecy="sums")``.
"""

from gal.secrecy.terms import Sums

__all__ = ["Sums"]
