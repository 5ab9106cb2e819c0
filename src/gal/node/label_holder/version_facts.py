"""The facts of a version of a task, for commands and the page."""

from __future__ import annotations

import math
from typing import Any

from gal.core.state import ensemble_of, plain
from gal.node.store.state import TaskRecord
from gal.node.store.stored_versions import OWN_STACKER, LearnedVersion, LearningOutcome


def version_facts(record: TaskRecord, number: int, version: LearnedVersion) -> dict[str, Any]:
    """A version in plain data: rounds, losses, contributions, missed rounds, privacy."""
    from gal.learner.observing import curve_of  # an idle node shows no versions

    nested = {"outcome", "refit"}
    facts = {key: value for key, value in vars(version).items() if key not in nested}
    facts |= {"task": record.name, "version": number}
    facts |= {key: value for key, value in version.refit.items() if key not in ("private_refit", OWN_STACKER)}
    if version.refit:
        facts["refitted"] = version.refit["private_refit"] is not None
    if version.outcome is None:
        return facts
    facts |= {
        key: value for key, value in vars(version.outcome).items() if key not in {"ensemble", "stacker"}
    }
    stacker = version.outcome.stacker
    ensemble = ensemble_of(version.outcome.ensemble)
    missed: dict[str, list[int]] = {}
    for done in ensemble.rounds:
        for name in done.left_out:
            missed.setdefault(name, []).append(done.round)
    return facts | {
        "rounds": ensemble.n_rounds,
        "rounds_learned": len(ensemble.rounds),
        "track": ensemble.track,
        "train_loss": ensemble.train_loss,
        "initial_train_loss": ensemble.initial_train_loss,
        "validation_loss": validated_loss(version.outcome),
        "stacker": None if stacker is None or not stacker.share else stacker.share,
        "probes": None if stacker is None else stacker.probes,
        "initial_validation_loss": _finite(ensemble.initial_validation_loss),
        "alone_validation_loss": _finite(ensemble.alone_validation_loss),
        "assisted_validation_loss": _finite(ensemble.assisted_validation_loss),
        "label_holder": ensemble.label_holder,
        "contributions": plain(ensemble.contributions),
        "learning": plain(curve_of(ensemble)),
        "missed": missed,
        "stopped": ensemble.stopped,
        "outcome": plain(ensemble.outcome),
    }


def validated_loss(outcome: LearningOutcome) -> float | None:
    """The validation loss of the stacker, or of the used rounds; None without validation."""
    if outcome.stacker is not None and outcome.stacker.validation_loss is not None:
        return float(outcome.stacker.validation_loss)
    ensemble = ensemble_of(outcome.ensemble)
    if not ensemble.rounds:
        return None
    kept = ensemble.n_rounds
    loss = ensemble.rounds[kept - 1].validation_loss if kept else ensemble.initial_validation_loss
    return _finite(loss)


def _finite(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None
