"""The label holder alone: the same learning on her own columns, without anybody's assistance."""

from __future__ import annotations

from typing import Any

from gal.baselines.method import Columns, Estimator, check_label_holder, gal_estimator, label_holders_own


def alone(
    *,
    classes: bool,
    organizations: Columns,
    label_holder: str | None = None,
    local_models: Any = None,
    rounds: int = 10,
    random_state: Any = None,
    **options: Any,
) -> Estimator:
    """GAL with the label holder as its only organization; takes all options."""
    holder = check_label_holder(organizations, label_holder)
    losses = label_holders_own(options.pop("local_losses", None), organizations, holder, "local_losses")
    made: Estimator = gal_estimator(classes)(
        {holder: organizations[holder]},
        local_models=label_holders_own(local_models, organizations, holder, "local_models"),
        local_losses=losses,
        rounds=rounds,
        random_state=random_state,
        **options,
    )
    return made
