"""How to learn: what a user may choose; "auto" is decided, and the preset applied, where a task is made.

``preset="paper"`` is the authors' algorithm in every detail of their code; the default goes
beyond it. An option that is given always wins over the preset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gal.core.line_search import LineSearch
from gal.core.probes.kept_probes import MOST_PROBES
from gal.core.residual_losses import LocalLoss
from gal.core.weights import AssistanceWeights
from gal.errors import InvalidOptionError

ROUNDS = 10
"""As the paper has it."""

MOST_ROUNDS = 20
"""Where rows that were not fitted say that a learning still improves after the usual ones."""


@dataclass(frozen=True)
class Options:
    """How to learn; "auto" takes the preset's value. See ``docs/reference/python.md``."""

    rounds: str | int = "auto"
    loss: Any = "auto"
    class_weight: Any = None
    weights: str | AssistanceWeights = "auto"
    line_search: str | float | LineSearch = "auto"
    fitted: str = "auto"
    validation_fraction: str | float = "auto"
    cross_validation: str | int = "auto"
    held_out_fraction: str | float = "auto"
    n_folds: int = 5
    closing: bool | str = "auto"
    interactions: bool | int = False
    curvature: str | bool = "auto"
    scale_residual: str | bool = "auto"
    min_rate: float | None = 1e-6
    patience: int | None = 3
    plateau: float | None = None
    preset: str = "default"

    def __post_init__(self) -> None:
        if self.preset not in {"default", "paper"}:
            raise InvalidOptionError(f"preset must be default or paper, got {self.preset!r}")
        self._check_rounds()
        if not (isinstance(self.closing, bool) or is_auto(self.closing)):
            raise InvalidOptionError(f"closing must be 'auto', True or False, got {self.closing!r}")
        probes = self.interactions
        if not isinstance(probes, bool | np.bool_ | int | np.integer) or not 0 <= probes <= MOST_PROBES:
            raise InvalidOptionError(
                "interactions must be False (no interaction probes), True, or how many probes each "
                f"organization gets, 1 to {MOST_PROBES}, got {probes!r}"
            )

    def _check_rounds(self) -> None:
        number = isinstance(self.rounds, int | np.integer) and not isinstance(self.rounds, bool)
        if not (is_auto(self.rounds) or (number and int(self.rounds) >= 1)):
            raise InvalidOptionError(
                f"rounds must be 'auto' or a whole number of at least 1, got {self.rounds!r}"
            )

    @property
    def usual_rounds(self) -> int:
        """How many at most, unless something says that a learning may go on."""
        return ROUNDS if is_auto(self.rounds) else int(self.rounds)

    @property
    def paper(self) -> bool:
        """Whether the authors' choices fill in for "auto"."""
        return self.preset == "paper"


def local_losses_by_name(local_losses: Any, names: Sequence[str]) -> Mapping[str, str | LocalLoss | None]:
    """One local loss for all, or a mapping by organization (those not named: None)."""
    return option_by_name("local_losses", local_losses, names)


def option_by_name(option: str, given: Any, names: Sequence[str], otherwise: Any = None) -> dict[str, Any]:
    """What every organization has of an option: one thing for all, or a mapping;
    ``otherwise`` where nothing is given.
    """
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, otherwise if given is None else given)
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise InvalidOptionError(
            f"{option} names {', '.join(map(repr, unknown))}, but the organizations are {', '.join(names)}"
        )
    return {name: given.get(name, otherwise) for name in names}


def is_auto(value: Any) -> bool:
    """Whether an option leaves the choice to the preset."""
    return isinstance(value, str) and value == "auto"
