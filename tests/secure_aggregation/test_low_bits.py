"""Low bits of sums: a member with a two-valued column, and a label holder who looks at what is left over.

An exact sum of float32 is a multiple of what its finest member is a multiple of. All others are multiples of
more, so that modulo that the sum has two values: those of one member's column, in nearly every row. Each
attack is tried with the rounding, which leaves it to chance, and without, where it must succeed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LinearRegression

from gal.assembling import grouped

pytest.importorskip("cryptography", reason="cryptography is not installed")

from gal import Organization, learn, predict
from gal.core.requests import FitRequest
from gal.core.state import ByName
from gal.errors import InvalidReplyError
from gal.secure_aggregation.masking import fit_unit, from_ring, to_ring, unit_of
from gal.secure_aggregation.terms import SUM
from low_bits import best_split, sums_of, without_rounding
from small_groups import written

N = 800
MODELS = [LinearRegression(), GradientBoostingRegressor(n_estimators=20, random_state=0)]
QUICK: dict[str, Any] = {
    "rounds": 2,
    "cross_validation": 0,
    "validation_fraction": 0.0,
    "fitted": "in-sample",
}
CHANCE, FOUND = 0.1, 0.9
"""Adjusted Rand indices."""
RATES = [(1.0, 0.0), (0.0, 1.0), (2.0**-30, 0.0), (2.0**30, 0.0), (1.0, -(2.0**-8)), (1.0, 2.0**12)]
"""With which a label holder adds up two rounds: of one alone, float32 stay float32."""


def organizations(members: int, model: Any) -> tuple[list[Organization], NDArray[np.float64], Any]:
    """The label holder and so many others, of whom the first has one column with two values, and what is in
    it; labels hardly follow from that one.
    """
    rng = np.random.default_rng(200 + members)
    column = (rng.random(N) < 0.4).astype(np.float64)
    views = [rng.choice([-1, 1], (N, 1)) * rng.uniform(1.5, 2, (N, 1)) for _ in range(members + 1)]
    y = np.sum(views, axis=(0, 2)) + 0.02 * column + 0.1 * rng.normal(size=N)
    views[1] = column[:, None]
    made = [Organization("bank", views[0], model)]
    made += [Organization(f"member-{m}", view, model) for m, view in enumerate(views[1:])]
    return made, y, column


def attacked(members: int, model: Any) -> dict[str, float]:
    """How far the column is read from sums, in learning and in predictions with rates of all kinds."""
    made, y, column = organizations(members, model)
    with sums_of() as opened:
        ensemble = learn(y, made, secure_aggregation="sums", **grouped(QUICK))
    found = {"learning": best_split(opened, column)}
    for rates in RATES:
        counts = tuple(ByName({SUM: rate}) for rate in rates)
        with sums_of() as opened:
            predict(replace(ensemble, coefficients=counts), made, {one.name: one.view for one in made})
        found[f"rates {rates}"] = best_split(opened, column)
    return found


@pytest.mark.parametrize("model", MODELS, ids=["linear", "boosting"])
@pytest.mark.parametrize("members", [3, 8])
def test_sums_do_not_split_into_the_values_of_one_members_column(
    members: int, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded = attacked(members, model)
    assert max(rounded.values()) < CHANCE, rounded
    without_rounding(monkeypatch)
    exact = attacked(members, model)
    for attack in ("learning", f"rates {RATES[0]}", f"rates {RATES[2]}", f"rates {RATES[3]}"):
        assert exact[attack] > FOUND, (attack, exact)


def test_answers_far_larger_than_the_residual_show_no_steps_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Float32 keep less than a step of them: without their own draws they would be multiples of eight."""
    rng = np.random.default_rng(0)
    column = (rng.random((N, 1)) < 0.4).astype(np.float64)
    large = [rng.uniform(1024, 2048, (N, 1)).astype(np.float32).astype(np.float64) for _ in range(3)]

    def total() -> NDArray[np.float64]:
        said = [0.3 + 11 * 2.0**-16 * column, *large]
        parts = [written(f"member-{m}", one) for m, one in enumerate(said)]
        return from_ring(np.sum(parts, axis=0, dtype=np.uint32), 1.0)

    assert best_split([total()], column[:, 0]) < CHANCE
    monkeypatch.setattr("gal.secure_aggregation.masking.LAST_PLACE", 0.0)
    assert best_split([total()], column[:, 0]) > FOUND


def request(residual: NDArray[np.floating[Any]]) -> FitRequest:
    return FitRequest(1, residual.astype(np.float32), ("lab",))


def test_the_largest_residual_can_be_answered() -> None:
    """One row of a million has the whole residual, and one of a hundred organizations memorizes it."""
    residual = np.zeros((1_000_000, 1))
    residual[7] = 1e4
    asked = request(residual)
    to_ring(residual[:9], fit_unit(asked), 100, np.zeros_like)
    with pytest.raises(InvalidReplyError, match="smaller than"):
        to_ring(residual[:9], unit_of(10.0), 100, np.zeros_like)
    assert fit_unit(request(np.zeros((3, 1)))) == 1.0
