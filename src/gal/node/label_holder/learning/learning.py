"""Learning a version over nodes: Algorithm 1, driven by `Rounds`, up to its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gal.core.passes import on_one_thread
from gal.core.pipeline import learn
from gal.core.replies import Reply
from gal.core.requests import PredictRequest, Request
from gal.core.state import Ensemble, Progress, plain
from gal.errors import AlignmentError, TaskError
from gal.node.label_holder.holder_node import HOLDER, drop_files
from gal.node.label_holder.labels.label_guard import LabelGuard, refit_facts
from gal.node.label_holder.labels.label_privacy import privacy_facts, privacy_of
from gal.node.label_holder.labels.tasks import (
    LabelledRows,
    check_terms,
    in_order_of_ids,
    labels_of_task,
    learning_task,
    read_labelled,
    read_version,
    write_version,
)
from gal.node.label_holder.learning.open_version import OpenVersion
from gal.node.label_holder.learning.rounds import Rounds, read_values
from gal.node.label_holder.learning.secure_sums import RowsDifferError
from gal.node.label_holder.learning.session_setup import SessionSetup
from gal.node.label_holder.stacker_files import write_own_stacker, write_stacker
from gal.node.label_holder.version_facts import validated_loss, version_facts
from gal.node.store.activity import finite_loss
from gal.node.store.failures import describe_failure
from gal.node.store.stored_versions import LearnedVersion, LearningOutcome
from gal.privacy.own_model import OwnModel, all_rounds, learn_own
from gal.protocol import Encoded, Message, prepare
from gal.secure_aggregation.terms import SUM

Found = TypeVar("Found")
END_SECONDS = 10.0
"""How long the organizations have to confirm the end of a version."""


class Learning:
    """Learns one version of a task: opens it, carries its rounds, and stores the outcome."""

    def __init__(self, version: OpenVersion, guard: LabelGuard) -> None:
        self._version, self._node, self._guard = version, version.node, guard
        self._record, self._state = version.record, version.node.state
        self._private = privacy_of(version.record.options).mechanism != "none"
        self._setup = SessionSetup(version)
        self._reached: Progress | None = None
        """After the last finished round."""
        self._stateful: Mapping[str, Reply] = {}
        """By organization with a stateful model: its values of all rounds after the last one."""

    def run(self, *, anew: bool) -> dict[str, Any]:
        """Learn to the end; the version's facts.

        LearningInterruptedError where it is stopped: the next learning resumes, except with ``anew``.
        """
        version, statuses = self._version, self._state.statuses(self._record.id, HOLDER)
        interrupted = [number for number, status in statuses.items() if status == "begun"]
        if interrupted and not anew:
            version.number = interrupted[-1]
            version.report("resumed")
            self._reopen()
        else:
            for number in interrupted:
                self._abandon(number)
            version.number = max(statuses, default=0) + 1
            self._open()
        started = time.perf_counter()
        while True:
            try:
                ensemble = self._rounds()
                break
            except RowsDifferError as error:
                self._narrow(error.common)
        return self._finish(ensemble, time.perf_counter() - started)

    # Opening

    def _abandon(self, number: int) -> None:
        version = self._state.learned_version(self._record.id, number)
        if version is not None:
            self._state.put_version(self._record.id, number, replace(version, status="abandoned"))
        drop_files(self._state, self._record, number)

    def _open(self) -> None:
        """Begin a new version, once a quorum is connected; it can be resumed when this returns."""
        version, node = self._version, self._node
        moving = version.connect()
        if node.worker("describe")[0]["moving"]:
            moving = sorted([*moving, node.name])
        rows = read_labelled(node.configuration)
        if self._private:
            rows = in_order_of_ids(rows)
        self._begin(rows, [*version.invited, node.name], moving)

    def _begin(self, rows: LabelledRows, organizations: Sequence[str], moving: Sequence[str]) -> None:
        """Store a new version's rows, and put it on record."""
        version, node = self._version, self._node
        check_terms(node.configuration, self._record, rows, moving)
        write_version(version.folder, rows, organizations, moving)
        try:
            self._reopen()
        except BaseException:  # nothing was sent, and there is nothing to resume
            drop_files(self._state, self._record, version.number)
            raise
        privacy = privacy_facts(node.ledger, node.configuration, privacy_of(self._record.options))
        n_rows, n_without = len(version.rows.ids), version.rows.n_without
        begun = LearnedVersion(n_rows=n_rows, n_without_label=n_without, started=_now(), privacy=privacy)
        self._state.put_version(self._record.id, version.number, begun)
        version.on_event({"event": "privacy"} | privacy)

    def _reopen(self) -> None:
        """Take up the files of a version; what it reveals of the labels is drawn, stored and charged here."""
        version, record = self._version, self._record
        version.rows, organizations, moving = read_version(version.folder)
        version.labels = labels_of_task(record.options, version.rows.y)
        others = [name for name in organizations if name != version.own_name]
        seen = self._guard.protect(record, version.number, version.rows.ids, version.labels, others)
        version.task = learning_task(self._node.configuration, record.options, seen, organizations, moving)
        version.among = frozenset(others)

    def _narrow(self, common: NDArray[np.bool_]) -> None:
        """Begin a new version of the rows that all organizations know, as secure aggregation needs it."""
        version, before, kept = self._version, self._version.rows, np.flatnonzero(common)
        if not len(kept):
            raise AlignmentError(f"there is no row that all organizations of {self._record.name!r} know")
        rows = LabelledRows(before.ids.take(kept), before.y[kept], before.n_without)
        _, organizations, moving = read_version(version.folder)
        self._abandon(version.number)
        version.number += 1
        version.report("narrowed", n_rows=len(kept), of=len(common))
        self._begin(rows, organizations, moving)
        self._setup = SessionSetup(version)

    # Rounds

    def _rounds(self) -> Ensemble:
        """The ensemble that is learned from the organizations' replies."""
        self._setup.run()
        rounds = Rounds(self._version, self._setup)

        def step(number: int, requests: Sequence[Request]) -> list[dict[str, Reply]]:
            replies = rounds.step(number, requests)
            for request, values in zip(requests, replies, strict=True):
                if isinstance(request, PredictRequest) and request.track == "assisted":
                    self._stateful = values
            return replies

        try:
            ensemble = _driven(learn(self._version.task, on_round=self._report_round), step)
        finally:
            rounds.close()
        return rounds.concluded(ensemble)

    def _report_round(self, progress: Progress) -> None:
        self._reached, done = progress, progress.rounds[-1]
        self._version.report(
            "round",
            round=done.round,
            rounds=self._version.task.rounds,
            loss=self._version.task.loss.name,
            train_loss=done.train_loss,
            validation_loss=finite_loss(done.validation_loss),
            initial={
                "train_loss": finite_loss(progress.initial_train_loss),
                "validation_loss": finite_loss(progress.initial_validation_loss),
            },
            rate=done.rate,
            weights=dict(done.weights),
            missed=dict(done.left_out),
        )

    def _own_model(self) -> OwnModel | None:
        """The label holder's private model on the true labels; None where its organization takes no part.

        Only its own organization fits it, after the end, and nothing of it leaves this machine. The fitted
        values are stored with its models, so that a resumed learning gets the same.
        """
        version, own = self._version, self._version.own_name
        shared = self._setup.shared.get(own)
        if shared is None:
            return None

        def fit(number: str, request: Request) -> Reply:
            message = shared.message(request, version.task, version.record.id, version.number, number)
            try:
                reply = version.own_reply(prepare(message)).message
            except Exception as error:
                return RuntimeError(describe_failure(error, own).inside)
            return read_values(reply, shared, request, version.task)

        def step(number: int, requests: Sequence[Request]) -> list[dict[str, Reply]]:
            return [{own: fit(f"own {number}.{place}", one)} for place, one in enumerate(requests)]

        return _driven(learn_own(version.task, version.labels), step)

    # Ending

    def _finish(self, ensemble: Ensemble, seconds: float) -> dict[str, Any]:
        """Store the outcome, and end the version at all organizations."""
        version, state, task = self._version, self._state, self._record.id
        begun = state.learned_version(task, version.number)
        if begun is None:
            raise TaskError(
                f"version {version.number} of {self._record.name!r} is not on record any more: was the task "
                "forgotten?"
            )
        if self._private and self._reached is not None:
            ensemble = all_rounds(ensemble, self._reached)
        labels, shared = version.labels, self._setup.shared
        outcome = LearningOutcome(
            ensemble=plain(ensemble),
            classes=None if labels.classes is None else labels.classes.tolist(),
            loss=labels.loss.name,
            finished=_now(),
            seconds=round(seconds, 3),
            known_rows={name: one.n_known for name, one in shared.items()},
            unknown_rows={name: one.n_unknown for name, one in shared.items()},
            stacker=write_stacker(state, task, version.number, ensemble),
        )
        finished = replace(begun, status="finished", outcome=outcome)
        if self._private:  # the end is sent first: its time must not depend on the true labels
            self._end_for_others(ensemble)
            ended = time.monotonic()
            own = self._own_model()
            refit = refit_facts(version.task, labels, self._reached, self._stateful, ensemble, own)
            kept = write_own_stacker(state, task, version.number, None if own is None else own.ensemble)
            finished = replace(finished, refit=refit | kept)
            self._end_for_own(ensemble, used=own is not None)
            # How long the private track took depends on the true labels: the next request must not show it.
            left = ended + version.patience.pause - time.monotonic()
            if left < 0 < version.patience.pause:
                version.node.log.warning("pause too short", task=self._record.name, seconds=round(-left, 1))
            time.sleep(max(0.0, left))
        active = state.find_task(task, HOLDER).active
        old = state.learned_version(task, active) if active else None
        why = inactive_reason(outcome, old, active)
        state.put_version(task, version.number, finished, activate=not why)
        if not self._private:
            self._end_for_others(ensemble)
            self._end_for_own(ensemble)
        drop_files(state, self._record, version.number)
        decided = {"active": active if why else version.number, "why_not_active": why}
        return version_facts(self._record, version.number, finished) | decided

    def _end_for_others(self, ensemble: Ensemble) -> None:
        """Send the number of used rounds; a disconnected organization learns it with the next version."""
        assistants, used = self._node.assistants, set(ensemble.requested())
        used |= set(ensemble.summed) if SUM in used else set()
        names = set(self._setup.shared) & set(self._version.present()) - {self._version.own_name}
        ends = {name: self._end(ensemble, used=name in used) for name in sorted(names)}
        with assistants.requesting(ends) as pendings:
            assistants.wait_for(lambda: all(one.done.is_set() for one in pendings.values()), END_SECONDS)

    def _end_for_own(self, ensemble: Ensemble, *, used: bool = False) -> None:
        """The same for its own organization; ``used``: its rounds are, as a model by itself."""
        own = self._version.own_name
        if own in self._setup.shared:
            self._version.own_reply(self._end(ensemble, used=used or own in ensemble.requested()))

    def _end(self, ensemble: Ensemble, *, used: bool) -> Encoded:
        kept = max(len(ensemble.requested_rounds), 1) if used else 0
        return prepare(Message("end", self._record.id, self._version.number, "end", {"kept": kept}))


def _driven(
    steps: Generator[Any, Any, Found], step: Callable[[int, Sequence[Request]], list[dict[str, Reply]]]
) -> Found:
    """Drive the learner's generator to its end; what it returns."""
    steps = on_one_thread(steps)
    try:
        requests = next(steps)
        for number in count(1):
            requests = steps.send(step(number, requests))
    except StopIteration as end:
        found: Found = end.value
    return found


def inactive_reason(new: LearningOutcome, old: LearnedVersion | None, active: int) -> str:
    """Why a new version does not replace the active one: its validation loss is higher. Empty: it does."""
    if old is None or old.outcome is None or old.outcome.loss != new.loss:
        return ""
    before, now = validated_loss(old.outcome), validated_loss(new)
    if before is None or now is None or now <= before:
        return ""
    return f"its validated loss is {now:.6g}, that of version {active} is {before:.6g}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
