"""Prediction over nodes: one request to each organization for all rounds, added up.

A model of the other replies predicts rows for which an organization does not reply, or that it does not know,
or where its values are outside those of learning (``gal.core.screening``). Such rows are marked degraded.
"""

from __future__ import annotations

import csv
import io
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds, row_digest
from gal.core.algorithm import predict
from gal.core.losses import BinaryLogLoss, MultinomialLogLoss, Poisson
from gal.core.missing import Substitutes, expected_loss
from gal.core.prediction import answers_by_round, final_output, missing_patterns, stacked_output
from gal.core.replies import LocalPredictions
from gal.core.requests import PredictRequest
from gal.core.screening import Recent, Screened, screen
from gal.core.state import Ensemble
from gal.errors import (
    InvalidInputError,
    InvalidMessageError,
    InvalidReplyError,
    LocalModelError,
    NodeError,
    NoReplyError,
    RefusedError,
    TaskError,
)
from gal.node.config.requests import IncomingRequest
from gal.node.label_holder.assistants import Pending
from gal.node.label_holder.holder_node import HolderNode
from gal.node.label_holder.learning.secure_sums import SummedPredictions
from gal.node.label_holder.shared_rows import NamedRows, WantedRows, shared_positions
from gal.node.label_holder.stacker_files import read_learned, read_refit
from gal.node.store.failures import describe_failure
from gal.node.store.files import readable_path, whole_file
from gal.node.store.state import TaskRecord
from gal.node.store.stored_versions import LearningOutcome
from gal.privacy.refit import PrivateRefit
from gal.protocol import Encoded, Message, prepare
from gal.secure_aggregation.in_process import accept_sum, added_up
from gal.secure_aggregation.terms import SUM

BATCH = 200_000
"""Rows of one request, and of one piece of a file."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class NodePrediction:
    """The prediction of some rows."""

    output: Floats
    """In link space, shape (n, K): F^T, or that of the stacker or the private refit where there is one."""
    prediction: Floats
    """Numbers of shape (n, K), or class probabilities of shape (n, C)."""
    classes: Sequence[Any] | None
    degraded: NDArray[np.bool_]
    """Rows without a usable reply of at least one organization."""
    missing: Mapping[str, str]
    """Organizations without a reply, and why."""
    unknown_rows: Mapping[str, NDArray[np.bool_]]
    """By organization with a reply: the rows that it does not know."""
    version: int
    outside: Mapping[str, int] = field(default_factory=dict)
    """By organization: the number of rows with values outside those of learning."""
    drifted: Mapping[str, float] = field(default_factory=dict)
    """By organization whose values are distributed differently than in learning: the distance, 0 to 1."""
    gaps: Mapping[str, Bools] = field(default_factory=dict)
    """By organization: the rows without a usable reply of it."""
    kept: Substitutes | None = None
    """What a missing organization costs; None: that is not known."""

    @property
    def expected_losses(self) -> list[dict[str, Any]]:
        """By group of missing organizations: the number of rows, and the loss to expect instead of the full
        model's.
        """
        patterns = [] if self.kept is None else missing_patterns(self.gaps)
        losses = [expected_loss(self.kept, missing) for missing, _ in patterns]
        return [
            {
                "missing": list(missing),
                "rows": len(rows),
                "loss": self.kept.loss_name,
                "expected": loss,
                "instead_of": self.kept.full_loss,
            }
            for (missing, rows), loss in zip(patterns, losses, strict=True)
            if self.kept is not None and loss is not None
        ]

    @property
    def unknown(self) -> dict[str, int]:
        """By organization that does not know all rows: how many it does not know."""
        return {name: int(rows.sum()) for name, rows in self.unknown_rows.items() if rows.any()}

    def at(self, positions: NDArray[np.intp]) -> NodePrediction:
        """The same for these rows; of values outside, the most that can be among them."""
        most = int(self.degraded[positions].sum())
        return replace(
            self,
            outside={name: min(count, most) for name, count in self.outside.items() if most},
            output=self.output[positions],
            prediction=self.prediction[positions],
            degraded=self.degraded[positions],
            unknown_rows={name: rows[positions] for name, rows in self.unknown_rows.items()},
            gaps={name: rows[positions] for name, rows in self.gaps.items()},
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
        """By task and version, then organization: how many of its last values were outside."""
        self._screening = threading.Lock()

    def close(self) -> None:
        """Release what is kept for the next prediction."""
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
        """Predict these rows; ``own_rows``: a file with the label holder's own columns of them.

        Organizations have ``join`` seconds to connect, and ``seconds`` to reply.
        """
        number = record.active if version is None else version
        wanted = WantedRows(record, number, ids, own_rows, seconds, join)
        key = record.id, number
        learned = self._state.learned_version(*key)
        if learned is None or learned.status != "finished" or learned.outcome is None:
            which = f" {number}" if number else ""
            raise TaskError(
                f"the task {record.name!r} has no finished version{which}: gal learn {record.name}"
            )
        if (kept := self._learned.get(key)) is None:
            kept = (
                read_learned(self._state, *key, learned.outcome),
                read_refit(self._state, *key, learned.refit),
            )
            self._learned = {key: kept}  # one is enough: mostly the active version predicts
        ensemble, refit = kept
        screened: Screened | None = None
        if SUM in ensemble.requested():
            predictions, unknown = self._summed(wanted, ensemble)
            ensemble = added_up(ensemble)
        else:
            predictions, unknown, screened = self._single(wanted, ensemble)
        if refit is None:
            output = stacked_output(ensemble, predictions, final_output(ensemble, predictions))
        else:
            own = None if refit.own is None else self._own_output(wanted, refit.own.ensemble)
            output = refit.output(answers_by_round(ensemble, predictions), own)
        # An organization that knows none of the rows has replied all the same.
        knows_none = {name for name, rows in unknown.items() if len(ids) and rows.all()}
        return NodePrediction(
            output,
            *_prediction(output, learned.outcome),
            predictions.degraded if screened is None else predictions.degraded | screened.rows,
            {name: why for name, why in predictions.missing.items() if name not in knows_none},
            unknown,
            number,
            {} if screened is None else screened.outside,
            {} if screened is None else screened.drifted,
            predictions.gaps,
            ensemble.kept_replies,
        )

    def _single(
        self, wanted: WantedRows, ensemble: Ensemble
    ) -> tuple[LocalPredictions, dict[str, Bools], Screened | None]:
        """Each organization's values, without those outside of learning; and its unknown rows."""
        unknown, screened = dict[str, Bools](), None

        def request_all(request: PredictRequest) -> Mapping[str, Any]:
            nonlocal unknown, screened
            replies = self._request(wanted, request)
            unknown = {name: _gaps(one) for name, one in replies.items() if isinstance(one, np.ndarray)}
            screened = self._screen(wanted, ensemble, request, replies)
            return screened.replies

        return _driven(ensemble, len(wanted.ids), request_all), unknown, screened

    def _summed(self, wanted: WantedRows, ensemble: Ensemble) -> tuple[LocalPredictions, dict[str, Bools]]:
        """The sum of all others, without a guard: there are no single values to screen."""
        others = self._sums.request(wanted, ensemble)
        name, values, unknown, missing = self._node.name, None, dict(others.unknown), dict(others.missing)
        if name in ensemble.requested():
            request = PredictRequest(ensemble.requested_rounds, (name,), ensemble.track)
            values = self._own_values(wanted, request)[name]
            if isinstance(values, np.ndarray):
                unknown[name] = _gaps(values)
            else:
                missing[name], values = str(values), None
        predictions = accept_sum(ensemble, values, others.total, others.there, others.n_members)
        return replace(predictions, missing=missing), unknown

    def _own_output(self, wanted: WantedRows, own: Ensemble) -> Floats:
        """The output (n, K) of the label holder's own model, which no other organization sees."""
        predictions = _driven(own, len(wanted.ids), partial(self._own_values, wanted))
        return stacked_output(own, predictions, final_output(own, predictions))

    def _screen(
        self, wanted: WantedRows, ensemble: Ensemble, request: PredictRequest, replies: Mapping[str, Any]
    ) -> Screened:
        """The replies without values outside those of learning; logged for the operator."""
        recent = self._recent.setdefault((wanted.record.id, wanted.version), {})
        log, n_rows = self._node.log, len(wanted.ids)
        activity, task = self._node.records.activity, wanted.record.name
        with self._screening:
            screened = screen(ensemble, request, replies, n_rows, recent)
        for name, n_outside in screened.outside.items():
            log.warning("replies out of range", peer=name, task=task, rows=n_outside, of=n_rows)
            activity.outside(name, n_outside)
        for name, distance in screened.drifted.items():
            log.warning("replies drifted", peer=name, task=task, apart=round(distance, 3))
        for name in replies:
            if name != self._node.name:
                activity.drifted(name, screened.drifted.get(name, 0.0))
        return screened

    def _request(self, wanted: WantedRows, request: PredictRequest) -> dict[str, Any]:
        """One round trip: values (rounds, n, K) with NaN at unknown rows, or why there are none."""
        record, ids, own = wanted.record, wanted.ids, self._node.name
        members, present = self._state.members(record.id), self._assistants.present
        others = {name: members.get(name, "invited") for name in request.organizations if name != own}
        awaited = {name for name, status in others.items() if status == "invited"}  # others left for good
        self._assistants.wait_for(lambda: awaited <= set(present(record.id)), wanted.join)
        here, method, configuration = present(record.id), record.terms.alignment, self._node.configuration
        everything = NamedRows(np.arange(len(ids))).in_order_of_tokens(ids, method, configuration)
        replies, named_by = dict[str, Any](), dict[str, NamedRows]()
        for name, status in others.items():
            if name not in here:
                why = "is not connected" if status == "invited" else f"has {status}"
                replies[name] = NoReplyError(why)
                continue
            try:
                named_by[name] = self._shared(wanted, name) if method == "psi" else everything
            except (RefusedError, InvalidMessageError, NoReplyError) as error:
                replies[name] = error
        made = {id(one): one for one in named_by.values()}  # mostly one for all
        encoded = {key: self._message(wanted, request, one) for key, one in made.items()}
        requests = {name: encoded[id(one)] for name, one in named_by.items()}
        with self._assistants.requesting(requests) as pendings:
            until = time.monotonic() + wanted.seconds
            if own in request.organizations:  # while the others compute
                replies |= self._own_values(wanted, request)

            def replied_or_gone() -> bool:
                waiting = {name for name, one in pendings.items() if not one.done.is_set()}
                return not waiting or not waiting & set(present(record.id))

            self._assistants.wait_for(replied_or_gone, until - time.monotonic())
        shape = wanted.shape(request)
        return replies | {
            name: _values(one, named_by[name], shape, wanted.seconds) for name, one in pendings.items()
        }

    def _shared(self, wanted: WantedRows, name: str) -> NamedRows:
        about = wanted.record.id, wanted.version, wanted.ids, wanted.seconds
        positions = shared_positions(self._assistants, name, *about)
        if positions is None:
            raise NoReplyError(f"did not reply within {wanted.seconds:g} s, or went away")
        return NamedRows(positions).in_order_of_tokens(wanted.ids, "psi", self._node.configuration)

    def _message(self, wanted: WantedRows, request: PredictRequest, named: NamedRows) -> Encoded:
        record = wanted.record
        fields, arrays = named.ids(wanted.ids, record.terms.alignment, self._node.configuration)
        fields |= {"track": request.track, "rounds": list(request.rounds)}
        name = f"predict {self._session} {next(self._numbers)}"
        return prepare(Message("predict", record.id, wanted.version, name, fields, arrays))

    def _own_values(self, wanted: WantedRows, request: PredictRequest) -> dict[str, Any]:
        """The values of its own organization, without any message to another."""
        named = NamedRows(np.arange(len(wanted.ids)))  # a file of its rows is in this order
        encoded = self._message(wanted, request, named)
        name, home, own_rows = self._node.name, self._node.configuration.home, wanted.own_rows
        try:
            with nullcontext() if own_rows is None else readable_path(own_rows, home) as rows:
                to_own = IncomingRequest.own_request(name, encoded, None if rows is None else str(rows))
                message = self._node.service.predict_own(to_own)
        except Exception as error:
            return {name: LocalModelError(describe_failure(error, name).inside)}
        return {name: _spread(message, named, wanted.shape(request))}


def _driven(
    ensemble: Ensemble, n_rows: int, request: Callable[[PredictRequest], Mapping[str, Any]]
) -> LocalPredictions:
    """Drive the prediction stage, which has one request."""
    steps = predict(ensemble, n_rows)
    try:
        steps.send(request(next(steps)))
    except StopIteration as end:
        predictions: LocalPredictions = end.value
    return predictions


def _gaps(values: NDArray[Any]) -> Bools:
    """Rows that an organization does not know."""
    return np.asarray(np.isnan(values).all(axis=(0, 2)))


def _values(pending: Pending, named: NamedRows, shape: tuple[int, int, int], seconds: float) -> Any:
    """Values of all rows, of this shape, or why there are none."""
    why, request = pending.failure("predicted", seconds), pending.encoded.message
    if pending.reply is None or why:
        return NoReplyError(why)
    message, [tokens] = pending.reply.message, request.arrays.values()
    known = message.arrays["known"] == 1
    if len(known) == len(tokens) and message.fields["rows"] != row_digest(
        tokens[known], request.fields["kind"], request.fields["method"]
    ):
        return InvalidReplyError("replied for other rows, or in another order")
    return _spread(message, named, shape)


def _spread(message: Message, named: NamedRows, shape: tuple[int, int, int]) -> Any:
    """Values of all rows, NaN where the organization does not know one."""
    known, values = message.arrays["known"] == 1, message.arrays["values"]
    if len(known) != len(named.positions) or values.shape[1] != int(known.sum()):
        return InvalidReplyError(
            f"replied for {values.shape[1]} of {len(known)} rows, requested were {len(named.positions)}"
        )
    if values.shape[::2] != shape[::2]:  # of no row at all, any number of rounds would need no bytes
        return InvalidReplyError(f"replied with shape {values.shape}, expected {shape}")
    spread = np.full(shape, np.nan, dtype=np.float32)
    spread[:, named.positions[known]] = values
    return spread


def _prediction(output: Floats, learned: LearningOutcome) -> tuple[Floats, Sequence[Any] | None]:
    if learned.classes is not None:
        loss = BinaryLogLoss() if output.shape[1] == 1 else MultinomialLogLoss(output.shape[1])
        return loss.inverse_link(output), learned.classes
    return Poisson().inverse_link(output) if learned.loss == "poisson" else output, None


# Files of predictions


def prediction_facts(found: NodePrediction) -> dict[str, Any]:
    """The version, numbers of rows, and what was missing."""
    facts = {"version": found.version, "n_rows": len(found.degraded), "degraded": int(found.degraded.sum())}
    by_name = {name: dict(getattr(found, name)) for name in ("missing", "unknown", "outside", "drifted")}
    return facts | by_name | {"expected_losses": found.expected_losses}


def prediction_rows(ids: list[Any], found: NodePrediction) -> list[dict[str, Any]]:
    """One mapping per row: id, prediction, probabilities of classes, and whether it is degraded."""
    rows: list[dict[str, Any]] = [
        {"id": one, "prediction": value, "degraded": bool(weak)}
        for one, value, weak in zip(ids, found.most_probable(), found.degraded, strict=True)
    ]
    if found.classes is not None:
        for row, probabilities in zip(rows, found.prediction.tolist(), strict=True):
            row["probabilities"] = dict(zip(map(str, found.classes), probabilities, strict=True))
    return rows


def predict_in_batches(
    ids: RowIds, predict: Callable[[RowIds], NodePrediction], rng: np.random.Generator
) -> NodePrediction:
    """Predict many rows, `BATCH` in one request: no organization has more of them in memory.

    Batches are drawn at random: the order of a file may reveal labels, and a random batch is distributed as
    all rows are, so that its values compare with those of learning.
    """
    order = rng.permutation(len(ids))
    positions = [np.sort(order[start : start + BATCH]) for start in range(0, len(ids), BATCH)]
    done = [predict(ids.take(some)) for some in positions]
    back = np.argsort(np.concatenate(positions))

    def together(values: Callable[[NodePrediction], NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([values(one) for one in done])[back]

    def names(of: str) -> list[str]:
        return list(dict.fromkeys(name for one in done for name in getattr(one, of)))

    def rows_of(of: str) -> dict[str, Bools]:
        def rows(name: str) -> Bools:
            return together(
                lambda one: getattr(one, of).get(name, np.zeros(len(one.degraded), dtype=np.bool_))
            )

        return {name: rows(name) for name in names(of)}

    def why_missing(name: str) -> str:
        without = [one for one in done if name in one.missing]
        why, n_rows = without[0].missing[name], sum(len(one.degraded) for one in without)
        return why if len(without) == len(done) else f"{why}, for {n_rows:,} of the rows"

    return replace(
        done[-1],
        output=together(lambda one: one.output),
        prediction=together(lambda one: one.prediction),
        degraded=together(lambda one: one.degraded),
        missing={name: why_missing(name) for name in names("missing")},
        unknown_rows=rows_of("unknown_rows"),
        gaps=rows_of("gaps"),
        outside={name: sum(one.outside.get(name, 0) for one in done) for name in names("outside")},
        drifted={name: max(one.drifted.get(name, 0.0) for one in done) for name in names("drifted")},
    )


@contextmanager
def whole_csv(out: Path) -> Iterator[io.TextIOWrapper]:
    """A CSV file: written whole or not at all, readable as the user's other files are."""
    try:
        with whole_file(out, mode=0o666) as binary:
            file = io.TextIOWrapper(binary, encoding="utf-8", newline="")
            yield file
            file.detach()  # flushes, and leaves the file open for its own context
    except NodeError as error:
        why = getattr(error.__cause__, "strerror", None) or error
        raise InvalidInputError(f"{str(out)!r} cannot be written: {why}") from error


def write_predictions(file: TextIO, row_id: str, ids: list[Any], found: NodePrediction) -> None:
    """A line of column names, and one for each row."""
    classes = [] if found.classes is None else [f"probability_{one}" for one in found.classes]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([row_id, "prediction", *classes, "degraded"])
    for start in range(0, len(ids), BATCH):  # in batches: rows take longer to be written than predicted
        some = found.at(np.arange(start, min(start + BATCH, len(ids))))
        columns: list[Any] = [ids[start : start + BATCH]]
        if some.classes is not None:
            columns.append(some.most_probable())
        columns += some.prediction.T.tolist()
        columns.append(some.degraded.astype(np.int64).tolist())
        writer.writerows(zip(*columns, strict=True))
