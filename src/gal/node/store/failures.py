"""What is told about a failure: everything at home, and outside only what cannot hold data."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from gal.errors import (
    AlignmentError,
    InvalidInputError,
    InvalidMessageError,
    LocalModelError,
    MissingExtraError,
    NodeError,
    NoRoomError,
    RefusedError,
    StoredModelError,
)


class Failure(NamedTuple):
    """A failure in three ways."""

    code: str
    """One word for programs."""
    outside: str
    """A sentence for the peer."""
    inside: str
    """What really happened, for this organization's own log."""


SAID = {
    AlignmentError: ("alignment", "cannot use its row ids"),
    StoredModelError: ("model-failed", "could not read or write its local model"),
    LocalModelError: ("model-failed", "could not compute this with its local model"),
    MissingExtraError: ("not-installed", "lacks an optional part that this needs"),
    InvalidMessageError: ("invalid-message", "could not read what was sent"),
    InvalidInputError: ("failed", "cannot use its data for this"),
    MemoryError: ("out-of-memory", "has not enough memory for this"),
    NodeError: ("failed", "could not do this"),
    OSError: ("disk", "cannot read or write its own files (is its disk full?)"),
    sqlite3.Error: ("disk", "cannot read or write its own files (is its disk full?)"),
}


def code_of(error: InvalidMessageError) -> str:
    """Under which code it is on record that something could not be taken as a message."""
    return "no-room" if isinstance(error, NoRoomError) else "invalid-message"


def describe_failure(error: BaseException, organization: str) -> Failure:
    """Tell about an error: only a refusal's sentence was written for others' eyes.

    The text of any other error may quote a value or an id of this organization's data, so it stays at home.
    """
    if isinstance(error, RefusedError):
        return Failure(error.code, str(error), str(error))
    told = getattr(error, "failure", None)
    if isinstance(told, Failure):  # by the process that computes
        return told
    cause: BaseException = error
    if isinstance(error.__cause__, MemoryError):
        cause = error.__cause__
    elif isinstance(error, NodeError) and isinstance(error.__cause__, OSError | sqlite3.Error):
        cause = error if isinstance(error, InvalidInputError) else error.__cause__
    code, said = next((SAID[kind] for kind in SAID if isinstance(cause, kind)), ("internal", "failed inside"))
    inside = f"{type(error).__name__}: {error}"
    return Failure(code, f"{organization} {said}: its own log says why", inside)
