"""Which mechanisms ``gal leakage`` rehearses, at which strengths, and with which public facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.engine.labels import are_classes, named_classes
from gal.errors import InvalidLabelsError, InvalidOptionError
from gal.privacy.mechanisms.contract import KindOfLabels
from gal.privacy.registry import KINDS, NONE, mechanism_named

DELTA = 1e-6
"""Of Gaussian noise, where none is named."""


def chosen_mechanisms(
    privacy: list[str] | None, compare: bool, y: NDArray[Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Mechanisms by what they are called in tables: all that were named, at all epsilons."""
    classes = options.get("classes")
    if classes is None and are_classes(y):
        classes = np.unique(y).tolist()
    names = list(privacy or [])
    if compare:
        names += [name for name in (NONE, *_compared(classes is not None)) if name not in names]
    given = {option: value for option, value in options.items() if value is not None and option != "classes"}
    made: dict[str, Any] = {}
    for name in names or [NONE]:
        _check_suits(name, classes is not None)
        facts = _facts(name, y, classes, options)
        for strength, chosen in _strengths(name, given, len(names) > 1, facts):
            made[f"{name} {strength}".strip()] = mechanism_named(name, classes=classes, **chosen)
    _refuse_unused(names, given)
    return made


def _compared(classes: bool) -> list[str]:
    """What ``--compare`` compares, beside no mechanism at all."""
    labels: KindOfLabels = "classes" if classes else "numbers"
    return [name for name, kind in KINDS.items() if kind.suits(labels)]


def _taken(name: str) -> tuple[str, ...]:
    """Options that a mechanism of this name needs or may have."""
    return KINDS[name].options if name in KINDS else ()


def _check_suits(name: str, classes: bool) -> None:
    """Some mechanisms are for classes only, some for numbers only."""
    labels: KindOfLabels = "classes" if classes else "numbers"
    if name not in KINDS or KINDS[name].suits(labels):
        return
    fitting = " or ".join(one for one, kind in KINDS.items() if kind.make.suits == (labels,))
    if classes:
        raise InvalidOptionError(f"these labels are classes, {name} is for numbers: take {fitting}")
    raise InvalidOptionError(
        f"these labels are numbers: take {fitting}; if they are classes, name them with --classes"
    )


def _refuse_unused(names: list[str], given: dict[str, Any]) -> None:
    """Of several mechanisms each takes what it knows; what none of them knows was a mistake."""
    unused = [option for option in given if not any(option in _taken(name) for name in names)]
    if len(names) > 1 and unused:
        raise InvalidOptionError(f"none of the mechanisms {', '.join(names)} has {' or '.join(unused)}")


def _facts(
    name: str, y: NDArray[Any], classes: list[Any] | None, options: Mapping[str, Any]
) -> dict[str, float]:
    """Of numbers: the bounds that it takes, from the table where none are named, which a rehearsal may do."""
    if classes is not None or "lower" not in _taken(name):
        return {}
    lower, upper = options["lower"], options["upper"]
    found = (float(y.min()) if lower is None else lower, float(y.max()) if upper is None else upper)
    if upper is None and lower is not None and lower >= found[1]:
        raise InvalidOptionError(
            f"--lower {lower:g} is not below {found[1]:g}, the largest label of the table, which was taken "
            "as upper bound: "
            "name --upper too, or a smaller --lower"
        )
    if lower is None and upper is not None and upper <= found[0]:
        raise InvalidOptionError(
            f"--upper {upper:g} is not above {found[0]:g}, the smallest label of the table, which was taken "
            "as lower bound: "
            "name --lower too, or a larger --upper"
        )
    return {"lower": found[0], "upper": found[1]}


def notices(mechanisms: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """Sentences about what was taken from the table, because it was not
    named: a real task must not do that.
    """
    unnamed = [name for name in ("lower", "upper") if options[name] is None]
    taken = []
    for one in mechanisms.values():
        classes = getattr(one, "classes", None)
        if classes is not None and options.get("classes") is None:
            shown = ", ".join(map(str, classes[:10])) + (", ..." if len(classes) > 10 else "")
            taken.append((f"The classes {shown}", "--classes"))
        if hasattr(one, "lower"):
            taken += [(f"The {name} bound {getattr(one, name):g}", f"--{name}") for name in unnamed]
    return [
        f"{what} {'are' if what.startswith('The classes') else 'is'} the table's own: a real task needs "
        f"public ones ({option}), "
        "chosen without looking at the labels."
        for what, option in dict.fromkeys(taken)
    ]


def _strengths(
    name: str, options: dict[str, Any], several: bool, facts: dict[str, float]
) -> list[tuple[str, dict[str, Any]]]:
    """What the mechanism is given, once for each epsilon or alpha; of several
    mechanisms each takes what it knows.
    """
    kind = KINDS.get(name)
    given = options | facts
    epsilons = given.pop("epsilon", None) or ()
    if several:
        given = {option: value for option, value in given.items() if option in _taken(name)}
    if kind is None:
        return [("", given | ({"epsilon": epsilons[0]} if epsilons and not several else {}))]
    if "delta" in kind.needs:
        given.setdefault("delta", DELTA)
    if given.get("columns_epsilon") is not None:
        given.setdefault("columns_delta", DELTA)
    if "epsilon" in kind.needs:
        wanted = epsilons or (kind.strengths.get("epsilon", ()) if several else ())
        return [(f"epsilon {one:g}", given | {"epsilon": one}) for one in wanted] or [("", given)]
    if epsilons and not several:
        given["epsilon"] = epsilons[0]  # it has none, and says so
    for option, values in kind.strengths.items():
        if several and option not in given:
            return [(f"{option} {one:g}", given | {option: one}) for one in values]
    label = " ".join(f"{option} {given[option]:g}" for option in ("alpha", "intervals") if option in given)
    return [(label, given)]


def as_classes(y: NDArray[Any], classes: list[Any]) -> NDArray[Any]:
    """Labels (n,) as the named classes; an error where some are none of them."""
    found = named_classes(y, classes).tolist()
    others = [one for one in found if one not in classes]
    if others:
        raise InvalidLabelsError(
            f"{len(others)} of {len(y)} labels, such as {str(others[0])!r:.80}, are none of the classes "
            f"{', '.join(map(str, classes))!s:.200}: name all that can occur (--classes)"
        )
    return np.asarray(found)


__all__ = ["DELTA", "as_classes", "chosen_mechanisms", "notices"]
