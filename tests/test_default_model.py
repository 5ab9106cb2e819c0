"""The default local model: what an ordinary mixed table may hold, and what it makes of it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from gal import GALClassifier, GALRegressor
from gal.core.requests import FitRequest, Target, Terms
from gal.core.rows import all_rows, with_probes
from gal.learner.organization import fit_locally
from gal.models import TabularModel, check_local_model
from gal.models.tabular import TableEncoder, prepared_table, table_encoder
from gal.models.tabular.columns import MAX_CATEGORIES
from gal.models.tabular.tabular_model import ridge

Floats = NDArray[np.float64]


def mixed_table(n: int = 600, seed: int = 0) -> tuple[pd.DataFrame, Floats]:
    """A table with a column of every kind, and numbers that follow from several of them."""
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 10, n)
    city = rng.choice(["Basel", "Bern", "Genf"], n)
    member = rng.random(n) < 0.5
    joined = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), unit="D")
    y = (age - 50) / 10 + (city == "Bern") * 2 + member + (joined.day_of_year > 180) + rng.normal(0, 0.3, n)
    table = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, age),
            "city": pd.Series(city).where(rng.random(n) > 0.1),
            "segment": pd.Categorical(rng.choice([1, 2, 3], n)),
            "member": member,
            "maybe": pd.Series(member, dtype="boolean").mask(rng.random(n) < 0.2),
            "joined": joined,
            "visits": pd.Series(rng.integers(0, 9, n), dtype="Int64").mask(rng.random(n) < 0.2),
            "constant": 7.1,
            "nothing": np.nan,
            "none": pd.Series([None] * n, dtype=object),
            "name": [f"customer {i}" for i in range(n)],
        }
    )
    return table, np.asarray(y, dtype=np.float64)


PARTS = {
    "bank": ["age", "constant", "nothing", "visits", "name"],
    "shop": ["city", "segment", "none"],
    "club": ["member", "maybe", "joined"],
}

MODELS = [TabularModel(random_state=0), TabularModel(min_rows=10, random_state=0)]


@pytest.mark.parametrize("model", MODELS, ids=["ridge", "with trees"])
class TestColumns:
    @pytest.mark.parametrize("column", list(mixed_table(4)[0].columns))
    def test_each_kind_by_itself(self, model: TabularModel, column: str) -> None:
        X, y = mixed_table()
        fitted = model.fit(X[[column]], y).predict(X[[column]])
        assert np.isfinite(fitted).all()
        assert fitted.std() <= y.std()

    def test_unseen_and_missing_categories_get_the_same_finite_answer(self, model: TabularModel) -> None:
        X, y = mixed_table()
        model.fit(X[["city"]], y)
        unseen, missing = (model.predict(pd.DataFrame({"city": [city] * 3})) for city in ("Chur", None))
        assert np.isfinite(unseen).all()
        np.testing.assert_array_equal(unseen, missing)

    def test_column_that_is_missing_at_prediction_only(self, model: TabularModel) -> None:
        X, y = mixed_table()
        assert np.isfinite(
            model.fit(X, y).predict(X.assign(age=np.nan, joined=pd.Series(pd.NaT, index=X.index), city=None))
        ).all()

    def test_infinite_numbers_of_a_frame_count_as_missing(self, model: TabularModel) -> None:
        X, y = mixed_table()
        model.fit(X[["age"]], y)
        infinite, missing = (model.predict(pd.DataFrame({"age": [age]})) for age in (np.inf, np.nan))
        np.testing.assert_array_equal(infinite, missing)

    def test_constant_columns_change_nothing(self, model: TabularModel) -> None:
        X, y = mixed_table()
        with_it, without = (
            model.fit(X[names], y).predict(X[names]) for names in (["age", "constant"], ["age"])
        )
        np.testing.assert_allclose(with_it, without, atol=1e-9)

    def test_several_outputs(self, model: TabularModel) -> None:
        X, y = mixed_table()
        both = model.fit(X, np.column_stack([y, y**2])).predict(X)
        one = model.fit(X, y).predict(X)
        np.testing.assert_allclose(both[:, 0], one, atol=1e-6)

    def test_rows_of_weight_zero_change_nothing(self, model: TabularModel) -> None:
        X, y = mixed_table()
        X, weight = X.drop(columns="name"), np.repeat([1.0, 0.0], 300)
        other = np.where(weight > 0, y, 100.0)
        one, another = (model.fit(X, target, weight).predict(X[:300]) for target in (y, other))
        np.testing.assert_allclose(one, another, atol=1e-9)


def test_table_without_a_column_of_numbers_or_categories_is_no_problem() -> None:
    X, y = mixed_table(1200)
    nothing = X[["constant", "nothing", "none"]]
    np.testing.assert_allclose(TabularModel().fit(nothing, y).predict(nothing), y.mean())


class TestDates:
    def test_dates_are_numbers_of_days_however_they_are_kept(self) -> None:
        dates = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-03", "NaT", "2024-02-01"]))
        kept = {
            "plain": dates,
            "with a time zone": dates.dt.tz_localize("UTC"),
            "in seconds": dates.astype("datetime64[s]"),
            "objects": pd.Series(
                [None if pd.isna(one) else one.to_pydatetime() for one in dates], dtype=object
            ),
        }
        for how, column in kept.items():
            table = pd.DataFrame({"date": column})
            codes = TableEncoder().fit(table).codes(table)[:, 0]
            np.testing.assert_array_equal(codes[[0, 1, 3]] - codes[0], [0, 2, 31], err_msg=how)
            assert np.isnan(codes[2]), how

    def test_durations(self) -> None:
        table = pd.DataFrame({"stay": pd.to_timedelta([1, 2, 12], unit="h")})
        np.testing.assert_allclose(TableEncoder().fit(table).codes(table)[:, 0] * 24, [1, 2, 12])


class TestText:
    def test_only_the_most_frequent_categories_are_kept(self) -> None:
        names = [f"{i:03}" for i in range(200) for _ in range(1 + (i < MAX_CATEGORIES))]
        table = pd.DataFrame({"name": names})
        encoder = TableEncoder().fit(table)
        assert encoder.categories_ == [[f"{i:03}" for i in range(MAX_CATEGORIES)]]
        assert encoder.width == MAX_CATEGORIES


class TestArrays:
    @pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.bool_])
    def test_an_array_of_numbers_is_read_like_a_frame(self, kind: Any) -> None:
        numbers = np.random.default_rng(0).normal(0, 3, size=(80, 3))
        if kind in (np.float64, np.float32):
            numbers[0, 0], numbers[1, 1] = np.nan, np.inf
        table = numbers.astype(kind)
        one, two = TableEncoder().fit(table), TableEncoder().fit(pd.DataFrame(table))
        codes = one.codes(table)
        assert codes.tobytes() == two.codes(pd.DataFrame(table)).tobytes()
        assert one.wide(codes).tobytes() == two.wide(codes).tobytes()


class TestPreparedTables:
    """What is at hand changes nothing but the time."""

    def fitted(self, prepared: Any, rows: Any, y: Floats, weight: Floats | None) -> TabularModel:
        return TabularModel(random_state=0).fit(prepared[rows], y[rows], weight)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_a_second_round_is_as_if_it_were_the_first(self, weighted: bool) -> None:
        X, y = mixed_table()
        rows = np.arange(0, 600, 1)[:560]
        weight = np.random.default_rng(1).random(560) if weighted else None
        used, fresh = TabularModel().prepare(X), TabularModel().prepare(X)
        self.fitted(used, rows, y**2, None).predict(used)  # an earlier round, or another track's
        one, other = (self.fitted(table, rows, y, weight) for table in (used, fresh))
        assert one.trees_
        np.testing.assert_array_equal(one.predict(used), other.predict(fresh))
        np.testing.assert_array_equal(one.predict(used), one.predict(X))

    def test_other_columns_than_those_that_were_fitted_are_refused(self) -> None:
        X, y = mixed_table()
        model = TabularModel().fit(TabularModel().prepare(X), y)
        assert list(model.feature_names_in_) == list(X.columns)
        other = TabularModel().prepare(X.rename(columns={"age": "years"}))
        with pytest.raises(ValueError, match="years"):
            model.predict(other)
        numbers = np.random.default_rng(0).normal(size=(600, 3))
        unnamed = model.fit(TabularModel().prepare(numbers[:, :2]), y)
        assert not hasattr(unnamed, "feature_names_in_")
        with pytest.raises(ValueError, match="3 features"):
            unnamed.predict(TabularModel().prepare(numbers))


class TestRidge:
    def problem(self) -> tuple[TableEncoder, Floats, Floats, Floats]:
        X, y = mixed_table()
        encoder = TableEncoder().fit(X)
        weight = np.random.default_rng(1).random(len(y))
        return encoder, encoder.codes(X), np.column_stack([y, y**2]), weight

    @pytest.mark.parametrize("weighted", [False, True])
    def test_blocks_give_the_ridge_of_the_whole(
        self, monkeypatch: pytest.MonkeyPatch, weighted: bool
    ) -> None:
        encoder, codes, target, weight = self.problem()
        whole = Ridge(alpha=2.0).fit(encoder.wide(codes), target, weight if weighted else None)
        monkeypatch.setattr(table_encoder, "BLOCK", 50 * encoder.width)
        monkeypatch.setattr(prepared_table, "KEPT_NUMBERS", 0)
        assert len(list(encoder.blocks(len(codes)))) == 12
        coded = TabularModel().prepare(mixed_table()[0]).coded(encoder)
        coefficients, intercepts = ridge(coded, target, weight if weighted else None, 2.0)
        np.testing.assert_allclose(coefficients, whole.coef_.T, atol=1e-9)
        np.testing.assert_allclose(intercepts, whole.intercept_, atol=1e-9)
        np.testing.assert_allclose(
            coded.linear(coefficients, intercepts), whole.predict(encoder.wide(codes)), atol=1e-9
        )

    def test_memory_does_not_grow_with_the_wide_matrix(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(table_encoder, "BLOCK", 2**14)
        n = 40_000
        names = np.random.default_rng(0).integers(0, MAX_CATEGORIES, n)
        table = pd.DataFrame({"name": pd.Series(names.astype(str), dtype="category")})
        tracemalloc.start()
        TabularModel(max_iter=0).fit(table, names.astype(float))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * n * MAX_CATEGORIES / 2

    def test_curves_are_fitted(self) -> None:
        x = np.random.default_rng(0).uniform(-1, 1, (300, 1))
        y = np.abs(x[:, 0])
        assert TabularModel().fit(x, y).trees_ == []
        assert TabularModel().fit(x, y).score(x, y) > 0.85


class TestTrees:
    def test_small_tables_get_none(self) -> None:
        X, y = mixed_table(TabularModel().min_rows)
        assert TabularModel().fit(X[:-1], y[:-1]).trees_ == []
        assert len(TabularModel().fit(X, y).trees_) == 1

    @pytest.mark.parametrize("wrapped", [False, True], ids=["as it is", "in a pipeline"])
    @pytest.mark.parametrize(("outputs", "trees"), [(1, 6), (2, 6), (3, 2)])
    def test_beyond_the_rounds_there_are_more(self, outputs: int, trees: int, *, wrapped: bool) -> None:
        """An interaction probe is fitted once: no later one finds what it misses. A random target asks for
        a coarse function.
        """
        view, residual = np.random.default_rng(0).normal(size=(2, 1200, outputs)).astype(np.float32)
        terms = Terms(with_probes(all_rows(1200), np.random.default_rng(0)), outputs, 3, 0)
        targets: dict[Target, int] = {"residual": 1 if outputs > 2 else 5, "random": 1, "probe": trees}
        for target, expected in targets.items():
            for given in (TabularModel(), TabularModel(max_iter=4), TabularModel(learning_rate=0.3)):
                model = make_pipeline(given) if wrapped else given
                _, models = fit_locally(
                    "one", view, model, FitRequest(4, residual, ("one",), target=target), terms
                )
                told = given.max_iter is not None or given.learning_rate is not None
                own = given.max_iter or targets["residual"]
                for local in models:
                    one: Any = local
                    fitted = one.estimators_[0][-1] if wrapped else one.estimators_[0]
                    assert fitted.n_iter_ == 1 + (own if told else expected)
                    coarse = target == "random" and not told
                    assert coarse == (fitted.max_leaf_nodes == 8)
            assert len(models) == (2 if target == "probe" else 1)

    def test_they_find_what_columns_say_together(self) -> None:
        x = np.random.default_rng(0).uniform(-1, 1, (4000, 2))
        y = x[:, 0] * x[:, 1]
        assert TabularModel(max_iter=0).fit(x, y).score(x, y) < 0.1
        assert TabularModel(max_iter=30).fit(x, y).score(x, y) > 0.6


@pytest.mark.parametrize("n", [400, 3000], ids=["cross-validated", "held out"])
class TestAssistance:
    """With the default local model and all other defaults."""

    def test_beats_the_label_holder_alone_in_regression(self, n: int) -> None:
        X, y = mixed_table(2 * n)
        alone, assisted = self.scores(GALRegressor, X, y, n, r2_score, "predict")
        assert assisted > alone + 0.2

    def test_beats_the_label_holder_alone_in_classification(self, n: int) -> None:
        X, y = mixed_table(2 * n)
        alone, assisted = self.scores(
            GALClassifier, X, y > np.median(y), n, roc_auc_score, "decision_function"
        )
        assert assisted > alone + 0.1

    def scores(
        self,
        kind: Callable[..., Any],
        X: pd.DataFrame,
        y: NDArray[Any],
        n: int,
        score: Callable[..., float],
        how: str,
    ) -> tuple[float, float]:
        models = [kind(parts, random_state=0) for parts in ({"bank": PARTS["bank"]}, PARTS)]
        alone, assisted = (score(y[n:], getattr(one.fit(X[:n], y[:n]), how)(X[n:])) for one in models)
        return alone, assisted


def test_is_a_local_model_by_contract() -> None:
    check_local_model(TabularModel())
    check_local_model(TabularModel(min_rows=10))


@pytest.mark.parametrize("model", [TabularModel(), TabularModel(min_rows=10)], ids=["ridge", "with trees"])
def test_is_a_scikit_learn_estimator(model: TabularModel) -> None:
    check_estimator(model, on_skip=None)
