"""``gal bench``: a tiny version of every table, and formulas that must not be wrong."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from bench_runs import PLAIN, TABLES, eight, part_of, run_of
from gal.errors import ExperimentError
from gal.warnings import InterruptedWarning
from gal_bench import cells as running_module
from gal_bench.cache import (
    APART,
    COLUMNS,
    METER,
    NETWORKS,
    ROOT,
    Cache,
    deciding_files,
    fingerprint,
)
from gal_bench.cells import Cell, Outcome, Sources, run_cell
from gal_bench.data.datasets import Dataset
from gal_bench.pages.results import narrow, page, write_results
from gal_bench.pages.summaries import findings, share_covered, ways
from gal_bench.pages.tables import Figure, figures_of, to_csv, to_markdown
from gal_bench.runner import Run, run_tables
from gal_bench.runs import tabular_cells
from gal_bench.runs.tabular_cells import find_split
from gal_bench.specs import Printed, RowSpec, TableSpec
from gal_bench.spreading import Spread

ONE = Spread(n_jobs=1)
COMPOSED = importlib.util.find_spec("dp_accounting") is not None
"""Whether noise can be added up over rounds: the extra privacy."""
SMALL = [name for name, table in TABLES.items() if not table.deep and table.organizations != ["by name"]]


def sources() -> Sources:
    reference = os.environ.get("GAL_REFERENCE")
    return Sources(None, Path(reference) if reference else None)


def tiny(name: str) -> TableSpec:
    """One or two sets that scikit-learn ships, the fewest organizations, two seeds, two rounds;
    one epsilon, one row attacked.
    """
    table = TABLES[name]
    guaranteed = any(row.epsilon is not None for row in table.rows)
    sets = ["Diabetes"] if guaranteed else ["Diabetes", "Wine"]  # classes: see test_bench_privacy.py
    organizations = [one for one in table.organizations if isinstance(one, int)][:1]
    protocols = table.protocols if sources().reference is not None else ["per seed"]
    part = part_of(name, sets=sets, organizations=organizations, protocols=protocols, seeds=2)
    rows = [row for row in part.rows if row.delta is None or COMPOSED]
    epsilons = {row.privacy: row.epsilon for row in rows}
    rows = [row for row in rows if row.epsilon == epsilons[row.privacy]]
    attacked = [row.model_copy(update={"leak": row.leak and row is rows[-1]}) for row in rows]
    return part.model_copy(update={"rounds": 2, "rows": attacked})


LONG = {"improvements", "uci", "local-losses", "noise", "rates"}
"""Tables of many rows: even a tiny version takes a while."""


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one in LONG else one for one in SMALL]
)
def test_a_tiny_version_of_every_table(name: str, tmp_path: Path, weak_attackers: None) -> None:
    table = tiny(name)
    [run] = run_tables([table], Cache(tmp_path / "cache"), sources(), spread=ONE)
    figures = figures_of(run)
    assert {one.row.name for one in figures} == {row.name for row in table.rows if table.protocols_of(row)}
    assert all(np.isfinite(one.final).all() and len(one.final) == 2 for one in figures)
    text = page(run)
    for row in table.rows:
        if table.protocols_of(row):
            assert row.label in text
    lines = to_csv(run).splitlines()
    assert len(lines) == 1 + len(figures)
    written, _ = write_results([run], tmp_path)
    assert {path.suffix for path in written} >= {".csv", ".md"}


def test_a_tiny_version_of_the_scale_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"age": rng.normal(size=600), "debt": rng.normal(size=600), "town": rng.choice(list("ab"), 600)}
    )
    y = (X["age"] + 2 * X["debt"] + (X["town"] == "a") + rng.normal(size=600) > 0.5).to_numpy().astype(int)
    made = Dataset(
        name="Adult",
        X=X,
        y=y,
        classes=True,
        test=np.arange(450, 600),
        partition={"bank": ["age"], "register": ["debt", "town"]},
    )
    monkeypatch.setattr(tabular_cells, "_dataset", lambda *_: made)
    part = part_of("scale", sets=["Adult"], seeds=1)
    run = run_of(part, lambda _, cell: run_cell(cell, Sources()))
    found = {one.name: one.value for one in findings(run)}
    assert found["covered on Adult"] > 0.5
    gal = run.outcomes[repr(next(part.cells(part.rows[1])))]
    assert gal.facts["auc"] > 0.8
    assert gal.facts["trips"] > 0
    assert gal.facts["peak_memory"] > 1e7
    assert "AUC" in to_markdown(run)


# --- one run


def test_the_same_cell_gives_the_same_outcome() -> None:
    cell = Cell("Wine", 2, "per seed", 1, models=("GB", "SVM"), rounds=2, disturbance="answers", sigma=1.0)
    one, other = run_cell(cell, Sources()), run_cell(cell, Sources())
    assert one.scores == other.scores
    assert one.weights == other.weights
    assert run_cell(replace(cell, seed=2), Sources()).scores != one.scores


def test_scores_are_mean_absolute_errors_of_test_rows() -> None:
    """Joint with exact linear models is least squares: the score of round 1 is known."""
    cell = Cell(
        "Diabetes",
        2,
        "per seed",
        3,
        method="joint",
        models=("Exact linear",),
        options={"cross_validation": 0},
    )
    outcome = run_cell(cell, Sources())
    split = find_split(cell, Sources())
    plain = LinearRegression().fit(split.X_train, split.y_train)
    assert outcome.metric == "mad"
    assert outcome.scores[0] == pytest.approx(np.abs(split.y_test - split.y_train.mean()).mean())
    assert outcome.scores[1] == pytest.approx(
        np.abs(split.y_test - plain.predict(split.X_test)).mean(), rel=1e-4
    )


def test_al_and_gal_move_the_same_bytes_in_different_numbers_of_trips() -> None:
    common: dict[str, Any] = {"rounds": 3, "metered": True}
    gal = run_cell(Cell("Wine", 4, "per seed", 0, options={"cross_validation": 0}, **common), Sources())
    al = run_cell(Cell("Wine", 4, "per seed", 0, method="assisted_learning", **common), Sources())
    assert (
        gal.facts["sent"] == al.facts["sent"] == 3 * 3 * 142 * 3 * 4
    )  # rounds, others, rows, classes, float32
    assert gal.facts["received"] == al.facts["received"]
    assert (gal.facts["trips"], al.facts["trips"]) == (3, 9)


def test_disturbances_reach_the_second_half_only() -> None:
    plain = Cell("BreastCancer", 4, "per seed", 0, rounds=3, options={"cross_validation": 0})
    quiet = run_cell(plain, Sources())
    noisy = run_cell(replace(plain, disturbance="answers", sigma=5.0), Sources())
    first = noisy.weights[0]
    clean = first["organization 1"] + first["organization 2"]
    assert clean > 0.8
    assert clean > quiet.weights[0]["organization 1"] + quiet.weights[0]["organization 2"]


# --- the cache


def test_an_interrupted_bench_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tiny("rates").model_copy(update={"protocols": ["per seed"]})
    cache = Cache(tmp_path)
    ran: list[str] = []

    def noted(cell: Cell, sources: Sources) -> Outcome:
        ran.append(repr(cell))
        return PLAIN

    def stop_after_three(done: int, total: int, what: str) -> None:
        if done == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(running_module, "run_cell", noted)

    with pytest.raises(KeyboardInterrupt):
        run_tables([table], cache, Sources(), spread=ONE, on_run=stop_after_three)
    counts: list[tuple[int, int]] = []
    run_tables(
        [table],
        cache,
        Sources(),
        spread=ONE,
        on_run=lambda done, total, _: counts.append((done, total)),
    )
    assert counts[0][0] == 3
    assert counts[-1] == (counts[-1][1], counts[-1][1])
    assert len(counts) == 1 + counts[-1][1] - 3
    assert len(ran) == len(set(ran)) == counts[-1][1]


def test_ctrl_c_inside_a_run_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimator keeps its finished rounds; a table must not."""

    def interrupted(cell: Cell, sources: Sources) -> Outcome:
        warnings.warn("interrupted: the 4 finished rounds are kept", InterruptedWarning, stacklevel=1)
        return PLAIN

    monkeypatch.setattr(running_module, "run_cell", interrupted)
    table = tiny("rates").model_copy(update={"protocols": ["per seed"]})
    with pytest.raises(KeyboardInterrupt):
        run_tables([table], Cache(tmp_path), Sources(), spread=ONE)
    assert not list(tmp_path.rglob("*.json"))


def test_a_file_that_was_cut_off_is_run_again(tmp_path: Path) -> None:
    cache, cell = Cache(tmp_path), Cell("Wine", 2, "per seed", 0)
    outcome = PLAIN
    cache.put(cell, outcome)
    assert cache.get(cell) == outcome
    cache.path(cell).write_text(cache.path(cell).read_text()[:20])
    assert cache.get(cell) is None
    cache.path(cell).write_bytes(b"\xff\xfe")
    assert cache.get(cell) is None


def test_everything_that_decides_an_outcome_is_in_its_key(tmp_path: Path) -> None:
    cell = Cell("Wine", 2, "per seed", 0)
    cache = Cache(tmp_path)
    for change in (
        {"dataset": "Iris"},
        {"organizations": 4},
        {"protocol": "paper"},
        {"seed": 1},
        {"method": "joint"},
        {"models": ("SVM",)},
        {"options": {"weights": "uniform"}},
        {"local_losses": ("l1",)},
        {"partition": "skewed"},
        {"disturbance": "answers"},
        {"sigma": 5.0},
        {"rounds": 3},
    ):
        changed: Any = replace(cell, **change)
        assert cache.path(changed) != cache.path(cell), change
    assert len(fingerprint()) == 16


def names(paths: Iterable[Path]) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in paths}


USED = """
import sys
from gal_bench.cells import Cell, Sources, run_cell
run_cell(Cell("Wine", 2, "per seed", 0, rounds=1, leak=True, options={"cross_validation": 0}), Sources())
print(*(one.__file__ for name, one in sys.modules.items() if name.split(".")[0] in {"gal", "gal_bench"}))
"""


def test_the_fingerprint_covers_what_a_run_imports() -> None:
    done = subprocess.run([sys.executable, "-c", USED], capture_output=True, text=True, check=True)
    used, covered = names(map(Path, done.stdout.split())), names(deciding_files(leak=True))
    assert len(used & covered) > 100
    deciding_nothing = ("gal/errors.py", "gal/warnings.py", "gal/engine/observing.py", "gal/storage/")
    others = {name for name in used - covered if not name.startswith(deciding_nothing)}
    assert others == {f"gal_bench/{name}.py" for name in ("__init__", "cells", "data/sources")}
    assert [one for one in (*APART, *NETWORKS, *COLUMNS, *METER) if not [*ROOT.glob(f"{one}*")]] == []


def test_networks_and_tables_of_columns_have_fingerprints_of_their_own() -> None:
    tabular, deep = names(deciding_files()), names(deciding_files(deep=True))
    assert "gal_bench/runs/deep_cells.py" in deep - tabular
    assert any(name.startswith("gal/models/deep/") for name in deep - tabular)
    assert {"gal_bench/data/images.py", "gal_bench/data/physionet.py"} <= deep - tabular
    assert "gal_bench/runs/tabular_cells.py" in tabular - deep
    assert {"gal/core/algorithm.py", "gal/models/linear.py", "gal/engine/organization.py"} <= tabular & deep
    assert not any(name.startswith(("gal/cli", "gal/node", "gal_bench/pages")) for name in tabular | deep)
    assert fingerprint() != fingerprint(deep=True)


# --- tables


def figure(
    final: tuple[float, ...], paper: str | None, metric: str = "accuracy", protocol: str = "per seed"
) -> Figure:
    printed = None if paper is None else Printed.parse(paper)
    row = RowSpec(order=1, label="x")
    return Figure(row, "Wine", 8, protocol, metric, final, tuple(one + 1 for one in final), printed)


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
        ((0.876,), "0.88(0.0)", "auc", "official", ""),
    ],
)
def test_marks(final: tuple[float, ...], paper: str | None, metric: str, protocol: str, verdict: str) -> None:
    assert figure(final, paper, metric, protocol).verdict == verdict


def made_run(table: TableSpec, score: Any) -> Run:
    """A run whose outcomes are computed by ``score(cell)``."""

    def outcome(_: RowSpec, cell: Cell) -> Outcome:
        value, metric = score(cell), "mad" if cell.dataset in {"Diabetes", "BostonHousing"} else "accuracy"
        return replace(PLAIN, metric=metric, scores=[value], validation_loss=value)

    return run_of(table, outcome)


def test_a_row_that_chooses_takes_the_lowest_validation_loss() -> None:
    part = eight("uci", "Wine", seeds=2)
    run = made_run(part, lambda cell: {"Linear": 5.0, "GB": 3.0, "SVM": 4.0}[cell.models[0]] + cell.seed)
    chosen = next(row for row in part.rows if row.choose_among)
    assert [one.final for one in run.at(chosen, "Wine", 8, "per seed")] == [3.0, 4.0]


def test_covered_is_the_share_of_the_way() -> None:
    part = eight("uci", "Diabetes", "Wine")
    scores = {
        ("alone", "Diabetes"): 60.0,
        ("joint", "Diabetes"): 40.0,
        ("alone", "Wine"): 60.0,
        ("joint", "Wine"): 100.0,
    }
    run = made_run(
        part,
        lambda cell: scores.get((cell.method, cell.dataset), 45.0 if cell.dataset == "Diabetes" else 90.0),
    )
    assert ways(run, "per seed", 8)["gal-linear"] == {"Diabetes": 0.75, "Wine": 0.75}
    found = {one.name: one.value for one in findings(run)}
    assert found["covered by GAL, Linear, 8 organizations"] == 0.75
    assert np.isnan(share_covered(1.0, 1.0, 1.0))


def test_weights_on_are_compared_with_weights_off() -> None:
    part = eight("noise", "Diabetes", "Wine")

    def score(cell: Cell) -> float:
        on = "weights" not in cell.options
        if cell.dataset == "Diabetes":
            return 40.0 if on else 50.0  # lower is better: on wins
        return (
            90.0 if on == (cell.disturbance == "columns") else 95.0
        )  # on loses, but on noise columns off does

    found = {one.name: one.value for one in findings(made_run(part, score))}
    # Diabetes: 5 of 5. Wine: answers and residual lose (4), columns lose too (90 < 95).
    assert found["weights on at least as good as off, per seed, all noisy cells"] == pytest.approx(9 / 10)


def test_a_failing_run_says_which(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = tiny("rates").model_copy(update={"protocols": ["per seed"]})
    broken = table.rows[0].model_copy(update={"options": {"weights": "heavy"}})
    with pytest.raises(
        ExperimentError,
        match=r"Diabetes, 8 organizations, per seed, seed 0: gal Linear, weights=heavy: .*heavy",
    ):
        run_tables([table.model_copy(update={"rows": [broken]})], Cache(tmp_path), Sources(), spread=ONE)


def test_a_part_of_a_table_has_a_name_of_its_own() -> None:
    part = part_of("uci", organizations=[8], sets=["Wine"])
    assert part.file_name == "uci-8-Wine"
    assert narrow(TABLES["scale"], sets=["Wine"]) is None
    iris = part_of("rates", organizations=[4])
    assert iris.sets == ["Iris"]


def test_other_seeds_are_other_runs() -> None:
    part = part_of("images", sets=["MNIST"], organizations=[8], seeds=2, first_seed=10)
    assert part.file_name == "images-8-MNIST-2-seeds-from-seed-10"
    seeds = {row.label: [cell.seed for cell in part.cells(row)] for row in part.rows}
    assert seeds["GAL"] == [10, 11]
    assert seeds["Late"] == [10]


def test_sets_without_a_way_to_go_are_left_out_of_the_mean_and_named() -> None:
    part = eight("uci", "Diabetes", "Wine")
    scores = {("alone", "Diabetes"): 60.0, ("joint", "Diabetes"): 40.0}
    run = made_run(part, lambda cell: scores.get((cell.method, cell.dataset), 50.0))
    found = next(one for one in findings(run) if one.name.startswith("covered"))
    assert found.value == 0.5
    assert "mean over 1 sets; without Wine" in found.words
