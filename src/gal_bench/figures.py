"""Outcomes as tables: one figure per row, data set, number of organizations and protocol; CSV and Markdown.

A figure is a mean and a standard deviation over seeds (the population's, as the authors compute theirs).
The final model comes first; the best round on the test rows, which is what the paper prints, stands beside.
What was not run is a figure without values: it says so in Markdown, and is empty in CSV.
"""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from gal.privacy.leakage import Share, equivalent_epsilon
from gal_bench.cells import DEEP_SETS, OFFICIAL, ON_REQUEST, Outcome
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
    "stored_bytes": ("local models stored", ""),
    "trips": ("round trips", "{:.0f}"),
    "sent": ("bytes to others", ""),
    "received": ("bytes from others", ""),
    "revisit_bytes": ("bytes of the last pass", ""),
    "peak_memory": ("peak memory", ""),
    "peak_device_memory": ("peak memory of the device", ""),
}
"""What a fact is called, and how it is written; without a form, in bytes."""
COLUMNS = (
    *("table", "row", "data set", "organizations", "protocol", "metric", "seeds"),
    *("final mean", "final std", "best on test mean", "best on test std", "paper mean", "paper std"),
    *("verdict", "final by seed", "chosen"),
)
LEAK_COLUMNS = (
    *("epsilon", "delta", "best attack", "canaries", "canaries guessed", "canaries low", "canaries high"),
    *("guarantee allows", "chance", "equivalent epsilon"),
)
"""In CSV: shares are between 0 and 1, ends of intervals those of 95 %."""


@dataclass(frozen=True)
class Leak:
    """The attack on messages that guessed most canaries right, added up over seeds."""

    attack: str
    canaries: Share
    classes: int
    """Between how many it guesses; 2 for numbers."""
    bound: float | None
    """The largest share of canaries that the guarantee allows; None without one."""

    @property
    def exceeds(self) -> bool:
        """Whether the interval lies above what is allowed."""
        return self.bound is not None and self.canaries.low > self.bound

    @property
    def allowed(self) -> str:
        """Rounded down: never more than is allowed."""
        return "" if self.bound is None else f"{math.floor(1000 * self.bound) / 10:.1f} %"

    @property
    def words(self) -> str:
        """For a cell of a table."""
        low, high = (round(100 * end) for end in self.canaries.interval())
        said = f"leak {percent(self.canaries)} ({low}–{high})"
        return said if self.bound is None else f"{said}, allowed {self.allowed}"


def percent(share: Share) -> str:
    """Rounded; 100 % only where all guesses were right.

    >>> percent(Share(999, 1000)), percent(Share(1000, 1000)), percent(Share(2, 3))
    ('99 %', '100 %', '67 %')
    """
    value = round(100 * share.value)
    return f"{min(value, 99) if share.right < share.of else value} %"


def leak_of(outcomes: Sequence[Outcome]) -> Leak | None:
    """Over all seeds; None where it was not measured."""
    found = [one.leak for one in outcomes if one.leak]
    if not found:
        return None
    shares = {
        name: reduce(add, (Share(*one["attacks"][name]["canaries"]) for one in found))
        for name in found[0]["attacks"]
        if all(name in one["attacks"] for one in found)
    }
    best = max(shares, key=lambda name: shares[name].right)  # of equal ones the first, which needs least
    return Leak(best, shares[best], classes=int(found[0]["classes"]), bound=found[0]["bound"])


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
    def digits(self) -> int:
        """How many decimals say something: three of an AUC, two of a small error, else one."""
        return 3 if self.metric == "auc" else 2 if self.metric == "mad" and self.mean < 20 else 1

    @property
    def verdict(self) -> str:
        """Whether we are better or worse than the paper by more than the larger standard deviation."""
        if self.paper is None or not self.final:
            return ""
        # The same choice as theirs where we do as they did, else ours.
        as_they_did = self.protocol == "paper" or self.row.options.get("preset") == "paper"
        compared = self.best if as_they_did else self.final
        gain = float(np.mean(compared)) - self.paper.mean
        gain = -gain if self.metric == "mad" else gain
        rounding = 0.005 if self.metric == "auc" else 0.05  # of the decimals that the paper prints
        limit = max(self.paper.std, float(np.std(compared))) + rounding
        return "better" if gain > limit else "worse" if gain < -limit else ""


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


# --- CSV


def to_csv(run: Run) -> str:
    """One line per figure, with everything."""
    out = io.StringIO()
    figures = [(one, run.at(one.row, *one.place)) for one in every_figure(run)]
    known = {name for _, outcomes in figures for one in outcomes for name in one.facts} & set(FACTS)
    known -= {"accuracy"}
    if run.table.deep or run.table.organizations != ["by name"]:
        known -= {"peak_memory"}  # processes do many runs there: the peak is none of one run
    facts = sorted(known)
    attacked = any(row.leak for row in run.table.rows)
    made_by = ("device", "commit") if run.table.deep else ()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *made_by, *(LEAK_COLUMNS if attacked else ()), *facts])
    for one, outcomes in figures:
        numbers: list[Any] = [one.mean, one.std, np.mean(one.best), np.std(one.best)] if one.final else []
        writer.writerow(
            [
                *(run.table.name, one.row.label, one.dataset, one.organizations, one.protocol, one.metric),
                *(len(one.final), *(map(_short, numbers) if numbers else [""] * 4)),
                *(["", ""] if one.paper is None else [one.paper.mean, one.paper.std]),
                one.verdict,
                " ".join(f"{score:.6g}" for score in one.final),
                _each_once(found.chosen for found in outcomes),
                *(_each_once(getattr(found, name) for found in outcomes) for name in made_by),
                *(_leak_values(one) if attacked else []),
                *(f"{mean_of(outcomes, name):.6g}".replace("nan", "") for name in facts),
            ]
        )
    return out.getvalue()


def _leak_values(figure: Figure) -> list[Any]:
    """In the order of ``LEAK_COLUMNS``; empty where nothing was measured."""
    stated = ["" if value is None else value for value in (figure.row.epsilon, figure.row.delta)]
    leak = figure.leak
    if leak is None:
        return [*stated, *[""] * (len(LEAK_COLUMNS) - 2)]
    epsilon = equivalent_epsilon(leak.canaries.value, leak.classes)
    return [
        *(*stated, leak.attack, leak.canaries.of),
        *map(_short, (leak.canaries.value, *leak.canaries.interval())),
        "" if leak.bound is None else _short(leak.bound),
        _short(1 / leak.classes),
        "" if math.isinf(epsilon) else _short(epsilon),
    ]


def _short(value: float) -> float:
    return round(float(value), 6)


def _each_once(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(word for word in words if word))


# --- Markdown


def page(run: Run, findings: Sequence[str]) -> str:
    """A table in Markdown: at a glance, the findings, how to read it, one part per protocol and number of
    organizations.
    """
    said = "\n".join(wrapped(f"- {one}", "  ") for one in findings)
    prose = (wrapped(provenance_of(run)), wrapped(_legend(run)), wrapped(run.table.note))
    body = _fact_parts(run) if run.table.facts else _score_parts(run)
    parts = (f"# {run.table.title}", _glance(run), said, *prose, *body)
    return "\n\n".join(part for part in parts if part) + "\n"


def _glance(run: Run) -> str:
    """One line per data set and number of organizations, the main rows side by side, ours and the paper's.

    Empty where the table names no rows for it. Data sets of which nothing was run are left out.
    """
    names = run.table.glance
    figures = {(one.dataset, one.organizations, one.row.name): one for one in every_figure(run)}
    lines = []
    for dataset in run.table.sets:
        for size in run.table.organizations:
            here = [figures.get((dataset, size, name)) for name in names]
            if any(one is not None and one.final for one in here):
                place = dataset if size == "by name" else f"{dataset}, {who(size)}"
                lines.append(f"| {place} | " + " | ".join(map(_ours_and_theirs, here)) + " |")
    if not lines:
        return ""
    said = (
        f"Final models, then the paper's figure: {MARKS['better']} better, {MARKS['worse']} worse by more "
        "than the larger standard deviation."
    )
    head = "| | " + " | ".join(run.table.row(name).label for name in names) + " |"
    return "\n".join([said, "", head, "|---" * (len(names) + 1) + "|", *lines])


def _ours_and_theirs(figure: Figure | None) -> str:
    """Our mean in bold, the paper's behind it."""
    if figure is None or not (figure.final or figure.paper):
        return ""
    ours = f"**{figure.mean:.{figure.digits}f}**" if figure.final else "–"
    return ours if figure.paper is None else f"{ours} / {figure.paper.mean} {MARKS[figure.verdict]}".rstrip()


def provenance_of(run: Run) -> str:
    """What of a deep table was run, on what, and how to run the rest; empty for a table that is not deep."""
    if not run.table.deep:
        return ""
    cells = {repr(cell) for row in run.table.rows for cell in run.table.cells(row)}
    done = [run.outcomes[key] for key in sorted(cells) if key in run.outcomes]
    devices = " and ".join(_counted(one.device for one in done))
    said = f"{len(done)} of {len(cells)} runs were done{f' on {devices}' if devices else ''}."
    commits = ", ".join(_counted(one.commit for one in done))
    said += f" Commits of the sources: {commits}." if commits else ""
    if len(done) < len(cells):
        said += (
            f" `gal bench {run.table.name} --deep` runs the rest here, `gal bench {run.table.name} --plan "
            "plan.json` writes it down for another machine (docs/results/rerun.md)."
        )
    run_sets = {one.dataset for one in figures_of(run)}
    blank = [name for name in run.table.sets if name in ON_REQUEST and name not in run_sets]
    return said + (f" Given out on request only, so not run here: {', '.join(blank)}." if blank else "")


def _counted(words: Iterable[str]) -> list[str]:
    """The most frequent first, without empty ones."""
    return [f"{word} ({count})" for word, count in Counter(word for word in words if word).most_common()]


def _legend(run: Run) -> str:
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
    sets: dict[int, dict[str, None]] = {}
    for one in every_figure(run):
        if one.leak is not None:
            sets.setdefault(one.leak.classes, {})[one.dataset] = None
    if not sets:
        return ""
    blind = ", ".join(
        f"{100 / classes:.0f} % ({', '.join(names)})" for classes, names in sorted(sets.items(), reverse=True)
    )
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
            if not here:
                continue
            yield f"## {who(organizations)}, protocol *{protocol}*"
            arrows = {one.dataset: "↓" if one.metric == "mad" else "↑" for one in here}
            sets = [name for name in run.table.sets if name in arrows]
            lines = ["| | " + " | ".join(f"{name} {arrows[name]}" for name in sets) + " |"]
            lines.append("|---" * (len(sets) + 1) + "|")
            for row in run.table.rows:
                by_set = {one.dataset: one for one in here if one.row.name == row.name}
                if by_set:
                    lines.append(
                        f"| {row.label} | " + " | ".join(_cell(by_set.get(name)) for name in sets) + " |"
                    )
            yield "\n".join(lines)


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    lines = [NOT_RUN]
    if figure.final:
        final, best = (_spread(values, figure.digits) for values in (figure.final, figure.best))
        lines = [f"**{final}**", f"best {best}"]
    if 0 < len(figure.final) < figure.seeds:
        lines.append(f"{len(figure.final)} of {figure.seeds} seeds")
    if figure.paper is not None:
        mean = f"{figure.paper.mean:.2f}" if figure.metric == "auc" else f"{figure.paper.mean}"
        lines.append(f"paper {mean} ({figure.paper.std}) {MARKS[figure.verdict]}".strip())
    if figure.leak is not None:
        lines.append(figure.leak.words)
    return "<br>".join(lines)


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
    values = [one.facts[name] for one in outcomes if name in one.facts]
    if not values:
        return ""
    form = FACTS[name][1]
    spread = f" ({np.std(values):.2g})" if name in {"accuracy", "auc", "log_loss"} and len(values) > 1 else ""
    return form.format(np.mean(values)) + spread if form else in_bytes(float(np.mean(values)))


def who(organizations: int | str) -> str:
    """How many organizations, in words."""
    words = {"most": "8 organizations (Iris: 4)", "by name": "organizations by name"}
    return words[organizations] if isinstance(organizations, str) else f"{organizations} organizations"


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


def mean_of(outcomes: Iterable[Outcome], fact: str) -> float:
    """Over the outcomes that have the fact; NaN where none has."""
    values = [one.facts[fact] for one in outcomes if fact in one.facts]
    return float(np.mean(values)) if values else float("nan")
