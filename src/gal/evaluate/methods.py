"""The methods of a comparison: functions that make an unfitted estimator for a divided table.

``gal`` has all organizations and ``alone`` the label holder; ``pooled`` is in ``pooled.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gal.errors import InvalidInputError, InvalidOptionError, did_you_mean
from gal.estimators import GALClassifier, GALRegressor

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
    own = {}
    for option in ("local_models", "local_losses"):
        own[option] = given = options.get(option)
        if isinstance(given, Mapping):
            unknown = sorted(set(given) - set(organizations))
            if unknown:
                raise InvalidOptionError(
                    f"{option} names {', '.join(map(repr, unknown))}, but the organizations are "
                    f"{', '.join(organizations)}"
                )
            own[option] = given.get(holder)
    return gal(classes=classes, organizations=only, **{**options, **own})


def check_label_holder(organizations: OrganizationsColumns, label_holder: str | None) -> str:
    """The label holder's name, by default that of the first organization."""
    if not organizations:
        raise InvalidInputError("organizations is empty: name at least one")
    holder = next(iter(organizations)) if label_holder is None else label_holder
    if holder not in organizations:
        raise InvalidOptionError(
            f"label_holder {holder!r} is none of the organizations {', '.join(organizations)}."
            f"{did_you_mean(holder, organizations)}"
        )
    return holder


def all_columns(organizations: OrganizationsColumns) -> list[str | int]:
    """The columns of all organizations, each once, in their order."""
    return list(dict.fromkeys(column for columns in organizations.values() for column in columns))
