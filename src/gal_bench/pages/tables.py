"""Outcomes as tables: one figure per row, data set, number of organizations and protocol; CSV and Markdown.

A figure is a mean and a standard deviation over seeds (the population's, as the authors compute theirs).
The final model comes first; the best round on the test rows, which is what the paper prints, stands beside.
What was not run is a figure without values: it says so in Markdown, and is empty in CSV.
"""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gal_bench.cells import DEEP_SETS, OFFICIAL, Outcome
from gal_bench.pages import leaks
from gal_bench.pages.leaks import Leak, leak_of
from gal_bench.runner import Run
from gal_bench.specs import Printed, RowSpec

MARKS = {"better": "▲", "worse": "▼", "": ""}
NAMES = {"mad": "MAD", "accuracy": "accuracy in %", "auc": "AUC"}
NOT_RUN = "not run"
FACTS = {
    "score": ("final model", "{}"),
    "accuracy": ("accuracy", "{:.2f} %"),
    "auc": ("AUC", "{:.4f}"),
    "log_loss": ("log loss", "{:.4f}"),
    "seconds": ("seconds", "{:.3g}"),
    "fit_seconds": ("seconds of all local fits", "{:.3g}"),
    "critical_seconds": ("seconds one after another", "{:.3g}"),
    "label_holder_seconds": ("seconds of the label holder", "{:.3g}"),
    "prediction_seconds": ("seconds of prediction", "{:.3g}"),
    "stored_bytes": ("local models stored", "{}"),
    "trips": ("round trips", "{:.0f}"),
    "sent": ("bytes to others", "{}"),
    "received": ("bytes from others", "{}"),
    "revisit_bytes": ("bytes of the last pass", "{}"),
    "peak_memory": ("peak memory", "{}"),
    "peak_device_memory": ("peak memory of the device", "{}"),
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
    seeds: int = 0
    """So many were to be run; where there are fewer values, some were not."""
    leak: Leak | None = None
    """What the leak meter found, where it was asked."""

    @property
    def place(self) -> tuple[str, int | str, str]:
        """Data set, organizations and protocol."""
        return self.dataset, self.organizations, self.protocol

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
        """What the paper's figure is held against: the same choice as theirs
        where we do as they did, else ours.
        """
        as_they_did = self.protocol == "paper" or self.row.options.get("preset") == "paper"
        return self.best if as_they_did else self.final

    @property
    def verdict(self) -> str:
        """Whether we are better or worse than the paper by more than the larger standard deviation."""
        if self.paper is None or not self.final:
            return ""
        ahead = float(np.mean(self.compared)) - self.paper.mean
        ahead = -ahead if self.metric == "mad" else ahead
        rounding = 0.005 if self.metric == "auc" else 0.05  # of the decimals that the paper prints
        limit = max(self.paper.std, float(np.std(self.compared))) + rounding
        return "better" if ahead > limit else "worse" if ahead < -limit else ""


def ahead(one: Figure, other: Figure) -> float:
    """How much better the one's final models are, whichever way is better."""
    return other.mean - one.mean if one.metric == "mad" else one.mean - other.mean


def figures_of(run: Run) -> list[Figure]:
    """All figures of a table that were run, row by row."""
    return [figure for figure in every_figure(run) if figure.final]


def every_figure(run: Run) -> list[Figure]:
    """The same, and those that were not run, which have no values."""
    found = []
    for row in run.table.rows:
        for place in run.table.places(row):
            outcomes = run.at(row, *place)
            found.append(
                Figure(
                    row,
                    *place,
                    metric=outcomes[0].metric if outcomes else DEEP_SETS.get(place[0], ""),
                    final=tuple(one.final for one in outcomes),
                    best=tuple(one.best for one in outcomes),
                    paper=row.printed(place[0], place[1]),
                    seeds=run.table.seeds_at(row, place[0], place[1]),
                    leak=leak_of(outcomes),
                )
            )
    return found


def to_csv(run: Run) -> str:
    """One line per figure, with everything."""
    out = io.StringIO()
    figures = [(one, run.at(one.row, *one.place)) for one in every_figure(run)]
    known = {name for _, outcomes in figures for one in outcomes for name in one.facts} & set(FACTS)
    known -= {"accuracy"}
    if run.table.deep or run.table.organizations != ["by name"]:
        known -= {"peak_memory"}  # processes do many runs there: the peak is none of one run
    facts = sorted(known)
    writer = csv.writer(out, lineterminator="\n")
    metered = any(row.leak for row in run.table.rows)
    made_by = ("device", "commit") if run.table.deep else ()
    extra = [*made_by, *(leaks.COLUMNS if metered else ())]
    writer.writerow([*COLUMNS, *extra, *facts])
    for one, outcomes in figures:
        writer.writerow(
            [
                *(run.table.name, one.row.label, one.dataset, one.organizations, one.protocol, one.metric),
                *(len(one.final), *_numbers(one)),
                *(["", ""] if one.paper is None else [one.paper.mean, one.paper.std]),
                one.verdict,
                " ".join(f"{score:.6g}" for score in one.final),
                _each_once(found.chosen for found in outcomes),
                *(_each_once(getattr(found, name) for found in outcomes) for name in made_by),
                *(leaks.csv_values(one.leak, one.row.epsilon, one.row.delta) if metered else []),
                *(f"{mean_of(outcomes, name):.6g}".replace("nan", "") for name in facts),
            ]
        )
    return out.getvalue()


def _numbers(figure: Figure) -> list[float | str]:
    """Mean and standard deviation of the final models and of the best rounds; empty where nothing was run."""
    if not figure.final:
        return [""] * 4
    values = (figure.mean, figure.std, np.mean(figure.best), np.std(figure.best))
    return [round(float(value), 6) for value in values]


def _each_once(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(word for word in words if word))


def to_markdown(run: Run) -> str:
    """The table for people: one part per protocol and number of organizations."""
    parts = [f"# {run.table.title}"]
    if run.table.note:
        parts.append(wrapped(run.table.note))
    body = _fact_parts(run) if run.table.facts else _score_parts(run)
    return "\n\n".join([*parts, *body]) + "\n"


def legend(run: Run) -> str:
    """How to read the cells."""
    if run.table.facts:
        return "Means over the seeds; scores with their standard deviation where there are several seeds."
    cell = (
        "Each cell has the final model's mean (standard deviation) over the seeds. Then comes the best round "
        "on the test rows, of the constant and the rounds that the model uses"
    )
    official = (
        f" Under *{OFFICIAL}* all seeds have the same training and test rows, the data set's own "
        "where it has some; without a standard deviation there is one seed."
    )
    end = (official if run.table.deep else "") + _leak_legend(run)
    if not any(row.paper for row in run.table.rows):
        return f"{cell}.{end}"
    ours, theirs = (
        (OFFICIAL, "in rows with the paper preset") if run.table.deep else ("per seed", "under *paper*")
    )
    return (
        f"{cell}, and the paper's figure. "
        f"{MARKS['better']} better, {MARKS['worse']} worse than the paper by more than the larger standard "
        f"deviation. The final model is compared under the protocol *{ours}*; the best round, which the "
        f"paper prints, {theirs}.{end}"
    )


def _leak_legend(run: Run) -> str:
    """What the lines about leaks say; empty where there are none."""
    sets: dict[float, dict[str, None]] = {}
    for one in every_figure(run):
        if one.leak is not None:
            sets.setdefault(one.leak.chance, {})[one.dataset] = None
    if not sets:
        return ""
    blind = ", ".join(f"{100 * chance:.0f} % ({', '.join(names)})" for chance, names in sorted(sets.items()))
    return (
        " In a second fit a fifth of the training rows are canaries, whose labels are drawn by chance "
        "(numbers: one of the two public bounds). *leak*: the share of canaries that the best attack on the "
        "messages guesses, over all seeds, with its 95 % interval. "
        f"A blind guess is right for {blind}. *allowed*: the most that the guarantee allows."
    )


def _score_parts(run: Run) -> Iterator[str]:
    figures = every_figure(run)
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
    lines = [NOT_RUN]
    if figure.final:
        digits = digits_of(figure)
        lines = [f"**{_spread(figure.final, digits)}**", f"best {_spread(figure.best, digits)}"]
    if 0 < len(figure.final) < figure.seeds:
        lines.append(f"{len(figure.final)} of {figure.seeds} seeds")
    if figure.paper is not None:
        mean = f"{figure.paper.mean:.2f}" if figure.metric == "auc" else f"{figure.paper.mean}"
        lines.append(f"paper {mean} ({figure.paper.std}) {MARKS[figure.verdict]}".strip())
    if figure.leak is not None:
        lines.append(figure.leak.words)
    return "<br>".join(lines)


def digits_of(figure: Figure) -> int:
    """How many decimals say something: three of an AUC, two of a small error, else one."""
    return 3 if figure.metric == "auc" else 2 if figure.metric == "mad" and figure.mean < 20 else 1


def _spread(values: Sequence[float], digits: int) -> str:
    """Mean and standard deviation; of one value itself."""
    spread = f" ({np.std(values):.{digits}f})" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


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
    if name == "score" and not outcomes:
        return NOT_RUN
    if name == "score":
        digits = 3 if outcomes[0].metric == "auc" else 2
        return f"{_spread([one.final for one in outcomes], digits)} {NAMES[outcomes[0].metric]}"
    values, mean = values_of(outcomes, name), mean_of(outcomes, name)
    if not values:
        return ""
    if name.endswith("_bytes") or name in {"sent", "received", "peak_memory", "peak_device_memory"}:
        return in_bytes(mean)
    spread = f" ({np.std(values):.2g})" if name in {"accuracy", "auc", "log_loss"} and len(values) > 1 else ""
    return FACTS[name][1].format(mean) + spread


def wrapped(text: str, indent: str = "") -> str:
    """Prose in lines of at most 110 characters."""
    return textwrap.fill(text, 110, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


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


def values_of(outcomes: Iterable[Outcome], fact: str) -> list[float]:
    """Of the outcomes that have the fact."""
    return [one.facts[fact] for one in outcomes if fact in one.facts]


def mean_of(outcomes: Iterable[Outcome], fact: str) -> float:
    """Over the outcomes that have the fact; NaN where none has."""
    values = values_of(outcomes, fact)
    return float(np.mean(values)) if values else float("nan")
