"""The stacker of a version as a file: written before the version is
finished, read when it first predicts. Under privacy, that of the label holder's own model likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gal.core.state import Ensemble, ensemble_of
from gal.errors import StoredModelError, TaskError
from gal.node.store.files import read_whole, sync_file
from gal.node.store.state import State
from gal.node.store.stored_versions import OWN_CLOSING, LearningOutcome, StoredClosing
from gal.privacy.refit import PrivateRefit
from gal.protocol import digest
from gal.storage import load_ensemble, save_ensemble

FILE, OWN_FILE = "closing.gal", "own-closing.gal"
"""In the folder of a version, beside those of its roles: they stay when these are emptied."""


def write_closing(state: State, task: str, version: int, ensemble: Ensemble) -> StoredClosing | None:
    """Put the stacker on the disk; what the version's record says of it, None where there is none."""
    last = ensemble.closing if ensemble.probes is None else ensemble.probes
    if last is None:
        return None
    return StoredClosing(
        digest=_write(state, task, version, ensemble, FILE),
        share=0.0 if ensemble.closing is None else ensemble.closing.share,
        validation_loss=last.validation_loss if last.share > 0 else None,
        probes=None if ensemble.probes is None else ensemble.probes.share,
    )


def read_learned(state: State, task: str, version: int, outcome: LearningOutcome) -> Ensemble:
    """What was learned in a finished version, with its stacker."""
    ensemble = ensemble_of(outcome.ensemble)
    if outcome.closing is None:
        return ensemble
    stored = _read(state, task, version, FILE, outcome.closing.digest)
    return replace(ensemble, closing=stored.closing, probes=stored.probes)


def write_own_closing(state: State, task: str, version: int, own: Ensemble | None) -> dict[str, str]:
    """Put the stacker of its own model on the disk; what the facts of the private refit say of it."""
    if own is None or own.closing is None:
        return {}
    return {OWN_CLOSING: _write(state, task, version, own, OWN_FILE)}


def read_refit(state: State, task: str, version: int, facts: Mapping[str, Any]) -> PrivateRefit | None:
    """The private refit of a finished version, with that model; None where there is none."""
    found = facts.get("private_refit")
    if found is None:
        return None
    refit, expected = PrivateRefit.from_json(found), facts.get(OWN_CLOSING)
    if expected is None:
        return refit
    return refit.with_closing(_read(state, task, version, OWN_FILE, expected).closing)


def _write(state: State, task: str, version: int, ensemble: Ensemble, file: str) -> str:
    path = _path(state, task, version, file)
    save_ensemble(ensemble, path)
    sync_file(path)
    return digest(path.read_bytes())


def _read(state: State, task: str, version: int, file: str, expected: str) -> Ensemble:
    """What is in a file of this node, if it is what was written."""
    path, whose = _path(state, task, version, file), " of your own model in" if file == OWN_FILE else " of"
    if read_whole(path, expected) is None:
        raise TaskError(
            f"the stacker{whose} version {version} ({path}) is missing or damaged: bring the file back "
            "from a backup, or learn a new version"
        )
    try:
        return load_ensemble(path)
    except StoredModelError as error:
        raise TaskError(f"the stacker of version {version} cannot be used: {error}") from error


def _path(state: State, task: str, version: int, file: str) -> Path:
    return state.folder(task, version, "label holder").parent / file
