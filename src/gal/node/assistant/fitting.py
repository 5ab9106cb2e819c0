"""How an organization answers a round: once; the answer and the model behind it are kept on its disk."""

from __future__ import annotations

from pathlib import Path

from gal.errors import RefusedError
from gal.node.agreement.requests import IncomingRequest
from gal.node.assistant.answer_guard import AnswerGuard
from gal.node.assistant.request_checks import RequestChecks
from gal.node.journal.logs import Log
from gal.node.store.files import map_file, read_whole
from gal.node.store.state import Answer, State, TaskRecord
from gal.node.work.worker import Worker
from gal.protocol import Encoded, restore


class Fitting:
    """Answers requests of kind ``fit``."""

    def __init__(
        self,
        name: str,
        state: State,
        worker: Worker,
        checks: RequestChecks,
        guard: AnswerGuard,
        log: Log,
    ) -> None:
        self._name, self._state, self._worker = name, state, worker
        self._checks, self._guard, self._log = checks, guard, log

    def fit(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """The fitted values of a round: stored ones where it was answered before, or computed and kept."""
        fields, number = asked.message.fields, asked.message.version
        version, folder = self._checks.version(asked, task, "begun"), self._state.folder(task.id, number)
        part = -1 if fields["part"] is None else fields["part"]
        key = track, round, _ = fields["track"], fields["round"], part
        known = self._state.answer(task.id, number, *key)
        if known is not None:
            stored = self._answered_before(asked, task, known, folder)
            if stored is not None:
                return stored
        self._checks.current(asked, task)
        self._checks.fit(asked, version)
        answer = f"answer-{track}-{round}-{part}.arrow"
        model = None if part >= 0 else f"model-{track}-{round}.gal"
        noise = self._guard.noise_on(asked)
        # Where only the model was lost, what was drawn for the answer stays: it is not paid for twice.
        kept = "" if known is None or noise is None else known.answer_digest
        drawn = kept if kept and read_whole(folder / answer, kept) is not None else None
        if noise is not None and drawn is None:
            self._guard.charge_version(asked.peer, task, folder, version.keys)
        earlier = self._state.answers(
            task.id, number, "track = ? AND part = -1 AND round < ?", (track, round)
        )
        last = earlier[-1] if earlier else None
        previous = None if last is None or last.model is None else (last.model, last.model_digest)
        result, _ = self._worker(
            "fit",
            asked.data,
            folder=folder,
            answer=answer if drawn is None else None,
            model=model,
            previous=previous,
            own=asked.own,
            noise=noise,
            known=asked.digest,
        )
        digest = result["answer_digest"] if drawn is None else drawn
        record = Answer(*key, asked.digest, answer, digest, model, result["model_digest"])
        self._state.put_answer(task.id, number, record, moving=result["moving"])
        if result["moving"] and model is not None and previous is not None:
            (folder / previous[0]).unlink(missing_ok=True)  # this round's model has all that it knew
        about = {"version": number, "round": round, "track": track, "part": part}
        self._log.info("fitted", peer=asked.peer, task=task.name, **about, seconds=result["seconds"])
        try:
            return restore(map_file(folder / answer), digest)
        except OSError as error:
            raise RefusedError("disk", f"{self._name} could not read back what it had stored") from error

    def _answered_before(
        self, asked: IncomingRequest, task: TaskRecord, known: Answer, folder: Path
    ) -> Encoded | None:
        """The stored answer; None where its file was lost, and it has to be computed again."""
        if known.request != asked.digest:
            raise RefusedError(
                "already-answered",
                f"{self._name} has answered round {known.round} of {task.name!r} for another residual: a "
                "round is answered once",
            )
        data = read_whole(folder / known.answer, known.answer_digest)
        model = known.model is None or read_whole(folder / known.model, known.model_digest or "") is not None
        if data is not None and model:
            return restore(data, known.answer_digest)
        self._state.drop_answer(task.id, asked.message.version, known)
        return None
