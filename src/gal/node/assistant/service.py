"""How an organization replies to a request: it is checked, computed, recorded.

Requests over the network and those of the node to itself (``own``) take the same way; its policy is for the
others. A repeated request gets the stored reply.
"""

from __future__ import annotations

import shutil
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gal.clock import utc_now
from gal.errors import RefusedError
from gal.models.registry import is_known_stateless
from gal.node.assistant.answer_guard import AnswerGuard
from gal.node.assistant.request_checks import RequestChecks, agreed_version
from gal.node.assistant.sum_replies import SumReplies, check_rates
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.requests import IncomingRequest
from gal.node.store.activity import Activity
from gal.node.store.files import map_file, read_whole
from gal.node.store.logs import Log
from gal.node.store.state import Answer, State, TaskRecord
from gal.node.worker.answer_noise import keys_of
from gal.node.worker.erasing import drop_needless
from gal.node.worker.worker import PredictedRows, Worker, WorkFailedError
from gal.protocol import Encoded, Message, prepare, restore

if TYPE_CHECKING:
    from gal.privacy.ledger import Ledger

BESIDE = frozenset({"predict", "blind", "total", "keys", "share", "sum", "open"})
"""Requests that run beside a fit: they change nothing that it needs."""


class Service:
    """One organization's replies."""

    def __init__(
        self,
        configuration: NodeConfiguration,
        state: State,
        worker: Worker,
        log: Log,
        activity: Activity,
        clock: Callable[[], datetime] = utc_now,
        ledger: Callable[[], Ledger] | None = None,
    ) -> None:
        """``ledger`` opens the one that noisy replies are charged to; without noise it is not needed."""
        self.configuration, self.state, self.worker = configuration, state, worker
        self.log, self.activity, self._clock = log, activity, clock
        self._checks = RequestChecks(configuration, state, clock)
        self.guard = AnswerGuard(configuration, ledger, log)
        self._moves: bool | None = None
        self._sums = SumReplies(configuration, state, log)
        # One request of a task at a time: a repeated one finds the reply to the first.
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def answer(self, request: IncomingRequest) -> Encoded:
        """The reply to a request; RefusedError where there is none, WorkFailedError where computing fails."""
        kind = request.message.kind
        handlers = {
            **{"begin": self._begin, "blind": self._intersect, "fit": self._fit, "revisit": self._revisit},
            **{"predict": self._predict, "total": self._total, "end": self._end},
            **self._sums.handlers,
        }
        if kind not in handlers:
            raise RefusedError("not-a-request", f"{kind} is not a request")
        task = self._checks.task(request)
        self._sums.check_allowed(request, task)
        self.guard.check_bounded(request, task)
        if kind in self._sums.handlers:
            self._checks.current(request, task)
        if kind in BESIDE:
            return handlers[kind](request, task)
        round = int(request.message.fields.get("round") or 0)
        with self._locks[task.id], self.activity.computing(kind, request.peer, task.name, round):
            return handlers[kind](request, task)

    # Session setup

    def _begin(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        number = request.message.version
        known = self.state.version(task.id, number)
        if known is not None:
            if known.status == "begun" and known.request == request.digest:
                return restore((self.state.folder(task.id, number) / "begun.arrow").read_bytes())
            raise RefusedError(
                "already-begun",
                f"{self.configuration.name} has already begun version {number} of {task.name!r} with other "
                "rows: learn a new version",
            )
        self._checks.current(request, task)
        self._checks.begin(request, task)
        how: dict[str, Any] = {"folder": self.state.folder(task.id, number), "peer": request.peer}
        how |= {"own": request.own, "keys": self._keyed(request, task)}
        result, reply = self.worker("begin", request.data, **how)
        begun = restore(reply)
        version = agreed_version(
            request,
            begun.message,
            begun=self._clock().isoformat(timespec="seconds"),
            kinds=result["kinds"],
            keys=result["keys"],
            began=self._sums.began(request, task, begun.message),
        )
        for earlier, one in self.state.versions(task.id).items():
            # A new version ends the earlier ones, also where the message that ended them was lost.
            if earlier < number and one.status == "begun":
                self.state.put_version(task.id, earlier, replace(one, status="finished"))
                self.clean(task.id, earlier)
        self.state.put_version(task.id, number, version)
        self._checks.begun(request)
        self.log.info("begun", peer=request.peer, task=task.name, version=number, rows=result["n_rows"])
        return begun

    def _intersect(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        self._checks.current(request, task)
        self._checks.intersection(request, task)
        return restore(self.worker("intersect", request.data, peer=request.peer)[1])

    # Rounds

    def _fit(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        """The fitted values; with secure aggregation only that they are there."""
        if task.terms.secure_aggregation != "sums" or request.own:
            return self._fitted(request, task)
        self._sums.check_model(task, self.moves())
        fitted = self._fitted(request, task)

        def charge() -> None:
            if task.terms.noise is not None:
                version = self._checks.version(request, task, "begun")
                folder = self.state.folder(task.id, request.message.version)
                self.guard.charge_version(request.peer, task, folder, version.keys, aggregated=True)

        return self._sums.keep_fit(request, lambda: fitted.message.arrays["fitted"], charge)

    def _keyed(self, request: IncomingRequest, task: TaskRecord) -> bool:
        """Whether values have noise that is charged by row, so that the rows' keys are stored."""
        return not request.own and (self.guard.facts is not None or task.terms.noise is not None)

    def _fitted(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        """The fitted values of a round: the stored ones of an earlier request, or computed and stored."""
        fields, number = request.message.fields, request.message.version
        version, folder = self._checks.version(request, task, "begun"), self.state.folder(task.id, number)
        part = -1 if fields["part"] is None else fields["part"]
        key = track, round, _ = fields["track"], fields["round"], part
        known = self.state.answer(task.id, number, *key)
        if known is not None:
            stored = _stored(request, task, known, folder)
            if stored is not None:
                return stored
            self.state.drop_answer(task.id, number, known)
        self._checks.current(request, task)
        self._checks.fit(request, version)
        file = f"answer-{track}-{round}-{part}.arrow"
        model = None if part >= 0 else f"model-{track}-{round}.gal"
        noise = self.guard.noise_on(request)
        # Where only the model was lost, the noisy values stay: a second draw would cost again.
        kept = "" if known is None or noise is None else known.answer_digest
        drawn = kept if kept and read_whole(folder / file, kept) is not None else None
        if noise is not None and drawn is None:
            self.guard.charge_version(request.peer, task, folder, version.keys)
        earlier = self.state.answers(task.id, number, "track = ? AND part = -1 AND round < ?", (track, round))
        last = earlier[-1] if earlier else None
        previous = None if last is None or last.model is None else (last.model, last.model_digest)
        result, _ = self.worker(
            "fit",
            request.data,
            folder=folder,
            answer=file if drawn is None else None,
            model=model,
            previous=previous,
            own=request.own,
            noise=noise,
            known=request.digest,
        )
        digest = result["answer_digest"] if drawn is None else drawn
        record = Answer(*key, request.digest, file, digest, model, result["model_digest"])
        self.state.put_answer(task.id, number, record, moving=result["moving"])
        if result["moving"] and model is not None and previous is not None:
            (folder / previous[0]).unlink(missing_ok=True)  # this round's model holds all earlier ones
        about = {"version": number, "round": round, "track": track}
        about |= {} if fields["part"] is None else {"fold": part}
        self.log.info("fitted", peer=request.peer, task=task.name, **about, seconds=result["seconds"])
        try:
            return restore(map_file(folder / file), digest)
        except OSError as error:
            why = f"{self.configuration.name} could not read back the fitted values of round {round}"
            raise RefusedError("disk", why) from error

    def _models(self, request: IncomingRequest, task: TaskRecord) -> list[tuple[str, str]]:
        """Files and digests of the models that a prediction needs."""
        wanted = set(request.message.fields["rounds"])
        found = self.state.models(task.id, request.message.version, request.message.fields["track"])
        return [(file, digest) for round, file, digest in found if round in wanted]

    def _revisit(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        version = self._checks.version(request, task, "begun")
        self._checks.rounds(request, task, version)
        self._checks.current(request, task)
        folder, noise = self.state.folder(task.id, request.message.version), self.guard.noise_on(request)
        if noise is not None:
            n_rounds = len(request.message.fields["rounds"])
            self.guard.charge_version(request.peer, task, folder, version.keys, n_rounds)
        how = {"folder": folder, "models": self._models(request, task), "own": request.own, "noise": noise}
        return restore(self.worker("revisit", request.data, **how)[1])

    # Prediction and end

    def _predict(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        return prepare(self._charged(request, task, self._predicted(request, task)))

    def _charged(self, request: IncomingRequest, task: TaskRecord, found: PredictedRows) -> Message:
        """The predicted values as a reply, charged where they have noise."""
        reply = _reply(request, found)
        self._checks.predicted(request, reply)
        if self.guard.noise_on(request) is not None:
            n_rounds = len(request.message.fields["rounds"])
            self.guard.charge(request.peer, task, keys_of(found.keys), n_rounds)
        return reply

    def predict_own(self, request: IncomingRequest) -> Message:
        """The reply to a request of this node to itself: it does not leave, so it is not encoded."""
        assert request.own, request.peer
        return _reply(request, self._predicted(request, self._checks.task(request)))

    def _total(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        """Which rows are known; their values wait for secure aggregation."""
        check_rates(self._sums.record, request.message, self.configuration.name)
        found = self._predicted(request, task)

        def charge() -> None:
            if task.terms.noise is not None:
                self.guard.charge(request.peer, task, keys_of(found.keys), aggregated=True)

        return self._sums.keep_prediction(request, self._charged(request, task, found), charge)

    def _predicted(self, request: IncomingRequest, task: TaskRecord) -> PredictedRows:
        """Predicted values, with noise where they are for others; not yet charged to the ledger."""
        version = self._checks.version(request, task, "begun", "finished")
        self._checks.current(request, task)
        self._checks.rounds(request, task, version)
        models = self._models(request, task)
        self._checks.predicted_rows(request, task, len(models))
        how: dict[str, Any] = {"peer": request.peer, "own": request.own, "rows": request.rows}
        how |= {"noise": self.guard.noise_on(request), "keyed": self._keyed(request, task)}
        how |= {"folder": self.state.folder(task.id, request.message.version), "models": models}
        how |= {name: getattr(version, name) for name in ("n_outputs", "organization", "kinds")}
        try:
            return PredictedRows.of(*self.worker("predict", request.data, **how))
        except WorkFailedError:
            self._checks.failed(request)
            raise

    def _end(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        """The version is finished (or, with no round kept, abandoned): only what predicts stays."""
        number, kept = request.message.version, request.message.fields["kept"]
        version = self.state.version(task.id, number)
        if version is not None and version.status == "begun":
            ended = replace(version, status="finished" if kept else "abandoned")
            self.state.put_version(task.id, number, ended)
            self.log.info("ended", peer=request.peer, task=task.name, version=number, kept=kept)
            self.clean(task.id, number)
        return prepare(request.reply("done"))

    def moves(self) -> bool:
        """Whether the local model is stateful; the worker is consulted once, if at all."""
        if self._moves is None:
            chosen = self.configuration.model
            known = is_known_stateless(chosen.use, chosen.options)
            self._moves = False if known else bool(self.worker("describe")[0]["moving"])
        return self._moves

    def clean(self, task: str, number: int) -> None:
        """Delete the files of an ended version that are no longer needed."""
        self.worker.forget()
        drop_needless(self.state, task, number)

    def erase_forgotten(self, task: str) -> None:
        """Erase a task that a command has forgotten, from memory and from files that a fit may have added."""
        with self._locks[task]:
            self.worker.forget()
            shutil.rmtree(self.state.home / "tasks" / task, ignore_errors=True)


def _reply(request: IncomingRequest, found: PredictedRows) -> Message:
    arrays = {"known": found.known, "values": found.values}
    return request.reply("predicted", {"rows": found.order}, arrays)


def _stored(request: IncomingRequest, task: TaskRecord, known: Answer, folder: Path) -> Encoded | None:
    """The stored reply to a fit; None where a file was lost, and it has to be computed again."""
    if known.request != request.digest:
        raise RefusedError(
            "already-answered",
            f"round {known.round} of {task.name!r} was fitted to another residual before: each is fitted "
            "once",
        )
    data = read_whole(folder / known.answer, known.answer_digest)
    model = known.model is None or read_whole(folder / known.model, known.model_digest or "") is not None
    return restore(data, known.answer_digest) if data is not None and model else None
