"""The methods of a comparison: functions that make an unfitted estimator for a divided table.

``gal`` has all organizations and ``alone`` the label holder; ``pooled`` is in ``pooled.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.base import clone

from gal.errors import InvalidInputError, InvalidOptionError, suggestion
from gal.estimators import GALClassifier, GALRegressor
from gal.learner.options import option_by_name

OrganizationsColumns = Mapping[str, Sequence[str | int]]


def gal(
    *, classes: bool, organizations: OrganizationsColumns, label_holder: str | None = None, **options: Any
) -> GALClassifier | GALRegressor:
    """Gradient Assisted Learning itself."""
    holder = check_label_holder(organizations, label_holder)
    return (GALClassifier if classes else GALRegressor)(organizations, label_holder=holder, **options)


def alone(
    *, classes: bool, organizations: OrganizationsColumns, label_holder: str | None = None, **options: Any
) -> GALClassifier | GALRegressor:
    """GAL with the label holder as its only organization; takes all options."""
    holder = check_label_holder(organizations, label_holder)
    own = {holder: organizations[holder]}
    return with_own_models(own, organizations, holder, classes, options)


def with_own_models(
    only: OrganizationsColumns,
    organizations: OrganizationsColumns,
    holder: str,
    classes: bool,
    options: Mapping[str, Any],
) -> GALClassifier | GALRegressor:
    """GAL with one organization, ``only``, that has the label holder's local model and loss."""
    model = gal(classes=classes, organizations=only, **options)
    for option in ("local_models", "algorithm__local_losses"):
        given = model.get_params().get(option)
        if isinstance(given, Mapping):
            one = option_by_name(option.removeprefix("algorithm__"), given, list(organizations))[holder]
            model = clone(model).set_params(**{option: one})
    return model


def check_label_holder(organizations: OrganizationsColumns, label_holder: str | None) -> str:
    """The label holder's name, by default that of the first organization."""
    if not organizations:
        raise InvalidInputError("organizations is empty: name at least one")
    holder = next(iter(organizations)) if label_holder is None else label_holder
    if holder not in organizations:
        raise InvalidOptionError(
            f"label_holder {holder!r} is none of the organizations {', '.join(organizations)}."
            f"{suggestion(holder, organizations)}"
        )
    return holder


def all_columns(organizations: OrganizationsColumns) -> list[str | int]:
    """The columns of all organizations, each once, in their order."""
    return list(dict.fromkeys(column for columns in organizations.values() for column in columns))
