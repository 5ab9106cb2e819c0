"""Rounds in which only the sum of all others' fitted values is known, in the place of one organization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gal.core.replies import Reply
from gal.core.requests import FitRequest, Request
from gal.core.state import Ensemble
from gal.errors import AlignmentError, TaskError
from gal.node.config.aggregation_messages import (
    begin_content,
    fit_sum_content,
    learning_content,
    residual_content,
)
from gal.node.label_holder.learning.beginning import Beginning
from gal.node.label_holder.learning.gathering import OpenVersion
from gal.node.label_holder.shared_rows import SharedRows
from gal.node.label_holder.sums import CircleCalls, OpenedSum, SumFailedError, SumQuestion
from gal.node.store.stored_replies import StoredReply
from gal.protocol import Encoded, Message, prepare
from gal.secure_aggregation.in_process import concluded
from gal.secure_aggregation.masking import fit_unit
from gal.secure_aggregation.terms import SUM

DROPPED = "left: dropped out of a sum"
"""What is on record of an organization that did: it is in no other sum."""
AGAIN, TRIES = 0.5, 20
"""Seconds before a sum is begun anew, because somebody has lost its keys; and how often that is done."""


class RowsDifferError(AlignmentError):
    """Not everybody knows the same rows; ``common`` are those that all know, of all rows of the version."""

    def __init__(self, message: str, common: NDArray[np.bool_]) -> None:
        super().__init__(message)
        self.common = common


@dataclass
class SummedRounds:
    """The others as one organization: everybody fits, says that it has, and is asked for the sum.

    The mean is on the disk before it counts, in the place where an organization's reply would be.
    """

    version: OpenVersion
    shared: dict[str, SharedRows]
    """With those of all others under one name."""
    calls: CircleCalls
    began: str
    """The digest of how the version began."""
    left_out: dict[int, dict[str, str]]
    units: dict[int, float]

    @staticmethod
    def begun(version: OpenVersion, beginning: Beginning) -> SummedRounds:
        """Everybody must know the same rows: of one that a single organization knows, a sum is its answer."""
        others = {name: one for name, one in beginning.shared.items() if name != version.own_name}
        lacking = {name: one.n_unknown for name, one in sorted(others.items()) if one.n_unknown}
        if lacking:
            said = ", ".join(f"{name} does not know {count}" for name, count in lacking.items())
            raise RowsDifferError(
                "with secrecy = sums everybody must know all rows that are learned from, and of your "
                f"{len(version.rows.ids)} rows {said}",
                np.logical_and.reduce([one.known for one in others.values()]),
            )

        def wait(waiting: Callable[[], set[str]], seconds: float) -> None:
            version.wait(lambda: all(version.is_given_up(name) for name in waiting()), seconds)

        shared = beginning.shared | {SUM: next(iter(others.values()))}
        calls = CircleCalls(version.node, version.record, version.number, wait)
        everything = np.ones(len(version.rows.ids), dtype=np.bool_)
        began = begin_content(beginning.message(version.own_name), everything)
        return SummedRounds(version, shared, calls, began, {}, {})

    def ask(
        self,
        step: int,
        asked: Mapping[int, Encoded],
        requests: Sequence[Request],
        keep: Callable[[int, int, str, Encoded, Encoded], None],
    ) -> None:
        """Have these requests of a step answered by all others together, and the answers kept."""
        version, most = self.version, len(self.calls.circle.members)
        questions = [self._question(one, requests[place]) for place, one in asked.items()]
        try:
            found = self._fits(list(asked.values()), questions)
        except SumFailedError as error:
            raise TaskError(
                f"step {step}: the sum of the others' answers cannot be opened: {error}. Nothing of it is "
                "known, and nothing is lost: when all are there and well, gal learn "
                f"{version.record.name}"
            ) from error
        for (place, one), opened in zip(asked.items(), found, strict=True):
            for name in sorted(set(self.calls.circle.members) - set(opened.members)):
                if version.node.state.members(version.record.id).get(name) == "invited":
                    version.node.state.set_member(version.record.id, name, DROPPED)
                version.replies.put(step, StoredReply(place, name, "", None, None, "dropped out of the sum"))
            mean, about = (opened.total / most).astype(np.float32), one.message
            fields = {"answers": one.digest, "rows": about.fields["rows"], "round": about.fields["round"]}
            reply = Message("fitted", about.task, about.version, about.request, fields, {"fitted": mean})
            keep(step, place, SUM, one, prepare(reply))

    def _question(self, asked: Encoded, request: Request) -> SumQuestion:
        """What the sum of the fits to a request is of."""
        assert isinstance(request, FitRequest)  # no model in a sum moves, so that nobody is asked again
        task, arrays = self.version.task, asked.message.arrays
        sent = replace(request, residual=arrays["residual"], sample_weight=arrays.get("sample_weight"))
        residual = residual_content(asked.message.fields["rows"], sent)
        content = fit_sum_content(residual, learning_content(self.began, [asked.digest]))
        shape = task.rows.n, task.loss.n_outputs
        return SumQuestion(asked.digest, content, fit_unit(sent), shape, request.round)

    def _fits(self, asked: Sequence[Encoded], questions: Sequence[SumQuestion]) -> list[OpenedSum]:
        """Have everybody fit, and add up; begun anew where somebody comes back from a restart."""
        version, seconds = self.version, self.version.patience.deadline
        members = sorted(set(version.invited) & set(self.calls.circle.members))
        for _ in range(TRIES):
            failed = {
                name: problem
                for by in self.calls.ask([dict.fromkeys(members, one) for one in asked], seconds)
                for name, one in by.items()
                if (problem := one.refusal("done", seconds))
            }
            fitted = [name for name in members if name not in failed]
            try:
                return self.calls.add_up(questions, fitted, seconds)
            except SumFailedError as error:
                last = SumFailedError(str(error), failed) if failed else error
                if not error.again:
                    break
                version.wait(lambda: False, AGAIN)
        raise last

    def note(self, requests: Sequence[Request], values: Sequence[Mapping[str, Reply]]) -> None:
        """Remember who dropped out of a round, and in what units it was answered."""
        for request, replies in zip(requests, values, strict=True):
            if isinstance(request, FitRequest) and request.part is None and SUM in request.organizations:
                gone = {name: str(one) for name, one in replies.items() if name in self.calls.circle.members}
                self.left_out[request.round] = gone
                self.units[request.round] = fit_unit(request)

    def concluded(self, ensemble: Ensemble) -> Ensemble:
        return concluded(ensemble, self.calls.circle.names, self.left_out, self.units)
