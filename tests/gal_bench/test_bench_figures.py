"""What the figures draw, on made-up runs: line data, labels and marks, not pixels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'gal-learn[figures]'")

from gal.errors import InvalidInputError, MissingExtraError
from gal.evaluate import drawing
from gal_bench.cells import Cell, Outcome
from gal_bench.pictures import figures, round_drawing, way_figure
from gal_bench.runner import Run
from gal_bench.specs import RowSpec, TableSpec

SETS = ["Diabetes", "Wine"]
Maker = Callable[[RowSpec, Cell], Outcome]


def table(name: str, rows: Iterable[RowSpec], **options: Any) -> TableSpec:
    given: dict[str, Any] = {
        "order": 1,
        "title": name,
        "paper": "",
        "sets": SETS,
        "organizations": [2, 8],
        "protocols": ["per seed"],
        "seeds": dict.fromkeys([*SETS, "Iris"], 2),
    }
    return TableSpec(name=name, rows=list(rows), **{**given, **options})


def made_up(spec: TableSpec, make: Maker) -> Run:
    return Run(spec, {repr(cell): make(row, cell) for row in spec.rows for cell in spec.cells(row)})


def outcome(
    cell: Cell,
    scores: list[float],
    rates: Iterable[float] = (),
    weights: Iterable[dict[str, float]] = (),
) -> Outcome:
    metric = "mad" if cell.dataset == "Diabetes" else "accuracy"
    return Outcome(metric, scores, list(rates), list(weights), None, "organization 1", "split")


def row(name: str, **options: Any) -> RowSpec:
    """Rows of one table must differ in what they learn, or they share their outcomes."""
    return RowSpec(name=name, order=1, label=options.pop("label", name), **options)


def organizations(cell: Cell) -> list[str]:
    return [f"organization {number + 1}" for number in range(int(cell.organizations))]


LEVELS = {"joint": 40.0, "alone": 60.0, "al": 50.0, "gal-linear": 42.0, "constant": 47.0}
RATES = {"searched": [3.0, 2.0, 1.0], "constant": [1.0, 1.0, 1.0], "bounded": [0.9, 0.5, 0.3]}


def learned(row: RowSpec, cell: Cell) -> Outcome:
    """Seed 0 has three rounds, seed 1 ends after the second, two higher and with half the rate."""
    level = LEVELS.get(row.name, 45.0)
    long = [70.0, level + 2, level + 1, level]
    rates = RATES.get(row.name, [2.0, 2.0, 2.0])
    names = organizations(cell)
    weights = [{name: (k + 1) * (t + 1) / 100 for k, name in enumerate(names)} for t in range(3)]
    if cell.seed == 0:
        return outcome(cell, long, rates, weights)
    half_weights = [{name: value / 2 for name, value in one.items()} for one in weights]
    return outcome(
        cell, [value + 2 for value in long[:3]], [rate / 2 for rate in rates[:2]], half_weights[:2]
    )


@pytest.fixture(scope="module")
def uci() -> Run:
    methods = {"joint": "joint", "alone": "alone", "al": "assisted_learning", "gal-linear": "gal"}
    return made_up(table("uci", [row(name, method=method) for name, method in methods.items()]), learned)


@pytest.fixture(scope="module")
def rates() -> Run:
    rows = [row("searched", label="line search")]
    rows += [
        row(name, options={"line_search": name}, label=f"{name} rates") for name in ("constant", "bounded")
    ]
    return made_up(table("rates", rows, organizations=["most"]), learned)


def panels(figure: Any) -> Any:
    return figure.axes


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines()}


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def heights(axes: Any) -> dict[str, int]:
    return {tick.get_text().replace("\n", " "): y for y, tick in enumerate(axes.get_yticklabels())}


# Figure 4


def test_scores_are_means_over_seeds_that_keep_their_last_value(uci: Run, rates: Run) -> None:
    scores = panels(figures.rounds_figure(uci, rates, "Diabetes"))[0]
    drawn = lines(scores)
    assert legend(scores) == ["Joint", "GAL", "GAL, constant rate", "AL", "Alone"]
    for name, row_name in (
        ("Joint", "joint"),
        ("Alone", "alone"),
        ("AL", "al"),
        ("GAL", "gal-linear"),
        ("GAL, constant rate", "constant"),
    ):
        level = LEVELS[row_name]
        np.testing.assert_array_equal(drawn[name].get_xdata(), [0, 1, 2, 3])
        # before, after round 1, 2, and 3, where seed 1 stays at level + 3
        np.testing.assert_allclose(drawn[name].get_ydata(), [71, level + 3, level + 2, level + 1.5])


def test_bands_are_one_standard_deviation(uci: Run, rates: Run) -> None:
    scores = panels(figures.rounds_figure(uci, rates, "Diabetes"))[0]
    joint = scores.collections[0].get_paths()[0].vertices
    at_the_end = joint[joint[:, 0] == 3, 1]
    assert at_the_end.min() == pytest.approx(40.0)  # 40 and 43: mean 41.5, standard deviation 1.5
    assert at_the_end.max() == pytest.approx(43.0)


def test_metric_is_on_the_axis(uci: Run, rates: Run) -> None:
    assert (
        panels(figures.rounds_figure(uci, rates, "Diabetes"))[0].get_ylabel()
        == "MAD on test rows (lower is better)"
    )
    assert panels(figures.rounds_figure(uci, rates, "Wine"))[0].get_ylabel() == "accuracy on test rows, in %"


def test_rates_are_means_over_the_seeds_that_have_the_round(uci: Run, rates: Run) -> None:
    panel = panels(figures.rounds_figure(uci, rates, "Diabetes"))[1]
    drawn = lines(panel)
    assert legend(panel) == ["line search", "constant rates", "bounded rates"]
    np.testing.assert_array_equal(drawn["line search"].get_xdata(), [1, 2, 3])
    np.testing.assert_allclose(drawn["line search"].get_ydata(), [2.25, 1.5, 1.0])
    np.testing.assert_allclose(drawn["constant rates"].get_ydata(), [0.75, 0.75, 1.0])
    np.testing.assert_allclose(drawn["bounded rates"].get_ydata(), [0.675, 0.375, 0.3])


def test_weights_have_a_line_per_organization_with_the_label_holder_marked(uci: Run, rates: Run) -> None:
    panel = panels(figures.rounds_figure(uci, rates, "Wine"))[2]
    drawn = lines(panel)
    assert set(drawn) == {f"organization {number}" for number in range(1, 9)}
    for number in range(1, 9):
        expected = np.array([0.75 * number, 0.75 * 2 * number, 3 * number]) / 100
        np.testing.assert_allclose(drawn[f"organization {number}"].get_ydata(), expected)
    assert set(texts(panel)) == set("12345678")
    assert legend(panel) == ["label holder", "others, by number"]
    widths = {name: line.get_linewidth() for name, line in drawn.items()}
    assert all(widths["organization 1"] > width for name, width in widths.items() if name != "organization 1")
    handle = panel.get_legend().get_lines()[0]
    assert handle.get_linewidth() == widths["organization 1"]


def test_lines_differ_without_colour(uci: Run, rates: Run) -> None:
    figure = figures.rounds_figure(uci, rates, "Wine")
    for panel in panels(figure)[:2]:
        looks = [
            (
                str(line._unscaled_dash_pattern),
                line.get_marker(),
                line.get_markerfacecolor() == line.get_color(),
            )
            for line in panel.get_lines()
        ]
        assert len(set(looks)) == len(looks)


def test_iris_has_four_organizations() -> None:
    spec = {"sets": ["Iris"], "organizations": [2, 4]}
    methods = {"joint": "joint", "alone": "alone", "al": "assisted_learning", "gal-linear": "gal"}
    uci = made_up(table("uci", [row(name, method=one) for name, one in methods.items()], **spec), learned)
    rows = [row("searched")] + [row(name, options={"line_search": name}) for name in ("constant", "bounded")]
    rates = made_up(table("rates", rows, sets=["Iris"], organizations=["most"]), learned)
    figure = figures.rounds_figure(uci, rates, "Iris")
    assert len(figure.axes[2].get_lines()) == 4
    assert "4 organizations" in figure.get_suptitle()


def test_a_run_without_rounds_is_drawn(rates: Run) -> None:
    methods = {"joint": "joint", "alone": "alone", "al": "assisted_learning", "gal-linear": "gal"}
    spec = table("uci", [row(name, method=method) for name, method in methods.items()])
    stopped = made_up(spec, lambda _, cell: outcome(cell, [70.0]))
    figure = figures.rounds_figure(stopped, rates, "Wine")
    assert not figure.axes[2].get_lines()
    figure.canvas.draw()


def test_a_missing_row_is_named(uci: Run, rates: Run) -> None:
    without = Run(table("rates", [one for one in rates.table.rows if one.name != "constant"]), rates.outcomes)
    with pytest.raises(InvalidInputError, match="row 'constant' of table 'rates' for Wine, 8 organizations"):
        figures.rounds_figure(uci, without, "Wine")


# Figure 5


def noisy_rows() -> list[RowSpec]:
    return [
        row(
            f"answers-{sigma}-weights-{state}",
            disturbance="answers",
            sigma=float(sigma),
            options={} if state == "on" else {"weights": "uniform"},
        )
        for sigma in (1, 5)
        for state in ("off", "on")
    ]


def disturbed(row: RowSpec, cell: Cell) -> Outcome:
    level = {("1", True): 45.0, ("1", False): 50.0, ("5", True): 55.0, ("5", False): 65.0}[
        (row.name.split("-")[1], row.name.endswith("on"))
    ]
    weights = [
        {name: (0.2 if number < 4 else 0.05) + t * 0.01 for number, name in enumerate(organizations(cell))}
        for t in range(2)
    ]
    if row.name != "answers-1-weights-on":
        weights = [dict.fromkeys(one, 0.125) for one in weights]
    return outcome(cell, [70.0, level + 5 + cell.seed, level + cell.seed], [1.0, 1.0], weights)


@pytest.fixture(scope="module")
def noisy() -> Run:
    return made_up(table("noise", noisy_rows(), protocols=["per seed", "paper"]), disturbed)


def test_noise_weights_on_and_off_by_sigma(noisy: Run) -> None:
    drawn = lines(panels(figures.noise(noisy, "Diabetes", "paper"))[0])
    for name, level in (
        ("σ = 1, weights on", 45),
        ("σ = 1, weights off", 50),
        ("σ = 5, weights on", 55),
        ("σ = 5, weights off", 65),
    ):
        np.testing.assert_allclose(drawn[name].get_ydata(), [70, level + 5.5, level + 0.5])
    assert drawn["σ = 1, weights on"].get_linestyle() == drawn["σ = 5, weights on"].get_linestyle() == "-"
    assert drawn["σ = 1, weights off"].get_linestyle() == drawn["σ = 5, weights off"].get_linestyle() == "--"


def test_noise_weights_of_noisy_and_other_organizations(noisy: Run) -> None:
    panel = panels(figures.noise(noisy, "Wine", "per seed"))[1]
    groups = {name.split(" organizations")[0]: line for name, line in lines(panel).items() if name[0] != "_"}
    np.testing.assert_allclose(groups["noise-free"].get_ydata(), [0.2, 0.21])
    np.testing.assert_allclose(groups["noisy"].get_ydata(), [0.05, 0.06])
    assert len(panel.get_lines()) == 8 + 2  # every organization, and the means
    assert legend(panel)[1].startswith("noisy organizations, σ = 1")


# The way from Alone to Joint

REACHED = {  # of Diabetes (alone 60, joint 40) and Wine (alone 60, joint 90), with eight organizations
    "alone": (60.0, 60.0),
    "joint": (40.0, 90.0),
    "late": (55.0, 24.0),  # 25 %, -120 %
    "gal": (42.0, 87.0),  # 90 %, 90 %
    "pooled": (15.0, 75.0),  # 225 %, 50 %
    "lost": (1e9, 60.0),
}


def reached(row: RowSpec, cell: Cell) -> Outcome:
    """With two organizations everything but the ends is half way."""
    middle = row.name not in {"alone", "joint"} and cell.organizations == 2
    score = (50.0, 75.0) if middle else REACHED[row.name]
    return outcome(cell, [70.0, score[SETS.index(cell.dataset)]])


@pytest.fixture(scope="module")
def way() -> Run:
    methods = ("alone", "joint", "late_average", "gal", "assisted_learning", "late_sum")
    labels = ("Alone", "Joint", "Late", "GAL", "Pooled", "Lost")
    rows = [
        row(name, method=method, label=label)
        for name, method, label in zip(REACHED, methods, labels, strict=True)
    ]
    return made_up(table("uci", rows), reached)


def test_methods_are_sorted_by_the_mean_way(way: Run) -> None:
    axes = panels(way_figure.covered_figure(way))[0]
    assert list(heights(axes)) == ["Pooled", "GAL", "Late", "Lost"]
    assert {"138 %", "90 %", "−48 %", "mean", "alone", "joint"} <= set(texts(axes))
    np.testing.assert_allclose(lines(axes)["mean over sets"].get_xdata(), [137.5, 90.0, -47.5])
    bars = [patch.get_width() for patch in axes.patches if patch.get_height() < 1]
    np.testing.assert_allclose(bars, [137.5, 90.0, -47.5, -50.0])
    assert lines(axes)["alone"].get_xdata()[0] == 0
    assert lines(axes)["joint"].get_xdata()[0] == 100


def test_every_set_is_a_mark_of_its_own(way: Run) -> None:
    axes = panels(way_figure.covered_figure(way))[0]
    drawn = lines(axes)
    row_of = {round(float(y)): x for x, y in drawn["Diabetes"].get_xydata()}
    assert row_of == {1: pytest.approx(90.0), 2: pytest.approx(25.0)}  # the others are beyond the axis
    row_of = {round(float(y)): x for x, y in drawn["Wine"].get_xydata()}
    assert row_of == {0: pytest.approx(50.0), 1: pytest.approx(90.0), 3: pytest.approx(0.0)}
    assert drawn["Wine"].get_marker() != drawn["Diabetes"].get_marker()
    light = drawn["Wine, 2 organizations"]
    np.testing.assert_allclose(light.get_xdata(), [50.0] * 4)
    assert light.get_markersize() < drawn["Wine"].get_markersize()
    assert light.get_marker() == drawn["Wine"].get_marker()


def test_what_is_beyond_the_axis_is_marked_with_its_number(way: Run) -> None:
    axes = panels(way_figure.covered_figure(way))[0]
    numbers = {text.get_text(): round(text.get_position()[1]) for text in axes.texts if text.get_text()}
    assert numbers["225 % ▸"] == 0
    assert numbers["◂ −120 %"] == 2
    assert numbers["◂ −5·10⁹ %"] == 3
    low, high = axes.get_xlim()
    marks = [line for line in axes.get_lines() if line.get_label() == "_beyond"]
    assert len(marks) == 3
    assert all(low < line.get_xdata()[0] < high for line in marks)
    assert all(not way_figure.SHOWN[0] <= line.get_xdata()[0] <= way_figure.SHOWN[1] for line in marks)
    (mean,) = [line for line in axes.get_lines() if line.get_label() == "_mean beyond"]
    assert mean.get_marker() == "<"


def test_no_room_is_left_where_nothing_is_beyond() -> None:
    rows = [row("alone", method="alone"), row("joint", method="joint"), row("gal")]
    axes = panels(way_figure.covered_figure(made_up(table("uci", rows, organizations=[8]), reached)))[0]
    assert not [text for text in texts(axes) if "◂" in text or "▸" in text]
    assert axes.get_xlim() == (way_figure.SHOWN[0] - 4, way_figure.SHOWN[1] + 4)


def test_light_marks_beyond_the_axis_are_arrows(way: Run) -> None:
    def far(row: RowSpec, cell: Cell) -> Outcome:
        return outcome(cell, [1e6]) if (row.name, cell.organizations) == ("gal", 2) else reached(row, cell)

    rows = [one for one in way.table.rows if one.name in {"alone", "joint", "gal"}]
    axes = panels(way_figure.covered_figure(made_up(table("uci", rows), far)))[0]
    markers = sorted(line.get_marker() for line in axes.get_lines() if line.get_label() == "_beyond")
    assert markers == ["<", ">"]  # Diabetes: far off; Wine: an accuracy far above joint
    assert not [text for text in texts(axes) if "◂" in text or "▸" in text]


def test_a_set_without_a_way_is_left_out(way: Run) -> None:
    def level(row: RowSpec, cell: Cell) -> Outcome:
        return outcome(cell, [80.0]) if cell.dataset == "Wine" else reached(row, cell)

    rows = [one for one in way.table.rows if one.name in {"alone", "joint", "gal"}]
    axes = panels(way_figure.covered_figure(made_up(table("uci", rows), level)))[0]
    np.testing.assert_allclose(lines(axes)["mean over sets"].get_xdata(), [90.0])
    assert len(lines(axes)["Wine"].get_xdata()) == 0


def test_covered_needs_alone_and_joint() -> None:
    with pytest.raises(InvalidInputError, match="'alone' and 'joint'"):
        way_figure.covered_figure(made_up(table("uci", [row("gal")]), reached))


# Improvements


@pytest.fixture(scope="module")
def improved() -> Run:
    rows = [
        row(f"{model.lower()}-{step}", models=[model], label=f"{model}: {label}", options=options)
        for model in ("Ridge", "SVM")
        for step, label, options in (
            ("authors", "authors' algorithm", {"weights": "paper"}),
            ("exact", "+ exact weights", {"weights": "exact"}),
            ("defaults", "the engine's defaults", {}),
        )
    ]
    errors = {"authors": 50.0, "exact": 45.0, "defaults": 40.0}
    svm = {"authors": 50.0, "exact": 55.0, "defaults": 50.0}

    def make(row: RowSpec, cell: Cell) -> Outcome:
        model, step = row.name.split("-")
        error = (errors if model == "ridge" else svm)[step]
        return outcome(cell, [error if cell.dataset == "Diabetes" else 100 - error])

    return made_up(table("improvements", rows, organizations=["most"]), make)


def test_improvements_are_changes_of_the_error(improved: Run) -> None:
    figure = figures.improvements(improved)
    ridge, svm = panels(figure)
    assert [ridge.get_title(), svm.get_title()] == ["Ridge", "SVM"]
    assert list(heights(ridge)) == ["+ exact weights", "the engine's defaults"]
    np.testing.assert_allclose([bar.get_width() for bar in ridge.patches], [-10, -20])
    np.testing.assert_allclose([bar.get_width() for bar in svm.patches], [10, 0], atol=1e-12)
    assert texts(ridge) == ["−10.0", "−20.0"]
    assert texts(svm) == ["+10.0", "0"]
    assert ridge.patches[0].get_hatch() != svm.patches[0].get_hatch()
    assert "left of 0: better" in figure.get_supxlabel()


# All of them


@pytest.mark.usefixtures("coarse_pictures")
def test_save_figures_writes_what_the_runs_allow(
    tmp_path: Path, uci: Run, rates: Run, noisy: Run, improved: Run
) -> None:
    runs = {"uci": uci, "rates": rates, "noise": noisy, "improvements": improved}
    written = figures.save_figures(runs, tmp_path / "figures")
    assert sorted(path.name for path in written) == [
        "covered.png",
        "improvements.png",
        "noise-Diabetes-paper.png",
        "noise-Diabetes-per-seed.png",
        "noise-Wine-paper.png",
        "noise-Wine-per-seed.png",
        "rounds-Diabetes.png",
        "rounds-Wine.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


@pytest.mark.usefixtures("coarse_pictures")
def test_save_figures_leaves_out_what_is_not_there(tmp_path: Path, noisy: Run) -> None:
    few = {name: one for name, one in noisy.outcomes.items() if "'Wine'" not in name or "'paper'" not in name}
    only_gal = made_up(table("uci", [row("gal")], organizations=[2]), learned)
    rest = {"noise": Run(noisy.table, few), "uci": only_gal}
    written = figures.save_figures(rest, tmp_path)
    assert sorted(path.stem for path in written) == [
        "noise-Diabetes-paper",
        "noise-Diabetes-per-seed",
        "noise-Wine-per-seed",
    ]
    assert figures.save_figures({}, tmp_path / "none") == []


@pytest.mark.usefixtures("coarse_pictures")
def test_the_same_runs_give_the_same_bytes(tmp_path: Path, improved: Run) -> None:
    (first,), (second,) = (
        figures.save_figures({"improvements": improved}, tmp_path / name) for name in ("a", "b")
    )
    assert first.read_bytes() == second.read_bytes()
    assert b"Software" not in first.read_bytes()


def test_no_global_state(tmp_path: Path, improved: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    figures.save_figures({"improvements": improved}, tmp_path)
    assert "matplotlib.pyplot" not in sys.modules


def test_without_matplotlib_the_extra_is_named(improved: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"gal-learn\[figures\]"):
        figures.improvements(improved)


# Parts


def test_labels_are_kept_apart_and_in_order() -> None:
    placed = drawing.spread_heights([0.3, 0.0, 0.0, 0.31, 0.0], 0.1, 0.0, 1.0)
    assert sorted(placed) == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4], abs=0.02)
    assert placed[3] > placed[0] > max(placed[1], placed[2], placed[4])
    assert np.diff(sorted(placed)).min() >= 0.1 - 1e-9
    assert drawing.spread_heights([], 0.1, 0.0, 1.0) == []


def test_ten_organizations_are_in_order() -> None:
    cell = Cell("Wine", 10, "per seed", 0)
    weights = {f"organization {number}": 0.1 for number in (10, 2, 1)}
    assert list(round_drawing.mean_weights([outcome(cell, [1.0], [1.0], [weights])])) == [
        "organization 1",
        "organization 2",
        "organization 10",
    ]
