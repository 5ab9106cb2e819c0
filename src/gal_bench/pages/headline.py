"""The headline of all tables, from their CSV files: five rows, and how we stand to the paper."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gal_bench.specs import TOGETHER, read_tables

Line = Mapping[str, str]


@dataclass(frozen=True)
class Headline:
    """One row: where its four figures stand."""

    words: str
    table: str
    dataset: str
    organizations: str
    alone: str
    gal: str
    together: str
    """Rows of the table, by label."""
    paper: str = ""
    """The row whose figure in the paper stands beside, where the paper has one."""
    figure: str = "final mean"
    measure: str = "accuracy in %"
    digits: int = 1


RESIDUAL = ("Alone, residual network", "GAL, residual network (ours)", "Joint, residual network")
BY_NAME = ("by name", "Alone", "GAL", "Pooled")
HEADLINES = (
    Headline(
        "Diabetes, 10 columns at random to 8 organizations, linear models",
        *("uci", "Diabetes", "8", "Alone, Linear", "GAL, Linear", "Joint, Linear", "GAL, Linear"),
        measure="mean absolute error, lower is better",
    ),
    Headline("Adult, 4 organizations", "scale", "Adult", *BY_NAME, figure="auc", measure="AUC", digits=3),
    Headline(
        *("Credit default, 4 organizations", "scale", "CreditDefault", *BY_NAME),
        figure="auc",
        measure="AUC",
        digits=3,
    ),
    Headline("Covertype, 4 organizations", "scale", "Covertype", *BY_NAME),
    Headline("CIFAR-10 in 8 patches, networks", "images", "CIFAR10", "8", *RESIDUAL, "GAL"),
)


def headline_table(folder: Path) -> str:
    """Markdown: without assistance, with it, pooled, and the paper's GAL."""
    lines = [
        "| | measure | without assistance | GAL | pooled | the paper's GAL |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for one in HEADLINES:
        rows = {
            line["row"]: line
            for line in figures_in(folder / f"{one.table}.csv")
            if (line["data set"], line["organizations"]) == (one.dataset, one.organizations)
            and line["protocol"] != "paper"
        }
        figures = [
            f"{float(rows[row][one.figure]):.{one.digits}f}" for row in (one.alone, one.gal, one.together)
        ]
        paper = rows[one.paper]["paper mean"] if one.paper else ""
        ours = f"{figures[0]} | **{figures[1]}** | {figures[2]}"
        lines.append(f"| [{one.words}]({one.table}.md) | {one.measure} | {ours} | {paper} |")
    return "\n".join(lines) + "\n"


def paper_table(folder: Path) -> str:
    """Markdown: of every table with figures of the paper, how many of ours are better, alike and worse."""
    lines = ["| table | compared | better | alike | worse | of |", "|---|---|---:|---:|---:|---:|"]
    for name, table in read_tables().items():
        for papers, verdicts in _verdicts(folder, name):
            counts = [verdicts.count(one) for one in ("better", "", "worse")]
            compared = "best rounds, paper preset" if papers else "final models, defaults"
            cells = " | ".join(map(str, [*counts, len(verdicts)]))
            lines.append(f"| [{table.title}]({name}.md) | {compared} | {cells} |")
    return "\n".join(lines) + "\n"


def _verdicts(folder: Path, name: str) -> Iterator[tuple[bool, list[str]]]:
    """By whether it is the paper preset; in deep tables a pooled model counts once."""
    table = read_tables()[name]
    methods = {row.label: row.method for row in table.rows}
    preset = {row.label for row in table.rows if row.options.get("preset") == "paper"}
    lines = [line for line in figures_in(folder / f"{name}.csv") if line["paper mean"] and line["final mean"]]
    for papers in (False, True):
        found = {}
        for line in lines:
            if (line["protocol"] == "paper" or line["row"] in preset) != papers:
                continue
            once = table.deep and methods[line["row"]] in TOGETHER
            found[line["row"], line["data set"], "" if once else line["organizations"]] = line["verdict"]
        if found:
            yield papers, list(found.values())


def figures_in(path: Path) -> list[Line]:
    """The lines of a table's CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
