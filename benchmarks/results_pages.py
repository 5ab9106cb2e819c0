"""Put the results of ``gal bench all`` into the docs: tables into their pages, CSV files and pictures beside.

    gal bench all && python benchmarks/results_pages.py results

Every page ``docs/results/TABLE.md`` has a part between two marks that is written here; the rest is by hand.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gal_bench.specs import TOGETHER, read_tables

README = Path(__file__).resolve().parents[1] / "README.md"
DOCS = README.parent / "docs"
GENERATED = re.compile(
    r"(<!-- results: (?P<table>[\w-]+) -->\n)(?P<text>.*?)(<!-- end of results -->)", re.DOTALL
)


GLANCE = re.compile(r"(<!-- glance: (?P<table>[\w-]+) -->\n)(?P<text>.*?)(<!-- end of glance -->)", re.DOTALL)
"""Where a page leads with a table's first lines, these stand there alone."""


def parted(text: str) -> tuple[str, str]:
    """The table at a glance, and the rest."""
    said, table, rest = text.split("\n\n", 2)
    return f"{said}\n\n{table}\n\n", rest


def body(page: str) -> str:
    """A table's page without its title; headings one level down."""
    _, _, rest = page.partition("\n\n")
    return re.sub(r"^## ", "### ", rest, flags=re.MULTILINE)


def fill(text: str, results: Path) -> str:
    """The page with its generated parts replaced; a table without results stays as it was."""

    leads = {found["table"] for found in GLANCE.finditer(text)}

    def replaced(found: re.Match[str], part: int | None) -> str:
        path = results / f"{found['table']}.md"
        if not path.exists():
            return found[0]
        made = body(path.read_text(encoding="utf-8"))
        return found[1] + (made if part is None else parted(made)[part]) + found[4]

    text = GLANCE.sub(lambda found: replaced(found, 0), text)
    return GENERATED.sub(lambda found: replaced(found, 1 if found["table"] in leads else None), text)


def open_with(text: str, results: Path, docs: str = "") -> str:
    """The first page (or README, from which docs are elsewhere) with its tables,
    from the CSV files in this folder.
    """
    for mark, table in {"headline": headline_table, "against the paper": paper_table}.items():
        part = re.compile(rf"(<!-- {mark}: [^>]*-->\n).*?(<!-- end of {mark} -->)", re.DOTALL)
        if part.search(text):
            made = table(results).replace("](", f"]({docs}")
            text = part.sub(rf"\g<1>{made}\g<2>", text)
    return text


# --- the tables of the first page, from the CSV files

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


def main() -> None:
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("no folder")
    if not results.is_dir():
        raise SystemExit(__doc__)
    beside = DOCS / "results"
    beside.mkdir(exist_ok=True)
    for page in sorted(beside.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(fill(text, results), encoding="utf-8")
        for table in GENERATED.finditer(text):
            for path in sorted(results.glob(f"{table['table']}.csv")):
                shutil.copy(path, beside / path.name)
        for name in re.findall(r"\]\(([\w-]+\.png)\)", text):
            if (results / name).exists():
                shutil.copy(results / name, beside / name)
    for first, docs in {beside / "index.md": "", README: "docs/results/"}.items():
        first.write_text(open_with(first.read_text(encoding="utf-8"), beside, docs), encoding="utf-8")


if __name__ == "__main__":
    main()
