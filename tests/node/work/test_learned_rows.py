"""What an organization serves is compared with what it learned from, at home."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gal.node.config.configuration import read_configuration
from gal.node.source.data import Table, read_source
from gal.node.store import row_index
from gal.node.store.row_index import LEARNED
from gal.node.work import learned_rows
from gal.node.work.learned_rows import Changes, LearnedRows, compare_rows, remember_rows

N = 300


def rows(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    kind = np.array(["red", "blue", "green"])[rng.integers(0, 3, n)]
    return pd.DataFrame(
        {"id": np.arange(n), "a": rng.normal(size=n), "b": rng.exponential(size=n), "kind": kind}
    )


def table(home: Path, frame: pd.DataFrame) -> Table:
    (home / "node.toml").write_text('name = "lab"\n[data]\nsource = "rows.csv"\nrow_id = "id"\n')
    frame.to_csv(home / "rows.csv", index=False)
    return read_source(read_configuration(home))


def remember(found: Table, n: int, folder: Path) -> None:
    remember_rows(found, np.arange(n), folder)


@pytest.fixture
def learned(tmp_path: Path) -> Path:
    found = table(tmp_path, rows())
    remember(found, 200, tmp_path)
    return tmp_path


def changes(home: Path, frame: pd.DataFrame) -> Changes:
    return compare_rows(table(home, frame), home)


def test_the_same_rows_in_any_order_and_more_of_them(learned: Path) -> None:
    more = pd.concat([rows(), rows(600, seed=1).iloc[N:]]).sample(frac=1, random_state=0)
    found = changes(learned, more)
    assert not found
    assert (found.n_compared, found.n_changed) == (200, 0)


@pytest.mark.parametrize("column", ["a", "b", "kind"])
def test_a_shuffled_column(learned: Path, column: str) -> None:
    """It has the same values, and each belongs to somebody else."""
    shuffled = rows()
    shuffled[column] = np.random.default_rng(2).permutation(shuffled[column])
    found = changes(learned, shuffled)
    assert found
    assert found.n_changed > 100
    assert "of 200 rows that it learned from have other values now" in found.said()


def test_a_few_corrections_are_no_change(learned: Path) -> None:
    corrected = rows()
    corrected.loc[[3, 7], "a"] += 1
    found = changes(learned, corrected)
    assert not found
    assert found.n_changed == 2


def test_large_sources_are_looked_at_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_rows, "SAMPLE", 100)
    monkeypatch.setattr(row_index, "BLOCK", 64)
    found = table(tmp_path, rows())
    remember(found, N, tmp_path)
    assert compare_rows(found, tmp_path) == Changes(100, 0)


def test_the_key_is_new_each_time_and_values_are_not_in_the_files(learned: Path) -> None:
    first = (learned / LEARNED).read_bytes()
    remember(table(learned, rows()), 200, learned)
    assert (learned / LEARNED).read_bytes() != first
    assert (learned / LEARNED).stat().st_mode & 0o077 == 0


def test_versions_of_before_have_nothing_to_compare(tmp_path: Path) -> None:
    assert not compare_rows(table(tmp_path, rows()), tmp_path)


def test_one_look_for_each_state_of_the_source(learned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Path] = []

    def look(_: Table, folder: Path) -> Changes:
        looks.append(folder)
        return Changes(1, 1)

    monkeypatch.setattr(learned_rows, "compare_rows", look)
    kept, now = LearnedRows(), table(learned, rows())
    assert all(kept.changes(now, learned) for _ in range(3))
    assert len(looks) == 1
    kept.changes(table(learned, rows()), learned)
    kept.forget(learned)
    kept.changes(now, learned)
    assert len(looks) == 3
