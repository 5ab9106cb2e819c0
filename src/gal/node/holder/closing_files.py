"""The closing model of a version as a file: written before the version is
finished, read when it first predicts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gal.core.state import Ensemble, ensemble_of
from gal.errors import TaskError
from gal.node.store.files import read_whole, sync_file
from gal.node.store.state import State
from gal.node.store.stored_versions import LearningOutcome, StoredClosing
from gal.protocol import digest
from gal.storage import load_ensemble, save_ensemble

FILE = "closing.gal"
"""In the folder of a version, beside those of its roles: it stays when they are emptied."""


def write_closing(state: State, task: str, version: int, ensemble: Ensemble) -> StoredClosing | None:
    """Put the closing model on the disk; what the version's record says of it, None where there is none."""
    closing, crossing = ensemble.closing, ensemble.crossing
    last = closing if crossing is None else crossing
    if last is None:
        return None
    path = _path(state, task, version)
    save_ensemble(ensemble, path)
    sync_file(path)
    return StoredClosing(
        digest=digest(path.read_bytes()),
        share=0.0 if closing is None else closing.share,
        validation_loss=last.validation_loss if last.share > 0 else None,
        crossed=None if crossing is None or crossing.share == 0 else crossing.share,
    )


def read_learned(state: State, task: str, version: int, outcome: LearningOutcome) -> Ensemble:
    """What was learned in a finished version, with its closing model; an error where
    the file is not what was written.
    """
    ensemble = ensemble_of(outcome.ensemble)
    if outcome.closing is None:
        return ensemble
    path = _path(state, task, version)
    if read_whole(path, outcome.closing.digest) is None:
        raise TaskError(
            f"the closing model of version {version} ({path}) is missing or damaged: bring the file back "
            "from a backup, "
            "or learn a new version"
        )
    stored = load_ensemble(path)
    return replace(ensemble, closing=stored.closing, crossing=stored.crossing)


def _path(state: State, task: str, version: int) -> Path:
    return state.folder(task, version, "label holder").parent / FILE
