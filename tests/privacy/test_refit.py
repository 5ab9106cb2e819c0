"""The private refit: it repairs what noise cost, is never much worse than the
public model, and is plain numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import Ridge

from gal.core.losses import (
    AbsoluteError,
    BinaryLogLoss,
    Huber,
    Loss,
    MultinomialLogLoss,
    Poisson,
    SquaredError,
)
from gal.core.rows import all_rows
from gal.core.state import Ensemble, Progress
from gal.engine.drivers import drive_learning, drive_prediction
from gal.engine.labels import Labels
from gal.engine.options import Options
from gal.engine.organization import Organization
from gal.engine.task_making import make_task
from gal.privacy.mechanisms.corrected_loss import CorrectedLogLoss
from gal.privacy.refit import PrivateRefit, never_sent, stacked
from gal.storage.archive import read_archive, write_archive

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Answers = list[dict[str, Floats32]]

OPTIONS = Options(fitted="in-sample", validation_fraction=0, cross_validation=0, closing=False)


@dataclass(frozen=True)
class Problem:
    """Fitted values of three rounds and two organizations, a public model of them, and true labels."""

    loss: Loss
    y: Floats
    fitted: Answers
    coefficients: list[dict[str, float]]
    fresh_y: Floats
    fresh: Answers
    first: Floats

    def refit(self, among: Any = None, **changes: Any) -> PrivateRefit | None:
        given, rng = replace(self, **changes), np.random.default_rng(0)
        replies, n = (given.coefficients, given.fitted), len(given.y)
        return stacked(
            Labels(given.y, given.loss),
            given.public(given.fitted) if given.fitted else np.tile(given.first, (n, 1)),
            rng.permutation(n) % 5,
            np.arange(n) if among is None else among,
            [replies] * 5,
            replies,
            given.first[0],
            rng=rng,
        )

    def public(self, answers: Answers) -> Floats:
        """F^T of these answers."""
        parts = [
            counts[name] * values[name].astype(np.float64)
            for counts, values in zip(self.coefficients, answers, strict=True)
            for name in counts
        ]
        return np.asarray(self.first + sum(parts))


def problem(loss: Loss, *, n: int = 300, noise: float = 3.0, seed: int = 0) -> Problem:
    """Each organization's values follow two columns of its own, in directions that ``noise`` drew."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 2000, 4))
    k = loss.n_outputs
    signal = X @ (3.0 * rng.normal(size=(4, k)))
    if isinstance(loss, SquaredError | AbsoluteError | Huber):
        y = signal + 0.5 * rng.normal(size=signal.shape)
    elif k == 1:
        y = (rng.logistic(size=signal.shape) < signal).astype(np.float64)
    else:
        y = (signal + rng.gumbel(size=signal.shape)).argmax(axis=1)[:, None].astype(np.float64)
    values, coefficients = [], []
    for _ in range(3):
        found = {
            name: X[:, part]
            @ (noise * rng.normal(size=(2, k)) + np.linalg.lstsq(X, signal, rcond=None)[0][part])
            for name, part in (("bank", slice(0, 2)), ("lab", slice(2, 4)))
        }
        values.append({name: one.astype(np.float32) for name, one in found.items()})
        coefficients.append(dict.fromkeys(found, 1 / 3))
    fitted, fresh = (
        [{name: one[rows] for name, one in v.items()} for v in values] for rows in (slice(n), slice(n, None))
    )
    return Problem(loss, y[:n], fitted, coefficients, y[n:], fresh, np.zeros((1, k)))


LOSSES: dict[str, Loss] = {
    "two classes": BinaryLogLoss(),
    "two classes, two outputs": MultinomialLogLoss(2),
    "three classes": MultinomialLogLoss(3),
    "a number": SquaredError(),
    "two numbers": SquaredError(2),
    "absolute error": AbsoluteError(),
    "huber": Huber(delta=1.0),
}


every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())


def mean(loss: Loss, y: Floats, output: Floats) -> float:
    return float(loss.value(y, output).mean())


@every_loss
def test_it_repairs_what_the_noise_cost(loss: Loss) -> None:
    given = problem(loss)
    refit = given.refit()
    assert refit is not None
    output = refit.output(given.fresh)
    assert output.shape == (2000, loss.n_outputs)
    public = mean(loss, given.fresh_y, given.public(given.fresh))
    constant = mean(loss, given.fresh_y, np.tile(loss.initial(given.y), (2000, 1)))
    private = mean(loss, given.fresh_y, output)
    assert private < 0.7 * min(public, constant)


@pytest.mark.parametrize("loss", [BinaryLogLoss(), SquaredError()], ids=["two classes", "a number"])
def test_rows_that_were_never_sent_tell_who_only_remembers(loss: Loss) -> None:
    """Perfect on all rows that it was sent, and of another row's making on the others and on new ones."""
    given, rng = problem(loss, n=600), np.random.default_rng(5)
    never = np.arange(0, 600, 5)
    remembered = given.y[rng.permutation(600)]
    remembered[np.arange(600) % 5 > 0] = given.y[np.arange(600) % 5 > 0]
    elsewhere = given.y[rng.integers(600, size=len(given.fresh_y))]

    def lost(values: NDArray[Any], fresh: NDArray[Any], among: Any = None) -> float:
        """Of new rows, with the bank's values, and these beside them."""
        fitted, answers = (
            [{"bank": one["bank"], "lab": beside.astype(np.float32)} for one in every]
            for every, beside in ((given.fitted, values), (given.fresh, fresh))
        )
        counts = [{"bank": 1 / 3, "lab": 0.0}] * 3
        refit = given.refit(among, fitted=fitted, coefficients=counts)
        public = replace(given, coefficients=counts).public(answers)
        return mean(loss, given.fresh_y, public if refit is None else refit.output(answers))

    nothing, new = np.zeros_like(given.y), np.zeros_like(given.fresh_y)
    without = lost(nothing, new, never)
    assert lost(remembered, elsewhere) > 1.3 * without
    assert lost(remembered, elsewhere, never) < 1.1 * without


def test_which_rows_were_never_sent() -> None:
    y, kept = np.arange(2000.0)[:, None] % 7, Options(fitted="held-out", validation_fraction=0.2)
    how: dict[str, Any] = {"label_holder": "a", "private": True}
    task = make_task(Labels(y, SquaredError()), ["a", "b"], kept, **how)
    rows = never_sent(task)
    assert rows is not None
    assert len(rows) == 600
    assert set(rows) == set(range(2000)) - set(task.rows.fit)
    for fewer in (replace(task.rows, fit=np.arange(1501)), all_rows(2000)):
        assert never_sent(replace(task, rows=fewer)) is None
    facts = {"rows": task.rows, "release": None, "moving": ()}
    assert never_sent(SimpleNamespace(**facts)) is not None  # type: ignore[arg-type]
    for other in ({"release": "noise on residuals"}, {"moving": ("b",)}):
        assert never_sent(SimpleNamespace(**facts | other)) is None  # type: ignore[arg-type]


@every_loss
def test_where_the_public_model_is_right_it_stays_about_as_good(loss: Loss) -> None:
    given = problem(loss, noise=0.0)
    refit = given.refit()
    public = mean(loss, given.fresh_y, given.public(given.fresh))
    private = public if refit is None else mean(loss, given.fresh_y, refit.output(given.fresh))
    assert private < 1.1 * public + 0.005


@every_loss
def test_it_is_plain_numbers(loss: Loss, tmp_path: Path) -> None:
    given = problem(loss)
    refit = given.refit()
    assert refit is not None
    said = json.loads(json.dumps(refit.to_json()))
    found = PrivateRefit.from_json(said)
    np.testing.assert_array_equal(found.output(given.fresh), refit.output(given.fresh))
    assert found.to_json() == said
    k = loss.n_outputs
    assert len(said["intercept"]) == k
    assert all(np.shape(matrix) == (k, k) for counts in said["coefficients"] for matrix in counts.values())
    write_archive(tmp_path / "refit.gal", {}, None, {"refit": refit})
    _, _, objects = read_archive(tmp_path / "refit.gal")
    np.testing.assert_array_equal(objects["refit"].output(given.fresh), refit.output(given.fresh))


@every_loss
def test_of_many_rows_some_are_enough(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(loss, n=3000)
    everything = given.refit()
    monkeypatch.setattr("gal.privacy.refit.FITTED_ENTRIES", 800 * 6 * loss.n_outputs)
    some = given.refit()
    assert everything is not None
    assert some is not None
    assert some.to_json() != everything.to_json()
    losses = [mean(loss, given.fresh_y, one.output(given.fresh)) for one in (everything, some)]
    assert losses[1] < 1.15 * losses[0] + 0.01


def test_an_organization_may_miss_a_round_and_count_nothing_in_another() -> None:
    given = problem(BinaryLogLoss())
    fitted = [given.fitted[0], {"lab": given.fitted[1]["lab"]}, given.fitted[2]]
    counts = [{"bank": 0.3}, {"lab": 0.3}, {"bank": 0.3, "lab": 0.3}]
    refit = given.refit(fitted=fitted, coefficients=counts)
    assert refit is not None
    assert [sorted(one) for one in refit.coefficients] == [["bank", "lab"], ["lab"], ["bank", "lab"]]
    assert np.isfinite(refit.output(given.fresh)).all()


@every_loss
def test_values_that_never_change_or_are_alike_do_no_harm(loss: Loss) -> None:
    given = problem(loss)

    def with_more(answers: Answers) -> Answers:
        still = {"still": np.full_like(answers[0]["bank"], 7.0), "zero": np.zeros_like(answers[0]["bank"])}
        return [values | still | {"twin": values["lab"]} for values in answers]

    counts = [one | {"still": 0.5, "zero": 0.5, "twin": 0.1} for one in given.coefficients]
    refit, plain = given.refit(fitted=with_more(given.fitted), coefficients=counts), given.refit()
    assert refit is not None
    assert plain is not None
    private = mean(loss, given.fresh_y, refit.output(with_more(given.fresh)))
    assert private < 1.1 * mean(loss, given.fresh_y, plain.output(given.fresh)) + 0.01


def test_a_class_without_a_row_gets_next_to_no_probability() -> None:
    given = problem(MultinomialLogLoss(3))
    for absent in range(3):
        codes = np.array([code for code in range(3) if code != absent])
        y = codes[(given.y[:, 0] > 1).astype(int)][:, None].astype(np.float64)
        refit = given.refit(y=y)
        assert refit is not None
        probability = given.loss.inverse_link(refit.output(given.fresh))
        assert probability[:, absent].max() < 0.01
        assert (probability.argmax(axis=1) != absent).all()


def test_there_may_be_nothing_to_learn() -> None:
    given = problem(BinaryLogLoss())
    assert given.refit(fitted=[], coefficients=[]) is None
    assert given.refit(coefficients=[{}, {}, {}]) is None
    assert given.refit(y=np.zeros_like(given.y)) is None  # one class
    rare = np.zeros_like(given.y)
    rare[5] = 1
    assert given.refit(y=rare) is None  # one row of the other: nothing to check against
    rare[6] = 1
    given.refit(y=rare)  # two: whatever it finds, it does not fail
    alike = [{name: np.ones_like(one) for name, one in values.items()} for values in given.fitted]
    assert given.refit(fitted=alike) is None
    assert given.refit(loss=Poisson()) is None  # its link is none of a linear model's here
    few = [{name: one[:6] for name, one in values.items()} for values in given.fitted]
    assert given.refit(y=given.y[:6], fitted=few) is None


def randomised_learning(
    X: Floats, y: Floats, organizations: int, keep: float, seed: int
) -> tuple[Ensemble, Mapping[str, Organization], Progress, Labels]:
    """Ten rounds on labels of which a share ``keep`` is true."""
    flips = np.random.default_rng(seed).random(y.shape) >= keep
    labels = Labels(np.where(flips, 1 - y, y), CorrectedLogLoss(2, keep), np.arange(2))
    parts = np.array_split(np.random.default_rng(seed).permutation(X.shape[1]), organizations)
    members = {f"m{i}": Organization(f"m{i}", X[:, part], Ridge()) for i, part in enumerate(parts)}
    task = replace(make_task(labels, list(members), OPTIONS, label_holder="m0"), keep_fitted=True)
    reached: list[Progress] = []
    ensemble = drive_learning(task, members, on_round=reached.append)
    for name, part in zip(members, parts, strict=True):
        members[name].view = X[:, part]
    return ensemble, members, reached[-1], labels


def by_round(values: Mapping[str, Floats32], rounds: int) -> Sequence[Mapping[str, Floats32]]:
    return [{name: one[t] for name, one in values.items()} for t in range(rounds)]


def test_breast_cancer_with_epsilon_one_half() -> None:
    """The public track is far from what true labels give; the private one is close to it."""
    X, codes = load_breast_cancer(return_X_y=True)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), codes[:, None].astype(np.float64)
    keep = float(1 / (1 + np.exp(-0.5)))
    public, private = [], []
    for seed in range(3):
        order = np.random.default_rng(100 + seed).permutation(len(y))
        train, test = order[:455], order[455:]
        ensemble, members, reached, _ = randomised_learning(X[train], y[train], 8, keep, seed)
        fitted = reached.fitted[: ensemble.n_rounds]
        first = np.array([ensemble.initial])
        fresh, counts = [dict(one) for one in fitted], [dict(one) for one in ensemble.coefficients]
        refit = Problem(BinaryLogLoss(), y[train], fresh, counts, y[test], [], first).refit()
        assert refit is not None
        parts = np.array_split(np.random.default_rng(seed).permutation(X.shape[1]), 8)
        views = {name: X[test][:, part] for name, part in zip(members, parts, strict=True)}
        answers = drive_prediction(ensemble, members, views, len(test))
        rounds = by_round(answers.values, ensemble.n_rounds)
        seen = first + sum(
            count * values[name]
            for counts, values in zip(ensemble.coefficients, rounds, strict=True)
            for name, count in counts.items()
        )
        public.append(((seen[:, 0] > 0) == y[test][:, 0]).mean())
        private.append(((refit.output(rounds)[:, 0] > 0) == y[test][:, 0]).mean())
    assert np.mean(private) > 0.96
    assert np.mean(private) > np.mean(public) + 0.03
