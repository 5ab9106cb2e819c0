"""Prediction over nodes: every organization answers once for all rounds, and the label holder adds up.

Who does not answer, or does not know a row, is stood in for by its mean answer; such rows are marked degraded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds, row_digest
from gal.core.algorithm import predict
from gal.core.losses import BinaryLogLoss, MultinomialLogLoss, Poisson
from gal.core.prediction import final_output
from gal.core.replies import Answers
from gal.core.requests import PredictRequest
from gal.core.state import ensemble_of
from gal.errors import InvalidReplyError, LocalModelError, RefusedError, TaskError
from gal.node.assistants import Assistants, Pending
from gal.node.failures import describe
from gal.node.invitations import TaskTerms
from gal.node.rows import Asking
from gal.node.service import Asked, Service
from gal.node.state import State, TaskRecord
from gal.node.worker import WorkFailedError
from gal.protocol import Encoded, Message, prepare

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NodePrediction:
    """What the label holder gets for some rows."""

    output: Floats
    """F^T in link space, shape (n, K)."""
    prediction: Floats
    """Numbers of shape (n, K), or class probabilities of shape (n, C)."""
    classes: Sequence[Any] | None
    degraded: NDArray[np.bool_]
    """Rows for which at least one organization did not answer, or did not know the row."""
    missing: Mapping[str, str]
    """Organizations that did not answer at all, and why."""
    unknown: Mapping[str, int]
    """By organization: how many of the rows it does not know."""
    version: int

    def most_probable(self) -> list[Any]:
        """The class of each row; for regression the numbers themselves."""
        if self.classes is None:
            return [row[0] if len(row) == 1 else list(row) for row in self.prediction.tolist()]
        return [self.classes[place] for place in self.prediction.argmax(axis=1)]


class Predictor:
    """Predicts with a finished version of a task."""

    def __init__(self, state: State, service: Service, assistants: Assistants) -> None:
        self._state, self._service, self._assistants = state, service, assistants
        self._own = ThreadPoolExecutor(8, thread_name_prefix="own predictions")

    def close(self) -> None:
        """Predict no more."""
        self._own.shutdown(wait=False, cancel_futures=True)

    def predict(
        self,
        record: TaskRecord,
        ids: RowIds,
        *,
        own_rows: Path | None = None,
        version: int | None = None,
        seconds: float = 60.0,
        join: float = 0.0,
    ) -> NodePrediction:
        """Predict these rows; ``own_rows`` has the label holder's own columns of them, if not in her source.

        Organizations that are not connected are waited for ``join`` seconds, answers ``seconds``.
        """
        chosen = record.active if version is None else version
        facts = self._state.version(record.id, chosen, "label holder")
        if facts is None or facts["status"] != "finished":
            raise TaskError(
                f"the task {record.name!r} has no finished version{f' {chosen}' if chosen else ''}: gal learn {record.name}"
            )
        ensemble = ensemble_of(facts["ensemble"])
        steps = predict(ensemble, len(ids))
        unknown: dict[str, int] = {}
        try:
            request = next(steps)
            replies = self._ask(record, chosen, request, ids, own_rows, seconds, join)
            unknown = {
                name: int(np.isnan(values).all(axis=(0, 2)).sum())
                for name, values in replies.items()
                if isinstance(values, np.ndarray)
            }
            steps.send(replies)
        except StopIteration as end:
            answers: Answers = end.value
        output = final_output(ensemble, answers)
        prediction, classes = _prediction(output, facts)
        return NodePrediction(
            output,
            prediction,
            classes,
            answers.degraded,
            answers.missing,
            {name: count for name, count in unknown.items() if count},
            chosen,
        )

    def _ask(
        self,
        record: TaskRecord,
        version: int,
        request: PredictRequest,
        ids: RowIds,
        own_rows: Path | None,
        seconds: float,
        join: float,
    ) -> dict[str, Any]:
        """One round trip: values (rounds, n, K) with NaN at unknown rows, or why there are none."""
        own = self._service.configuration.name
        others = [name for name in request.organizations if name != own]
        self._assistants.wait_for(lambda: set(others) <= set(self._assistants.present(record.id)), join)
        here = self._assistants.present(record.id)
        everything = Asking(np.arange(len(ids)))
        own_answer = None
        if own in request.organizations:
            encoded = self._message(record, version, request, ids, everything)
            asked = Asked(
                own,
                encoded.message,
                encoded.data,
                encoded.digest,
                True,
                None if own_rows is None else str(own_rows),
            )
            own_answer = self._own.submit(self._service.answer, asked)
        replies: dict[str, Any] = {
            name: _absent(self._state, record, name) for name in others if name not in here
        }
        askings = {
            name: self._asking(record, version, name, ids, everything, seconds)
            for name in others
            if name in here
        }
        pendings = self._post(record, version, request, ids, askings, replies)
        self._assistants.wait_for(lambda: all(one.done.is_set() for one in pendings.values()), seconds)
        self._assistants.give_up(pendings.values())
        for name, pending in pendings.items():
            asking = askings[name]
            assert isinstance(asking, Asking)
            replies[name] = _values(pending, asking, len(ids), seconds)
        if own_answer is not None:
            replies[own] = self._own_values(own_answer, everything, len(ids))
        return replies

    def _post(
        self,
        record: TaskRecord,
        version: int,
        request: PredictRequest,
        ids: RowIds,
        askings: Mapping[str, Asking | Exception],
        replies: dict[str, Any],
    ) -> dict[str, Pending]:
        pendings: dict[str, Pending] = {}
        prepared: dict[int, Encoded] = {}
        for name, asking in askings.items():
            if isinstance(asking, Exception):
                replies[name] = asking
                continue
            if id(asking) not in prepared:  # most are asked the same
                prepared[id(asking)] = self._message(record, version, request, ids, asking)
            pendings[name] = self._assistants.post(name, prepared[id(asking)])
        return pendings

    def _asking(
        self, record: TaskRecord, version: int, name: str, ids: RowIds, everything: Asking, seconds: float
    ) -> Asking | Exception:
        if TaskTerms.model_validate(record.terms).alignment != "psi":
            return everything
        from gal.node.blind import shared_positions

        try:
            positions = shared_positions(self._assistants, name, record.id, version, ids, seconds)
        except RefusedError as error:
            return error
        if positions is None:
            return LocalModelError(f"did not answer within {seconds:g} s")
        return Asking(positions)

    def _message(
        self, record: TaskRecord, version: int, request: PredictRequest, ids: RowIds, asking: Asking
    ) -> Encoded:
        method = TaskTerms.model_validate(record.terms).alignment
        fields, arrays = asking.ids(ids, method, self._service.configuration)
        fields |= {"track": request.track, "rounds": list(request.rounds)}
        return prepare(Message("predict", record.id, version, f"predict {uuid4().hex}", fields, arrays))

    def _own_values(self, answer: Any, asking: Asking, n_rows: int) -> Any:
        try:
            message: Message = answer.result()
        except WorkFailedError as error:
            return LocalModelError(error.failure.inside)
        except Exception as error:
            return LocalModelError(describe(error, self._service.configuration.name).inside)
        return _spread(message, asking, n_rows)


def _absent(state: State, record: TaskRecord, name: str) -> LocalModelError:
    status = state.members(record.id).get(name, "invited")
    return LocalModelError("is not connected" if status == "invited" else f"has {status}")


def _values(pending: Pending, asking: Asking, n_rows: int, seconds: float) -> Any:
    if pending.answer is None:
        return LocalModelError(f"did not answer within {seconds:g} s")
    message = pending.answer.message
    if message.kind == "refusal":
        return LocalModelError(f"refused ({message.fields['code']}): {message.fields['message']}")
    asked = pending.encoded.message
    [tokens] = asked.arrays.values()
    known = message.arrays["known"] == 1 if message.kind == "predicted" else np.zeros(0, dtype=np.bool_)
    if len(known) == len(tokens) and message.fields["rows"] != row_digest(
        tokens[known], asked.fields["kind"], asked.fields["method"]
    ):
        return InvalidReplyError("answered for other rows, or in another order")
    return _spread(message, asking, n_rows)


def _spread(message: Message, asking: Asking, n_rows: int) -> Any:
    """Values of all rows, NaN where the organization does not know one."""
    if message.kind != "predicted":
        return InvalidReplyError(f"answered with {message.kind}")
    known, values = message.arrays["known"] == 1, message.arrays["values"]
    if len(known) != len(asking.positions) or values.shape[1] != int(known.sum()):
        return InvalidReplyError(
            f"answered for {values.shape[1]} of {len(known)} rows, asked about {len(asking.positions)}"
        )
    if len(known) == n_rows and known.all():
        return values
    spread = np.full((values.shape[0], n_rows, values.shape[2]), np.nan, dtype=np.float32)
    spread[:, asking.positions[known]] = values
    return spread


def _prediction(output: Floats, facts: Mapping[str, Any]) -> tuple[Floats, Sequence[Any] | None]:
    """From link space to what people read."""
    classes = facts.get("classes")
    if classes is not None:
        loss = BinaryLogLoss() if output.shape[1] == 1 else MultinomialLogLoss(output.shape[1])
        return loss.inverse_link(output), classes
    return Poisson().inverse_link(output) if facts.get("loss") == "poisson" else output, None
