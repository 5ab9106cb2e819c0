"""What the meter found: shares, intervals, the bound that must hold, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

from gal.errors import InvalidInputError
from gal.privacy.accounting import Cost
from gal.privacy.leakage.reconstruction import Reconstruction


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
        from scipy.stats import binomtest

        if not self.of:
            return 0.0, 1.0
        found = binomtest(self.right, self.of).proportion_ci(confidence)
        return float(found.low), float(found.high)

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
    """The highest probability with which an attacker with a uniform prior over ``classes`` guesses a label.

    Under (epsilon, delta)-differential privacy of a label, P(guess k | label k) <= e^epsilon P(guess k |
    label j) + delta for all k and j. Summed over k other than j, and then over j, with p the sum of P(guess
    k | label k) over all C classes: (C - 1) p <= e^epsilon (C - p) + C (C - 1) delta, so that p / C is at
    most what this returns. It is reached by telling the label with probability delta, and answering by
    randomized response otherwise.

    >>> round(best_guess(Cost(1.0), 2), 3), round(best_guess(Cost(1.0), 10), 3)
    (0.731, 0.232)
    """
    growth = math.exp(cost.epsilon)
    return min(1.0, (growth + (classes - 1) * cost.delta) / (growth + classes - 1))


def equivalent_epsilon(accuracy: float, classes: int) -> float:
    """The epsilon of randomized response under which the best guess is right this often.

    >>> round(equivalent_epsilon(best_guess(Cost(2.0), 3), 3), 6)
    2.0
    """
    if accuracy >= 1:
        return math.inf
    return max(0.0, math.log(accuracy * (classes - 1) / (1 - accuracy))) if accuracy > 0 else 0.0


@dataclass(frozen=True)
class AttackResult:
    """How often one attack was right about canaries."""

    name: str
    sentence: str
    canaries: Share

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"name": self.name, "sentence": self.sentence, "canaries": self.canaries.to_json()}

    def __add__(self, other: AttackResult) -> AttackResult:
        return replace(self, canaries=self.canaries + other.canaries)


@dataclass(frozen=True)
class LeakReport:
    """What was sent, what attacks made of it, and what that means."""

    mechanism: str
    """In plain words."""
    cost: Cost | None
    """None: there is no guarantee."""
    classes: int
    """Between how many the attacks guess; 2 for numbers."""
    numbers: bool
    rows: int
    """Rows of which something was sent."""
    planted: int
    """Canaries among them."""
    known: int
    """Rows whose columns and labels the attackers on columns know."""
    rounds: int
    messages: int
    """Residuals about a row, the most that any row had."""
    attacks: tuple[AttackResult, ...]
    reconstructions: tuple[Reconstruction, ...] = ()
    """Columns of others, guessed by the label holder from their replies."""
    received: tuple[Reconstruction, ...] = ()
    """Columns of the label holder and of third parties, guessed by organizations from what they received."""
    runs: int = 1
    """How many fits are added up."""
    summed: bool = False
    """Whether the label holder received sums only."""
    secure: bool = True

    @property
    def bound(self) -> float | None:
        """The most often that the guarantee allows a canary to be guessed right; None without a guarantee."""
        return None if self.cost is None else best_guess(self.cost, self.classes)

    @property
    def chance(self) -> float:
        """How often a blind guess of a canary is right."""
        return 1 / self.classes

    @property
    def worst(self) -> AttackResult:
        """The attack that was right most often."""
        return max(self.attacks, key=lambda one: one.canaries.right)

    @property
    def perfect_attack(self) -> AttackResult | None:
        """The first attack that was right about every single canary; None without."""
        right = (one for one in self.attacks if 0 < one.canaries.of == one.canaries.right)
        return next(right, None)

    def exceeding(self, confidence: float = 0.95) -> list[AttackResult]:
        """Attacks that were right about canaries more often than the guarantee
        allows, beyond their intervals.
        """
        bound = self.bound
        if bound is None:
            return []
        return [one for one in self.attacks if one.canaries.interval(confidence)[0] > bound + 1e-9]

    def verdict(self) -> str:
        """What it means, in plain words."""
        worst, all_of = self.worst, self.perfect_attack
        sentences = [
            f'The strongest attack ("{worst.name}") was right about {worst.canaries} of the canaries.'
        ]
        if all_of is not None and self.cost is None:
            when = "1" if all_of is self.attacks[0] else str(self.rounds)
            loud = f"EVERY ASSISTANT KNOWS EVERY TRAINING LABEL AFTER ROUND {when}: NOTHING PROTECTS THEM."
            sentences.insert(0, loud)
        elif self.bound is None:
            sentences.append(f"A blind guess is right about {self.chance:.1%}. There is no guarantee.")
        elif exceeding := self.exceeding():
            names = ", ".join(one.name for one in exceeding)
            sentences.append(
                f"THE GUARANTEE ALLOWS {self.bound:.1%}, WHICH IS EXCEEDED ({names}): report it."
            )
        else:
            sentences.append(
                f"The guarantee allows {self.bound:.1%}; no attack exceeds it by more than chance explains."
            )
        replies = "sums of replies" if self.summed else "replies"
        for what, found in (("residuals", self.received), (replies, self.reconstructions)):
            if found:
                most = max(found, key=lambda one: one.revealed)
                shares = (max(0.0, one.value) for one in (most.with_messages, most.without))
                sentences.append(
                    f"The column that {what} reveal most of is {most.column!r} of {most.organization}, to "
                    f"{most.by}: " + "{:.0%} of it is explained with them, {:.0%} without.".format(*shares)
                )
        return " ".join(sentences)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        plain = ("mechanism", "bound", "chance", "classes", "numbers", "rows", "known", "rounds")
        facts = {name: getattr(self, name) for name in (*plain, "messages", "runs", "summed", "secure")}
        lists = ("attacks", "reconstructions", "received")
        return facts | {
            "epsilon": None if self.cost is None else self.cost.epsilon,
            "delta": None if self.cost is None else self.cost.delta,
            "canaries": self.planted,
            "worst": self.worst.name,
            "exceeding": [one.name for one in self.exceeding()],
            "verdict": self.verdict(),
            **{name: [one.to_json() for one in getattr(self, name)] for name in lists},
        }


def added_reports(reports: Sequence[LeakReport]) -> LeakReport:
    """Several fits with the same mechanism as one: right guesses are added up,
    columns are those of the first.
    """
    if not reports:
        raise InvalidInputError("no reports to add up")
    first = reports[0]
    names = [[one.name for one in report.attacks] for report in reports]
    if any(report.cost != first.cost for report in reports) or names != [names[0]] * len(names):
        raise InvalidInputError("reports about different mechanisms or attacks cannot be added up")
    attacks = [reduce(add, each) for each in zip(*(report.attacks for report in reports), strict=True)]
    counted = ("rows", "planted", "known", "runs")
    sums: dict[str, Any] = {name: sum(getattr(one, name) for one in reports) for name in counted}
    longest = ("rounds", "messages")
    most: dict[str, Any] = {name: max(getattr(one, name) for one in reports) for name in longest}
    return replace(first, attacks=tuple(attacks), **sums, **most)
