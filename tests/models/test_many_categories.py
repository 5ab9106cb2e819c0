"""Columns with hundreds of categories in the default local model: what they add, and that nothing leaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.preprocessing import OneHotEncoder

from gal import GALClassifier, GALRegressor
from gal.models import TabularModel
from gal.models.tabular import TableEncoder, many_categories
from gal.models.tabular.many_categories import fit_effects, fit_slopes

Floats = NDArray[np.float64]


def shops(n: int, size: int, seed: int = 0, *, heavy: bool = False) -> tuple[pd.DataFrame, Floats]:
    """Numbers that follow from a row's shop and from two columns; shops are the same for all seeds."""
    effects = np.random.default_rng(99).normal(size=size)
    rng = np.random.default_rng(seed)
    share = np.arange(1, size + 1) ** (-1.1 if heavy else 0.0)
    shop = rng.choice(size, n, p=share / share.sum())
    table = pd.DataFrame(rng.normal(size=(n, 4)), columns=["a", "b", "c", "d"])
    y = effects[shop] + 0.7 * table["a"] + 0.5 * table["c"]
    return table.assign(shop=[f"shop {one}" for one in shop]), y.to_numpy().copy()


def encoder_of(X: pd.DataFrame, weight: Floats | None = None) -> TableEncoder:
    return TableEncoder().fit(X, weight, many=True)


def one_hot(X: pd.DataFrame) -> Any:
    """Numbers and one column for each shop."""
    shop = OneHotEncoder(handle_unknown="ignore").fit_transform(X[["shop"]])
    return sparse.hstack([sparse.csr_matrix(X[["a", "b", "c", "d"]].to_numpy()), shop]).tocsr()


SIDES = {
    "label holder": {"one": ["a", "b", "shop"], "other": ["c", "d"]},
    "partner": {"one": ["a", "b"], "other": ["c", "d", "shop"]},
}


@pytest.mark.parametrize("columns", SIDES.values(), ids=SIDES.keys())
class TestSignal:
    """With all defaults, on either side: as good as the pooled columns."""

    @pytest.mark.parametrize(
        ("size", "heavy"),
        [(240, False), (240, True), (2400, False)],
        ids=["alike", "heavy-tailed", "thousands"],
    )
    def test_of_numbers(self, columns: dict[str, list[str]], size: int, *, heavy: bool) -> None:
        X, y = shops(8500, size, heavy=heavy)
        y = y + np.random.default_rng(1).normal(size=len(y))
        found = GALRegressor(columns, random_state=0).fit(X[:4500], y[:4500]).predict(X[4500:])
        wide = one_hot(X)
        pooled = Ridge(alpha=1.0).fit(wide[:4500], y[:4500]).predict(wide[4500:])
        # Of two rows for each of thousands, a fifth that is not fitted costs pooled ridge .022.
        assert r2_score(y[4500:], found) > r2_score(y[4500:], pooled) - (0.055 if size > 1000 else 0.03)

    def test_of_two_classes(self, columns: dict[str, list[str]]) -> None:
        X, z = shops(8500, 240)
        y = np.random.default_rng(1).random(len(z)) < 1 / (1 + np.exp(-1.5 * z))
        found = GALClassifier(columns, random_state=0).fit(X[:4500], y[:4500]).decision_function(X[4500:])
        wide = one_hot(X)
        pooled = LogisticRegression(max_iter=300).fit(wide[:4500], y[:4500])
        best = roc_auc_score(y[4500:], pooled.decision_function(wide[4500:]))
        assert roc_auc_score(y[4500:], found) > best - 0.01


@pytest.mark.parametrize("size", [1200, 300])
def test_categories_of_one_or_two_rows_say_as_much_as_one_column_for_each(size: int) -> None:
    X, y = shops(size * 3 // 2 + 4000, size)
    y, n = y + np.random.default_rng(1).normal(scale=0.7, size=len(y)), size * 3 // 2
    model, wide = TabularModel(max_iter=0).fit(X[:n], y[:n]), one_hot(X)
    best = RidgeCV(np.logspace(-1, 1, 3)).fit(wide[:n], y[:n]).predict(wide[n:])
    assert r2_score(y[n:], model.predict(X[n:])) > r2_score(y[n:], best) - 0.02


def acting(n: int, size: int, seed: int = 0) -> tuple[pd.DataFrame, Floats, Floats]:
    """A shop and numbers; what slopes of shops on z add to rows, and what shops add where z is positive."""
    slopes = np.random.default_rng(99).normal(size=size)
    rng = np.random.default_rng(seed)
    shop, z = rng.integers(0, size, n), rng.normal(size=n)
    table = pd.DataFrame(rng.normal(size=(n, 4)), columns=["x", "a", "b", "c"])
    table = table.assign(shop=[f"shop {one}" for one in shop], z=z)
    return table, slopes[shop] * z, np.where(z > 0, slopes[shop], 0.0)


class TestThroughAnotherColumn:
    """What a category adds depends on another column of the same organization."""

    @pytest.mark.parametrize(("step", "least"), [(False, 0.8), (True, 0.68)], ids=["slopes", "step"])
    def test_is_found(self, least: float, *, step: bool) -> None:
        X, slope, stepped = acting(8500, 200)
        signal = stepped if step else slope
        rng = np.random.default_rng(1)
        y = 0.6 * X["x"] + signal / signal.std() + 0.4 * rng.normal(size=len(X))  # at best .89
        columns = {"one": ["x"], "other": ["shop", "z", "a", "b", "c"]}
        model = GALRegressor(columns, random_state=0).fit(X[:4500], y[:4500])
        assert r2_score(y[4500:], model.predict(X[4500:])) > least

    def test_of_several_outputs_with_weights_and_row_by_row(self) -> None:
        X, slope, step = acting(4000, 200)
        target = np.column_stack([slope, slope + 0.5 * step])
        model = TabularModel(max_iter=0).fit(X, target, np.random.default_rng(0).random(4000))
        assert {one[0] for one in model.slopes_} == {0, 1}
        fresh, slope, step = acting(4000, 200, seed=1)
        assert r2_score(np.column_stack([slope, slope + 0.5 * step]), model.predict(fresh)) > 0.8
        among = model.predict(fresh)[:9]
        np.testing.assert_allclose([model.predict(fresh[i : i + 1])[0] for i in range(9)], among, rtol=1e-12)
        unknown = model.predict(fresh[:9].assign(shop="never seen"))
        lines = model.prepare(fresh[:9].assign(shop="never seen")).coded(model.encoder_)
        np.testing.assert_array_equal(unknown, lines.linear(model.coef_, model.intercept_))

    def test_a_row_follows_the_other_rows_of_its_category(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(many_categories, "_shrinkage", lambda _: (2.0, False))
        X, slope, _ = acting(900, 100)
        coded = TabularModel().prepare(X).coded(encoder_of(X))
        slopes, added = fit_slopes(coded, slope[:, None], None)
        slope[3] += 10.0
        again, changed = fit_slopes(coded, slope[:, None], None)
        z = 17  # among wide columns: before it stand four numbers with three hinges each, and the shop
        assert [one[:3] for one in slopes] == [one[:3] for one in again] == [(0, 0, z)]
        moved = np.flatnonzero(np.abs(changed - added)[:, 0] > 1e-9)
        np.testing.assert_array_equal(moved, np.setdiff1d(np.flatnonzero(X["shop"] == X["shop"][3]), 3))

    def test_noise_and_means_have_no_slopes(self) -> None:
        X, y = shops(3000, 200)
        rng, found = np.random.default_rng(0), 0
        for _ in range(20):
            noise = rng.normal(size=3000) * np.abs(X["b"])  # the larger, the larger the number
            found += TabularModel(max_iter=0).fit(X, y + noise).slopes_ != []
        assert found <= 1

    def test_saved_models_predict_the_same(self, tmp_path: Path) -> None:
        X, slope, _ = acting(2000, 100)
        model = GALRegressor({"one": ["x"], "other": ["shop", "z"]}, rounds=2, random_state=0).fit(X, slope)
        model.save(tmp_path / "model.gal")
        np.testing.assert_array_equal(GALRegressor.load(tmp_path / "model.gal").predict(X), model.predict(X))


class TestOwnResidual:
    """Nothing that is fitted to a row follows from the row's own residual by way of its category."""

    def table(self) -> tuple[pd.DataFrame, Floats]:
        X, y = shops(900, 100)
        return X.assign(shop=np.where(np.arange(900) == 7, "alone", X["shop"])), y

    def fitted(self, X: pd.DataFrame, y: Floats, rows: Any) -> tuple[TabularModel, Floats]:
        model = TabularModel(random_state=0)
        known = model.prepare(X)
        return model, model.fit(known[rows], y[rows]).predict(known)

    @pytest.mark.parametrize("change", [0.0, 50.0])
    def test_a_row_alone_in_its_category_is_fitted_as_an_unknown_one(self, change: float) -> None:
        X, y = self.table()
        y[7] += change
        model, values = self.fitted(X, y, np.arange(900))
        assert np.abs(model.effects_[0]).max() > 0.5
        unknown = model.predict(X[7:8].assign(shop="never seen"))
        np.testing.assert_allclose(values[7], unknown[0], rtol=1e-12)

    def test_a_row_follows_the_other_rows_of_its_category(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(many_categories, "_shrinkage", lambda _: (2.0, False))
        X, y = self.table()
        coded, weight = TabularModel().prepare(X).coded(encoder_of(X)), np.random.default_rng(0).random(900)
        target = np.column_stack([y, -y])
        _, added = fit_effects(coded.many, coded.places, target, weight)
        target[3] += 100.0
        _, changed = fit_effects(coded.many, coded.places, target, weight)
        moved = (np.abs(changed - added) > 1e-9).all(axis=1)
        np.testing.assert_array_equal(
            np.flatnonzero(moved), np.setdiff1d(np.flatnonzero(X["shop"] == X["shop"][3]), 3)
        )
        others = np.setdiff1d(np.flatnonzero(X["shop"] == X["shop"][5]), 5)
        expected = weight[others] @ target[others] / (weight[others].sum() + 2.0)
        np.testing.assert_allclose(changed[5], expected)

    def test_rows_that_were_not_fitted_follow_the_whole_category(self) -> None:
        X, y = self.table()
        rows = np.arange(0, 900, 2)
        model, values = self.fitted(X, y, rows)
        plain, left_out = model.predict(X), np.arange(1, 900, 2)
        np.testing.assert_allclose(values[left_out], plain[left_out], rtol=1e-12)
        assert (values[rows] != plain[rows]).mean() > 0.9
        np.testing.assert_array_equal(model.predict(model.prepare(X)), plain)

    def test_noise_has_no_effects(self) -> None:
        rng, found = np.random.default_rng(0), 0
        for _ in range(40):
            X = pd.DataFrame({"shop": rng.integers(0, 300, 1500).astype(str)})
            model = TabularModel(max_iter=0).fit(X, rng.normal(size=1500))
            found += bool(model.effects_[0].any())
        assert found <= 4

    def test_many_rounds_do_not_add_up(self) -> None:
        """A row whose own residual is never fitted keeps it: its category must not get it in every round."""
        X, y = shops(300, 110)
        y = y + np.random.default_rng(1).normal(size=300)
        model, known = TabularModel(random_state=0), TabularModel().prepare(X)
        output, total = np.zeros(300), np.zeros(300)
        for _ in range(10):
            model.fit(known, y - output)
            output, total = output + model.predict(known), total + model.predict(X)
        assert np.abs(total).max() < np.abs(y).max() + 1


def test_a_round_corrects_what_an_earlier_one_took_for_shops() -> None:
    """Another organization explains most of the noise after the first round, and only then."""
    X, y = shops(4000, 240)
    other = 3 * np.random.default_rng(1).normal(size=4000)
    model = TabularModel(max_iter=0)
    known = model.prepare(X)
    output, total = np.zeros(4000), np.zeros(4000)
    left = []
    for _ in range(3):
        model.fit(known, y + other - output)
        output, total = output + model.predict(known) + other, total + model.predict(X)
        left.append(float(np.mean((y - y.mean() - (total - total.mean())) ** 2)))
        other = np.zeros(4000)
    assert left[0] > 0.2
    assert left[1] < left[0] / 2


class TestValues:
    def model(self, X: pd.DataFrame, y: Floats, **options: Any) -> TabularModel:
        return TabularModel(random_state=0, **options).fit(X, y)

    def test_unknown_and_missing_values_add_nothing(self) -> None:
        X, y = shops(1200, 100)
        model = self.model(X, y, max_iter=0)
        unknown, missing = (model.predict(X.assign(shop=shop)) for shop in ("never seen", None))
        np.testing.assert_array_equal(unknown, missing)
        effects = model.predict(X) - unknown
        assert r2_score(y, model.predict(X)) > 0.95
        assert abs(effects.mean()) < 0.1

    @pytest.mark.parametrize("dtype", ["category", "string", object])
    def test_categories_mean_the_same_whatever_type_holds_them(self, dtype: Any) -> None:
        X, y = shops(1200, 100)
        numbers = X["shop"].str[5:]
        model = self.model(X.assign(shop=numbers), y)
        kept = (
            numbers.astype(int).astype(dtype) if dtype is not object else numbers.astype(int).astype(object)
        )
        mixed = pd.Series([*kept[:600], *numbers[600:]], dtype=object) if dtype is object else kept
        np.testing.assert_array_equal(
            model.predict(X.assign(shop=mixed)), model.predict(X.assign(shop=numbers))
        )

    def test_rows_of_weight_zero_change_nothing(self) -> None:
        X, y = shops(1200, 100)
        weight, odd = np.repeat([1.0, 0.0], 600), np.where(np.arange(1200) < 600, y, 100.0)
        X["shop"] = np.where(np.arange(1200) < 600, X["shop"], "only of weight zero")
        assert "only of weight zero" not in encoder_of(X, weight).many_[4]
        one, other = (TabularModel(random_state=0).fit(X, target, weight) for target in (y, odd))
        np.testing.assert_allclose(one.predict(X), other.predict(X), atol=1e-9)
        alone = TabularModel(max_iter=0).fit(X[:600], y[:600])
        weighed = TabularModel(max_iter=0).fit(X, odd, weight)
        np.testing.assert_allclose(weighed.predict(X[:600]), alone.predict(X[:600]), atol=1e-9)

    def test_several_columns_and_outputs(self) -> None:
        (X, y), (more, z) = shops(3000, 100), shops(3000, 150, seed=1)
        both = X.assign(town=more["shop"])
        model = self.model(both, np.column_stack([y + z, y]), max_iter=0)
        found = model.predict(both)
        noise = 0.7 * more["a"] + 0.5 * more["c"]
        assert r2_score(y + z - noise, found[:, 0]) > 0.9
        assert r2_score(y, found[:, 1]) > 0.98
        single = self.model(both, y, max_iter=0).predict(both)
        np.testing.assert_allclose(found[:, 1], single, atol=1e-6)

    def test_a_column_that_names_rows_changes_nothing(self) -> None:
        X, y = shops(700, 3)
        named = X.assign(name=[f"row {i}" for i in range(700)])
        np.testing.assert_allclose(self.model(named, y).predict(named), self.model(X, y).predict(X))

    def test_a_column_of_rows_of_their_own_is_not_kept(self) -> None:
        names = [f"shop {i:03}" for i in range(300)]
        for more, kept in ([], []), ([*names[:30]], [names]):
            encoder = encoder_of(pd.DataFrame({"x": [*names, *more]}))
            assert list(encoder.many_.values()) == kept
            assert (encoder.is_category_, encoder.width) == ([False], 1)
