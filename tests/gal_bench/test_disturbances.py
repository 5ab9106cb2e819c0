"""Disturbed local models: what noise they add, where, and what GAL's weights make of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVR

from gal import GALClassifier, GALRegressor
from gal.errors import InvalidOptionError
from gal.models import (
    LinearModel,
    as_local_model,
    check_local_model,
    iter_local_model_checks,
    set_seed,
    takes_missing_values,
)
from gal.privacy import PaperInterval, PaperLaplace
from gal_bench.runs.disturbances import (
    MeteredModel,
    NoiseColumns,
    NoisyAnswers,
    NoisyResidual,
    PrivateResidual,
    disturbed,
    half,
)

Floats = NDArray[Any]
Wrap = Callable[..., Any]

WRAPPERS: dict[str, Wrap] = {
    "NoisyAnswers": lambda model, **seed: NoisyAnswers(model, 1.0, **seed),
    "NoisyResidual": lambda model, **seed: NoisyResidual(model, 1.0, **seed),
    "NoiseColumns": lambda model, **seed: NoiseColumns(model, **seed),
    "PrivateResidual": lambda model, **seed: PrivateResidual(
        model, PaperInterval(), seed=seed.get("random_state", 0)
    ),
    "MeteredModel": lambda model, **seed: MeteredModel(model),
}
every_wrapper = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


def signal(n: int = 200, n_outputs: int = 3, seed: int = 0) -> tuple[Floats, Floats]:
    """Columns (n, 4) and a residual (n, K) that they all but determine."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    residual = X @ rng.normal(size=(4, n_outputs)) + 0.01 * rng.normal(size=(n, n_outputs))
    return X, residual.astype(np.float32)


def correlation(a: Floats, b: Floats) -> float:
    return float(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1])


class Remembers:
    """A model that keeps what it was fitted to; all copies of a list are that list."""

    class Log(list[Any]):
        def __deepcopy__(self, memo: dict[int, Any]) -> Remembers.Log:
            return self

    def __init__(self) -> None:
        self.seen = Remembers.Log()

    def fit(self, X: Any, y: Any) -> None:
        self.seen.append((X, np.array(y)))

    def predict(self, X: Any) -> Floats:
        return np.asarray(X)[:, 0]


class TestAll:
    @every_wrapper
    @pytest.mark.parametrize(
        "model", [Ridge(), SVR(), KNeighborsRegressor()], ids=lambda one: type(one).__name__
    )
    @pytest.mark.parametrize("n_outputs", [1, 3])
    @pytest.mark.parametrize("frame", [False, True])
    def test_any_model_inside_any_table(self, wrap: Wrap, model: Any, n_outputs: int, frame: bool) -> None:
        X, residual = signal(n=40, n_outputs=n_outputs)
        given: Any = pd.DataFrame(X, columns=list("abcd"), index=np.arange(40) + 7) if frame else X
        before = X.copy(), residual.copy()
        local: Any = as_local_model(wrap(model), n_outputs)
        set_seed(local, 3)
        assert local.fit(given, residual).predict(given).shape == (40, n_outputs)
        np.testing.assert_array_equal(X, before[0])
        np.testing.assert_array_equal(residual, before[1])
        assert not hasattr(model, "n_features_in_")

    @every_wrapper
    def test_one_output_in_is_one_output_out(self, wrap: Wrap) -> None:
        X, residual = signal(n_outputs=1)
        assert wrap(Ridge(), random_state=0).fit(X, residual[:, 0]).predict(X).shape == (200,)
        assert wrap(Ridge(), random_state=0).fit(X, residual).predict(X).shape == (200, 1)

    @every_wrapper
    def test_a_clone_has_the_same_parameters_and_the_same_predictions(self, wrap: Wrap) -> None:
        X, residual = signal()
        model = wrap(Ridge(alpha=3.0), random_state=5)
        copied = clone(clone(model).fit(X, residual))
        assert repr(copied) == repr(model)
        assert copied.get_params()["model__alpha"] == 3.0
        assert not hasattr(copied, "model_")
        np.testing.assert_array_equal(model.fit(X, residual).predict(X), copied.fit(X, residual).predict(X))

    @every_wrapper
    def test_row_weights_reach_the_model_inside(self, wrap: Wrap) -> None:
        X, residual = signal()
        weight = np.linspace(0.0, 5.0, len(X))
        wrong = residual + np.linspace(3.0, 0.0, len(X), dtype=np.float32)[:, None]
        plain = wrap(Ridge(), random_state=0).fit(X, wrong).predict(X)
        weighted = wrap(Ridge(), random_state=0).fit(X, wrong, sample_weight=weight).predict(X)
        assert not np.allclose(plain, weighted)

    @every_wrapper
    def test_row_weights_are_dropped_where_the_model_inside_takes_none(self, wrap: Wrap) -> None:
        X, residual = signal()
        weight = np.linspace(0.0, 5.0, len(X))
        plain = wrap(KNeighborsRegressor(), random_state=0).fit(X, residual).predict(X)
        weighted = (
            wrap(KNeighborsRegressor(), random_state=0).fit(X, residual, sample_weight=weight).predict(X)
        )
        np.testing.assert_array_equal(plain, weighted)

    @every_wrapper
    def test_the_engine_seeds_the_wrapper_and_the_model_inside(self, wrap: Wrap) -> None:
        X, residual = signal(n=60)

        def predicted(seed: int) -> Floats:
            local: Any = as_local_model(wrap(RandomForestRegressor(n_estimators=3)), 3)
            set_seed(local, seed)
            return np.asarray(local.fit(X, residual).predict(X))

        np.testing.assert_array_equal(predicted(1), predicted(1))
        assert not np.array_equal(predicted(1), predicted(2))

    @every_wrapper
    def test_missing_values_are_taken_where_the_model_inside_takes_them(self, wrap: Wrap) -> None:
        assert takes_missing_values(wrap(RandomForestRegressor()))
        assert not takes_missing_values(wrap(Ridge()))

    @every_wrapper
    def test_predict_before_fit_is_an_error(self, wrap: Wrap) -> None:
        with pytest.raises(ValueError, match="not fitted"):
            wrap(Ridge()).predict(signal()[0])

    @pytest.mark.parametrize("model", [MeteredModel(LinearModel()), MeteredModel(SVR())])
    def test_a_metered_model_keeps_the_contract(self, model: Any) -> None:
        check_local_model(model)

    @pytest.mark.parametrize(
        "model",
        [NoisyResidual(Ridge(), 1.0), PrivateResidual(Ridge(), PaperLaplace())],
        ids=["noisy", "private"],
    )
    def test_noise_before_the_fit_keeps_the_contract(self, model: Any) -> None:
        check_local_model(model)

    @pytest.mark.parametrize("model", [NoisyAnswers(Ridge(), 1.0), NoiseColumns(Ridge())])
    def test_noise_in_answers_keeps_the_contract_but_for_repeating_an_answer(self, model: Any) -> None:
        """A row asked for twice gets two answers: that is the disturbance."""
        not_repeatable = {"permuted_rows_permute_the_predictions", "a_single_row"}
        if isinstance(model, NoisyAnswers):  # on a view that Ridge knows
            not_repeatable.add("rows_of_a_view_come_in_the_order_asked_for")
        checks = dict(iter_local_model_checks())
        assert not_repeatable <= set(checks)
        for name, check in checks.items():
            if name in not_repeatable:
                with pytest.raises(AssertionError, match=r"the prediction for a row depends|order asked for"):
                    check(model)
            else:
                check(model)


class TestNoisyAnswers:
    @pytest.mark.parametrize("sigma", [0.5, 5.0])
    def test_adds_noise_of_this_size_to_what_the_model_says(self, sigma: float) -> None:
        X, residual = signal(n=4000)
        noise = NoisyAnswers(Ridge(), sigma, random_state=0).fit(X, residual).predict(X)
        noise = noise - Ridge().fit(X, residual).predict(X)
        assert np.mean(noise) == pytest.approx(0.0, abs=5 * sigma / np.sqrt(12_000))
        assert np.std(noise) == pytest.approx(sigma, rel=0.04)
        assert np.mean(np.abs(noise) > 1.96 * sigma) == pytest.approx(0.05, abs=0.01)
        assert abs(correlation(noise[:, 0], noise[:, 1])) < 0.08

    def test_draws_anew_in_every_call(self) -> None:
        X, residual = signal(n=4000)
        model = NoisyAnswers(Ridge(), random_state=0).fit(X, residual)
        clean = Ridge().fit(X, residual).predict(X)
        first, second = (model.predict(X) - clean for _ in range(2))
        assert abs(correlation(first, second)) < 0.05

    def test_the_same_seed_repeats_the_sequence_of_calls(self) -> None:
        X, residual = signal()

        def calls(seed: int) -> list[Floats]:
            model = NoisyAnswers(Ridge(), random_state=seed).fit(X, residual)
            return [model.predict(X), model.predict(X[:3]), model.predict(X)]

        for a, b, other in zip(calls(4), calls(4), calls(5), strict=True):
            np.testing.assert_array_equal(a, b)
            assert not np.isin(a, other).any()

    def test_two_folds_with_one_seed_have_different_noise(self) -> None:
        X, residual = signal()
        noise = []
        for rows in (np.s_[:100], np.s_[100:]):
            model = NoisyAnswers(Ridge(), random_state=0).fit(X[rows], residual[rows])
            noise.append(model.predict(X) - Ridge().fit(X[rows], residual[rows]).predict(X))
        assert abs(correlation(*noise)) < 0.15

    def test_sigma_zero_is_the_model_itself(self) -> None:
        X, residual = signal()
        expected = Ridge().fit(X, residual).predict(X)
        np.testing.assert_array_equal(NoisyAnswers(Ridge(), 0.0).fit(X, residual).predict(X), expected)


class TestNoisyResidual:
    @pytest.mark.parametrize("sigma", [0.5, 5.0])
    def test_the_model_inside_is_fitted_to_a_noisy_residual(self, sigma: float) -> None:
        X, residual = signal(n=4000, n_outputs=1)
        inside = Remembers()
        NoisyResidual(inside, sigma, random_state=0).fit(X, residual)
        [(columns, received)] = inside.seen
        noise = received - residual[:, 0]
        assert columns is X
        assert np.mean(noise) == pytest.approx(0.0, abs=5 * sigma / np.sqrt(4000))
        assert np.std(noise) == pytest.approx(sigma, rel=0.06)

    def test_predictions_are_not_noisy(self) -> None:
        X, residual = signal()
        model = NoisyResidual(Ridge(), 1.0, random_state=0).fit(X, residual)
        np.testing.assert_array_equal(model.predict(X), model.predict(X))
        clean = Ridge().fit(X, residual).predict(X)
        assert 0.01 < np.std(model.predict(X) - clean) < 0.5  # five coefficients from 200 noisy rows

    def test_every_round_has_other_noise(self) -> None:
        X, residual = signal(n=4000, n_outputs=1)
        inside = Remembers()
        for seed in (0, 1):
            NoisyResidual(inside, random_state=seed).fit(X, residual)
        assert abs(correlation(*(y - residual[:, 0] for _, y in inside.seen))) < 0.08


@pytest.mark.parametrize("wrap", [NoisyAnswers, NoisyResidual])
@pytest.mark.parametrize("sigma", [-1.0, float("nan"), float("inf")])
def test_bad_sigma_is_refused(wrap: Any, sigma: float) -> None:
    with pytest.raises(InvalidOptionError, match="sigma"):
        wrap(Ridge(), sigma).fit(*signal())


class TestNoiseColumns:
    def test_the_model_has_no_predictive_power(self) -> None:
        X, residual = signal(n=2000, n_outputs=1)
        assert correlation(Ridge().fit(X, residual).predict(X), residual) > 0.99
        predicted = NoiseColumns(Ridge(), random_state=0).fit(X, residual).predict(X)
        assert abs(correlation(predicted, residual)) < 0.1

    def test_even_a_model_that_knows_its_rows_by_heart_knows_nothing(self) -> None:
        """The columns are drawn anew, so the fit rows are not found again."""
        X, residual = signal(n=2000, n_outputs=1)
        predicted = NoiseColumns(KNeighborsRegressor(1), random_state=0).fit(X, residual).predict(X)
        assert abs(correlation(predicted, residual)) < 0.1

    @pytest.mark.parametrize("frame", [False, True])
    def test_columns_are_standard_normal_and_keep_their_names(self, frame: bool) -> None:
        X, residual = signal(n=4000, n_outputs=1)
        given: Any = (
            pd.DataFrame(100 * X + 7, columns=list("abcd"), index=np.arange(4000)[::-1]) if frame else X
        )
        inside = Remembers()
        NoiseColumns(inside, random_state=0).fit(given, residual)
        [(columns, received)] = inside.seen
        assert isinstance(columns, type(given))
        if frame:
            assert list(columns) == list("abcd")
            pd.testing.assert_index_equal(columns.index, given.index)
        np.testing.assert_array_equal(received, residual[:, 0])
        np.testing.assert_allclose(np.mean(columns, axis=0), 0, atol=0.08)
        np.testing.assert_allclose(np.std(columns, axis=0), 1, atol=0.06)
        assert abs(correlation(np.asarray(columns), np.asarray(given))) < 0.05

    def test_columns_are_drawn_anew_in_every_call(self) -> None:
        X, residual = signal()
        first, again = (NoiseColumns(Ridge(), random_state=0).fit(X, residual) for _ in range(2))
        calls = [first.predict(X), first.predict(X)]
        assert not np.allclose(calls[0], calls[1])
        np.testing.assert_array_equal(calls, [again.predict(X), again.predict(X)])


class TestPrivateResidual:
    def received(self, residual: Floats, *, model: Remembers | None = None, **options: Any) -> Floats:
        inside = Remembers() if model is None else model
        X = np.zeros((len(residual), 1))
        PrivateResidual(inside, PaperLaplace(), **options).fit(X, residual)
        return np.column_stack([y for _, y in inside.seen])

    def test_two_organizations_see_the_same_noise(self) -> None:
        _, residual = signal()
        first, second = self.received(residual), self.received(np.asfortranarray(residual))
        np.testing.assert_array_equal(first, second)
        assert np.std(first - residual) > 1

    def test_another_residual_has_other_noise(self) -> None:
        residual = np.tile(np.array([[1.0], [-1.0]], dtype=np.float32), (1000, 1))
        other = residual.copy()
        other[:2] = other[1::-1]  # two rows changed places: same quantiles, same scale
        assert abs(correlation(self.received(residual) - residual, self.received(other) - other)) < 0.1

    def test_another_seed_has_other_noise(self) -> None:
        _, residual = signal(n=2000)
        noise = [self.received(residual, seed=seed) - residual for seed in (0, 1)]
        assert abs(correlation(*noise)) < 0.5  # what is clipped is the same in both

    def test_a_random_state_plays_no_part(self) -> None:
        assert "random_state" not in PrivateResidual(Ridge(), PaperLaplace()).get_params(deep=False)

    def test_the_residual_goes_through_the_mechanism(self) -> None:
        _, residual = signal()

        def negated(residual: ArrayLike, rng: np.random.Generator) -> NDArray[np.float32]:
            return np.negative(np.asarray(residual, dtype=np.float32))

        inside = Remembers()
        PrivateResidual(inside, negated).fit(np.zeros((200, 1)), residual)
        np.testing.assert_array_equal(np.column_stack([y for _, y in inside.seen]), -residual)


class TestMetered:
    @pytest.mark.parametrize("model", [Ridge(), SVR()])
    def test_measures_the_fit_and_changes_nothing(self, model: Any) -> None:
        X, residual = signal()
        metered = MeteredModel(model).fit(X, residual)
        plain: Any = as_local_model(model, 3)
        plain.fit(X, residual)
        np.testing.assert_array_equal(metered.predict(X), plain.predict(X))
        assert metered.fit_seconds_ > 0

    def test_stored_bytes_are_those_of_the_fitted_model(self) -> None:
        X, residual = signal()
        metered = MeteredModel(Ridge()).fit(X, residual)
        assert metered.stored_bytes_ == len(pickle.dumps(Ridge().fit(X, residual)))
        larger = MeteredModel(KNeighborsRegressor()).fit(X, residual)
        assert larger.stored_bytes_ > X.nbytes  # it keeps all rows


class TestWhom:
    @pytest.mark.parametrize(
        ("count", "expected"), [(0, []), (1, []), (2, [1]), (3, [1, 2]), (4, [2, 3]), (8, [4, 5, 6, 7])]
    )
    def test_the_second_half_never_the_first(self, count: int, expected: list[int]) -> None:
        names = [f"organization {index}" for index in range(count)]
        assert half(names) == [f"organization {index}" for index in expected]
        assert half(dict.fromkeys(names)) == half(names)

    def test_only_the_named_ones_are_disturbed(self) -> None:
        models = {"a": Ridge(), "b": Ridge(), "c": SVR()}
        found = disturbed(models, ["b", "c"], lambda model: NoisyAnswers(model, 5.0))
        assert found["a"] is models["a"]
        assert found["b"].model is models["b"]
        assert isinstance(found["c"], NoisyAnswers)
        with pytest.raises(InvalidOptionError, match="'d': the organizations are a, b, c"):
            disturbed(models, ["d"], MeteredModel)


ORGANIZATIONS = {f"organization {index}": [f"x{4 * index + one}" for one in range(4)] for index in range(4)}


def task(classes: bool, n: int = 150) -> tuple[pd.DataFrame, Floats]:
    """Sixteen columns of the same importance, four for each organization."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 16)), columns=[f"x{index}" for index in range(16)])
    score = X.to_numpy() @ rng.choice([-1.0, 1.0], size=16) + 0.3 * rng.normal(size=n)
    return X, np.digitize(score, [-1.5, 1.5]) if classes else score


def fitted(classes: bool, wrap: Wrap, *, random_state: int = 0, rounds: int = 3, **options: Any) -> Any:
    models = disturbed(dict.fromkeys(ORGANIZATIONS, Ridge()), half(ORGANIZATIONS), wrap)
    kind = GALClassifier if classes else GALRegressor
    estimator = kind(ORGANIZATIONS, local_models=models, rounds=rounds, random_state=random_state, **options)
    return clone(estimator).fit(*task(classes))


DISTURBANCES: dict[str, Wrap] = {
    "answers": lambda model: NoisyAnswers(model, 5.0),
    "residuals": lambda model: NoisyResidual(model, 10.0),
    "columns": NoiseColumns,
}


@pytest.mark.parametrize("classes", [False, True], ids=["numbers", "classes"])
@pytest.mark.parametrize("options", [{}, {"preset": "paper"}], ids=["default", "paper"])
class TestInTheEngine:
    @pytest.mark.parametrize("wrap", DISTURBANCES.values(), ids=DISTURBANCES)
    def test_weights_are_less_for_the_disturbed(
        self, classes: bool, options: dict[str, Any], wrap: Wrap
    ) -> None:
        """In round 1, over five draws of the noise: by luck a noisy fit may come out well once."""
        draws = [
            fitted(classes, wrap, random_state=seed, rounds=1, **options).rounds_[0].weights
            for seed in range(5)
        ]
        draws = [weights for weights in draws if len(weights) > 1]  # where the noise harms, nobody is used
        assert len(draws) >= 4
        noisy = half(ORGANIZATIONS)
        on_noisy, on_good = (
            np.mean(
                [weights[name] for weights in draws for name in ORGANIZATIONS if (name in noisy) == asked]
            )
            for asked in (True, False)
        )
        assert on_noisy < 0.7 * on_good

    @pytest.mark.parametrize("wrap", DISTURBANCES.values(), ids=DISTURBANCES)
    def test_the_same_random_state_gives_the_same_model(
        self, classes: bool, options: dict[str, Any], wrap: Wrap
    ) -> None:
        X, _ = task(classes)
        first, second = (fitted(classes, wrap, **options) for _ in range(2))
        assert [one.weights for one in first.rounds_] == [one.weights for one in second.rounds_]
        np.testing.assert_array_equal(first.predict(X), second.predict(X))

    def test_all_organizations_get_one_private_residual_a_round(
        self, classes: bool, options: dict[str, Any]
    ) -> None:
        X, y = task(classes)
        models = {name: Remembers() for name in ORGANIZATIONS}
        wrapped = disturbed(models, models, lambda model: PrivateResidual(model, PaperInterval(), seed=1))
        kind = GALClassifier if classes else GALRegressor
        kind(ORGANIZATIONS, local_models=wrapped, rounds=2, random_state=0, **options).fit(X, y)
        holder, *others = ([y.tobytes() for _, y in model.seen] for model in models.values())
        assert len(set(others[0])) > 1
        assert all(other == others[0] for other in others)
        assert set(holder) >= set(others[0])  # she also learns alone, where that is compared


def test_a_metered_fit_can_be_read_from_the_engine() -> None:
    estimator = fitted(False, MeteredModel, preset="paper")
    plain = fitted(False, lambda model: model, preset="paper")
    X, _ = task(False)
    np.testing.assert_array_equal(estimator.predict(X), plain.predict(X))
    for name in half(ORGANIZATIONS):
        models = [model for [model] in estimator._organizations[name].models.values()]
        assert len(models) == 3
        assert all(
            model.estimator_.fit_seconds_ > 0 and model.estimator_.stored_bytes_ > 0 for model in models
        )
