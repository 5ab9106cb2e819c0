"""What all pictures share: size, greys, an empty figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.isotonic import isotonic_regression

from gal.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.6
"""Inches, of every figure; with ``DPI`` 1152 pixels, made to be read at 800."""
DPI = 120
TEXT, SMALL = 10.5, 9.0
DARK, GREY, LIGHT, FAINT = "#000000", "#6e6e6e", "#b5b5b5", "#ececec"
DASHED, DOTTED, DASH_DOT = (0, (5, 2)), (0, (1, 1.6)), (0, (6, 2, 1, 2))
LINES: dict[str, Any] = {"solid": "-", "dashed": DASHED, "dash-dot": DASH_DOT, "none": ""}
"""By the words of a mechanism's mark."""


def new_figure(height: float) -> Figure:
    """An empty figure of the common width."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("figures", "matplotlib", "drawing figures") from error
    return Figure(figsize=(WIDTH, height), layout="constrained")


def without_box(axes: Axes) -> None:
    """No box around it."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL + 0.5)
    axes.set_axisbelow(True)


def spread_heights(heights: Sequence[float], gap: float, bottom: float, top: float) -> list[float]:
    """The nearest heights in the same order of which no two are closer than ``gap``, within the limits.

    >>> spread_heights([0.5, 0.5, 0.9], 0.25, 0.0, 1.0)
    [0.375, 0.625, 0.9]
    """
    if not heights:
        return []
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(order))
    spread = isotonic_regression(np.asarray(heights, dtype=np.float64)[order] - steps)
    placed = np.empty(len(order))
    placed[order] = np.clip(spread, bottom, max(top - gap * (len(order) - 1), bottom)) + steps
    return [round(float(value), 12) for value in placed]
