"""Privacy in a table: what protects the labels, and what a cell's messages give away.

The table's own score comes from a fit without canaries, whose labels are all true. A second fit on the same
rows, with canaries among the labels, is attacked.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from gal.privacy.leakage import Transcript, measure_leakage, plant_canaries
from gal.privacy.noise import SeededNoise
from gal.privacy.registry import kind_named, mechanism_named
from gal_bench.cells import Cell
from gal_bench.data.splits import Split

NOISY_LABELS = "noisy-labels"
"""Randomised response for classes, Laplace noise for numbers: a noisy copy of the labels, once."""
OF_CLASSES, OF_NUMBERS = "randomised-response", "laplace-labels"
"""What noisy labels are."""
BOUNDS = {"Diabetes": (0.0, 400.0), "BostonHousing": (0.0, 60.0)}
"""Public bounds of labels that are numbers: round figures that nobody needs the labels for. The score of the
progression of diabetes; median prices in thousands of dollars, which the census cut at 50."""


def public_of(split: Split) -> dict[str, Any]:
    """What everybody knows about the labels of the split's data set, their classes or bounds of numbers: as
    keywords of a mechanism, and of canaries.
    """
    if split.classes:
        count = int(max(split.y_train.max(), split.y_test.max())) + 1
        return {"classes": list(range(count)), "lower": None, "upper": None}
    lower, upper = BOUNDS[split.dataset]
    return {"classes": None, "lower": lower, "upper": upper}


def mechanism_of(cell: Cell, split: Split, fit: str = "") -> Any:
    """The cell's mechanism, or None; noise is the same whenever this ``fit`` of the cell is done again.

    With the same seed it is also the same for every epsilon but for its size, so that rows can be compared.
    Noise that can be repeated protects nothing: it is for tables only.
    """
    if cell.privacy is None:
        return None
    name = cell.privacy
    if name == NOISY_LABELS:
        name = OF_CLASSES if split.classes else OF_NUMBERS
    kind = kind_named(name)
    source = SeededNoise(seeds_of(cell, f"{name} {fit}"))
    facts = {fact: value for fact, value in public_of(split).items() if fact in kind.options()}
    return mechanism_named(name, epsilon=cell.epsilon, delta=cell.delta, source=source, **facts)


def seeds_of(cell: Cell, what: str) -> list[int]:
    """For a generator of its own for what is drawn in a cell of this data set,
    number of organizations and seed.
    """
    return [cell.seed, zlib.crc32(f"{cell.dataset} {cell.organizations} {what}".encode())]


CANARIES = 0.2
"""Of the training rows."""


def measured_leak(cell: Cell, split: Split, make: Callable[..., Any]) -> dict[str, Any]:
    """What the leak meter found, as plain values; ``make`` makes the cell's
    estimator with further options.
    """
    public, fit = public_of(split), f"canaries {cell.privacy} {cell.epsilon}"
    rng = np.random.default_rng(seeds_of(cell, fit))
    y, mask = plant_canaries(split.y_train, rng, fraction=CANARIES, **public)
    transcript = Transcript()
    privacy = mechanism_of(cell, split, fit)
    model = make(privacy=privacy).fit(split.X_train, y, on_message=transcript)
    report = measure_leakage(
        transcript,
        y,
        roles=model.task_rows_,
        label_holder=next(iter(split.organizations)),
        privacy=privacy,
        classes=public["classes"],
        canaries=mask,
        seed=cell.seed,
    )
    # Counts, so that several seeds can be added up: right guesses, and all guesses.
    attacks = {one.name: {"canaries": [one.canaries.right, one.canaries.of]} for one in report.attacks}
    return {"classes": report.classes, "bound": report.bound, "attacks": attacks}
