"""Learning over nodes: carries the requests of Algorithm 1 to the organizations, round by round, and survives.

Every reply is on the disk before it counts, and a step (one list of requests) is closed in one transaction that says whose
replies count. Learning again from the closed steps gives the same numbers, so that resuming is simply that.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.algorithm import learn
from gal.core.requests import FitRequest, PredictRequest, Request
from gal.core.state import Ensemble, Progress
from gal.core.task import Task
from gal.engine.options import Labels
from gal.errors import (
    AlignmentError,
    InvalidReplyError,
    LearningInterruptedError,
    NoAnswerError,
    NodeError,
    TaskError,
)
from gal.node.agreement.invitations import TaskTerms
from gal.node.agreement.request_arrays import role_arrays
from gal.node.assistant.service import Asked, Service
from gal.node.holder.assistants import Assistants, Pending
from gal.node.holder.labelled_tasks import LabelledRows
from gal.node.holder.shared_rows import Asking, SharedRows, expected_shape, fill_unknown
from gal.node.journal.failures import describe
from gal.node.store.files import read_whole, write_whole
from gal.node.store.state import State, StoredReply, TaskRecord
from gal.node.work.worker import WorkFailedError
from gal.privacy.leakage.transcript import Transcript
from gal.protocol import Encoded, Message, decode, digest, prepare
from gal.transport import Received

Bools = NDArray[np.bool_]
Event = Callable[[Mapping[str, Any]], None]
"""Told what happens, for people who watch: a mapping with "event" and facts."""

BEGIN = 0
"""The step in which organizations say which rows they know; it is never closed, because some come later."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for whom."""

    join: float = 60.0
    """Seconds for all organizations to connect before the first round."""
    deadline: float = 600.0
    """Seconds for one round."""
    quorum: int = 0
    """Fewest organizations, the label holder's own included, that must answer a round; 0: more than half."""

    def enough(self, organizations: int) -> int:
        """The quorum among so many."""
        return self.quorum or math.floor(organizations / 2) + 1


@dataclass
class Learning:
    """One version of a task, as it is learned."""

    record: TaskRecord
    version: int
    task: Task
    """What the engine sees: with privacy, noisy labels or releases only."""
    rows: LabelledRows
    labels: Labels
    """The true ones, for what is done here after the last round; nothing that is sent may look at them."""
    state: State
    service: Service
    assistants: Assistants
    patience: Patience = field(default_factory=Patience)
    on_event: Event = field(default=lambda event: None)  # noqa: ARG005
    stopping: threading.Event = field(default_factory=threading.Event)
    transcript: Transcript | None = None
    """Collects what was sent and what came back, for who wants to know what it gives away."""
    shared: dict[str, SharedRows] = field(default_factory=dict)
    """By organization: the rows that it knows."""
    reached: Progress | None = None
    """After the last finished round."""
    moved: dict[str, Any] = field(default_factory=dict)
    """By organization whose model moves: what it says of all rounds after the last one."""
    _absent: set[str] = field(default_factory=set)
    _late: set[str] = field(default_factory=set)
    """Who came after the first round, and is asked which rows it knows."""
    _refused: dict[str, str] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _own: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="own fits")
    )
    _prepared: dict[tuple[int, str], Encoded] = field(default_factory=dict)
    _loaded: dict[tuple[int, int, str], Any] = field(default_factory=dict)

    # The whole

    def run(self) -> Ensemble:
        """Learn to the end; LearningInterruptedError where ``stopping`` was set, and what was done so far is kept."""
        self._reload_shared()
        self._gather()
        steps = learn(self.task, on_round=self._tell_round)
        step = 1
        try:
            requests = next(steps)
            while True:
                replies = self._step(step, requests)
                self._prepared.clear()
                requests = steps.send(replies)
                step += 1
        except StopIteration as end:
            ensemble: Ensemble = end.value
            return ensemble
        finally:
            self._over.set()
            self._own.shutdown(wait=False, cancel_futures=True)

    @property
    def others(self) -> list[str]:
        """Organizations besides the label holder's own that have not left."""
        members = self.state.members(self.record.id)
        return [name for name in self.task.organizations if members.get(name) == "invited"]

    @property
    def own_name(self) -> str:
        """The label holder's own organization."""
        return str(self.task.label_holder)

    @property
    def folder(self) -> Path:
        """Where the files of this version lie."""
        return self.state.folder(self.record.id, self.version, "label holder")

    def _tell(self, event: str, **facts: Any) -> None:
        self.on_event({"event": event, "task": self.record.name, "version": self.version} | facts)

    def _tell_round(self, progress: Progress) -> None:
        self.reached, done = progress, progress.rounds[-1]
        if self.transcript is not None:
            self.transcript.note(progress)
        self._tell(
            "round",
            round=done.round,
            rounds=self.task.rounds,
            train_loss=done.train_loss,
            rate=done.rate,
            weights=dict(done.weights),
            missed=dict(done.left_out),
        )

    # Rows

    def _reload_shared(self) -> None:
        """What organizations said of their rows before this learning was interrupted."""
        for reply in self.state.replies(self.record.id, self.version, BEGIN):
            data = None if reply.file is None else read_whole(self.folder / reply.file, reply.digest or "")
            if data is None:
                self.state.drop_reply(self.record.id, self.version, BEGIN, reply)
            else:
                asking = Asking.load(self.folder / f"asked-{reply.organization}.npy")
                self.shared[reply.organization] = asking.shared(
                    decode(data), reply.organization, self.task.rows
                )

    def _gather(self) -> None:
        """Wait until everybody is there (or enough, and time is up), and agree on the rows."""
        if self.own_name not in self.shared:
            self._begin_own()
        missing = [name for name in self.others if name not in self.shared]
        if not missing and self.shared:
            return
        self._tell("waiting", what="to connect", organizations=missing, seconds=self.patience.join)
        until = time.monotonic() + self.patience.join
        silent: set[str] = set()  # was there, and did not answer within the deadline
        while missing := [name for name in self.others if name not in self.shared]:
            self._check_stopping()
            present = self.assistants.present(self.record.id)
            here = [name for name in missing if name in present and name not in silent]
            if here:
                self._begin_now(here, self.patience.deadline)
                silent |= set(here) - set(self.shared)
            elif time.monotonic() >= until:
                break
            else:
                waited = partial(self._anybody, [name for name in missing if name not in silent])
                self.assistants.wait_for(waited, min(1.0, until - time.monotonic()))
        self._absent = set(missing)
        needed = self.patience.enough(len(self.others) + 1)
        if len(self.shared) < needed:
            raise TaskError(
                f"only {len(self.shared)} of {len(self.others) + 1} organizations are there after {self.patience.join:g} s, the quorum is "
                f"{needed}; not there: {', '.join(missing)}. Are their nodes running, and have they joined {self.record.name!r}? "
                f"Then: gal learn {self.record.name} --resume"
            )
        if missing:
            self._tell("absent", organizations=missing)

    def _anybody(self, names: Sequence[str]) -> bool:
        return self.stopping.is_set() or any(
            name in self.assistants.present(self.record.id) for name in names
        )

    def _begin_own(self) -> None:
        asking = Asking(np.arange(len(self.rows.ids)))
        encoded = self._begin_message(self.own_name, asking)
        answer = self.service.answer(self.asked(encoded))
        self._keep_begun(self.own_name, asking, encoded, answer.data, answer.message)

    def _begin(self, names: Sequence[str], seconds: float) -> dict[str, str]:
        """Ask these organizations which rows they know; who refuses, and why."""
        askings = {name: self._asking(name, seconds) for name in names}
        pendings = {
            name: self.assistants.post(name, self._begin_message(name, asking))
            for name, asking in askings.items()
            if asking is not None
        }
        self._tell("waiting", what="to find the shared rows", organizations=list(pendings), seconds=seconds)
        try:
            self._wait(lambda: all(one.done.is_set() for one in pendings.values()), seconds)
        finally:
            self.assistants.give_up(pendings.values())
        refused = {}
        for name, pending in pendings.items():
            answer, asking = pending.answer, askings[name]
            if answer is None or asking is None:
                continue
            if answer.message.kind != "begun":
                refused[name] = answer.message.fields.get("message", f"answered with {answer.message.kind}")
            else:
                self._keep_begun(name, asking, pending.encoded, answer.data, answer.message)
        return refused

    def _begin_now(self, names: Sequence[str], seconds: float) -> None:
        """Before the first round: one that refuses must be sorted out by people."""
        try:
            refused = self._begin(names, seconds)
        except AlignmentError as error:
            raise AlignmentError(
                f"{error} Then gal learn {self.record.name} --resume, or go on without it: gal remove {self.record.name} NAME"
            ) from error
        if refused:
            raise TaskError(
                "; ".join(f"{name} refuses to begin: {why}" for name, why in refused.items())
                + f". Sort it out and gal learn {self.record.name} --resume, or go on without: gal remove {self.record.name} "
                + " ".join(refused)
            )

    def _begin_late(self, name: str) -> None:
        """Somebody came while rounds go on: they do not wait for it, nor end because of it."""

        def begin() -> None:
            try:
                refused = self._begin([name], self.patience.deadline).get(name)
            except NodeError as error:
                refused = str(error)
            if refused is None and name not in self.shared:
                self._late.discard(name)  # it did not answer: it is asked again when it is there
            elif refused is not None:
                self._refused[name] = refused
                self._tell("refused", organization=name, why=refused)

        self._late.add(name)
        threading.Thread(target=begin, name=f"late {name}", daemon=True).start()

    def _asking(self, name: str, seconds: float) -> Asking | None:
        """Which of her rows she asks an organization about: all, or those found by a private set intersection."""
        if TaskTerms.model_validate(self.record.terms).alignment != "psi":
            return Asking(np.arange(len(self.rows.ids)))
        from gal.node.holder.intersection import shared_positions

        self._tell("waiting", what="for a private set intersection", organizations=[name], seconds=seconds)
        positions = shared_positions(
            self.assistants, name, self.record.id, self.version, self.rows.ids, seconds
        )
        if positions is not None and len(positions) == 0:
            raise AlignmentError(
                f"{name} knows none of your {len(self.rows.ids)} rows: it cannot help. Check that row_id names the same kind of id at "
                f"both, written in the same way, or go on without: gal remove {self.record.name} {name}"
            )
        return None if positions is None else Asking(positions)

    def _begin_message(self, name: str, asking: Asking) -> Encoded:
        terms = TaskTerms.model_validate(self.record.terms)
        roles = role_arrays(self.task.rows)
        fields, ids = asking.ids(self.rows.ids, terms.alignment, self.service.configuration)
        fields |= {
            "terms": terms.digest,
            "organization": name,
            "n_outputs": self.task.loss.n_outputs,
            "rounds": self.task.rounds,
            "seed": self.task.seed,
        }
        arrays = ids | {role: values[asking.positions] for role, values in roles.items()}
        return prepare(Message("begin", self.record.id, self.version, "begin", fields, arrays))

    def _keep_begun(self, name: str, asking: Asking, encoded: Encoded, data: Any, begun: Message) -> None:
        """Check that both mean the same rows in the same order, and remember which."""
        if self._over.is_set():  # it came too late for this version
            return
        terms = TaskTerms.model_validate(self.record.terms)
        shared = asking.shared(begun, name, self.task.rows)
        asking.check(begun, encoded.message, name, terms.alignment)
        asking.save(self.folder / f"asked-{name}.npy")
        file = f"begun-{name}.arrow"
        reply = StoredReply(0, name, encoded.digest, file, write_whole(self.folder / file, data), None)
        self.state.put_reply(self.record.id, self.version, BEGIN, reply)
        self.shared[name] = shared
        self._tell("rows", organization=name, known=shared.n_known, unknown=shared.n_unknown)

    # Steps

    def _step(self, step: int, requests: Sequence[Request]) -> list[Mapping[str, Any]]:
        """One round trip: every organization's values for each request, or what went wrong there."""
        if not self.state.is_closed(self.record.id, self.version, step):
            self._ask(step, requests)
        replies: list[dict[str, Any]] = [{} for _ in requests]
        for stored in self.state.replies(self.record.id, self.version, step):
            if stored.place >= len(requests):
                raise self._not_the_same(step)
            request = requests[stored.place]
            replies[stored.place][stored.organization] = self._values(step, stored, request)
        self._loaded.clear()
        if self.transcript is not None:
            self.transcript(requests, replies)
        for request, values in zip(requests, replies, strict=True):
            if isinstance(request, PredictRequest) and request.track == "assisted":
                self.moved = values
        return list(replies)

    def _not_the_same(self, step: int) -> TaskError:
        return TaskError(
            f"version {self.version} of {self.record.name!r} cannot be resumed: step {step} asks something else than it did. "
            f"gal-learn or the options have changed; learn a new version: gal learn {self.record.name}"
        )

    def _ask(self, step: int, requests: Sequence[Request]) -> None:
        """Ask everybody who has not yet answered, wait, and close the step."""
        here = self.assistants.present(self.record.id)
        for name in self.others:
            if name not in self.shared and name in here and name not in self._late:
                self._begin_late(name)
        begun = set(self.shared)
        stored = {
            (one.place, one.organization): one
            for one in self.state.replies(self.record.id, self.version, step)
        }
        own: list[Future[None]] = []
        pendings: dict[tuple[int, str], Pending] = {}
        for place, request in enumerate(requests):
            for name in request.organizations:
                if name not in begun or (name != self.own_name and name not in self.others):
                    continue
                encoded = self._message(step, place, request, name)
                before = stored.get((place, name))
                if before is not None and before.request == encoded.digest and self._is_there(before):
                    continue
                if before is not None:
                    self.state.drop_reply(self.record.id, self.version, step, before)
                if name == self.own_name:
                    own.append(self._submit_own(step, place, encoded))
                else:
                    keep = self._keeper(step, place, name, encoded)
                    pendings[place, name] = self.assistants.post(name, encoded, keep)
        try:
            self._await(requests, own, pendings)
        finally:
            self.assistants.give_up(pendings.values())
        self._close(step, requests, pendings)

    def _is_there(self, reply: StoredReply) -> bool:
        """Whether a reply to an open step can still be used; one that was a refusal is asked for again."""
        return reply.file is not None and read_whole(self.folder / reply.file, reply.digest or "") is not None

    def _message(self, step: int, place: int, request: Request, name: str) -> Encoded:
        """The request for one organization: only the rows that it knows. The same rows make the same message."""
        shared = self.shared[name]
        key = place, shared.digest
        if key not in self._prepared:
            message = shared.message(request, self.task, self.record.id, self.version, f"{step}.{place}")
            self._prepared[key] = prepare(message)
        return self._prepared[key]

    def asked(self, encoded: Encoded) -> Asked:
        """A request to the label holder's own organization."""
        return Asked(self.own_name, encoded.message, encoded.data, encoded.digest, own=True)

    def _submit_own(self, step: int, place: int, encoded: Encoded) -> Future[None]:
        future = self._own.submit(self._ask_own, step, place, encoded)
        future.add_done_callback(lambda done: self.assistants.notify())  # noqa: ARG005
        return future

    def _ask_own(self, step: int, place: int, encoded: Encoded) -> None:
        try:
            answer = self.service.answer(self.asked(encoded))
        except WorkFailedError as error:
            problem = error.failure.inside
        except Exception as error:
            problem = describe(error, self.own_name).inside
        else:
            self._keep(step, place, self.own_name, encoded, answer.data, answer.digest)
            return
        self.state.put_reply(
            self.record.id,
            self.version,
            step,
            StoredReply(place, self.own_name, encoded.digest, None, None, problem),
        )

    def _keeper(self, step: int, place: int, name: str, encoded: Encoded) -> Callable[[Received], None]:
        def keep(received: Received) -> None:
            message = received.message
            if message.kind == "refusal":
                problem = f"refused ({message.fields['code']}): {message.fields['message']}"
                reply = StoredReply(place, name, encoded.digest, None, None, problem)
                self.state.put_reply(self.record.id, self.version, step, reply)
                return
            self._keep(step, place, name, encoded, received.data, received.digest)

        return keep

    def _keep(self, step: int, place: int, name: str, encoded: Encoded, data: Any, known: str) -> None:
        """Write a reply to the disk, and remember that it is there."""
        file = f"reply-{step}-{place}-{name}.arrow"
        write_whole(self.folder / file, data, known)
        self._loaded[step, place, name] = data
        reply = StoredReply(place, name, encoded.digest, file, known, None)
        self.state.put_reply(self.record.id, self.version, step, reply)

    def _await(
        self,
        requests: Sequence[Request],
        own: Sequence[Future[None]],
        pendings: Mapping[tuple[int, str], Pending],
    ) -> None:
        """Wait for everybody who was there a round ago or is there now; for the others only as long."""

        def waited_for() -> set[str]:
            here = self.assistants.present(self.record.id)
            still = {name for (_, name), one in pendings.items() if not one.done.is_set()}
            return {
                name for name in still if (name not in self._absent or name in here) and name in self.others
            }

        def broken() -> bool:  # what came cannot be kept here: no use to wait for more
            kept = all(not one.done() or one.exception() is None for one in own)
            return not kept or any(one.problem for one in pendings.values())

        def ready() -> bool:
            return broken() or (all(one.done() for one in own) and not waited_for())

        self._wait(ready, 1.0)
        if not ready():
            self._tell(
                "waiting",
                what=_what(requests),
                organizations=sorted(waited_for()),
                seconds=self.patience.deadline,
            )
        self._wait(ready, self.patience.deadline - 1.0)
        while not all(
            one.done() for one in own
        ):  # her own organization is waited for: a deadline is for others
            self._wait(lambda: all(one.done() for one in own), 60.0)
        for one in own:
            one.result()

    def _wait(self, ready: Callable[[], bool], seconds: float) -> None:
        self.assistants.wait_for(lambda: self.stopping.is_set() or ready(), seconds)
        self._check_stopping()

    def _check_stopping(self) -> None:
        if self.stopping.is_set():
            raise LearningInterruptedError(
                f"learning {self.record.name!r} was interrupted: gal learn {self.record.name} --resume goes on"
            )

    def _close(
        self,
        step: int,
        requests: Sequence[Request],
        pendings: Mapping[tuple[int, str], Pending],
    ) -> None:
        """The step is over: who has not answered is missed, for good; too few, and learning waits for people."""
        stored = self.state.replies(self.record.id, self.version, step)
        answered = {one.organization for one in stored if one.file}
        broken = [one for one in pendings.values() if one.problem]
        if broken:
            raise NodeError(f"{broken[0].problem}. Then: gal learn {self.record.name} --resume")
        needed = self.patience.enough(len(self.others) + 1)
        silent = {name: self._why_missed(name) for _, name in pendings if name not in answered}
        silent |= {
            one.organization: one.problem
            for one in stored
            if one.problem and one.organization not in answered
        }
        if len(answered) < min(needed, len(self.shared)) and len(requests[0].organizations) > 1:
            raise TaskError(
                f"step {step} ({_what(requests)}): {len(answered)} of {len(self.others) + 1} organizations answered, the quorum is "
                f"{needed}. {'; '.join(f'{name} {why}' for name, why in sorted(silent.items()))}. What came is kept: "
                f"gal learn {self.record.name} --resume, with --quorum {max(len(answered), 1)} if these are enough; or go on without: "
                f"gal remove {self.record.name} NAME"
            )
        here = self.assistants.present(self.record.id)
        self._absent = {name for name in self.others if name not in answered and name not in here}
        missed = [
            StoredReply(place, name, "", None, None, self._why_missed(name))
            for place, request in enumerate(requests)
            for name in request.organizations
            if name != self.own_name
        ]
        self.state.close_step(self.record.id, self.version, step, missed)

    def _why_missed(self, name: str) -> str:
        status = self.state.members(self.record.id).get(name, "not invited")
        if status != "invited":
            return f"has {status}"
        if name not in self.shared:
            return (
                f"refused to begin: {self._refused[name]}"
                if name in self._refused
                else "has not connected yet"
            )
        return f"did not answer within {self.patience.deadline:g} s"

    def _values(self, step: int, stored: StoredReply, request: Request) -> Any:
        """What the engine gets for a stored reply: values of all rows, or an error that says what was wrong."""
        if stored.file is None:
            return NoAnswerError(stored.problem or "did not answer")
        data = self._loaded.get((step, stored.place, stored.organization))
        if data is None:
            data = read_whole(self.folder / stored.file, stored.digest or "")
        shared = self.shared[stored.organization]
        expected = self._message(step, stored.place, request, stored.organization)
        if stored.request != expected.digest:
            raise self._not_the_same(step)
        if data is None:
            data = self._again(step, stored, expected)
        return read_values(decode(data), shared, request, self.task)

    def _again(self, step: int, stored: StoredReply, encoded: Encoded) -> Any:
        """A reply that counts was lost with the disk: whoever gave it still has it, and says the same again."""
        name, seconds = stored.organization, self.patience.deadline
        if name == self.own_name:
            data: Any = self.service.answer(self.asked(encoded)).data
        else:
            self._tell(
                "waiting", what="for a reply that was lost here", organizations=[name], seconds=seconds
            )
            pending = self.assistants.post(name, encoded)
            try:
                self._wait(pending.done.is_set, seconds)
            finally:
                self.assistants.give_up([pending])
            data = None if pending.answer is None else pending.answer.data
        if data is None or digest(data) != stored.digest:
            raise TaskError(
                f"the reply of {name} in step {step} is gone or damaged here ({stored.file}), and it did not give the same again: "
                f"learn a new version with gal learn {self.record.name} --anew"
            )
        write_whole(self.folder / str(stored.file), data)
        return data


def read_values(message: Message, shared: SharedRows, request: Request, task: Task) -> Any:
    """The values in a reply for all rows of the task; what cannot be used is an error for the engine to name."""
    fits = isinstance(request, FitRequest)
    if message.kind != ("fitted" if fits else "predicted"):
        return InvalidReplyError(f"answered with {message.kind}")
    if message.fields["rows"] != shared.digest:
        return InvalidReplyError("answered for other rows, or in another order")
    if isinstance(request, FitRequest) and message.fields["round"] != request.round:
        return InvalidReplyError(f"answered for round {message.fields['round']}")
    values = message.arrays["fitted" if fits else "values"]
    expected = expected_shape(request, shared.n_known, task.loss.n_outputs)
    if values.shape != expected:
        return InvalidReplyError(f"answered with shape {values.shape}, expected {expected}")
    return fill_unknown(values, shared, task.rows)


def _what(requests: Sequence[Request]) -> str:
    first = requests[0]
    if isinstance(first, FitRequest):
        return f"for round {first.round}"
    return "for what moving models say of all rounds"
