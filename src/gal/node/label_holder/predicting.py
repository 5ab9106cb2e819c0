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
from gal.node.config.requests import IncomingRequest
from gal.node.label_holder.assistants import Pending
from gal.node.label_holder.closing_files import read_learned, read_refit
from gal.node.label_holder.holder_node import HolderNode
from gal.node.label_holder.shared_rows import Asking, Question, shared_positions
from gal.node.label_holder.sums import SummedPredictions
from gal.node.store.failures import describe_failure
from gal.node.store.files import within_reach
from gal.node.store.state import TaskRecord
from gal.node.store.stored_versions import LearningOutcome
from gal.privacy.refit import PrivateRefit
from gal.protocol import Encoded, Message, prepare
from gal.secure_aggregation.in_process import accept_sum, added_up
from gal.secure_aggregation.terms import SUM

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class NodePrediction:
    """What the label holder gets for some rows."""

    output: Floats
    """In link space, shape (n, K): F^T, moved by the stacker or the private refit where there is one."""
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
    """By organization whose answers are distributed otherwise than in learning: how far apart, 0 to 1."""

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

    @staticmethod
    def joined(lots: Sequence[tuple[NDArray[np.intp], NodePrediction]]) -> NodePrediction:
        """Predictions of some rows each (at these positions) as one of all; why somebody did not answer is
        said with of how many rows, where it has answered about others.
        """
        back, found = np.argsort(np.concatenate([at for at, _ in lots])), [one for _, one in lots]

        def together(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
            return np.concatenate(values)[back]

        def missed(name: str) -> str:
            without = [one for one in found if name in one.missing]
            n_rows = sum(len(one.degraded) for one in without)
            said = without[0].missing[name]
            return said if len(without) == len(found) else f"{said}, for {n_rows:,} of the rows"

        def unknown_to(name: str, one: NodePrediction) -> Bools:
            return one.unknown_rows.get(name, np.zeros(len(one.degraded), dtype=np.bool_))

        def names(of: str) -> list[str]:
            return list(dict.fromkeys(name for one in found for name in getattr(one, of)))

        return replace(
            found[-1],
            output=together([one.output for one in found]),
            prediction=together([one.prediction for one in found]),
            degraded=together([one.degraded for one in found]),
            missing={name: missed(name) for name in names("missing")},
            unknown_rows={
                name: together([unknown_to(name, one) for one in found]) for name in names("unknown_rows")
            },
            outside={name: sum(one.outside.get(name, 0) for one in found) for name in names("outside")},
            drifted={name: max(one.drifted.get(name, 0.0) for one in found) for name in names("drifted")},
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
        """Predict these rows; ``own_rows`` has the label holder's own columns of them, if not in its source.

        Organizations that are not connected are waited for ``join`` seconds, answers ``seconds``.
        """
        asked = Question(record, record.active if version is None else version, ids, own_rows, seconds, join)
        key = record.id, asked.version
        learned = self._state.learned_version(*key)
        if learned is None or learned.status != "finished" or learned.outcome is None:
            which = f" {asked.version}" if asked.version else ""
            raise TaskError(
                f"the task {record.name!r} has no finished version{which}: gal learn {record.name}"
            )
        if (kept := self._learned.get(key)) is None:
            kept = (
                read_learned(self._state, *key, learned.outcome),
                read_refit(self._state, *key, learned.refit),
            )
            self._learned = {key: kept}  # one is enough: mostly the active version is asked for
        ensemble, refit = kept
        screened: Screened | None = None
        if SUM in ensemble.asked():
            answers, unknown = self._summed_answers(asked, ensemble)
            ensemble = added_up(ensemble)
        else:
            answers, unknown, screened = self._single_answers(asked, ensemble)
        if refit is None:
            output = closed_output(ensemble, answers, final_output(ensemble, answers))
        else:
            own = None if refit.own is None else self._own_output(asked, refit.own.ensemble)
            output = refit.output(answers_by_round(ensemble, answers), own)
        # Who knows none of the rows has answered all the same.
        knows_none = {name for name, rows in unknown.items() if len(ids) and rows.all()}
        return NodePrediction(
            output,
            *_prediction(output, learned.outcome),
            answers.degraded if screened is None else answers.degraded | screened.rows,
            {name: why for name, why in answers.missing.items() if name not in knows_none},
            unknown,
            asked.version,
            {} if screened is None else screened.outside,
            {} if screened is None else screened.drifted,
        )

    def _single_answers(
        self, asked: Question, ensemble: Ensemble
    ) -> tuple[Answers, dict[str, Bools], Screened | None]:
        """Every organization answers by itself, and what it never said in learning is not used; with the rows
        that each does not know.
        """
        unknown, screened = dict[str, Bools](), None

        def ask(request: PredictRequest) -> Mapping[str, Any]:
            nonlocal unknown, screened
            replies = self._ask(asked, request)
            unknown = {name: _gaps(one) for name, one in replies.items() if isinstance(one, np.ndarray)}
            screened = self._screen(asked, ensemble, request, replies)
            return screened.replies

        return _driven(ensemble, len(asked.ids), ask), unknown, screened

    def _summed_answers(self, asked: Question, ensemble: Ensemble) -> tuple[Answers, dict[str, Bools]]:
        """All others answer together, without a guard: there are no single answers to look at."""
        others = self._sums.ask(asked, ensemble)
        name, said, unknown, missing = self._node.name, None, dict(others.unknown), dict(others.missing)
        if name in ensemble.asked():
            said = self._ask_own(asked, PredictRequest(ensemble.asked_rounds, (name,), ensemble.track))[name]
            if isinstance(said, np.ndarray):
                unknown[name] = _gaps(said)
            else:
                missing[name], said = str(said), None
        answers = accept_sum(ensemble, said, others.total, others.there, others.n_members)
        return replace(answers, missing=missing), unknown

    def _own_output(self, asked: Question, own: Ensemble) -> Floats:
        """What the label holder's own model says, shape (n, K); nobody else is asked, or sees it."""
        said = _driven(own, len(asked.ids), partial(self._ask_own, asked))
        return closed_output(own, said, final_output(own, said))

    def _screen(
        self, asked: Question, ensemble: Ensemble, request: PredictRequest, replies: Mapping[str, Any]
    ) -> Screened:
        """What may be used of the replies, by what each said in learning; the operator is told."""
        recent = self._recent.setdefault((asked.record.id, asked.version), {})
        log, n_rows = self._node.log, len(asked.ids)
        activity, task = self._node.records.activity, asked.record.name
        with self._screening:
            screened = screen(ensemble, request, replies, n_rows, recent)
        for name, n_outside in screened.outside.items():
            log.warning("answers outside", peer=name, task=task, rows=n_outside, of=n_rows)
            activity.outside(name, n_outside)
        for name, apart in screened.drifted.items():
            log.warning("answers drifted", peer=name, task=task, apart=round(apart, 3))
        for name in replies:
            if name != self._node.name:
                activity.drifted(name, screened.drifted.get(name, 0.0))
        return screened

    def _ask(self, asked: Question, request: PredictRequest) -> dict[str, Any]:
        """One round trip: values (rounds, n, K) with NaN at unknown rows, or why there are none."""
        record, ids, own = asked.record, asked.ids, self._node.name
        members, present = self._state.members(record.id), self._assistants.present
        others = {name: members.get(name, "invited") for name in request.organizations if name != own}
        awaited = {name for name, status in others.items() if status == "invited"}  # others left for good
        self._assistants.wait_for(lambda: awaited <= set(present(record.id)), asked.join)
        here, method, configuration = present(record.id), record.terms.alignment, self._node.configuration
        everything = Asking(np.arange(len(ids))).in_order_of_tokens(ids, method, configuration)
        replies, askings = dict[str, Any](), dict[str, Asking]()
        for name, status in others.items():
            if name not in here:
                why = "is not connected" if status == "invited" else f"has {status}"
                replies[name] = NoAnswerError(why)
                continue
            try:
                askings[name] = self._shared(asked, name) if method == "psi" else everything
            except (RefusedError, InvalidMessageError, NoAnswerError) as error:
                replies[name] = error
        made = {id(one): one for one in askings.values()}  # most are asked the same
        encoded = {key: self._message(asked, request, one) for key, one in made.items()}
        pendings = self._assistants.post_together({name: encoded[id(one)] for name, one in askings.items()})
        until = time.monotonic() + asked.seconds
        if own in request.organizations:  # while the others compute
            replies |= self._ask_own(asked, request)

        def answered_or_gone() -> bool:
            waiting = {name for name, one in pendings.items() if not one.done.is_set()}
            return not waiting or not waiting & set(present(record.id))

        self._assistants.wait_for(answered_or_gone, until - time.monotonic())
        self._assistants.give_up(pendings.values())
        shape = asked.shape(request)
        return replies | {
            name: _values(one, askings[name], shape, asked.seconds) for name, one in pendings.items()
        }

    def _shared(self, asked: Question, name: str) -> Asking:
        """The rows of a private set intersection with an organization."""
        about = asked.record.id, asked.version, asked.ids, asked.seconds
        positions = shared_positions(self._assistants, name, *about)
        if positions is None:
            raise NoAnswerError(f"did not answer within {asked.seconds:g} s, or went away")
        return Asking(positions).in_order_of_tokens(asked.ids, "psi", self._node.configuration)

    def _message(self, asked: Question, request: PredictRequest, asking: Asking) -> Encoded:
        record = asked.record
        fields, arrays = asking.ids(asked.ids, record.terms.alignment, self._node.configuration)
        fields |= {"track": request.track, "rounds": list(request.rounds)}
        name = f"predict {self._session} {next(self._numbers)}"
        return prepare(Message("predict", record.id, asked.version, name, fields, arrays))

    def _ask_own(self, asked: Question, request: PredictRequest) -> dict[str, Any]:
        """What its own organization says of these rows; nobody else is asked."""
        asking = Asking(np.arange(len(asked.ids)))  # a file of its rows is in this order
        encoded = self._message(asked, request, asking)
        name, home, own_rows = self._node.name, self._node.configuration.home, asked.own_rows
        try:
            with nullcontext() if own_rows is None else within_reach(own_rows, home) as rows:
                to_own = IncomingRequest.to_oneself(name, encoded, None if rows is None else str(rows))
                message = self._node.service.predict_own(to_own)
        except Exception as error:
            return {name: LocalModelError(describe_failure(error, name).inside)}
        return {name: _spread(message, asking, asked.shape(request))}


def _driven(ensemble: Ensemble, n_rows: int, ask: Callable[[PredictRequest], Mapping[str, Any]]) -> Answers:
    """What the prediction stage makes of the replies to its one request."""
    steps = predict(ensemble, n_rows)
    try:
        steps.send(ask(next(steps)))
    except StopIteration as end:
        answers: Answers = end.value
    return answers


def _gaps(values: NDArray[Any]) -> Bools:
    """Rows that an organization does not know."""
    return np.asarray(np.isnan(values).all(axis=(0, 2)))


def _values(pending: Pending, asking: Asking, shape: tuple[int, int, int], seconds: float) -> Any:
    """Values of all rows, of this shape, or why there are none."""
    why, asked = pending.refusal("predicted", seconds), pending.encoded.message
    if pending.answer is None or why:
        return NoAnswerError(why)
    message, [tokens] = pending.answer.message, asked.arrays.values()
    known = message.arrays["known"] == 1
    if len(known) == len(tokens) and message.fields["rows"] != row_digest(
        tokens[known], asked.fields["kind"], asked.fields["method"]
    ):
        return InvalidReplyError("answered for other rows, or in another order")
    return _spread(message, asking, shape)


def _spread(message: Message, asking: Asking, shape: tuple[int, int, int]) -> Any:
    """Values of all rows, NaN where the organization does not know one."""
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


def _prediction(output: Floats, learned: LearningOutcome) -> tuple[Floats, Sequence[Any] | None]:
    """From link space to what people read."""
    if learned.classes is not None:
        loss = BinaryLogLoss() if output.shape[1] == 1 else MultinomialLogLoss(output.shape[1])
        return loss.inverse_link(output), learned.classes
    return Poisson().inverse_link(output) if learned.loss == "poisson" else output, None
