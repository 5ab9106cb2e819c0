"""What all pictures share: size, greys, an empty figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
