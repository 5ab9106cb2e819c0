"""Contributions: Shapley's laws, noise has nothing, copies the same, and every kind of rows and models."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from gal import Algorithm, GALClassifier, GALRegressor, Validation
from gal.assembling import grouped
from gal.core import coalition_values as stored_module
from gal.core import task
from gal.core.coalition_values import StoredReplies, projected
from gal.core.contributions import (
    EXACT,
    NOTHING,
    ORDERS,
    Contribution,
    Contributions,
    adding_up,
    bootstrapped,
    coalitions_of,
    contribution,
)
from gal.core.state import Ensemble, ensemble_of, plain
from gal.privacy import RandomisedResponse
from gal.privacy.noise import SeededNoise
from gal.warnings import LeftOutWarning

pytestmark = pytest.mark.usefixtures("small_forests")

Floats = NDArray[np.float64]
PARTS = {"bank": [0], "shop": [1], "lab": [2], "chancer": [3, 4]}


def names(n: int) -> list[str]:
    return [f"o{place:02}" for place in range(n)]


# --- the game


@settings(max_examples=20)
@given(n=st.integers(1, 5), seed=st.integers(0, 1000))
def test_a_shapley_value_is_what_each_adds_on_average_over_all_orders(n: int, seed: int) -> None:
    game = coalitions_of(names(n), 0)
    values = np.random.default_rng(seed).normal(size=len(game.members))
    worth = dict(zip(game.members, values, strict=True))
    expected = dict.fromkeys(game.players, 0.0)
    orders = list(permutations(game.players))
    for order in orders:
        for place, name in enumerate(order):
            before = frozenset(order[:place])
            expected[name] += (worth[before | {name}] - worth[before]) / len(orders)
    np.testing.assert_allclose(game.matrix @ values, list(expected.values()), atol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 4, EXACT + 1, 14])
def test_values_add_up_equals_get_the_same_and_a_dummy_nothing(n: int) -> None:
    game = coalitions_of(names(n), seed=3)
    assert game.members[0] == frozenset()
    assert game.members[-1] == frozenset(game.players)
    assert len(game.members) == len(set(game.members)) <= max(2**EXACT, 2 * ORDERS * n)
    values = np.array([len(some - {"o00"}) ** 2 for some in game.members], dtype=float)
    shares = game.matrix @ values
    assert shares.sum() == pytest.approx(values[-1] - values[0])
    assert shares[:1] == pytest.approx(0, abs=1e-12)
    if n <= EXACT:
        np.testing.assert_allclose(shares[1:], n - 1)


def test_what_makes_things_worse_is_not_made_up_for_by_others() -> None:
    """Of three, one spoils: the others have the whole gain, and its interval says what it spoils."""
    game = coalitions_of(["a", "b", "noise"], 0)
    gains = np.array([len(some & {"a", "b"}) - 0.5 * ("noise" in some) for some in game.members])
    draws = np.tile(gains[:, None], (1, 5))
    a, b, noise = game.contributions(draws, draws[-1])
    assert (a.value, b.value, noise.value) == pytest.approx((0.75, 0.75, 0.0))
    assert noise.low == pytest.approx(-0.5)
    assert noise.high >= 0
    assert (a.verdict, noise.verdict) == ("helped", "no gain")


def test_shares_are_moved_by_their_sizes() -> None:
    moved = adding_up(np.array([[3.0, 0.0], [-1.0, 0.0]]), np.array([4.0, 1.0]))
    np.testing.assert_allclose(moved, [[4.5, 0.5], [-0.5, 0.5]])


def test_the_bootstrap_has_the_mean_and_the_standard_error() -> None:
    rng = np.random.default_rng(0)
    losses, weight = rng.normal(size=(2, 3000)), rng.random(3000)
    means = bootstrapped(losses, weight, seed=0)
    np.testing.assert_allclose(means[:, 0], np.average(losses, axis=1, weights=weight))
    error = np.sqrt(np.square(weight * losses[0]).sum()) / weight.sum()
    assert means[0, 1:].std() == pytest.approx(error, rel=0.2)
    np.testing.assert_allclose(bootstrapped(losses[:, :7], None, 0)[:, 0], losses[:, :7].mean(axis=1))


@pytest.mark.parametrize(
    ("low", "high", "gain", "verdict"),
    [
        (0.1, 0.3, 1.0, "helped"),
        (-0.3, -0.1, 1.0, "hurt"),
        (-0.1, 0.09, 1.0, "no gain"),
        (-0.1, 0.11, 1.0, "unclear"),
        (0.0, 0.0, 0.0, "no gain"),
        (-0.1, 0.01, -1.0, "unclear"),
    ],
)
def test_a_word_for_each(low: float, high: float, gain: float, verdict: str) -> None:
    assert contribution((low + high) / 2, low, high, gain).verdict == verdict


# --- stored answers


def test_without_the_absent_is_what_the_present_share_with_them() -> None:
    rng = np.random.default_rng(0)
    common, own = rng.normal(size=(500, 1)), rng.normal(size=(500, 1))
    stored = StoredReplies(np.zeros((500, 1)), {"a": common + 3.0, "b": 2 * common, "c": own})
    whole = 3.0 + 3 * common + own
    np.testing.assert_allclose(stored.output, whole)
    np.testing.assert_allclose(stored.without(frozenset("a")), whole, atol=0.05)  # b says what a says
    np.testing.assert_allclose(stored.without(frozenset("abc")), np.full((500, 1), whole.mean()))
    np.testing.assert_allclose(stored.without(frozenset("ab"), alone=common), whole, atol=0.3)
    lost = stored.without(frozenset("c")) - (whole - own)
    assert np.abs(lost - own.mean()).max() < 0.3


def test_a_column_that_hardly_moves_is_not_blown_up() -> None:
    rng = np.random.default_rng(0)
    target, faint = rng.normal(size=(20, 1)), 1e-3 * rng.normal(size=(20, 1))
    found = projected(target, [faint], np.ones(1))
    np.testing.assert_allclose(found, target.mean() + faint - faint.mean(), atol=1e-4)
    np.testing.assert_array_equal(projected(np.zeros((3, 1)), [np.ones((3, 1))], np.ones(1)), 0.0)


def test_columns_that_are_constant_but_for_rounding_are_projected() -> None:
    faint = np.array([[2.0**-60], [-(2.0**-60)]])
    np.testing.assert_allclose(projected(np.ones((2, 1)), [faint, 2 * faint], np.ones(2)), 1.0)


def test_the_stacker_sees_the_absent_answer_about_another_row() -> None:
    """A stacker that adds the product of two answers: without one of them it adds another row's."""

    class Product:
        share, validation_loss = 1.0, 0.0

        def output(self, output: Floats, answers: Any) -> Floats:
            return np.asarray(output + answers[0]["a"].astype(float) * answers[0]["b"].astype(float))

    rng = np.random.default_rng(0)
    said = {name: rng.normal(size=(50, 1)).astype(np.float32) for name in "ab"}
    a, b = (said[name].astype(float) for name in "ab")
    stacker: Any = Product()
    stored = StoredReplies(np.zeros((50, 1)), {"a": a, "b": 0.5 * b}, [said], stacker=stacker)
    np.testing.assert_allclose(stored.output, a + 0.5 * b + a * b)
    (moved,) = stored._moved(frozenset("b"))
    assert np.abs(moved - a * b).mean() > 0.1
    np.testing.assert_allclose(np.sort((moved / a).ravel()), np.sort(b.ravel()), atol=1e-9)


# --- learned models


def table(n: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Of bank, shop and lab one column each that matters; the chancer has noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, X[:, 0] + X[:, 1] + 0.5 * X[:, 2] + rng.normal(size=n)


def fitted(n: int, *, parts: dict[str, Any] | None = None, **options: Any) -> tuple[Contributions, Ensemble]:
    X, y = table(n)
    given = {"local_models": LinearRegression(), "rounds": 4, "random_state": 0} | options
    model = GALRegressor(PARTS if parts is None else parts, **grouped(given)).fit(X, y)
    assert model.contributions_ is not None
    assert model.contributions_ is model.ensemble_.contributions
    return model.contributions_, model.ensemble_


def check_adds_up(found: Contributions, ensemble: Ensemble) -> None:
    total = sum(one.value for one in found.by_organization.values())
    assert total == pytest.approx(found.gain.value, abs=1e-12)
    reached = min(ensemble.alone_validation_loss, ensemble.assisted_validation_loss)
    whole = ensemble.initial_validation_loss - reached
    assert found.own + found.gain.value == pytest.approx(whole, abs=1e-9)
    for one in (*found.by_organization.values(), found.gain):
        assert one.low <= one.value <= one.high


@pytest.mark.parametrize(
    ("n", "options", "rows"),
    [
        (300, {}, "cross-validation"),
        (600, {"validation_fraction": 0.3}, "validation"),
        (600, {"validation_fraction": 0.3, "loss": "absolute_error"}, "validation"),
        (2100, {"stacking": False}, "validation"),
        (2100, {"stacking": True}, "validation"),
    ],
)
def test_contributions_add_up_and_noise_has_none(n: int, options: dict[str, Any], rows: str) -> None:
    found, ensemble = fitted(n, **options)
    check_adds_up(found, ensemble)
    assert found.rows == rows
    chancer = found.by_organization["chancer"]
    assert chancer.low <= 0 <= chancer.high
    assert abs(chancer.value) < 0.05 * found.gain.value
    assert chancer.verdict == "no gain"
    assert found.by_organization["shop"].verdict == found.gain.verdict == "helped"
    assert found.by_organization["shop"].value > found.by_organization["lab"].value
    assert "bank" not in found.by_organization


def test_rows_that_tell_may_be_fewer_than_those_whose_replies_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task, "MOST_ROWS", 500)
    monkeypatch.setattr(stored_module, "MODEL_OUTPUTS", 800)
    monkeypatch.setattr(stored_module, "FEWEST_ROWS", 100)
    X, _ = table(1200)
    y = X[:, 0] * X[:, 1] + X[:, 2]
    options: dict[str, Any] = {"validation_fraction": 0.6, "interactions": 6, "stacking": False, "rounds": 2}
    model = GALRegressor(PARTS, local_models=LinearRegression(), random_state=0, **grouped(options)).fit(X, y)
    assert model.probes_ is not None
    found = model.contributions_
    assert found is not None
    assert found.n_rows == 90  # every eighth of 720; the baseline's replies are kept for every second
    assert sum(one.value for one in found.by_organization.values()) == pytest.approx(found.gain.value)


def test_of_many_rows_those_that_tell_have_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were every so many-th row taken, all of them might count nothing."""
    monkeypatch.setattr(task, "MOST_ROWS", 20)
    X, y = table(600)
    for seed in range(3):
        weight = (np.random.default_rng(seed).random(600) < 0.03).astype(float)
        model = GALRegressor(
            PARTS,
            local_models=LinearRegression(),
            rounds=2,
            random_state=0,
            validation=Validation(fraction=0.5),
        ).fit(X, y, sample_weight=weight)
        assert model.contributions_ is not None
        assert 0 < model.contributions_.n_rows <= 20
        assert np.isfinite(model.contributions_.gain.value)


def test_assistance_that_is_not_used_has_no_contributions() -> None:
    found, ensemble = fitted(300, parts={"bank": [0, 1, 2], "chancer": [3, 4]})
    assert ensemble.track == "alone"
    assert found.by_organization == {"chancer": NOTHING}
    assert found.gain == NOTHING
    assert found.own > 0


@pytest.mark.parametrize(
    ("n", "options"), [(300, {}), (600, {"validation_fraction": 0.3}), (2100, {"stacking": True})]
)
def test_an_organization_that_never_answered_has_exactly_nothing(n: int, options: dict[str, Any]) -> None:
    class Away(LinearRegression):  # type: ignore[misc]
        def fit(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("never there")

    models = dict.fromkeys(PARTS, LinearRegression()) | {"away": Away()}
    with pytest.warns(LeftOutWarning, match="away"):
        found, ensemble = fitted(
            n, parts=PARTS | {"chancer": [3], "away": [4]}, local_models=models, **options
        )
    check_adds_up(found, ensemble)
    assert found.by_organization["away"] == NOTHING


def test_a_contribution_of_a_billionth_is_none() -> None:
    """A weight that shrinkage leaves near zero: its sign says nothing."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"x": rng.normal(size=450), "noise": [f"s{i}" for i in rng.integers(0, 800, 450)]})
    model = GALRegressor({"a": ["x"], "b": ["noise"]}, random_state=0)
    model.fit(X, X["x"] + rng.normal(size=450))
    assert model.ensemble_.track == "assisted"
    assert model.contributions_ is not None
    assert model.contributions_.by_organization["b"] == Contribution(0.0, 0.0, 0.0, "no gain")


def test_a_copy_of_the_label_holders_column_has_no_contribution() -> None:
    X, y = table(2100)
    twice = np.column_stack([X, X[:, 0]])
    parts = {"bank": [0], "shop": [1], "copy": [5]}
    model = GALRegressor(
        parts, local_models=LinearRegression(), algorithm=Algorithm(stacking=False), rounds=4, random_state=0
    )
    found = model.fit(twice, y).contributions_
    assert found is not None
    copy = found.by_organization["copy"]
    assert abs(copy.value) < 0.02 * found.gain.value
    assert copy.verdict == "no gain"


def test_contributions_are_near_those_of_learning_with_each_coalition() -> None:
    found, _ = fitted(2400, stacking=False)
    game = coalitions_of(sorted(found.by_organization), 0)
    gains = [
        fitted(2400, stacking=False, parts={name: PARTS[name] for name in ("bank", *some)})[0].gain.value
        for some in map(sorted, game.members)
    ]
    for name, relearned in zip(game.players, game.matrix @ np.array(gains), strict=True):
        assert found.by_organization[name].value == pytest.approx(relearned, abs=0.03)


@pytest.mark.parametrize("own", [{}, {"stacking": False, "interactions": True}], ids=["stacker", "probes"])
def test_what_stacker_and_probes_gain_has_contributions_too(own: dict[str, Any]) -> None:
    """Bank and shop know a product only together: beside a chancer, it is the shop's contribution."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 4))
    y = X[:, 0] + X[:, 1] + X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=4000)
    parts = {"bank": [0], "shop": [1], "chancer": [2, 3]}
    options: dict[str, Any] = {"rounds": 3, "random_state": 0, "local_models": LinearRegression()}
    model = GALRegressor(parts, **grouped(options | own)).fit(X, y)
    found = model.contributions_
    assert (model.stacker_ is None) == ("stacking" in own)
    assert (model.probes_ is None) == ("stacking" not in own)
    without = (
        GALRegressor(parts, **grouped(options), algorithm=Algorithm(stacking=False)).fit(X, y).contributions_
    )
    assert found is not None
    assert without is not None
    assert found.gain.value > without.gain.value + 0.1
    check_adds_up(found, model.ensemble_)
    assert found.by_organization["shop"].value > 0.95 * found.gain.value
    assert found.by_organization["chancer"].verdict == "no gain"


@pytest.mark.parametrize("options", [{"cross_validation": 0}, {"preset": "paper"}])
def test_where_nothing_validates_training_rows_tell(options: dict[str, Any]) -> None:
    found, ensemble = fitted(200, rounds=2, **options)
    assert (found.rows, found.n_rows) == ("training", 200)
    fall = ensemble.initial_train_loss - ensemble.train_loss
    assert found.own + found.gain.value == pytest.approx(fall)
    assert found.by_organization["shop"].verdict == "helped"


def test_under_label_privacy_there_is_no_baseline_and_contributions_add_up() -> None:
    X, y = table(800)
    privacy = RandomisedResponse(4.0, (False, True), SeededNoise(0))
    given: dict[str, Any] = {"validation_fraction": 0.3, "privacy": privacy, "random_state": 0, "rounds": 3}
    model = GALClassifier(PARTS, local_models=LinearRegression(), **grouped(given)).fit(X, y > 0)
    found = model.contributions_
    assert found is not None
    assert found.own > 0
    assert sum(one.value for one in found.by_organization.values()) == pytest.approx(found.gain.value)
    assert found.by_organization["shop"].verdict == "helped"


def test_contributions_are_stored_with_the_model() -> None:
    found, ensemble = fitted(300)
    again = ensemble_of(json.loads(json.dumps(plain(ensemble))))
    assert plain(again.contributions) == plain(found)
    assert again.contributions is not None
    assert again.contributions.by_organization["shop"] == found.by_organization["shop"]
    nothing = {name: value for name, value in plain(ensemble).items() if name != "contributions"}
    assert ensemble_of(nothing).contributions is None
