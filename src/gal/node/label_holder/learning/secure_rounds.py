"""Rounds with secure aggregation: the sum of the others' fitted values is one organization's reply."""

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
from gal.node.label_holder.learning.open_version import OpenVersion
from gal.node.label_holder.learning.session_setup import SessionSetup
from gal.node.label_holder.secure_sums import Floats, GroupCalls, SumFailedError, Summand
from gal.node.label_holder.shared_rows import SharedRows
from gal.node.store.stored_replies import StoredReply
from gal.protocol import Encoded, Message, prepare
from gal.secure_aggregation.in_process import concluded
from gal.secure_aggregation.masking import fit_unit
from gal.secure_aggregation.terms import SUM

DROPPED = "left: dropped out of a sum"
"""The status of an organization that did: it is in no other sum."""
AGAIN, TRIES = 0.5, 20
"""Seconds before a sum is begun anew, after a member has lost its keys; and how often that is done."""


class RowsDifferError(AlignmentError):
    """The organizations know different rows; ``common``: those that all know, of the version's rows."""

    def __init__(self, message: str, common: NDArray[np.bool_]) -> None:
        super().__init__(message)
        self.common = common


@dataclass
class SecureRounds:
    """The others as one organization: each fits, confirms, and takes part in a sum.

    The mean is on the disk before it counts, in the place of an organization's reply.
    """

    version: OpenVersion
    shared: dict[str, SharedRows]
    """With the rows of all others under one name."""
    calls: GroupCalls
    began: str
    """The digest of the session setup."""
    left_out: dict[int, dict[str, str]]
    units: dict[int, float]

    @staticmethod
    def begun(version: OpenVersion, setup: SessionSetup) -> SecureRounds:
        """All others must know the same rows: of a row that one alone knows, the sum is its value."""
        others = {name: one for name, one in setup.shared.items() if name != version.own_name}
        lacking = {name: one.n_unknown for name, one in sorted(others.items()) if one.n_unknown}
        if lacking:
            counts = ", ".join(f"{name} does not know {count}" for name, count in lacking.items())
            raise RowsDifferError(
                "with secrecy = sums all organizations must know all rows that are learned from, and of your "
                f"{len(version.rows.ids)} rows {counts}",
                np.logical_and.reduce([one.known for one in others.values()]),
            )

        def wait(waiting: Callable[[], set[str]], seconds: float) -> None:
            version.wait(lambda: all(version.is_given_up(name) for name in waiting()), seconds)

        shared = setup.shared | {SUM: next(iter(others.values()))}
        calls = GroupCalls(version.node, version.record, version.number, wait)
        everything = np.ones(len(version.rows.ids), dtype=np.bool_)
        began = begin_content(setup.message(version.own_name), everything)
        return SecureRounds(version, shared, calls, began, {}, {})

    def run(
        self,
        step: int,
        encoded: Mapping[int, Encoded],
        requests: Sequence[Request],
        keep: Callable[[int, int, str, Encoded, Encoded], None],
    ) -> None:
        """Have all others fit these requests of a step (by place), and keep the means."""
        version, most = self.version, len(self.calls.circle.members)
        summands = [self._summand(one, requests[place]) for place, one in encoded.items()]
        try:
            opened = self._fits(list(encoded.values()), summands)
        except SumFailedError as error:
            raise TaskError(
                f"step {step}: the sum of the others' fitted values cannot be opened: {error}. Nothing of it "
                "is known, and nothing is lost: when all are connected and well, gal learn "
                f"{version.record.name}"
            ) from error
        for (place, one), (total, members) in zip(encoded.items(), opened, strict=True):
            for name in sorted(set(self.calls.circle.members) - set(members)):
                if version.node.state.members(version.record.id).get(name) == "invited":
                    version.node.state.set_member(version.record.id, name, DROPPED)
                version.replies.put(step, StoredReply(place, name, "", None, None, "dropped out of the sum"))
            mean, about = (total / most).astype(np.float32), one.message
            fields = {"answers": one.digest, "rows": about.fields["rows"], "round": about.fields["round"]}
            reply = Message("fitted", about.task, about.version, about.request, fields, {"fitted": mean})
            keep(step, place, SUM, one, prepare(reply))

    def _summand(self, encoded: Encoded, request: Request) -> Summand:
        assert isinstance(request, FitRequest)  # members are stateless: none is re-evaluated
        task, arrays = self.version.task, encoded.message.arrays
        sent = replace(request, residual=arrays["residual"], sample_weight=arrays.get("sample_weight"))
        residual = residual_content(encoded.message.fields["rows"], sent)
        content = fit_sum_content(residual, learning_content(self.began, [encoded.digest]))
        shape = task.rows.n, task.loss.n_outputs
        return Summand(encoded.digest, content, fit_unit(sent), shape, request.round)

    def _fits(
        self, encoded: Sequence[Encoded], summands: Sequence[Summand]
    ) -> list[tuple[Floats, tuple[str, ...]]]:
        """Have the members fit, and add up; begun anew after a member's restart."""
        version, seconds = self.version, self.version.patience.deadline
        members = sorted(set(version.invited) & set(self.calls.circle.members))
        for _ in range(TRIES):
            failed = {
                name: problem
                for by in self.calls.request([dict.fromkeys(members, one) for one in encoded], seconds)
                for name, one in by.items()
                if (problem := one.failure("done", seconds))
            }
            try:
                return self.calls.add_up(summands, [one for one in members if one not in failed], seconds)
            except SumFailedError as error:
                last = SumFailedError(str(error), failed) if failed else error
                if not error.again:
                    break
                version.wait(lambda: False, AGAIN)
        raise last

    def note(self, requests: Sequence[Request], values: Sequence[Mapping[str, Reply]]) -> None:
        """Note the drop-outs and the unit of each round."""
        for request, replies in zip(requests, values, strict=True):
            if isinstance(request, FitRequest) and request.part is None and SUM in request.organizations:
                gone = {name: str(one) for name, one in replies.items() if name in self.calls.circle.members}
                self.left_out[request.round] = gone
                self.units[request.round] = fit_unit(request)

    def concluded(self, ensemble: Ensemble) -> Ensemble:
        return concluded(ensemble, self.calls.circle.names, self.left_out, self.units)
