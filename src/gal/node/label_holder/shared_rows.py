"""Rows that two organizations share, as messages, with stand-ins for rows unknown to one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds, row_digest, secret_digest
from gal.core.requests import FitRequest, PredictRequest, Request
from gal.core.rows import Rows
from gal.core.task import Task
from gal.errors import AlignmentError, InvalidMessageError, RefusedError
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.requests import secret_of, token_arrays
from gal.node.label_holder.assistants import Assistants
from gal.node.store.state import TaskRecord
from gal.protocol import Message, prepare
from gal.protocol.messages import IDS

Bools = NDArray[np.bool_]
Floats32 = NDArray[np.float32]


@dataclass(frozen=True)
class SharedRows:
    """The label holder's rows that an organization knows, and the digest of their order."""

    known: Bools
    """Shape (n,), of all rows of the task."""
    digest: str

    @cached_property
    def n_known(self) -> int:
        return int(np.count_nonzero(self.known))

    @property
    def n_unknown(self) -> int:
        return len(self.known) - self.n_known

    def about(self, request: Request, rows: Rows) -> SharedRows:
        """The same among the rows of a request: probes use a sample of the task's rows."""
        return SharedRows(self.known[rows.sample], self.digest) if is_probe(request) else self

    def message(self, request: Request, task: Task, task_id: str, version: int, name: str) -> Message:
        """The learner's request for the known rows."""
        fields: dict[str, Any] = {"rows": self.digest, "track": request.track}
        if not isinstance(request, FitRequest):
            return Message("revisit", task_id, version, name, fields | {"rounds": list(request.rounds)})
        fit = task.terms.rows_for(request).fit
        # Mostly all are known; to look at each row would take longer than all else here.
        taken = (
            slice(None) if self.n_unknown == 0 else np.flatnonzero(self.about(request, task.rows).known[fit])
        )
        arrays: dict[str, NDArray[Any]] = {"residual": request.residual[taken]}
        if request.sample_weight is not None:
            arrays["sample_weight"] = request.sample_weight[taken]
        fields |= {"round": request.round, "part": request.fold}
        if is_probe(request):
            fields["target"] = request.target
        return Message("fit", task_id, version, name, fields, arrays)


@dataclass(frozen=True)
class NamedRows:
    """The rows that a label holder names to an organization, as positions among its own."""

    positions: NDArray[np.intp]

    def ids(
        self, ids: RowIds, method: str, configuration: NodeConfiguration
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Fields and arrays of a message with these rows."""
        secret = secret_of(configuration) if method == "hashed" else None
        fields = {
            "kind": ids.kind,
            "method": method,
            "secret": "" if secret is None else secret_digest(secret),
        }
        return fields, token_arrays(ids.take(self.positions), method, secret)

    def in_order_of_tokens(self, ids: RowIds, method: str, configuration: NodeConfiguration) -> NamedRows:
        """The same rows in the order of their tokens: the order of a file may reveal labels."""
        if len(self.positions) == 1:
            return self
        [sent] = self.ids(ids, method, configuration)[1].values()
        order = np.lexsort(sent.T[::-1]) if sent.ndim == 2 else np.argsort(sent, kind="stable")
        return NamedRows(self.positions[order])

    def shared(self, begun: Message, name: str, rows: Rows) -> SharedRows:
        """The rows of these that the organization knows, from its reply."""
        flags, n_rows = begun.arrays["known"], len(self.positions)
        if len(flags) != n_rows or int(flags.sum()) != begun.fields["n_rows"] or flags.max(initial=0) > 1:
            raise AlignmentError(f"{name} replied for {len(flags)} rows, requested were {n_rows}")
        known = np.zeros(rows.n, dtype=np.bool_)
        known[self.positions[flags == 1]] = True
        if not known[rows.fit].any():
            raise AlignmentError(f"{name} knows none of the rows to fit: it cannot help with this task")
        return SharedRows(known, begun.fields["rows"])

    def check(self, begun: Message, begin: Message, name: str, method: str) -> None:
        """Whether both sides mean the same rows in the same order: each computes the digest by itself."""
        [tokens] = [begin.arrays[key] for key in IDS if key in begin.arrays]
        expected = row_digest(tokens[begun.arrays["known"] == 1], begin.fields["kind"], method)
        if begun.fields["rows"] != expected:
            raise AlignmentError(
                f"{name} means other rows, or another order ({begun.fields['rows']} there, {expected} here): "
                "nothing was learned. Is its gal-learn of another version?"
            )


@dataclass(frozen=True)
class WantedRows:
    """Rows to predict with a version, and how long organizations are waited for."""

    record: TaskRecord
    version: int
    ids: RowIds
    own_rows: Path | None
    """A file with the label holder's own columns of them; None: they are in its source."""
    seconds: float
    join: float

    def shape(self, request: PredictRequest) -> tuple[int, int, int]:
        """The shape of predicted values: rounds, rows, outputs."""
        return len(request.rounds), len(self.ids), self.record.terms.outputs


def expected_shape(request: Request, n_rows: int, n_outputs: int) -> tuple[int, ...]:
    """The shape of the values in a reply."""
    return (
        (n_rows, n_outputs) if isinstance(request, FitRequest) else (len(request.rounds), n_rows, n_outputs)
    )


def is_probe(request: Request) -> bool:
    """Whether a request is a fit to an interaction probe, or to the random targets before them."""
    return isinstance(request, FitRequest) and request.target != "residual"


def fill_unknown(values: Floats32, shared: SharedRows, rows: Rows) -> Floats32:
    """Values of all rows, with the mean at rows that the organization does not know, as in prediction.

    ``values`` is (..., n_known, K); the mean is over the rows of the line search.
    """
    if shared.n_unknown == 0:
        return values
    search = np.zeros(rows.n, dtype=np.bool_)
    search[rows.search] = True
    among = search[shared.known]
    counted = values[..., among, :] if among.any() else values
    filled = np.empty((*values.shape[:-2], rows.n, values.shape[-1]), dtype=np.float32)
    filled[...] = counted.mean(axis=-2, dtype=np.float64, keepdims=True)
    filled[..., shared.known, :] = values
    return filled


def shared_positions(
    assistants: Assistants, name: str, task: str, version: int, ids: RowIds, seconds: float
) -> NDArray[np.intp] | None:
    """Positions of the label holder's rows in the private set intersection with an organization; None where
    it did not reply in time.
    """
    from gal.alignment.psi import Asker

    asker, exchange = Asker(ids), uuid4().hex

    def exchanged(step: str, content: bytes | None) -> bytes | None:
        fields = {"step": step, "kind": ids.kind, "exchange": exchange, "n_rows": len(ids)}
        arrays = {} if content is None else {"bytes": np.frombuffer(content, dtype=np.uint8)}
        message = Message("blind", task, version, f"blind {step} {exchange}", fields, arrays)
        with assistants.requesting({name: prepare(message)}) as pendings:
            pending = pendings[name]
            assistants.wait_for(pending.done.is_set, seconds)
        if pending.reply is None:
            return None
        if why := pending.failure("blinded", seconds):
            raise RefusedError(str(pending.reply.message.fields.get("code", "refused")), f"{name} {why}")
        return pending.reply.message.arrays["bytes"].tobytes()

    setup = exchanged("setup", None)
    response = None if setup is None else exchanged("response", asker.request())
    if setup is None or response is None:
        return None
    try:
        return asker.shared(setup, response)
    except InvalidMessageError as error:
        raise InvalidMessageError(f"{name}: {error}") from error
