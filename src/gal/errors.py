"""All errors of GAL in one tree, from which the reference's catalog is generated.

A message names the organization, the round or file, what was expected, what came, and what to do. Commands
end with the ``exit_code`` of the class.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from typing import ClassVar


class GALError(Exception):
    """Any error that GAL raises on purpose."""

    exit_code: ClassVar[int] = 3
    """How a command ends."""
    remedy: ClassVar[str] = "Do what the message says."
    """What to do, for the catalog; the message is more exact."""


# What the caller passed in


class InvalidInputError(GALError, ValueError):
    """An input cannot be used: an argument, a file or a table."""

    exit_code = 2
    remedy = "Correct the input that the message names."


class InvalidLabelsError(InvalidInputError):
    """Labels cannot be learned from: missing, infinite, of one class only, or out of range."""

    remedy = "Correct or remove these rows, or name another column."


class InvalidColumnsError(InvalidInputError):
    """An organization's columns are unknown, empty or not given."""

    remedy = "Correct the names of its columns."


class InvalidOptionError(InvalidInputError):
    """An option has an unknown name, a value out of range, or does not go with another one."""

    remedy = "Take one of the values that the message names."


class MissingDataError(InvalidInputError):
    """A data set of `gal bench` is not there."""

    remedy = "Put the file where the message says."


class MissingExtraError(GALError, ImportError):
    """An optional dependency is not installed; ``extra`` brings it."""

    exit_code = 4
    remedy = "Install the extra that the message names."

    def __init__(self, extra: str, package: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'gal-learn[{extra}]'.")
        self.extra = extra


# Learning and predicting


class LocalModelError(GALError):
    """The local model of one organization failed; the others continue without it."""

    remedy = "Check the model with `gal.models.check_local_model`, and its columns for missing values."


class UnsupportedLocalLossError(LocalModelError):
    """A local model cannot minimize the requested local loss."""

    remedy = "Take another local loss, or another local model."


class ClusterError(LocalModelError):
    """The cluster that fits a local model cannot be reached, or was lost too often."""

    remedy = "Check the address of the cluster and its workers, then learn again."


class InvalidReplyError(GALError):
    """A reply cannot be used; its organization is left out of the round."""

    remedy = "Its operator checks the local model and the columns."


class NoReplyError(GALError):
    """An organization did not reply; the message has the reason."""

    remedy = "Its operator checks that its node runs; a longer `--deadline` helps a slow one."


class NoRepliesError(GALError):
    """No organization gave a usable reply in a round."""

    remedy = "Read why in the message; check that the nodes run, and repeat the command."


class NothingLearnedError(GALError):
    """Learning ended before its first round was finished."""

    remedy = "Learn again."


class StoredModelError(GALError):
    """A stored model cannot be read: altered, of another version, or with types that are not trusted."""

    remedy = "Name its types in `trusted=`, or learn again."


class ExperimentError(GALError):
    """A run of `gal bench` failed."""

    remedy = "Correct the row that the message names, and run it again."


# Privacy


class PrivacyError(GALError):
    """A privacy guarantee cannot be given as requested; nothing was sent."""

    remedy = "Change the mechanism or its options as the message says."


class BudgetSpentError(PrivacyError):
    """A message would cost more privacy than is left of the budget; nothing was sent."""

    remedy = "`gal privacy` shows what was spent. Take a larger epsilon budget in node.toml, or stop."


# Nodes and the network between them


class NodeError(GALError):
    """A node cannot do this now: it does not run, or a connection or the disk failed."""

    remedy = "`gal doctor` checks the node; `gal status` shows what it does."


class ConfigurationError(NodeError, InvalidInputError):
    """node.toml cannot be used; the message names file and line."""

    remedy = "Correct the line; `gal doctor` checks all of them."


class IdentityError(NodeError):
    """A key, certificate or card cannot be used, or is not known."""

    remedy = "`gal cards list` shows the known cards; `gal cards add` adds one."


class InvalidMessageError(NodeError):
    """A received message is not valid, and was not used; ``n_bytes`` of it came, where known."""

    remedy = "Its sender upgrades, or its operator reads the log of its node."

    def __init__(self, message: str, n_bytes: int = 0) -> None:
        super().__init__(message)
        self.n_bytes = n_bytes


class NoRoomError(InvalidMessageError):
    """There was no memory or disk space for a received message."""

    remedy = "Free memory or disk space, and repeat the command."


class RefusedError(NodeError):
    """The other side, or this organization's policy, refused; ``code`` is one word for programs."""

    remedy = "Read the code and the message; a limit is changed in node.toml, `[policy]`."

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NodeRunsError(NodeError):
    """Another process already runs this node."""

    remedy = "Use that one (`gal status`), or end it first."


class LinkLostError(NodeError):
    """The stream to a peer ended."""

    remedy = "The node dials again by itself; check the network if it does not."


class AlignmentError(NodeError, InvalidInputError):
    """The rows of two organizations cannot be aligned."""

    remedy = "Check row ids: their column, their type, missing and duplicate ones."


class TaskError(NodeError):
    """A task is unknown, or is in a state in which this cannot be done."""

    remedy = "`gal status` lists the tasks and their states."


class LearningInterruptedError(NodeError):
    """Learning was interrupted; what was done is stored."""

    exit_code = 130
    remedy = "The same `gal learn` resumes it; `--anew` gives it up."


class AuditError(NodeError):
    """The audit log was altered, or its head is not the expected one."""

    remedy = "Stop the node, keep its folder as evidence, and restore a backup into a new folder."


# Names in messages


def printable(text: str) -> str:
    """Text on one line, with control characters, also those of writing direction, escaped.

    >>> printable("a\\x1b[31m\\nb \\u202e")
    'a\\\\x1b[31m\\\\nb \\\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(map(_printable_character, text))


def _printable_character(one: str) -> str:
    if one.isprintable():
        return one
    return " " if unicodedata.category(one) == "Zs" else one.encode("unicode_escape").decode()


def suggestion(given: str, known: Iterable[str]) -> str:
    """For the end of a message: a similar known name; empty where none is similar.

    >>> suggestion("progresion", ["age", "progression"])
    " Did you mean 'progression'?"
    >>> suggestion("Y", ["x", "y"])
    " Did you mean 'y'?"
    """
    names = list(known)
    close = [one for one in names if one.lower() == given.lower()] or difflib.get_close_matches(
        given, names, 1
    )
    return f" Did you mean {close[0]!r}?" if close else ""
