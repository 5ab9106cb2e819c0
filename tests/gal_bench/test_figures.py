"""What tables say, on made-up outcomes: figures, marks, findings, pages, blank cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench_runs import DEVICE, PLAIN, TABLES, eight, made_up, part_of, run_of
from gal_bench.cells import Cell
from gal_bench.figures import Figure, every_figure, findings, share_of_gain, shares_of_gain
from gal_bench.pages import page, to_csv
from gal_bench.runner import Run
from gal_bench.specs import Printed, RowSpec, TableSpec, narrow


def by_score(table: TableSpec, score: Callable[[Cell], float]) -> Run:
    """A run whose outcomes are computed by ``score(cell)``."""
    numbers = {"Diabetes", "BostonHousing"}
    return run_of(
        table,
        lambda _, cell: replace(
            PLAIN,
            metric="mad" if cell.dataset in numbers else "accuracy",
            scores=[score(cell)],
            validation_loss=score(cell),
        ),
    )


@pytest.mark.parametrize(
    ("final", "paper", "metric", "protocol", "verdict"),
    [
        ((90.0, 92.0), "95.0(1.0)", "accuracy", "per seed", "worse"),
        ((98.0, 98.0), "95.0(1.0)", "accuracy", "per seed", "better"),
        ((95.8, 95.8), "95.0(1.0)", "accuracy", "per seed", ""),
        ((90.0, 98.0), "90.1(0.1)", "accuracy", "per seed", ""),  # our spread is the larger one
        ((3.0, 3.0), "3.5(0.1)", "mad", "per seed", "better"),
        ((4.0, 4.0), "3.5(0.1)", "mad", "per seed", "worse"),
        ((94.0, 94.0), "95.0(0.0)", "accuracy", "paper", ""),  # their protocol: the best round is compared
        ((94.0, 94.0), "95.0(0.0)", "accuracy", "per seed", "worse"),
        ((94.0, 94.0), None, "accuracy", "per seed", ""),
        # An AUC is compared by its two decimals.
        ((0.884,), "0.88(0.0)", "auc", "official", ""),
        ((0.886,), "0.88(0.0)", "auc", "official", "better"),
        ((0.874,), "0.88(0.0)", "auc", "official", "worse"),
    ],
)
def test_marks(final: tuple[float, ...], paper: str | None, metric: str, protocol: str, verdict: str) -> None:
    printed = None if paper is None else Printed.parse(paper)
    best, row = tuple(one + 1 for one in final), RowSpec(order=1, label="x")
    assert Figure(row, "Wine", 8, protocol, metric, final, best, printed).verdict == verdict


def test_a_row_that_chooses_takes_the_lowest_validation_loss() -> None:
    part = eight("uci", "Wine", seeds=2)
    run = by_score(part, lambda cell: {"Linear": 5.0, "GB": 3.0, "SVM": 4.0}[cell.models[0]] + cell.seed)
    chosen = next(row for row in part.rows if row.choose_among)
    assert [one.final for one in run.at(chosen, "Wine", 8, "per seed")] == [3.0, 4.0]


def test_the_share_of_the_pooling_gain() -> None:
    """A set without a gain to reach is left out of the mean, and named."""
    part = eight("uci", "Diabetes", "Wine", "Blob")
    scores = {"Diabetes": (60.0, 40.0, 45.0), "Wine": (60.0, 100.0, 80.0), "Blob": (50.0, 50.0, 50.0)}
    methods = {"alone": 0, "joint": 1}
    run = by_score(part, lambda cell: scores[cell.dataset][methods.get(cell.method, 2)])
    assert shares_of_gain(run, 8)["gal-linear"] == {"Diabetes": 0.75, "Wine": 0.5}
    scores["Blob"] = (50.0, 51.0, 51.0)
    run = by_score(part.model_copy(update={"most_seeds": 2}), lambda cell: _spread(cell, scores, methods))
    [found] = [one for one in findings(run) if "pooling gain" in one]
    assert "GAL, Linear reaches 62.5% of the pooling gain (mean over 2 sets; without Blob" in found
    assert np.isnan(share_of_gain(1.0, 1.0, 1.0))


def _spread(cell: Cell, scores: Any, methods: dict[str, int]) -> float:
    """On Blob seeds differ by more than Joint gains."""
    noise = 4.0 * cell.seed if cell.dataset == "Blob" else 0.0
    return float(scores[cell.dataset][methods.get(cell.method, 2)] + noise)


def test_weights_on_are_compared_with_weights_off() -> None:
    def score(cell: Cell) -> float:
        on = "weights" not in cell.options
        if cell.dataset == "Diabetes":
            return 40.0 if on else 50.0  # lower is better: on wins
        return 90.0 if on == (cell.disturbance == "columns") else 95.0  # on wins, but on noise columns

    found = " ".join(findings(by_score(eight("noise", "Diabetes", "Wine"), score)))
    assert "at least as good as with equal ones in 9 of 10" in found


def test_a_part_of_a_table_has_a_name_of_its_own() -> None:
    assert part_of("uci", organizations=[8], sets=["Wine"]).file_name == "uci-8-Wine"
    assert narrow(TABLES["scale"], sets=["Wine"]) is None
    assert part_of("rates", organizations=[4]).sets == ["Iris"]
    part = part_of("images", sets=["MNIST"], organizations=[8], seeds=2, first_seed=10)
    assert part.file_name == "images-8-MNIST-2-seeds-from-seed-10"
    seeds = {row.label: [cell.seed for cell in part.cells(row)] for row in part.rows}
    assert (seeds["GAL"], seeds["Late"]) == ([10, 11], [10])


# --- deep tables, of which some was run


def filled(name: str, wanted: Callable[[Cell], bool] = lambda cell: True) -> Run:
    """A deep table with the outcomes of the cells that are wanted."""
    return run_of(TABLES[name], lambda _, cell: made_up(cell) if wanted(cell) else None)


def some_of_images() -> Run:
    """Eight organizations on MNIST only, GAL and Alone; of GAL's four seeds two."""
    return filled(
        "images",
        lambda cell: (
            (cell.dataset, cell.organizations, cell.models) == ("MNIST", 8, ("Network",))
            and (cell.method in {"gal", "alone"} and not cell.options and cell.seed < 2)
        ),
    )


def test_a_page_says_what_was_run_and_what_was_not() -> None:
    text = page(some_of_images())
    lines = [line for line in text.split("## 8 organizations")[1].splitlines() if line.startswith("| ")]
    by_row = {line.split(" | ")[0].strip("| "): line for line in lines}
    assert "**89.5 (0.5)**<br>best 90.4 (0.5)<br>2 of 4 seeds<br>paper 96.3 (0.6) ▼" in by_row["GAL"]
    assert by_row["GAL"].endswith("| not run<br>paper 74.3 (0.2) |")
    assert "**50.0**<br>best 50.5<br>paper 24.2 (0.1) ▲" in by_row["Alone"]
    glance, _, rest = text.partition("\n- ")
    assert "| MNIST, 8 organizations | **50.0** / 24.2 ▲ |" in glance
    assert "CIFAR10, 8" not in glance  # nothing of it was run
    said = " ".join(rest.split())
    runs = len({repr(cell) for row in TABLES["images"].rows for cell in TABLES["images"].cells(row)})
    assert f"3 of {runs} runs were done on {DEVICE} (3). Commits of the sources: abc1234 (3)." in said
    assert "`gal bench images --deep` runs the rest" in said


def test_csv_is_empty_where_nothing_was_run() -> None:
    run = some_of_images()
    lines = list(csv.DictReader(io.StringIO(to_csv(run))))
    assert len(lines) == len(every_figure(run)) == 106
    done = [line for line in lines if line["seeds"] != "0"]
    assert {(one["row"], one["organizations"], one["seeds"]) for one in done} == {
        ("GAL", "8", "2"),
        ("Alone", "8", "1"),
    }
    assert all((one["device"], one["commit"]) == (DEVICE, "abc1234") for one in done)
    blank = [line for line in lines if line["seeds"] == "0"]
    assert all(one["final mean"] == one["best on test std"] == one["verdict"] == "" for one in blank)
    assert any(one["paper mean"] for one in blank)


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.deep])
def test_a_full_deep_table_has_no_blank(name: str) -> None:
    run = filled(name)
    assert "not run" not in page(run)
    assert "0" not in {one["seeds"] for one in csv.DictReader(io.StringIO(to_csv(run)))}


def test_no_share_where_joint_is_no_better_than_alone_and_nothing_of_demos() -> None:
    assert any("MNIST, 8 organizations: GAL reaches 85.6%" in one for one in findings(filled("images")))
    found = " ".join(one for one in findings(filled("cases")) if "pooling gain" in one)
    assert "ModelNet40" in found
    assert "MIMICL" not in found  # all made-up errors are alike
    assert "demo" not in found
