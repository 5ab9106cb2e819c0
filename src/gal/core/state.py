"""State as plain frozen data: what a round found, what has been learned, what resumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from gal.core.contributions import Contributions
from gal.core.missing import Substitutes
from gal.core.outcome import TaskOutcome, sentence
from gal.core.probes.kept_probes import Probes
from gal.core.requests import Track
from gal.core.stackers import StackerModel

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]


Value = TypeVar("Value")


class ByName(Mapping[str, Value]):
    """A read-only mapping by organization, ordered by name; unlike MappingProxyType it pickles."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Value]) -> None:
        self._items = {name: items[name] for name in sorted(items)}

    def __getitem__(self, name: str) -> Value:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items))


@dataclass(frozen=True)
class Round:
    """What one assistance round found; mappings are by organization, ordered by name."""

    round: int
    weights: Mapping[str, float]
    """Gradient assistance weights; 0 for an organization that missed the round."""
    rate: float
    """Gradient assisted learning rate, for fitted values as they were sent."""
    scale: float
    """What the residual was divided by before it was broadcast."""
    train_loss: float
    """Mean loss on the rows that chose weights and rate, after this round."""
    validation_loss: float
    """Mean loss on the validation rows (or cross-validated), after this round; NaN without any."""
    mean_fitted: Mapping[str, tuple[float, ...]]
    """Mean fitted value per output: replaces that of a missing organization."""
    left_out: Mapping[str, str] = field(default_factory=lambda: ByName({}))
    """Organizations without a part in it, and why."""
    spread: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=lambda: ByName({}))
    """Per output: range and quantiles of the fitted values, see ``screening.py``."""


@dataclass(frozen=True)
class Ensemble:
    """What prediction needs of the label holder: F^T = initial + sum of coefficient * f_m^t."""

    organizations: tuple[str, ...]
    label_holder: str | None
    initial: tuple[float, ...] | None
    """F^0, one number per output; None where the caller gives it row by row."""
    n_outputs: int
    coefficients: tuple[Mapping[str, float], ...]
    """Per round: weight times rate by organization (only those that count)."""
    rounds: tuple[Round, ...]
    """All rounds learned, also those after the best validated one."""
    initial_train_loss: float
    initial_validation_loss: float
    track: Track = "assisted"
    """"alone" where assistance did not help on the validation rows and is not used."""
    alone_validation_loss: float = float("nan")
    """Validated loss of the baseline without assistance; NaN without any."""
    assisted_validation_loss: float = float("nan")
    """Validated loss with assistance, whether it is used or not; NaN without any."""
    shrinkage: float = 1.0
    """What share of all steps is kept; the coefficients have it in them."""
    train_loss: float = float("nan")
    """Mean loss of this model on the rows that chose weights and rate."""
    outcome: TaskOutcome | None = None
    """Why learning ended, and which model is used."""
    contributions: Contributions | None = None
    """Share of each organization in the gain; None where fitted values of earlier rounds were not stored."""
    stacker: StackerModel | None = field(default=None, compare=False, metadata={"plain": False})
    """The stacker; None: fitted values are only added up."""
    probes: Probes | None = field(default=None, compare=False, metadata={"plain": False})
    """Interaction probes and the stacker on their replies; None: there are none, or they do not help."""
    kept_replies: Substitutes | None = field(default=None, compare=False, metadata={"plain": False})
    """Out-of-sample rows for predictions without some organizations; None: means stand in for them."""
    cv: Any = field(default=None, compare=False, metadata={"plain": False})
    """The ``CrossValidated`` of a cross-validation, where the task keeps its replies; never stored."""
    summed: tuple[str, ...] = ()
    """Organizations whose values came as one sum; none without secure aggregation."""
    summed_units: tuple[float, ...] = ()
    """By round: the unit of the sum's fixed-point grid; none without secure aggregation."""
    summed_noise: tuple[float, ...] = ()
    """Noise on each sum: its multiplier, and the clip of fitted values in units; none without."""

    @property
    def stopped(self) -> str:
        """The outcome in words."""
        return "" if self.outcome is None else sentence(self.outcome)

    @property
    def n_rounds(self) -> int:
        """How many rounds the model uses: the best validated ones."""
        return len(self.coefficients)

    @property
    def requested_rounds(self) -> tuple[int, ...]:
        """The rounds that prediction requests: those that are used, and those of probes."""
        return (*range(1, self.n_rounds + 1), *(() if self.probes is None else self.probes.rounds))

    def requested(self, rounds: int | None = None) -> tuple[str, ...]:
        """Organizations that count in the first ``rounds`` rounds (default: all, and probes)."""
        counted = {name for counts in self.coefficients[:rounds] for name in counts}
        if rounds is None and self.probes is not None:
            counted |= set(self.probes.organizations)
        return tuple(sorted(counted))

    def counts(self, round: int, name: str) -> bool:
        """Whether an organization's predictions of a round are used."""
        if round <= self.n_rounds:
            return name in self.coefficients[round - 1]
        return self.probes is not None and (round, name) in self.probes.needed

    def mean_reply(self, round: int, name: str) -> tuple[float, ...]:
        """Replaces the prediction of a missing organization; 0 where it missed the round."""
        nothing = (0.0,) * self.n_outputs
        if self.probes is not None and round > self.n_rounds:
            return self.probes.means.get(f"{round} {name}", nothing)
        return self.rounds[round - 1].mean_fitted.get(name, nothing)

    def spread(self, round: int, name: str) -> tuple[tuple[float, ...], ...] | None:
        """Quantiles of an organization's fitted values of a round; None where they are not known."""
        if self.probes is not None and round > self.n_rounds:
            return self.probes.spreads.get(f"{round} {name}")
        return self.rounds[round - 1].spread.get(name)


@dataclass(frozen=True)
class Progress:
    """Everything needed to resume after a finished round, as plain arrays and numbers."""

    output: Floats
    """F^t of all rows, shape (n, K)."""
    rounds: tuple[Round, ...] = ()
    coefficients: tuple[Mapping[str, float], ...] = ()
    fitted: tuple[Mapping[str, Floats32], ...] = ()
    """By round and organization: fitted values of the task's ``kept_rows``, shape (rows, K)."""
    initial_train_loss: float = float("nan")
    initial_validation_loss: float = float("nan")
    summed_units: tuple[float, ...] = ()
    """As in :class:`Ensemble`."""


def plain(value: Any) -> Any:
    """Dataclasses and mappings as plain JSON values; a stacker is none, and is kept beside them."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = [item.name for item in fields(value) if item.metadata.get("plain", True)]
        return {name: plain(getattr(value, name)) for name in kept}
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def ensemble_of(facts: Mapping[str, Any]) -> Ensemble:
    """An ensemble from what ``plain`` made of it, without its stacker."""
    found: Ensemble = restored(Ensemble, _renamed(facts, EARLIER))
    return found


EARLIER = {"trust": "shrinkage", "judged_by": "validated_by"}
"""Names in ensembles that were stored before these names changed."""


def _renamed(facts: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The same with other names, inside too."""
    return {
        names.get(name, name): _renamed(value, names) if name == "outcome" and value else value
        for name, value in facts.items()
    }


def restored(kind: Any, value: Any) -> Any:
    """A value of this type from what ``plain`` made of it."""
    origin, inside = get_origin(kind), get_args(kind)
    if value is None or origin is Literal:
        return value
    if origin is UnionType:  # a type or None
        return restored(inside[0], value)
    if origin is tuple:
        return tuple(restored(inside[0], one) for one in value)
    if origin is Mapping:
        return ByName({name: restored(inside[1], one) for name, one in value.items()})
    if isinstance(kind, type) and is_dataclass(kind):
        types = _types_of(kind)
        return kind(**{name: restored(types[name], one) for name, one in value.items()})
    return kind(value) if issubclass(kind, Enum) else value


_types_of = cache(get_type_hints)
