"""Deep tables: what was not run stays blank, what was run is told with its
device; pictures of made-up runs.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from bench_runs import PLAIN, part_of, run_of
from gal.cli.app import app
from gal.errors import InvalidInputError, MissingExtraError
from gal_bench import cells as running
from gal_bench.cache import Cache, keep, read_kept
from gal_bench.cells import DEEP_SETS, ON_REQUEST, Cell, Outcome, Sources
from gal_bench.pages.results import glance, page, provenance_of
from gal_bench.pages.summaries import findings
from gal_bench.pages.tables import every_figure, figures_of, to_csv, to_markdown
from gal_bench.runner import Run, in_order, left_to_run, run_tables
from gal_bench.specs import TableSpec, read_tables

TABLES = {name: table for name, table in read_tables().items() if table.deep}
DEVICE = "NVIDIA H200, torch 2.11"
LEVELS = {
    "joint": 0.95,
    "intermediate": 0.9,
    "late": 0.85,
    "gal": 0.9,
    "assisted_learning": 0.6,
    "alone": 0.5,
}


def made_up(cell: Cell) -> Outcome:
    """As a deep run leaves it: patches or named organizations, three rounds, better with every round."""
    level = LEVELS[cell.method] - 0.1 * ("shared" in cell.models[0]) - 0.01 * cell.seed
    level -= 0.2 * (cell.options.get("weights") == "uniform")
    metric = DEEP_SETS[cell.dataset]
    good = {"accuracy": 100.0, "auc": 1.0, "mad": -100.0}[metric]
    count = cell.organizations if isinstance(cell.organizations, int) else 4
    names = [f"patch {number + 1}" for number in range(count)]
    if cell.organizations == "by name":
        names = ["microbiology", "demographics", "body", "codes"]
    weights = [{name: (index + 1) * (t + 1) / 100 for index, name in enumerate(names)} for t in range(3)]
    shared = "shared" in cell.models[0]
    facts = {
        "seconds": 20.0,
        "label_holder_seconds": 0.4,
        "fit_seconds": 19.0,
        "stored_bytes": 1e6 if shared else 1e7,
        "revisit_bytes": 5e5 if shared else 0.0,
        "trips": 70.0 if cell.method == "assisted_learning" else 10.0,
        "sent": 2e6,
        "received": 2e6,
        "peak_device_memory": 3e9,
        "peak_memory": 1e9,
    }
    return Outcome(
        metric,
        [0.0, good * level / 2, good * level * 1.01, good * level] if good > 0 else [100.0, 60.0, 55.0, 50.0],
        [2.0, 1.0, 0.5],
        weights,
        None,
        names[0],
        "split",
        facts=facts,
        device=DEVICE,
    )


def run_with(monkeypatch: pytest.MonkeyPatch, run: Callable[[Cell, Sources], Outcome]) -> None:
    """Deep cells are run by this function, whether torch is there or not."""
    module: Any = ModuleType("gal_bench.runs.deep_cells")
    module.run_deep_cell = run
    monkeypatch.setitem(sys.modules, module.__name__, module)


def filled(name: str, keep: Callable[[Cell], bool] = lambda cell: True) -> Run:
    """A deep table with the outcomes of the cells to keep."""
    return run_of(TABLES[name], lambda _, cell: made_up(cell) if keep(cell) else None)


def some_of_images() -> Run:
    """Eight organizations on MNIST only, GAL and Alone; of GAL's four seeds two."""
    return filled(
        "images",
        lambda cell: (
            (cell.dataset, cell.organizations) == ("MNIST", 8)
            and cell.method in {"gal", "alone"}
            and cell.models == ("Network",)
            and not cell.options
            and cell.seed < 2
        ),
    )


def lines_of(run: Run) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(run))))


# --- names and specifications


def test_tables_share_their_runs() -> None:
    """GAL with eight organizations stands in three tables and is run once."""
    cells = [cell for table in TABLES.values() for row in table.rows for cell in table.cells(row)]
    assert len(in_order(TABLES.values())) == len({repr(cell) for cell in cells}) < len(cells)
    joint = [cell for cell in in_order([TABLES["images"]]) if cell.method == "joint"]
    assert sorted((cell.models[0], cell.dataset, cell.organizations) for cell in joint) == [
        ("Augmented network", "MNIST", 1),
        *((network, one, 1) for network in ("Network", "Residual network") for one in ("CIFAR10", "MNIST")),
    ]


def test_a_run_leaves_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell("MNIST", 8, "official", 0, models=("Network",))
    run_with(monkeypatch, lambda cell, sources: made_up(cell))
    assert running.run_cell(cell, Sources()).device == DEVICE
    run_with(monkeypatch, lambda cell, sources: PLAIN)
    monkeypatch.setattr(running, "device_here", lambda: "abacus")
    assert running.run_cell(cell, Sources()).device == "abacus"


# --- blank cells


def test_blank_cells_say_so_beside_the_papers_figure() -> None:
    text = to_markdown(some_of_images())
    lines = [line for line in text.split("## 8 organizations")[1].splitlines() if line.startswith("| ")]
    by_row = {line.split(" | ")[0].strip("| "): line for line in lines}
    assert "**89.5 (0.5)**<br>best 90.4 (0.5)<br>2 of 4 seeds<br>paper 96.3 (0.6) ▼" in by_row["GAL"]
    assert by_row["GAL"].endswith("| not run<br>paper 74.3 (0.2) |")
    assert "**50.0**<br>best 50.5<br>paper 24.2 (0.1) ▲" in by_row["Alone"]
    assert by_row["GAL, changed images and wider network (ours)"].count("not run") == 2
    assert "**" not in text.split("## 8 organizations")[0]


def test_blank_cells_are_empty_in_csv() -> None:
    run = some_of_images()
    lines = lines_of(run)
    assert len(lines) == len(every_figure(run)) == 106
    done = [line for line in lines if line["seeds"] != "0"]
    assert {(line["row"], line["organizations"], line["seeds"]) for line in done} == {
        ("GAL", "8", "2"),
        ("Alone", "8", "1"),
    }
    assert all(line["device"] == DEVICE for line in done)
    for line in lines:
        if line["seeds"] == "0":
            assert {line[name] for name in ("final mean", "final std", "best on test mean", "verdict")} == {
                ""
            }
    assert any(line["paper mean"] for line in lines if line["seeds"] == "0")


def test_nothing_run_says_how_to_run_it() -> None:
    run = filled("cases", lambda cell: False)
    text = page(run)
    assert "0 of 70 runs were done. `gal bench cases --deep` runs the rest here" in text
    assert "`gal bench cases --plan plan.json`" in text
    asked = "not run here: ShapeNet55, MIMICL, MIMICM, MIMICL demo, MIMICM demo."
    assert asked in " ".join(text.split())
    assert findings(run) == []
    assert figures_of(run) == []


def test_the_page_says_how_much_was_run_on_what() -> None:
    some = page(some_of_images())
    cells = [cell for row in TABLES["images"].rows for cell in TABLES["images"].cells(row)]
    runs = len({repr(cell) for cell in cells})
    assert f"3 of {runs} runs were done on {DEVICE} (3). `gal bench images --deep` runs the rest" in some
    assert f"{runs} of {runs} runs were done on {DEVICE} ({runs})." in page(filled("images"))


@pytest.mark.parametrize("name", TABLES)
def test_a_full_table_has_no_blank(name: str) -> None:
    run = filled(name)
    text = page(run)
    assert "not run" not in text
    assert all(line["seeds"] != "0" for line in lines_of(run))
    assert findings(run)


def test_what_a_shared_body_saves_and_costs() -> None:
    found = {one.name: one for one in findings(filled("complexity-deep"))}
    assert found["space of a shared body on MNIST"].value == pytest.approx(0.1)
    assert "500 kB more" in found["space of a shared body on MNIST"].words
    assert "10.00 points less" in found["space of a shared body on MNIST"].words
    assert found["AL over GAL, trips on CIFAR10"].value == 7
    assert found["label holder's part on MNIST"].value == pytest.approx(0.02)


def test_headlines_name_the_paper_and_the_way() -> None:
    found = {one.name: one for one in findings(filled("images"))}
    assert found["covered by GAL on MNIST"].value == pytest.approx((88.5 - 50) / 45)
    words = found["GAL, MNIST, 8 organizations"].words
    assert "accuracy in % 88.5 for the final model (mean of 4 seeds); the paper's best round" in words
    assert words.endswith("96.3.")


def test_no_way_where_joint_is_no_better_than_alone_and_nothing_of_demos() -> None:
    run = filled("cases", lambda cell: cell.dataset in {"ModelNet40", "MIMICL", "MIMICM demo"})
    names = {one.name for one in findings(run)}
    assert "covered by GAL on ModelNet40" in names
    assert "covered by GAL on MIMICL" not in names  # all made-up errors are alike
    assert not [name for name in names if "demo" in name]


# --- running


def small(name: str = "images") -> TableSpec:
    return part_of(name, sets=["MNIST"], organizations=[8], seeds=1)


def test_deep_cells_are_run_only_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Cell] = []

    def run(cell: Cell, sources: Sources) -> Outcome:
        seen.append(cell)
        return made_up(cell)

    run_with(monkeypatch, run)
    cache = Cache(tmp_path)
    [blank] = run_tables([small()], cache, Sources())
    assert seen == []
    assert figures_of(blank) == []
    [full] = run_tables([small()], cache, Sources(), deep_sets=["MNIST"])
    assert len(seen) == len(figures_of(full)) == 23
    counts: list[tuple[int, int]] = []
    run_tables([small()], cache, Sources(), on_run=lambda done, total, _: counts.append((done, total)))
    assert counts == [(23, 23)]
    assert len(seen) == 23


def bench(*words: str) -> Any:
    return CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, ["bench", "--anew", *words])


def test_without_torch_deep_runs_are_refused_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = bench("images", "--deep", "--results", str(tmp_path))
    assert isinstance(result.exception, MissingExtraError)
    assert "pip install 'gal-learn[deep]'" in str(result.exception)


def test_the_command_runs_deep_cells_after_saying_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    run_with(monkeypatch, lambda cell, sources: made_up(cell))
    words = ("cases", "--results", str(tmp_path), "--seeds", "1")  # a part has no pictures
    result = bench(*words, "--deep", "--dataset", "ModelNet40", "--dataset", "MIMICM")
    assert result.exit_code == 0, result.output
    assert "7 deep runs to do here" in result.output
    result = bench(*words, "--deep")
    assert "14 deep runs to do here" in result.output  # of eight sets five are not read here, one was run
    ran = {json.loads(path.read_text())["cell"]["dataset"] for path in tmp_path.rglob("*.json")}
    assert not ran & set(ON_REQUEST)


def test_a_blank_table_from_the_command(tmp_path: Path) -> None:
    result = bench("images", "--results", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert " runs were done. gal bench images --deep runs the rest" in " ".join(result.output.split())
    assert "not run" in (tmp_path / "images.md").read_text(encoding="utf-8")
    [facts] = json.loads(bench("images", "--results", str(tmp_path), "--json").stdout)
    assert len(facts["figures"]) == 106
    assert all(one["final"] == [] and one["verdict"] == "" for one in facts["figures"])
    assert {one["seeds"] for one in facts["figures"]} == {1, 2, 4, 8}


# --- kept outcomes


def test_kept_outcomes_outlive_the_sources_that_made_them(tmp_path: Path) -> None:
    cache, path = Cache(tmp_path / "cache"), tmp_path / "kept.jsonl"
    first, second, *_ = [cell for row in small().rows for cell in small().cells(row)]
    cache.put(first, made_up(first))
    assert keep([first, second], cache, "abc1234", path) == 1
    kept = read_kept(path)
    assert kept == {repr(first): replace(made_up(first), commit="abc1234")}
    [run] = run_tables([small()], Cache(tmp_path / "other"), Sources(), kept=kept)
    assert run.outcomes == kept
    assert "Kept from the sources of earlier commits: abc1234 (1)" in provenance_of(run)
    assert "abc1234" in to_csv(run)
    assert repr(first) not in map(repr, left_to_run([small()], cache, DEEP_SETS, kept=kept))
    assert keep([first, second], cache, "def5678", path) == 0, "it is the same outcome: its commit stays"
    cache.put(first, replace(made_up(first), scores=[1.0, 2.0]))
    assert keep([first], cache, "def5678", path) == 1
    assert read_kept(path)[repr(first)].commit == "def5678"


def test_a_broken_line_among_kept_outcomes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_text('{"cell": {}, "outcome": {}}\n')
    with pytest.raises(InvalidInputError, match="line 1 holds no outcome"):
        read_kept(path)


def test_what_is_kept_belongs_to_cells_of_the_tables() -> None:
    cells = {
        repr(cell) for table in read_tables().values() for row in table.rows for cell in table.cells(row)
    }
    strangers = [name for name in read_kept() if name not in cells]
    assert not strangers, "a row was changed: its outcomes no longer belong to it"


def test_the_page_opens_with_the_main_rows_side_by_side() -> None:
    run = some_of_images()
    lines = glance(run).splitlines()
    assert lines[2].startswith("| | Alone | AL | Late | Interm | Joint | GAL | GAL, shared body (DMS) |")
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| MNIST, 8 organizations"], "others were not run"
    assert "**89.5** / 96.3 ▼" in lines[4]
    assert page(run).index("| MNIST, 8 organizations |") < page(run).index("## 2 organizations")
    assert glance(filled("complexity-deep")) == ""
