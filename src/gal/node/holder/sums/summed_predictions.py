"""Prediction from sums: each organization adds up its own rounds, then all of them are added up.

Only rows that everybody knows are in the sum. Where it cannot be opened, as while one organization is away,
the mean of the others stands in: another sum without that one would give its answer away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds, row_digest
from gal.core.replies import Answers
from gal.core.requests import PredictRequest
from gal.core.state import Ensemble
from gal.node.agreement.sum_messages import prediction_content
from gal.node.holder.holder_node import HolderNode
from gal.node.holder.shared_rows import Asking
from gal.node.holder.sums.circle_calls import CircleCalls, SumFailedError, SumQuestion
from gal.node.store.state import TaskRecord
from gal.protocol import Encoded, Message, prepare
from gal.secrecy.contents import added_rounds
from gal.secrecy.local_predictions import added_up, mean_total
from gal.secrecy.terms import SUM

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
AskOwn = Callable[[PredictRequest], Mapping[str, Any]]
AHEAD, TRIES = 16, 3
"""For so many predictions keys are exchanged at once; and how often one is tried, where keys were lost."""


@dataclass(frozen=True)
class SummedAnswers:
    """What is known of some rows: the label holder's own part, and all others' together."""

    ensemble: Ensemble
    """What was learned as one round, in which everybody has added up its own."""
    answers: Answers
    unknown: Mapping[str, Bools]
    changed: Sequence[str]


@dataclass(frozen=True)
class _Others:
    """What all others add together, and what is wrong where that is not known."""

    total: Floats
    there: Bools
    """Rows that everybody knows, and whose sum was opened."""
    unknown: Mapping[str, Bools]
    changed: Sequence[str]
    missing: Mapping[str, str]
    n_members: int = 0
    """How many are in the sum."""


class SummedPredictions:
    """Asks the organizations of tasks that were learned from sums."""

    def __init__(self, node: HolderNode) -> None:
        self._node, self._assistants, self._state = node, node.assistants, node.state
        self._calls: dict[tuple[str, int], CircleCalls] = {}
        self._session, self._numbers = uuid4().hex, count(1)
        self._lock = threading.Lock()

    def ask(
        self,
        record: TaskRecord,
        version: int,
        ensemble: Ensemble,
        ids: RowIds,
        ask_own: AskOwn,
        seconds: float,
        join: float,
    ) -> SummedAnswers:
        """Everybody's part for these rows; ``ask_own`` asks the label holder's own organization."""
        own, n_rows, among = self._node.name, len(ids), len(ensemble.summed)
        others = self._others(record, version, ensemble, ids, seconds, join)
        mean = mean_total(ensemble, SUM) / among
        absent = np.where(others.there, among - others.n_members, among)
        values = {SUM: (others.total + absent[:, None] * mean)[None].astype(np.float32)}
        degraded, missing, unknown = absent > 0, dict(others.missing), dict(others.unknown)
        if own in ensemble.asked():
            said = ask_own(PredictRequest(ensemble.asked_rounds, (own,), ensemble.track))[own]
            part: Floats = np.zeros((n_rows, ensemble.n_outputs))
            rows: Bools = np.ones(n_rows, dtype=np.bool_)
            if isinstance(said, np.ndarray):
                rates = [counts.get(own, 0.0) for counts in ensemble.coefficients]
                part, rows = added_rounds(rates, said), np.asarray(np.isnan(said).all(axis=(0, 2)))
                unknown[own] = rows
            else:
                missing[own] = str(said)
            part = np.where(rows[:, None], mean_total(ensemble, own), part)
            values[own] = part[None].astype(np.float32)
            degraded = degraded | rows
        return SummedAnswers(
            added_up(ensemble), Answers(values, missing, degraded), unknown, sorted(others.changed)
        )

    def _others(
        self, record: TaskRecord, version: int, ensemble: Ensemble, ids: RowIds, seconds: float, join: float
    ) -> _Others:
        nothing = np.zeros((len(ids), ensemble.n_outputs)), np.zeros(len(ids), dtype=np.bool_)
        statuses = self._state.members(record.id)
        lost = {name for done in ensemble.rounds for name in done.left_out}
        members = [name for name in ensemble.summed if statuses.get(name) == "invited" and name not in lost]
        self._assistants.wait_for(lambda: set(members) <= set(self._assistants.present(record.id)), join)
        away = sorted(set(members) - set(self._assistants.present(record.id)))
        if away:
            missing = dict.fromkeys(away, "is not connected, and without it there is no sum")
            return _Others(*nothing, {}, (), missing)
        until = time.monotonic() + seconds
        for _ in range(TRIES):
            try:
                return self._summed(record, version, ensemble, ids, members, until - time.monotonic())
            except SumFailedError as error:
                problem = error
                if not error.again or time.monotonic() > until:
                    break
        return _Others(*nothing, {}, (), problem.by_member or dict.fromkeys(members, str(problem)))

    def _summed(
        self,
        record: TaskRecord,
        version: int,
        ensemble: Ensemble,
        ids: RowIds,
        members: Sequence[str],
        seconds: float,
    ) -> _Others:
        """Which rows everybody knows, and their sum; SumFailedError where there is none."""
        method, configuration = record.terms.alignment, self._node.configuration
        asking = Asking(np.arange(len(ids))).in_order_of_tokens(ids, method, configuration)
        encoded = self._message(record, version, ensemble, ids, asking)
        found = self._found(encoded, members, record, seconds)
        everybody = np.logical_and.reduce([one.arrays["known"] == 1 for one in found.values()])
        unknown = {}
        for name, one in found.items():
            unknown[name] = np.zeros(len(ids), dtype=np.bool_)
            unknown[name][asking.positions] = one.arrays["known"] == 0
        changed = [name for name, one in found.items() if one.fields.get("changed")]
        total, there = np.zeros((len(ids), ensemble.n_outputs)), np.zeros(len(ids), dtype=np.bool_)
        if everybody.any():
            asked, shape = encoded.message, (int(everybody.sum()), ensemble.n_outputs)
            [tokens] = asked.arrays.values()
            order = row_digest(tokens[everybody], asked.fields["kind"], method)
            learned, unit = _learned(found)
            content = prediction_content(asked, order, shape, learned)
            question = SumQuestion(encoded.digest, content, unit, shape, rows=everybody)
            calls = self._calls_of(record, version)
            [opened] = calls.add_up([question], members, seconds, ahead=AHEAD, all_of_them=True)
            chosen = asking.positions[everybody]
            total[chosen], there[chosen] = opened.total / len(ensemble.summed), True
        for name in changed:
            self._node.log.warning("data changed since learning", peer=name, task=record.name)
        return _Others(total, there, unknown, changed, {}, len(members))

    def _found(
        self, encoded: Encoded, members: Sequence[str], record: TaskRecord, seconds: float
    ) -> dict[str, Message]:
        """Which of the rows each of them knows."""
        pendings = self._assistants.post_together(dict.fromkeys(members, encoded))
        self._wait(
            record.id, lambda: {name for name, one in pendings.items() if not one.done.is_set()}, seconds
        )
        self._assistants.give_up(pendings.values())
        [tokens] = encoded.message.arrays.values()
        problems = {}
        for name, pending in pendings.items():
            if pending.answer is None:
                problems[name] = f"did not answer within {seconds:.0f} s, or went away"
                continue
            message = pending.answer.message
            if message.kind == "refusal":
                problems[name] = f"refused ({message.fields['code']}): {message.fields['message']}"
            elif message.kind != "found" or len(message.arrays["known"]) != len(tokens):
                problems[name] = f"answered with {message.kind}, or about other rows"
        if problems:
            raise SumFailedError("rows were not found", problems)
        return {name: one.answer.message for name, one in pendings.items() if one.answer is not None}

    def _message(
        self, record: TaskRecord, version: int, ensemble: Ensemble, ids: RowIds, asking: Asking
    ) -> Encoded:
        fields, arrays = asking.ids(ids, record.terms.alignment, self._node.configuration)
        fields |= {
            "track": ensemble.track,
            "rounds": list(ensemble.asked_rounds),
            "rates": [counts.get(SUM, 0.0) for counts in ensemble.coefficients],
        }
        name = f"total {self._session} {next(self._numbers)}"
        return prepare(Message("total", record.id, version, name, fields, arrays))

    def _calls_of(self, record: TaskRecord, version: int) -> CircleCalls:
        with self._lock:
            if (record.id, version) not in self._calls:
                self._calls[record.id, version] = CircleCalls(
                    self._node,
                    record,
                    version,
                    lambda waiting, seconds: self._wait(record.id, waiting, seconds),
                )
            return self._calls[record.id, version]

    def _wait(self, task: str, waiting: Callable[[], set[str]], seconds: float) -> None:
        """Until all have answered, or nobody who has not is there any more."""
        self._assistants.wait_for(lambda: not waiting() & set(self._assistants.present(task)), seconds)


def _learned(found: Mapping[str, Message]) -> tuple[str, float]:
    """What the rounds were learned from, and what their sum is written in, as all say alike."""
    said = {name: (one.fields["learned"], one.fields["unit"]) for name, one in sorted(found.items())}
    first, *rest = said
    others = [name for name in rest if said[name] != said[first]]
    if others:
        raise SumFailedError(
            f"{first} and {', '.join(others)} did not learn these rounds from the same residuals: what they "
            "say of a row cannot be added up. Learn a new version"
        )
    return said[first]
