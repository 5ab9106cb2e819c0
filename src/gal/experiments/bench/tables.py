"""Outcomes as tables: one figure per row, data set, number of organizations and protocol; CSV and Markdown.

A figure is a mean and a standard deviation over seeds (the population's, as the authors compute theirs).
The final model comes first; the best round on the test rows, which is what the paper prints, stands beside.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gal.experiments.bench.cells import Outcome
from gal.experiments.bench.runner import Run
from gal.experiments.bench.specs import Printed, RowSpec

MARKS = {"better": "▲", "worse": "▼", "": ""}
NAMES = {"mad": "MAD", "accuracy": "accuracy in %"}
FACTS = {
    "score": ("final model", "{}"),
    "accuracy": ("accuracy", "{:.2f} %"),
    "auc": ("AUC", "{:.4f}"),
    "log_loss": ("log loss", "{:.4f}"),
    "seconds": ("seconds", "{:.3g}"),
    "fit_seconds": ("seconds of all local fits", "{:.3g}"),
    "critical_seconds": ("seconds one after another", "{:.3g}"),
    "stored_bytes": ("local models stored", "{}"),
    "trips": ("round trips", "{:.0f}"),
    "sent": ("bytes to others", "{}"),
    "received": ("bytes from others", "{}"),
    "peak_memory": ("peak memory", "{}"),
}
"""What a fact is called, and how it is written."""
COLUMNS = (
    *("table", "row", "data set", "organizations", "protocol", "metric", "seeds"),
    *("final mean", "final std", "best on test mean", "best on test std", "paper mean", "paper std"),
    *("verdict", "final by seed", "chosen"),
)


@dataclass(frozen=True)
class Figure:
    """One cell of a table."""

    row: RowSpec
    dataset: str
    organizations: int | str
    protocol: str
    metric: str
    final: tuple[float, ...]
    best: tuple[float, ...]
    paper: Printed | None

    @property
    def mean(self) -> float:
        """Of the final models."""
        return float(np.mean(self.final))

    @property
    def std(self) -> float:
        """Of the final models."""
        return float(np.std(self.final))

    @property
    def compared(self) -> tuple[float, ...]:
        """What the paper's figure is held against: the same choice as theirs under their protocol, else ours."""
        return self.best if self.protocol == "paper" else self.final

    @property
    def verdict(self) -> str:
        """Whether we are better or worse than the paper by more than the larger standard deviation."""
        if self.paper is None:
            return ""
        ahead = float(np.mean(self.compared)) - self.paper.mean
        ahead = -ahead if self.metric == "mad" else ahead
        rounding = 0.05  # the paper prints one decimal
        limit = max(self.paper.std, float(np.std(self.compared))) + rounding
        return "better" if ahead > limit else "worse" if ahead < -limit else ""


def figures_of(run: Run) -> list[Figure]:
    """All figures of a table, row by row."""
    found = []
    for row in run.table.rows:
        for place in run.table.places(row):
            outcomes = run.at(row, *place)
            found.append(
                Figure(
                    row,
                    *place,
                    metric=outcomes[0].metric,
                    final=tuple(one.final for one in outcomes),
                    best=tuple(one.best for one in outcomes),
                    paper=row.printed(place[0], place[1]),
                )
            )
    return found


def to_csv(run: Run) -> str:
    """One line per figure, with everything."""
    out = io.StringIO()
    known = {name for row in run.table.rows for name in _facts_of(run, row)} - {"accuracy"}
    if run.table.organizations != ["by name"]:  # there processes do many runs: the peak is none of one run
        known -= {"peak_memory"}
    facts = sorted(known)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *facts])
    for one in figures_of(run):
        outcomes = run.at(one.row, one.dataset, one.organizations, one.protocol)
        numbers = _rounded(one.mean, one.std, np.mean(one.best), np.std(one.best))
        writer.writerow(
            [
                *(run.table.name, one.row.label, one.dataset, one.organizations, one.protocol, one.metric),
                *(len(one.final), *numbers),
                *(["", ""] if one.paper is None else [one.paper.mean, one.paper.std]),
                one.verdict,
                " ".join(f"{score:.6g}" for score in one.final),
                "; ".join(dict.fromkeys(found.chosen for found in outcomes if found.chosen)),
                *(_mean_fact(outcomes, name) for name in facts),
            ]
        )
    return out.getvalue()


def to_markdown(run: Run) -> str:
    """The table for people: one part per protocol and number of organizations."""
    parts = [f"# {run.table.title}"]
    if run.table.note:
        parts.append(run.table.note)
    body = _score_parts(run) if run.table.layout == "scores" else _fact_parts(run)
    return "\n\n".join([*parts, *body]) + "\n"


def legend(run: Run) -> str:
    """How to read the cells."""
    if run.table.layout == "facts":
        return "Means over the seeds; scores with their standard deviation where there are several seeds."
    cell = (
        "Each cell: the final model's mean (standard deviation) over the seeds; then the best round on the test rows "
        "(of the rounds that the model uses, and the constant before them), which no user could choose"
    )
    if not any(row.paper for row in run.table.rows):
        return f"{cell}."
    return (
        f"{cell}; then the paper's figure. "
        f"{MARKS['better']} better, {MARKS['worse']} worse than the paper by more than the larger of both standard "
        "deviations: the final model under the protocol *per seed*, the best round (what the paper prints) under *paper*."
    )


def _score_parts(run: Run) -> Iterator[str]:
    figures = figures_of(run)
    for protocol in run.table.protocols:
        for organizations in run.table.organizations:
            here = [one for one in figures if (one.protocol, one.organizations) == (protocol, organizations)]
            if here:
                sets = [name for name in run.table.sets if any(one.dataset == name for one in here)]
                yield f"## {who(organizations)}, protocol *{protocol}*"
                yield "\n".join(_score_lines(here, sets))


def who(organizations: int | str) -> str:
    words = {"most": "8 organizations (Iris: 4)", "by name": "organizations by name"}
    return words[organizations] if isinstance(organizations, str) else f"{organizations} organizations"


def _score_lines(figures: Sequence[Figure], sets: Sequence[str]) -> Iterator[str]:
    arrows = {one.dataset: "↓" if one.metric == "mad" else "↑" for one in figures}
    yield "| | " + " | ".join(f"{name} {arrows[name]}" for name in sets) + " |"
    yield "|---" * (len(sets) + 1) + "|"
    for row in dict.fromkeys(one.row.name for one in figures):
        by_set = {one.dataset: one for one in figures if one.row.name == row}
        label = next(iter(by_set.values())).row.label
        yield f"| {label} | " + " | ".join(_cell(by_set.get(name)) for name in sets) + " |"


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    digits = 2 if figure.metric == "mad" and figure.mean < 20 else 1
    lines = [f"**{_spread(figure.final, digits)}**", f"best {_spread(figure.best, digits)}"]
    if figure.paper is not None:
        lines.append(f"paper {figure.paper.mean} ({figure.paper.std}) {MARKS[figure.verdict]}".strip())
    return "<br>".join(lines)


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{np.mean(values):.{digits}f} ({np.std(values):.{digits}f})"


def _fact_parts(run: Run) -> Iterator[str]:
    names = run.table.facts
    for protocol in run.table.protocols:
        for organizations in run.table.organizations:
            yield f"## {who(organizations)}, protocol *{protocol}*"
            lines = ["| data set | | " + " | ".join(FACTS[name][0] for name in names) + " |"]
            lines.append("|---" * (len(names) + 2) + "|")
            for dataset in run.table.sets:
                for row in run.table.rows:
                    if (dataset, organizations, protocol) in run.table.places(row):
                        outcomes = run.at(row, dataset, organizations, protocol)
                        cells = [_fact_cell(outcomes, name) for name in names]
                        lines.append(f"| {dataset} | {row.label} | " + " | ".join(cells) + " |")
            yield "\n".join(lines)


def _fact_cell(outcomes: Sequence[Outcome], name: str) -> str:
    if name == "score":
        return f"{_spread([one.final for one in outcomes], 2)} {NAMES[outcomes[0].metric]}"
    values = [one.facts[name] for one in outcomes if name in one.facts]
    if not values:
        return ""
    mean = float(np.mean(values))
    if name.endswith("_bytes") or name in {"sent", "received", "peak_memory"}:
        return in_bytes(mean)
    spread = f" ({np.std(values):.2g})" if name in {"accuracy", "auc", "log_loss"} and len(values) > 1 else ""
    return FACTS[name][1].format(mean) + spread


def in_bytes(count: float) -> str:
    """Bytes in words.

    >>> in_bytes(19768.0)
    '19.8 kB'
    """
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _facts_of(run: Run, row: RowSpec) -> set[str]:
    return {
        name
        for place in run.table.places(row)
        for one in run.at(row, *place)
        for name in one.facts
        if name in FACTS
    }


def _mean_fact(outcomes: Sequence[Outcome], name: str) -> str:
    values = [one.facts[name] for one in outcomes if name in one.facts]
    return f"{np.mean(values):.6g}" if values else ""


def _rounded(*values: float | np.floating) -> list[float]:
    return [round(float(value), 6) for value in values]
