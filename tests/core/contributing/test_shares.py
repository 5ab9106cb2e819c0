"""Who earned the validated gain: it adds up, dummies get nothing, copies the same, closing is shared out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

import gal
from gal import GALClassifier, GALRegressor
from gal.core.contributing import earnings
from gal.core.contributing.coalitions import OwnModels, Spoken, outputs_by_coalition, spoken
from gal.core.contributing.games import game_of
from gal.core.contributing.shares import Coalition, Earned, Shares
from gal.core.state import Ensemble, ensemble_of, plain
from gal.engine.organization import Organization
from gal.privacy import RandomisedResponse
from gal.privacy.noise import SeededNoise
from gal.warnings import LeftOutWarning

pytestmark = pytest.mark.usefixtures("small_forests")

Floats = NDArray[np.float64]
PARTS = {"bank": [0], "shop": [1], "lab": [2], "chancer": [3, 4]}


def table(n: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Of bank, shop and lab one column each that matters; the chancer has noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, X[:, 0] + X[:, 1] + 0.5 * X[:, 2] + rng.normal(size=n)


def shares_of_fit(n: int, *, parts: dict[str, Any] | None = None, **options: Any) -> tuple[Shares, Ensemble]:
    X, y = table(n)
    given = {"local_models": LinearRegression(), "rounds": 4, "random_state": 0} | options
    model = GALRegressor(PARTS if parts is None else parts, **given).fit(X, y)
    assert model.shares_ is not None
    return model.shares_, model.ensemble_


def check_adds_up(shares: Shares, ensemble: Ensemble) -> None:
    earned = sum(one.value for one in shares.by_organization.values())
    assert earned == pytest.approx(shares.gain, abs=1e-12)
    reached = min(ensemble.alone_validation_loss, ensemble.assisted_validation_loss)
    assert shares.own + shares.gain == pytest.approx(ensemble.initial_validation_loss - reached, abs=1e-12)
    assert sum(ensemble.earned.values()) == pytest.approx(shares.own + shares.gain, abs=1e-12)
    for one in shares.by_organization.values():
        assert one.low <= one.value <= one.high


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (300, {}),
        (600, {"validation_fraction": 0.3}),
        (600, {"validation_fraction": 0.3, "fitted": "out-of-fold"}),
        (600, {"validation_fraction": 0.3, "fully_corrective": True}),
        (600, {"validation_fraction": 0.3, "loss": "absolute_error"}),
        (2100, {"closing": False}),
        (2100, {"closing": True}),
    ],
)
def test_shares_add_up_and_noise_is_a_free_rider(n: int, options: dict[str, Any]) -> None:
    shares, ensemble = shares_of_fit(n, **options)
    check_adds_up(shares, ensemble)
    chancer = shares.by_organization["chancer"]
    assert chancer.low <= 0 <= chancer.high
    assert abs(chancer.value) < 0.05 * shares.gain
    assert shares.verdicts()["chancer"] == "free rider"
    assert shares.verdicts()["shop"] == "helped"
    assert shares.by_organization["shop"].value > shares.by_organization["lab"].value
    assert "bank" not in shares.by_organization  # her own part is said apart


def test_rows_that_tell_may_be_fewer_than_those_whose_replies_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With interaction probes fewer validation rows are looked at; the baseline keeps replies of them all."""
    monkeypatch.setattr(earnings, "MOST_ROWS", 500)
    monkeypatch.setattr(earnings, "CLOSED_ROWS", 800)
    monkeypatch.setattr(earnings, "FEWEST_ROWS", 100)
    X, _ = table(1200)
    y = X[:, 0] * X[:, 1] + X[:, 2]
    options: dict[str, Any] = {"validation_fraction": 0.6, "interactions": 6, "closing": False, "rounds": 2}
    model = GALRegressor(PARTS, local_models=LinearRegression(), random_state=0, **options).fit(X, y)
    assert model.crossing_ is not None
    assert model.shares_ is not None
    assert model.shares_.rows == 90  # every eighth of 720; the baseline's replies are kept for every second
    check_adds_up(model.shares_, model.ensemble_)


def test_of_many_rows_those_that_tell_have_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were every so many-th row taken, all of them might count nothing."""
    monkeypatch.setattr(earnings, "MOST_ROWS", 20)
    X, y = table(600)
    for seed in range(3):
        weight = (np.random.default_rng(seed).random(600) < 0.03).astype(float)
        model = GALRegressor(
            PARTS, local_models=LinearRegression(), rounds=2, random_state=0, validation_fraction=0.5
        ).fit(X, y, sample_weight=weight)
        assert model.shares_ is not None
        assert 0 < model.shares_.rows <= 20
        check_adds_up(model.shares_, model.ensemble_)


def test_classes_in_several_outputs() -> None:
    X, y = table(600)
    codes = np.digitize(y, [-1, 1])
    model = GALClassifier(PARTS, local_models=LinearRegression(), rounds=3, random_state=0).fit(X, codes)
    assert model.shares_ is not None
    check_adds_up(model.shares_, model.ensemble_)
    assert model.shares_.verdicts()["chancer"] == "free rider"


def test_sample_weights_count() -> None:
    """Rows without weight tell nothing, whatever stands there."""
    X, y = table(800)
    weight = np.r_[np.ones(400), np.zeros(400)]
    spoilt = np.r_[y[:400], -5 * y[400:]]
    model = GALRegressor(PARTS, local_models=LinearRegression(), rounds=3, random_state=0)
    model.fit(X, spoilt, sample_weight=weight)
    assert model.shares_ is not None
    check_adds_up(model.shares_, model.ensemble_)
    assert model.shares_.by_organization["shop"].value > 0.3


def test_who_changed_nothing_earns_nothing() -> None:
    X, y = table(300)
    model = GALRegressor({"bank": [0, 1, 2], "chancer": [3, 4]}, random_state=0).fit(X, y)
    assert model.ensemble_.track == "alone"
    assert model.shares_ is not None
    assert model.shares_.gain == 0
    assert model.shares_.by_organization["chancer"] == Earned(0.0, 0.0, 0.0)
    assert model.shares_.verdicts() == {"chancer": "free rider"}
    assert model.contributions_["chancer"] == 0
    assert model.contributions_["bank"] > 0


@pytest.mark.parametrize(
    ("n", "options"), [(300, {}), (600, {"validation_fraction": 0.3}), (2100, {"closing": True})]
)
def test_who_was_never_there_earns_exactly_nothing_and_is_no_free_rider(
    n: int, options: dict[str, Any]
) -> None:
    """Also where estimates and what was measured differ: that difference is for who was there."""
    parts = PARTS | {"chancer": [3], "away": [4]}

    class Away(LinearRegression):  # type: ignore[misc]
        def fit(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("never there")

    models = dict.fromkeys(PARTS, LinearRegression()) | {"away": Away()}
    with pytest.warns(LeftOutWarning, match="away"):
        shares, ensemble = shares_of_fit(n, parts=parts, local_models=models, **options)
    check_adds_up(shares, ensemble)
    assert shares.by_organization["away"] == Earned(0.0, 0.0, 0.0)
    assert shares.verdicts()["away"] == "not used"
    assert shares.verdicts()["chancer"] == "free rider"
    gains = {frozenset(one.organizations): one.gain.value for one in shares.coalitions}
    assert gains[frozenset({"shop", "away"})] == gains[frozenset({"shop"})]


def test_a_copy_gets_as_much_as_the_original() -> None:
    X, y = table(2100)
    twice = np.column_stack([X, X[:, 1]])
    parts = {"bank": [0], "shop": [1], "copy": [5], "lab": [2]}
    model = GALRegressor(parts, local_models=LinearRegression(), closing=False, rounds=4, random_state=0)
    shares = model.fit(twice, y).shares_
    assert shares is not None
    first, second = shares.by_organization["shop"], shares.by_organization["copy"]
    assert first.value == pytest.approx(second.value, rel=0.05)
    alone = {one.organizations: one.gain.value for one in shares.coalitions}
    assert alone["shop",] == pytest.approx(alone["copy", "shop"], rel=0.05)


def test_estimates_of_coalitions_are_near_what_relearning_finds() -> None:
    shares, _ = shares_of_fit(2400, closing=False)
    for one in shares.coalitions:
        if len(one.organizations) == 3:
            assert one.measured
            continue
        assert not one.measured
        parts = {name: PARTS[name] for name in ("bank", *one.organizations)}
        again, _ = shares_of_fit(2400, closing=False, parts=parts)
        assert one.gain.value == pytest.approx(again.gain, abs=0.03)


@pytest.mark.parametrize("own", [{}, {"closing": False, "interactions": True}], ids=["closing", "crossing"])
def test_what_her_own_models_gain_is_shared_out_too(own: dict[str, Any]) -> None:
    """Bank and shop know a product only together: with a chancer, what she finds of it is the shop's."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 4))
    y = X[:, 0] + X[:, 1] + X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=4000)
    parts = {"bank": [0], "shop": [1], "chancer": [2, 3]}
    options: dict[str, Any] = {"rounds": 3, "random_state": 0, "local_models": LinearRegression()}
    model = GALRegressor(parts, **options, **own).fit(X, y)
    shares = model.shares_
    assert (model.closing_ is not None, model.ensemble_.crossing is not None) == (
        "closing" not in own,
        "interactions" in own,
    )
    assert shares is not None
    without = GALRegressor(parts, **options, closing=False).fit(X, y).shares_
    assert without is not None
    assert shares.gain > without.gain + 0.1
    check_adds_up(shares, model.ensemble_)
    assert shares.by_organization["shop"].value > 0.95 * shares.gain
    assert shares.verdicts() == {"chancer": "free rider", "shop": "helped"}


@pytest.mark.parametrize("options", [{"cross_validation": 0}, {"preset": "paper"}])
def test_where_nothing_validates_there_are_no_shares(options: dict[str, Any]) -> None:
    X, y = table(200)
    model = GALRegressor(PARTS, random_state=0, rounds=2, local_models=LinearRegression(), **options).fit(
        X, y
    )
    assert model.shares_ is None
    assert model.contributions_ == dict(model.ensemble_.contributions)  # of the train loss


def test_one_organization_has_nobody_to_share_with() -> None:
    X, y = table(200)
    assert GALRegressor({"bank": [0, 1]}, random_state=0, rounds=2).fit(X, y).shares_ is None


def test_in_parts_there_is_the_same() -> None:
    X, y = table(400)
    members = [Organization(name, X[:, columns], LinearRegression()) for name, columns in PARTS.items()]
    found = gal.learn(y, members, rounds=3, validation_fraction=0.3, label_holder="bank")
    assert found.shares is not None
    assert found.shares.own_measured
    check_adds_up(found.shares, found)


def test_under_privacy_her_own_part_is_an_estimate() -> None:
    """No model alone is learned there, and labels are noisy; what is shared out adds up all the same."""
    X, y = table(800)
    privacy = RandomisedResponse(4.0, (False, True), SeededNoise(0))
    model = GALClassifier(
        PARTS,
        local_models=LinearRegression(),
        rounds=3,
        validation_fraction=0.3,
        privacy=privacy,
        random_state=0,
    )
    shares = model.fit(X, y > 0).shares_
    assert shares is not None
    assert not shares.own_measured
    assert shares.own > 0
    assert sum(one.value for one in shares.by_organization.values()) == pytest.approx(shares.gain)
    assert shares.verdicts()["shop"] == "helped"


def test_shares_are_stored_with_the_model() -> None:
    shares, ensemble = shares_of_fit(300)
    again = ensemble_of(json.loads(json.dumps(plain(ensemble))))
    assert again.shares is not None
    assert dict(again.shares.by_organization) == dict(shares.by_organization)
    assert replace(again.shares, by_organization={}) == replace(shares, by_organization={})
    before = {name: value for name, value in plain(ensemble).items() if name != "shares"}
    assert ensemble_of(before).shares is None  # files of before


def test_a_projection_keeps_what_the_absent_share_with_the_present() -> None:
    rng = np.random.default_rng(0)
    common, own = rng.normal(size=(500, 1)), rng.normal(size=(500, 1))
    parts = {"a": common + 3.0, "b": 2 * common, "c": own}
    first = np.zeros((500, 1))
    said = Spoken(first, parts, first + sum(parts.values()))
    game = game_of(["a", "b", "c"])
    found = dict(zip(game.coalitions, outputs_by_coalition(said, None, None, game), strict=True))
    np.testing.assert_allclose(found[frozenset("bc")], said.final, atol=0.05)  # b says what a says
    np.testing.assert_array_equal(found[frozenset("abc")], said.final)
    np.testing.assert_allclose(found[frozenset()], said.final.mean())
    np.testing.assert_allclose(found[frozenset("a")], found[frozenset("b")], atol=0.2)


def test_the_closing_model_hears_the_absent_speak_of_other_rows() -> None:
    """A closing model that adds the product of two answers: without one of them it adds another row's."""

    class Product:
        share, validation_loss = 1.0, 0.0

        def output(self, output: Floats, answers: Any) -> Floats:
            return np.asarray(output + answers[0]["a"].astype(float) * answers[0]["b"].astype(float))

    rng = np.random.default_rng(0)
    replies = {name: rng.normal(size=(50, 1)).astype(np.float32) for name in "ab"}
    said = spoken(np.zeros((50, 1)), [{"a": 1.0, "b": 1.0}], [replies], OwnModels(Product()), seed=0)
    assert said.closed is not None
    whole, without = said.closed([frozenset(), frozenset("b")])
    product = replies["a"].astype(float) * replies["b"]
    np.testing.assert_allclose(whole, product)
    np.testing.assert_allclose(said.final, replies["a"] + replies["b"].astype(float) + product, rtol=1e-6)
    assert np.abs(without - product).mean() > 0.1
    np.testing.assert_allclose(
        np.sort((without / replies["a"]).ravel()), np.sort(replies["b"].ravel()), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (Earned(0.5, 0.4, 0.6), "helped"),
        (Earned(0.01, -0.1, 0.1), "free rider"),
        (Earned(-0.01, -0.02, -0.001), "free rider"),
        (Earned(0.01, -0.1, 0.21), "unclear"),  # it may have brought a fifth of the gain
        (Earned(0.4, -0.1, 0.9), "unclear"),
        (Earned(-0.4, -0.6, -0.2), "hurt"),
        (Earned(0.0, 0.0, 0.0), "not used"),
    ],
)
def test_a_word_for_each(one: Earned, said: str) -> None:
    together = Coalition(("x",), Earned(1.0, 0.8, 1.2), measured=True)
    shares = Shares(100, "validation rows", 1.0, True, 1.0, {"x": one}, (together,))
    assert shares.verdicts() == {"x": said}


def test_where_nothing_is_gained_whose_answers_bring_nothing_is_a_free_rider() -> None:
    one = Earned(-0.003, -0.01, 0.005)
    together = Coalition(("x",), one, measured=True)
    shares = Shares(100, "validation rows", -0.01, True, -0.003, {"x": one}, (together,))
    assert shares.verdicts() == {"x": "free rider"}


def test_who_spoils_what_the_others_bring_hurt() -> None:
    both = Coalition(("x", "y"), Earned(1.0, 0.8, 1.2), measured=True)
    parts = {"x": Earned(1.0, 0.8, 1.2), "y": Earned(0.0, 0.0, 0.1)}
    for without, word in ((1.05, "free rider"), (1.5, "hurt")):
        only = Coalition(("x",), Earned(without, without - 0.1, without + 0.1), measured=False)
        shares = Shares(100, "validation rows", 1.0, True, 1.0, parts, (only, both))
        assert shares.verdicts() == {"x": "helped", "y": word}
