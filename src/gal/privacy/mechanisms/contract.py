"""What a privacy mechanism is, and what the command line, nodes, pictures and tables must know of it.

A mechanism is one class, and one `MechanismKind` beside it that the registry lists. Nothing else names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gal.core.losses import Loss
from gal.engine.labels import Labels
from gal.engine.options import Options
from gal.errors import InvalidOptionError
from gal.privacy.accounting import Cost, Event
from gal.privacy.mechanisms.columns import ColumnNoise
from gal.privacy.mechanisms.likelihood import Insight
from gal.privacy.noise import NoiseSource

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
KindOfLabels = Literal["classes", "numbers"]
EITHER: tuple[KindOfLabels, ...] = ("classes", "numbers")
COMPARED_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""At which mechanisms with a guarantee are compared where no epsilon is named."""


class Mechanism(ABC):
    """Protects the labels in what is sent."""

    suits: ClassVar[tuple[KindOfLabels, ...]] = EITHER
    """Which labels it can protect."""

    def public_loss(self, loss: Loss) -> Loss:
        """The loss whose residuals are sent; ``loss`` is what it would be without a mechanism."""
        return loss

    @abstractmethod
    def log_likelihood(self, insight: Insight, labels: Sequence[Floats]) -> Floats:
        """Of each row's messages under each of G labels (each (width,)): (n, G, E), E pieces that add up."""


class LabelMechanism(Mechanism):
    """Makes a noisy copy of the labels once: ``cost`` is what all that follows from it costs.

    ``source`` is where noise comes from (None: the operating system's entropy), and ``columns_epsilon`` and
    ``columns_delta`` how much residuals may tell of what was answered about a row, and the probability with
    which that may not hold (None: there is no bound).
    """

    source: NoiseSource | None
    columns_epsilon: float | None
    columns_delta: float | None

    def drawing_from(self, source: NoiseSource) -> Self:
        """The same with noise from this source."""
        mechanism: Any = self  # a dataclass, as each of them is
        made: Self = replace(mechanism, source=source)
        return made

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """What all that is ever sent costs, once."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """The same for the ledger."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The public bounds of numbers; None for classes."""
        return None

    @property
    def columns(self) -> ColumnNoise | None:
        """Fresh noise on every residual, on top of the noisy labels; None: there is none."""
        if self.columns_epsilon is None and self.columns_delta is None:
            return None
        if self.columns_epsilon is None or self.columns_delta is None:
            raise InvalidOptionError(
                "noise for columns needs both columns_epsilon, such as 4, and columns_delta, such as 1e-6, "
                f"got {self.columns_epsilon!r} and {self.columns_delta!r}"
            )
        return ColumnNoise(self.columns_epsilon, self.columns_delta)

    @property
    def _columns_in_words(self) -> str:
        return "" if self.columns is None else f" {self.columns.describe()}"

    @abstractmethod
    def read(self, y: Any, options: Options) -> Labels:
        """The true labels in the way that is public, and their loss."""

    @abstractmethod
    def noisy(self, labels: Labels, source: NoiseSource) -> Labels:
        """The noisy copy, with a loss that knows of the noise."""

    @abstractmethod
    def describe(self) -> str:
        """The guarantee in plain words."""


class PaperMechanism(Mechanism):
    """Turns a residual (n, K) into what is sent instead of it, as the paper has it: nothing is guaranteed."""

    @abstractmethod
    def __call__(self, residual: ArrayLike, rng: np.random.Generator) -> Floats32:
        """The residual to send, same shape."""


@dataclass(frozen=True)
class Mark:
    """How a mechanism is drawn in pictures; markers tell mechanisms apart without colour."""

    colour: str
    marker: str
    line: Literal["solid", "dashed", "dash-dot", "none"] = "none"
    filled: bool = True


@dataclass(frozen=True)
class MechanismKind:
    """A mechanism as people name it, and all that is said of it elsewhere."""

    name: str
    """In commands, files and tables, and on the wire: an invitation promises it by this name."""
    make: type[Mechanism]
    words: str
    """What it is for, in a few words."""
    caption: str
    """In the legend of a picture."""
    mark: Mark
    needs: tuple[str, ...] = ()
    may_have: tuple[str, ...] = ()
    promise: str | None = None
    """What it does to what organizations receive, as an invitation says it; None: it
    guarantees nothing, no task has it.
    """
    strengths: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The option that says how strong it is, and what it is compared at where nobody names one."""

    @property
    def options(self) -> tuple[str, ...]:
        """All that it needs or may have."""
        return (*self.needs, *self.may_have)

    def suits(self, labels: KindOfLabels) -> bool:
        """Whether it can protect such labels."""
        return labels in self.make.suits
