"""Row roles: every row has one, shares are kept, folds are balanced."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gal.core.passes import blocks
from gal.core.rows import (
    FITTED_VALUES,
    PROBE_FOLDS,
    FittedValues,
    Rows,
    all_rows,
    assign_rows,
    with_probes,
)
from gal.errors import InvalidOptionError


@settings(max_examples=60)
@given(
    n=st.integers(20, 300),
    fitted=st.sampled_from(FITTED_VALUES),
    validation=st.sampled_from([0.0, 0.1, 0.25]),
    n_groups=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
def test_every_row_has_one_role(
    n: int, fitted: FittedValues, validation: float, n_groups: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(n_groups, size=n) if n_groups else None
    rows = assign_rows(n, rng, fitted=fitted, validation_fraction=validation, groups=groups)
    parts = [rows.fit, rows.validation]
    if fitted == "held-out":
        parts.append(rows.search)
        assert len(rows.search) == round(0.1 * n)
    else:
        np.testing.assert_array_equal(rows.search, rows.fit)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert all((np.diff(part) > 0).all() for part in parts)
    assert len(rows.validation) == round(validation * n)


@settings(max_examples=40)
@given(
    shares=st.sampled_from([(0.5, 0.5), (0.9, 0.1), (0.2, 0.2, 0.2, 0.2, 0.2), (0.7, 0.2, 0.1)]),
    seed=st.integers(0, 1000),
    n_folds=st.integers(2, 5),
)
def test_groups_keep_their_shares_in_every_part(shares: tuple[float, ...], seed: int, n_folds: int) -> None:
    n, rng = 200, np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(shares)), np.round(n * np.array(shares)).astype(int)))
    held_out = assign_rows(
        n, rng, fitted="held-out", validation_fraction=0.2, held_out_fraction=0.2, groups=groups
    )
    folded = assign_rows(n, rng, n_cv_folds=n_folds, groups=groups)
    parts = [held_out.fit, held_out.search, held_out.validation]
    parts += [np.flatnonzero(folded.cv_folds == fold) for fold in range(n_folds)]
    for part in parts:
        counts = np.bincount(groups[part], minlength=len(shares))
        np.testing.assert_allclose(counts, len(part) * np.array(shares), atol=2)


@settings(max_examples=30)
@given(n=st.integers(10, 100), n_folds=st.integers(2, 10), seed=st.integers(0, 100))
def test_folds_are_balanced(n: int, n_folds: int, seed: int) -> None:
    rows = assign_rows(n, np.random.default_rng(seed), n_cv_folds=n_folds)
    assert rows.cv_folds is not None
    sizes = np.bincount(rows.cv_folds)
    assert rows.n_cv_folds == len(sizes) == n_folds
    assert sizes.max() - sizes.min() <= 1


def test_roles_are_drawn_at_random_but_repeatable() -> None:
    first, again, other = (
        assign_rows(50, np.random.default_rng(seed), validation_fraction=0.5).validation for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (first != np.arange(25)).any()


def test_options_out_of_range_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidOptionError, match="in-sample, held-out, got 'none'"):
        assign_rows(10, rng, fitted="none")  # type: ignore[arg-type]
    for fraction in (-0.1, 1.0, float("nan")):
        with pytest.raises(InvalidOptionError, match="validation_fraction must be at least 0 and below 1"):
            assign_rows(10, rng, validation_fraction=fraction)
    with pytest.raises(InvalidOptionError, match="not one whole row"):
        assign_rows(4, rng, fitted="held-out")
    for n_folds in (1, 11):
        with pytest.raises(InvalidOptionError, match="2 to 10 folds"):
            assign_rows(10, rng, n_cv_folds=n_folds)
    with pytest.raises(InvalidOptionError, match="no rows are left to fit: 1 rows"):
        assign_rows(1, rng, validation_fraction=0.9)
    with pytest.raises(InvalidOptionError, match="2 fold numbers for 3 fit rows"):
        Rows(3, np.arange(3), np.arange(3), np.arange(0), np.arange(2))


@pytest.mark.parametrize(
    ("n", "n_outputs"), [(0, 1), (1, 1), (65_536, 1), (65_537, 1), (1000, 10**6), (100_000, 3)]
)
def test_blocks_cover_the_rows_in_order(n: int, n_outputs: int) -> None:
    parts = list(blocks(n, n_outputs))
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])][: len(parts)]
    assert sum(part.stop - part.start for part in parts) == n
    assert all((part.stop - part.start) * n_outputs <= max(1 << 16, n_outputs) for part in parts)


def test_a_class_with_few_rows_is_in_every_fold_of_interaction_probes() -> None:
    groups = np.zeros(2000, dtype=np.intp)
    groups[::250] = 1
    for seed in range(20):
        found = with_probes(all_rows(2000), np.random.default_rng(seed), groups).probes
        assert found is not None
        assert found.min() == 1
        assert set(np.bincount(found[groups == 1])[1:]) == {8 // PROBE_FOLDS}


def test_a_sample_is_of_all_roles_and_validation_rows_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gal.core.rows.PROBE_ROWS", 100)
    monkeypatch.setattr("gal.core.rows.PROBE_VALIDATION", 20)
    rows = assign_rows(1000, np.random.default_rng(0), fitted="held-out", validation_fraction=0.3)
    probed = with_probes(rows, np.random.default_rng(1))
    roles, sample = probed.of_probes, probed.sample
    assert (len(sample), roles.n, len(roles.validation)) == (100, 100, 20)
    assert np.isin(sample[roles.validation], rows.validation).all()
    assert np.isin(sample[roles.fit], rows.fit).all()
    assert roles.folds is not None
    assert set(roles.folds) == set(range(PROBE_FOLDS))
    assert len(roles.fit) + 20 < 100  # rows that choose weights are in it, and not fitted
