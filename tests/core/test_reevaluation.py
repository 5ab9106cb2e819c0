"""Models that move are asked again after the last round, and the rounds are learned anew on what they say."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_algorithm import assert_same, losses_of

from core_problems import LOSSES, labels
from gal.core.losses import Loss, SquaredError
from gal.core.outcome import Stopping
from gal.core.pipeline import learn
from gal.core.replies import Reply
from gal.core.requests import EndLearning, FitRequest, PredictRequest, Request
from gal.core.rows import Rows, all_rows, assign_rows
from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.errors import InvalidInputError, NoRepliesError

ON = Stopping(min_rate=None, patience=None)
ROUNDS = 4
N = 60


class Scripted:
    """Organizations that answer from a list: what they say in each round, and what they say of it later."""

    def __init__(self, task: Task, *, seed: int = 0, drift: float = 0.5) -> None:
        rng = np.random.default_rng(seed)
        self.task = task
        self.requests: list[Sequence[Request]] = []
        shape = (ROUNDS, N, task.loss.n_outputs)
        pull = task.loss.pseudo_residual(task.y, np.broadcast_to(task.first_output, shape[1:]))
        self.first = {name: pull * 0.5 + rng.normal(size=shape) for name in task.organizations}
        self.later: dict[str, Any] = {
            name: values + drift * rng.normal(size=shape) for name, values in self.first.items()
        }

    def answer(self, requests: Sequence[Request]) -> list[Mapping[str, Reply]]:
        self.requests.append(requests)
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> dict[str, Reply]:
        if isinstance(request, FitRequest):
            return {name: self.first[name][request.round - 1] for name in request.organizations}
        later = {name: self.later[name] for name in request.organizations if self.later[name] is not None}
        taken = slice(len(request.rounds))
        return {
            name: values if isinstance(values, Exception) else values[taken] for name, values in later.items()
        }

    def moved(self, names: Sequence[str]) -> Scripted:
        """Organizations whose first replies are the later ones of ``names``."""
        other = Scripted(self.task)
        other.first = self.first | {name: self.later[name] for name in names}
        return other


def task_of(loss: Loss, *, rows: Rows | None = None, seed: int = 0, **options: Any) -> Task:
    y = labels(loss, N, np.random.default_rng(seed))
    chosen: dict[str, Any] = {"rounds": ROUNDS, "stopping": ON} | options
    return Task(y, loss, ("a", "b", "c"), all_rows(N) if rows is None else rows, label_holder="a", **chosen)


def drive(task: Task, who: Scripted, **options: Any) -> Ensemble:
    learning = learn(task, **options)
    try:
        requests = next(learning)
        while True:
            requests = learning.send(who.answer(requests))
    except StopIteration as done:
        ensemble: Ensemble = done.value
        return ensemble


@pytest.mark.parametrize("name", ["squared", "binary", "multinomial", "absolute"])
def test_where_nothing_moved_nothing_changes(name: str) -> None:
    task = task_of(LOSSES[name])
    plain = drive(task, Scripted(task))
    moving = dataclasses.replace(task, stateful=("a", "c"))
    assert_same(drive(moving, Scripted(moving, drift=0.0)), plain)


@pytest.mark.parametrize("name", ["squared", "binary", "multinomial", "absolute"])
@pytest.mark.parametrize("names", [("b",), ("a", "b", "c")])
def test_the_rounds_are_learned_anew_on_the_last_replies(name: str, names: tuple[str, ...]) -> None:
    task = task_of(LOSSES[name], stateful=names)
    who = Scripted(task)
    ensemble = drive(task, who)
    # The oracle: no model is stateful, and the first replies of these are their last ones.
    expected = drive(dataclasses.replace(task, stateful=()), who.moved(names))
    assert_same(ensemble, expected)
    at_first = drive(dataclasses.replace(task, stateful=()), who)
    assert losses_of(ensemble) != losses_of(at_first)


def test_moving_organizations_are_asked_once_for_all_rounds() -> None:
    rows = assign_rows(N, np.random.default_rng(0), validation_fraction=0.3)
    task = task_of(SquaredError(), rows=rows, stateful=("a", "b"))
    who = Scripted(task)
    drive(task, who)
    *fits, last = who.requests
    assert len(fits) == ROUNDS
    assert all(isinstance(request, FitRequest) for requests in fits for request in requests)
    rounds = (1, 2, 3, 4)
    assert list(last) == [
        PredictRequest(rounds, ("a", "b"), "assisted"),
        PredictRequest(rounds, ("a",), "alone"),
    ]


def test_the_best_validated_round_is_chosen_on_what_was_said_last() -> None:
    rows = assign_rows(N, np.random.default_rng(0), validation_fraction=0.3)
    task = task_of(SquaredError(), rows=rows, stateful=("a", "b", "c"), guard=False)
    who = Scripted(task, drift=0.0)
    rng = np.random.default_rng(1)
    quarters = np.arange(N) % ROUNDS == np.arange(ROUNDS)[:, None]
    for name in "abc":
        # Each round explains a quarter of the rows. Later, from round 2 on, of the fit rows only.
        who.first[name] = quarters[:, :, None] * (task.y - task.first_output)
        who.later[name] = who.first[name].copy()
        who.later[name][1:, rows.validation] = 5 * rng.normal(size=(ROUNDS - 1, len(rows.validation), 1))
    ensemble = drive(task, who)
    losses = [ensemble.initial_validation_loss, *(done.validation_loss for done in ensemble.rounds)]
    assert ensemble.n_rounds == int(np.argmin(losses)) == 1
    assert len(ensemble.rounds) == ROUNDS
    assert drive(dataclasses.replace(task, stateful=()), who).n_rounds == ROUNDS  # as they said at first


def broken(place: Any, value: float = np.nan) -> Any:
    def spoil(values: NDArray[Any]) -> NDArray[Any]:
        spoiled = values.copy()
        spoiled[place] = value
        return spoiled

    return spoil


FAILURES: dict[str, tuple[Any, str]] = {
    "silent": (lambda values: None, r"it did not reply"),
    "failing": (lambda values: ValueError("out of memory"), r"it failed: out of memory"),
    "wrong shape": (
        lambda values: values[:, :-1],
        r"it replied with shape \(4, 59, 1\), expected \(4, 60, 1\)",
    ),
    "holes": (broken((2, 5)), r"it replied with NaN or infinite values in 1 places"),
    "infinite": (broken((0, 5), np.inf), r"it replied with NaN or infinite values in 1 places"),
}


@pytest.mark.parametrize(("spoil", "reason"), FAILURES.values(), ids=FAILURES.keys())
def test_who_fails_when_asked_again_is_left_out_of_all_rounds(spoil: Any, reason: str) -> None:
    task = task_of(SquaredError(), stateful=("b", "c"))
    who = Scripted(task)
    who.later["b"] = spoil(who.later["b"])
    ensemble = drive(task, who)
    assert len(ensemble.rounds) == ROUNDS
    for done, counts in zip(ensemble.rounds, ensemble.coefficients, strict=True):
        assert list(done.left_out) == ["b"]
        np.testing.assert_equal(done.weights["b"], 0.0)
        assert "b" not in counts
        assert "b" not in done.mean_fitted
        assert re.fullmatch(rf"re-evaluated after the last round, {reason}", done.left_out["b"])
    others = dataclasses.replace(task, organizations=("a", "c"), stateful=())
    without = Scripted(others)
    without.first = {"a": who.first["a"], "c": who.later["c"]}
    np.testing.assert_allclose(losses_of(ensemble), losses_of(drive(others, without)), rtol=1e-12)


def test_who_has_no_model_of_a_round_is_left_out_of_that_round() -> None:
    task = task_of(SquaredError(), stateful=("b",))
    who = Scripted(task)
    who.later["b"] = broken(1)(who.later["b"])
    ensemble = drive(task, who)
    assert [dict(done.left_out) for done in ensemble.rounds] == [
        {},
        {"b": "has no model of round 2 any more"},
        {},
        {},
    ]


def test_who_missed_a_round_has_no_part_in_it_later() -> None:
    task = task_of(SquaredError(), stateful=("b",))
    who = Scripted(task)
    who.first["b"] = broken(1)(who.first["b"])
    ensemble = drive(task, who)
    assert [list(done.left_out) for done in ensemble.rounds] == [[], ["b"], [], []]
    assert "NaN" in ensemble.rounds[1].left_out["b"]
    assert "b" not in ensemble.coefficients[1]


def test_rounds_end_before_one_without_usable_replies() -> None:
    task = task_of(SquaredError(), stateful=("a", "b", "c"))
    who = Scripted(task)
    who.later = {name: broken(2)(values) for name, values in who.later.items()}
    ensemble = drive(task, who)
    assert [done.round for done in ensemble.rounds] == [1, 2]
    assert ensemble.train_loss < ensemble.initial_train_loss


def test_an_error_where_no_organization_is_left() -> None:
    task = task_of(SquaredError(), stateful=("a", "b", "c"))
    who = Scripted(task)
    who.later = dict.fromkeys("abc", ValueError("gone"))
    with pytest.raises(
        NoRepliesError, match=r"all 4 rounds are done, .* it failed: gone.*request that again"
    ):
        drive(task, who)


@pytest.mark.parametrize("finished", [1, 2, 4])
def test_a_resumed_learning_asks_again(finished: int) -> None:
    task = task_of(LOSSES["binary"], stateful=("b",))
    seen: list[Progress] = []
    whole = drive(task, Scripted(task), on_round=seen.append)
    who = Scripted(task)
    assert_same(drive(task, who, progress=seen[finished - 1]), whole)
    assert isinstance(who.requests[-1][0], PredictRequest)
    assert len(who.requests) == ROUNDS - finished + 1


def test_a_progress_without_replies_cannot_be_resumed() -> None:
    task = task_of(SquaredError(), rows=assign_rows(N, np.random.default_rng(0), validation_fraction=0.3))
    seen: list[Progress] = []
    drive(task, Scripted(task), on_round=seen.append)
    with pytest.raises(InvalidInputError, match="keeps fitted values of 18 rows, the task needs those of 60"):
        next(learn(dataclasses.replace(task, stateful=("b",)), progress=seen[0]))


@pytest.mark.parametrize("finished", [1, 3])
def test_an_end_on_request_still_asks_again(finished: int) -> None:
    task = task_of(SquaredError(), stateful=("b",))
    who = Scripted(task)
    learning = learn(task)
    requests = next(learning)
    for _ in range(finished):
        requests = learning.send(who.answer(requests))
    requests = learning.throw(EndLearning())
    assert list(requests) == [PredictRequest(tuple(range(1, finished + 1)), ("b",), "assisted")]
    with pytest.raises(StopIteration) as done:
        learning.send(who.answer(requests))
    ended: Ensemble = done.value.value
    assert ended.stopped == f"ended on request in round {finished + 1}"
    assert repr(ended.rounds) == repr(drive(task, Scripted(task)).rounds[:finished])


def test_an_end_while_asking_again_keeps_the_rounds_and_says_what_is_missing() -> None:
    task = task_of(SquaredError(), stateful=("b",))
    who = Scripted(task)
    learning = learn(task)
    requests = next(learning)
    while isinstance(requests[0], FitRequest):
        requests = learning.send(who.answer(requests))
    with pytest.raises(StopIteration) as done:
        learning.throw(EndLearning())
    ended: Ensemble = done.value.value
    assert ended.stopped.startswith("ended on request before stateful models were re-evaluated")
    plain = dataclasses.replace(task, stateful=())
    assert repr(ended.rounds) == repr(drive(plain, Scripted(plain)).rounds)
