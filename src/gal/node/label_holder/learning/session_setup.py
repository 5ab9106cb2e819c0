"""Session setup: the label holder and each organization agree on the rows of a version."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gal.errors import AlignmentError, TaskError
from gal.node.config.requests import role_arrays
from gal.node.label_holder.learning.open_version import OpenVersion
from gal.node.label_holder.shared_rows import NamedRows, SharedRows, shared_positions
from gal.node.store.files import read_whole, write_whole
from gal.node.store.stored_replies import StoredReply
from gal.protocol import Encoded, Message, decode, prepare
from gal.transport import Received

AGAIN = 0.2
"""Seconds before an organization without a reply gets the request again."""

SETUP = 0
"""The step of session setups; never closed: a resumed version requests the missing ones."""


class SessionSetup:
    """Which rows each organization knows, before the first round."""

    def __init__(self, version: OpenVersion) -> None:
        self._version = version
        self.shared: dict[str, SharedRows] = {}
        """By organization: the rows that it knows."""

    def run(self) -> None:
        """Set up all connected organizations; wait for others, unless that was in vain before."""
        self._reload()
        version, join = self._version, self._version.patience.join
        if version.own_name not in self.shared:
            named = NamedRows(np.arange(len(version.rows.ids)))
            encoded = self._message(version.own_name, named)
            self._keep(version.own_name, named, encoded, version.own_reply(encoded))
        until = time.monotonic() + join
        if missing := [name for name in self._missing() if name not in version.present()]:
            version.report_waiting("to connect", missing, join)
        while missing := self._missing():
            version.check_stopping()
            # One that did not reply, such as after a restart, gets the request again while there is time.
            if here := [name for name in missing if name in version.present()]:
                self._request(here)
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
        """Take up the replies from before an interruption."""
        version = self._version
        for reply in version.replies.of(SETUP):
            name = reply.organization
            data = None if reply.file is None else read_whole(version.folder / reply.file, reply.digest or "")
            if data is None:
                version.replies.drop(SETUP, reply)
                continue
            positions = np.arange(len(version.rows.ids))
            if (kept := self._positions_of(name)).exists():
                positions = np.fromfile(kept, dtype=np.int64).astype(np.intp)
            self.shared[name] = NamedRows(positions).shared(decode(data), name, version.task.rows)

    def _positions_of(self, name: str) -> Path:
        """The file with the rows of a private set intersection; without one all rows are named."""
        return self._version.folder / f"asked-{name}.positions"

    def _request(self, names: Sequence[str]) -> None:
        """Have these organizations find their rows; a refusal needs the operators."""
        version, assistants, task = self._version, self._version.node.assistants, self._version.record.name
        seconds = version.patience.deadline
        without = f"or go on without it: gal invite {task} NAME --withdraw"
        refused = {}
        try:
            named_by = {name: named for name in names if (named := self._named(name, seconds)) is not None}
            encoded = {name: self._message(name, named) for name, named in named_by.items()}
            with assistants.requesting(encoded) as pendings:
                version.report_waiting("to find the shared rows", list(pendings), seconds)
                version.wait(lambda: all(one.done.is_set() for one in pendings.values()), seconds)
            for name, pending in pendings.items():
                if pending.reply is not None and (why := pending.failure("begun", seconds)):
                    refused[name] = why
                elif pending.reply is not None:
                    self._keep(name, named_by[name], encoded[name], pending.reply)
        except AlignmentError as error:
            raise AlignmentError(f"{error} Then gal learn {task}, {without}") from error
        if refused:
            reasons = "; ".join(f"{name} {why}" for name, why in refused.items())
            raise TaskError(
                f"{reasons.rstrip('.')}. Correct this, then gal learn {task} (after a "
                f"change of your own data with --anew), {without}"
            )

    def _named(self, name: str, seconds: float) -> NamedRows | None:
        """The rows that an organization gets named: all, or those of a private set intersection."""
        version = self._version
        if version.terms.alignment != "psi":
            return NamedRows(np.arange(len(version.rows.ids)))
        version.report_waiting("for a private set intersection", [name], seconds)
        ids, task = version.rows.ids, version.record
        positions = shared_positions(version.node.assistants, name, task.id, version.number, ids, seconds)
        if positions is not None and len(positions) == 0:
            raise AlignmentError(
                f"{name} knows none of your {len(ids)} rows: it cannot help. Check that row_id names the "
                "same kind of id at both, written in the same way."
            )
        return None if positions is None else NamedRows(positions)

    def _message(self, name: str, named: NamedRows) -> Encoded:
        version, task = self._version, self._version.task
        fields, ids = named.ids(version.rows.ids, version.terms.alignment, version.node.configuration)
        fields |= {
            "terms": version.terms.digest,
            "organization": name,
            "n_outputs": task.loss.n_outputs,
            "rounds": task.rounds,
            "seed": task.seed,
        }
        if task.further:
            fields["further"] = task.further
        arrays = ids | {role: values[named.positions] for role, values in role_arrays(task.rows).items()}
        return prepare(Message("begin", version.record.id, version.number, "begin", fields, arrays))

    def message(self, name: str) -> Message:
        """The request that names all rows."""
        return self._message(name, NamedRows(np.arange(len(self._version.rows.ids)))).message

    def _keep(self, name: str, named: NamedRows, encoded: Encoded, begun: Encoded | Received) -> None:
        """Check that both sides mean the same rows in the same order, and store which."""
        version = self._version
        shared = named.shared(begun.message, name, version.task.rows)
        named.check(begun.message, encoded.message, name, version.terms.alignment)
        if version.terms.alignment == "psi":
            write_whole(self._positions_of(name), named.positions.astype(np.int64).data, durably=True)
        file = f"begun-{name}.arrow"
        digest = write_whole(version.folder / file, begun.data)
        version.replies.put(SETUP, StoredReply(0, name, encoded.digest, file, digest, None))
        self.shared[name] = shared
        version.report("rows", organization=name, known=shared.n_known, unknown=shared.n_unknown)
