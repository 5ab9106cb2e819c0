"""What may be asked of rows: predictions and private set intersections, within the limits of the day.

All is charged before it is told, and stays charged where it is refused. A request that comes again, after a
line was lost, is charged again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment.psi import POINT
from gal.errors import RefusedError
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.policy import PolicyLimits
from gal.node.config.requests import IncomingRequest
from gal.node.store.state import State, TaskRecord
from gal.protocol import Message
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

    def intersection(self, asked: IncomingRequest, task: TaskRecord) -> None:
        """A step of a private set intersection: before a version begins, or (as predictions) after. Its rows
        may then be named once.
        """
        if task.terms.alignment != "psi":
            raise RefusedError("other-terms", f"the terms of {task.name!r} have no private set intersection")
        fields, version = asked.message.fields, asked.message.version
        step, n_rows = fields["step"], fields["n_rows"]
        points = asked.message.arrays.get("bytes", np.zeros(0, dtype=np.uint8))
        expected = n_rows * POINT if step == "response" else 0
        if len(points) != expected:  # as many blinded ids as are said, and will be charged
            raise RefusedError(
                "alignment",
                f"{self._name} was told of {n_rows} rows in the {step} of a private set intersection, and "
                f"{len(points)} bytes came instead of {expected}: begin it again",
            )
        beginning = self._state.version(task.id, version) is None
        if beginning:
            self._limits.check_begin(n_rows)
        else:
            self._limits.check_named(n_rows)
        if asked.own:
            return
        if step != "response":  # all rows are blinded for it, before anything was paid
            if self._count(asked, "setup", UNFINISHED):
                raise RefusedError(
                    "too-many-exchanges",
                    f"{self._name} was asked to begin {UNFINISHED} private set intersections about "
                    f"{task.name!r} and others today that were not gone on with: try again tomorrow",
                )
            return
        # A version needs one exchange to begin, a few where links break; more would be trying out ids.
        if beginning and self._count(asked, "psi", EXCHANGES):
            raise RefusedError(
                "too-many-exchanges",
                f"{self._name} takes part in at most {EXCHANGES} private set intersections a day before "
                f"{task.name!r} begins: try again tomorrow",
            )
        if not beginning:
            self._charge_rows(asked, n_rows)
            self._count_small(asked, n_rows)
        self._state.use_credit(f"setup {asked.peer}", self._today(), 1)
        self._state.spend_predictions(*exchanged_rows(asked), n_rows, sys.maxsize)

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
        spent = self._state.spend_predictions(f"unknown {asked.peer}", self._today(), 0, 0)
        if spent >= self._policy.unknown_ids_per_day:
            raise self._limits.too_many_unknown()
        if came == "psi" and not self._state.use_credit(*exchanged_rows(asked), n_rows):
            raise self._limits.not_exchanged()
        self._charge_rows(asked, n_rows)

    def predicted(self, asked: IncomingRequest, answer: Message) -> None:
        """Whether an answer may leave that says which ids are known here, and is on record before it does.

        With the budget for unknown ids spent nothing more is predicted that day: a refusal of only those with
        unknown ones would tell as much as an answer.
        """
        if asked.own:
            return
        known = answer.arrays["known"] == 1
        n_unknown, psi = int((~known).sum()), asked.message.fields["method"] == "psi"
        if n_unknown:
            limit, account = self._policy.unknown_ids_per_day, (f"unknown {asked.peer}", self._today())
            before = self._state.spend_predictions(*account, n_unknown, limit)
            if before + n_unknown > limit:
                self._state.spend_predictions(*account, limit - before, limit)
                raise self._limits.too_many_unknown()
            if psi:
                raise self._limits.not_exchanged()
        if not psi:  # there, the exchange was counted
            self._count_small(asked, n_different(asked, known, self._policy.min_rows))

    def failed(self, asked: IncomingRequest) -> None:
        """Computing failed, which it may do for known rows alone: it counts as a prediction about few of
        them, and who may ask for no more of these hears the same as of unknown ones.
        """
        if not asked.own and asked.message.fields["method"] != "psi":
            self._count_small(asked, 0)

    def _charge_rows(self, asked: IncomingRequest, n_rows: int) -> None:
        """Charge rows to the label holder's budget of the day; refused where it is spent."""
        limit = self._policy.predictions_per_day
        before = self._state.spend_predictions(asked.peer, self._today(), n_rows, limit)
        self._limits.check_predict(n_rows, before)

    def _count_small(self, asked: IncomingRequest, n_rows: int) -> None:
        """Few rows at once tell more of each of them, first of all whether it is known."""
        limit = self._policy.small_predictions_per_day
        if n_rows < self._policy.min_rows and self._count(asked, "small", limit):
            raise self._limits.too_small()

    def _count(self, asked: IncomingRequest, what: str, limit: int) -> bool:
        """Count one more of today; whether there were as many as the limit already."""
        return self._state.spend_predictions(f"{what} {asked.peer}", self._today(), 1, limit) >= limit

    def _today(self) -> str:
        return self._clock().date().isoformat()


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
