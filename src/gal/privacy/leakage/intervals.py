"""How often an attack is right, how sure that is, and the most that a guarantee allows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gal.privacy.accounting import Cost


@dataclass(frozen=True)
class Share:
    """How many of the guesses were right, with an exact (Clopper-Pearson) interval of 95 %.

    >>> print(Share(9, 10))
    90.0 % (55.5 to 99.7)
    """

    right: int
    of: int

    @property
    def value(self) -> float:
        """The share of right guesses; NaN where nothing was guessed."""
        return self.right / self.of if self.of else float("nan")

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Between these the probability to be right lies."""
        from scipy.stats import beta

        if not self.of:
            return 0.0, 1.0
        tail, wrong = (1 - confidence) / 2, self.of - self.right
        low = float(beta.ppf(tail, self.right, wrong + 1)) if self.right else 0.0
        high = float(beta.ppf(1 - tail, self.right + 1, wrong)) if wrong else 1.0
        return low, high

    @property
    def low(self) -> float:
        """The lower end."""
        return self.interval()[0]

    @property
    def high(self) -> float:
        """The upper end."""
        return self.interval()[1]

    def __add__(self, other: Share) -> Share:
        return Share(self.right + other.right, self.of + other.of)

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"

    def to_json(self) -> dict[str, float | int | None]:
        """Plain numbers."""
        low, high = self.interval()
        share = self.value if self.of else None
        return {"right": self.right, "of": self.of, "share": share, "low": low, "high": high}


def best_guess(cost: Cost, classes: int) -> float:
    """The most often that anybody guesses a label right who held all ``classes`` for equally likely before.

    Under (epsilon, delta)-differential privacy of a label, P(guess k | label k) <= e^epsilon P(guess k |
    label j) + delta for all k and j. Summed over k other than j, and then over j, with p the sum of P(guess
    k | label k) over all C classes: (C - 1) p <= e^epsilon (C - p) + C (C - 1) delta, so that p / C is at
    most what this returns. It is reached by telling the label with probability delta, and answering by
    randomised response otherwise.

    >>> round(best_guess(Cost(1.0), 2), 3), round(best_guess(Cost(1.0), 10), 3)
    (0.731, 0.232)
    """
    growth = math.exp(cost.epsilon)
    return min(1.0, (growth + (classes - 1) * cost.delta) / (growth + classes - 1))


def equivalent_epsilon(accuracy: float, classes: int) -> float:
    """The epsilon of randomised response under which the best guess is right this often.

    >>> round(equivalent_epsilon(best_guess(Cost(2.0), 3), 3), 6)
    2.0
    """
    if accuracy >= 1:
        return math.inf
    return max(0.0, math.log(accuracy * (classes - 1) / (1 - accuracy))) if accuracy > 0 else 0.0
