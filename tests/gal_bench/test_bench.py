"""Runs of ``gal bench``: a tiny version of every table, what one run is, outcomes on disk, plans."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from bench_runs import PLAIN, TABLES, deep_runs_by, made_up, part_of, run_of
from gal.errors import ExperimentError, InvalidInputError
from gal.warnings import InterruptedWarning
from gal_bench import outcomes as outcomes_module
from gal_bench import runner
from gal_bench.cells import Cell, Outcome, Sources
from gal_bench.command import write_results
from gal_bench.data.datasets import Dataset
from gal_bench.figures import figures_of
from gal_bench.outcomes import APART, KEPT, ROOT, Outcomes, deciding_files
from gal_bench.pages import to_csv
from gal_bench.runner import FAILED, main, run_cell, run_tables, write_plan
from gal_bench.runs import tabular_cells
from gal_bench.runs.tabular_cells import find_split
from gal_bench.specs import TableSpec

SMALL = [name for name, table in TABLES.items() if not table.deep and table.organizations != ["by name"]]
LONG = {"improvements", "uci", "local-losses", "noise", "rates"}
"""Tables of many rows: even a tiny version takes a while."""


def sources() -> Sources:
    reference = os.environ.get("GAL_REFERENCE")
    return Sources(None, Path(reference) if reference else None)


def tiny(name: str) -> TableSpec:
    """One or two sets that scikit-learn ships, the fewest organizations, one seed, two rounds; the first
    epsilon, the last row attacked.
    """
    table = TABLES[name]
    guaranteed = any(row.epsilon is not None for row in table.rows)
    sets = ["Diabetes"] if guaranteed else ["Diabetes", "Wine"]  # classes: see test_bench_privacy.py
    organizations = [one for one in table.organizations if isinstance(one, int)][:1]
    protocols = table.protocols if sources().reference is not None else ["per seed"]
    part = part_of(name, sets=sets, organizations=organizations, protocols=protocols, seeds=1)
    first = {row.privacy: row.epsilon for row in reversed(part.rows)}
    rows = [row for row in part.rows if row.epsilon == first[row.privacy]]
    attacked = [row.model_copy(update={"leak": row.leak and row is rows[-1]}) for row in rows]
    return part.model_copy(update={"rounds": 2, "rows": attacked})


def tiny_rates() -> TableSpec:
    return tiny("rates").model_copy(update={"protocols": ["per seed"]})


def known(folder: Path, **how: Any) -> Outcomes:
    return Outcomes(folder / "outcomes.jsonl", **how)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one in LONG else one for one in SMALL]
)
def test_a_tiny_version_of_every_table(name: str, tmp_path: Path, weak_attackers: None) -> None:
    table = tiny(name)
    [run] = run_tables([table], known(tmp_path), sources(), jobs=1)
    figures = figures_of(run)
    assert {one.row.name for one in figures} == {row.name for row in table.rows if table.protocols_of(row)}
    assert all(np.isfinite(one.final).all() and len(one.final) == 1 for one in figures)
    assert len(to_csv(run).splitlines()) == 1 + len(figures)
    written, _ = write_results([run], tmp_path)
    text = written[1].read_text(encoding="utf-8")
    assert all(one.row.label in text for one in figures)


def test_a_tiny_version_of_the_scale_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"age": rng.normal(size=600), "debt": rng.normal(size=600), "town": rng.choice(list("ab"), 600)}
    )
    y = (X["age"] + 2 * X["debt"] + (X["town"] == "a") + rng.normal(size=600) > 0.5).to_numpy().astype(int)
    parts = {"bank": ["age"], "register": ["debt", "town"]}
    made = Dataset("Adult", X, y, classes=True, test=np.arange(450, 600), partition=parts)
    monkeypatch.setattr(tabular_cells, "_dataset", lambda *_: made)
    part = part_of("scale", sets=["Adult"], seeds=1)
    run = run_of(part, lambda _, cell: run_cell(cell, Sources()))
    gal = run.outcomes[repr(next(part.cells(part.rows[1])))]
    assert gal.facts["auc"] > 0.8
    assert gal.facts["trips"] > 0
    assert gal.facts["peak_memory"] > 1e7


# --- one run


def test_the_same_cell_gives_the_same_outcome() -> None:
    cell = Cell("Wine", 2, "per seed", 1, models=("GB", "SVM"), rounds=2, disturbance="answers", sigma=1.0)
    one, other = run_cell(cell, Sources()), run_cell(cell, Sources())
    assert (one.scores, one.weights) == (other.scores, other.weights)
    assert run_cell(replace(cell, seed=2), Sources()).scores != one.scores


def test_scores_are_mean_absolute_errors_of_test_rows() -> None:
    """Joint with exact linear models is least squares: the score of round 1 is known."""
    options = {"cross_validation": 0}
    cell = Cell("Diabetes", 2, "per seed", 3, method="joint", models=("Exact linear",), options=options)
    outcome = run_cell(cell, Sources())
    split = find_split(cell, Sources())
    plain = LinearRegression().fit(split.X_train, split.y_train).predict(split.X_test)
    assert outcome.metric == "mad"
    assert outcome.scores[0] == pytest.approx(np.abs(split.y_test - split.y_train.mean()).mean())
    assert outcome.scores[1] == pytest.approx(np.abs(split.y_test - plain).mean(), rel=1e-4)


def test_al_and_gal_move_the_same_bytes_in_different_numbers_of_trips() -> None:
    common: dict[str, Any] = {"rounds": 3, "metered": True}
    gal = run_cell(Cell("Wine", 4, "per seed", 0, options={"cross_validation": 0}, **common), Sources())
    al = run_cell(Cell("Wine", 4, "per seed", 0, method="assisted_learning", **common), Sources())
    # rounds, others, rows, classes, float32
    assert gal.facts["sent"] == al.facts["sent"] == 3 * 3 * 142 * 3 * 4
    assert gal.facts["received"] == al.facts["received"]
    assert (gal.facts["trips"], al.facts["trips"]) == (3, 9)


# --- outcomes on disk


def test_an_interrupted_bench_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def noted(cell: Cell, sources: Sources) -> Outcome:
        ran.append(repr(cell))
        return PLAIN

    def stop_after_three(done: int, total: int, what: str) -> None:
        if done == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_cell", noted)
    with pytest.raises(KeyboardInterrupt):
        run_tables([tiny_rates()], known(tmp_path), Sources(), jobs=1, on_run=stop_after_three)
    counts: list[tuple[int, int]] = []
    [run] = run_tables(
        [tiny_rates()],
        known(tmp_path),
        Sources(),
        jobs=1,
        on_run=lambda done, total, _: counts.append((done, total)),
    )
    total = counts[-1][1]
    assert counts == [(done, total) for done in range(3, total + 1)]
    assert len(ran) == len(set(ran)) == len(run.outcomes) == total


def test_ctrl_c_inside_a_run_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimator keeps its finished rounds; a table must not."""

    def interrupted(cell: Cell, sources: Sources) -> Outcome:
        warnings.warn("interrupted: the 4 finished rounds are kept", InterruptedWarning, stacklevel=1)
        return PLAIN

    monkeypatch.setattr(runner, "run_cell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_tables([tiny_rates()], known(tmp_path), Sources(), jobs=1)
    assert (tmp_path / "outcomes.jsonl").read_text() == ""


def test_a_line_that_was_cut_off_is_run_again(tmp_path: Path) -> None:
    first, second = (Cell("Wine", 2, "per seed", seed) for seed in (0, 1))
    path = tmp_path / "outcomes.jsonl"
    for cell in (first, second):
        known(tmp_path).put(cell, PLAIN)
    path.write_bytes(path.read_bytes()[:-30])
    again = known(tmp_path)
    assert (again.get(first), again.get(second)) == (PLAIN, None)
    again.put(second, PLAIN)
    assert known(tmp_path).get(second) == PLAIN


def test_outcomes_of_other_sources_count_for_deep_runs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    column, deep = Cell("Wine", 2, "per seed", 0), Cell("MNIST", 8, "official", 77, models=("Network",))
    monkeypatch.setattr(outcomes_module, "current_commit", lambda: "abc1234")
    assert known(tmp_path).put(deep, made_up(deep)).commit == "abc1234"
    known(tmp_path).put(column, PLAIN)
    assert known(tmp_path).get(column) == PLAIN
    monkeypatch.setattr(outcomes_module, "fingerprint", lambda: "other sources")
    assert known(tmp_path).get(column) is None
    assert known(tmp_path).get(deep) == made_up(deep)


def test_what_is_kept_belongs_to_cells_of_the_tables() -> None:
    cells = {
        repr(replace(cell, seed=0))
        for table in TABLES.values()
        for row in table.rows
        for cell in table.cells(row)
    }
    lines = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    unknown = [one for one in lines if repr(Cell.from_json(one["cell"] | {"seed": 0})) not in cells]
    assert not unknown, "a row was changed: its outcomes no longer belong to it"
    assert all(one["outcome"]["commit"] and one["outcome"]["device"] for one in lines)


USED = """
import sys
from gal_bench.cells import Cell, Sources
from gal_bench.runner import run_cell
run_cell(Cell("Wine", 2, "per seed", 0, rounds=1, leak=True, options={"cross_validation": 0}), Sources())
print(*(one.__file__ for name, one in sys.modules.items() if name.split(".")[0] in {"gal", "gal_bench"}))
"""


def test_the_fingerprint_covers_what_a_run_imports() -> None:
    done = subprocess.run([sys.executable, "-c", USED], capture_output=True, text=True, check=True)
    used, covered = (
        {path.relative_to(ROOT).as_posix() for path in paths}
        for paths in (map(Path, done.stdout.split()), deciding_files())
    )
    assert len(used & covered) > 90
    deciding_nothing = ("gal/errors.py", "gal/warnings.py", "gal/learner/observing.py", "gal/storage/")
    others = {name for name in used - covered if not name.startswith(deciding_nothing)}
    plain = {"__init__", "cells", "outcomes", "runner", "data/sources"}
    assert others == {f"gal_bench/{name}.py" for name in plain}
    assert [one for one in APART if not [*ROOT.glob(f"{one}*")]] == []


# --- what is refused


def test_a_failing_run_says_which(tmp_path: Path) -> None:
    broken = tiny_rates().rows[0].model_copy(update={"options": {"weights": "heavy"}})
    said = r"Diabetes, 8 organizations, per seed, seed 0: gal Linear, weights=heavy: .*heavy"
    table = tiny_rates().model_copy(update={"rows": [broken]})
    with pytest.raises(ExperimentError, match=said):
        run_tables([table], known(tmp_path), Sources(), jobs=1)


# --- deep runs, here and on another machine


def test_tables_share_their_runs() -> None:
    """GAL with eight organizations stands in three tables and is run once; a pooled model, too."""
    deep = [table for table in TABLES.values() if table.deep]
    cells = [cell for table in deep for row in table.rows for cell in table.cells(row)]
    assert len(runner.in_order(deep)) == len({repr(cell) for cell in cells}) < len(cells)
    joint = [cell for cell in runner.in_order([TABLES["images"]]) if cell.method == "joint"]
    assert {cell.organizations for cell in joint} == {1}


CELLS = [
    Cell("MNIST", 8, "official", 0, models=("Network",)),
    Cell("CIFAR10", 8, "official", 0, models=("Network",)),
    Cell("MNIST", 8, "official", 1, models=("Network",)),
]


def test_a_plan_resumes_after_failures_and_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "current_commit", lambda: "abc1234")
    write_plan(CELLS, tmp_path / "plan.json")
    words = [str(tmp_path / "plan.json"), str(tmp_path / "outcomes.jsonl"), str(tmp_path)]

    def run(failure: BaseException | None) -> int:
        def fail(cell: Cell, sources: Sources) -> Outcome:
            if cell.dataset == "CIFAR10" and failure is not None:
                raise failure
            return made_up(cell)

        deep_runs_by(monkeypatch, fail)
        return main(words)

    with pytest.raises(KeyboardInterrupt):
        run(KeyboardInterrupt())
    assert run(RuntimeError("CUDA error: an illegal memory access")) == FAILED
    assert "stopped: after a CUDA error" in capsys.readouterr().out
    assert run(InvalidInputError("its file is missing")) == FAILED
    said = capsys.readouterr().out
    assert "2 runs to do, 1 done before" in said
    assert "its file is missing" in said
    assert "seed 1: gal Network: accuracy 89 on NVIDIA H200" in said
    assert run(None) == 0
    assert "1 runs to do, 2 done before" in capsys.readouterr().out
    assert [known(tmp_path).get(cell) for cell in CELLS] == [made_up(cell) for cell in CELLS]


BARE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pandas", "pydantic", "rich", "typer", "skops", "matplotlib", "grpc"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from gal_bench.runner import main
sys.exit(main(sys.argv[1:]))
"""


def test_numpy_scipy_scikit_learn_and_torch_are_all_that_a_plan_needs(tmp_path: Path) -> None:
    """A run there ends with an outcome or for want of data, never for want of a package that is not there."""
    pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")
    write_plan(CELLS, tmp_path / "plan.json")
    words = [str(tmp_path / name) for name in ("plan.json", "outcomes.jsonl", "nothing")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", BARE, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == FAILED, done.stdout + done.stderr
    assert done.stdout.count("MissingDataError: ") >= 3, done.stdout + done.stderr
