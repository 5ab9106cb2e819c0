"""One part of a cross-validation is learned before anything of its rows is sent, and judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gal.core.algorithm import learn
from gal.core.cross_validation import Judgement
from gal.core.guards.judged_first import FLATTERS, IN_FIRST, contradicted, harm, remembering
from gal.core.losses import SquaredError
from gal.core.requests import FitRequest
from gal.core.rows import assign_rows
from gal.core.state import Ensemble, Progress
from gal.core.stopping import Stopping
from gal.core.task import Task
from gal.core.weights import assistance_weights

Floats = NDArray[np.float64]
Meddle = Callable[["Member", FitRequest, Floats], Floats]
N, PARTS = 240, 4


class Member:
    """Least squares on its own columns; ``meddle`` changes what it says. It remembers what it was sent."""

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


def remembers(member: Member, request: FitRequest, honest: Floats) -> Floats:
    """What it was ever sent of a row in this round, and nothing of others."""
    return np.nan_to_num(member.sent[request.round], nan=0.0)


def silent(member: Member, request: FitRequest, honest: Floats) -> Floats:
    """What it was sent now, and nothing of rows that are left out."""
    sent = remembers(member, request, honest)
    return sent if request.part is None else np.where(request.part == PARTED, 0.0, sent)


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
    rows = assign_rows(N, rng, n_parts=PARTS)
    assert rows.parts is not None
    PARTED[:, 0] = rows.parts
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


def members(columns: Mapping[str, Floats], **meddling: Meddle) -> dict[str, Member]:
    return {name: Member(values, meddling.get(name)) for name, values in columns.items()}


def test_nothing_of_the_first_part_is_sent_before_it_is_learned(task: Any) -> None:
    task, columns = task
    ensemble, asked = drive(task, members(columns))
    ahead = asked[:4]
    assert [[(one.part, one.round, one.track) for one in some] for some in ahead] == [
        [(0, t, "assisted")] for t in (1, 2, 3, 4)
    ]
    assert {len(some[0].residual) for some in ahead} == {N - len(task.rows.without(0).validation)}
    later = [one for some in asked[4:] for one in some]
    assert all(one.part != 0 or one.track == "alone" for one in later)
    assert ensemble.track == "assisted"
    assert ensemble.stopped == "all 4 rounds are done"


def test_who_remembers_is_named_and_not_used(task: Any) -> None:
    task, columns = task
    honest, _ = drive(task, members(columns))
    ensemble, _ = drive(task, members(columns, c=remembers))
    assert honest.track == "assisted"
    assert ensemble.track == "alone"
    assert (
        "looks like giving back what it was sent: of rows not sent before it knew less (c)"
        in ensemble.stopped
    )
    assert np.isnan(ensemble.assisted_validation_loss)
    assert set(ensemble.asked()) == {"a"}


def later(member: Member, request: FitRequest, honest: Floats) -> Floats:
    """Honest in the first part, and remembers afterwards."""
    return honest if request.part == 0 else remembers(member, request, honest)


def at_times(member: Member, request: FitRequest, honest: Floats) -> Floats:
    """Remembers in two of three later parts, and is quiet in the others."""
    quiet = request.part in (0, 3)
    return np.where(request.part == PARTED, 0.0, honest) if quiet else remembers(member, request, honest)


@pytest.mark.parametrize("lies", [later, at_times])
def test_who_remembers_later_is_named(task: Any, lies: Meddle) -> None:
    task, columns = task
    ensemble, _ = drive(task, members(columns, c=lies))
    assert ensemble.track == "alone"
    assert "it knew less (c)" in ensemble.stopped


def test_weights_that_would_have_done_harm_before_are_not_used(task: Any) -> None:
    def loud(member: Member, request: FitRequest, honest: Floats) -> Floats:
        if request.part is None:
            return remembers(member, request, honest)  # for its weight
        noise = np.random.default_rng(request.round).normal(size=(N, 1))
        return np.where((request.part == PARTED) & (request.part == 0), 4 * noise, honest)

    task, columns = task
    ensemble, _ = drive(task, members(columns, c=loud))
    assert ensemble.track == "alone"
    assert "said of rows before these were sent is worse than alone" in ensemble.stopped
    assert ensemble.assisted_validation_loss > ensemble.alone_validation_loss


@pytest.mark.parametrize("noise", [0.0, 0.01, 1.0, 10.0])
def test_honest_organizations_are_not_named(noise: float) -> None:
    for seed in range(5):
        task, columns = made(np.random.default_rng(seed), noise)
        ensemble, _ = drive(task, members(columns))
        assert "looks like" not in ensemble.stopped


def named(task: Task, added: Callable[[int], Floats], trust: float = 1.0) -> tuple[str, ...]:
    """Who is where one round adds this to the rows that a part leaves out, beside half of the labels."""
    output, reached, counts = 0.5 * task.y, [], ({"b": 1.0, "c": 1.0},)
    for part in range(PARTS):
        said = {"b": 0.5 * task.y, "c": added(part)}
        rows = task.rows.without(part).validation
        output[rows] += said["c"][rows]
        fitted = ({name: values.astype(np.float32) for name, values in said.items()},)
        done: Any = (None,)
        reached.append(Progress(output, rounds=done, coefficients=counts, history=(counts,), fitted=fitted))
    model: Any = Fixed(task, {}, {})
    model.kept, model.trust, model.coefficients = 1, trust, counts
    model.judged = Judgement((1.0, 0.5), (1.0, 1.0), (np.zeros((N, 1)), output), tuple(reached))
    return remembering(task, model)


def test_who_adds_next_to_nothing_is_not_named_for_its_sign(task: Any) -> None:
    """Of a column that others know as well, one part may say that it adds a little, and one the opposite."""
    task, _ = task

    def flips(size: float) -> Callable[[int], Floats]:
        return lambda part: np.asarray((-size if part == 0 else size) * task.y)

    # Half of the labels is lacking: a little more makes rows lose four times that share less.
    assert named(task, flips(0.8 * FLATTERS / 4)) == ()
    assert named(task, flips(1.2 * FLATTERS / 4)) == ("c",)
    assert named(task, flips(2 * FLATTERS / 4), trust=0.5) == ()  # of what is used of it
    assert named(task, lambda part: (0.2 if part == 2 else -0.001) * task.y) == ("c",)


def test_who_says_little_of_rows_left_out_is_not_used_unless_it_helps(task: Any) -> None:
    def faint(member: Member, request: FitRequest, honest: Floats) -> Floats:
        """What it was sent, and a little of what it knows of rows that are left out."""
        sent = remembers(member, request, honest)
        return sent if request.part is None else np.where(request.part == PARTED, 0.3 * honest, sent)

    task, columns = task
    ensemble, _ = drive(task, members(columns, c=silent))
    assert ensemble.track == "assisted"
    assert ensemble.asked() == ("a", "b")
    assert ensemble.contributions["c"] == 0.0
    assert ensemble.shares is not None
    assert ensemble.shares.by_organization["c"].value == 0.0
    total = ensemble.initial_train_loss - ensemble.train_loss
    assert sum(ensemble.contributions.values()) == pytest.approx(total)
    ensemble, _ = drive(task, members(columns, b=faint))
    assert "b" in ensemble.asked()


def test_who_misses_a_round_of_the_first_part_is_not_asked_in_it_later(task: Any) -> None:
    task, columns = task
    ensemble, asked = drive(
        task, members(columns), away=lambda name, one: (name, one.part, one.round) == ("b", 0, 2)
    )
    later = [one for some in asked[4:] for one in some if one.track == "assisted"]
    assert {one.round for one in later if "b" not in one.organizations} == {2}
    assert ensemble.rounds[1].left_out == {"b": f"did not answer {IN_FIRST}"}
    assert "b" in ensemble.rounds[0].weights


def test_nobody_goes_further_than_the_first_part(rng: np.random.Generator) -> None:
    task, columns = made(rng, 1.0, rounds=20, stopping=Stopping(min_rate=None, patience=1))
    ensemble, asked = drive(task, members(columns))
    ahead = [some for some in asked if [one.part for one in some] == [0]]
    assert len(ahead) < 20
    assert len(ensemble.rounds) <= len(ahead)


def test_learnings_that_only_judge_keep_no_record_of_who_earned_what(task: Any) -> None:
    task, columns = task
    judging, _ = drive(replace(task, keep_fitted=True), members(columns))
    assert judging.judged is not None
    rounds = [done for one in judging.judged.reached if one is not None for done in one.rounds]
    assert len(rounds) > 4
    assert not any(done.spread or any(done.contributions.values()) for done in rounds)
    assert all(done.spread and any(done.contributions.values()) for done in judging.rounds)


def test_where_nothing_is_compared_no_part_goes_first(task: Any) -> None:
    task, columns = task
    for other in (replace(task, label_holder=None), task.only("a")):
        _, asked = drive(other, members(columns))
        assert len(asked[0]) > 1


class Fixed:
    """A model with these coefficients whose first part was told this, and had other ones, or the same."""

    kept, trust = 1, 1.0

    def __init__(
        self,
        task: Task,
        counts: dict[str, float],
        said: Mapping[str, Floats],
        before: dict[str, float] | None = None,
    ) -> None:
        self.coefficients, before = (counts,), counts if before is None else before
        rows = task.rows.without(0).validation
        heard = ({name: values[rows].astype(np.float32) for name, values in said.items()},)
        reached = Progress(np.zeros((N, 1)), heard=heard, history=((before,),))
        then = sum((before[name] * said[name] for name in set(before) & set(said)), np.zeros((N, 1)))
        stages = np.zeros((N, 1)), then
        self.judged = Judgement((1.0, 1.0), (1.0, 1.0), stages, (reached, None, None, None))
        fitted = ({name: values.astype(np.float32) for name, values in said.items()},)
        self.progress = Progress(np.zeros((N, 1)), fitted=fitted)


def test_harm_is_of_the_weights_on_what_was_said_before(task: Any) -> None:
    task, _ = task
    own: Any = Fixed(task, {"a": 0.9}, {"a": task.y})
    helps: Any = Fixed(task, {"a": 0.5, "b": 0.5}, {"a": task.y, "b": task.y})
    hurts: Any = Fixed(task, {"a": 0.5, "b": 0.5}, {"a": task.y, "b": -task.y})
    missed: Any = Fixed(task, {"a": 0.5, "b": 0.5}, {"a": task.y})
    rows = task.rows.without(0).validation
    even = task.y.copy()  # along with every other row, in the order of their sizes
    even[rows[np.argsort(np.abs(task.y[rows, 0]))][::2]] *= -1
    barely: Any = Fixed(task, {"a": 0.9, "b": 0.001}, {"a": task.y, "b": -even})
    loss = task.loss.value(task.y[rows], np.zeros((len(rows), 1))).mean()
    assert harm(task, helps, own) == 0.0
    assert harm(task, barely, own) == 0.0
    assert harm(task, hurts, own) == pytest.approx(0.99 * loss)
    assert harm(task, missed, own) == pytest.approx(0.24 * loss)


def test_other_rates_are_no_harm_and_other_weights_are(task: Any) -> None:
    """The last learning may take longer steps along smaller answers; who has a weight is another matter."""
    task, _ = task
    own: Any = Fixed(task, {"a": 0.2}, {"a": task.y})
    said, noise = {"a": task.y, "b": task.y}, np.random.default_rng(0).normal(size=task.y.shape)
    then = {"a": 0.5, "b": 0.5}
    longer: Any = Fixed(task, {"a": 2.0, "b": 2.0}, said, then)
    assert harm(task, longer, own) == 0.0
    assert harm(task, Fixed(task, {"a": 2.4, "b": 1.6}, said, then), own) == 0.0  # type: ignore[arg-type]
    for others in ({"a": 0.5, "b": 3.5}, {"b": 3.0}):
        moved: Any = Fixed(task, others, said, then)
        assert harm(task, moved, own) > 0.0
    assert harm(task, Fixed(task, {"a": 2.0, "b": 2.0}, said), own) > 0.0  # type: ignore[arg-type]
    bad: Any = Fixed(task, {"a": 4.0, "b": 4.0}, {"a": noise, "b": noise}, {"a": 1.0, "b": 1.0})
    assert harm(task, bad, own) > 0.0  # nor was it any better then
    nobody: Any = Fixed(task, {"a": 2.0, "b": 2.0}, said, {})
    assert harm(task, nobody, own) > 0.0


def test_one_row_with_all_the_weight_tells_nothing(task: Any) -> None:
    task, _ = task
    rows, weight = task.rows.without(0).validation, np.full(N, 1e-6)
    weight[rows[0]] = weight[task.rows.without(0).fit[0]] = 1.0
    task = replace(task, sample_weight=weight)
    own: Any = Fixed(task, {"a": 0.9}, {"a": task.y})
    hurts: Any = Fixed(task, {"a": 0.5, "b": 0.5}, {"a": task.y, "b": -task.y})
    assert harm(task, hurts, own) == 0.0
    assert harm(replace(task, sample_weight=np.ones(N)), hurts, own) > 0.0


def test_rows_that_lose_more_before_they_were_sent_contradict_the_others(task: Any) -> None:
    task, _ = task
    first = np.isin(np.arange(N), task.rows.without(0).validation)[:, None]

    def says(last: Floats) -> Any:
        model: Any = Fixed(task, {}, {})
        model.kept, model.trust = 1, 1.0
        model.judged = replace(model.judged, stages=(np.zeros((N, 1)), last))
        return model

    own = says(0.2 * task.y)
    assert contradicted(task, says(np.where(first, 0.3, 0.95) * task.y), own)
    assert not contradicted(task, says(np.where(first, 0.7, 0.7) * task.y), own)
    assert not contradicted(task, says(np.where(first, 0.95, 0.3) * task.y), own)
    assert not contradicted(task, says(np.where(first, 0.99, 0.999) * task.y), own)  # too little to matter
