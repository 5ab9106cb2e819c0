"""Against the authors' own code: the figures that ``benchmarks/reference.py`` reports, held to account."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from benchmark_scripts import load_benchmark

benchmark = load_benchmark("reference")


@pytest.fixture(scope="module")
def reference() -> Path:
    folder = os.environ.get("GAL_REFERENCE")
    if not folder:
        pytest.skip("GAL_REFERENCE is not set")
    return Path(folder)


def quiet(line: str) -> None:
    """No progress lines in tests."""


def describe(wrong: list[Any]) -> str:
    return "\n".join(map(str, wrong))


def test_tables_are_read_with_their_headings() -> None:
    text = "## One\n\n| a | b |\n|---|---|\n| 1 | 2.0(0.1) |\n\n## Two\n| c |\n|---|\n| - |\n| 3 |\n"
    assert list(benchmark.tables(text)) == [
        ("One", [{"a": "1", "b": "2.0(0.1)"}]),
        ("Two", [{"c": "3"}]),
    ]


def test_a_cell_agrees_within_their_deviation_or_the_tolerance() -> None:
    theirs = benchmark.Figure.parse("93.3(0.0)")

    def cell(ours: float) -> Any:
        return benchmark.Cell("Iris", 2, "best", benchmark.Figure(ours, 0.0), theirs, 100 / 30)

    assert cell(93.33).strict  # what they print is rounded
    assert not cell(93.4).strict
    assert cell(96.6).tolerant
    assert not cell(97.0).tolerant


@pytest.mark.parametrize(
    ("dataset", "ours", "verdict"),
    [
        ("Wine", 97.0, "as good"),
        ("Wine", 92.5, "within their std"),
        ("Wine", 80.0, "worse"),
        ("Diabetes", 80.0, "as good"),
        ("Diabetes", 97.0, "within their std"),
        ("Diabetes", 99.5, "worse"),
    ],
)
def test_verdicts(dataset: str, ours: float, verdict: str) -> None:
    one = benchmark.Comparison("Ridge", dataset, "auto", [ours], [95.0], 4.0, 1.0)
    assert one.verdict == verdict


def test_the_preset_is_faithful_in_a_few_cells(reference: Path) -> None:
    few = {"Diabetes", "BostonHousing", "Iris", "Wine"}
    found = benchmark.fidelity(reference, chosen=lambda name, m: name in few and m == 2, say=quiet)
    assert len(found.cells) == 8
    assert found.tolerant == 8, describe([cell for cell in found.cells if not cell.tolerant])


def test_the_default_is_as_good_on_two_sets(reference: Path) -> None:
    few = {"BostonHousing", "Wine"}
    found = benchmark.defaults(
        reference, models=["Ridge"], chosen=few.__contains__, losses=["auto"], say=quiet
    )
    assert [one.verdict for one in found] == ["as good", "as good"], describe(found)


KNOWN_MISSES = {("SVR", "QSAR")}
"""Worse than one of their deviations, over three random states; see docs/explanation-algorithm.md."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_preset_is_faithful(reference: Path) -> None:
    found = benchmark.fidelity(reference, chosen=lambda *_: True, say=quiet)
    assert len(found.cells) == 40
    assert found.strict >= 0.9 * len(found.cells), describe([cell for cell in found.cells if not cell.strict])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", ["Ridge", "SVR"])
def test_the_default_is_better_than_their_best_on_test(reference: Path, model: str) -> None:
    found = benchmark.defaults(reference, models=[model], losses=["auto"], say=quiet)
    assert len(found) == 6
    assert [one.verdict for one in found].count("as good") >= 5, describe(found)
    worse = {(one.model, one.dataset) for one in found if one.verdict == "worse"}
    assert worse <= KNOWN_MISSES, describe(found)
