"""Cross-validation: validation rows, the number of rounds kept, and assistance that must help."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeRegressor

from gal import Algorithm, GALClassifier, GALRegressor, Validation
from gal.assembling import grouped
from gal.core.cross_validation import LeftOut
from gal.core.state import Progress
from gal.learner.labels import class_labels, regression_labels
from gal.learner.options import MOST_ROUNDS, ROUNDS, Options
from gal.learner.task_making import make_rows, make_task
from small_tables import PARTS, Floats, health, ill, stages


def losses(model: Any) -> list[float]:
    return [model.ensemble_.initial_validation_loss, *(one.validation_loss for one in model.rounds_)]


@pytest.mark.parametrize("table", [health, ill, stages])
@pytest.mark.parametrize("local", [Ridge(), DecisionTreeRegressor()], ids=["steady", "overfitting"])
def test_the_best_validated_rounds_are_kept(table: Any, local: Any) -> None:
    X, y = table()
    kind = GALRegressor if table is health else GALClassifier
    model = kind(PARTS, local_models=local, rounds=5, random_state=0).fit(X, y)
    assert 0 <= model.ensemble_.shrinkage <= 1
    assert np.isfinite(losses(model)).all()
    assert model.n_rounds_ == int(np.argmin(losses(model)))
    assert min(losses(model)) <= model.ensemble_.alone_validation_loss + 1e-12


def test_a_model_that_overfits_is_trusted_less() -> None:
    X, y = health()
    noisy = y + 3 * np.random.default_rng(0).normal(size=len(y))
    shrinkages = [
        GALRegressor(PARTS, local_models=local, rounds=3, random_state=0).fit(X, noisy).ensemble_.shrinkage
        for local in (LinearRegression(), DecisionTreeRegressor())
    ]
    assert shrinkages[1] < 0.7 * shrinkages[0]


def test_shrinkage_shortens_every_step() -> None:
    X, y = health()
    noisy = y + 3 * np.random.default_rng(0).normal(size=len(y))
    model = GALRegressor(PARTS, local_models=DecisionTreeRegressor(), random_state=0).fit(X, noisy)
    ensemble = model.ensemble_
    assert ensemble.shrinkage < 1
    for counts, done in zip(ensemble.coefficients, ensemble.rounds, strict=False):
        for name, count in counts.items():
            assert count == pytest.approx(ensemble.shrinkage * done.rate * done.weights[name])


def garbage(n: int) -> tuple[pd.DataFrame, Floats]:
    """The label holder knows everything; the other has pure noise and a model that overfits it."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(n, 6)), columns=["known", "a", "b", "c", "d", "e"])
    return X, (3 * X["known"] + 0.1 * rng.normal(size=n)).to_numpy()


def test_assistance_that_hurts_is_not_used() -> None:
    n = 150
    X, y = garbage(n)
    model = GALRegressor(
        {"owner": ["known"], "noise": ["a", "b", "c", "d", "e"]},
        local_models={"owner": LinearRegression(), "noise": DecisionTreeRegressor()},
        algorithm=Algorithm(weights="uniform"),  # which cannot leave the noise out by itself
        rounds=3,
        random_state=0,
    ).fit(X, y)
    assert model.ensemble_.track == "alone"
    closed = model.ensemble_.stacker
    own = min(losses(model)) if closed is None else closed.validation_loss
    assert own == model.ensemble_.alone_validation_loss < model.ensemble_.assisted_validation_loss
    assert model.ensemble_.requested() == ("owner",)
    assert model.contributions_ is not None
    assert model.contributions_.by_organization["noise"].value == 0
    fresh, truth = garbage(3 * n)
    assert np.mean((model.predict(fresh) - truth) ** 2) < 0.02
    np.testing.assert_array_equal(model.predict(fresh[["known"]], missing=["noise"]), model.predict(fresh))


def test_assistance_that_helps_is_used() -> None:
    X, y = health()
    model = GALRegressor(PARTS, local_models=Ridge(), random_state=0).fit(X, y)
    assert model.ensemble_.track == "assisted"
    assert min(losses(model)) < 0.5 * model.ensemble_.alone_validation_loss


def test_without_a_validation_there_is_no_guard() -> None:
    X, y = garbage(150)
    model = GALRegressor(
        {"owner": ["known"], "noise": ["a", "b"]},
        local_models=Ridge(),
        rounds=2,
        validation=Validation(folds=0),
    ).fit(X, y)
    assert np.isnan(model.ensemble_.alone_validation_loss)
    assert np.isnan(losses(model)).all()
    assert model.ensemble_.shrinkage == 1
    assert model.n_rounds_ == len(model.rounds_)


# --- validation rows


@pytest.mark.parametrize(
    ("n", "options", "parts", "validation", "held_out"),
    [
        (49, {}, 0, 0, 0),
        (50, {}, 4, 0, 0),
        (1999, {}, 4, 0, 0),
        (2000, {}, 0, 200, 200),
        (500, {"cross_validation": 7}, 7, 0, 0),
        (500, {"cross_validation": 0}, 0, 0, 0),
        (500, {"validation_fraction": 0}, 0, 0, 0),
        (500, {"fitted": "in-sample"}, 0, 0, 0),
        (500, {"validation_fraction": 0.2}, 0, 100, 0),
        (500, {"fitted": "held-out"}, 0, 0, 50),
        (500, {"fitted": "held-out", "validation_fraction": 0.3}, 0, 150, 150),
        (3000, {"fitted": "in-sample"}, 0, 300, 0),
        (3000, {"validation_fraction": None}, 0, 0, 300),
        (3000, {"preset": "paper"}, 0, 0, 0),
        (500, {"preset": "paper"}, 0, 0, 0),
    ],
)
def test_validation_rows(n: int, options: dict[str, Any], parts: int, validation: int, held_out: int) -> None:
    chosen = GALRegressor(**grouped(options))._options()
    rows = make_rows(regression_labels(np.arange(n), chosen), chosen, np.random.default_rng(0))
    assert (rows.n_cv_folds, len(rows.validation)) == (parts, validation)
    assert len(set(rows.search) - set(rows.fit)) == held_out
    assert len(rows.fit) == n - validation - held_out
    assert not set(rows.validation) & (set(rows.fit) | set(rows.search))


def test_classes_keep_their_shares_in_every_part() -> None:
    y = np.repeat(["common", "rare"], [90, 10])
    options = Options()
    rows = make_rows(class_labels(y, options), options, np.random.default_rng(0))
    assert rows.cv_folds is not None
    shares = [int((y[rows.cv_folds == part] == "rare").sum()) for part in range(4)]
    assert min(shares) >= 2
    assert max(shares) <= 3


def test_patience_ends_learning_on_validation_rows() -> None:
    X, _ = garbage(400)
    noise = np.random.default_rng(0).normal(size=400)
    model = GALRegressor(
        {"all": slice(None)},
        local_models=DecisionTreeRegressor(max_depth=3),
        rounds=30,
        validation=Validation(fraction=0.3, patience=2),
        random_state=0,
    ).fit(X, noise)
    assert "no better on the validation rows for 2 rounds" in model.ensemble_.stopped
    assert len(model.rounds_) == model.n_rounds_ + 2 < 30


# --- the collection of outputs of rows left out


def test_outputs_are_validated_on_rows_left_out_of_the_fit() -> None:
    y = np.arange(8.0)
    labels = regression_labels(y, Options())
    task = make_task(labels, ["a"], Options(cross_validation=2), label_holder="a")
    left_out = LeftOut(task)
    parts = [task.rows.without(part) for part in range(2)]
    for part, rows in enumerate(parts):
        assert sorted([*rows.fit, *rows.validation]) == list(range(8))
        perfect = Progress(y[:, None].copy(), rounds=(None,))  # type: ignore[arg-type]
        left_out.note(part, perfect)
    cv = left_out.result()
    assert cv is not None
    means = np.empty(8)
    for rows in parts:
        means[rows.validation] = y[rows.fit].mean()
    assert cv.losses[0] == pytest.approx(task.loss.value(y[:, None], means[:, None]).mean())
    assert cv.losses[1] == pytest.approx(0)
    assert cv.shrinkages[1] == pytest.approx(1)
    assert cv.best == 1


def test_steps_in_the_wrong_direction_shrink_to_zero() -> None:
    y = np.arange(8.0)
    task = make_task(regression_labels(y, Options()), ["a"], Options(cross_validation=2), label_holder="a")
    left_out = LeftOut(task)
    for part in range(2):
        left_out.note(part, Progress(-10 * y[:, None], rounds=(None,)))  # type: ignore[arg-type]
    cv = left_out.result()
    assert cv is not None
    assert cv.shrinkages[1] == 0
    assert cv.losses[1] == cv.losses[0]
    assert cv.best == 0


def test_learning_ends_when_the_cross_validation_is_no_better() -> None:
    X, y = garbage(200)
    shuffled = np.random.default_rng(0).permuted(y)  # nothing to learn: round 1 is already too much
    shallow = DecisionTreeRegressor(max_depth=3)
    ends = {
        patience: GALRegressor(
            {"all": slice(None)},
            local_models=shallow,
            validation=Validation(patience=patience),
            random_state=0,
        ).fit(X, shuffled)
        for patience in (2, None)
    }
    assert len(ends[None].rounds_) == 10
    assert len(ends[2].rounds_) - ends[2].n_rounds_ in (
        2,
        3,
    )  # the task itself may be a round ahead of its parts
    assert "no better in the cross-validation for 2 rounds" in ends[2].ensemble_.stopped


def test_small_tables_go_on_while_the_cross_validation_says_so() -> None:
    both, apart = (
        np.random.default_rng(0).normal(size=(200, 1)),
        np.random.default_rng(1).normal(size=(200, 2)),
    )
    X = both + 0.2 * apart  # columns that say nearly the same: steps zigzag down a long valley
    model = GALRegressor({"a": [0], "b": [1]}, local_models=Ridge(), random_state=0).fit(X, X[:, 0] - X[:, 1])
    assert ROUNDS < model.n_rounds_ <= MOST_ROUNDS


def test_patience_counts_complete_rounds_only() -> None:
    """Folds that were a round ahead when patience ended it do not count."""
    X, y = health()
    noisy = y + 5 * np.random.default_rng(0).normal(size=len(y))
    local = DecisionTreeRegressor(max_depth=3)
    patient = GALRegressor(PARTS, local_models=local, validation=Validation(patience=2), random_state=0).fit(
        X, noisy
    )
    whole = GALRegressor(PARTS, local_models=local, validation=Validation(patience=None), random_state=0).fit(
        X, noisy
    )
    n = patient.n_rounds_
    assert losses(patient)[: n + 3] == pytest.approx(losses(whole)[: n + 3])
    assert len(patient.rounds_) < len(whole.rounds_)


def test_where_no_round_validates_it_is_said() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), rng.normal(size=300)
    model = GALRegressor({"a": [0, 1], "b": [2, 3]}, local_models=Ridge(), random_state=0).fit(X, y)
    assert model.n_rounds_ == 0
    assert "no round was better on validation rows" in model.ensemble_.stopped
    learned = GALRegressor({"a": [0, 1], "b": [2, 3]}, local_models=Ridge(), random_state=0).fit(X, X.sum(1))
    assert learned.n_rounds_ > 0
    assert "no round was better" not in learned.ensemble_.stopped
