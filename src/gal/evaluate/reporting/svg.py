"""Charts as small SVG pictures inside a page; colours and text sizes come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import shorten, wrap

from gal.evaluate.reporting.charts import Chart, Curves, Dots, Trace, drawing_order
from gal.evaluate.wording import number

WIDTH, LEFT, RIGHT = 480, 58, 16
ROW = 38
"""Height of one name with its interval."""
PLOT = 260
"""Height of a chart of curves."""
LINE = 16
"""Height of every further line of a name that is long."""
NAME = 44
"""Characters of a name that fit in a line, on a telephone, too."""
AXIS = 64
"""Characters that fit below a picture; the caption above it has all of them."""


def svg_of(chart: Chart) -> str:
    """One <svg>, with a title and a description for who does not see it."""
    drawn, height = _dots(chart) if isinstance(chart, Dots) else _curves(chart)
    ids = f"{chart.key}-title {chart.key}-alt"
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{ids}" '
        f'xmlns="http://www.w3.org/2000/svg"><title id="{chart.key}-title">{escape(chart.title)}</title>'
        f'<desc id="{chart.key}-alt">{escape(chart.alt)}</desc>{drawn}</svg>'
    )


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def nice_ticks(low: float, high: float, most: int = 6, *, whole: bool = False) -> list[float]:
    """Round numbers that go from below the lowest to above the highest value.

    >>> nice_ticks(0.71, 0.93)
    [0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
    """
    if not high > low:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    rough = (high - low) / (most - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    steps = [one * size for one in (1, 2, 2.5, 5, 10, 20, 50) if not whole or (one * size) % 1 == 0]
    step = next((one for one in steps if _count(low, high, one) <= most), 1.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{k * step:.10g}") for k in range(first, last + 1)]


def _count(low: float, high: float, step: float) -> int:
    return math.ceil(high / step - 1e-9) - math.floor(low / step + 1e-9) + 1


def tick_words(ticks: Sequence[float]) -> list[str]:
    """Numbers at an axis, all with as many decimals.

    >>> tick_words([0.975, 0.98, 0.985]), tick_words([0, 500, 1000])
    (['0.975', '0.980', '0.985'], ['0', '500', '1,000'])
    """
    decimals = max(len(f"{tick:.10f}".rstrip("0").partition(".")[2]) for tick in ticks)
    plain = abs(max(ticks, key=abs)) < 1e12 and (decimals < 9 or not any(ticks))
    return [f"{tick:,.{decimals}f}" if plain else f"{tick:,.10g}" for tick in ticks]


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}"{named}{placed}>{escape(words)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{kind}"/>'


def name_lines(name: str, width: int) -> list[str]:
    """A name in lines of at most ``width`` characters, broken between words where that can be.

    >>> name_lines("only laboratory, insurer", 16)
    ['only laboratory,', 'insurer']
    """
    return wrap(name, width, break_on_hyphens=False) or [""]


def _dots(chart: Dots) -> tuple[str, int]:
    ends = [v for one in chart.dots for v in (one.value, one.low, one.high) if v is not None]
    ticks = nice_ticks(min([*ends, 0.0] if chart.zero else ends), max([*ends, 0.0] if chart.zero else ends))
    across = _Scale(ticks[0], ticks[-1], 22, WIDTH - 24)
    names = [name_lines(one.name, NAME) for one in chart.dots]
    bottom = sum(ROW + LINE * (len(lines) - 1) for lines in names) + 8
    parts = [_rule(across(tick), 4, across(tick), bottom, "grid") for tick in ticks]
    if ticks[0] < 0 < ticks[-1]:
        parts.append(_rule(across(0), 4, across(0), bottom, "zero"))
    y = 30 - ROW
    for lines, one in zip(names, chart.dots, strict=True):
        y += ROW
        parts.append(_text(WIDTH - 4, y - 12, number(one.value), "value", "end"))
        parts += [_text(4, y - 12 + LINE * place, line, "name") for place, line in enumerate(lines)]
        y += LINE * (len(lines) - 1)
        if one.low is not None and one.high is not None:
            parts.append(_rule(across(one.low), y, across(one.high), y, "reach"))
        parts.append(f'<circle cx="{across(one.value)}" cy="{y}" r="4.5" class="dot"/>')
    parts += [
        _text(across(tick), bottom + 15, words, "tick", "middle")
        for tick, words in zip(ticks, tick_words(ticks), strict=True)
    ]
    parts.append(_text(WIDTH / 2, bottom + 33, chart.axis, "axis", "middle"))
    noted = _noted(chart, ticks, WIDTH / 2, bottom + 33)
    return "".join([*parts, noted]), bottom + 42 + (LINE if noted else 0)


def _noted(chart: Chart, ticks: Sequence[float], x: float, y: float) -> str:
    """That an axis does not begin where one would expect it to, in a line below this place."""
    note = "" if chart.base is None else chart.base.note(ticks[0], ticks[-1])
    return _text(x, y + LINE, note, "axis", "middle") if note else ""


def _limits(chart: Curves) -> tuple[list[float], list[float]]:
    if chart.unit:
        return [0, 0.2, 0.4, 0.6, 0.8, 1], [0, 0.2, 0.4, 0.6, 0.8, 1]
    xs = [x for one in chart.traces for x, _ in one.points]
    ys = [y for one in chart.traces for _, y in one.points]
    ys += [end for one in chart.traces for pair in one.ranges for end in pair]
    return nice_ticks(min(xs), max(xs), whole=chart.whole), nice_ticks(min(ys), max(ys))


def _curves(chart: Curves) -> tuple[str, int]:
    x_ticks, y_ticks = _limits(chart)
    across = _Scale(x_ticks[0], x_ticks[-1], LEFT, WIDTH - RIGHT)
    up = _Scale(y_ticks[0], y_ticks[-1], PLOT + 8, 8)
    parts = [_rule(LEFT, up(tick), WIDTH - RIGHT, up(tick), "grid") for tick in y_ticks]
    parts += [
        _text(LEFT - 6, up(tick) + 4, words, "tick", "end")
        for tick, words in zip(y_ticks, tick_words(y_ticks), strict=True)
    ]
    parts += [
        _text(across(tick), PLOT + 24, words, "tick", "middle")
        for tick, words in zip(x_ticks, tick_words(x_ticks), strict=True)
    ]
    if chart.diagonal:
        low, high = max(x_ticks[0], y_ticks[0]), min(x_ticks[-1], y_ticks[-1])
        if low < high:
            parts.append(_rule(across(low), up(low), across(high), up(high), "zero"))
    for one in drawing_order(chart.traces):
        parts += _trace(one, across, up)
    across_words = shorten(chart.across, AXIS, placeholder=" …")
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(_text(middle, PLOT + 43, across_words, "axis", "middle"))
    noted = _noted(chart, y_ticks, middle, PLOT + 43)
    return "".join([*parts, noted]), PLOT + 52 + (LINE if noted else 0)


def _trace(one: Trace, across: _Scale, up: _Scale) -> list[str]:
    places = [(across(x), up(y)) for x, y in one.points]
    faint = " faint" if one.faint else ""
    dashed = " dashed" if one.dashed else ""
    kind = f"c{one.colour}{faint}"
    parts = [
        _rule(x, up(low), x, up(high), f"range {kind}")
        for (x, _), (low, high) in zip(places, one.ranges, strict=False)
    ]
    path = " ".join(f"{x},{y}" for x, y in places)
    parts.append(f'<polyline points="{path}" class="line {kind}{dashed}"/>')
    if one.marked:
        parts += [_marker(x, y, one.colour) for x, y in places]
    return parts


def _marker(x: float, y: float, colour: int) -> str:
    """Round for what matters, square for what it is compared with: not told by colour alone."""
    if colour == 0:
        return f'<circle cx="{x}" cy="{y}" r="3.6" class="mark c0"/>'
    return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" class="mark c{colour}"/>'


def legend_of(traces: Sequence[Trace]) -> str:
    """Names of lines, above the picture; nothing for a single line."""
    named = [one for one in traces if not one.faint]
    if len(named) < 2:
        return ""
    items = "".join(
        f'<li><svg viewBox="0 0 28 10" aria-hidden="true">'
        f'<line x1="1" y1="5" x2="27" y2="5" class="line c{one.colour}{" dashed" if one.dashed else ""}"/>'
        f"{_marker(14, 5, one.colour) if one.marked else ''}</svg>{escape(one.name)}</li>"
        for one in named
    )
    return f'<ul class="legend">{items}</ul>'


__all__ = ["legend_of", "name_lines", "nice_ticks", "svg_of", "tick_words"]
