"""Whatever table is learned in whatever setting: finite predictions, or an error with a sentence of ours."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, note, settings

from any_tables import AnyTable, any_tables, check

pytestmark = [
    pytest.mark.filterwarnings("ignore::gal.warnings.GALWarning"),
    # scikit-learn's, of labels with nearly as many classes as rows, and of forests on few rows
    pytest.mark.filterwarnings("ignore:The number of unique classes"),
    pytest.mark.filterwarnings("ignore:Using the fractional value"),
]


def check_drawn(
    folders: pytest.TempPathFactory, examples: int, *, most_rows: int, few: bool, derandomize: bool = True
) -> None:
    """So many tables; most of them are learned, not refused."""
    folder, came = folders.mktemp("drawn"), Counter[bool]()

    @settings(
        max_examples=examples,
        derandomize=derandomize,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(any_tables(most_rows=most_rows, few=few))
    def one(drawn: AnyTable) -> None:
        note(repr(drawn))
        came[check(drawn, folder) == "fitted"] += 1

    one()
    assert came[True] > came[False]


def test_any_small_table(tmp_path_factory: pytest.TempPathFactory) -> None:
    check_drawn(tmp_path_factory, 30, most_rows=150, few=True)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_small_tables(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Constants are lowered: these go the ways of large ones."""
    check_drawn(tmp_path_factory, 3000, most_rows=2000, few=True, derandomize=False)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_large_tables(tmp_path_factory: pytest.TempPathFactory) -> None:
    check_drawn(tmp_path_factory, 200, most_rows=30_000, few=False, derandomize=False)
