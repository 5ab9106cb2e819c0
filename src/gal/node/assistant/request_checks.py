"""Checks of a request against the terms, the version that has begun, and the policy.

Requests of the node to itself (``own``) are exempt from its policy. Every request is charged before its reply
reveals anything; a refused or repeated one stays charged.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment.psi import POINT
from gal.core.probes.kept_probes import SEEDS
from gal.core.rows import PROBE_FOLDS
from gal.errors import RefusedError
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.policy import PolicyLimits, is_finite
from gal.node.config.requests import IncomingRequest
from gal.node.store.files import folder_bytes
from gal.node.store.state import State, TaskRecord
from gal.node.store.stored_versions import AssistedVersion, Status
from gal.protocol import Message
from gal.protocol.messages import IDS

LOOK_AT_DISK = 5.0
"""Seconds for which the bytes on the disk are not counted again."""
BLOCK = 4096
"""Rows that are compared together."""
EXCHANGES = 20
"""Private set intersections before versions begin, at most, for one label holder and day (UTC)."""
UNFINISHED = 100
"""Private set intersections without their second step, at most, for one label holder and day."""


class RequestChecks:
    """Raises RefusedError, with a sentence for the label holder, where policy forbids a request."""

    def __init__(self, configuration: NodeConfiguration, state: State, clock: Callable[[], datetime]) -> None:
        self._name, self._policy = configuration.name, configuration.policy
        self._state, self._clock = state, clock
        self._limits = PolicyLimits(configuration.name, configuration.policy)
        self._disk: dict[str, tuple[float, int]] = {}
        """By label holder: when its bytes on the disk were counted, and how many they were."""

    def task(self, request: IncomingRequest) -> TaskRecord:
        """The task of a request, if this peer is its label holder."""
        task = self._state.get_task(request.message.task)
        mine = task is not None and task.role == "label holder"
        if task is None or mine != request.own or (not mine and task.label_holder != request.peer):
            raise RefusedError(
                "not-joined",
                f"{self._name} has joined no task {request.message.task} of yours: send its operator the "
                "invitation",
            )
        if not request.own:
            self._limits.check_peer(request.peer)
            if task.status != "open":
                raise RefusedError("left", f"{self._name} has left the task {task.name!r}")
        return task

    def version(self, request: IncomingRequest, task: TaskRecord, *allowed: Status) -> AssistedVersion:
        """The version of a request, if its status is one of the allowed ones."""
        fields, number = request.message.fields, request.message.version
        version = self._state.version(task.id, number)
        if version is None:
            raise RefusedError("not-begun", f"{self._name} has not begun version {number} of {task.name!r}")
        if version.status not in allowed:
            why = f"version {number} of {task.name!r} is {version.status} at {self._name}"
            raise RefusedError("ended", why)
        if "rows" in fields and fields["rows"] != version.rows:
            raise RefusedError(
                "other-rows",
                f"{self._name} and you do not mean the same rows in the same order ({version.rows} here, "
                f"{fields['rows']} there): nothing was computed. Learn a new version",
            )
        if fields.get("track") == "alone" and not request.own:
            raise RefusedError(
                "not-yours", "the baseline without assistance is for the label holder's own organization only"
            )
        return version

    def current(self, request: IncomingRequest, task: TaskRecord) -> None:
        """Whether the counts of today are known, which a restore can lose; not for stored replies."""
        restore = None if request.own else self._state.restored()
        if restore is not None and (why := restore.refusal(request.message.kind, self._today(), task.made)):
            raise RefusedError("restored", f"{self._name} {why}")

    # Session setup

    def begin(self, request: IncomingRequest, task: TaskRecord) -> None:
        """Whether a session setup is within the terms, and one more may be tried today."""
        terms, fields, arrays = task.terms, request.message.fields, request.message.arrays
        largest = {
            name: int(arrays[name].max(initial=-1)) for name in ("parts", "folds", "probes") if name in arrays
        }
        further, probe_folds = (SEEDS + terms.probes, PROBE_FOLDS) if terms.probes else (0, 0)
        agreements: tuple[tuple[str, Any, Any, bool], ...] = (
            ("terms", terms.digest, fields["terms"], False),
            ("outputs", terms.outputs, fields["n_outputs"], False),
            ("alignment", terms.alignment, fields["method"], False),
            ("rounds", terms.rounds, fields["rounds"], True),
            ("folds", terms.folds, largest.get("folds", 0) + 1, True),
            ("cross-validation folds", terms.cv_folds, largest.get("parts", -1) + 1, True),
            ("further rounds", further, fields.get("further", 0), True),
            ("folds of interaction probes", probe_folds, largest.get("probes", 0), True),
        )
        for what, agreed, found, may_be_less in agreements:
            if found != agreed and not (may_be_less and found < agreed):
                raise RefusedError(
                    "other-terms",
                    f"{self._name} agreed to other terms of {task.name!r}: {what} {agreed}, requested were "
                    f"{found}. Send its operator a new invitation",
                )
        if request.own:
            return
        self.disk(request)
        # Counted before any row is looked up: every refusal is the same, and is charged.
        if self._count(request, "begin", self._policy.refused_begins_per_day):
            raise self._limits.refusal("setups")
        n_rows = max((len(arrays[name]) for name in IDS if name in arrays), default=0)
        self._limits.check_named(n_rows)
        if terms.alignment == "psi" and not self._state.use_credit(*_exchanged(request), n_rows):
            raise self._limits.refusal("psi")

    def begun(self, request: IncomingRequest) -> None:
        """A session setup succeeded: it no longer counts as a refused one."""
        if not request.own:
            self._state.use_credit(f"begin {request.peer}", self._today(), 1)

    def intersection(self, request: IncomingRequest, task: TaskRecord) -> None:
        """A step of a private set intersection; the version or prediction after it may name its rows once."""
        if task.terms.alignment != "psi":
            raise RefusedError("other-terms", f"the terms of {task.name!r} have no private set intersection")
        fields = request.message.fields
        step, n_rows = fields["step"], fields["n_rows"]
        points = request.message.arrays.get("bytes", np.zeros(0, dtype=np.uint8))
        expected = n_rows * POINT if step == "response" else 0
        if len(points) != expected:  # rows are charged by the number in the message
            raise RefusedError(
                "alignment",
                f"{self._name} received {len(points)} bytes instead of {expected} for {n_rows} rows in the "
                f"{step} of a private set intersection: begin it again",
            )
        in_setup = self._state.version(task.id, request.message.version) is None
        (self._limits.check_begin if in_setup else self._limits.check_named)(n_rows)
        if request.own:
            return
        if step != "response":  # this step blinds all rows, before anything is charged
            if self._count(request, "setup", UNFINISHED):
                why = f"{self._name} has begun {UNFINISHED} private set intersections of one step today"
                raise RefusedError("too-many-exchanges", f"{why}: try again tomorrow")
            return
        # A version needs one exchange, a few where links break; more would be a search for known ids.
        if in_setup and self._count(request, "psi", EXCHANGES):
            why = f"{self._name} takes part in {EXCHANGES} private set intersections a day for new versions"
            raise RefusedError("too-many-exchanges", f"{why}: try again tomorrow")
        if not in_setup:
            self._charge_rows(request, n_rows)
            self._count_small(request, n_rows)
        self._state.use_credit(f"setup {request.peer}", self._today(), 1)
        self._state.spend_predictions(*_exchanged(request), n_rows, sys.maxsize)

    def disk(self, request: IncomingRequest) -> None:
        """Whether more may be kept for this label holder: views, models and replies of all its tasks."""
        now = time.monotonic()
        counted, used = self._disk.get(request.peer, (-math.inf, 0))
        if now - counted > LOOK_AT_DISK:
            tasks = [one.id for one in self._state.tasks("organization") if one.label_holder == request.peer]
            used = sum(folder_bytes(self._state.home / "tasks" / task) for task in tasks)
            self._disk[request.peer] = now, used
        if used >= (most := self._policy.disk_per_peer):
            raise self._limits.refusal("disk", most=most.human_readable(decimal=True))

    # Rounds

    def fit(self, request: IncomingRequest, version: AssistedVersion) -> None:
        """Whether a residual belongs to the agreed rows and rounds, and rests on enough rows."""
        fields, arrays = request.message.fields, request.message.arrays
        round, part = fields["round"], fields["part"]
        probe = fields.get("target", "residual") != "residual"
        if round > version.rounds + (version.further if probe else 0):
            why = f"{self._name} agreed to {version.rounds} rounds, not to round {round}"
            raise RefusedError("too-many-rounds", why)
        if probe and not request.own:
            self._limits.check_consent("probes")
        if part is not None and part >= len(version.without):
            raise RefusedError("other-terms", f"{self._name} has no cross-validation fold {part} here")
        n_fit = version.n_fit if part is None else version.without[part]
        residual, weight = arrays["residual"], arrays.get("sample_weight")
        _check_arrays(
            residual, weight, (version.n_probed if probe else n_fit, version.n_outputs), round, self._name
        )
        if request.own:
            return
        self.disk(request)
        # Weights or residuals of almost zero for all rows but a few would probe these. The worker, which
        # knows the folds, checks each fold's model in the same way.
        if part is None:
            self._limits.check_fit(version.fewest_probed if probe else version.fewest, round)
        self._limits.check_effective(residual, weight, round)
        # The fit of a cross-validation fold has a residual of its own: it reveals as much as a round.
        if self._count(request, "rounds", self._policy.rounds_per_label_holder, "ever"):
            raise self._limits.refusal("fits")

    # Predictions

    def rounds(self, request: IncomingRequest, task: TaskRecord, version: AssistedVersion) -> None:
        """Each round once, and only rounds that can exist: the size of the reply grows with them."""
        rounds = request.message.fields["rounds"]
        if max(rounds) > version.rounds + version.further:
            raise RefusedError("too-many-rounds", f"{task.name!r} has only {version.rounds} rounds")
        if len(set(rounds)) < len(rounds):
            raise RefusedError("repeated-rounds", "the same round is requested more than once")

    def predicted_rows(self, request: IncomingRequest, task: TaskRecord, n_models: int) -> None:
        """Whether a model predicts, and rows are named as agreed and not too many; charged for the day."""
        agreed, found = task.terms.alignment, request.message.fields["method"]
        if n_models == 0 and not request.own:  # before rows are looked up: only known ones would fail
            raise RefusedError("not-fitted", f"{self._name} has fitted none of these rounds of {task.name!r}")
        if found != agreed:
            raise RefusedError(
                "other-terms", f"{self._name} agreed to match rows by {agreed}, not by {found}"
            )
        if request.own:
            return
        n_rows = next((len(array) for array in request.message.arrays.values()), 0)
        if n_rows > self._policy.max_rows:
            raise self._limits.refusal("rows to predict")
        unknown = self._state.spend_predictions(f"unknown {request.peer}", self._today(), 0, 0)
        if unknown >= self._policy.unknown_ids_per_day:
            raise self._limits.refusal("unknown ids")
        if found == "psi" and not self._state.use_credit(*_exchanged(request), n_rows):
            raise self._limits.refusal("psi")
        self._charge_rows(request, n_rows)

    def predicted(self, request: IncomingRequest, reply: Message) -> None:
        """Whether a reply that reveals known ids may leave; recorded before it does.

        With the budget for unknown ids spent, every prediction of the day is refused: to refuse only those
        with unknown ids would tell as much as a reply.
        """
        if request.own:
            return
        known = reply.arrays["known"] == 1
        n_unknown, psi = int((~known).sum()), request.message.fields["method"] == "psi"
        if n_unknown:
            limit, account = self._policy.unknown_ids_per_day, (f"unknown {request.peer}", self._today())
            before = self._state.spend_predictions(*account, n_unknown, limit)
            if before + n_unknown > limit:
                self._state.spend_predictions(*account, limit - before, limit)
                raise self._limits.refusal("unknown ids")
            if psi:
                raise self._limits.refusal("psi")
        if not psi:  # there, the exchange was counted
            self._count_small(request, _n_different(request, known, self._policy.min_rows))

    def failed(self, request: IncomingRequest) -> None:
        """A failed computation, which can depend on known rows, counts as a prediction of few of them."""
        if not request.own and request.message.fields["method"] != "psi":
            self._count_small(request, 0)

    def _charge_rows(self, request: IncomingRequest, n_rows: int) -> None:
        limit = self._policy.predictions_per_day
        before = self._state.spend_predictions(request.peer, self._today(), n_rows, limit)
        if n_rows > (left := max(limit - before, 0)):
            raise self._limits.refusal("predictions", left=left, n_rows=n_rows)

    def _count_small(self, request: IncomingRequest, n_rows: int) -> None:
        """Few rows in one request reveal more of each, above all whether it is known."""
        if n_rows < self._policy.min_rows and self._count(
            request, "small", self._policy.small_predictions_per_day
        ):
            raise self._limits.refusal("small predictions")

    def _count(self, request: IncomingRequest, kind: str, limit: int, day: str = "") -> bool:
        """Count one more of a day (default: today); True where the limit had been reached."""
        return (
            self._state.spend_predictions(f"{kind} {request.peer}", day or self._today(), 1, limit) >= limit
        )

    def _today(self) -> str:
        return self._clock().date().isoformat()


def _check_arrays(
    residual: NDArray[Any], weight: NDArray[Any] | None, expected: tuple[int, int], round: int, name: str
) -> None:
    """Whether a residual and its weights have the expected shape and finite numbers."""
    if residual.shape != expected:
        raise RefusedError(
            "wrong-shape",
            f"round {round}: the residual for {name} has shape {residual.shape}, expected {expected}: rows "
            "to fit x outputs",
        )
    if weight is not None and not (
        weight.shape == expected[:1] and np.isfinite(weight).all() and (weight >= 0).all()
    ):
        why = f"round {round}: sample weights must be {expected[0]} finite numbers >= 0"
        raise RefusedError("wrong-shape", why)
    if not is_finite(residual):
        raise RefusedError("not-finite", f"round {round}: the residual for {name} has NaN or infinite values")


def _exchanged(request: IncomingRequest) -> tuple[str, str]:
    """The account of rows from private set intersections that may still be named."""
    return f"exchanged {request.peer}", f"{request.message.task} {request.message.version}"


def _n_different(request: IncomingRequest, chosen: NDArray[np.bool_], enough: int) -> int:
    """The number of different rows among the chosen ones of a request, counted up to ``enough``."""
    tokens = next(request.message.arrays[name] for name in IDS if name in request.message.arrays)
    found: set[Any] = set()
    for start in range(0, len(tokens), BLOCK):
        block = tokens[start : start + BLOCK][chosen[start : start + BLOCK]]
        found.update(map(bytes, block) if block.ndim == 2 else block.tolist())
        if len(found) >= enough:
            break
    return len(found)


def agreed_version(request: IncomingRequest, reply: Message, **more: Any) -> AssistedVersion:
    """The stored facts of a version, with ``more``, against which later requests are checked."""
    fields, arrays = request.message.fields, request.message.arrays
    known, none = reply.arrays["known"] == 1, np.zeros(0, dtype=np.int32)
    parts, probes = (arrays[name][known] if name in arrays else none for name in ("parts", "probes"))
    folds = arrays["folds"][known] if "folds" in arrays else arrays["fit"][known].astype(np.int32) - 1
    return AssistedVersion(
        request=request.digest,
        rows=reply.fields["rows"],
        n_rows=reply.fields["n_rows"],
        n_fit=int((arrays["fit"][known] == 1).sum()),
        fewest=_fewest(folds),
        n_probed=int((probes > 0).sum()),
        fewest_probed=_fewest(probes - 1),
        without=[int((parts != part).sum()) for part in range(int(parts.max(initial=-1)) + 1)],
        n_outputs=fields["n_outputs"],
        rounds=fields["rounds"],
        further=fields.get("further", 0),
        organization=fields["organization"],
        **more,
    )


def _fewest(folds: NDArray[Any]) -> int:
    """The fewest rows of a fit: without one of the folds, or all of one. Numbers below 0 are not fitted."""
    sizes = np.bincount(folds[folds >= 0])
    return int(sizes.sum() - (sizes.max(initial=0) if len(sizes) > 1 else 0))
