"""What the engine asks of a view that is no table: its shape and rows, never the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gal
from gal import Organization
from gal.assembling import grouped
from gal.learner.organization import take_rows
from gal.models import LinearModel, View

X = np.random.default_rng(0).normal(size=(90, 3))
Y = X @ [1.0, -2.0, 0.5]


class Positions:
    """A view of positions alone; its ``columns`` are no frame's."""

    columns = ("a", "b", "c")

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self.shape = (len(rows), 3)

    def __getitem__(self, rows: Any) -> Positions:
        return Positions(self.rows[rows])


class Elsewhere:
    """A linear model that alone knows where the rows are."""

    def __init__(self) -> None:
        self.model = LinearModel()

    def fit(self, X_: Any, y: Any) -> None:
        self.model.fit(X[X_.rows], y)

    def predict(self, X_: Any) -> Any:
        return self.model.predict(X[X_.rows])


@pytest.mark.parametrize("options", [{}, {"cross_validation": 3}], ids=repr)
def test_shape_and_rows_are_enough(options: dict[str, Any]) -> None:
    view: View = Positions(np.arange(90))
    found = [
        gal.predict(gal.learn(Y, [one], rounds=2, **grouped(options)), [one]).output
        for one in (Organization("a", view, Elsewhere()), Organization("a", X, LinearModel()))
    ]
    np.testing.assert_array_equal(found[0], found[1])


def test_frames_are_still_taken_by_rows() -> None:
    pl = pytest.importorskip("polars", reason="needs the extra 'polars', which is not installed")
    taken = take_rows(pl.DataFrame(X), np.array([5, 1]))
    np.testing.assert_array_equal(taken.to_numpy(), X[[5, 1]])
