"""What people want to know of a version of a task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gal.core.state import Ensemble, ensemble_of
from gal.node.store.state import TaskRecord


def version_facts(record: TaskRecord, version: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """A version in plain data: rounds, losses, contributions, who missed what, and what it told of the labels."""
    said = {key: value for key, value in facts.items() if key not in {"ensemble", "private_refit"}} | {
        "task": record.name,
        "version": version,
    }
    if "private_refit" in facts:
        said["refitted"] = facts["private_refit"] is not None
    if "ensemble" not in facts:
        return said
    ensemble = ensemble_of(facts["ensemble"])
    total = sum(ensemble.contributions.values()) or 1.0
    missed: dict[str, list[int]] = {}
    for done in ensemble.rounds:
        for name in done.left_out:
            missed.setdefault(name, []).append(done.round)
    return said | {
        "rounds": ensemble.n_rounds,
        "rounds_learned": len(ensemble.rounds),
        "track": ensemble.track,
        "train_loss": ensemble.train_loss,
        "initial_train_loss": ensemble.initial_train_loss,
        "validation_loss": _validation_loss(ensemble),
        "contributions": {name: share / total for name, share in ensemble.contributions.items()},
        "missed": missed,
        "stopped": ensemble.stopped,
    }


def _validation_loss(ensemble: Ensemble) -> float | None:
    """Of the last round that is used; None where nothing validates."""
    if not ensemble.rounds:
        return None
    loss = ensemble.rounds[max(ensemble.n_rounds, 1) - 1].validation_loss
    return loss if math.isfinite(loss) else None
