"""Drivers: requests of Algorithm 1 to the organizations of one process, and their replies.

A driver runs the same work for several organizations, one after another or in the workers of joblib, with
the same results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from gal.core.algorithm import Observer, predict
from gal.core.outcome import Ended
from gal.core.passes import driven, on_one_thread
from gal.core.pipeline import learn
from gal.core.replies import LocalPredictions
from gal.core.requests import EndLearning, FitRequest, PredictRequest, Request
from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.errors import GALError, InvalidInputError, InvalidOptionError, LocalModelError, NothingLearnedError
from gal.learner.organization import Organization, fit_locally, predict_locally, take_rows
from gal.threads import at_most

T = TypeVar("T")
Result = TypeVar("Result")
MessageObserver = Callable[[Sequence[Request], Sequence[Mapping[str, Any]]], None]
"""Called with the requests of a round trip, and every organization's reply to each request."""

Asks = Callable[[Task, Mapping[str, Organization], "Driver", Sequence[Request]], "list[Mapping[str, Any]]"]
"""One round trip, as ``ask`` makes it."""


@dataclass
class Traffic:
    """Data between the label holder and the other organizations in learning."""

    trips: int = 0
    """Round trips with a request to another organization."""
    sent: int = 0
    """Bytes of residuals (and of sample weights, where they are shared) to the others."""
    received: int = 0
    """Bytes of fitted values from the others."""
    repeated_request: int = 0
    """Of these: re-evaluations of stateful models, after the last round."""

    def count(self, request: Request, organizations: int, replies: Sequence[Any]) -> None:
        """One request to so many others, and their replies; a re-evaluation sends no data."""
        received = sum(one.nbytes for one in replies if isinstance(one, np.ndarray))
        self.received += received
        if isinstance(request, FitRequest):
            weight = 0 if request.sample_weight is None else request.sample_weight.nbytes
            self.sent += organizations * (request.residual.nbytes + weight)
        else:
            self.repeated_request += received


@dataclass
class Driver:
    """Runs jobs one after another, or in the workers of a joblib pool; results in the order of the jobs."""

    pool: Any = None
    elsewhere: bool = False
    """Whether jobs run in other processes, where views are prepared in every round."""
    cores: int = 1
    """Cores that the jobs share."""

    def __call__(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        if self.pool is None:
            return [job() for job in jobs]
        with at_most(self.share(len(jobs))):  # here, for BLAS is limited for a whole process
            return list(self.pool(delayed(job)() for job in jobs))

    def share(self, jobs: int) -> int:
        """Cores for each of so many jobs at a time."""
        return max(1, self.cores // max(1, jobs))


IN_PROCESS = Driver()


@contextmanager
def open_driver(n_jobs: int | None) -> Iterator[Driver]:
    """The driver for so many cores, for one task.

    More than one are joblib's: threads, unless the caller has chosen another backend with
    ``joblib.parallel_config``.
    """
    if n_jobs == 0:
        raise InvalidOptionError("n_jobs must be a number of cores, -1 for all of them, or None; got 0")
    if n_jobs in (None, 1):
        yield IN_PROCESS
        return
    # max_nbytes: large views are shared as memory maps, once, not copied with every request.
    with Parallel(n_jobs=n_jobs, max_nbytes="1M", prefer="threads") as pool:
        elsewhere = not getattr(pool._backend, "supports_sharedmem", False)
        yield Driver(pool, elsewhere, effective_n_jobs(n_jobs))


def drive_learning(
    task: Task,
    organizations: Mapping[str, Organization],
    driver: Driver = IN_PROCESS,
    *,
    progress: Progress | None = None,
    on_round: Observer | None = None,
    traffic: Traffic | None = None,
    on_message: MessageObserver | None = None,
    asking: Asks | None = None,
) -> Ensemble:
    """Run ``learn`` to its end; Ctrl-C ends it early and keeps the finished rounds.

    Models of an earlier task are dropped, unless this one resumes from ``progress``. ``asking`` makes the
    round trips instead of ``ask``: it may have more organizations than the task.
    """
    names = task.organizations if asking is None else tuple(organizations)
    members = {name: organizations[name] for name in names}
    if progress is None:
        for one in members.values():
            one.models.clear()

    reached, interrupted = progress, False

    def trip(requests: Sequence[Request]) -> list[Mapping[str, Any]]:
        replies = (asking or ask)(task, members, driver, requests)
        if traffic is not None:
            others = [set(request.organizations) - {task.label_holder} for request in requests]
            for request, names, reply in zip(requests, others, replies, strict=True):
                traffic.count(request, len(names), [reply[name] for name in names])
            traffic.trips += any(others)
        if on_message is not None:
            on_message(requests, replies)
        return replies

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
                replies = trip(requests)
            except KeyboardInterrupt:
                requests = steps.throw(EndLearning())
                continue
            try:
                requests = steps.send(replies)
            except KeyboardInterrupt:  # in the label holder's own work: no stacker then
                rounds_only = replace(task, stacker=None, probes=None, keep_fitted=task.keeps_all_rows)
                steps, interrupted = on_one_thread(learn(rounds_only, progress=reached)), True
                next(steps)
                requests = steps.throw(EndLearning())
    except StopIteration as end:
        ensemble: Ensemble = end.value
    finally:
        for one in members.values():
            one.release()
    outcome = ensemble.outcome
    if not ensemble.rounds and outcome is not None and outcome.ended.on_request:
        raise NothingLearnedError("learning was interrupted before its first round was finished")
    if outcome is not None and interrupted:
        return replace(ensemble, outcome=replace(outcome, ended=Ended.REQUEST))
    return ensemble


def drive_own(
    task: Task, organizations: Mapping[str, Organization], driver: Driver, steps: Generator[Any, Any, Result]
) -> Result:
    """Run a learning of the label holder's own organization: no traffic, and no observer."""
    return driven(on_one_thread(steps), lambda requests: ask(task, organizations, driver, requests))


def ask(
    task: Task, organizations: Mapping[str, Organization], driver: Driver, requests: Sequence[Request]
) -> list[Mapping[str, Any]]:
    """One round trip in learning: for each request every organization's values, or what went wrong there.

    The label holder's two tracks often need the same fit of its own organization: it is made once.
    """
    fits: list[tuple[int, Organization, Hashable]] = []
    for place, request in enumerate(requests):
        fit = _digest(request)
        for name in request.organizations:
            one = organizations[name]  # a body that moves serves one track
            fits.append((place, one, (name, place if fit is None or one.stateful else fit)))
    share = driver.share(len({key for _, _, key in fits}))
    jobs = {key: _job(task, one, requests[place], driver, share) for place, one, key in fits}
    results = dict(zip(jobs, driver(list(jobs.values())), strict=True))
    replies: list[dict[str, Any]] = [{} for _ in requests]
    for place, one, key in fits:
        request, result = requests[place], results[key]
        if isinstance(request, FitRequest) and not isinstance(result, GALError):
            result, models = result
            one.keep(request, models)
        replies[place][one.name] = result
    return list(replies)


def _digest(request: Request) -> bytes | None:
    """A digest that requests of the same fit share, whatever their track; None without a fit."""
    if not isinstance(request, FitRequest):
        return None
    found = hashlib.blake2b(repr((request.round, request.fold, request.target)).encode())
    for numbers in (request.residual, request.sample_weight):
        found.update(b"none" if numbers is None else numbers.tobytes())
    return found.digest()


def _job(task: Task, one: Organization, request: Request, driver: Driver, share: int) -> Callable[[], Any]:
    """The work of an organization for this request, without a reference to the organization."""
    try:
        view = one.view if driver.elsewhere else one.prepare()
    except GALError as error:
        return partial(LocalModelError, str(error))
    if isinstance(request, FitRequest):
        fit = partial(fit_locally, one.name, view, one.model, request, task.terms)
        return partial(_or_error, fit, previous=one.previous_models(request), share=share)
    again = partial(predict_locally, one.name, view, dict(one.models), request, task.loss.n_outputs)
    return partial(_or_error, again, share=share)


def _or_error(job: Callable[..., T], **options: Any) -> T | GALError:
    """Errors travel as values, so that one organization's failure is not the round's."""
    try:
        return job(**options)
    except GALError as error:
        return LocalModelError(str(error))  # a plain one: with its cause it might not travel


def drive_prediction(
    ensemble: Ensemble,
    organizations: Mapping[str, Organization],
    views: Mapping[str, Any],
    n_rows: int,
    driver: Driver = IN_PROCESS,
    unknown: Mapping[str, NDArray[np.bool_]] | None = None,
) -> LocalPredictions:
    """Run ``predict``; an organization without a view does not reply, ``unknown`` rows are not predicted."""

    def reply(request: PredictRequest) -> dict[str, Any]:
        return ask_to_predict(ensemble, organizations, views, driver, request, unknown or {})

    return driven(predict(ensemble, n_rows), reply)


def ask_to_predict(
    ensemble: Ensemble,
    organizations: Mapping[str, Organization],
    views: Mapping[str, Any],
    driver: Driver,
    request: PredictRequest,
    unknown: Mapping[str, NDArray[np.bool_]],
) -> dict[str, Any]:
    """One round trip: every organization's predictions of all rounds, NaN at ``unknown`` rows."""
    held = {name: views[name] for name in request.organizations if name in views}
    known = {name: ~unknown[name] for name in held if name in unknown}
    held |= {name: take_rows(held[name], np.flatnonzero(rows)) for name, rows in known.items()}
    share, n_outputs = driver.share(len(held)), ensemble.n_outputs
    jobs = []
    for name, view in held.items():
        job = partial(predict_locally, name, view, organizations[name].models, request, n_outputs)
        jobs.append(partial(_or_error, job, share=share))
    replies: dict[str, Any] = dict(zip(held, driver(jobs), strict=True))
    for name, rows in known.items():
        if isinstance(replies[name], np.ndarray):
            values = np.full((len(request.rounds), len(rows), n_outputs), np.nan, dtype=np.float32)
            values[:, rows] = replies[name]
            replies[name] = values
    return replies


def current_fitted(
    task: Task, ensemble: Ensemble, reached: Progress, members: Mapping[str, Organization]
) -> Sequence[Mapping[str, NDArray[np.float32]]]:
    """The replies of all rounds that an assisted model uses; stateful models are re-evaluated."""
    rounds = tuple(range(1, ensemble.n_rounds + 1))
    request = PredictRequest(rounds, tuple(name for name in task.stateful if name in ensemble.requested()))
    moved = {name: members[name].revisit(request, task.terms) for name in request.organizations}
    for name in moved:
        members[name].release()
    return [
        {**kept, **{name: values[index] for name, values in moved.items()}}
        for index, kept in enumerate(reached.fitted[: ensemble.n_rounds])
    ]


def by_name(organizations: Sequence[Organization]) -> dict[str, Organization]:
    """Organizations by name, in order of their names."""
    found = {one.name: one for one in sorted(organizations, key=lambda one: one.name)}
    if not found:
        raise InvalidInputError("no organizations: at least one is needed")
    if len(found) < len(organizations):
        names = [one.name for one in organizations]
        twice = next(name for name in found if names.count(name) > 1)
        raise InvalidInputError(f"two organizations have the name {twice!r}: names must differ")
    return found
