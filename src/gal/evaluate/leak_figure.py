"""The picture of a comparison: how well rows are predicted, against how well labels can
be guessed from what was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gal.errors import InvalidOptionError
from gal.evaluate.drawing import (
    DOTTED,
    DPI,
    FAINT,
    GREY,
    LINES,
    SMALL,
    TEXT,
    new_figure,
    without_box,
)
from gal.evaluate.rehearsal import Rehearsal
from gal.privacy.registry import KINDS, NONE_MARK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def check_figure(path: Path) -> None:
    """An error where no such figure could be drawn: said before a comparison that takes minutes."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidOptionError(f"a figure's name must end in {', '.join(FORMATS)}, got {path.name!r}")
    if not path.absolute().parent.is_dir():
        raise InvalidOptionError(f"there is no folder {str(path.absolute().parent)!r} to put the figure in")
    new_figure(1.0)


def save_tradeoff(rehearsals: Sequence[Rehearsal], path: Path) -> Path:
    """Draw utility against leakage, one curve for each mechanism; the same rehearsals give the same bytes."""
    check_figure(path)
    figure = tradeoff(rehearsals)
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "gal"}):
        kind = path.suffix.lower()
        nothing = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[kind]
        figure.savefig(path, dpi=DPI, facecolor="white", metadata=nothing)
    return path


def tradeoff(rehearsals: Sequence[Rehearsal]) -> Figure:
    """Utility against leakage, one curve for each mechanism."""
    figure = new_figure(5.2)
    axes = figure.add_subplot()
    without_box(axes)
    first = rehearsals[0]
    _levels(axes, first)
    for family in dict.fromkeys(one.family for one in rehearsals):
        _curve(axes, family, [one for one in rehearsals if one.family == family])
    words = "R2" if first.metric == "r2" else "accuracy"
    axes.set_xlabel(
        "labels of canaries guessed right by the strongest attack (%), with 95 % intervals", fontsize=TEXT
    )
    axes.set_ylabel(f"{words} on rows that nobody learned from", fontsize=TEXT)
    axes.set_xlim(100 * first.leak.chance - 4, 103)
    axes.grid(color=FAINT)
    axes.legend(fontsize=SMALL, frameon=False, loc="best")
    return figure


def _levels(axes: Axes, one: Rehearsal) -> None:
    """What is had without any assistance and without any protection, and what a blind guess gets."""
    axes.axhline(
        float(np.mean(one.alone)), color=GREY, linestyle=DOTTED, linewidth=1.2, label="alone: nothing is sent"
    )
    axes.axvline(100 * one.leak.chance, color=FAINT, linewidth=3)
    axes.annotate(
        "blind guess",
        (100 * one.leak.chance, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(4, 0),
        textcoords="offset points",
        fontsize=SMALL,
        color=GREY,
    )


def _curve(axes: Axes, family: str, points: Sequence[Rehearsal]) -> None:
    mark = KINDS[family].mark if family in KINDS else NONE_MARK
    shares = [one.leak.worst.canaries for one in points]
    x = np.array([100 * share.value for share in shares])
    y = np.array([one.score for one in points])
    intervals = np.array([share.interval() for share in shares])
    reach = np.abs(100 * intervals.T - x)
    style: dict[str, Any] = {
        "color": mark.colour,
        "marker": mark.marker,
        "markerfacecolor": mark.colour if mark.filled else "white",
        "linestyle": LINES[mark.line],
        "markersize": 7,
        "linewidth": 1.8,
    }
    axes.errorbar(x, y, xerr=reach, ecolor=FAINT, elinewidth=2.5, label=family, zorder=3, **style)
    for one, left, height in zip(points, x, y, strict=True):
        if one.strength:
            axes.annotate(
                one.strength.replace("epsilon", "ε").replace("alpha", "α"),
                (left, height),
                xytext=(0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=SMALL - 1,
                color=mark.colour,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.4},
            )
