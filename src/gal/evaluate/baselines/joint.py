"""All columns in one place: the boosting that GAL reduces to with one organization."""

from __future__ import annotations

from typing import Any

from gal.evaluate.baselines.method import (
    Estimator,
    OrganizationsColumns,
    all_columns,
    check_label_holder,
    in_one_place,
)

JOINT = "joint"
"""The name of the one organization that holds everything."""


def joint(
    *, classes: bool, organizations: OrganizationsColumns, label_holder: str | None = None, **options: Any
) -> Estimator:
    """GAL with one organization of all columns and the label holder's local model; takes all options."""
    holder = check_label_holder(organizations, label_holder)
    return in_one_place(JOINT, all_columns(organizations), organizations, holder, classes, options)
