"""Secure aggregation: the label holder gets the sum of the others' answers, and no single one of them.

After Bonawitz et al. (2017), for assisted learning: each answer leaves under masks that cancel in the sum,
and under a mask of its own that the others open for the sum only. ``member.py`` is what an organization does,
``collector.py`` what the label holder does: state machines without input or output. ``in_process.py`` drives
both in one process, for ``gal.learn(..., secure_aggregation="sums")``; ``gal.node`` over the network.
"""

from gal.secure_aggregation.terms import Sums

__all__ = ["Sums"]
