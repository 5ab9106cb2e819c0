"""The stacker of a version as a file: written before the version is finished.

Under privacy the label holder's own model has such a file, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gal.core.state import Ensemble, ensemble_of
from gal.errors import StoredModelError, TaskError
from gal.node.label_holder.holder_node import HOLDER
from gal.node.store.files import read_whole, sync_file
from gal.node.store.state import State
from gal.node.store.stored_versions import OWN_STACKER, LearningOutcome, StoredStacker
from gal.privacy.refit import PrivateRefit
from gal.protocol import digest
from gal.storage import load_ensemble, save_ensemble
from gal.storage.archive import OWN

FILE, OWN_FILE = "stacker.gal", "own-stacker.gal"
"""In the folder of a version, beside those of its roles: they stay when these are emptied."""


def write_stacker(state: State, task: str, version: int, ensemble: Ensemble) -> StoredStacker | None:
    """Write the stacker and kept replies; their entry in the version's record, None without any."""
    last = ensemble.stacker if ensemble.probes is None else ensemble.probes
    if last is None and ensemble.kept_replies is None:
        return None
    return StoredStacker(
        digest=_write(_path(state, task, version, FILE), ensemble),
        share=0.0 if ensemble.stacker is None else ensemble.stacker.share,
        validation_loss=None if last is None or not last.share > 0 else last.validation_loss,
        probes=None if ensemble.probes is None else ensemble.probes.share,
    )


def read_learned(state: State, task: str, version: int, outcome: LearningOutcome) -> Ensemble:
    """The ensemble of a finished version, with its stacker and kept replies."""
    ensemble = ensemble_of(outcome.ensemble)
    if outcome.stacker is None:
        return ensemble
    stored = _read(_path(state, task, version, FILE), f"of version {version}", outcome.stacker.digest)
    kept = {name: getattr(stored, name) for name in OWN}
    return replace(ensemble, **kept)


def write_own_stacker(state: State, task: str, version: int, own: Ensemble | None) -> dict[str, str]:
    """Write the stacker of the own model; its entry among the facts of the private refit."""
    if own is None or own.stacker is None:
        return {}
    return {OWN_STACKER: _write(_path(state, task, version, OWN_FILE), own)}


def read_refit(state: State, task: str, version: int, facts: Mapping[str, Any]) -> PrivateRefit | None:
    """The private refit of a finished version, with its stacker; None where there is none."""
    found, expected = facts.get("private_refit"), facts.get(OWN_STACKER)
    refit = None if found is None else PrivateRefit.from_json(found)
    if refit is None or expected is None:
        return refit
    path = _path(state, task, version, OWN_FILE)
    return refit.with_stacker(_read(path, f"of your own model in version {version}", expected).stacker)


def _write(path: Path, ensemble: Ensemble) -> str:
    save_ensemble(ensemble, path)
    sync_file(path)
    return digest(path.read_bytes())


def _read(path: Path, owner: str, expected: str) -> Ensemble:
    if read_whole(path, expected) is None:
        raise TaskError(
            f"the stacker {owner} ({path}) is missing or damaged: bring the file back from a backup, or "
            "learn a new version"
        )
    try:
        return load_ensemble(path)
    except StoredModelError as error:
        raise TaskError(f"the stacker {owner} cannot be used: {error}") from error


def _path(state: State, task: str, version: int, file: str) -> Path:
    return state.folder(task, version, HOLDER).parent / file
