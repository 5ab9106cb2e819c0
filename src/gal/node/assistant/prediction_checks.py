"""What may be asked of rows: predictions and private set intersections, within the limits of the day.

All is charged before it is told. A request that comes again, to the byte, is charged once
(:mod:`gal.node.store.charges`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment.psi import POINT
from gal.errors import RefusedError
from gal.node.agreement.incoming import IncomingRequest
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.policy import PolicyLimits
from gal.node.store.state import State, TaskRecord
from gal.protocol import Encoded
from gal.protocol.messages import IDS

BLOCK = 4096
"""Rows that are looked at together."""
EXCHANGES = 20
"""Private set intersections to begin versions with, at most, for one label holder and day (UTC)."""
UNFINISHED = 100
"""Private set intersections that are begun and not gone on with, at most, for one label holder and day."""


class PredictionChecks:
    """Refuses what is beyond the limits; RefusedError says why in a sentence for the label holder."""

    def __init__(self, configuration: NodeConfiguration, state: State, clock: Callable[[], datetime]) -> None:
        self._name, self._policy = configuration.name, configuration.policy
        self._state, self._clock = state, clock
        self._limits = PolicyLimits(configuration.name, configuration.policy)
        self._paying = threading.Lock()

    @contextmanager
    def _charging(self) -> Iterator[None]:
        """All that is charged inside is kept at once, also where it ends with a refusal. What comes twice at
        once is charged once: who is second sees what the first has paid.
        """
        refused = None
        with self._paying, self._state.transaction():
            try:
                yield
            except RefusedError as error:
                refused = error
        if refused is not None:
            raise refused

    # Private set intersections

    def intersection(self, asked: IncomingRequest, task: TaskRecord) -> None:
        """A step of a private set intersection: before a version begins, or (charged
        as predictions) after its end.
        """
        if task.terms.alignment != "psi":
            raise RefusedError("other-terms", f"the terms of {task.name!r} have no private set intersection")
        fields, version = asked.message.fields, asked.message.version
        self._check_points(asked)
        beginning = self._state.version(task.id, version) is None
        if beginning:
            self._limits.check_begin(fields["n_rows"], version)
        else:
            self._limits.check_named(fields["n_rows"])
        if fields["step"] != "response":
            self._count_setup(asked, task)
            return
        with self._charging():
            paid = self._paid(asked)
            if paid is None and beginning:
                self._count_exchange(asked, task)
            elif paid is None:
                self._charge_rows(asked, fields["n_rows"])
            if paid is None:
                self._pay(asked)
                self._state.use_credit(f"setup {asked.peer}", self._today(), 1)
            if not paid and not beginning:
                self._count_small(asked, fields["n_rows"])

    def _count_setup(self, asked: IncomingRequest, task: TaskRecord) -> None:
        """All rows are blinded for each exchange, before she has paid for any: only so many are begun."""
        before = self._state.spend_predictions(f"setup {asked.peer}", self._today(), 1, UNFINISHED)
        if not asked.own and before >= UNFINISHED:
            raise RefusedError(
                "too-many-exchanges",
                f"{self._name} was asked to begin {UNFINISHED} private set intersections about "
                f"{task.name!r} and others today that were not gone on with: try again tomorrow",
            )

    def _check_points(self, asked: IncomingRequest) -> None:
        """Whether as many blinded ids came as are said, and will be charged."""
        fields, points = asked.message.fields, asked.message.arrays.get("bytes", np.zeros(0, dtype=np.uint8))
        expected = fields["n_rows"] * POINT if fields["step"] == "response" else 0
        if len(points) != expected:
            raise RefusedError(
                "alignment",
                f"{self._name} was told of {fields['n_rows']} rows in the {fields['step']} of a private set "
                f"intersection, and {len(points)} bytes came instead of {expected}: begin it again",
            )

    def exchanged(self, asked: IncomingRequest, answer: Encoded) -> None:
        """An exchange is complete: so many rows may be named once."""
        if asked.message.fields["step"] != "response" or asked.own:
            return
        with self._charging():
            if self._paid(asked):
                self._state.charges.repeat(asked.peer, asked.digest)
                return
            n_rows = asked.message.fields["n_rows"]
            self._state.spend_predictions(*exchanged_rows(asked), n_rows, sys.maxsize)
            self._state.charges.answered(asked.peer, asked.digest, answer.digest)

    def _count_exchange(self, asked: IncomingRequest, task: TaskRecord) -> None:
        """A version needs one exchange to begin, a few where links break; more would be trying out ids."""
        before = self._state.spend_predictions(f"psi {asked.peer}", self._today(), 1, EXCHANGES)
        if before >= EXCHANGES:
            raise RefusedError(
                "too-many-exchanges",
                f"{self._name} takes part in at most {EXCHANGES} private set intersections a day before "
                f"{task.name!r} begins: try again tomorrow",
            )

    # Predictions

    def predicted_rows(self, asked: IncomingRequest, task: TaskRecord, n_rows: int) -> None:
        """Whether rows are named as was agreed, not too many at once; charged to the budget of the day."""
        agreed, came = task.terms.alignment, asked.message.fields["method"]
        if came != agreed:
            raise RefusedError("other-terms", f"{self._name} agreed to match rows by {agreed}, not by {came}")
        if asked.own:
            return
        if n_rows > self._policy.max_rows:
            raise RefusedError(
                "too-many-rows",
                f"{self._name} predicts at most {self._policy.max_rows} rows at once: send fewer",
            )
        with self._charging():
            paid = self._paid(asked)
            limit = self._policy.unknown_ids_per_day
            if not paid and self._spent(f"unknown {asked.peer}") >= limit:
                raise self._limits.too_many_unknown()
            if paid is None:
                self._charge_named(asked, n_rows)
                self._pay(asked)

    def predicted(self, asked: IncomingRequest, answer: Encoded) -> None:
        """Whether an answer may leave that says which ids are known here, and is on record before it does.

        With the budget for unknown ids spent nothing more is predicted that day: a refusal of only those with
        unknown ones would tell as much as an answer.
        """
        if asked.own:
            return
        known = answer.message.arrays["known"] == 1
        with self._charging():
            paid = self._paid(asked)
            if paid == answer.digest:
                self._state.charges.repeat(asked.peer, asked.digest)
                return
            if paid:  # the data have changed: it tells more than was paid for
                self._charge_named(asked, len(known))
                self._pay(asked)
            self._count_unknown(asked, int((~known).sum()))
            if asked.message.fields["method"] != "psi":  # there, the exchange was counted
                self._count_small(asked, n_different(asked, known, self._policy.min_rows))
            self._state.charges.answered(asked.peer, asked.digest, answer.digest)

    def failed(self, asked: IncomingRequest) -> None:
        """Computing failed, which it may do for known rows alone: it counts as a prediction about few of
        them, and who may ask for no more of these hears the same as of unknown ones.
        """
        if not asked.own and asked.message.fields["method"] != "psi":
            with self._charging():
                self._count_small(asked, 0)

    def _charge_named(self, asked: IncomingRequest, n_rows: int) -> None:
        """Charge the rows that are named, each to an exchange where there has to be one."""
        psi = asked.message.fields["method"] == "psi"
        if psi and not self._state.use_credit(*exchanged_rows(asked), n_rows):
            raise not_exchanged(self._name)
        self._charge_rows(asked, n_rows)

    def _charge_rows(self, asked: IncomingRequest, n_rows: int) -> None:
        """Charge rows to the label holder's budget of the day; refused where it is spent."""
        if asked.own:
            return
        limit = self._policy.predictions_per_day
        before = self._state.spend_predictions(asked.peer, self._today(), n_rows, limit)
        self._limits.check_predict(n_rows, before)

    def _count_unknown(self, asked: IncomingRequest, n_unknown: int) -> None:
        if n_unknown == 0:
            return
        limit, account, day = self._policy.unknown_ids_per_day, f"unknown {asked.peer}", self._today()
        before = self._state.spend_predictions(account, day, n_unknown, limit)
        if before + n_unknown > limit:
            self._state.spend_predictions(account, day, limit - before, limit)
            raise self._limits.too_many_unknown()
        if asked.message.fields["method"] == "psi":
            raise not_exchanged(self._name)

    def _count_small(self, asked: IncomingRequest, n_rows: int) -> None:
        """Few rows at once tell more of each of them, first of all whether it is known."""
        if n_rows >= self._policy.min_rows:
            return
        limit = self._policy.small_predictions_per_day
        if self._state.spend_predictions(f"small {asked.peer}", self._today(), 1, limit) >= limit:
            raise self._limits.too_small()

    # What was paid for

    def _paid(self, asked: IncomingRequest) -> str | None:
        """None: this request has to be charged; empty: its rows are; else the digest of its answer."""
        return self._state.charges.answer(asked.peer, self._today(), asked.digest)

    def _pay(self, asked: IncomingRequest) -> None:
        """Rows were charged."""
        self._state.charges.put(asked.peer, self._today(), asked.digest, asked.message.task)

    def _spent(self, account: str) -> int:
        return self._state.spend_predictions(account, self._today(), 0, 0)

    def _today(self) -> str:
        return self._clock().date().isoformat()


def not_exchanged(name: str) -> RefusedError:
    """The answer to who names rows, with private set intersection, that were in no exchange."""
    return RefusedError(
        "alignment", f"{name} speaks only of rows that a private set intersection has found: do one first"
    )


def exchanged_rows(asked: IncomingRequest) -> tuple[str, str]:
    """Under which names the rows of private set intersections are kept that may still be named."""
    return f"exchanged {asked.peer}", f"{asked.message.task} {asked.message.version}"


def n_different(asked: IncomingRequest, chosen: NDArray[np.bool_], enough: int) -> int:
    """How many different rows are among the chosen ones that a request names, counted up to ``enough``: one
    that is named many times is one row.
    """
    tokens = next(asked.message.arrays[name] for name in IDS if name in asked.message.arrays)
    found: set[Any] = set()
    for start in range(0, len(tokens), BLOCK):
        block = tokens[start : start + BLOCK][chosen[start : start + BLOCK]]
        found.update(map(bytes, block) if block.ndim == 2 else block.tolist())
        if len(found) >= enough:
            break
    return len(found)


def n_named(asked: IncomingRequest) -> int:
    """How many rows a request names."""
    return max((len(asked.message.arrays[name]) for name in IDS if name in asked.message.arrays), default=0)
