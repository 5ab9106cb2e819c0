"""All columns in one place: the boosting that GAL reduces to with one organization."""

from __future__ import annotations

from typing import Any

from gal.baselines.method import (
    Columns,
    Estimator,
    all_columns,
    check_label_holder,
    gal_estimator,
    label_holders_own,
)

JOINT = "joint"
"""The name of the one organization that holds everything."""


def joint(
    *,
    classes: bool,
    organizations: Columns,
    label_holder: str | None = None,
    local_models: Any = None,
    rounds: int = 10,
    random_state: Any = None,
    **options: Any,
) -> Estimator:
    """GAL with one organization of all columns and the label holder's local model; takes all options."""
    holder = check_label_holder(organizations, label_holder)
    losses = label_holders_own(options.pop("local_losses", None), organizations, holder, "local_losses")
    made: Estimator = gal_estimator(classes)(
        {JOINT: all_columns(organizations)},
        local_models=label_holders_own(local_models, organizations, holder, "local_models"),
        local_losses=losses,
        rounds=rounds,
        random_state=random_state,
        **options,
    )
    return made
