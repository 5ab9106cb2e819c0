"""What an organization does with a request: has it checked (``checks.py``), has it computed, and remembers.

The same for a label holder who asks over the network and for the node's own tasks (``own``), for which its policy does not
count. A request that comes again gets the stored answer.
"""

from __future__ import annotations

import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gal.errors import RefusedError
from gal.node.agreement.incoming import IncomingRequest
from gal.node.assistant.answer_guard import AnswerGuard
from gal.node.assistant.checks import RequestChecks
from gal.node.config.configuration import NodeConfiguration
from gal.node.journal.logs import Log
from gal.node.journal.metrics import Metrics
from gal.node.store.audit import utc_now
from gal.node.store.files import read_whole
from gal.node.store.state import Answer, State, TaskRecord
from gal.node.store.versions import AssistedVersion
from gal.node.work.answer_noise import keys_of
from gal.node.work.worker import Result, Worker
from gal.protocol import Encoded, Message, prepare, restore

if TYPE_CHECKING:
    from gal.privacy.ledger import Ledger


class Service:
    """One organization's answers."""

    def __init__(
        self,
        configuration: NodeConfiguration,
        state: State,
        worker: Worker,
        log: Log,
        metrics: Metrics,
        clock: Callable[[], datetime] = utc_now,
        ledger: Callable[[], Ledger] | None = None,
    ) -> None:
        """``ledger`` gives the one that answers with noise are charged to; without noise it is not opened."""
        self.configuration, self.state, self.worker = configuration, state, worker
        self.log, self.metrics, self._clock = log, metrics, clock
        self._checks = RequestChecks(configuration, state, clock)
        self.guard = AnswerGuard(configuration, ledger, log)
        # One request of a task at a time: what comes twice finds the first one's answer.
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def answer(self, asked: IncomingRequest) -> Encoded:
        """The answer to a request, ready to be sent; RefusedError where it may not be asked, WorkFailedError where computing fails."""
        handlers = {
            "begin": self._begin,
            "blind": self._intersect,
            "fit": self._fit,
            "revisit": self._revisit,
            "predict": self._predict,
            "end": self._end,
        }
        if asked.message.kind not in handlers:
            raise RefusedError("not-a-request", f"{asked.message.kind} is nothing that can be asked")
        task = self._checks.task(asked)
        if asked.message.kind in {"predict", "blind"}:  # these change nothing, and must not wait for a fit
            return handlers[asked.message.kind](asked, task)
        with self._locks[task.id]:
            return handlers[asked.message.kind](asked, task)

    # Beginning

    def _begin(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        message = asked.message
        known = self.state.version(task.id, message.version)
        if known is not None:
            return self._begun_before(asked, task, known, self.state.folder(task.id, message.version))
        self._checks.begin(asked, task)
        folder = self.state.folder(task.id, message.version)
        result, answer = self.worker(
            "begin",
            asked.data,
            folder=folder,
            peer=asked.peer,
            own=asked.own,
            keys=self._noise(asked) is not None,
        )
        begun = restore(answer)
        version = self._agreed(asked, begun.message, kinds=result["kinds"], keys=result["keys"])
        self._end_earlier(task, message.version)
        self.state.put_version(task.id, message.version, version)
        self.log.info(
            "begun", peer=asked.peer, task=task.name, version=message.version, rows=result["n_rows"]
        )
        return begun

    def _end_earlier(self, task: TaskRecord, version: int) -> None:
        """Who begins a new version has ended the others, also if word of that did not arrive."""
        for number, earlier in self.state.versions(task.id).items():
            if number < version and earlier.status == "begun":
                self.state.put_version(task.id, number, replace(earlier, status="finished"))
                self.clean(task.id, number)

    def _begun_before(
        self, asked: IncomingRequest, task: TaskRecord, known: AssistedVersion, folder: Path
    ) -> Encoded:
        if known.status == "begun" and known.request == asked.digest:
            return restore((folder / "begun.arrow").read_bytes())
        raise RefusedError(
            "already-begun",
            f"{self.configuration.name} has already begun version {asked.message.version} of {task.name!r} with other rows: "
            "learn a new version",
        )

    def _agreed(self, asked: IncomingRequest, begun: Message, **columns: Any) -> AssistedVersion:
        """What is remembered of a version: all that later requests are checked against."""
        fields, arrays = asked.message.fields, asked.message.arrays
        known = begun.arrays["known"] == 1
        parts = arrays["parts"][known] if "parts" in arrays else np.zeros(0, dtype=np.int32)
        return AssistedVersion(
            request=asked.digest,
            rows=begun.fields["rows"],
            n_rows=begun.fields["n_rows"],
            n_fit=int((arrays["fit"][known] == 1).sum()),
            fewest=_fewest(arrays, known),
            without=[int((parts != part).sum()) for part in range(int(parts.max(initial=-1)) + 1)],
            n_outputs=fields["n_outputs"],
            rounds=fields["rounds"],
            organization=fields["organization"],
            begun=self._clock().isoformat(timespec="seconds"),
            **columns,
        )

    def _intersect(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """A step of a private set intersection."""
        self._checks.intersection(asked, task)
        return restore(self.worker("blind", asked.data, peer=asked.peer)[1])

    def _noise(self, asked: IncomingRequest) -> dict[str, Any] | None:
        """The noise on this answer; none on those to oneself."""
        return None if asked.own else self.guard.facts

    # Rounds

    def _fit(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        message, fields = asked.message, asked.message.fields
        version = self._checks.version(asked, task, "begun")
        track, round, part = (
            fields["track"],
            fields["round"],
            -1 if fields["part"] is None else fields["part"],
        )
        folder = self.state.folder(task.id, message.version)
        known = self.state.answer(task.id, message.version, track, round, part)
        if known is not None:
            stored = self._answered_before(asked, task, known, folder)
            if stored is not None:
                return stored
        self._checks.fit(asked, version)
        answer, model = (
            f"answer-{track}-{round}-{part}.arrow",
            None if part >= 0 else f"model-{track}-{round}.gal",
        )
        noise = self._noise(asked)
        # Where only the model was lost, what was drawn for the answer stays: it is not paid for twice.
        drawn = None if known is None or noise is None else read_whole(folder / answer, known.answer_digest)
        if noise is not None and drawn is None:
            self.guard.charge_version(asked.peer, task, folder, version.keys)
        previous = self._previous(task.id, message.version, track, round)
        result, _ = self.worker(
            "fit",
            asked.data,
            folder=folder,
            answer=answer if drawn is None else None,
            model=model,
            previous=previous,
            own=asked.own,
            noise=noise,
        )
        digest = known.answer_digest if known is not None and drawn is not None else result["answer_digest"]
        record = Answer(track, round, part, asked.digest, answer, digest, model, result["model_digest"])
        self.state.put_answer(task.id, message.version, record, moving=result["moving"])
        if result["moving"] and model is not None and previous is not None:
            (folder / previous[0]).unlink(missing_ok=True)  # this round's model has all that it knew
        self.log.info(
            "fitted",
            peer=asked.peer,
            task=task.name,
            version=message.version,
            round=round,
            track=track,
            part=part,
            seconds=result["seconds"],
        )
        self.metrics.fitted(result["seconds"])
        return self._stored(folder, record)

    def _answered_before(
        self, asked: IncomingRequest, task: TaskRecord, known: Answer, folder: Path
    ) -> Encoded | None:
        """The stored answer; None where its file was lost, and it has to be computed again."""
        if known.request != asked.digest:
            raise RefusedError(
                "already-answered",
                f"{self.configuration.name} has answered round {known.round} of {task.name!r} for another residual: a round is "
                "answered once",
            )
        data = read_whole(folder / known.answer, known.answer_digest)
        model = known.model is None or read_whole(folder / known.model, known.model_digest or "") is not None
        if data is not None and model:
            return restore(data, known.answer_digest)
        self.state.drop_answer(task.id, asked.message.version, known)
        return None

    def _stored(self, folder: Path, record: Answer) -> Encoded:
        """What the worker has just written, and taken the digest of."""
        try:
            data = (folder / record.answer).read_bytes()
        except OSError as error:
            said = f"{self.configuration.name} could not read back what it had stored"
            raise RefusedError("disk", said) from error
        return restore(data, record.answer_digest)

    def _previous(self, task: str, version: int, track: str, round: int) -> tuple[str, str] | None:
        """File and digest of the model of the last round before this one."""
        earlier = self.state.answers(task, version, "track = ? AND part = -1 AND round < ?", (track, round))
        if not earlier or earlier[-1].model is None or earlier[-1].model_digest is None:
            return None
        return earlier[-1].model, earlier[-1].model_digest

    def _models(self, asked: IncomingRequest, task: TaskRecord) -> list[tuple[str, str]]:
        """Files and digests of the models that a prediction needs."""
        wanted = set(asked.message.fields["rounds"])
        found = self.state.answers(
            task.id, asked.message.version, "track = ? AND part = -1", (asked.message.fields["track"],)
        )
        return [
            (one.model, one.model_digest)
            for one in found
            if one.round in wanted and one.model is not None and one.model_digest is not None
        ]

    def _revisit(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        version = self._checks.version(asked, task, "begun")
        self._checks.rounds(asked, task, version)
        folder, noise = self.state.folder(task.id, asked.message.version), self._noise(asked)
        if noise is not None:
            kept = self.guard.kept(folder, asked.digest)
            if kept is not None:
                return kept
            n_rounds = len(asked.message.fields["rounds"])
            self.guard.charge_version(asked.peer, task, folder, version.keys, n_rounds)
        told = {"folder": folder, "models": self._models(asked, task), "noise": noise}
        answer = self.worker("revisit", asked.data, **told)[1]
        return restore(answer) if noise is None else self.guard.keep(folder, asked.digest, answer)

    # Prediction and end

    def _predict(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        version = self._checks.version(asked, task, "begun", "finished")
        if self._noise(asked) is None:
            return restore(self._predicted(asked, task, version)[1])
        folder = self.state.folder(task.id, asked.message.version)
        with self.guard.lock(asked.digest):
            kept = self.guard.kept(folder, asked.digest)
            if kept is not None:
                return kept
            result, content = self._predicted(asked, task, version)
            rows, answer = keys_of(content[: result["keys"]]), content[result["keys"] :]
            self.guard.charge(asked.peer, task, rows, len(asked.message.fields["rounds"]))
            return self.guard.keep(folder, asked.digest, answer)

    def _predicted(self, asked: IncomingRequest, task: TaskRecord, version: AssistedVersion) -> Result:
        """What the models say, with noise on what is for others; not yet charged to the ledger."""
        n_rows = next((len(array) for array in asked.message.arrays.values()), 0)
        self._checks.rounds(asked, task, version)
        self._checks.predicted_rows(asked, task, n_rows)
        found = self.worker(
            "predict",
            asked.data,
            folder=self.state.folder(task.id, asked.message.version),
            models=self._models(asked, task),
            peer=asked.peer,
            rows=asked.rows,
            n_outputs=version.n_outputs,
            organization=version.organization,
            kinds=version.kinds,
            noise=self._noise(asked),
        )
        self.metrics.predicted(asked.peer, n_rows)
        return found

    def _end(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """The version is finished (or, with nothing kept, abandoned): only what predicts stays."""
        message, kept = asked.message, asked.message.fields["kept"]
        version = self.state.version(task.id, message.version)
        if version is not None and version.status == "begun":
            ended = replace(version, status="finished" if kept else "abandoned")
            self.state.put_version(task.id, message.version, ended)
            self.log.info("ended", peer=asked.peer, task=task.name, version=message.version, kept=kept)
            self.clean(task.id, message.version)
        done = Message("done", message.task, message.version, message.request, {"answers": asked.digest})
        return prepare(done)

    def clean(self, task: str, number: int) -> None:
        """Delete the files of an ended version that nobody needs any more."""
        folder, version = self.state.folder(task, number), self.state.version(task, number)
        needed = {one.model for one in self.state.answers(task, number)}
        if version is None or version.status == "abandoned":
            needed = set()
        self.worker("forget", folder=folder)
        for path in folder.iterdir():
            if path.is_file() and path.name not in needed:
                path.unlink(missing_ok=True)

    def let_go(self, task: str) -> None:
        """A task was forgotten by a command: nothing of it may stay in memory, nor be written once more."""
        with self._locks[task]:
            folder = self.state.home / "tasks" / task
            self.worker("forget", folder=folder)
            shutil.rmtree(folder, ignore_errors=True)


def _fewest(arrays: Mapping[str, Any], known: Any) -> int:
    """The fewest rows on which a model of the version is fitted: without one of the folds, where there are any."""
    fit = arrays["fit"][known] == 1
    if "folds" not in arrays:
        return int(fit.sum())
    sizes = np.bincount(arrays["folds"][known][fit])
    return int(fit.sum() - sizes.max(initial=0))
