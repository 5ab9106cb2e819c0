"""Algorithm 1, driven by hand with organizations that are a few lines each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from core_problems import LOSSES, Floats, labels
from gal.core.algorithm import predict
from gal.core.losses import Loss, SquaredError
from gal.core.outcome import Stopping
from gal.core.passes import added_by_name
from gal.core.pipeline import learn
from gal.core.prediction import answers_by_round, final_output, staged_outputs
from gal.core.replies import LocalPredictions, Reply
from gal.core.requests import EndLearning, FitRequest
from gal.core.rows import Rows, all_rows, assign_rows
from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.errors import NoRepliesError

ON = Stopping(min_rate=None, patience=None)  # go on to the last round


class LeastSquares:
    """An organization: least squares on its own columns; knows its models of all rounds."""

    def __init__(self, columns: Floats, rows: Rows) -> None:
        self.columns, self.rows = np.column_stack([np.ones(len(columns)), columns]), rows
        self.models: dict[tuple[str, int], Floats] = {}

    def fit(self, request: FitRequest) -> NDArray[np.float32]:
        root = (
            np.ones(len(self.rows.fit)) if request.sample_weight is None else np.sqrt(request.sample_weight)
        )
        model = np.linalg.lstsq(
            root[:, None] * self.columns[self.rows.fit], root[:, None] * request.residual, rcond=None
        )[0]
        self.models[request.track, request.round] = model
        return np.asarray(self.columns @ model, dtype=np.float32)


Organizations = Mapping[str, LeastSquares]
Meddle = Callable[[FitRequest, dict[str, Reply]], Mapping[str, Reply]]


def drive(
    task: Task,
    organizations: Organizations,
    *,
    meddle: Meddle = lambda request, replies: replies,
    **options: Any,
) -> Ensemble:
    learning = learn(task, **options)
    try:
        requests = next(learning)
        while True:
            replies: list[Mapping[str, Reply]] = [
                meddle(request, {name: organizations[name].fit(request) for name in request.organizations})
                for request in requests
                if isinstance(request, FitRequest)
            ]
            requests = learning.send(replies)
    except StopIteration as done:
        ensemble: Ensemble = done.value
        return ensemble


def answers_of(ensemble: Ensemble, replies: Mapping[str, Reply], n: int) -> LocalPredictions:
    asking = predict(ensemble, n)
    next(asking)
    with pytest.raises(StopIteration) as done:
        asking.send(replies)
    answers: LocalPredictions = done.value.value
    return answers


def problem(
    loss: Loss, seed: int, *, n: int = 60, rows: Rows | None = None, **options: Any
) -> tuple[Task, dict[str, LeastSquares]]:
    """Three organizations with two columns each, of which some explain the labels."""
    rng = np.random.default_rng(seed)
    y = labels(loss, n, rng)
    X = rng.normal(size=(n, 6)) + 0.7 * y[:, :1]
    rows = all_rows(n) if rows is None else rows
    chosen: dict[str, Any] = {"rounds": 5, "stopping": ON} | options
    task = Task(y, loss, ("a", "b", "c"), rows, label_holder="a", **chosen)
    return task, {name: LeastSquares(X[:, 2 * m : 2 * m + 2], rows) for m, name in enumerate("abc")}


def assert_same(one: Ensemble, other: Ensemble) -> None:
    """Bit for bit: the shortest digits that give back a float tell all floats apart, and NaN is NaN."""
    for field in dataclasses.fields(Ensemble):
        assert repr(getattr(one, field.name)) == repr(getattr(other, field.name)), field.name


def losses_of(ensemble: Ensemble) -> list[float]:
    return [ensemble.initial_train_loss, *(done.train_loss for done in ensemble.rounds)]


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), weighted=st.booleans())
def test_the_train_loss_never_rises(name: str, seed: int, weighted: bool) -> None:
    weight = np.random.default_rng(seed).uniform(0.1, 2, size=60) if weighted else None
    ensemble = drive(*problem(LOSSES[name], seed, sample_weight=weight))
    losses = np.array(losses_of(ensemble))
    assert len(losses) == 6
    assert (np.diff(losses) <= 1e-12).all()
    assert losses[-1] < losses[0] - 1e-4
    assert all(sum(done.weights.values()) == pytest.approx(1) for done in ensemble.rounds)


@pytest.mark.parametrize("name", ["squared", "binary", "multinomial"])
def test_the_order_of_replies_changes_nothing(name: str) -> None:
    straight = drive(*problem(LOSSES[name], 0))
    backwards = drive(*problem(LOSSES[name], 0), meddle=lambda _, replies: dict(reversed(replies.items())))
    assert_same(straight, backwards)


def test_one_organization_is_plain_gradient_boosting() -> None:
    """Stumps on a column that changes by the round, boosted by hand in double precision."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    y = np.sin(2 * X[:, :1]) + X[:, 1:2] * X[:, 2:]

    def stump(residual: NDArray[Any], round: int) -> Floats:
        side = X[:, round % 3] > 0
        return np.asarray(np.where(side[:, None], residual[side].mean(), residual[~side].mean()))

    output, expected = np.full((50, 1), y.mean()), []
    for t in range(1, 8):
        step = stump(y - output, t)
        output = output + float(np.vdot(y - output, step) / np.vdot(step, step)) * step
        expected.append(0.5 * np.mean((y - output) ** 2))

    task = Task(y, SquaredError(), ("a",), all_rows(50), rounds=7, stopping=ON)
    seen: list[Progress] = []
    idle = {"a": LeastSquares(X, task.rows)}
    drive(
        task,
        idle,
        meddle=lambda request, _: {"a": stump(request.residual, request.round)},
        on_round=seen.append,
    )
    np.testing.assert_allclose([done.train_loss for done in seen[-1].rounds], expected, rtol=1e-6)
    np.testing.assert_allclose(seen[-1].output, output, rtol=1e-5, atol=1e-6)


def test_who_misses_a_round_takes_part_again() -> None:
    def lose(request: FitRequest, replies: dict[str, Reply]) -> dict[str, Reply]:
        return {name: reply for name, reply in replies.items() if (name, request.round) != ("b", 2)}

    ensemble = drive(*problem(LOSSES["binary"], 1), meddle=lose)
    missed = ensemble.rounds[1]
    assert missed.weights["b"] == 0
    assert dict(missed.left_out) == {"b": "did not reply"}
    assert "b" not in ensemble.coefficients[1]
    others = (ensemble.rounds[0], *ensemble.rounds[2:])
    assert not any(done.left_out for done in others)
    assert all("b" in done.mean_fitted for done in others)
    assert any(ensemble.coefficients[done.round - 1].get("b", 0.0) for done in ensemble.rounds[2:])


def test_no_organization_replies() -> None:
    with pytest.raises(NoRepliesError, match="round 1"):
        drive(*problem(SquaredError(), 0), meddle=lambda request, replies: {})
    ensemble = drive(
        *problem(SquaredError(), 0), meddle=lambda request, replies: replies if request.round < 3 else {}
    )
    assert ensemble.n_rounds == 2
    assert ensemble.stopped == "round 3: no organization replied"


@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_learning_resumes_bit_for_bit(validation: float) -> None:
    rows = assign_rows(60, np.random.default_rng(0), validation_fraction=validation)
    task, organizations = problem(LOSSES["binary"], 0, rows=rows)
    seen: list[Progress] = []
    whole = drive(task, organizations, on_round=seen.append)
    assert [len(progress.rounds) for progress in seen] == [1, 2, 3, 4, 5]
    for progress in seen:
        assert_same(drive(task, organizations, progress=progress), whole)


@pytest.mark.parametrize("finished", [0, 1, 3])
def test_an_end_on_request_keeps_the_finished_rounds(finished: int) -> None:
    task, organizations = problem(SquaredError(), 0)
    learning = learn(task)
    (request,) = next(learning)
    for _ in range(finished):
        assert isinstance(request, FitRequest)
        (request,) = learning.send(
            [{name: organizations[name].fit(request) for name in request.organizations}]
        )
    with pytest.raises(StopIteration) as done:
        learning.throw(EndLearning())
    ended: Ensemble = done.value.value
    assert ended.n_rounds == len(ended.rounds) == finished
    assert ended.stopped == f"ended on request in round {finished + 1}"
    assert repr(ended.rounds) == repr(drive(task, organizations).rounds[:finished])


@pytest.mark.parametrize("name", ["squared", "multinomial"])
@pytest.mark.parametrize("fitted", ["in-sample", "held-out"])
def test_only_residuals_of_fit_rows_go_out(name: str, fitted: Any) -> None:
    rows = assign_rows(60, np.random.default_rng(0), fitted=fitted, validation_fraction=0.2)
    requests: list[FitRequest] = []

    def watch(request: FitRequest, replies: dict[str, Reply]) -> dict[str, Reply]:
        requests.append(request)
        return replies

    loss = LOSSES[name]
    weight = np.random.default_rng(1).uniform(size=60)
    task, organizations = problem(loss, 0, rows=rows, sample_weight=weight)
    drive(task, organizations, meddle=watch)
    assert {request.track for request in requests} == {"assisted", "alone"}
    for request in requests:
        assert request.residual.dtype == np.float32
        assert request.residual.shape == (len(rows.fit), loss.n_outputs)
        squares = np.average(np.square(request.residual), axis=0, weights=weight[rows.fit])
        assert np.sqrt(squares.mean()) == pytest.approx(1, rel=1e-5)
        assert request.sample_weight is not None
        np.testing.assert_array_equal(request.sample_weight, weight[rows.fit])
        asks = request.track == "assisted" and request.round > 1  # the first round is the label holder's own
        assert request.organizations == (("a", "b", "c") if asks else ("a",))
    first = loss.pseudo_residual(task.y, np.tile(task.first_output, (60, 1)))[rows.fit]
    unit = np.abs(first).max() / np.abs(requests[0].residual).max()
    np.testing.assert_allclose(unit * requests[0].residual, first, rtol=1e-5, atol=1e-6)


def test_harmful_assistance_is_not_used() -> None:
    rows = assign_rows(200, np.random.default_rng(0), validation_fraction=0.3)
    noise = np.random.default_rng(1).normal(size=200)[:, None]

    def harm(request: FitRequest, replies: dict[str, Reply]) -> dict[str, Reply]:
        """Perfect on the fit rows, garbage on the others."""
        if request.track == "assisted":
            garbage = 50 * noise
            garbage[rows.fit] = request.residual
            replies["b"] = garbage
        return replies

    task, organizations = problem(SquaredError(), 0, n=200, rows=rows)
    guarded = drive(task, organizations, meddle=harm)
    assert guarded.track == "alone"
    assert guarded.requested() == ("a",)
    best = min(done.validation_loss for done in guarded.rounds)
    assert best == guarded.alone_validation_loss < guarded.initial_validation_loss
    unguarded = drive(dataclasses.replace(task, guard=False), organizations, meddle=harm)
    assert unguarded.track == "assisted"
    assert unguarded.n_rounds == 0  # the best validated model is the constant
    helped = drive(task, organizations)
    assert helped.track == "assisted"
    assert min(done.validation_loss for done in helped.rounds) < helped.alone_validation_loss


def test_a_label_holder_who_fails_alone_keeps_the_assisted_model() -> None:
    rows = assign_rows(60, np.random.default_rng(0), validation_fraction=0.3)
    ensemble = drive(
        *problem(SquaredError(), 0, rows=rows),
        meddle=lambda request, replies: replies if request.track == "assisted" else {},
    )
    assert ensemble.track == "assisted"
    assert ensemble.n_rounds > 0


@pytest.mark.parametrize("name", ["squared", "multinomial"])
def test_predictions_of_the_train_rows_are_the_outputs_learned(name: str) -> None:
    task, organizations = problem(LOSSES[name], 0)
    seen: list[Progress] = []
    ensemble = drive(task, organizations, on_round=seen.append)
    replies = stored_answers(ensemble, organizations)
    answers = answers_of(ensemble, replies, 60)
    assert not answers.degraded.any()
    np.testing.assert_allclose(final_output(ensemble, answers), seen[-1].output, atol=1e-5)
    np.testing.assert_array_equal(
        list(staged_outputs(ensemble, answers))[-1], final_output(ensemble, answers)
    )
    parts = sum(added_by_name(ensemble.coefficients, answers_by_round(ensemble, answers)).values())
    np.testing.assert_allclose(
        np.array(ensemble.initial) + parts, final_output(ensemble, answers), atol=1e-12
    )


def stored_answers(ensemble: Ensemble, organizations: Organizations) -> dict[str, Reply]:
    def answer(organization: LeastSquares, rounds: Iterable[int]) -> NDArray[np.float32]:
        models = [organization.models[ensemble.track, t] for t in rounds]
        return np.array([organization.columns @ model for model in models], dtype=np.float32)

    return {
        name: answer(organizations[name], range(1, ensemble.n_rounds + 1)) for name in ensemble.requested()
    }


def test_a_model_of_no_rounds_sends_no_request() -> None:
    task, _ = problem(SquaredError(), 0)
    learning = learn(task)
    next(learning)
    with pytest.raises(StopIteration) as done:
        learning.throw(EndLearning())
    with pytest.raises(StopIteration) as answered:
        next(predict(done.value.value, 4))
    np.testing.assert_array_equal(
        final_output(done.value.value, answered.value.value), np.full((4, 1), task.y.mean())
    )


def test_labels_that_are_one_number_need_no_round() -> None:
    task = Task(np.full((4, 1), 3.0), SquaredError(), ("a",), all_rows(4))
    with pytest.raises(StopIteration) as done:
        next(learn(task))
    assert done.value.value.stopped == "round 1: every row is fitted exactly"
    assert done.value.value.initial == (3.0,)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_the_unit_of_the_labels_does_not_matter(unit: float) -> None:
    task, organizations = problem(SquaredError(), 0)
    plain = drive(task, organizations)
    scaled = drive(dataclasses.replace(task, y=unit * task.y), organizations)
    for one, other in zip(plain.rounds, scaled.rounds, strict=True):
        assert other.train_loss / unit**2 == pytest.approx(one.train_loss, rel=1e-5)
        assert dict(other.weights) == pytest.approx(dict(one.weights), abs=1e-4)


@pytest.mark.parametrize(("left", "rounds"), [(1e-3, 2), (1e-5, 2), (1e-8, 1)])
def test_a_thousandth_and_less_is_still_learned_but_not_the_rounding_of_float32(
    left: float, rounds: int
) -> None:
    """One round explains all but a share of the labels; the next is worth
    learning unless that is mere rounding.
    """
    first, second = np.tile([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]], 16)[:, :, None]  # orthogonal
    y = first + left * second
    task = Task(y, SquaredError(), ("bank",), all_rows(64), rounds=5, initial=np.zeros((1, 1)), stopping=ON)
    learning = learn(task)
    next(learning)
    asked = 0
    try:
        while True:
            asked += 1
            answer = (first, second)[min(asked, 2) - 1]
            learning.send([{"bank": answer.astype(np.float32)}])
    except StopIteration as done:
        ensemble: Ensemble = done.value
    assert asked == rounds
    assert "every row is fitted exactly" in ensemble.stopped
