"""The one table of privacy mechanisms: by the names that people write in commands, files and invitations.

A new mechanism has a class and a `MechanismKind` in a file of its own in ``mechanisms/``, and a line in
``KINDS``. The command line, nodes and their invitations, the leak meter, rehearsals, pictures and the
bench's tables read it from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gal.errors import InvalidOptionError
from gal.privacy.mechanisms import labels, paper
from gal.privacy.mechanisms.contract import Mark, Mechanism, MechanismKind
from gal.privacy.noise import NoiseSource

KINDS: dict[str, MechanismKind] = {
    kind.name: kind
    for kind in (
        labels.RESPONSE,
        labels.LAPLACE,
        labels.GAUSSIAN,
        paper.LAPLACE,
        paper.INTERVAL,
    )
}
"""In the order in which they are listed and compared."""

NONE = "none"
"""Residuals are sent as they are."""
NONE_CAPTION, NONE_MARK = "no mechanism", Mark("#000000", "X")

MEANING = {
    "epsilon": "epsilon, such as 1: how much may be learned of a label",
    "delta": "delta, such as 1e-6: the probability with which epsilon may not hold",
    "classes": "the public set of all classes that can occur",
    "lower": "a public lower bound of all labels that can occur",
    "upper": "a public upper bound of all labels that can occur",
}

ALWAYS_WELCOME = {"classes"}
"""Whoever knows the classes may say them, also where a mechanism has no use for them."""


def names() -> tuple[str, ...]:
    """All names, none first."""
    return (NONE, *KINDS)


def promised_names() -> tuple[str, ...]:
    """Names of what a task over nodes can have: whatever has a guarantee to promise."""
    return tuple(name for name, kind in KINDS.items() if kind.promise is not None)


def kind_named(name: str) -> MechanismKind:
    """What is known of the mechanism of this name; an error that lists all where there is none."""
    if name not in KINDS:
        there = "; ".join(f"{one} ({kind.words})" for one, kind in KINDS.items())
        raise InvalidOptionError(f"there is no privacy mechanism {name!r}. There are: none; {there}")
    return KINDS[name]


def class_names() -> str:
    """The classes of all mechanisms, for those who pass one to an estimator."""
    return ", ".join(kind.make.__name__ for kind in KINDS.values())


def mechanism_named(name: str, *, source: NoiseSource | None = None, **options: Any) -> Mechanism | None:
    """The mechanism of this name, or None for "none"; what it needs must be given,
    what it has no use for must not. ``options`` that are None are not given.

    >>> mechanism_named("randomised-response", epsilon=1.0, classes=["no", "yes"]).cost
    Cost(epsilon=1.0, delta=0.0)
    """
    given = {option: value for option, value in options.items() if value is not None}
    if name == NONE:
        _refuse_unused(name, given, ())
        return None
    kind = kind_named(name)
    missing = [option for option in kind.needs if option not in given]
    if missing:
        wanted = "; ".join(MEANING[option] for option in missing)
        raise InvalidOptionError(f"the privacy mechanism {name} needs {wanted}. Nothing was sent.")
    _refuse_unused(name, given, kind.options)
    chosen: dict[str, Any] = {option: value for option, value in given.items() if option in kind.options}
    if kind.promise is not None and source is not None:
        chosen["source"] = source
    return kind.make(**chosen)


def _refuse_unused(name: str, given: dict[str, Any], used: Sequence[str]) -> None:
    unused = [option for option in given if option not in used and option not in ALWAYS_WELCOME]
    if unused:
        has = ", ".join(used) or "no options"
        raise InvalidOptionError(f"the privacy mechanism {name} has no {' or '.join(unused)}: it has {has}")
