"""Every error that GAL raises on purpose, in one tree.

::

    GALError
    ├── InvalidInputError (also ValueError)    what the caller passed in cannot be used
    │   ├── InvalidLabelsError                 labels: NaN, infinite, one class only, out of range
    │   ├── InvalidColumnsError                columns: unknown, empty, none given
    │   ├── InvalidOptionError                 an option has a value outside its range
    │   └── MissingDataError                   a file that an experiment reads is not there
    ├── LocalModelError                        one organization's local model failed
    │   └── UnsupportedLocalLossError          ... because it cannot minimise the local loss asked of it
    ├── InvalidReplyError                      an organization answered with something unusable
    ├── NobodyAnsweredError                    no organization gave a usable answer in a round
    ├── NothingLearnedError                    learning ended before its first round was finished
    ├── StoredModelError                       a saved model cannot be read
    ├── ExperimentError                        a run of a table failed
    └── MissingExtraError (also ImportError)   an optional dependency is not installed

A message names the organization, the round, what was expected, what came, and what to do.
"""

from __future__ import annotations


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


class InvalidReplyError(GALError):
    """An organization answered with something unusable; it is left out of the round."""


class NobodyAnsweredError(GALError):
    """No organization gave a usable answer in a round."""


class NothingLearnedError(GALError):
    """Learning ended before its first round was finished."""


class StoredModelError(GALError):
    """A saved model cannot be read."""


class MissingExtraError(GALError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, package: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'gal-learn[{extra}]'.")


class ExperimentError(GALError):
    """A run of a table failed; the message says which."""
