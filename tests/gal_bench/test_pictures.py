"""What the pictures draw, on made-up runs: line data, labels and marks, not pixels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'gal-learn[figures]'")

from bench_runs import run_of
from gal.errors import MissingExtraError
from gal_bench import pictures
from gal_bench.cells import Cell, Outcome
from gal_bench.command import write_results
from gal_bench.runner import Run
from gal_bench.specs import RowSpec, TableSpec

SETS = ["Diabetes", "Wine"]
Maker = Callable[[RowSpec, Cell], Outcome]


def made_up(name: str, rows: Iterable[RowSpec], make: Maker, **options: Any) -> Run:
    """Rows of one table must differ in what they learn, or they share their outcomes."""
    given: dict[str, Any] = {"order": 1, "title": name, "paper": "", "sets": SETS, "organizations": [2, 8]}
    given |= {"protocols": ["per seed"], "seeds": dict.fromkeys(SETS, 2)}
    spec = TableSpec(name=name, rows=list(rows), **{**given, **options})
    return run_of(spec, make)


def row(name: str, **options: Any) -> RowSpec:
    return RowSpec(name=name, order=1, label=options.pop("label", name), **options)


def outcome(cell: Cell, scores: list[float], rates: Any = (), weights: Any = ()) -> Outcome:
    metric = "mad" if cell.dataset == "Diabetes" else "accuracy"
    return Outcome(metric, scores, list(rates), list(weights), None, "organization 1")


LEVELS = {"joint": 40.0, "alone": 60.0, "al": 50.0, "gal-linear": 42.0, "constant": 47.0}
RATES = {"constant": [1.0, 1.0, 1.0], "bounded": [0.9, 0.5, 0.3]}


def learned(row: RowSpec, cell: Cell) -> Outcome:
    """Seed 0 has three rounds, seed 1 ends after the second, two higher and with half the rate."""
    level = LEVELS.get(row.name, 45.0)
    long, rates = [70.0, level + 2, level + 1, level], RATES.get(row.name, [2.0, 2.0, 2.0])
    names = [f"organization {number + 1}" for number in range(int(cell.organizations))]
    weights = [{name: (k + 1) * (t + 1) / 100 for k, name in enumerate(names)} for t in range(3)]
    if cell.seed == 0:
        return outcome(cell, long, rates, weights)
    halved = [{name: value / 2 for name, value in one.items()} for one in weights]
    return outcome(cell, [value + 2 for value in long[:3]], [rate / 2 for rate in rates[:2]], halved[:2])


METHODS = {"joint": "joint", "alone": "alone", "al": "assisted_learning", "gal-linear": "gal"}


@pytest.fixture(scope="module")
def uci() -> Run:
    return made_up("uci", [row(name, method=method) for name, method in METHODS.items()], learned)


@pytest.fixture(scope="module")
def rates() -> Run:
    rows = [row(name, options={"line_search": name}) for name in ("constant", "bounded")]
    return made_up("rates", rows, learned, organizations=["most"])


def panels(figure: Any) -> Any:
    return figure.axes


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines()}


def test_rounds_are_means_over_seeds(uci: Run, rates: Run) -> None:
    scores, rate, weights = panels(pictures.rounds_figure(uci, "Diabetes", rates))
    drawn = lines(scores)
    assert list(drawn) == ["Joint", "GAL", "GAL, constant rate", "AL", "Alone"]
    for name, row_name in (("Joint", "joint"), ("GAL", "gal-linear"), ("GAL, constant rate", "constant")):
        level = LEVELS[row_name]  # seed 1 stays at its last value, level + 3
        np.testing.assert_allclose(drawn[name].get_ydata(), [71, level + 3, level + 2, level + 1.5])
    joint = scores.collections[0].get_paths()[0].vertices
    at_the_end = joint[joint[:, 0] == 3, 1]
    assert (at_the_end.min(), at_the_end.max()) == (pytest.approx(40), pytest.approx(43))  # one deviation
    assert scores.get_ylabel() == "MAD on test rows (lower is better)"
    np.testing.assert_allclose(lines(rate)["GAL, bounded rate"].get_ydata(), [0.675, 0.375, 0.3])
    by_name = lines(weights)
    assert len(by_name) == 8
    holder = by_name["organization 1 (label holder)"]
    np.testing.assert_allclose(holder.get_ydata(), [0.0075, 0.015, 0.03])
    assert holder.get_linewidth() > by_name["organization 2"].get_linewidth()


def test_noise_on_and_off_and_the_weights_of_the_disturbed() -> None:
    def noisy(row: RowSpec, cell: Cell) -> Outcome:
        weights = [{f"organization {k + 1}": 0.2 if k < 4 else 0.05 for k in range(8)}]
        return outcome(cell, [90.0, 80.0 - 10 * ("off" in row.name)], [1.0], weights)

    rows = [
        row(
            name,
            disturbance="answers",
            sigma=float(name.split("-")[1]),
            options={"weights": "uniform"} if "off" in name else {},
        )
        for name in pictures.NOISY
    ]
    run = made_up("noise", rows, noisy, organizations=[8])
    assert [name for name, _ in pictures.drawable({"noise": run})] == [
        f"noise-{one}-per seed" for one in SETS
    ]
    scores, weights = panels(pictures.noise(run, "Wine", "per seed"))
    drawn = lines(scores)
    np.testing.assert_allclose(drawn["σ = 5, weights off"].get_ydata(), [90, 70])
    thick = [line for line in weights.get_lines() if not line.get_label().startswith("_")]
    assert [line.get_ydata()[0] for line in thick] == [pytest.approx(0.2), pytest.approx(0.05)]


@pytest.mark.usefixtures("coarse_pictures")
def test_the_same_runs_give_the_same_bytes_and_parts_of_tables_no_pictures(
    uci: Run, rates: Run, tmp_path: Path
) -> None:
    runs = {"uci": uci, "rates": rates}
    first, again = (pictures.save_figures(runs, tmp_path / one) for one in ("a", "b"))
    assert [path.name for path in first] == ["rounds-Diabetes.png", "rounds-Wine.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    (tmp_path / "c").mkdir()
    part = Run(uci.table.model_copy(update={"part": "8"}), uci.outcomes)
    assert {path.suffix for path in write_results([part], tmp_path / "c")[0]} == {".csv", ".md"}


def test_without_matplotlib_tables_are_written(
    uci: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="gal-learn\\[figures\\]"):
        pictures.rounds_figure(uci, "Wine")
    written, why = write_results([uci], tmp_path)
    assert {path.suffix for path in written} == {".csv", ".md"}
    assert "figures" in why
