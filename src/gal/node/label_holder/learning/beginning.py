"""How a version begins: every organization says which rows it knows, and both sides mean the same ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gal.errors import AlignmentError, TaskError
from gal.node.config.requests import role_arrays
from gal.node.label_holder.learning.gathering import OpenVersion
from gal.node.label_holder.shared_rows import Asking, SharedRows, shared_positions
from gal.node.store.files import read_whole, write_whole
from gal.node.store.stored_replies import StoredReply
from gal.protocol import Encoded, Message, decode, prepare
from gal.transport import Received

AGAIN = 0.2
"""Seconds before somebody who did not answer is asked again."""

BEGIN = 0
"""The step in which organizations say which rows they know; never closed: what resumes asks the others."""


class Beginning:
    """Agrees with organizations on the rows of a version: before the first round."""

    def __init__(self, version: OpenVersion) -> None:
        self._version = version
        self.shared: dict[str, SharedRows] = {}
        """By organization: the rows that it knows."""

    def begin(self) -> None:
        """Agree with everybody who is there; wait for the others, unless that was done in vain before."""
        self._reload()
        version, join = self._version, self._version.patience.join
        if version.own_name not in self.shared:
            asking = Asking(np.arange(len(version.rows.ids)))
            encoded = self._message(version.own_name, asking)
            self._keep(version.own_name, asking, encoded, version.ask_own(encoded))
        until = time.monotonic() + join
        if missing := [name for name in self._missing() if name not in version.present()]:
            version.report_waiting("to connect", missing, join)
        while missing := self._missing():
            version.check_stopping()
            # Who did not answer, such as one that was killed meanwhile, is asked again while there is time.
            if here := [name for name in missing if name in version.present()]:
                self._ask(here)
            missing = self._missing()
            if time.monotonic() >= until or not set(missing) - version.absent:
                break
            version.wait(lambda: False, AGAIN)
        version.absent = set(missing)
        version.check_quorum(len(self.shared), missing)
        if missing:
            version.report("absent", organizations=missing)

    def _missing(self) -> list[str]:
        return [name for name in self._version.invited if name not in self.shared]

    def _reload(self) -> None:
        """What organizations said of their rows before this learning was interrupted."""
        version = self._version
        for reply in version.replies.of(BEGIN):
            name = reply.organization
            data = None if reply.file is None else read_whole(version.folder / reply.file, reply.digest or "")
            if data is None:
                version.replies.drop(BEGIN, reply)
                continue
            positions = np.arange(len(version.rows.ids))
            if (kept := self._positions_of(name)).exists():
                positions = np.fromfile(kept, dtype=np.int64).astype(np.intp)
            self.shared[name] = Asking(positions).shared(decode(data), name, version.task.rows)

    def _positions_of(self, name: str) -> Path:
        """The file with the rows of a private set intersection; without one all rows are asked about."""
        return self._version.folder / f"asked-{name}.positions"

    # Asking

    def _ask(self, names: Sequence[str]) -> None:
        """Ask these organizations which rows they know; one that refuses must be sorted out by people."""
        version, assistants, task = self._version, self._version.node.assistants, self._version.record.name
        seconds = version.patience.deadline
        without = f"or go on without it: gal invite {task} NAME --withdraw"
        try:
            askings = {name: asking for name in names if (asking := self._asking(name, seconds)) is not None}
            encoded = {name: self._message(name, asking) for name, asking in askings.items()}
            pendings = {name: assistants.post(name, one) for name, one in encoded.items()}
            version.report_waiting("to find the shared rows", list(pendings), seconds)
            try:
                version.wait(lambda: all(one.done.is_set() for one in pendings.values()), seconds)
            finally:
                assistants.give_up(pendings.values())
            refused = {}
            for name, pending in pendings.items():
                if pending.answer is not None and (why := pending.refusal("begun", seconds)):
                    refused[name] = why
                elif pending.answer is not None:
                    self._keep(name, askings[name], encoded[name], pending.answer)
        except AlignmentError as error:
            raise AlignmentError(f"{error} Then gal learn {task}, {without}") from error
        if refused:
            said = "; ".join(f"{name} {why}" for name, why in refused.items())
            raise TaskError(f"{said}. Sort it out and gal learn {task}, {without}")

    def _asking(self, name: str, seconds: float) -> Asking | None:
        """Which rows an organization is asked about: all, or those of a private set intersection."""
        version = self._version
        if version.terms.alignment != "psi":
            return Asking(np.arange(len(version.rows.ids)))
        version.report_waiting("for a private set intersection", [name], seconds)
        ids, task = version.rows.ids, version.record
        positions = shared_positions(version.node.assistants, name, task.id, version.number, ids, seconds)
        if positions is not None and len(positions) == 0:
            raise AlignmentError(
                f"{name} knows none of your {len(ids)} rows: it cannot help. Check that row_id names the "
                "same kind of id at both, written in the same way."
            )
        return None if positions is None else Asking(positions)

    def _message(self, name: str, asking: Asking) -> Encoded:
        version, task = self._version, self._version.task
        fields, ids = asking.ids(version.rows.ids, version.terms.alignment, version.node.configuration)
        fields |= {
            "terms": version.terms.digest,
            "organization": name,
            "n_outputs": task.loss.n_outputs,
            "rounds": task.rounds,
            "seed": task.seed,
        }
        if task.further:
            fields["further"] = task.further
        arrays = ids | {role: values[asking.positions] for role, values in role_arrays(task.rows).items()}
        return prepare(Message("begin", version.record.id, version.number, "begin", fields, arrays))

    def message(self, name: str) -> Message:
        """What an organization is asked that is asked about all rows."""
        return self._message(name, Asking(np.arange(len(self._version.rows.ids)))).message

    def _keep(self, name: str, asking: Asking, encoded: Encoded, begun: Encoded | Received) -> None:
        """Check that both mean the same rows in the same order, and remember which."""
        version = self._version
        shared = asking.shared(begun.message, name, version.task.rows)
        asking.check(begun.message, encoded.message, name, version.terms.alignment)
        if version.terms.alignment == "psi":
            write_whole(self._positions_of(name), asking.positions.astype(np.int64).data, durably=True)
        file = f"begun-{name}.arrow"
        digest = write_whole(version.folder / file, begun.data)
        version.replies.put(BEGIN, StoredReply(0, name, encoded.digest, file, digest, None))
        self.shared[name] = shared
        version.report("rows", organization=name, known=shared.n_known, unknown=shared.n_unknown)
