"""The tables in docs are those of the CSV files beside them: figures are generated, never typed."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from benchmark_scripts import load_benchmark
from gal_bench.cells import Sources
from gal_bench.outcomes import Outcomes
from gal_bench.pages import page, to_csv
from gal_bench.runner import run_tables
from gal_bench.specs import read_tables

DOCS = Path(__file__).parents[2] / "docs"
TABLES = read_tables()
pages = load_benchmark("results_pages")
AGAIN = "run benchmarks/results_pages.py"


def figures(table: str) -> list[dict[str, str]]:
    path = DOCS / "results" / f"{table}.csv"
    assert path.exists(), f"run gal bench {table} and benchmarks/results_pages.py"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def written(line: dict[str, str]) -> set[str]:
    """The figure as a page may have it: the CSV file's sixth decimal may round a half the other way."""
    if line["seeds"] == "0":
        return {"not run"}
    mean, std = float(line["final mean"]), float(line["final std"])
    digits = 3 if line["metric"] == "auc" else 2 if line["metric"] == "mad" and mean < 20 else 1
    shifts = (-1e-6, 0.0, 1e-6)
    if line["seeds"] == "1":
        return {f"**{mean + a:.{digits}f}**" for a in shifts}
    return {f"**{mean + a:.{digits}f} ({std + b:.{digits}f})**" for a in shifts for b in shifts}


def generated(table: str) -> str | None:
    """What a page has of this table; tables about one thing share a page."""
    for path in sorted((DOCS / "results").glob("*.md")):
        for found in pages.GENERATED.finditer(path.read_text(encoding="utf-8")):
            if found["table"] == table:
                return str(found["text"])
    return None


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_a_page_with_its_figures(table: str) -> None:
    text = generated(table)
    if TABLES[table].deep and text is None:
        pytest.skip(f"the page of {table} is written once deep runs were done: gal bench {table} --plan")
    assert text is not None, f"no page of docs has a part for the results of {table}"
    spec = TABLES[table]
    places = sum(1 for row in spec.rows for _ in spec.places(row))
    lines = figures(table)
    assert len(lines) == places, "run gal bench all and benchmarks/results_pages.py"
    if not spec.facts:
        for line in lines:
            assert any(figure in text for figure in written(line)), line
    else:
        assert all(line["row"] in text for line in lines)


def test_pages_of_deep_tables_are_what_stored_outcomes_give(tmp_path: Path) -> None:
    deep = [spec for spec in TABLES.values() if spec.deep]
    for run in run_tables(deep, Outcomes(tmp_path / "outcomes.jsonl"), Sources()):
        name = run.table.name
        assert (DOCS / "results" / f"{name}.csv").read_text("utf-8") == to_csv(run), AGAIN
        (tmp_path / f"{name}.md").write_text(page(run), encoding="utf-8")
    for path in sorted((DOCS / "results").glob("*.md")):
        text = path.read_text("utf-8")
        assert pages.fill(text, tmp_path) == text, AGAIN


@pytest.mark.parametrize(
    "table", [name for name, spec in TABLES.items() if any(row.leak for row in spec.rows)]
)
def test_leaks_on_the_page_are_those_of_the_csv_file(table: str) -> None:
    attacked = {row.label for row in TABLES[table].rows if row.leak}
    text, lines = generated(table) or "", [line for line in figures(table) if line["row"] in attacked]
    assert lines
    assert "canaries low" in lines[0], f"run gal bench {table} and benchmarks/results_pages.py"
    for line in lines:
        low, high = (round(100 * float(line[end])) for end in ("canaries low", "canaries high"))
        assert f" % ({low}–{high})" in text, line
        if line["guarantee allows"]:
            assert float(line["canaries low"]) < float(line["guarantee allows"]) + 0.05, line


def test_the_first_page_opens_with_five_rows_that_are_those_of_the_csv_files() -> None:
    text = (DOCS / "results/index.md").read_text(encoding="utf-8")
    assert pages.open_with(text, DOCS / "results") == text, AGAIN
    readme = pages.README.read_text(encoding="utf-8")
    assert pages.open_with(readme, DOCS / "results", "docs/results/") == readme, (
        "run benchmarks/results_pages.py"
    )
    table = pages.headline_table(DOCS / "results")
    assert table.count("\n") == 2 + 5
    assert text.index(table) < text.index("covered.png")
    place = ("GAL, residual network (ours)", "CIFAR10", "8")
    [line] = [
        one for one in figures("images") if (one["row"], one["data set"], one["organizations"]) == place
    ]
    assert f"**{float(line['final mean']):.1f}**" in table


def test_the_count_against_the_paper_is_that_of_the_pages() -> None:
    """Which count figures of runs, by way of learning or all together; here it is verdicts in CSV files."""
    counted: dict[str, list[list[int]]] = {}
    for line in pages.paper_table(DOCS / "results").splitlines()[2:]:
        name = line.split("](")[1].split(".md")[0]
        counted.setdefault(name, []).append([int(cell) for cell in line.strip(" |").split(" | ")[-4:]])
    for name, counts in counted.items():
        text = (DOCS / f"results/{name}.md").read_text(encoding="utf-8")
        said = re.findall(
            r"(\d+) better, (\d+) alike, (\d+) worse by more than a standard deviation, of (\d+)",
            joined(text),
        )
        rows = [[int(cell) for cell in one] for one in said]
        rows += [[int(cell) for cell in one] for one in re.findall(r"\| (\d+) " * 4 + r"\|", text)]
        together = [sum(column) for column in zip(*counts, strict=True)]
        assert together in rows or all(one in rows for one in counts), (name, counts)


def joined(text: str) -> str:
    return " ".join(text.split())


def test_generated_parts_are_replaced_and_the_rest_is_kept(tmp_path: Path) -> None:
    (tmp_path / "uci.md").write_text("# Title\n\n- said\n\n## 8 organizations\n\n| a |\n")
    page = "by hand\n<!-- results: uci -->\nold\n<!-- end of results -->\nmore\n"
    filled = pages.fill(page, tmp_path)
    assert (
        filled
        == "by hand\n<!-- results: uci -->\n- said\n\n### 8 organizations\n\n| a |\n<!-- end of results "
        "-->\nmore\n"
    )
    assert pages.fill("<!-- results: none -->\nold\n<!-- end of results -->", tmp_path).count("old") == 1
