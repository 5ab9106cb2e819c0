"""Descriptions of failures: in full for this organization's log, without data for a peer."""

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
    code: str
    """One word for programs."""
    outside: str
    """A sentence for the peer."""
    inside: str
    """The full error, for this organization's own log."""


SENTENCES = {
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
    """The refusal code for bytes that are no message."""
    return "no-room" if isinstance(error, NoRoomError) else "invalid-message"


def describe_failure(error: BaseException, organization: str) -> Failure:
    """Describe an error for both sides.

    Only a refusal's own sentence goes to the peer: any other text may quote a value or an id.
    """
    if isinstance(error, RefusedError):
        return Failure(error.code, str(error), str(error))
    described = getattr(error, "failure", None)
    if isinstance(described, Failure):  # by the worker process
        return described
    cause: BaseException = error
    if isinstance(error.__cause__, MemoryError):
        cause = error.__cause__
    elif isinstance(error, NodeError) and isinstance(error.__cause__, OSError | sqlite3.Error):
        cause = error if isinstance(error, InvalidInputError) else error.__cause__
    found = (SENTENCES[kind] for kind in SENTENCES if isinstance(cause, kind))
    code, sentence = next(found, ("internal", "failed inside"))
    inside = f"{type(error).__name__}: {error}"
    return Failure(code, f"{organization} {sentence}: its own log says why", inside)
