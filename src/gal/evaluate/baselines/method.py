"""One interface for GAL and everything it is compared with.

A *method* is a function that makes an unfitted estimator for a table whose columns are divided
among organizations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from gal.engine.drivers import Traffic
from gal.errors import InvalidInputError, InvalidOptionError, did_you_mean
from gal.estimators import GALClassifier, GALRegressor

OrganizationsColumns = Mapping[str, Sequence[str | int]]
JOINT = "joint"
"""The name of the one organization that holds everything."""


class Estimator(Protocol):
    """Learns from a frame or array whose columns include those of all organizations."""

    traffic_: Traffic
    """After ``fit``: what learning moved between the label holder and the others."""

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the labels."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Numbers, or classes as the labels were."""

    def staged_predict(self, X: Any) -> Iterator[NDArray[Any]]:
        """The same after each round; a method without rounds yields once."""


class Classifier(Estimator, Protocol):
    """What a method makes for classes."""

    classes_: NDArray[Any]

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities, shape (n, C)."""

    def staged_predict_proba(self, X: Any) -> Iterator[NDArray[Any]]:
        """The same after each round."""


class Method(Protocol):
    """Makes an estimator; ``label_holder`` defaults to the first organization.

    ``local_models`` is one regressor for all or a mapping by organization; ``options`` are those of
    ``GALRegressor`` (``preset="paper"``, ``loss=...``). A method that has no use for one says so.
    """

    def __call__(
        self,
        *,
        classes: bool,
        organizations: OrganizationsColumns,
        label_holder: str | None = None,
        local_models: Any = None,
        rounds: str | int = "auto",
        random_state: Any = None,
        **options: Any,
    ) -> Estimator:
        """An unfitted estimator."""


def gal(
    *, classes: bool, organizations: OrganizationsColumns, label_holder: str | None = None, **options: Any
) -> Estimator:
    """Gradient Assisted Learning itself."""
    made: Estimator = gal_estimator(classes)(
        organizations, label_holder=check_label_holder(organizations, label_holder), **options
    )
    return made


def gal_estimator(classes: bool) -> type[GALClassifier] | type[GALRegressor]:
    """The estimator for classes, or for numbers."""
    return GALClassifier if classes else GALRegressor


def check_label_holder(organizations: OrganizationsColumns, label_holder: str | None) -> str:
    """Its name, which is one of the organizations'."""
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
    """The columns of all organizations, each once, in the order given."""
    return list(dict.fromkeys(column for columns in organizations.values() for column in columns))


def label_holders_own(value: Any, organizations: OrganizationsColumns, label_holder: str, option: str) -> Any:
    """The label holder's where ``value`` is a mapping by organization (None: not named), else ``value``."""
    if not isinstance(value, Mapping):
        return value
    unknown = sorted(set(value) - set(organizations))
    if unknown:
        raise InvalidOptionError(
            f"{option} names {', '.join(map(repr, unknown))}, but the organizations are "
            f"{', '.join(organizations)}"
        )
    return value.get(label_holder)


def in_one_place(
    name: str,
    columns: Sequence[str | int],
    organizations: OrganizationsColumns,
    holder: str,
    classes: bool,
    options: Mapping[str, Any],
) -> Estimator:
    """GAL with one organization of these columns, and the label holder's local model and loss."""
    own = {
        option: label_holders_own(options.get(option), organizations, holder, option)
        for option in ("local_models", "local_losses")
    }
    made: Estimator = gal_estimator(classes)({name: columns}, **{**options, **own})
    return made


def options_used(options: Mapping[str, Any], used: Collection[str]) -> dict[str, Any]:
    """Those of the engine's options that a method uses; an option that nobody knows is an error."""
    unknown = sorted(set(options) - set(used) - set(GALRegressor().get_params(deep=False)))
    if unknown:
        raise InvalidOptionError(f"unknown options {', '.join(unknown)}: see docs/reference/python.md")
    return {name: value for name, value in options.items() if name in used}


def alone(
    *, classes: bool, organizations: OrganizationsColumns, label_holder: str | None = None, **options: Any
) -> Estimator:
    """GAL with the label holder as its only organization, without anybody's assistance; takes all options."""
    holder = check_label_holder(organizations, label_holder)
    return in_one_place(holder, organizations[holder], organizations, holder, classes, options)


def joint(
    *, classes: bool, organizations: OrganizationsColumns, label_holder: str | None = None, **options: Any
) -> Estimator:
    """GAL with one organization of all columns and the label holder's local model: what GAL reduces to with
    one organization. It takes all options.
    """
    holder = check_label_holder(organizations, label_holder)
    return in_one_place(JOINT, all_columns(organizations), organizations, holder, classes, options)
