"""One interface for GAL and everything it is compared with.

A *method* is a function that makes an unfitted estimator for a table whose columns are divided
among organizations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from gal.engine.drivers import Traffic
from gal.errors import InvalidOptionError
from gal.estimators import GALRegressor
from gal.evaluate.methods import OrganizationsColumns, all_columns, check_label_holder, with_own_models

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


def joint(
    *, classes: bool, organizations: OrganizationsColumns, label_holder: str | None = None, **options: Any
) -> Estimator:
    """GAL with one organization of all columns and the label holder's local model: what GAL reduces to with
    one organization. It takes all options.
    """
    holder = check_label_holder(organizations, label_holder)
    everything = {JOINT: all_columns(organizations)}
    made: Estimator = with_own_models(everything, organizations, holder, classes, options)
    return made


def options_used(options: Mapping[str, Any], used: Collection[str]) -> dict[str, Any]:
    """Those of the engine's options that a method uses; an option that nobody knows is an error."""
    unknown = sorted(set(options) - set(used) - set(GALRegressor().get_params(deep=False)))
    if unknown:
        raise InvalidOptionError(f"unknown options {', '.join(unknown)}: see docs/reference/python.md")
    return {name: value for name, value in options.items() if name in used}
