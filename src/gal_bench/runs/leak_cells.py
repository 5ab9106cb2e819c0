"""What a cell's messages give away: a second fit on the same rows, with canaries
among the labels, is attacked.

The table's own score comes from a fit without canaries, whose labels are all true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gal.privacy.leakage import AttackResult, LeakReport, Transcript, measure_leakage, plant_canaries
from gal_bench.cells import Cell
from gal_bench.data.splits import Split
from gal_bench.runs.mechanisms import mechanism_of, public_of, seeds_of

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
    model = make(privacy=privacy, on_message=transcript).fit(split.X_train, y)
    own, *others = split.organizations
    report = measure_leakage(
        transcript,
        y,
        roles=model.task_rows_,
        label_holder=own,
        privacy=privacy,
        classes=public["classes"],
        canaries=mask,
        views={name: split.X_train[list(split.organizations[name])] for name in others},
        features=False,
        seed=cell.seed,
    )
    return _plain(report)


def _plain(report: LeakReport) -> dict[str, Any]:
    """Counts, so that several seeds can be added up; attacks that use no message are left out."""
    return {
        "classes": report.classes,
        "bound": report.bound,
        "attacks": {one.name: _counts(one) for one in report.attacks if one.message},
        "informed": [],
    }


def _counts(attack: AttackResult) -> dict[str, list[int]]:
    """Right guesses and all guesses: of canaries and of ordinary rows, with and
    without the row's own message.
    """
    shares = {
        "canaries": attack.canaries,
        "canaries without": attack.canaries_without,
        "rows": attack.ordinary,
        "rows without": attack.ordinary_without,
    }
    return {name: [share.right, share.of] for name, share in shares.items()}
