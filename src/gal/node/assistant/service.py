"""What an organization does with a request: has it checked (``request_checks.py``),
has it computed, and remembers.

The same for a label holder who asks over the network and for the node's own tasks (``own``), for which its
policy does not count. A request that comes again gets the stored answer.
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
from gal.models.registry import stays_put
from gal.node.assistant.answer_guard import AnswerGuard
from gal.node.assistant.prediction_checks import PredictionChecks
from gal.node.assistant.request_checks import RequestChecks, agreed_version
from gal.node.assistant.sum_answers import SumAnswers
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.requests import IncomingRequest
from gal.node.store.activity import Activity
from gal.node.store.files import map_file, read_whole
from gal.node.store.logs import Log
from gal.node.store.state import Answer, State, TaskRecord
from gal.node.store.stored_versions import AssistedVersion, Status
from gal.node.worker.answer_noise import keys_of
from gal.node.worker.erasing import drop_needless
from gal.node.worker.worker import PredictedRows, Worker, WorkFailedError
from gal.protocol import Encoded, Message, prepare, restore

if TYPE_CHECKING:
    from gal.privacy.ledger import Ledger

BESIDE = frozenset({"predict", "blind", "total", "keys", "share", "sum", "open"})
"""Requests that do not wait for a fit: they change nothing that it needs."""

PREDICTING: tuple[Status, ...] = ("begun", "finished")
"""What a version may be whose models predict."""


class Service:
    """One organization's answers."""

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
        """``ledger`` gives the one that answers with noise are charged to; without noise it is not opened."""
        self.configuration, self.state, self.worker = configuration, state, worker
        self.log, self.activity, self._clock = log, activity, clock
        self._checks = RequestChecks(configuration, state, clock)
        self._predictions = PredictionChecks(configuration, state, clock)
        self.guard = AnswerGuard(configuration, ledger, log)
        self._moves: bool | None = None
        self._sums = SumAnswers(configuration, state, log)
        # One request of a task at a time: what comes twice finds the first one's answer.
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def answer(self, asked: IncomingRequest) -> Encoded:
        """The answer to a request, ready to be sent; RefusedError where it may not be asked, WorkFailedError
        where computing fails.
        """
        kind = asked.message.kind
        handlers = {
            **{"begin": self._begin, "blind": self._intersect, "fit": self._fit, "revisit": self._revisit},
            **{"predict": self._predict, "total": self._total, "end": self._end},
            **self._sums.handlers,
        }
        if kind not in handlers:
            raise RefusedError("not-a-request", f"{kind} is nothing that can be asked")
        task = self._checks.task(asked)
        self._sums.check_allowed(asked, task)
        if kind in self._sums.handlers:
            self._checks.current(asked, task)
        if kind in BESIDE:
            return handlers[kind](asked, task)
        round = int(asked.message.fields.get("round") or 0)
        with self._locks[task.id], self.activity.computing(kind, asked.peer, task.name, round):
            return handlers[kind](asked, task)

    # Beginning

    def _begin(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        message = asked.message
        known = self.state.version(task.id, message.version)
        if known is not None:
            if known.status == "begun" and known.request == asked.digest:
                return restore((self.state.folder(task.id, message.version) / "begun.arrow").read_bytes())
            raise RefusedError(
                "already-begun",
                f"{self.configuration.name} has already begun version {message.version} of {task.name!r} "
                "with other rows: learn a new version",
            )
        self._checks.current(asked, task)
        self._checks.begin(asked, task)
        folder = self.state.folder(task.id, message.version)
        result, answer = self.worker(
            "begin",
            asked.data,
            folder=folder,
            peer=asked.peer,
            own=asked.own,
            keys=self.guard.noise_on(asked) is not None,
        )
        begun = restore(answer)
        since, columns = self._clock(), {"kinds": result["kinds"], "keys": result["keys"]}
        columns["began"] = self._sums.began(asked, task, begun.message)
        version = agreed_version(asked, begun.message, begun=since.isoformat(timespec="seconds"), **columns)
        for number, earlier in self.state.versions(task.id).items():
            # Who begins a new version has ended the others, also if word of that did not arrive.
            if number < message.version and earlier.status == "begun":
                self.state.put_version(task.id, number, replace(earlier, status="finished"))
                self.clean(task.id, number)
        self.state.put_version(task.id, message.version, version)
        self._checks.begun(asked)
        about = {"version": message.version, "rows": result["n_rows"]}
        self.log.info("begun", peer=asked.peer, task=task.name, **about)
        return begun

    def _intersect(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """A step of a private set intersection."""
        self._checks.current(asked, task)
        self._predictions.intersection(asked, task)
        return restore(self.worker("intersect", asked.data, peer=asked.peer)[1])

    # Rounds

    def _fit(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """The fitted values; where they leave as sums, only that they are there."""
        summed = task.terms.secrecy == "sums" and not asked.own
        if summed:
            self._sums.check_fit(task, self.moves())
        fitted = self._fitted(asked, task)
        return self._sums.keep_fit(asked, lambda: fitted.message.arrays["fitted"]) if summed else fitted

    def _fitted(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """The fitted values of a round: stored ones where it was answered before, or computed and kept."""
        fields, number = asked.message.fields, asked.message.version
        version, folder = self._checks.version(asked, task, "begun"), self.state.folder(task.id, number)
        part = -1 if fields["part"] is None else fields["part"]
        key = track, round, _ = fields["track"], fields["round"], part
        known = self.state.answer(task.id, number, *key)
        if known is not None:
            stored = _stored(asked, task, known, folder)
            if stored is not None:
                return stored
            self.state.drop_answer(task.id, number, known)
        self._checks.current(asked, task)
        self._checks.fit(asked, version)
        answer = f"answer-{track}-{round}-{part}.arrow"
        model = None if part >= 0 else f"model-{track}-{round}.gal"
        noise = self.guard.noise_on(asked)
        # Where only the model was lost, what was drawn for the answer stays: it is not paid for twice.
        kept = "" if known is None or noise is None else known.answer_digest
        drawn = kept if kept and read_whole(folder / answer, kept) is not None else None
        if noise is not None and drawn is None:
            self.guard.charge_version(asked.peer, task, folder, version.keys)
        earlier = self.state.answers(task.id, number, "track = ? AND part = -1 AND round < ?", (track, round))
        last = earlier[-1] if earlier else None
        previous = None if last is None or last.model is None else (last.model, last.model_digest)
        how = {"folder": folder, "answer": answer if drawn is None else None, "model": model}
        more = {"previous": previous, "own": asked.own, "noise": noise, "known": asked.digest}
        result, _ = self.worker("fit", asked.data, **how, **more)
        digest = result["answer_digest"] if drawn is None else drawn
        record = Answer(*key, asked.digest, answer, digest, model, result["model_digest"])
        self.state.put_answer(task.id, number, record, moving=result["moving"])
        if result["moving"] and model is not None and previous is not None:
            (folder / previous[0]).unlink(missing_ok=True)  # this round's model has all that it knew
        about = {"version": number, "round": round, "track": track, "part": part}
        self.log.info("fitted", peer=asked.peer, task=task.name, **about, seconds=result["seconds"])
        try:
            return restore(map_file(folder / answer), digest)
        except OSError as error:
            why = f"{self.configuration.name} could not read back what it had stored"
            raise RefusedError("disk", why) from error

    def _models(self, asked: IncomingRequest, task: TaskRecord) -> list[tuple[str, str]]:
        """Files and digests of the models that a prediction needs."""
        wanted = set(asked.message.fields["rounds"])
        found = self.state.models(task.id, asked.message.version, asked.message.fields["track"])
        return [(file, digest) for round, file, digest in found if round in wanted]

    def _revisit(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        version = self._checks.version(asked, task, "begun")
        self._checks.rounds(asked, task, version)
        self._checks.current(asked, task)
        folder, noise = self.state.folder(task.id, asked.message.version), self.guard.noise_on(asked)
        if noise is not None:
            n_rounds = len(asked.message.fields["rounds"])
            self.guard.charge_version(asked.peer, task, folder, version.keys, n_rounds)
        models = self._models(asked, task)
        how = {"folder": folder, "models": models, "own": asked.own, "noise": noise}
        return restore(self.worker("revisit", asked.data, **how)[1])

    # Prediction and end

    def _predict(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        found = self._predicted(asked, task, self._checks.version(asked, task, *PREDICTING))
        said = _said_of(asked, found)
        self._predictions.predicted(asked, said)
        if self.guard.noise_on(asked) is not None:
            self.guard.charge(asked.peer, task, keys_of(found.keys), len(asked.message.fields["rounds"]))
        return prepare(said)

    def predict_own(self, asked: IncomingRequest) -> Message:
        """The answer to a request of this node to itself: it does not leave, so it is not made ready."""
        assert asked.own, asked.peer
        task = self._checks.task(asked)
        return _said_of(asked, self._predicted(asked, task, self._checks.version(asked, task, *PREDICTING)))

    def _total(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """Which rows are known; their values wait for a sum."""
        self._sums.check_total(asked)
        return self._sums.keep_prediction(asked, self._predict(asked, task).message)

    def _predicted(self, asked: IncomingRequest, task: TaskRecord, version: AssistedVersion) -> PredictedRows:
        """What the models say, with noise on what is for others; not yet charged to the ledger."""
        n_rows = next((len(array) for array in asked.message.arrays.values()), 0)
        self._checks.current(asked, task)
        self._checks.rounds(asked, task, version)
        models = self._models(asked, task)
        self._checks.fitted(asked, task, len(models))
        self._predictions.predicted_rows(asked, task, n_rows)
        how: dict[str, Any] = {"peer": asked.peer, "own": asked.own, "rows": asked.rows}
        how["noise"] = self.guard.noise_on(asked)
        how |= {"folder": self.state.folder(task.id, asked.message.version), "models": models}
        how |= {name: getattr(version, name) for name in ("n_outputs", "organization", "kinds")}
        try:
            result, content = self.worker("predict", asked.data, **how)
        except WorkFailedError:
            self._predictions.failed(asked)
            raise
        return PredictedRows.of(result, content)

    def _end(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """The version is finished (or, with nothing kept, abandoned): only what predicts stays."""
        message, kept = asked.message, asked.message.fields["kept"]
        version = self.state.version(task.id, message.version)
        if version is not None and version.status == "begun":
            ended = replace(version, status="finished" if kept else "abandoned")
            self.state.put_version(task.id, message.version, ended)
            self.log.info("ended", peer=asked.peer, task=task.name, version=message.version, kept=kept)
            self.clean(task.id, message.version)
        return prepare(asked.reply("done"))

    def moves(self) -> bool:
        """Whether the local model is one that moves; the process that computes is asked once, if at all."""
        if self._moves is None:
            chosen = self.configuration.model
            known = stays_put(chosen.use, chosen.options)
            self._moves = False if known else bool(self.worker("describe")[0]["moving"])
        return self._moves

    def clean(self, task: str, number: int) -> None:
        """Delete the files of an ended version that nobody needs any more."""
        self.worker.forget()
        drop_needless(self.state, task, number)

    def let_go(self, task: str) -> None:
        """A task was forgotten by a command: nothing of it may stay in memory, nor be written once more."""
        with self._locks[task]:
            folder = self.state.home / "tasks" / task
            self.worker.forget()
            shutil.rmtree(folder, ignore_errors=True)


def _said_of(asked: IncomingRequest, found: PredictedRows) -> Message:
    """What was computed for a request, as the message that answers it."""
    arrays = {"known": found.known, "values": found.values}
    return asked.reply("predicted", {"rows": found.order}, arrays)


def _stored(asked: IncomingRequest, task: TaskRecord, known: Answer, folder: Path) -> Encoded | None:
    """The stored answer to a fit; None where its file was lost, and it has to be computed again."""
    if known.request != asked.digest:
        raise RefusedError(
            "already-answered",
            f"round {known.round} of {task.name!r} was answered for another residual: it is answered once",
        )
    data = read_whole(folder / known.answer, known.answer_digest)
    model = known.model is None or read_whole(folder / known.model, known.model_digest or "") is not None
    return restore(data, known.answer_digest) if data is not None and model else None
