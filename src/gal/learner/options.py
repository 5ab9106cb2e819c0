"""Options of learning; "auto" is decided, and the preset applied, in ``task_making.py``.

``preset="paper"`` is the authors' algorithm in every detail of their code; the default goes
beyond it. An option that is given always wins over the preset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from gal.core.probes.kept_probes import MOST_PROBES
from gal.errors import InvalidOptionError

if TYPE_CHECKING:  # a list of commands does without scipy
    from gal.core.line_search import LineSearch
    from gal.core.weights import AssistanceWeights

ROUNDS = 10
"""As the paper has it."""

MOST_ROUNDS = 20
"""Most rounds of a cross-validated table, while the loss of left-out rows falls."""

GROUPED = {"cross_validation": "Validation(folds=)", "validation_fraction": "Validation(fraction=)"}
"""Options that have another name in Python."""


@dataclass(frozen=True)
class Options:
    """How to learn; "auto" takes the preset's value. See ``docs/reference/python.md``."""

    rounds: str | int = "auto"
    loss: Any = "auto"
    class_weight: Any = None
    weights: str | AssistanceWeights = "auto"
    line_search: str | float | LineSearch = "auto"
    fitted: str = "auto"
    validation_fraction: str | float | None = "auto"
    cross_validation: str | int | None = "auto"
    stacking: bool | str = "auto"
    interactions: bool | int = False
    scale_residual: str | bool = "auto"
    patience: int | None = 3
    plateau: float | None = None
    preset: str = "default"

    def __post_init__(self) -> None:
        folds, probes = self.cross_validation, self.interactions
        self._check("preset", self.preset in ("default", "paper"), "default or paper")
        self._check("rounds", _whole(self.rounds, 1), "a whole number of at least 1")
        self._check("fitted", self.fitted in ("in-sample", "held-out"), "in-sample or held-out")
        off = folds is None or folds == "always"
        self._check(
            "cross_validation",
            off or (_whole(folds, 0) and folds != 1),
            "'always', 0 (off) or at least 2 folds",
        )
        self._check(
            "interactions",
            _truth(probes) or _whole(probes, 0, MOST_PROBES),
            f"False (no interaction probes), True, or how many each organization gets, 1 to {MOST_PROBES}",
        )
        self._check("validation_fraction", isinstance(self.validation_fraction, Real | None), "a number")
        for name in ("stacking", "scale_residual"):
            self._check(name, _truth(getattr(self, name)), "True or False")

    def _check(self, name: str, fine: bool, words: str) -> None:
        given, free = getattr(self, name), type(self).__dataclass_fields__[name].default == "auto"
        if not fine and not (free and is_auto(given)):
            auto = "'auto', " if free else ""
            inside = f" (in Python: {GROUPED[name]})" if name in GROUPED else ""
            raise InvalidOptionError(f"{name} must be {auto}{words}, got {given!r}{inside}")

    @property
    def usual_rounds(self) -> int:
        """The most rounds, unless validation allows more."""
        return ROUNDS if is_auto(self.rounds) else int(self.rounds)

    @property
    def paper(self) -> bool:
        """Whether the authors' choices fill in for "auto"."""
        return self.preset == "paper"


def option_by_name(option: str, given: Any, names: Sequence[str], otherwise: Any = None) -> dict[str, Any]:
    """An option by organization: one value for all, or a mapping; ``otherwise`` where none is given."""
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


def chosen(value: Any, otherwise: Any) -> Any:
    """An option that is given, or what "auto" stands for."""
    return otherwise if is_auto(value) else value


def _truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _whole(value: Any, least: int, most: float = np.inf) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and bool(least <= value <= most)
