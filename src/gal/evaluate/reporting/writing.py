"""A report as one HTML file, without scripts or network access."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from gal.errors import InvalidInputError, InvalidOptionError, printable
from gal.evaluate.reporting.facts import Cells, Level, ReportFacts, number, some
from gal.evaluate.reporting.simulated import facts_of_simulation
from gal.evaluate.simulation import Simulation

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""A browser loads nothing for this page, and runs nothing in it."""

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--soft:#f4f5f7;--edge:#d9dce1;--ink:#1b1f24;--dim:#5a626d;
--bar:#1f5fa8;--good:#1f7a45;--bad:#b3261e;--open:#8a6100}
@media screen and (prefers-color-scheme:dark){:root{--paper:#14171b;--soft:#1d2126;--edge:#363c45;
--ink:#e8eaed;--dim:#a3abb6;--bar:#7cb3f2;--good:#74cf98;--bad:#f2938c;--open:#e3b95a}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif;
overflow-wrap:anywhere}
main{max-width:48rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.7rem;line-height:1.25;margin:0}
h2{font-size:1.2rem;margin:2.6rem 0 .5rem;padding-top:.9rem;border-top:1px solid var(--edge)}
.answer{font-size:1.15rem;border-left:5px solid var(--open);background:var(--soft);padding:.9rem 1.1rem}
.answer.helps{border-color:var(--good)}.answer.hurts{border-color:var(--bad)}
.remarks{border:1px solid var(--open);padding:.6rem 1.1rem;font-size:.95rem}
.remarks h2{font-size:1rem;margin:0;padding:0;border:0}
.scroll{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;font-size:.9rem;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--edge);vertical-align:top;
min-width:4rem}
thead th{color:var(--dim)}tbody th{font-weight:600}
.scale{display:flex;justify-content:space-between}.scale b{font-weight:400}
.bar{position:relative;display:block;min-width:8rem;height:1.3rem}
.bar i,.bar b,.bar u{position:absolute;top:.4rem;height:.55rem;background:var(--bar)}
.bar i{opacity:.35;border-radius:.3rem}.bar b{width:.55rem;margin-left:-.27rem;border-radius:50%}
.bar u{top:0;height:1.3rem;width:1px;background:var(--dim)}
footer{margin-top:3rem;color:var(--dim);font-size:.85rem}
@media print{@page{margin:16mm}body{font-size:10.5pt}main{max-width:none;padding:0}tr{break-inside:avoid}
*{print-color-adjust:exact}}
"""


def report(found: Simulation, path: str | Path) -> Path:
    """Write one HTML file about a simulation.

    Parameters
    ----------
    found: the result of `simulate`.
    path: the file to write; it must end in ``.html``.

    Returns
    -------
    The path of the file.
    """
    if not isinstance(found, Simulation):
        raise InvalidInputError(f"a report is about a simulation, not about a {type(found).__name__}")
    check_report(Path(path))
    return write_report(facts_of_simulation(found), Path(path))


def check_report(path: Path) -> None:
    """An error where a report cannot be written; called before the computation."""
    if path.suffix.lower() not in {".html", ".htm"}:
        raise InvalidOptionError(f"a report's name must end in .html, got {str(path)!r}")
    if not path.absolute().parent.is_dir():
        raise InvalidOptionError(
            f"there is no folder {str(path.absolute().parent)!r} for the report: make it"
        )


def write_report(facts: ReportFacts, path: Path) -> Path:
    """Write the page."""
    try:
        path.write_text(page_of(facts, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"), encoding="utf-8")
    except OSError as error:
        raise InvalidOptionError(
            f"the report cannot be written to {str(path)!r}: {error.strerror}; name another file"
        ) from error
    return path


def page_of(facts: ReportFacts, written: str) -> str:
    """The whole file; ``written`` is the time."""
    sections = "".join(
        f"<section><h2>{_html(title)}</h2>"
        + "".join(_cells(one) if isinstance(one, Cells) else f"<p>{_html(one)}</p>" for one in parts)
        + "</section>\n"
        for title, parts in facts.sections.items()
        if parts
    )
    more = "".join(f"<p>{_html(one)}</p>" for one in facts.more)
    kept = "No row of any table is in this file; names are, and examples of values where columns are listed."
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_html(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_html(facts.title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        f"<header><h1>{_html(facts.question)}</h1></header>"
        f'<p class="answer {facts.verdict}">{_html(facts.answer)}</p>{_remarks(facts)}{more}\n{sections}'
        f"<footer><p>{_html(f'Written by gal-learn, {written}. {kept}')}</p></footer>\n"
        "</main></body></html>\n"
    )


def _remarks(facts: ReportFacts) -> str:
    """Problems of the table, beside the answer that depends on it."""
    if not facts.remarks:
        return ""
    items = "".join(
        f"<li><strong>{_html(one.kind)}</strong>: "
        f"{_html(f'{some(one.columns, 6)}: ' if one.columns else '')}{_html(one.words)}</li>"
        for one in facts.remarks
    )
    return f'<div class="remarks"><h2>Look at the table first</h2><ul>{items}</ul></div>'


def _cells(cells: Cells) -> str:
    """A table; with levels, each row ends with its bar."""
    scale, bars = _bars(cells.levels, zero=cells.zero) if cells.levels else ("", [""] * len(cells.rows))
    head = "".join(f'<th scope="col">{_html(one)}</th>' for one in cells.header)
    head += f'<th scope="col" aria-hidden="true">{scale}</th>' if cells.levels else ""
    rows = "".join(
        f'<tr><th scope="row">{_html(row[0])}</th>'
        + "".join(f"<td>{_html(one)}</td>" for one in row[1:])
        + f"{bar}</tr>"
        for row, bar in zip(cells.rows, bars, strict=True)
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _bars(levels: Sequence[Level], *, zero: bool) -> tuple[str, list[str]]:
    """The ends of the scale, and by row a dot at the value and a bar over its interval."""
    ends = [end for one in levels for end in (one.value, one.low, one.high) if end is not None]
    low, high = min([*ends, 0.0] if zero else ends), max([*ends, 0.0] if zero else ends)
    wide = (high - low) or 1.0

    def place(value: float) -> float:
        return round(3 + 94 * (value - low) / wide, 1)

    found = []
    for one in levels:
        parts = f'<b style="left:{place(one.value)}%"></b>'
        if one.low is not None and one.high is not None:
            reach = round(place(one.high) - place(one.low), 1)
            parts = f'<i style="left:{place(one.low)}%;width:{reach}%"></i>{parts}'
        if zero:
            parts = f'<u style="left:{place(0.0)}%"></u>{parts}'
        found.append(f'<td aria-hidden="true"><span class="bar">{parts}</span></td>')
    return f'<span class="scale"><b>{number(low)}</b> <b>{number(high)}</b></span>', found


def _html(words: str) -> str:
    """Text for HTML: no character of it is markup or a control character."""
    return escape(printable(words))
