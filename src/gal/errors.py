"""Every error that GAL raises on purpose, in one tree.

::

    GALError
    ├── InvalidInputError (also ValueError)    what the caller passed in cannot be used
    │   ├── InvalidLabelsError                 labels: NaN, infinite, one class only, out of range
    │   ├── InvalidColumnsError                columns: unknown, empty, none given
    │   ├── InvalidOptionError                 an option has a value outside its range
    │   └── MissingDataError                   a file that an experiment reads is not there
    ├── LocalModelError                        one organization's local model failed
    │   ├── UnsupportedLocalLossError          ... because it cannot minimise the local loss asked of it
    │   └── ClusterError                       ... because the cluster that fits it was lost
    ├── InvalidReplyError                      an organization answered with something unusable
    ├── NoAnswerError                          an organization did not answer; the message says why
    ├── NobodyAnsweredError                    no organization gave a usable answer in a round
    ├── NothingLearnedError                    learning ended before its first round was finished
    ├── StoredModelError                       a saved model cannot be read
    ├── ExperimentError                        a run of a table failed
    ├── PrivacyError                           a privacy guarantee cannot be given as asked; nothing was sent
    │   └── BudgetSpentError                   ... because it would cost more than is left
    ├── NodeError                              something about nodes and the network between them
    │   ├── ConfigurationError (also InvalidInputError)   node.toml cannot be used; with file and line
    │   ├── IdentityError                      a key, certificate or card cannot be used or is not known
    │   ├── InvalidMessageError                what arrived is not a valid message
    │   │   └── NoRoomError                    ... or there was no room for it here
    │   ├── RefusedError                       the other side, or the own policy, refused; has a code
    │   ├── NodeRunsError                      another process already runs this node
    │   ├── LinkLostError                      the stream to a peer ended
    │   ├── AlignmentError (also InvalidInputError)       rows cannot be aligned
    │   ├── TaskError                          a task is unknown or in the wrong state
    │   ├── LearningInterruptedError           learning was asked to stop; it can be resumed
    │   └── AuditError                         the audit log was altered
    └── MissingExtraError (also ImportError)   an optional dependency is not installed

A message names the organization, the round, what was expected, what came, and what to do.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable


class GALError(Exception):
    """Base of all errors that GAL raises on purpose."""


class InvalidInputError(GALError, ValueError):
    """What the caller passed in cannot be used."""


class InvalidLabelsError(InvalidInputError):
    """The labels cannot be learned from."""


class InvalidColumnsError(InvalidInputError):
    """An organization's columns cannot be found or used."""


class InvalidOptionError(InvalidInputError):
    """An option has a value outside its range."""


class MissingDataError(InvalidInputError):
    """A file that an experiment reads is not there; the message says what to put where."""


class LocalModelError(GALError):
    """One organization's local model failed; the others go on without it."""


class UnsupportedLocalLossError(LocalModelError):
    """A local model cannot minimise the local loss that was asked of it."""


class ClusterError(LocalModelError):
    """The cluster that fits a local model cannot be reached, or was lost more often than allowed."""


class InvalidReplyError(GALError):
    """An organization answered with something unusable; it is left out of the round."""


class NoAnswerError(GALError):
    """An organization did not answer; the message says why, as in "did not answer within 5 s"."""


class NobodyAnsweredError(GALError):
    """No organization gave a usable answer in a round."""


class NothingLearnedError(GALError):
    """Learning ended before its first round was finished."""


class StoredModelError(GALError):
    """A saved model cannot be read."""


class MissingExtraError(GALError, ImportError):
    """An optional dependency is not installed; ``extra`` is what brings it."""

    def __init__(self, extra: str, package: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'gal-learn[{extra}]'.")
        self.extra = extra


class ExperimentError(GALError):
    """A run of a table failed; the message says which."""


class PrivacyError(GALError):
    """A privacy guarantee cannot be given as asked; nothing was sent."""


class BudgetSpentError(PrivacyError):
    """A release would cost more privacy than is left; nothing was sent."""


class NodeError(GALError):
    """Something about nodes and the network between them."""


class ConfigurationError(NodeError, InvalidInputError):
    """node.toml cannot be used; the message names file and line."""


class IdentityError(NodeError):
    """A key, certificate or card cannot be used, or is not known."""


class InvalidMessageError(NodeError):
    """What arrived is not a valid message; nothing of it was used. ``n_bytes`` of it came, where known."""

    def __init__(self, message: str, n_bytes: int = 0) -> None:
        super().__init__(message)
        self.n_bytes = n_bytes


class NoRoomError(InvalidMessageError):
    """There was no room for a message here, on the disk or in memory: no fault of who sent it."""


class RefusedError(NodeError):
    """The other side, or this organization's own policy, refused; ``code`` is one word for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NodeRunsError(NodeError):
    """Another process already runs this node."""


class LinkLostError(NodeError):
    """The stream to a peer ended."""


class AlignmentError(NodeError, InvalidInputError):
    """The rows of two organizations cannot be aligned."""


class TaskError(NodeError):
    """A task is unknown, or in a state in which this cannot be done."""


class LearningInterruptedError(NodeError):
    """Learning was asked to stop; what was done is kept, and it can be resumed."""


class AuditError(NodeError):
    """The audit log was altered."""


def printable(text: str) -> str:
    """Text in which control characters, and others that steer a terminal, are escaped; for names of peers.

    >>> printable("a\\x1b[31m\\nb \\u202e")
    'a\\\\x1b[31m\\\\nb \\\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(
        one
        if one.isprintable() or unicodedata.category(one) == "Zs"
        else one.encode("unicode_escape").decode()
        for one in text
    )


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """For the end of a message: which of the known names may have been meant; empty where none is close.

    >>> did_you_mean("progresion", ["age", "progression"])
    " Did you mean 'progression'?"
    >>> did_you_mean("Y", ["x", "y"])
    " Did you mean 'y'?"
    """
    names = list(known)
    close = [one for one in names if one.lower() == given.lower()] or difflib.get_close_matches(
        given, names, 1
    )
    return f" Did you mean {close[0]!r}?" if close else ""
