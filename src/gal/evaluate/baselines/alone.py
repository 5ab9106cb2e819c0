"""The label holder alone: the same learning on her own columns, without anybody's assistance."""

from __future__ import annotations

from typing import Any

from gal.evaluate.baselines.method import Estimator, OrganizationsColumns, check_label_holder, in_one_place


def alone(
    *, classes: bool, organizations: OrganizationsColumns, label_holder: str | None = None, **options: Any
) -> Estimator:
    """GAL with the label holder as its only organization; takes all options."""
    holder = check_label_holder(organizations, label_holder)
    return in_one_place(holder, organizations[holder], organizations, holder, classes, options)
