"""Whether a request may be asked: against what was agreed, what has begun, and
the policy of this organization.

For the node's own tasks (``own``) its policy does not count.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.probes.kept_probes import SEEDS
from gal.core.rows import PROBE_FOLDS
from gal.errors import RefusedError
from gal.node.assistant.prediction_checks import exchanged_rows, n_named
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.effective_rows import check_effective, is_finite
from gal.node.config.policy import PolicyLimits
from gal.node.config.requests import IncomingRequest
from gal.node.store.files import folder_bytes
from gal.node.store.state import State, TaskRecord
from gal.node.store.stored_versions import AssistedVersion, Status
from gal.protocol import Message

LOOK_AT_DISK = 5.0
"""Seconds for which bytes on the disk are not counted again."""


class RequestChecks:
    """Refuses what may not be asked; RefusedError says why in a sentence for the label holder."""

    def __init__(self, configuration: NodeConfiguration, state: State, clock: Callable[[], datetime]) -> None:
        self._name, self._policy = configuration.name, configuration.policy
        self._state, self._clock = state, clock
        self._limits = PolicyLimits(configuration.name, configuration.policy)
        self._disk: dict[str, tuple[float, int]] = {}
        """By label holder: when its bytes on the disk were counted, and how many they were."""

    def task(self, asked: IncomingRequest) -> TaskRecord:
        """The task asked about, if this peer is its label holder."""
        task = self._state.get_task(asked.message.task)
        mine = task is not None and task.role == "label holder"
        if task is None or mine != asked.own or (not mine and task.label_holder != asked.peer):
            raise RefusedError(
                "not-joined",
                f"{self._name} has joined no task {asked.message.task} of yours: send its operator the "
                "invitation",
            )
        if asked.own:
            return task
        self._limits.check_peer(asked.peer)
        if task.status != "open":
            raise RefusedError("left", f"{self._name} has left the task {task.name!r}")
        return task

    def version(self, asked: IncomingRequest, task: TaskRecord, *allowed: Status) -> AssistedVersion:
        """The version asked about, if it is in a state in which this can be asked."""
        fields, number = asked.message.fields, asked.message.version
        version = self._state.version(task.id, number)
        if version is None:
            raise RefusedError("not-begun", f"{self._name} has not begun version {number} of {task.name!r}")
        if version.status not in allowed:
            raise RefusedError(
                "ended", f"version {number} of {task.name!r} is {version.status} at {self._name}"
            )
        if "rows" in fields and fields["rows"] != version.rows:
            raise RefusedError(
                "other-rows",
                f"{self._name} and you do not mean the same rows in the same order ({version.rows} here, "
                f"{fields['rows']} there): nothing was computed. Learn a new version",
            )
        if fields.get("track") == "alone" and not asked.own:
            raise RefusedError(
                "not-yours", "only a label holder's own organization is asked for its model alone"
            )
        return version

    def current(self, asked: IncomingRequest, task: TaskRecord) -> None:
        """Whether it is known what is still allowed, after a restore; not asked for answers that are kept."""
        restore = None if asked.own else self._state.restored()
        why = "" if restore is None else restore.refusal(asked.message.kind, self._today(), task.made)
        if why:
            raise RefusedError("restored", f"{self._name} {why}")

    # Beginning

    def begin(self, asked: IncomingRequest, task: TaskRecord) -> None:
        """Whether this is what the operator agreed to."""
        terms, fields, arrays = task.terms, asked.message.fields, asked.message.arrays
        numbers = {
            name: int(arrays[name].max(initial=-1)) for name in ("parts", "folds", "probes") if name in arrays
        }
        allowed, most = (SEEDS + terms.signs, PROBE_FOLDS) if terms.signs else (0, 0)
        agreements: tuple[tuple[str, Any, Any, bool], ...] = (
            ("terms", terms.digest, fields["terms"], False),
            ("outputs", terms.outputs, fields["n_outputs"], False),
            ("alignment", terms.alignment, fields["method"], False),
            ("rounds", terms.rounds, fields["rounds"], True),
            ("folds", terms.folds, numbers.get("folds", 0) + 1, True),
            ("parts", terms.parts, numbers.get("parts", -1) + 1, True),
            ("further rounds", allowed, fields.get("further", 0), True),
            ("folds of interaction probes", most, numbers.get("probes", 0), True),
        )
        for what, agreed, came, may_be_less in agreements:
            if came != agreed and not (may_be_less and came < agreed):
                raise RefusedError(
                    "other-terms",
                    f"{self._name} agreed to other terms of {task.name!r}: {what} {agreed}, asked for "
                    f"{came}. Send its operator a new invitation",
                )
        if not asked.own:
            self.disk(asked)
            # Counted before anything is looked up: what a refusal tells is the same, and has been paid for.
            limit = self._policy.refused_begins_per_day
            if self._state.spend_predictions(f"begin {asked.peer}", self._today(), 1, limit) >= limit:
                raise self._limits.too_many_begins()
            self._limits.check_named(n_named(asked))
            psi, named = terms.alignment == "psi", n_named(asked)
            if psi and not self._state.use_credit(*exchanged_rows(asked), named):
                raise self._limits.not_exchanged()

    def disk(self, asked: IncomingRequest) -> None:
        """Whether more may be kept for this label holder: views, models and answers of all its tasks."""
        now = time.monotonic()
        looked, used = self._disk.get(asked.peer, (-math.inf, 0))
        if now - looked > LOOK_AT_DISK:
            tasks = [one.id for one in self._state.tasks("organization") if one.label_holder == asked.peer]
            used = sum(folder_bytes(self._state.home / "tasks" / task) for task in tasks)
            self._disk[asked.peer] = now, used
        self._limits.check_disk(used)

    def begun(self, asked: IncomingRequest) -> None:
        """A beginning succeeded: it does not count as one that was refused."""
        if not asked.own:
            self._state.use_credit(f"begin {asked.peer}", self._today(), 1)

    def _today(self) -> str:
        return self._clock().date().isoformat()

    # Rounds

    def fit(self, asked: IncomingRequest, version: AssistedVersion) -> None:
        """Whether a residual is one of the rows and rounds that were agreed on."""
        fields, arrays = asked.message.fields, asked.message.arrays
        round, part = fields["round"], fields["part"]
        beyond = fields.get("target", "residual") != "residual"
        if round > version.rounds + (version.further if beyond else 0):
            raise RefusedError(
                "too-many-rounds", f"{self._name} agreed to {version.rounds} rounds, not to round {round}"
            )
        if beyond and not asked.own:
            self._limits.check_interactions()
        if part is not None and part >= len(version.without):
            raise RefusedError("other-terms", f"{self._name} knows no part {part} of a cross-validation here")
        n_fit = version.n_fit if part is None else version.without[part]
        n_fit = version.n_probed if beyond else n_fit
        _check_arrays(arrays, (n_fit, version.n_outputs), f"round {round}", self._name)
        if not asked.own:
            self.disk(asked)
            # Weighing all rows but a few away, or residuals of almost zero for them, would be probing.
            # Where there are folds, the process that knows them looks at each model's rows by themselves.
            if part is None:
                folded = version.fewest_probed if beyond else version.fewest
                self._limits.check_fit(folded, round)
            check_effective(self._limits, arrays["residual"], arrays.get("sample_weight"), round)
            # A part of a cross-validation is a fit to a residual of its own: it tells as much as a round.
            limit = self._policy.rounds_per_label_holder
            before = self._state.spend_predictions(f"rounds {asked.peer}", "ever", 1, limit)
            self._limits.check_rounds_left(before)

    def rounds(self, asked: IncomingRequest, task: TaskRecord, version: AssistedVersion) -> None:
        """Each round once, and only those that there can be: the answer grows with them."""
        rounds = asked.message.fields["rounds"]
        if max(rounds) > version.rounds + version.further:
            raise RefusedError(
                "too-many-rounds", f"{task.name!r} has {version.rounds} rounds at {self._name}"
            )
        if len(set(rounds)) < len(rounds):
            raise RefusedError("repeated-rounds", "the same round is asked for more than once")

    def fitted(self, asked: IncomingRequest, task: TaskRecord, n_models: int) -> None:
        """Whether a model predicts at all. Said before rows are looked for: only known ones would fail."""
        if n_models == 0 and not asked.own:
            raise RefusedError("not-fitted", f"{self._name} has fitted none of these rounds of {task.name!r}")


def _check_arrays(
    arrays: Mapping[str, NDArray[Any]], expected: tuple[int, int], where: str, name: str
) -> None:
    """Whether a residual and the weights of its rows are as many finite numbers as there must be."""
    residual, weight = arrays["residual"], arrays.get("sample_weight")
    if residual.shape != expected:
        raise RefusedError(
            "wrong-shape",
            f"{where}: the residual for {name} has shape {residual.shape}, expected {expected}: rows to fit "
            "x outputs",
        )
    fine = weight is None or (
        weight.shape == expected[:1] and np.isfinite(weight).all() and (weight >= 0).all()
    )
    if not fine:
        said = f"{where}: sample weights must be {expected[0]} finite numbers >= 0"
        raise RefusedError("wrong-shape", said)
    if not is_finite(residual):
        raise RefusedError("not-finite", f"{where}: the residual for {name} has NaN or infinite values")


def agreed_version(asked: IncomingRequest, answer: Message, **more: Any) -> AssistedVersion:
    """What is remembered of a version, with ``more``: all that later requests are checked against."""
    fields, arrays = asked.message.fields, asked.message.arrays
    known = answer.arrays["known"] == 1
    nobody = np.zeros(0, dtype=np.int32)
    parts, probes = (arrays[name][known] if name in arrays else nobody for name in ("parts", "probes"))
    folds = arrays["folds"][known] if "folds" in arrays else arrays["fit"][known].astype(np.int32) - 1
    return AssistedVersion(
        request=asked.digest,
        rows=answer.fields["rows"],
        n_rows=answer.fields["n_rows"],
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
    """The fewest rows on which a model is fitted: without one of the folds, or all of one. Rows with a number
    below 0 are not fitted.
    """
    sizes = np.bincount(folds[folds >= 0])
    return int(sizes.sum() - (sizes.max(initial=0) if len(sizes) > 1 else 0))
