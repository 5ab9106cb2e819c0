"""The table of privacy mechanisms, by their names in commands, files and invitations.

A new mechanism has a class in a file of its own in ``mechanisms/``, and a place in ``KINDS``. Commands,
nodes, the leak meter, rehearsals and the bench's tables read it from here.
"""

from __future__ import annotations

from typing import Any

from gal.errors import InvalidOptionError
from gal.privacy.mechanisms.contract import Mechanism
from gal.privacy.mechanisms.labels import GaussianLabels, LaplaceLabels, RandomisedResponse
from gal.privacy.mechanisms.paper import PaperInterval, PaperLaplace
from gal.privacy.noise import NoiseSource

KINDS: dict[str, type[Mechanism]] = {
    kind.name: kind
    for kind in (RandomisedResponse, LaplaceLabels, GaussianLabels, PaperLaplace, PaperInterval)
}
"""In the order in which they are listed and compared."""
NONE = "none"
"""Residuals are sent as they are."""
MEANING = {
    "epsilon": "epsilon, such as 1: how much may be learned of a label",
    "delta": "delta, such as 1e-6: the probability with which epsilon may not hold",
    "classes": "the public set of all classes that can occur",
    "lower": "a public lower bound of all labels that can occur",
    "upper": "a public upper bound of all labels that can occur",
}


def names() -> tuple[str, ...]:
    """All names, none first."""
    return (NONE, *KINDS)


def promised_names() -> tuple[str, ...]:
    """Names of what a task over nodes can have: whatever has a guarantee to promise."""
    return tuple(name for name, kind in KINDS.items() if kind.promise is not None)


def kind_named(name: str) -> type[Mechanism]:
    """The mechanism of this name; an error that lists all where there is none."""
    if name not in KINDS:
        there = "; ".join(f"{one} ({kind.words})" for one, kind in KINDS.items())
        raise InvalidOptionError(f"there is no privacy mechanism {name!r}. There are: none; {there}")
    return KINDS[name]


def mechanism_named(name: str, *, source: NoiseSource | None = None, **options: Any) -> Mechanism | None:
    """The mechanism of this name, or None for "none"; what it needs must be given,
    what it has no use for must not. ``options`` that are None are not given; classes may always be.

    >>> mechanism_named("randomised-response", epsilon=1.0, classes=["no", "yes"]).cost
    Cost(epsilon=1.0, delta=0.0)
    """
    kind = None if name == NONE else kind_named(name)
    given = {option: value for option, value in options.items() if value is not None}
    missing = [] if kind is None else [one for one in kind.options(needed=True) if one not in given]
    if missing:
        wanted = "; ".join(MEANING[option] for option in missing)
        raise InvalidOptionError(f"the privacy mechanism {name} needs {wanted}. Nothing was sent.")
    used = () if kind is None else kind.options()
    unused = [option for option in given if option not in used and option != "classes"]
    if unused:
        has = ", ".join(used) or "no options"
        raise InvalidOptionError(f"the privacy mechanism {name} has no {' or '.join(unused)}: it has {has}")
    if kind is None:
        return None
    chosen: dict[str, Any] = {option: value for option, value in given.items() if option in used}
    return kind(**chosen) if source is None or kind.promise is None else kind(**chosen, source=source)  # type: ignore[call-arg]
