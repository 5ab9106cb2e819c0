"""Stored facts of a version, at an assisting organization and at the label holder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Literal

from pydantic import TypeAdapter

Status = Literal["begun", "finished", "abandoned"]
"""Begun: being learned, or interrupted."""
OWN_STACKER = "own_stacker"
"""Among the facts of a private refit: the digest of the file with the stacker of its own model."""


@dataclass(frozen=True, kw_only=True)
class AssistedVersion:
    """A version in which this organization takes part; later requests are checked against it."""

    status: Status = "begun"
    request: str
    """The digest of the request that started it."""
    rows: str
    """The digest of its rows in order."""
    n_rows: int
    n_fit: int
    fewest: int
    """The fewest rows of a fit: without one of the folds, where there are any."""
    without: Sequence[int] = ()
    """Rows without each fold of the cross-validation."""
    n_outputs: int
    rounds: int
    further: int = 0
    """Rounds beyond these, of random targets and interaction probes."""
    n_probed: int = 0
    """Rows on which interaction probes are fitted."""
    fewest_probed: int = 0
    """Without one of their folds."""
    organization: str
    """This organization's name at the label holder."""
    begun: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Columns, and whether each is numbers or text."""
    began: str = ""
    """The digest of the setup, sent to all; empty in versions of older software."""
    keys: str | None = None
    """The digest of the file with the ledger's keys of its rows; None where replies have no noise."""


@dataclass(frozen=True, kw_only=True)
class StoredStacker:
    """A stacker in a file of its own, and its facts for people."""

    digest: str
    share: float
    """0 where there are interaction probes or kept replies only."""
    validation_loss: float | None
    """With interaction probes, where there are any; None without validation rows."""
    probes: float | None = None
    """The share of interaction probes; None where there are none."""


@dataclass(frozen=True, kw_only=True)
class LearningOutcome:
    """The result of a version."""

    ensemble: Mapping[str, Any]
    """As plain data; `gal.core.state.ensemble_of` reads it."""
    classes: Sequence[Any] | None
    loss: str
    finished: str
    seconds: float
    known_rows: Mapping[str, int]
    unknown_rows: Mapping[str, int]
    stacker: StoredStacker | None = None
    """None: fitted values are only summed."""


@dataclass(frozen=True, kw_only=True)
class LearnedVersion:
    """A version of an own task."""

    status: Status = "begun"
    n_rows: int
    n_without_label: int
    started: str
    privacy: Mapping[str, Any]
    """Its cost, as plain data."""
    outcome: LearningOutcome | None = None
    """None while it is being learned."""
    refit: Mapping[str, Any] = field(default_factory=dict)
    """With label DP: the private refit on the true labels, and its quality."""


_ASSISTED, _LEARNED = TypeAdapter(AssistedVersion), TypeAdapter(LearnedVersion)


def version_text(version: AssistedVersion | LearnedVersion) -> str:
    """A version as text, without its status, which has a column of its own."""
    facts = asdict(version)
    del facts["status"]
    return json.dumps(facts)


@lru_cache(8)
def assisted_version(status: Status, text: str) -> AssistedVersion:
    return _ASSISTED.validate_python(json.loads(text) | {"status": status})


@lru_cache(4)
def learned_version(status: Status, text: str) -> LearnedVersion:
    return _LEARNED.validate_python(json.loads(text) | {"status": status})
