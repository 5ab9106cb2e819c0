"""Rounds of a learning from sums: everybody fits, says that it has, and is asked for the sum.

The sum is on the disk before it counts, in the place where an organization's reply would be; a step is closed
as any other, and learning again from closed steps gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gal.core.replies import Reply
from gal.core.requests import FitRequest, Request
from gal.core.state import ByName, Ensemble
from gal.errors import AlignmentError, TaskError
from gal.node.agreement.sum_messages import (
    begin_content,
    fit_sum_content,
    learning_content,
    residual_content,
)
from gal.node.holder.learning.beginning import Beginning
from gal.node.holder.learning.open_version import OpenVersion
from gal.node.holder.learning.replies import Replies
from gal.node.holder.shared_rows import SharedRows
from gal.node.holder.sums.circle_calls import CircleCalls, OpenedSum, SumFailedError, SumQuestion
from gal.node.store.files import read_whole, write_whole
from gal.node.store.stored_replies import StoredReply
from gal.protocol import Encoded, Message, prepare
from gal.secrecy.contents import fit_unit
from gal.secrecy.summing import units_of
from gal.secrecy.terms import SUM

AGAIN, TRIES = 0.5, 20
"""Seconds before a sum is begun anew, because somebody has lost its keys; and how often that is done."""
DROPPED = "left: dropped out of a sum"
"""What is on record of an organization that did: it is in no other sum."""


class RowsDifferError(AlignmentError):
    """Not everybody knows the same rows; ``common`` are those that all know, of all rows of the version."""

    def __init__(self, message: str, common: NDArray[np.bool_]) -> None:
        super().__init__(message)
        self.common = common


class SummedRounds:
    """Carries steps, which are lists of requests, to the organizations of a version that learns from sums."""

    def __init__(self, version: OpenVersion, beginning: Beginning) -> None:
        self._version, self._gathering = version, version.gathering
        shared = dict(beginning.shared)
        self._check_rows(shared)
        shared[SUM] = next(one for name, one in shared.items() if name != version.own_name)
        self._replies = Replies(version, shared)
        self._calls = CircleCalls(version.node, version.record, version.number, self._wait)
        self._own = ThreadPoolExecutor(1, thread_name_prefix="own fits")
        everything = np.ones(len(version.rows.ids), dtype=np.bool_)
        self._began = begin_content(beginning.message(version.own_name), everything)
        self._left_out: dict[int, dict[str, str]] = {}
        self._units: dict[int, float] = {}

    def close(self) -> None:
        """Ask nobody any more."""
        self._own.shutdown(wait=False, cancel_futures=True)

    def concluded(self, ensemble: Ensemble) -> Ensemble:
        """What was learned, with the names of those in the sum, and who dropped out when."""
        rounds = tuple(
            replace(done, left_out=ByName({**done.left_out, **self._left_out.get(done.round, {})}))
            for done in ensemble.rounds
        )
        rounds = rounds if ensemble.track == "assisted" else ensemble.rounds
        units = units_of(ensemble, self._units)
        return replace(ensemble, rounds=rounds, summed=self._calls.circle.names, summed_units=units)

    def step(self, step: int, requests: Sequence[Request]) -> list[dict[str, Reply]]:
        """One step: the label holder's own values, and the mean of the others', for each request."""
        version = self._version
        if not version.replies.is_closed(step) or self._lacks_sum(step):
            self._ask(step, requests)
        values = self._replies.values(step, requests)
        self._replies.next_step()
        for request, replies in zip(requests, values, strict=True):
            if isinstance(request, FitRequest) and request.part is None and SUM in request.organizations:
                gone = {name: one for name, one in replies.items() if name in self._calls.circle.members}
                self._left_out[request.round] = {name: str(one) for name, one in gone.items()}
                self._units[request.round] = fit_unit(request)
        return values

    def _check_rows(self, shared: Mapping[str, SharedRows]) -> None:
        """Everybody must know the same rows: of one that a single organization knows, a sum is its answer."""
        others = {name: one for name, one in shared.items() if name != self._version.own_name}
        lacking = {name: one.n_unknown for name, one in sorted(others.items()) if one.n_unknown}
        if lacking:
            said = ", ".join(f"{name} does not know {count}" for name, count in lacking.items())
            raise RowsDifferError(
                "with secrecy = sums everybody must know all rows that are learned from, and of your "
                f"{len(self._version.rows.ids)} rows {said}",
                np.logical_and.reduce([one.known for one in others.values()]),
            )

    # Asking

    def _wait(self, waiting: Callable[[], set[str]], seconds: float) -> None:
        gathering = self._gathering
        gathering.wait(lambda: all(gathering.is_given_up(name) for name in waiting()), seconds)

    def _ask(self, step: int, requests: Sequence[Request]) -> None:
        version = self._version
        names = {version.own_name, SUM}
        wanted = list(self._replies.wanted(step, requests, names))
        own: list[Future[None]] = [
            self._own.submit(self._replies.ask_own, step, place, encoded)
            for place, name, encoded in wanted
            if name == version.own_name
        ]
        places = {place: encoded for place, name, encoded in wanted if name == SUM}
        if places:
            what = f"for round {getattr(requests[0], 'round', 0)}"
            self._gathering.watcher.asking(what, self._gathering.patience.deadline)
            for place, opened in zip(places, self._summed(step, places, requests), strict=True):
                self._keep(step, place, places[place], opened)
        for one in own:
            one.result()
        if not version.replies.is_closed(step):
            version.replies.close(step, [])

    def _summed(
        self, step: int, places: Mapping[int, Encoded], requests: Sequence[Request]
    ) -> list[OpenedSum]:
        """One sum for each of these requests; begun anew where somebody comes back from a restart."""
        questions = [self._question(encoded, requests[place]) for place, encoded in places.items()]
        ahead = len(questions) * max(1, self._version.task.rounds)
        seconds = self._gathering.patience.deadline
        for _ in range(TRIES):
            fitted, failed = self._fit(list(places.values()))
            try:
                return self._calls.add_up(questions, fitted, seconds, ahead=ahead)
            except SumFailedError as error:
                last = SumFailedError(str(error), failed) if failed else error
                if not error.again:
                    break
                self._gathering.wait(lambda: False, AGAIN)
        task = self._version.record.name
        raise TaskError(
            f"step {step}: the sum of the others' answers cannot be opened: {last}. Nothing of it is known, "
            f"and nothing is lost: when all are there and well, gal learn {task} --resume"
        )

    def _question(self, encoded: Encoded, request: Request) -> SumQuestion:
        assert isinstance(request, FitRequest)  # no model in a sum moves, so that nobody is asked again
        message = encoded.message
        sent = replace(
            request,
            residual=message.arrays["residual"],
            sample_weight=message.arrays.get("sample_weight"),
        )
        rows = self._version.task.rows.n
        return SumQuestion(
            encoded.digest,
            fit_sum_content(
                residual_content(message.fields["rows"], sent),
                learning_content(self._began, [encoded.digest]),
            ),
            fit_unit(sent),
            (rows, self._version.task.loss.n_outputs),
            request.round,
        )

    def _fit(self, requests: Sequence[Encoded]) -> tuple[list[str], dict[str, str]]:
        """Have everybody fit: who says that it has done all of it, and what is wrong with the others."""
        assistants, members = self._version.node.assistants, self._members()
        pendings = [assistants.post_together(dict.fromkeys(members, one)) for one in requests]

        def waiting() -> set[str]:
            return {name for by in pendings for name, one in by.items() if not one.done.is_set()}

        self._gathering.wait(lambda: not waiting(), min(1.0, self._gathering.patience.deadline))
        if waiting():
            self._gathering.report_waiting("for fits", sorted(waiting()), self._gathering.patience.deadline)
        try:
            self._wait(waiting, self._gathering.patience.deadline)
        finally:
            assistants.give_up([one for by in pendings for one in by.values()])
        failed: dict[str, str] = {}
        for by in pendings:
            for name, one in by.items():
                if one.answer is None:
                    failed[name] = f"did not answer within {self._gathering.patience.deadline:g} s"
                elif one.answer.message.kind != "done":
                    fields = one.answer.message.fields
                    failed[name] = f"refused ({fields.get('code')}): {fields.get('message')}"
        return [name for name in members if name not in failed], failed

    def _members(self) -> list[str]:
        """Of the circle: who has not dropped out."""
        return sorted(set(self._version.others) & set(self._calls.circle.members))

    # Keeping

    def _keep(self, step: int, place: int, asked: Encoded, opened: OpenedSum) -> None:
        """Write the mean of the others to the disk, as if it were one organization's reply."""
        version, circle = self._version, self._calls.circle
        for name in sorted(set(circle.members) - set(opened.members)):
            if version.state.members(version.record.id).get(name) == "invited":
                version.state.set_member(version.record.id, name, DROPPED)
            version.replies.put(step, StoredReply(place, name, "", None, None, "dropped out of the sum"))
        mean = (opened.total / len(circle.members)).astype(np.float32)
        message = asked.message
        fields = {"answers": asked.digest, "rows": message.fields["rows"], "round": message.fields["round"]}
        kept = prepare(
            Message("fitted", message.task, message.version, message.request, fields, {"fitted": mean})
        )
        file = f"reply-{step}-{place}-sum.arrow"
        write_whole(version.folder / file, kept.data, kept.digest)
        version.replies.put(step, StoredReply(place, SUM, asked.digest, file, kept.digest, None))

    def _lacks_sum(self, step: int) -> bool:
        """Whether the file of a sum is gone or damaged: all members give the same sum again."""
        return any(
            one.organization == SUM
            and one.file is not None
            and read_whole(self._version.folder / one.file, one.digest or "") is None
            for one in self._version.replies.of(step)
        )
