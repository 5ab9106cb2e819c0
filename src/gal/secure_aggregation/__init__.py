"""Secure aggregation: the label holder gets the sum of fitted values, no single one.

After Bonawitz et al. (2017): ``member.py`` is an organization's side, ``collector.py`` the label holder's;
both do no input or output. ``in_process.py`` drives them in one process, ``gal.node`` over nodes.
"""

from gal.secure_aggregation.terms import Sums

__all__ = ["Sums"]
