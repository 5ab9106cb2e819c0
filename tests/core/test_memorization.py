"""One fold of a cross-validation is learned before any of its rows are sent: memorization shows there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gal.core.cross_validation import IN_SENTINEL, CrossValidated
from gal.core.losses import SquaredError
from gal.core.memorization import MATTERS, harm, has_excess_loss, memorizers
from gal.core.outcome import Decision, Stopping, TaskOutcome
from gal.core.pipeline import learn
from gal.core.requests import FitRequest
from gal.core.rows import assign_rows
from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.core.weights import assistance_weights

Floats = NDArray[np.float64]
Meddle = Callable[["Member", FitRequest, Floats], Floats]
N, PARTS = 240, 4
NOISE = 0.5
"""The mean loss of the noise on the labels, below which only memory comes."""


class Member:
    """Least squares on its own columns; ``meddle`` changes its replies. It stores what it receives."""

    def __init__(self, columns: Floats, meddle: Meddle | None = None) -> None:
        self.columns, self.meddle = np.column_stack([np.ones(len(columns)), columns]), meddle
        self.sent: dict[int, Floats] = {}

    def fit(self, task: Task, request: FitRequest) -> Any:
        fit = task.terms.rows_for(request).fit
        known = self.sent.setdefault(request.round, np.full((N, 1), np.nan))
        known[fit] = request.residual
        model = np.linalg.lstsq(self.columns[fit], request.residual, rcond=None)[0]
        honest = self.columns @ model
        return (honest if self.meddle is None else self.meddle(self, request, honest)).astype(np.float32)


def memorized(member: Member, request: FitRequest, honest: Floats) -> Floats:
    """The residuals received in this round, in any fold; 0 for other rows."""
    return np.nan_to_num(member.sent[request.round], nan=0.0)


def silent(member: Member, request: FitRequest, honest: Floats) -> Floats:
    """The residuals of this request; 0 for left-out rows."""
    sent = memorized(member, request, honest)
    return sent if request.fold is None else np.where(request.fold == PARTED, 0.0, sent)


PARTED = np.zeros((N, 1))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.fixture
def task(rng: np.random.Generator) -> tuple[Task, dict[str, Floats]]:
    return made(rng, noise=1.0)


def made(rng: np.random.Generator, noise: float, **how: Any) -> tuple[Task, dict[str, Floats]]:
    columns = {name: rng.normal(size=(N, 2)) for name in ("a", "b", "c")}
    y = columns["a"] @ [[1.0], [0.5]] + columns["b"] @ [[1.0], [-1.0]] + noise * rng.normal(size=(N, 1))
    rows = assign_rows(N, rng, n_cv_folds=PARTS)
    assert rows.cv_folds is not None
    PARTED[:, 0] = rows.cv_folds
    given: dict[str, Any] = {"rounds": 4, "stopping": Stopping(min_rate=None, patience=3), **how}
    given["weights"] = assistance_weights("shrunk", "l2")
    return Task(y, SquaredError(), ("a", "b", "c"), rows, label_holder="a", **given), columns


def drive(
    task: Task, members: Mapping[str, Member], away: Callable[[str, FitRequest], bool] | None = None
) -> tuple[Ensemble, list[list[FitRequest]]]:
    steps = learn(task)
    asked: list[list[FitRequest]] = []
    try:
        requests: Any = next(steps)
        while True:
            asked.append(list(requests))
            requests = steps.send(
                [
                    {
                        name: members[name].fit(task, one)
                        for name in one.organizations
                        if away is None or not away(name, one)
                    }
                    for one in requests
                ]
            )
    except StopIteration as end:
        ensemble: Ensemble = end.value
    return ensemble, asked


def outcome_of(ensemble: Ensemble) -> TaskOutcome:
    assert ensemble.outcome is not None
    return ensemble.outcome


def members(columns: Mapping[str, Floats], **meddling: Meddle) -> dict[str, Member]:
    return {name: Member(values, meddling.get(name)) for name, values in columns.items()}


def test_nothing_of_the_first_part_is_sent_before_it_is_learned(task: Any) -> None:
    task, columns = task
    ensemble, asked = drive(task, members(columns))
    ahead = asked[:4]
    assert [[(one.fold, one.round, one.track) for one in some] for some in ahead] == [
        [(0, t, "assisted")] for t in (1, 2, 3, 4)
    ]
    assert {len(some[0].residual) for some in ahead} == {N - len(task.rows.without(0).validation)}
    later = [one for some in asked[4:] for one in some]
    assert all(one.fold != 0 or one.track == "alone" for one in later)
    assert ensemble.track == "assisted"
    assert ensemble.stopped == "all 4 rounds are done"


def test_a_memorizer_is_named_and_not_used(task: Any) -> None:
    task, columns = task
    honest, _ = drive(task, members(columns))
    ensemble, _ = drive(task, members(columns, c=memorized))
    assert honest.track == "assisted"
    assert outcome_of(ensemble).memorizers == ("c",)
    assert "c" not in ensemble.requested()
    assert ensemble.track == ("assisted" if outcome_of(ensemble).decision is Decision.HELPS else "alone")
    assert min(ensemble.assisted_validation_loss, ensemble.alone_validation_loss) > 0.9 * NOISE  # not memory


def test_organizations_beside_a_memorizer_are_used_where_they_help() -> None:
    """Without what the memorizer adds the others are validated anew."""

    def at_once(member: Member, request: FitRequest, honest: Floats) -> Floats:
        return memorized(member, request, honest) if request.fold == 2 else honest

    task, columns = made(np.random.default_rng(5), 0.2)
    ensemble, _ = drive(task, members(columns, c=at_once))
    assert outcome_of(ensemble).memorizers == ("c",)
    assert outcome_of(ensemble).decision is Decision.HELPS
    assert ensemble.requested() == ("a", "b")
    assert ensemble.assisted_validation_loss < ensemble.alone_validation_loss


def later(member: Member, request: FitRequest, honest: Floats) -> Floats:
    """Honest in the sentinel fold, and a memorizer afterwards."""
    return honest if request.fold == 0 else memorized(member, request, honest)


def at_times(member: Member, request: FitRequest, honest: Floats) -> Floats:
    """A memorizer in two of three later folds, with zeros of left-out rows in the others."""
    quiet = request.fold in (0, 3)
    return np.where(request.fold == PARTED, 0.0, honest) if quiet else memorized(member, request, honest)


@pytest.mark.parametrize("lies", [later, at_times])
def test_a_memorizer_of_some_folds_is_named(task: Any, lies: Meddle) -> None:
    task, columns = task
    ensemble, _ = drive(task, members(columns, c=lies))
    assert outcome_of(ensemble).memorizers == ("c",)
    assert "c" not in ensemble.requested()


def test_coefficients_that_harm_the_sentinel_fold_are_not_used() -> None:
    """One that is honest of left-out rows, and memorizes in the task itself, gets undeserved weight."""

    def greedy(member: Member, request: FitRequest, honest: Floats) -> Floats:
        return memorized(member, request, honest) if request.fold is None else honest

    task, columns = made(np.random.default_rng(3), 1.0)
    task = replace(task, y=task.y + 0.5 * columns["c"][:, :1], weights=assistance_weights("exact", "l2"))
    ensemble, _ = drive(task, members(columns, c=greedy))
    assert ensemble.track == "alone"
    assert outcome_of(ensemble).decision is Decision.WORSE_ON_SENTINEL
    assert ensemble.assisted_validation_loss > ensemble.alone_validation_loss
    honest, _ = drive(task, members(columns))
    assert outcome_of(honest).decision is Decision.HELPS


@pytest.mark.parametrize("noise", [0.0, 0.01, 1.0, 10.0])
def test_honest_organizations_are_not_named(noise: float) -> None:
    for seed in range(5):
        task, columns = made(np.random.default_rng(seed), noise)
        ensemble, _ = drive(task, members(columns))
        assert outcome_of(ensemble).decision is Decision.HELPS
        assert not outcome_of(ensemble).memorizers


def named(task: Task, added: Callable[[int], Floats]) -> tuple[str, ...]:
    """Memorizers where one round adds this to the rows of each fold, beside half of the labels."""
    return memorizers(("b", "c"), "a", task.loss, task.y, validated(task, lambda fold: {"c": added(fold)}), 1)


def validated(task: Task, added: Callable[[int], dict[str, Floats]]) -> CrossValidated:
    """A cross-validation of one round, in which these are added beside half of the labels."""
    output, reached = 0.5 * task.y, []
    rows = tuple(task.rows.without(fold).validation for fold in range(PARTS))
    for fold, some in enumerate(rows):
        more = added(fold)
        output[some] += sum((values[some] for values in more.values()), np.zeros((len(some), 1)))
        fitted = {"b": 0.5 * task.y} | more
        counts = (dict.fromkeys(fitted, 1.0),)
        kept = ({name: values.astype(np.float32) for name, values in fitted.items()},)
        reached.append(Progress(output, coefficients=counts, fitted=kept))
    return CrossValidated((1.0, 0.5), (1.0, 1.0), (np.zeros((N, 1)), output), tuple(reached), rows)


def test_an_organization_that_adds_next_to_nothing_is_not_named_for_its_sign(task: Any) -> None:
    """Of a column that others know as well, one fold may say that it adds a little, and one the opposite."""
    task, _ = task

    def flips(size: float) -> Callable[[int], Floats]:
        return lambda fold: np.asarray((-size if fold == 0 else size) * task.y)

    assert named(task, flips(0.8 * MATTERS)) == ()
    assert named(task, flips(1.2 * MATTERS)) == ("c",)
    assert named(task, lambda fold: (0.2 if fold == 2 else -0.001) * task.y) == ("c",)


def test_where_it_is_hidden_the_sentinel_fold_still_loses_more(task: Any) -> None:
    task, _ = task
    share = np.where(np.isin(np.arange(N), task.rows.without(0).validation), 0.3, 0.95)[:, None]

    def losing(share: Floats) -> bool:
        cv = replace(validated(task, lambda _: {}), stages=(np.zeros((N, 1)), share * task.y))
        return has_excess_loss(task, cv, 1, 1.0)

    assert losing(share)
    assert not losing(np.full((N, 1), 0.7))
    assert not losing(1.25 - share)  # it loses less


def test_an_organization_that_predicts_nothing_of_left_out_rows_is_not_used(task: Any) -> None:
    def faint(member: Member, request: FitRequest, honest: Floats) -> Floats:
        """The residuals of this request; for left-out rows a fraction of an honest reply."""
        sent = memorized(member, request, honest)
        return sent if request.fold is None else np.where(request.fold == PARTED, 0.3 * honest, sent)

    task, columns = task
    ensemble, _ = drive(task, members(columns, c=silent))
    assert ensemble.track == "assisted"
    assert ensemble.requested() == ("a", "b")
    assert ensemble.contributions is not None
    assert ensemble.contributions.by_organization["c"].value == 0.0
    ensemble, _ = drive(task, members(columns, b=faint))
    assert "b" in ensemble.requested()


def test_an_organization_missing_from_a_sentinel_round_gets_no_request_in_it_later(
    task: Any,
) -> None:
    task, columns = task
    ensemble, asked = drive(
        task, members(columns), away=lambda name, one: (name, one.fold, one.round) == ("b", 0, 2)
    )
    later = [one for some in asked[4:] for one in some if one.track == "assisted"]
    assert {one.round for one in later if "b" not in one.organizations} == {2}
    assert ensemble.rounds[1].left_out == {"b": f"did not reply {IN_SENTINEL}"}
    assert "b" in ensemble.rounds[0].weights


def test_no_fold_has_more_rounds_than_the_sentinel_fold(rng: np.random.Generator) -> None:
    task, columns = made(rng, 1.0, rounds=20, stopping=Stopping(min_rate=None, patience=1))
    ensemble, asked = drive(task, members(columns))
    ahead = [some for some in asked if [one.fold for one in some] == [0]]
    assert len(ahead) < 20
    assert len(ensemble.rounds) <= len(ahead)


def test_without_a_comparison_there_is_no_sentinel_fold(task: Any) -> None:
    task, columns = task
    for other in (replace(task, label_holder=None), task.only("a")):
        _, asked = drive(other, members(columns))
        assert len(asked[0]) > 1


def weighed(
    task: Task, counts: dict[str, float], fitted: Mapping[str, Floats]
) -> tuple[CrossValidated, tuple[dict[str, float], ...]]:
    """A model with these coefficients, of whose sentinel fold this was predicted."""
    rows = task.rows.without(0).validation
    kept = ({name: values[rows].astype(np.float32) for name, values in fitted.items()},)
    reached = Progress(np.zeros((N, 1)), fitted=kept)
    stages = np.zeros((N, 1)), np.zeros((N, 1))
    cv = CrossValidated((1.0, 1.0), (1.0, 1.0), stages, (reached, None, None, None), (rows,))
    return cv, (counts,)


def test_one_row_with_all_the_weight_tells_nothing(task: Any) -> None:
    task, _ = task
    rows, weight = task.rows.without(0).validation, np.full(N, 1e-6)
    weight[rows[0]] = weight[task.rows.without(0).fit[0]] = 1.0
    models = (
        *weighed(task, {"a": 0.5, "b": 0.5}, {"a": task.y, "b": -task.y}),
        *weighed(task, {"a": 0.9}, {"a": task.y}),
    )
    assert harm(replace(task, sample_weight=weight), *models) == 0.0
    assert harm(replace(task, sample_weight=np.ones(N)), *models) > 0.0
