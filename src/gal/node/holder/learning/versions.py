"""The versions of a label holder's tasks: opened, begun, finished or given up; and what is kept of each."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.state import Ensemble, plain
from gal.errors import AlignmentError, TaskError
from gal.node.holder.closing_files import write_closing, write_own_closing
from gal.node.holder.holder_node import HOLDER, HolderNode, drop_files
from gal.node.holder.labels.label_guard import LabelGuard, refit_facts
from gal.node.holder.labels.label_privacy import privacy_facts, privacy_of
from gal.node.holder.labels.labelled_tasks import (
    LabelledRows,
    check_terms,
    in_order_of_ids,
    labels_of_task,
    learning_task,
    read_labelled,
    read_version,
    write_version,
)
from gal.node.holder.learning.gathering import OpenVersion
from gal.node.holder.learning.learning import Learning
from gal.node.holder.version_facts import validated_loss, version_facts
from gal.node.store.state import TaskRecord
from gal.node.store.stored_versions import LearnedVersion, LearningOutcome
from gal.privacy.own_model import all_rounds
from gal.protocol import Message, prepare
from gal.secrecy.terms import SUM


class Versions:
    """What becomes of the versions of a label holder's tasks."""

    def __init__(self, node: HolderNode, guard: LabelGuard) -> None:
        self._node, self._guard = node, guard

    # Opening

    def interrupted(self, record: TaskRecord) -> int:
        """The version to go on with."""
        open_ones = self._open(record)
        if not open_ones:
            raise TaskError(
                f"there is nothing to resume of {record.name!r}: gal learn {record.name} starts a new version"
            )
        return open_ones[-1]

    def next(self, record: TaskRecord, *, anew: bool) -> int:
        """The number of a new version; ``anew`` gives up those that were interrupted."""
        open_ones = self._open(record)
        if open_ones and not anew:
            raise TaskError(
                f"version {open_ones[-1]} of {record.name!r} was interrupted: go on with gal learn "
                f"{record.name} --resume, or give it up with --anew"
            )
        for number in open_ones:
            self._abandon(record, number)
        return max(self._node.state.statuses(record.id, HOLDER), default=0) + 1

    def _open(self, record: TaskRecord) -> list[int]:
        statuses = self._node.state.statuses(record.id, HOLDER)
        return [number for number, status in statuses.items() if status == "begun"]

    def _abandon(self, record: TaskRecord, number: int) -> None:
        version = self._node.state.learned_version(record.id, number)
        if version is not None:
            self._node.state.put_version(record.id, number, replace(version, status="abandoned"))
        drop_files(self._node.state, record, number)

    def open(self, version: OpenVersion) -> None:
        """Begin a new version, once enough organizations are there; it can be resumed when this returns."""
        node, record = self._node, version.record
        moving = version.connect()
        if node.worker("describe")[0]["moving"]:
            moving = sorted([*moving, node.name])
        rows = read_labelled(node.configuration)
        if privacy_of(record.options).mechanism != "none":
            rows = in_order_of_ids(rows)
        check_terms(node.configuration, record, rows, moving)
        write_version(version.folder, rows, [*version.invited, node.name], moving)
        try:
            self.reopen(version)
        except BaseException:  # nothing was sent, and nothing is there to resume
            drop_files(node.state, record, version.number)
            raise
        self._begin(version)

    def reopen(self, version: OpenVersion) -> None:
        """Begin from the files of a version; what it tells of the labels is drawn, kept and charged then."""
        node, record = self._node, version.record
        version.rows, organizations, moving = read_version(version.folder)
        version.labels = labels_of_task(record.options, version.rows.y)
        others = [name for name in organizations if name != node.name]
        seen = self._guard.protect(record, version.number, version.rows.ids, version.labels, others)
        version.task = learning_task(node.configuration, record.options, seen, organizations, moving)
        version.among = frozenset(others)

    def narrow(self, version: OpenVersion, common: NDArray[np.bool_]) -> None:
        """Go on with a new version of the rows that everybody knows: learning from sums needs that."""
        record, before, kept = version.record, version.rows, np.flatnonzero(common)
        if not len(kept):
            raise AlignmentError(f"there is no row that all organizations of {record.name!r} know")
        rows = LabelledRows(before.ids.take(kept), before.y[kept], before.n_without)
        check_terms(self._node.configuration, record, rows)
        _, organizations, moving = read_version(version.folder)
        self._abandon(record, version.number)
        version.number += 1
        version.report("narrowed", n_rows=len(kept), of=len(common))
        write_version(version.folder, rows, organizations, moving)
        self.reopen(version)
        self._begin(version)

    def _begin(self, version: OpenVersion) -> None:
        """From here on the version can be resumed."""
        node, record = self._node, version.record
        privacy = privacy_facts(node.ledger, node.configuration, privacy_of(record.options))
        n_rows, n_without = len(version.rows.ids), version.rows.n_without
        begun = LearnedVersion(n_rows=n_rows, n_without_label=n_without, started=_now(), privacy=privacy)
        node.state.put_version(record.id, version.number, begun)
        version.on_event({"event": "privacy"} | privacy)

    # Ending

    def finish(
        self, learning: Learning, ensemble: Ensemble, seconds: float, *, activate: bool
    ) -> dict[str, Any]:
        """Remember what was learned, and let everybody know that this version is over."""
        version, state = learning.version, self._node.state
        record, labels = version.record, version.labels
        private = privacy_of(record.options).mechanism != "none"
        if private and learning.reached is not None:
            ensemble = all_rounds(ensemble, learning.reached)
        outcome = LearningOutcome(
            ensemble=plain(ensemble),
            classes=None if labels.classes is None else labels.classes.tolist(),
            loss=labels.loss.name,
            finished=_now(),
            seconds=round(seconds, 3),
            known_rows={name: shared.n_known for name, shared in learning.shared.items()},
            unknown_rows={name: shared.n_unknown for name, shared in learning.shared.items()},
            closing=write_closing(state, record.id, version.number, ensemble),
        )
        finished = replace(self._stored(version), status="finished", outcome=outcome)
        if private:  # sent first: when it is sent must not depend on the true labels
            self._send_end(learning, ensemble, others=True)
            own = learning.own_model()
            refit = refit_facts(version.task, labels, learning.reached, learning.moved, ensemble, own)
            kept = write_own_closing(state, record.id, version.number, None if own is None else own.ensemble)
            finished = replace(finished, refit=refit | kept)
            self._send_end(learning, ensemble, others=False, own_rounds=own is not None)
        active = state.find_task(record.id, HOLDER).active
        old = state.learned_version(record.id, active) if active else None
        why = "" if activate else why_not_active(outcome, old, active)
        state.put_version(record.id, version.number, finished, activate=not why)
        if not private:
            self._send_end(learning, ensemble, others=True)
            self._send_end(learning, ensemble, others=False)
        drop_files(state, record, version.number)
        decided = {"active": active if why else version.number, "why_not_active": why}
        return version_facts(record, version.number, finished) | decided

    def _stored(self, version: OpenVersion) -> LearnedVersion:
        found = self._node.state.learned_version(version.record.id, version.number)
        if found is None:
            raise TaskError(
                f"version {version.number} of {version.record.name!r} is not on record any more: was the "
                "task forgotten?"
            )
        return found

    def _send_end(
        self, learning: Learning, ensemble: Ensemble, *, others: bool, own_rounds: bool = False
    ) -> None:
        """Say which rounds are used, to the others or to its own organization; an organization that is not
        there hears of it with the next version. ``own_rounds``: its own are, as a model by itself.
        """
        version, assistants = learning.version, self._node.assistants
        asked = set(ensemble.asked()) | ({version.own_name} if own_rounds else set())
        asked |= set(ensemble.summed) if SUM in asked else set()
        kept = {True: max(len(ensemble.asked_rounds), 1), False: 0}
        about = "end", version.record.id, version.number, "end"
        messages = {
            name: prepare(Message(*about, {"kept": kept[name in asked]}))
            for name in learning.shared
            if (name != version.own_name) == others
        }
        if not others:
            for one in messages.values():
                version.ask_own(one)
            return
        here = version.present()
        pendings = [assistants.post(name, one) for name, one in messages.items() if name in here]
        assistants.wait_for(lambda: all(one.done.is_set() for one in pendings), 10.0)
        assistants.give_up(pendings)


def why_not_active(new: LearningOutcome, old: LearnedVersion | None, active: int) -> str:
    """Why a version is not to predict instead of the active one: it is validated worse. Empty: it is to."""
    if old is None or old.outcome is None or old.outcome.loss != new.loss:
        return ""
    before, now = validated_loss(old.outcome), validated_loss(new)
    if before is None or now is None or now <= before:
        return ""
    return f"its validated loss is {now:.6g}, that of version {active} is {before:.6g}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
