"""Put the results of ``gal bench all`` into the docs: tables into their pages, CSV files and pictures beside.

    gal bench all && python benchmarks/results_pages.py results

Every page ``docs/results/TABLE.md`` has a part between two marks that is written here; the rest is by hand.
Deep outcomes in the cache are kept in the source tree, with the commit at hand, so that they outlive the
sources that made them. A first step alone, for outcomes that were just taken: ``python
benchmarks/results_pages.py results --keep``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from gal_bench.cache import Cache, keep
from gal_bench.pages.headline import headline_table, paper_table
from gal_bench.runner import in_order
from gal_bench.specs import read_tables

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


def keep_deep(results: Path) -> None:
    """Keep the deep outcomes of today's sources, named by the commit that is checked out."""
    found = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"], cwd=DOCS, check=True, capture_output=True, text=True
    )
    tables = [table for table in read_tables().values() if table.deep]
    changed = keep(in_order(tables), Cache(results / "cache"), found.stdout.strip())
    print(f"{changed} deep outcomes kept")


def main() -> None:
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("no folder")
    if not results.is_dir() or sys.argv[2:] not in ([], ["--keep"]):
        raise SystemExit(__doc__)
    keep_deep(results)
    if sys.argv[2:]:
        return
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
