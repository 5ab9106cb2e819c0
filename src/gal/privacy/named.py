"""Mechanisms by name, as people write them in commands and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gal.errors import InvalidOptionError
from gal.privacy.labels import GaussianLabels, LaplaceLabels, RandomisedResponse
from gal.privacy.noise import NoiseSource
from gal.privacy.paper import PaperInterval, PaperLaplace
from gal.privacy.protection import Privacy
from gal.privacy.residuals import GaussianResiduals, LaplaceResiduals

NONE = "none"


@dataclass(frozen=True)
class Kind:
    """What a mechanism of this name needs, may have, and is for."""

    make: Any
    needs: tuple[str, ...]
    may_have: tuple[str, ...]
    words: str


KINDS = {
    "randomised-response": Kind(
        RandomisedResponse, ("epsilon", "classes"), (), "class labels, once, with a guarantee"
    ),
    "laplace-labels": Kind(
        LaplaceLabels, ("epsilon", "lower", "upper"), (), "numbers as labels, once, with a guarantee"
    ),
    "gaussian-labels": Kind(
        GaussianLabels,
        ("epsilon", "delta", "lower", "upper"),
        (),
        "numbers as labels, once, with a guarantee",
    ),
    "laplace-residuals": Kind(
        LaplaceResiduals,
        ("epsilon",),
        ("delta", "clip", "classes"),
        "every residual, all rounds together, with a guarantee",
    ),
    "gaussian-residuals": Kind(
        GaussianResiduals,
        ("epsilon", "delta"),
        ("clip", "classes"),
        "every residual, all rounds together, with a guarantee",
    ),
    "paper-laplace": Kind(PaperLaplace, (), ("alpha",), "the paper's, without a guarantee"),
    "paper-interval": Kind(PaperInterval, (), ("intervals",), "the paper's, without a guarantee"),
}

NAMES = (NONE, *KINDS)

MEANING = {
    "epsilon": "epsilon, such as 1: how much may be learned of a label",
    "delta": "delta, such as 1e-6: the probability with which epsilon may not hold",
    "classes": "the public set of all classes that can occur",
    "lower": "a public lower bound of all labels that can occur",
    "upper": "a public upper bound of all labels that can occur",
}

ALWAYS_WELCOME = {"classes"}
"""Whoever knows the classes may say them, also where a mechanism has no use for them."""


def mechanism_named(
    name: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    lower: float | None = None,
    upper: float | None = None,
    clip: float | None = None,
    classes: Sequence[Any] | None = None,
    alpha: float | None = None,
    intervals: int | None = None,
    source: NoiseSource | None = None,
) -> Privacy | None:
    """The mechanism of this name, or None for "none"; what it needs must be given, what it has no use for must not.

    >>> mechanism_named("randomised-response", epsilon=1.0, classes=["no", "yes"]).cost
    Cost(epsilon=1.0, delta=0.0)
    """
    values = {
        "epsilon": epsilon,
        "delta": delta,
        "lower": lower,
        "upper": upper,
        "clip": clip,
        "classes": classes,
        "alpha": alpha,
        "intervals": intervals,
    }
    given = {option: value for option, value in values.items() if value is not None}
    if name == NONE:
        _refuse_unused(name, given, ())
        return None
    if name not in KINDS:
        there = "; ".join(f"{one} ({kind.words})" for one, kind in KINDS.items())
        raise InvalidOptionError(f"there is no privacy mechanism {name!r}. There are: none; {there}")
    kind = KINDS[name]
    missing = [option for option in kind.needs if option not in given]
    if missing:
        wanted = "; ".join(MEANING[option] for option in missing)
        raise InvalidOptionError(f"the privacy mechanism {name} needs {wanted}. Nothing was sent.")
    used = (*kind.needs, *kind.may_have)
    _refuse_unused(name, given, used)
    chosen: dict[str, Any] = {option: value for option, value in given.items() if option in used}
    if "epsilon" in kind.needs and source is not None:
        chosen["source"] = source
    made: Privacy = kind.make(**chosen)
    return made


def _refuse_unused(name: str, given: dict[str, Any], used: Sequence[str]) -> None:
    unused = [option for option in given if option not in used and option not in ALWAYS_WELCOME]
    if unused:
        has = ", ".join(used) or "no options"
        raise InvalidOptionError(f"the privacy mechanism {name} has no {' or '.join(unused)}: it has {has}")
