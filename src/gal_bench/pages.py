"""Results of a table as CSV, as Markdown and in the terminal.

A figure that was not run is empty in CSV and says so elsewhere.
"""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.markup import escape
from rich.table import Table

from gal.cli.screen import Screen, print_table
from gal.privacy.leakage import equivalent_epsilon
from gal_bench.cells import OFFICIAL, ON_REQUEST, Outcome
from gal_bench.figures import Figure, every_figure, figures_of, findings, organizations_in_words
from gal_bench.runner import Run

MARKS = {"better": "▲", "worse": "▼", "": ""}
METRICS = {"mad": "MAD", "accuracy": "accuracy in %", "auc": "AUC"}
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
"""Name and format of each fact; without a format it is in bytes."""


# --- CSV


def to_csv(run: Run) -> str:
    """One line per figure; shares are between 0 and 1, ends of intervals those of 95 %."""
    figures = [(one, run.at(one.row, *one.place)) for one in every_figure(run)]
    known = {name for _, outcomes in figures for one in outcomes for name in one.facts} & set(FACTS)
    known -= {"accuracy"}
    if run.table.deep or run.table.organizations != ["by name"]:
        known -= {"peak_memory"}  # processes do many runs there: the peak is none of one run
    attacked = any(row.leak for row in run.table.rows)
    lines: list[dict[str, Any]] = []
    for one, outcomes in figures:
        ran = bool(one.final)
        line = {
            "table": run.table.name,
            "row": one.row.label,
            "data set": one.dataset,
            "organizations": one.organizations,
            "protocol": one.protocol,
            "metric": one.metric,
            "seeds": len(one.final),
            "final mean": _short(one.mean) if ran else "",
            "final std": _short(one.std) if ran else "",
            "best on test mean": _short(np.mean(one.best)) if ran else "",
            "best on test std": _short(np.std(one.best)) if ran else "",
            "paper mean": "" if one.paper is None else one.paper.mean,
            "paper std": "" if one.paper is None else one.paper.std,
            "verdict": one.verdict,
            "final by seed": " ".join(f"{score:.6g}" for score in one.final),
            "chosen": _each_once(found.chosen for found in outcomes),
        }
        if run.table.deep:
            line |= {
                name: _each_once(getattr(out, name) for out in outcomes) for name in ("device", "commit")
            }
        if attacked:
            line |= _leak_values(one)
        for name in sorted(known):
            values = [out.facts[name] for out in outcomes if name in out.facts]
            line[name] = f"{np.mean(values):.6g}" if values else ""
        lines.append(line)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _leak_values(figure: Figure) -> dict[str, Any]:
    """The columns about leaks; empty where nothing was measured."""
    columns = (
        *("best attack", "canaries", "canaries guessed", "canaries low", "canaries high"),
        *("guarantee allows", "chance", "equivalent epsilon"),
    )
    values: tuple[Any, ...] = ("",) * len(columns)
    leak = figure.leak
    if leak is not None:
        epsilon = equivalent_epsilon(leak.canaries.value, leak.classes)
        shares = map(_short, (leak.canaries.value, *leak.canaries.interval()))
        allowed = "" if leak.bound is None else _short(leak.bound)
        measured = "" if math.isinf(epsilon) else _short(epsilon)
        values = (leak.attack, leak.canaries.of, *shares, allowed, _short(1 / leak.classes), measured)
    stated = {"epsilon": figure.row.epsilon, "delta": figure.row.delta}
    return {name: "" if value is None else value for name, value in stated.items()} | dict(
        zip(columns, values, strict=True)
    )


def _short(value: Any) -> float:
    return round(float(value), 6)


def _each_once(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(word for word in words if word))


# --- tables


class TablePart(NamedTuple):
    """The results of one protocol and number of organizations; lines of a cell end with a line break."""

    title: str
    head: list[str]
    rows: list[list[str]]


def sections_of(run: Run) -> Iterator[TablePart]:
    """The table part by part, with scores or facts."""
    figures = every_figure(run)
    for protocol in run.table.protocols:
        for organizations in run.table.organizations:
            here = [one for one in figures if (one.protocol, one.organizations) == (protocol, organizations)]
            title = f"{organizations_in_words(organizations)}, protocol *{protocol}*"
            if here and run.table.facts:
                yield TablePart(title, *_facts(run, here))
            elif here:
                yield TablePart(title, *_scores(run, here))


def _scores(run: Run, figures: Sequence[Figure]) -> tuple[list[str], list[list[str]]]:
    arrows = {one.dataset: "↓" if one.metric == "mad" else "↑" for one in figures}
    sets = [name for name in run.table.sets if name in arrows]
    cells = {(one.row.name, one.dataset): _score_cell(one) for one in figures}
    rows = [
        [row.label, *(cells.get((row.name, name), "") for name in sets)]
        for row in run.table.rows
        if any(one.row.name == row.name for one in figures)
    ]
    return ["", *(f"{name} {arrows[name]}" for name in sets)], rows


def _score_cell(figure: Figure) -> str:
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
    return "\n".join(lines)


def _spread(values: Sequence[float], digits: int) -> str:
    """Mean and standard deviation; of one value itself."""
    spread = f" ({np.std(values):.{digits}f})" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def _facts(run: Run, figures: Sequence[Figure]) -> tuple[list[str], list[list[str]]]:
    names = run.table.facts
    found = sorted(figures, key=lambda one: run.table.sets.index(one.dataset))
    rows = [
        [one.dataset, one.row.label, *(_fact_cell(run.at(one.row, *one.place), name) for name in names)]
        for one in found
    ]
    return ["data set", "", *(FACTS[name][0] for name in names)], rows


def _fact_cell(outcomes: Sequence[Outcome], name: str) -> str:
    if name == "score" and not outcomes:
        return NOT_RUN
    if name == "score":
        digits = 3 if outcomes[0].metric == "auc" else 2
        return f"{_spread([one.final for one in outcomes], digits)} {METRICS[outcomes[0].metric]}"
    values = [one.facts[name] for one in outcomes if name in one.facts]
    if not values:
        return ""
    form = FACTS[name][1]
    spread = f" ({np.std(values):.2g})" if name in {"accuracy", "auc", "log_loss"} and len(values) > 1 else ""
    return form.format(np.mean(values)) + spread if form else in_bytes(float(np.mean(values)))


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


# --- Markdown, and the terminal


def page(run: Run) -> str:
    """A table in Markdown: at a glance, the findings, how to read it, and its parts."""
    prose = [provenance_of(run), _legend(run), run.table.note]
    blocks = [
        f"# {run.table.title}",
        _glance(run),
        "\n".join(_wrapped(f"- {one}", "  ") for one in findings(run)),
    ]
    blocks += [_wrapped(one) for one in prose]
    for part in sections_of(run):
        rows = [[cell.replace("\n", "<br>") for cell in row] for row in part.rows]
        blocks += [f"## {part.title}", _markdown(part.head, rows)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def print_runs(runs: Sequence[Run]) -> None:
    """Tables and findings; parts of which nothing was run are left out."""
    out = Screen()
    for run in runs:
        out.rule(escape(run.table.title))
        for part in sections_of(run):
            if not any("**" in cell or run.table.facts for row in part.rows for cell in row):
                continue
            shown = Table(*map(escape, part.head), title=escape(_plain(part.title)), title_justify="left")
            for row in part.rows:
                shown.add_row(*(escape(_plain(cell)) for cell in row))
            print_table(shown, out)
        if run.table.deep:
            out.print(escape(_plain(provenance_of(run))))
        for found in findings(run):
            out.print(f"• {escape(_plain(found))}")


def _plain(text: str) -> str:
    return text.replace("*", "").replace("`", "")


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["|".join(["", *(f" {cell} " if cell else " " for cell in row), ""]) for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def _wrapped(text: str, indent: str = "") -> str:
    """Prose in lines of at most 110 characters."""
    return textwrap.fill(text, 110, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _glance(run: Run) -> str:
    """The main rows side by side, ours and the paper's; empty where the table names none. Data sets without
    a run are left out.
    """
    names = run.table.glance
    figures = {(one.dataset, one.organizations, one.row.name): one for one in every_figure(run)}
    rows = []
    for dataset in run.table.sets:
        for size in run.table.organizations:
            here = [figures.get((dataset, size, name)) for name in names]
            if any(one is not None and one.final for one in here):
                place = dataset if size == "by name" else f"{dataset}, {organizations_in_words(size)}"
                rows.append([place, *map(_compared_means, here)])
    if not rows:
        return ""
    legend = (
        f"Final models, then the paper's figure: {MARKS['better']} better, {MARKS['worse']} worse by more "
        "than the larger standard deviation."
    )
    return f"{legend}\n\n{_markdown(['', *(run.table.row(name).label for name in names)], rows)}"


def _compared_means(figure: Figure | None) -> str:
    """Our mean in bold, the paper's behind it."""
    if figure is None or not (figure.final or figure.paper):
        return ""
    ours = f"**{figure.mean:.{figure.digits}f}**" if figure.final else "–"
    return ours if figure.paper is None else f"{ours} / {figure.paper.mean} {MARKS[figure.verdict]}".rstrip()


def provenance_of(run: Run) -> str:
    """The runs of a deep table, their machine, and how to run the rest; empty for other tables."""
    if not run.table.deep:
        return ""
    cells = {repr(cell) for row in run.table.rows for cell in run.table.cells(row)}
    done = [run.outcomes[key] for key in sorted(cells) if key in run.outcomes]
    devices, commits = (
        [f"{word} ({count})" for word, count in Counter(getattr(one, name) for one in done).most_common()]
        for name in ("device", "commit")
    )
    text = f"{len(done)} of {len(cells)} runs were done"
    text += f" on {' and '.join(devices)}. Commits of the sources: {', '.join(commits)}." if done else "."
    if len(done) < len(cells):
        text += (
            f" `gal bench {run.table.name} --deep` runs the rest here, `gal bench {run.table.name} --plan "
            "plan.json` writes it down for another machine (docs/results/rerun.md)."
        )
    run_sets = {one.dataset for one in figures_of(run)}
    blank = [name for name in run.table.sets if name in ON_REQUEST and name not in run_sets]
    return text + (f" Given out on request only, so not run here: {', '.join(blank)}." if blank else "")


def _legend(run: Run) -> str:
    """The legend of the cells."""
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
    """The legend of the lines about leaks; empty without any."""
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
