"""A report as one HTML file: no script, nothing from a network, every name escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape

from gal.evaluate.reporting.charts import Chart, Curves, charts_of
from gal.evaluate.reporting.facts import Cells, ReportFacts
from gal.evaluate.reporting.style import STYLE
from gal.evaluate.reporting.svg import legend_of, svg_of

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may load for this page: nothing; and it runs nothing."""


WORD = 20
"""Letters of a word that a column of a table always has room for."""
SIZE = re.compile(r"(?<=\d) (?=[kMGT]?B\b)")
"""The blank before a unit, at which no line breaks."""
PIECES = re.compile(rf".{{1,{WORD}}}(?<=[_./-])|.{{1,{WORD}}}", re.DOTALL)
"""Pieces of a longer word, best ending where a part of it ends."""


def page_of(facts: ReportFacts, written: str, *, for_machines: bool = True) -> str:
    """The whole file; ``written`` says when, ``for_machines`` adds what ``--json`` prints."""
    charts = charts_of(facts)
    kept = "No row of any table is in this file" + (
        "." if facts.columns is None else ", but examples of values are."
    )
    sections = [
        _section("How well", *([_figure(charts, "scores"), _p(facts.judged, "dim")] if facts.levels else [])),
        _section("Who brings what", *_partners(facts, charts)),
        _section("Learning, round by round", *_learning(facts, charts)),
        _section("How predictions fit the truth", *_quality(facts, charts)),
        _section(facts.left_title, *_left(facts)),
        _section("Privacy: what others could learn", *_privacy(facts)),
        _section("What was in the table", *_table(facts)),
        _section("How the columns were read", "" if facts.columns is None else _cells(facts.columns)),
        _section("Versions", "" if facts.versions is None else _cells(facts.versions)),
        _section("How it was computed", _computed(facts)),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(facts.title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        f"{_head(facts)}\n{''.join(sections)}"
        f"<footer>{_p(f'Written by gal-learn, {written}. {kept}')}</footer>\n"
        f"</main>{_for_machines(facts.plain) if for_machines else ''}</body></html>\n"
    )


def _head(facts: ReportFacts) -> str:
    answer = f'<p class="answer {facts.verdict}">{escape(facts.answer)}</p>'
    more = "".join(map(_p, facts.more))
    return f"<header><h1>{escape(facts.question)}</h1></header>{answer}{_remarks(facts)}{more}"


def _remarks(facts: ReportFacts) -> str:
    """What is wrong with the table, beside the answer that depends on it."""
    if not facts.remarks:
        return ""
    items = "".join(
        f"<li><strong>{escape(one.kind)}</strong>: {escape(_named(one.columns))}{escape(one.words)}</li>"
        for one in facts.remarks
    )
    return f'<div class="remarks"><h2>Look at the table first</h2><ul>{items}</ul></div>'


def _for_machines(plain: Mapping[str, object]) -> str:
    """The facts that ``--json`` prints; data that no browser runs, and that cannot end its element."""
    text = json.dumps(plain, default=str, allow_nan=True)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="facts">{text}</script>'


def _section(title: str, *parts: str) -> str:
    """Nothing where there is nothing to say."""
    body = "".join(parts)
    return f"<section><h2>{escape(title)}</h2>{body}</section>\n" if body else ""


def _p(words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f"<p{named}>{escape(words)}</p>" if words else ""


def _figure(charts: Mapping[str, Chart], key: str, *, title: bool = False) -> str:
    """A picture with its table behind a summary; nothing where there is no such chart."""
    chart = charts.get(key)
    if chart is None:
        return ""
    above = f"<h3>{escape(chart.title)}</h3>" if title else ""
    legend, label = "", ""
    if isinstance(chart, Curves):
        legend = legend_of(chart.traces)
        label = f"<figcaption>{escape(chart.up)}, by {escape(chart.across)}</figcaption>"
    table = f"<details><summary>The same as a table</summary>{_cells(chart.cells, numbers=True)}</details>"
    return f"{above}<figure>{label}{legend}{svg_of(chart)}{table}</figure>"


def _cells(cells: Cells, *, numbers: bool = False) -> str:
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in cells.header)
    rows = "".join(
        f'<tr><th scope="row">{_breakable(row[0])}</th>'
        + "".join(f"<td>{_breakable(one)}</td>" for one in row[1:])
        + "</tr>"
        for row in cells.rows
    )
    kind = ' class="numbers"' if numbers else ""
    return (
        f'<div class="scroll"><table{kind}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _breakable(words: str) -> str:
    """Escaped, with places where a browser may break words that are too long for a column."""
    return "".join(
        "<wbr>".join(map(escape, PIECES.findall(one))) if len(one) > WORD else escape(one)
        for one in re.split(r"(\s+)", SIZE.sub("\N{NO-BREAK SPACE}", words))
    )


def _partners(facts: ReportFacts, charts: Mapping[str, Chart]) -> list[str]:
    found = facts.contributions
    if found is None or not found.by_organization:
        return []
    if all(one.value == one.low == one.high == 0 for one in found.by_organization.values()):
        return [_p("No organization helped as far as these rows can tell: the others add nothing.")]
    if facts.verdict == "nothing":
        return [
            _p(
                "No organization adds anything that can be told from chance: these differences may be chance."
            ),
            _figure(charts, "contributions"),
        ]
    rows = {"validation": "validation rows", "training": "training rows, where noise has one, too"}
    return [
        _p(
            "Contributions: what the others add to the label holder's own part, with 95 % intervals, on "
            f"{found.n_rows:,} rows ({rows.get(found.rows, found.rows)})."
        ),
        _figure(charts, "contributions", title=True),
    ]


def _learning(facts: ReportFacts, charts: Mapping[str, Chart]) -> list[str]:
    if "rounds" not in charts:
        return []
    used, rounds = [one.used for one in facts.curves], len(facts.curves[0].train) - 1
    validated = facts.curves[0].validation[0] is not None
    best = (", the best validated ones" if used[0] < rounds else "") if validated else ": nothing validates"
    said = (
        f"{used[0]} of {rounds} rounds are used{best}."
        if len(used) == 1
        else f"Rounds that are used, by part of the cross-validation: {', '.join(map(str, used))}. "
        "Thin lines are the parts, thick ones their mean over the rounds that all of them had."
    )
    return [_figure(charts, "rounds"), _p(said, "dim")]


def _quality(facts: ReportFacts, charts: Mapping[str, Chart]) -> list[str]:
    if facts.quality is None:
        return []
    said = {
        "two classes": "On the dotted line a probability means what it says. Bars are 95 % intervals.",
        "classes": "On the dotted line the model is as often right as it is sure. Bars are 95 % intervals.",
        "numbers": "On the dotted line predictions are right on average. Bars hold the middle 80 % of rows.",
    }[facts.quality.kind]
    return [
        _p(f"{facts.quality.rows:,} rows that were not fitted, in groups with similar predictions.", "dim"),
        _figure(charts, "roc", title=True),
        _p("The dotted line of the ROC curve is chance.", "dim") if "roc" in charts else "",
        _figure(charts, "calibration", title=True),
        _p(said, "dim"),
        _figure(charts, "classes", title=True),
    ]


def _left(facts: ReportFacts) -> list[str]:
    table = "" if facts.left is None else _cells(facts.left)
    return [*map(_p, facts.left_words), table]


def _privacy(facts: ReportFacts) -> list[str]:
    return [*map(_p, facts.privacy), "" if facts.leak is None else _cells(facts.leak)]


def _table(facts: ReportFacts) -> list[str]:
    parts = ["" if facts.table is None else _cells(facts.table)]
    if facts.remarked and not facts.remarks:
        parts.append(
            _p(
                "Nothing stands out: no constant, empty or id-like column, no dates that cannot be read, no "
                "rare class."
            )
        )
    return parts


def _named(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - 6} more" if len(columns) > 6 else ""
    return f"{', '.join(columns[:6])}{more}: " if columns else ""


def _computed(facts: ReportFacts) -> str:
    if not facts.computed:
        return ""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.computed)
    return f"<dl>{items}</dl>"


__all__ = ["page_of"]
