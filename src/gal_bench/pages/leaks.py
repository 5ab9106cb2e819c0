"""What the leak meter found in the runs behind one figure, added up over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from gal.privacy.leakage import Share, equivalent_epsilon
from gal_bench.cells import Outcome

COLUMNS = (
    *("epsilon", "delta", "best attack", "canaries", "canaries guessed", "canaries low", "canaries high"),
    *("canaries without message", "canaries guessed uninformed", "guarantee allows", "chance"),
    "equivalent epsilon",
    *("rows guessed", "rows low", "rows high", "rows without message"),
)
"""In CSV: shares are between 0 and 1, ends of intervals those of 95 %."""
KINDS = ("canaries", "canaries without", "rows", "rows without")


@dataclass(frozen=True)
class Leak:
    """The attack on messages that guessed most canaries right: how often it did, also for ordinary rows, and
    without the row's own message."""

    attack: str
    canaries: Share
    canaries_without: Share
    rows: Share
    rows_without: Share
    classes: int
    """Between how many it guesses; 2 for numbers."""
    bound: float | None
    """The largest share of canaries that the guarantee allows; None without one."""
    uninformed: Share
    """Of canaries: by the best attack that is given nothing but what an organization has."""

    @property
    def chance(self) -> float:
        """The share that a blind guess gets right."""
        return 1 / self.classes

    @property
    def exceeds(self) -> bool:
        """Whether the interval lies above what is allowed."""
        return self.bound is not None and self.canaries.low > self.bound

    @property
    def equivalent_epsilon(self) -> float:
        """The epsilon of randomised response under which the best guess is right as often."""
        return equivalent_epsilon(self.canaries.value, self.classes)

    @property
    def words(self) -> str:
        """For a cell of a table."""
        low, high = (round(100 * end) for end in self.canaries.interval())
        said = f"leak {percent(self.canaries)} ({low}–{high})"
        return said if self.bound is None else f"{said}, allowed {allowed(self.bound)}"


def percent(share: Share) -> str:
    """Rounded; 100 % only where all guesses were right.

    >>> percent(Share(999, 1000)), percent(Share(1000, 1000)), percent(Share(2, 3))
    ('99 %', '100 %', '67 %')
    """
    value = round(100 * share.value)
    return f"{min(value, 99) if share.right < share.of else value} %"


def allowed(bound: float) -> str:
    """Rounded down: never more than is allowed.

    >>> allowed(0.99966)
    '99.9 %'
    """
    return f"{math.floor(1000 * bound) / 10:.1f} %"


def leak_of(outcomes: Sequence[Outcome]) -> Leak | None:
    """Over all seeds; None where it was not measured."""
    found = [one.leak for one in outcomes if one.leak]
    if not found:
        return None
    everywhere = [name for name in found[0]["attacks"] if all(name in one["attacks"] for one in found)]
    shares = {
        name: [reduce(add, (Share(*one["attacks"][name][kind]) for one in found)) for kind in KINDS]
        for name in everywhere
    }

    def guessed(name: str) -> float:
        return shares[name][0].value if shares[name][0].of else 0.0

    best = max(shares, key=guessed)  # of equal ones the first, which needs least
    uninformed = max((name for name in shares if name not in found[0]["informed"]), key=guessed)
    canaries, canaries_without, rows, rows_without = shares[best]
    return Leak(
        best,
        canaries,
        canaries_without,
        rows,
        rows_without,
        classes=int(found[0]["classes"]),
        bound=found[0]["bound"],
        uninformed=shares[uninformed][0],
    )


def csv_values(leak: Leak | None, epsilon: float | None, delta: float | None) -> list[Any]:
    """In the order of ``COLUMNS``; empty where nothing was measured."""
    stated = ["" if value is None else value for value in (epsilon, delta)]
    if leak is None:
        return [*stated, *[""] * (len(COLUMNS) - 2)]
    epsilon_like = leak.equivalent_epsilon
    return [
        *stated,
        *(leak.attack, leak.canaries.of, *_ends(leak.canaries), _short(leak.canaries_without.value)),
        _short(leak.uninformed.value),
        *("" if leak.bound is None else _short(leak.bound), _short(leak.chance)),
        "" if math.isinf(epsilon_like) else _short(epsilon_like),
        *(*_ends(leak.rows), _short(leak.rows_without.value)),
    ]


def _ends(share: Share) -> list[float]:
    return [_short(value) for value in (share.value, *share.interval())]


def _short(value: float) -> float:
    return round(value, 6)


def to_json(leak: Leak) -> dict[str, Any]:
    """Plain values."""
    return {
        "attack": leak.attack,
        "canaries": leak.canaries.to_json(),
        "canaries without message": leak.canaries_without.to_json(),
        "canaries uninformed": leak.uninformed.to_json(),
        "rows": leak.rows.to_json(),
        "rows without message": leak.rows_without.to_json(),
        "allowed": leak.bound,
        "chance": leak.chance,
    }
