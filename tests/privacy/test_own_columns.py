"""What answers tell of columns, to an honest and to a curious label holder, with models that differ in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from gal.engine.organization import Organization
from gal.privacy.leakage.own_columns import ToldByAnswers, own_columns_explained, pretended

N = 300


def view() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"age": rng.normal(size=N), "town": pd.Categorical(rng.choice(list("ab"), N))})


def told(model: Any, **how: Any) -> ToldByAnswers:
    encoded = view().assign(town=lambda one: one["town"].cat.codes.astype(float))
    return own_columns_explained(Organization("lab", encoded, model), 4, 1, n_known=40, **how)


def values(found: ToldByAnswers) -> dict[str, tuple[float, float]]:
    return {one.column: (one.honest.value, one.curious.value) for one in found.columns}


def test_linear_answers_tell_everything() -> None:
    found = values(told(Ridge(1e-3)))
    assert min(min(each) for each in found.values()) > 0.99


def test_a_tree_tells_little_until_residuals_are_chosen() -> None:
    found = values(told(DecisionTreeRegressor(min_samples_leaf=2, random_state=0)))
    assert found["age"][0] < 0.5
    assert found["age"][1] > 0.9


def test_where_rows_cannot_be_weighed_away_it_tells_less() -> None:
    model = DecisionTreeRegressor(min_samples_leaf=2, random_state=0)
    free, held = values(told(model)), values(told(model, fewest_weighted=100))
    assert held["age"][1] < free["age"][1] - 0.3


def test_what_leaves_counts() -> None:
    noise = np.random.default_rng(1)
    found = values(told(Ridge(1e-3), as_sent=lambda sent: sent + noise.normal(scale=20, size=sent.shape)))
    assert max(max(each) for each in found.values()) < 0.2


def in_a_sum(others: int, rounds: int) -> dict[str, tuple[float, float]]:
    lab = Organization(
        "lab", view().assign(town=lambda one: one["town"].cat.codes.astype(float)), Ridge(1e-3)
    )
    found = own_columns_explained(lab, rounds, 1, n_known=40, beside=pretended(lab, others))
    assert found.added_to == others
    assert not lab.models
    return values(found)


def test_a_sum_of_linear_answers_is_taken_apart_in_as_many_rounds_as_it_has_columns() -> None:
    """Two columns each: six numbers behind every sum of three, and each round is one equation."""
    alone, few, many = in_a_sum(0, 2), in_a_sum(2, 2), in_a_sum(2, 12)
    assert min(honest for honest, _ in alone.values()) > 0.99
    assert max(honest for honest, _ in few.values()) < 0.75
    assert min(honest for honest, _ in many.values()) > 0.9


def test_chosen_residuals_pick_one_column_out_of_a_sum() -> None:
    """Whoever does not know the column has little to say about it."""
    found = in_a_sum(2, 2)
    assert min(curious for _, curious in found.values()) > 0.8


def test_those_pretended_have_the_same_columns_in_other_rows() -> None:
    lab = Organization("lab", view(), Ridge())
    one, other = pretended(lab, 2)
    assert {one.name, other.name}.isdisjoint({"lab"})
    for made in (one, other):
        assert list(made.view["age"]) != list(lab.view["age"])
        assert sorted(made.view["age"]) == sorted(lab.view["age"])
        assert made.view.dtypes.equals(lab.view.dtypes)
    assert list(one.view["age"]) != list(other.view["age"])
