"""The page about adversaries has the figures of the CSV file beside it."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmark_scripts import load_benchmark

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_has_the_figures_of_the_runs() -> None:
    pages = load_benchmark("results_pages")
    text = (DOCS / "results-adversaries.md").read_text(encoding="utf-8")
    (found,) = (one for one in pages.GENERATED.finditer(text) if one["table"] == "adversaries")
    with (DOCS / "results" / "adversaries.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert "linear" in {row["local model"] for row in rows}
    assert len({row["data set"] for row in rows}) >= 4
    shown = [row for row in rows if not row["column"].endswith((" alone", " without"))]
    for row in shown:
        mean = float(row["mean"])
        if row["metric"] in {"accuracy", "share"}:
            assert any(f"{100 * mean + shift:.1f}" in found["text"] for shift in (-1e-3, 0, 1e-3)), row
        elif mean < 1000:
            assert any(f"{mean * (1 + shift):.3g}" in found["text"] for shift in (-1e-5, 0, 1e-5)), row
