"""Drivers: who carries the requests of Algorithm 1 to the organizations.

A driver runs the same work for several organizations: one after another, in threads or in
processes. Results do not depend on which one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from gal.core.algorithm import Observer, predict
from gal.core.guards.plausible import Outside, screen
from gal.core.outcome import Ended
from gal.core.passes import on_one_thread
from gal.core.pipeline import learn
from gal.core.replies import Answers
from gal.core.requests import EndLearning, FitRequest, PredictRequest, Request
from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.engine.organization import Organization, fit_locally, predict_locally, take_rows
from gal.errors import (
    GALError,
    InvalidInputError,
    InvalidOptionError,
    LocalModelError,
    NothingLearnedError,
)
from gal.threads import at_most

T = TypeVar("T")
Result = TypeVar("Result")
MessageObserver = Callable[[Sequence[Request], Sequence[Mapping[str, Any]]], None]
"""Told what was asked in a round trip, and every organization's answer to each request."""

Asks = Callable[[Task, Mapping[str, Organization], "Driver", Sequence[Request]], "list[Mapping[str, Any]]"]
"""One round trip, as ``ask`` makes it."""


@dataclass
class Traffic:
    """What learning moved between the label holder and the others; her own organization is at hand."""

    trips: int = 0
    """Round trips in which somebody else was asked."""
    sent: int = 0
    """Bytes of residuals (and of sample weights, where they are shared) to the others."""
    received: int = 0
    """Bytes of fitted values from the others."""
    asked_again: int = 0
    """Of these: values of models that had moved, after the last round."""

    def count(self, request: Request, organizations: int, answers: Sequence[Any]) -> None:
        """One request to so many others, and what came back; asking again for what moved sends no data."""
        came = sum(one.nbytes for one in answers if isinstance(one, np.ndarray))
        self.received += came
        if isinstance(request, FitRequest):
            weight = 0 if request.sample_weight is None else request.sample_weight.nbytes
            self.sent += organizations * (request.residual.nbytes + weight)
        else:
            self.asked_again += came


class Driver(Protocol):
    """Runs jobs, in any order and at any place; results in the order of the jobs.

    One that runs them in other processes says so with an attribute ``elsewhere = True``: views that
    models prepare (such as on a GPU) are then prepared there, in every round. One that has several cores for
    them says how many with an attribute ``cores``: the jobs share them.
    """

    def __call__(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """The result of each job."""


@dataclass(frozen=True)
class InProcess:
    """One job after another."""

    def __call__(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        return [job() for job in jobs]


@dataclass(frozen=True)
class _Pool:
    """Jobs in the workers of a joblib pool."""

    pool: Any
    elsewhere: bool
    cores: int

    def __call__(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        with at_most(_share(self, len(jobs))):  # here, for BLAS is limited for a whole process
            return list(self.pool(delayed(job)() for job in jobs))


@contextmanager
def open_driver(driver: str | Driver = "in-process", n_jobs: int | None = None) -> Iterator[Driver]:
    """The driver of this name, for one task: in-process, threads, processes, or joblib's choice.

    ``joblib`` is threads unless the caller has chosen another backend with ``joblib.parallel_config``; its
    workers live as long as the task.
    """
    if not isinstance(driver, str):
        yield driver
        return
    if n_jobs == 0:
        raise InvalidOptionError("n_jobs must be a number of cores, -1 for all of them, or None; got 0")
    settings: dict[str, dict[str, Any]] = {
        "in-process": {},
        "threads": {"backend": "threading"},
        "processes": {"backend": "loky"},
        "joblib": {"prefer": "threads"},
    }
    if driver != "auto" and driver not in settings:
        raise InvalidOptionError(f"driver must be one of {', '.join(settings)}, got {driver!r}")
    if driver in {"auto", "in-process"} or (driver == "joblib" and n_jobs in (None, 1)):
        yield InProcess()
        return
    # max_nbytes: large views are shared as memory maps, once, not copied with every request.
    several = -1 if n_jobs is None else n_jobs
    with Parallel(n_jobs=several, max_nbytes="1M", **settings[driver]) as pool:
        elsewhere = not getattr(pool._backend, "supports_sharedmem", False)
        yield _Pool(pool, elsewhere, effective_n_jobs(several))


def drive_learning(
    task: Task,
    organizations: Mapping[str, Organization],
    driver: Driver,
    *,
    progress: Progress | None = None,
    on_round: Observer | None = None,
    traffic: Traffic | None = None,
    on_message: MessageObserver | None = None,
    asking: Asks | None = None,
) -> Ensemble:
    """Run ``learn`` to its end; Ctrl-C ends it early and keeps the finished rounds.

    Models of an earlier task are forgotten, unless this one resumes from ``progress``. ``asking`` makes the
    round trips, where not ``ask`` does: it may know more organizations than the task.
    """
    asked = task.organizations if asking is None else tuple(organizations)
    members = {name: organizations[name] for name in asked}
    if progress is None:
        for one in members.values():
            one.models.clear()
    try:
        listeners = _listeners(task, traffic, on_message)
        return _drive(task, members, driver, progress, on_round, listeners, asking or ask)
    finally:
        for one in members.values():
            one.release()


def _drive(
    task: Task,
    organizations: Mapping[str, Organization],
    driver: Driver,
    progress: Progress | None,
    on_round: Observer | None,
    listeners: Sequence[MessageObserver],
    asking: Asks,
) -> Ensemble:
    reached, unclosed = progress, False

    def note(now: Progress) -> None:
        nonlocal reached
        reached = now
        if on_round is not None:
            on_round(now)

    steps = on_one_thread(learn(task, progress=progress, on_round=note))
    try:
        requests = next(steps)
        while True:
            try:
                replies = asking(task, organizations, driver, requests)
                for listen in listeners:
                    listen(requests, replies)
            except KeyboardInterrupt:
                requests = steps.throw(EndLearning())
                continue
            try:
                requests = steps.send(replies)
            except KeyboardInterrupt:  # in the label holder's own work: go back to the last whole round
                unclosed = task.closing is not None or task.probes is not None
                unfinished = replace(
                    task, closing=None, probes=None, keep_fitted=unclosed or task.keep_fitted
                )
                steps = on_one_thread(learn(unfinished, progress=reached))
                next(steps)
                requests = steps.throw(EndLearning())
    except StopIteration as end:
        ensemble: Ensemble = end.value
    outcome = ensemble.outcome
    if outcome is not None and not ensemble.rounds and outcome.ended.on_request:
        raise NothingLearnedError("learning was interrupted before its first round was finished")
    if outcome is not None and unclosed:
        return replace(ensemble, outcome=replace(outcome, ended=Ended.BEFORE_STACKING))
    return ensemble


def _listeners(
    task: Task, traffic: Traffic | None, on_message: MessageObserver | None
) -> list[MessageObserver]:
    counting = [] if traffic is None else [partial(_count, traffic, task)]
    return [*counting, *([] if on_message is None else [on_message])]


def _count(
    traffic: Traffic, task: Task, requests: Sequence[Request], replies: Sequence[Mapping[str, Any]]
) -> None:
    asked = False
    for request, answers in zip(requests, replies, strict=True):
        others = [name for name in request.organizations if name != task.label_holder]
        traffic.count(request, len(others), [answers[name] for name in others])
        asked = asked or bool(others)
    traffic.trips += asked


def ask(
    task: Task, organizations: Mapping[str, Organization], driver: Driver, requests: Sequence[Request]
) -> list[Mapping[str, Any]]:
    """One round trip in learning: for each request every organization's values, or what went wrong there.

    Her own organization is asked for both of the label holder's tracks; in the first round for the same,
    which is fitted once.
    """
    asked = [
        (index, organizations[name])
        for index, request in enumerate(requests)
        for name in request.organizations
    ]
    elsewhere, firsts = bool(getattr(driver, "elsewhere", False)), _firsts(asked, requests)
    share = _share(driver, sum(first == place for place, first in enumerate(firsts)))
    jobs = {
        place: partial(_or_error, _job(task, one, requests[index], elsewhere, share))
        for place, (index, one) in enumerate(asked)
        if firsts[place] == place
    }
    results = dict(zip(jobs, driver(list(jobs.values())), strict=True))
    replies: list[dict[str, Any]] = [{} for _ in requests]
    for first, (index, one) in zip(firsts, asked, strict=True):
        request, result = requests[index], results[first]
        if isinstance(request, FitRequest) and not isinstance(result, GALError):
            result, models = result
            one.keep(request, models)
        replies[index][one.name] = result
    return list(replies)


def _share(driver: Driver, jobs: int) -> int:
    """Cores for each of so many jobs at a time."""
    return max(1, int(getattr(driver, "cores", 1)) // max(1, jobs))


def _firsts(asked: Sequence[tuple[int, Organization]], requests: Sequence[Request]) -> list[int]:
    """For each of those asked, the first place where the same fit is asked of the same organization."""
    firsts, known = list(range(len(asked))), dict[tuple[str, int, int | None, str], int]()
    for place, (index, one) in enumerate(asked):
        request = requests[index]
        if not isinstance(request, FitRequest) or one.moves:  # a body that moves serves one track
            continue
        first = known.setdefault((one.name, request.round, request.part, request.target), place)
        before = requests[asked[first][0]]
        if first < place and isinstance(before, FitRequest) and _same_numbers(before, request):
            firsts[place] = first
    return firsts


def _same_numbers(one: FitRequest, other: FitRequest) -> bool:
    """Whether residuals and weights are the same."""
    if one.sample_weight is None or other.sample_weight is None:
        weighed_alike = one.sample_weight is other.sample_weight
    else:
        weighed_alike = np.array_equal(one.sample_weight, other.sample_weight)
    return weighed_alike and np.array_equal(one.residual, other.residual)


def _job(task: Task, one: Organization, request: Request, elsewhere: bool, share: int) -> Callable[[], Any]:
    """What the organization does with the request; nothing in it refers to the organization itself."""
    view: Any = one.view
    if not elsewhere:
        try:
            view = one.prepare()
        except GALError as error:
            return partial(_fail, error)
    if isinstance(request, FitRequest):
        before = one.models_before(request)
        how: dict[str, Any] = {"previous": before, "share": share}
        return partial(fit_locally, one.name, view, one.model, request, task.terms, **how)
    asked = one.name, view, dict(one.models), request, task.loss.n_outputs
    return partial(predict_locally, *asked, own_rows=task.rows, share=share)


def drive_own(
    task: Task, organizations: Mapping[str, Organization], driver: Driver, steps: Generator[Any, Any, Result]
) -> Result:
    """Run what asks the label holder's own organization only: no traffic, and nobody is told."""
    try:
        steps = on_one_thread(steps)
        requests = next(steps)
        while True:
            requests = steps.send(ask(task, organizations, driver, requests))
    except StopIteration as end:
        found: Result = end.value
    return found


def _fail(error: GALError) -> Any:
    raise error


def drive_prediction(
    ensemble: Ensemble,
    organizations: Mapping[str, Organization],
    views: Mapping[str, Any],
    n_rows: int,
    driver: Driver,
    unknown: Mapping[str, NDArray[np.bool_]] | None = None,
    outside: Outside = "keep",
) -> Answers:
    """Run ``predict``; who has no view here does not answer, nor do ``unknown`` rows.

    ``outside``: what becomes of answers unlike those in learning.
    """
    steps, degraded = predict(ensemble, n_rows), np.zeros(n_rows, dtype=np.bool_)
    try:
        request = next(steps)
        replies: Mapping[str, Any] = ask_to_predict(
            ensemble, organizations, views, driver, request, unknown or {}
        )
        if outside != "keep":
            screened = screen(ensemble, request, replies, n_rows, outside)
            replies, degraded = screened.replies, screened.rows
        steps.send(replies)
    except StopIteration as end:
        answers: Answers = end.value
    return replace(answers, degraded=answers.degraded | degraded)


def ask_to_predict(
    ensemble: Ensemble,
    organizations: Mapping[str, Organization],
    views: Mapping[str, Any],
    driver: Driver,
    request: PredictRequest,
    unknown: Mapping[str, NDArray[np.bool_]],
) -> dict[str, Any]:
    """One round trip: every organization's predictions of all rounds, NaN at ``unknown`` rows."""
    asked = [name for name in request.organizations if name in views]
    known = {name: ~unknown[name] for name in asked if name in unknown}
    asked_views = {name: views[name] for name in asked} | {
        name: take_rows(views[name], np.flatnonzero(rows)) for name, rows in known.items()
    }
    jobs = [
        partial(
            _or_error,
            partial(
                predict_locally,
                name,
                asked_views[name],
                organizations[name].models,
                request,
                ensemble.n_outputs,
                share=_share(driver, len(asked)),
            ),
        )
        for name in asked
    ]
    replies: dict[str, Any] = dict(zip(asked, driver(jobs), strict=True))
    for name, rows in known.items():
        if isinstance(replies[name], np.ndarray):
            values = np.full((len(request.rounds), len(rows), ensemble.n_outputs), np.nan, dtype=np.float32)
            values[:, rows] = replies[name]
            replies[name] = values
    return replies


def fitted_now(
    task: Task, ensemble: Ensemble, reached: Progress, members: Mapping[str, Organization]
) -> Sequence[Mapping[str, NDArray[np.float32]]]:
    """The replies of all rounds that an assisted model uses; of moving models what they say now."""
    rounds = tuple(range(1, ensemble.n_rounds + 1))
    request = PredictRequest(rounds, tuple(name for name in task.moving if name in ensemble.asked()))
    moved = {name: members[name].revisit(request, task.terms) for name in request.organizations}
    for name in moved:
        members[name].release()
    return [
        {**kept, **{name: values[index] for name, values in moved.items()}}
        for index, kept in enumerate(reached.fitted[: ensemble.n_rounds])
    ]


def by_name(organizations: Sequence[Organization]) -> dict[str, Organization]:
    """Organizations by name, in order of their names: the order in which they were given is nothing."""
    found: dict[str, Organization] = {}
    for one in organizations:
        if one.name in found:
            raise InvalidInputError(f"two organizations are called {one.name!r}: names must differ")
        found[one.name] = one
    if not found:
        raise InvalidInputError("no organizations: at least one is needed")
    return {name: found[name] for name in sorted(found)}


def _or_error(job: Callable[[], T]) -> T | GALError:
    """Errors travel as values, so that one organization's failure is not the round's."""
    try:
        return job()
    except GALError as error:
        return LocalModelError(str(error))  # a plain one: with its cause it might not travel
