"""Prediction over nodes: every organization answers once for all rounds, and the label holder adds up.

Who does not answer, does not know a row, or says what it never said in learning
(``gal.core.guards.plausible``) is stood in for by its mean answer; such rows are marked degraded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds, row_digest
from gal.core.algorithm import predict
from gal.core.guards.plausible import Recent, Screened, screen
from gal.core.losses import BinaryLogLoss, MultinomialLogLoss, Poisson
from gal.core.prediction import answers_by_round, closed_output, final_output
from gal.core.replies import Answers
from gal.core.requests import PredictRequest
from gal.core.state import Ensemble
from gal.errors import (
    InvalidMessageError,
    InvalidReplyError,
    LocalModelError,
    NoAnswerError,
    RefusedError,
    TaskError,
)
from gal.node.agreement.incoming import IncomingRequest
from gal.node.holder.assistants import Pending
from gal.node.holder.closing_files import read_learned, read_refit
from gal.node.holder.holder_node import HolderNode
from gal.node.holder.shared_rows import Asking
from gal.node.holder.sums import SummedPredictions
from gal.node.journal.failures import describe_failure
from gal.node.journal.metrics import Metrics
from gal.node.store.state import State, TaskRecord
from gal.node.store.stored_versions import LearnedVersion, LearningOutcome
from gal.node.work.confinement import within_reach
from gal.node.work.worker import WorkFailedError
from gal.privacy.refit import PrivateRefit
from gal.protocol import Encoded, Message, prepare
from gal.secrecy.summed_predictions import accept_sum, added_up
from gal.secrecy.terms import SUM

Floats = NDArray[np.float64]
Shape = tuple[int, int, int]
"""Rounds, rows, outputs."""


@dataclass(frozen=True)
class NodePrediction:
    """What the label holder gets for some rows."""

    output: Floats
    """In link space, shape (n, K): F^T, moved by the closing model or the
    private refit where there is one.
    """
    prediction: Floats
    """Numbers of shape (n, K), or class probabilities of shape (n, C)."""
    classes: Sequence[Any] | None
    degraded: NDArray[np.bool_]
    """Rows for which at least one organization did not answer, or did not know the row."""
    missing: Mapping[str, str]
    """Organizations that did not answer at all, and why."""
    unknown_rows: Mapping[str, NDArray[np.bool_]]
    """By organization that answered: which of the rows it does not know."""
    version: int
    outside: Mapping[str, int] = field(default_factory=dict)
    """By organization: of how many rows it said what it never said in learning."""
    drifted: Mapping[str, float] = field(default_factory=dict)
    """By organization whose answers are distributed otherwise than in
    learning: how far apart, from 0 to 1.
    """
    changed: Sequence[str] = ()
    """Organizations that say that their data differ from what they learned from."""

    @property
    def unknown(self) -> dict[str, int]:
        """By organization: how many of the rows it does not know; without those who know all."""
        return {name: int(rows.sum()) for name, rows in self.unknown_rows.items() if rows.any()}

    def at(self, positions: NDArray[np.intp]) -> NodePrediction:
        """The same of these rows alone; of answers outside the most there can be among them."""
        most = int(self.degraded[positions].sum())
        return replace(
            self,
            outside={name: min(count, most) for name, count in self.outside.items() if most},
            output=self.output[positions],
            prediction=self.prediction[positions],
            degraded=self.degraded[positions],
            unknown_rows={name: rows[positions] for name, rows in self.unknown_rows.items()},
        )

    def most_probable(self) -> list[Any]:
        """The class of each row; for regression the numbers themselves."""
        if self.classes is None:
            return [row[0] if len(row) == 1 else list(row) for row in self.prediction.tolist()]
        return [self.classes[place] for place in self.prediction.argmax(axis=1)]


class Predictor:
    """Predicts with a finished version of a task."""

    def __init__(self, node: HolderNode) -> None:
        self._node, self._state, self._assistants = node, node.state, node.assistants
        self._session, self._numbers = uuid4().hex, count(1)
        self._sums = SummedPredictions(node)
        self._learned: dict[tuple[str, int], tuple[Ensemble, PrivateRefit | None]] = {}
        self._recent: dict[tuple[str, int], dict[str, Recent]] = {}
        """By task and version, then organization: how many of its last answers were outside."""
        self._screening = threading.Lock()

    def close(self) -> None:
        """Let go of what is kept for the next prediction."""
        self._learned, self._recent = {}, {}

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
        learned, outcome = _finished(self._state, record, chosen)
        ensemble, refit = self._what_was_learned(record.id, chosen, outcome, learned.refit)
        if SUM in ensemble.asked():
            return self._from_sum(record, chosen, ids, own_rows, seconds, join)
        steps = predict(ensemble, len(ids))
        unknown, changed = dict[str, NDArray[np.bool_]](), list[str]()
        screened = Screened({}, {}, {}, np.zeros(len(ids), dtype=np.bool_))
        try:
            request = next(steps)
            replies = self._ask(record, chosen, request, ids, own_rows, seconds, join, changed)
            unknown = {
                name: np.asarray(np.isnan(values).all(axis=(0, 2)))
                for name, values in replies.items()
                if isinstance(values, np.ndarray)
            }
            screened = self._screen(record, chosen, ensemble, request, replies, len(ids))
            steps.send(screened.replies)
        except StopIteration as end:
            answers: Answers = end.value
        if refit is None:
            output = closed_output(ensemble, answers, final_output(ensemble, answers))
        else:
            own = _own_output(refit, len(ids), partial(self._ask_own, record, chosen, ids, own_rows))
            output = _refitted(ensemble, refit, answers, own)
        prediction, classes = _prediction(output, outcome)
        return NodePrediction(
            output,
            prediction,
            classes,
            answers.degraded | screened.rows,
            # Who knows none of the rows has answered all the same.
            {
                name: why
                for name, why in answers.missing.items()
                if not (name in unknown and len(ids) and unknown[name].all())
            },
            unknown,
            chosen,
            screened.outside,
            screened.drifted,
            sorted(changed),
        )

    def _from_sum(
        self,
        record: TaskRecord,
        version: int,
        ids: RowIds,
        own_rows: Path | None,
        seconds: float,
        join: float,
    ) -> NodePrediction:
        """What was learned from sums is predicted from one, without a closing model or a guard."""
        learned, outcome = _finished(self._state, record, version)
        ensemble, refit = self._what_was_learned(record.id, version, outcome, learned.refit)
        others = self._sums.ask(record, version, ensemble, ids, seconds, join)
        ask_own = partial(self._ask_own, record, version, ids, own_rows)
        name, said, unknown = self._node.name, None, dict(others.unknown)
        missing = dict(others.missing or {})
        if name in ensemble.asked():
            said = ask_own(PredictRequest(ensemble.asked_rounds, (name,), ensemble.track))[name]
            if isinstance(said, np.ndarray):
                unknown[name] = np.asarray(np.isnan(said).all(axis=(0, 2)))
            else:
                missing[name], said = str(said), None
        answers = accept_sum(ensemble, said, others.total, others.there, others.n_members)
        added = added_up(ensemble)
        if refit is None:
            output = final_output(added, answers)
        else:
            output = _refitted(added, refit, answers, _own_output(refit, len(ids), ask_own))
        prediction, classes = _prediction(output, outcome)
        changed = others.changed
        rest = answers.degraded, missing, unknown, version
        return NodePrediction(output, prediction, classes, *rest, changed=changed)

    def _screen(
        self,
        record: TaskRecord,
        version: int,
        ensemble: Ensemble,
        request: PredictRequest,
        replies: Mapping[str, Any],
        n_rows: int,
    ) -> Screened:
        """What may be used of the replies, by what each organization said in
        learning; the operator is told.
        """
        recent = self._recent.setdefault((record.id, version), {})
        policy, log = self._node.configuration.predictions.outside, self._node.log
        with self._screening:
            screened = screen(ensemble, request, replies, n_rows, policy, recent)
        for name, n_outside in screened.outside.items():
            about = {"rows": n_outside, "of": n_rows, "policy": policy}
            log.warning("answers outside", peer=name, task=record.name, **about)
        for name, apart in screened.drifted.items():
            log.warning("answers drifted", peer=name, task=record.name, apart=round(apart, 3))
        _count_screened(
            self._node.records.metrics, screened, [one for one in replies if one != self._node.name]
        )
        return screened

    def _what_was_learned(
        self, task: str, version: int, outcome: LearningOutcome, refitted: Mapping[str, Any]
    ) -> tuple[Ensemble, PrivateRefit | None]:
        """The ensemble of a finished version and, with privacy, its private refit; neither ever changes."""
        found = self._learned.get((task, version))
        if found is None:
            refit = read_refit(self._state, task, version, refitted)
            found = read_learned(self._state, task, version, outcome), refit
            self._learned = {(task, version): found}  # one is enough: mostly the active version is asked for
        return found

    def _ask(
        self,
        record: TaskRecord,
        version: int,
        request: PredictRequest,
        ids: RowIds,
        own_rows: Path | None,
        seconds: float,
        join: float,
        changed: list[str],
    ) -> dict[str, Any]:
        """One round trip: values (rounds, n, K) with NaN at unknown rows, or why there are none.

        Who says that its data have changed is added to ``changed``.
        """
        own = self._node.name
        others = [name for name in request.organizations if name != own]
        members = self._state.members(record.id)
        awaited = {name for name in others if members.get(name) == "invited"}  # not those who left for good
        self._assistants.wait_for(lambda: awaited <= set(self._assistants.present(record.id)), join)
        here = self._assistants.present(record.id)
        all_rows, method = Asking(np.arange(len(ids))), record.terms.alignment
        everything = all_rows.in_order_of_tokens(ids, method, self._node.configuration)
        shape = len(request.rounds), len(ids), record.terms.outputs
        replies: dict[str, Any] = {
            name: _absent(self._state, record, name) for name in others if name not in here
        }
        askings = {
            name: self._asking(record, version, name, ids, everything, seconds)
            for name in others
            if name in here
        }
        sent: dict[int, Encoded] = {}
        pendings = self._post(record, version, request, ids, askings, replies, sent)
        until = time.monotonic() + seconds
        if own in request.organizations:  # while the others compute; mostly she is asked the same
            same = None if own_rows is not None else sent.get(id(everything))
            asked = None if same is None else everything
            replies |= self._ask_own(record, version, ids, own_rows, request, asked, same)

        def answered_or_gone() -> bool:
            waiting = {name for name, one in pendings.items() if not one.done.is_set()}
            return not waiting or not waiting & set(self._assistants.present(record.id))

        self._assistants.wait_for(answered_or_gone, until - time.monotonic())
        self._assistants.give_up(pendings.values())
        for name, pending in pendings.items():
            asking = askings[name]
            assert isinstance(asking, Asking)
            replies[name] = _values(pending, asking, shape, seconds)
            if pending.answer is not None and pending.answer.message.fields.get("changed"):
                changed.append(name)
                self._node.log.warning("data changed since learning", peer=name, task=record.name)
        return replies

    def _post(
        self,
        record: TaskRecord,
        version: int,
        request: PredictRequest,
        ids: RowIds,
        askings: Mapping[str, Asking | Exception],
        replies: dict[str, Any],
        prepared: dict[int, Encoded],
    ) -> dict[str, Pending]:
        """Send the requests; ``prepared`` gets each message that was made, by the asking that it is of."""
        requests: dict[str, Encoded] = {}
        for name, asking in askings.items():
            if isinstance(asking, Exception):
                replies[name] = asking
                continue
            if id(asking) not in prepared:  # most are asked the same
                prepared[id(asking)] = self._message(record, version, request, ids, asking)
            requests[name] = prepared[id(asking)]
        return self._assistants.post_together(requests)

    def _asking(
        self, record: TaskRecord, version: int, name: str, ids: RowIds, everything: Asking, seconds: float
    ) -> Asking | Exception:
        if record.terms.alignment != "psi":
            return everything
        from gal.node.holder.intersection import shared_positions

        try:
            positions = shared_positions(self._assistants, name, record.id, version, ids, seconds)
        except (RefusedError, InvalidMessageError) as error:
            return error
        if positions is None:
            return NoAnswerError(f"did not answer within {seconds:g} s, or went away")
        return Asking(positions).in_order_of_tokens(ids, record.terms.alignment, self._node.configuration)

    def _message(
        self, record: TaskRecord, version: int, request: PredictRequest, ids: RowIds, asking: Asking
    ) -> Encoded:
        method = record.terms.alignment
        fields, arrays = asking.ids(ids, method, self._node.configuration)
        fields |= {"track": request.track, "rounds": list(request.rounds)}
        return prepare(
            Message(
                "predict",
                record.id,
                version,
                f"predict {self._session} {next(self._numbers)}",
                fields,
                arrays,
            )
        )

    def _ask_own(
        self,
        record: TaskRecord,
        version: int,
        ids: RowIds,
        own_rows: Path | None,
        request: PredictRequest,
        asking: Asking | None = None,
        encoded: Encoded | None = None,
    ) -> dict[str, Any]:
        """What her own organization says of these rows; nobody else is asked."""
        asking = asking or Asking(np.arange(len(ids)))  # a file of her rows is in this order
        encoded = encoded or self._message(record, version, request, ids, asking)
        shape = len(request.rounds), len(ids), record.terms.outputs
        return {self._node.name: self._own_values(encoded, own_rows, asking, shape)}

    def _own_values(self, encoded: Encoded, own_rows: Path | None, asking: Asking, shape: Shape) -> Any:
        """What the label holder's own organization says."""
        name, home = self._node.name, self._node.configuration.home
        try:
            with nullcontext() if own_rows is None else within_reach(own_rows, home) as rows:
                request = IncomingRequest.to_oneself(name, encoded, None if rows is None else str(rows))
                message = self._node.service.predict_own(request)
        except WorkFailedError as error:
            return LocalModelError(error.failure.inside)
        except Exception as error:
            return LocalModelError(describe_failure(error, name).inside)
        return _spread(message, asking, shape)


def _count_screened(metrics: Metrics, screened: Screened, others: Sequence[str]) -> None:
    """Who answered outside of what it said in learning, and how far the answers of all others have moved."""
    for name, n_outside in screened.outside.items():
        metrics.outside(name, n_outside)
    for name in others:
        metrics.drifted(name, screened.drifted.get(name, 0.0))


def _finished(state: State, record: TaskRecord, version: int) -> tuple[LearnedVersion, LearningOutcome]:
    """A version that predicts, and what was learned in it."""
    learned = state.learned_version(record.id, version)
    if learned is None or learned.status != "finished" or learned.outcome is None:
        raise TaskError(
            f"the task {record.name!r} has no finished version{f' {version}' if version else ''}: gal "
            f"learn {record.name}"
        )
    return learned, learned.outcome


def _absent(state: State, record: TaskRecord, name: str) -> NoAnswerError:
    status = state.members(record.id).get(name, "invited")
    return NoAnswerError("is not connected" if status == "invited" else f"has {status}")


def _values(pending: Pending, asking: Asking, shape: Shape, seconds: float) -> Any:
    if pending.answer is None:
        return NoAnswerError(f"did not answer within {seconds:g} s, or went away")
    message = pending.answer.message
    if message.kind == "refusal":
        return NoAnswerError(f"refused ({message.fields['code']}): {message.fields['message']}")
    asked = pending.encoded.message
    [tokens] = asked.arrays.values()
    known = message.arrays["known"] == 1 if message.kind == "predicted" else np.zeros(0, dtype=np.bool_)
    if len(known) == len(tokens) and message.fields["rows"] != row_digest(
        tokens[known], asked.fields["kind"], asked.fields["method"]
    ):
        return InvalidReplyError("answered for other rows, or in another order")
    return _spread(message, asking, shape)


def _spread(message: Message, asking: Asking, shape: Shape) -> Any:
    """Values of all rows, of this shape, NaN where the organization does not know one."""
    if message.kind != "predicted":
        return InvalidReplyError(f"answered with {message.kind}")
    known, values = message.arrays["known"] == 1, message.arrays["values"]
    if len(known) != len(asking.positions) or values.shape[1] != int(known.sum()):
        return InvalidReplyError(
            f"answered for {values.shape[1]} of {len(known)} rows, asked about {len(asking.positions)}"
        )
    if values.shape[::2] != shape[::2]:  # of no row at all, any number of rounds would need no bytes
        return InvalidReplyError(f"answered with shape {values.shape}, expected {shape}")
    spread = np.full(shape, np.nan, dtype=np.float32)
    spread[:, asking.positions[known]] = values
    return spread


def _own_output(refit: PrivateRefit, n_rows: int, ask: Callable[[PredictRequest], Any]) -> Floats | None:
    """What the label holder's own model says, shape (n, K); nobody else is asked, or sees it."""
    if refit.own is None:
        return None
    steps = predict(refit.own.ensemble, n_rows)
    try:
        request = next(steps)
        steps.send(ask(request))
    except StopIteration as end:
        said: Answers = end.value
    return closed_output(refit.own.ensemble, said, final_output(refit.own.ensemble, said))


def _refitted(ensemble: Ensemble, refit: PrivateRefit, answers: Answers, own: Floats | None) -> Floats:
    """What the label holder's private refit makes of the same answers, shape (n, K)."""
    return refit.output(answers_by_round(ensemble, answers), own)


def _prediction(output: Floats, learned: LearningOutcome) -> tuple[Floats, Sequence[Any] | None]:
    """From link space to what people read."""
    if learned.classes is not None:
        loss = BinaryLogLoss() if output.shape[1] == 1 else MultinomialLogLoss(output.shape[1])
        return loss.inverse_link(output), learned.classes
    return Poisson().inverse_link(output) if learned.loss == "poisson" else output, None
