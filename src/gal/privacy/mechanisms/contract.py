"""The contract of a privacy mechanism, for commands, nodes and reports.

A mechanism is one frozen dataclass, which the registry lists. Nothing else names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gal.core.losses import Loss
from gal.errors import InvalidOptionError
from gal.learner.labels import Labels
from gal.learner.options import Options
from gal.privacy.accounting import Cost, Event
from gal.privacy.mechanisms.columns import ColumnNoise
from gal.privacy.noise import NoiseSource

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
KindOfLabels = Literal["classes", "numbers"]
EITHER: tuple[KindOfLabels, ...] = ("classes", "numbers")


class Mechanism(ABC):
    """Protects the labels in what is sent."""

    name: ClassVar[str]
    """In commands, files and tables, and on the wire: an invitation promises it by this name."""
    words: ClassVar[str]
    """What it is for, in a few words."""
    promise: ClassVar[str | None] = None
    """What it does to what organizations receive, as an invitation says it; None: it guarantees nothing, no
    task over nodes has it.
    """
    suits: ClassVar[tuple[KindOfLabels, ...]] = EITHER
    """Which labels it can protect."""

    @classmethod
    def options(cls, *, needed: bool = False) -> tuple[str, ...]:
        """All that it may be given but the source of noise; or only what it must be given."""
        facts: Any = cls  # a dataclass, as each of them is
        found = [one for one in fields(facts) if one.name != "source"]
        return tuple(one.name for one in found if one.default is MISSING or not needed)

    def public_loss(self, loss: Loss) -> Loss:
        """The loss whose residuals are sent; ``loss`` is what it would be without a mechanism."""
        return loss


class LabelMechanism(Mechanism):
    """Makes a noisy copy of the labels once: ``cost`` is what all that follows from it costs.

    ``source`` is where noise comes from (None: the operating system's entropy), and ``columns_epsilon`` and
    ``columns_delta`` how much residuals may reveal of the replies about a row, and the probability with
    which that may not hold (None: there is no bound).
    """

    source: NoiseSource | None
    columns_epsilon: float | None
    columns_delta: float | None

    def drawing_from(self, source: NoiseSource) -> Self:
        """The same with noise from this source."""
        mechanism: Any = self
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

    @abstractmethod
    def read(self, y: Any, options: Options) -> Labels:
        """The true labels in the way that is public, and their loss."""

    @abstractmethod
    def noisy(self, labels: Labels, source: NoiseSource) -> Labels:
        """The noisy copy, with a loss that knows of the noise."""

    @abstractmethod
    def describe(self) -> str:
        """The guarantee of labels in plain words."""


class PaperMechanism(Mechanism):
    """Turns a residual (n, K) into what is sent instead of it, as the paper has it: nothing is guaranteed."""

    words = "the paper's, without a guarantee"

    @abstractmethod
    def __call__(self, residual: ArrayLike, rng: np.random.Generator) -> Floats32:
        """The residual to send, same shape."""


NONE = (
    "No privacy mechanism: residuals are sent as they are, and the receiver of the first can know "
    "every training label (for classes, the one positive entry is the class)."
)
PAPER = (
    "No differential-privacy guarantee: it clips at quantiles of the private residuals themselves, and "
    "nothing is added up over rounds. For comparison with the paper only."
)
REPEATABLE = " The noise came from a seed and can be removed by all who know it: for benchmarks only."


@dataclass(frozen=True)
class Statement:
    """What is guaranteed about the labels of a task."""

    mechanism: str
    cost: Cost | None
    """None: there is no guarantee."""
    words: str
    secure: bool = True
    """Whether the noise cannot be repeated."""

    def __str__(self) -> str:
        return self.words

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "mechanism": self.mechanism,
            "epsilon": None if self.cost is None else self.cost.epsilon,
            "delta": None if self.cost is None else self.cost.delta,
            "words": self.words,
            "secure": self.secure,
        }


def statement(privacy: Any) -> Statement:
    """What this mechanism, or none, guarantees.

    >>> statement(None).cost is None
    True
    """
    if isinstance(privacy, LabelMechanism):
        secure = privacy.source is None or privacy.source.secure
        columns = "" if privacy.columns is None else f" {privacy.columns.describe()}"
        words = privacy.describe() + columns + ("" if secure else REPEATABLE)
        return Statement(type(privacy).__name__, privacy.cost, words, secure)
    if isinstance(privacy, PaperMechanism):
        return Statement(type(privacy).__name__, None, f"{type(privacy).__name__}: {PAPER}")
    return Statement("none", None, NONE)
