"""The private refit: it repairs what noise cost, is never much worse than the
public model, and is plain numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

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
from gal.learner.labels import Labels
from gal.learner.options import Options
from gal.learner.task_making import make_task
from gal.privacy.refit import PrivateRefit, stacked, unsent_rows
from gal.storage.archive import read_archive, write_archive

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Answers = list[dict[str, Floats32]]


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
def test_rows_that_were_never_sent_detect_memorizers(loss: Loss) -> None:
    """A memorizer: the labels of rows that it received, and labels of random rows for all others."""
    given, rng = problem(loss, n=600), np.random.default_rng(5)
    never = np.arange(0, 600, 5)
    memorized = given.y[rng.permutation(600)]
    memorized[np.arange(600) % 5 > 0] = given.y[np.arange(600) % 5 > 0]
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
    assert lost(memorized, elsewhere) > 1.3 * without
    assert lost(memorized, elsewhere, never) < 1.1 * without


def test_which_rows_were_never_sent() -> None:
    y, kept = np.arange(2000.0)[:, None] % 7, Options(fitted="held-out", validation_fraction=0.2)
    how: dict[str, Any] = {"label_holder": "a", "private": True}
    task = make_task(Labels(y, SquaredError()), ["a", "b"], kept, **how)
    rows = unsent_rows(task)
    assert rows is not None
    assert len(rows) == 800
    assert set(rows) == set(range(2000)) - set(task.rows.fit)
    for fewer in (replace(task.rows, fit=np.arange(1501)), all_rows(2000)):
        assert unsent_rows(replace(task, rows=fewer)) is None
    facts = {"rows": task.rows, "release": None, "stateful": ()}
    assert unsent_rows(SimpleNamespace(**facts)) is not None  # type: ignore[arg-type]
    for other in ({"release": "noise on residuals"}, {"stateful": ("b",)}):
        assert unsent_rows(SimpleNamespace(**facts | other)) is None  # type: ignore[arg-type]


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
