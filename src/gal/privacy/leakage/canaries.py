"""Canaries: rows whose labels are drawn by chance, so that whatever tells them was in a message."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidInputError, InvalidOptionError


class Canaries(NamedTuple):
    """Labels with canaries among them."""

    labels: NDArray[Any]
    """As given, but those of the canaries are drawn uniformly; shape (n,) or (n, K)."""
    mask: NDArray[np.bool_]
    """True at the canaries, (n,)."""


def plant_canaries(
    y: Any,
    rng: np.random.Generator,
    *,
    fraction: float = 0.1,
    count: int | None = None,
    rows: Any = None,
    classes: Any = None,
    lower: float | None = None,
    upper: float | None = None,
) -> Canaries:
    """Draw the labels of some rows uniformly from the public ``classes``, or from the
    bounds ``lower`` and ``upper``.

    A canary's label has nothing to do with its features, so no attacker can know it but from a message.
    Numbers are drawn from the two bounds only, which makes of them a guess between two. Canaries are a
    ``fraction`` of the rows, or ``count`` of them, or drawn from the given ``rows``.

    >>> labels, mask = plant_canaries(["no"] * 10, np.random.default_rng(1), count=4, classes=["no", "yes"])
    >>> int(mask.sum()), int((labels == "yes").sum())
    (4, 2)
    """
    given = np.asarray(y)
    allowed = np.arange(len(given)) if rows is None else np.asarray(rows, dtype=np.intp)
    wanted = round(fraction * len(allowed)) if count is None else count
    if not 1 <= wanted <= len(allowed):
        raise InvalidOptionError(
            f"{wanted} canaries among {len(allowed)} rows: plant at least one, and no more than rows"
        )
    values = _values(given, classes, lower, upper)
    mask = np.zeros(len(given), dtype=np.bool_)
    mask[rng.choice(allowed, size=wanted, replace=False)] = True
    labels = given.astype(np.result_type(given, values) if given.dtype.kind != "O" else object)
    drawn = values[rng.integers(0, len(values), wanted)]
    labels[mask] = drawn if given.ndim == 1 else drawn[:, None]
    return Canaries(labels, mask)


def _values(given: NDArray[Any], classes: Any, lower: float | None, upper: float | None) -> NDArray[Any]:
    """What canaries' labels are drawn from."""
    if classes is not None:
        values = np.asarray(classes)
        if len(np.unique(values)) < 2:
            raise InvalidOptionError(
                f"canaries need at least two public classes, got {values.tolist()!r:.200}"
            )
        return values
    if lower is None or upper is None or not lower < upper:
        raise InvalidOptionError(
            "canaries need the public classes, or for numbers the public bounds lower < upper, got "
            f"{lower!r} and {upper!r}"
        )
    if given.dtype.kind not in "iuf":
        raise InvalidInputError("bounds are for labels that are numbers: pass the public classes of these")
    return np.array([lower, upper], dtype=np.float64)
