"""Versions of tasks as they are remembered: in one form by who assists, in another by the label holder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Literal

from pydantic import TypeAdapter

Status = Literal["begun", "finished", "abandoned"]
"""Begun: it is learned, or was interrupted."""
OWN_CLOSING = "own_closing"
"""Among the facts of a private refit: the digest of the file with the stacker of its own model."""


@dataclass(frozen=True, kw_only=True)
class AssistedVersion:
    """A version as an organization takes part in it: all that later requests are checked against."""

    status: Status = "begun"
    request: str
    """The digest of the request that began it."""
    rows: str
    """The digest of its rows in their order."""
    n_rows: int
    n_fit: int
    fewest: int
    """The fewest rows on which a model is fitted: without one of the folds, where there are any."""
    without: Sequence[int] = ()
    """By part of the cross-validation: the rows without it."""
    n_outputs: int
    rounds: int
    further: int = 0
    """Rounds beyond these, of random targets and interaction probes."""
    n_probed: int = 0
    """Rows on which interaction probes are fitted."""
    fewest_probed: int = 0
    """Without one of their folds."""
    organization: str
    """What the label holder calls this organization."""
    begun: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Columns, and whether each is numbers or text."""
    began: str = ""
    """The digest of how it began, as all are told; empty where that was before there was one."""
    keys: str | None = None
    """The digest of the file with the ledger's keys of its rows; None where answers carry no noise."""


@dataclass(frozen=True, kw_only=True)
class StoredClosing:
    """A stacker that lies in a file of its own, and what people want to know of it."""

    digest: str
    """Of the file."""
    share: float
    """0 where there are interaction probes only."""
    validation_loss: float | None
    """Of what predicts: with interaction probes, where there are any; None where nothing judges."""
    probes: float | None = None
    """The share of interaction probes; None where there are none."""


@dataclass(frozen=True, kw_only=True)
class LearningOutcome:
    """What was learned in a version."""

    ensemble: Mapping[str, Any]
    """As plain data; `gal.core.state.ensemble_of` reads it."""
    classes: Sequence[Any] | None
    loss: str
    finished: str
    seconds: float
    known_rows: Mapping[str, int]
    unknown_rows: Mapping[str, int]
    closing: StoredClosing | None = None
    """None: answers are only added up."""


@dataclass(frozen=True, kw_only=True)
class LearnedVersion:
    """A version of an own task, as its label holder remembers it."""

    status: Status = "begun"
    n_rows: int
    n_without_label: int
    started: str
    privacy: Mapping[str, Any]
    """What it costs, in plain data."""
    outcome: LearningOutcome | None = None
    """None while it is learned."""
    refit: Mapping[str, Any] = field(default_factory=dict)
    """With privacy: the private refit to the true labels ("private_refit"), and how good it is."""


_ASSISTED, _LEARNED = TypeAdapter(AssistedVersion), TypeAdapter(LearnedVersion)


def version_text(version: AssistedVersion | LearnedVersion) -> str:
    """A version as text; its status is kept beside it."""
    facts = asdict(version)
    del facts["status"]
    return json.dumps(facts)


@lru_cache(8)
def assisted_version(status: Status, text: str) -> AssistedVersion:
    """Read such a text of an organization."""
    return _ASSISTED.validate_python(json.loads(text) | {"status": status})


@lru_cache(4)
def learned_version(status: Status, text: str) -> LearnedVersion:
    """Read such a text of a label holder."""
    return _LEARNED.validate_python(json.loads(text) | {"status": status})
