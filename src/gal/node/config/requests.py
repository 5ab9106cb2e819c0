"""Requests to an organization, and the learner's requests as messages and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gal.alignment import RowIds, check_tokens, read_secret, tokens
from gal.core.requests import FitRequest, PredictRequest
from gal.core.rows import Rows
from gal.errors import AlignmentError
from gal.node.config.configuration import NodeConfiguration
from gal.protocol import Encoded, Message, prepare

Bools = NDArray[np.bool_]
Arrays = Mapping[str, NDArray[Any]]


class IncomingRequest(NamedTuple):
    """A received request, decoded once."""

    peer: str
    message: Message
    data: Any
    digest: str
    own: bool = False
    rows: str | None = None
    """Only for own predictions: a file with the own columns of the rows."""

    @staticmethod
    def own_request(name: str, encoded: Encoded, rows: str | None = None) -> IncomingRequest:
        """A request of a label holder to its own organization, without a network."""
        return IncomingRequest(name, encoded.message, encoded.data, encoded.digest, True, rows)

    def reply(
        self, kind: str, fields: Mapping[str, Any] | None = None, arrays: Mapping[str, Any] | None = None
    ) -> Message:
        """The reply to this request."""
        request, complete = self.message, {"answers": self.digest, **(fields or {})}
        return Message(kind, request.task, request.version, request.request, complete, arrays or {})


class Answering(Protocol):
    """An organization that replies to requests: a label holder's view of its own."""

    def answer(self, request: IncomingRequest) -> Encoded:
        """The encoded reply; RefusedError or WorkFailedError where there is none."""

    def predict_own(self, request: IncomingRequest) -> Message:
        """The reply to a prediction request of the node to itself."""


def refusal(message: Message, code: str, reason: str, digest: str | None = None) -> Encoded:
    """The refusal of a message, with the message's digest where it was a request."""
    fields = {"code": code, "message": reason[:2000], "answers": digest}
    return prepare(Message("refusal", message.task, message.version, message.request, fields))


def requested_tokens(message: Message, peer: str) -> NDArray[Any]:
    """The row ids in a message: exactly one kind of them."""
    given = [message.arrays[name] for name in ("integers", "texts", "hashes") if name in message.arrays]
    if len(given) != 1:
        raise AlignmentError(f"{peer!r} sent {len(given)} kinds of row ids, expected one")
    return check_tokens(given[0], message.fields["kind"], message.fields["method"], peer)


def token_arrays(ids: RowIds, method: str, secret: bytes | None) -> dict[str, NDArray[Any]]:
    """Row ids as arrays of a message."""
    made = tokens(ids, method, secret)
    name = "hashes" if method == "hashed" else "integers" if ids.kind == "integer" else "texts"
    return {name: made}


def secret_of(configuration: NodeConfiguration) -> bytes:
    """The shared secret for keyed hashes."""
    data = configuration.data
    if data is None or data.secret_file is None:
        raise AlignmentError(
            f"organization {configuration.name!r} has no secret for keyed hashes: put the shared one into a "
            "file, and name the file in node.toml: data.secret_file"
        )
    return read_secret(configuration.home / data.secret_file, configuration.name)


def shared_rows(arrays: Arrays, known: Bools) -> Rows:
    """Roles of the known rows, numbered among themselves."""
    fit = np.flatnonzero(arrays["fit"][known] == 1)
    folds, parts, probes = (
        arrays[name][known].astype(np.intp) if name in arrays else None
        for name in ("folds", "parts", "probes")
    )
    return Rows(int(known.sum()), fit, fit, fit[:0], None if folds is None else folds[fit], parts, probes)


def role_arrays(rows: Rows) -> dict[str, NDArray[Any]]:
    """Roles of the task's rows as arrays of a message, without those of search and validation rows."""
    fit = np.zeros(rows.n, dtype=np.uint8)
    fit[rows.fit] = 1
    arrays: dict[str, NDArray[Any]] = {"fit": fit}
    if rows.folds is not None:
        arrays["folds"] = np.full(rows.n, -1, dtype=np.int32)
        arrays["folds"][rows.fit] = rows.folds
    for name, numbers in {"parts": rows.cv_folds, "probes": rows.probes}.items():
        if numbers is not None:
            arrays[name] = numbers.astype(np.int32)
    return arrays


def check_roles(arrays: Arrays, n_rows: int, peer: str) -> None:
    """Whether the roles in a message are possible for so many rows."""
    given = {name: arrays[name] for name in ("fit", "folds", "parts", "probes") if name in arrays}
    if any(len(roles) != n_rows for roles in given.values()):
        raise AlignmentError(
            f"{peer!r} sent {n_rows} rows and roles of {[len(one) for one in given.values()]}"
        )
    if arrays["fit"].max(initial=0) > 1 or not arrays["fit"].any():
        raise AlignmentError(f"{peer!r} sent roles without a valid row to fit")
    for name in ("folds", "parts", "probes"):
        if name in arrays and not -1 <= arrays[name].min() <= arrays[name].max() < n_rows:
            raise AlignmentError(f"{peer!r} sent {name} outside of -1 to {n_rows - 1}")
    if "parts" in arrays and not (arrays["fit"].all() and arrays["parts"].min() >= 0):
        raise AlignmentError(f"{peer!r} sent cross-validation folds that leave rows out")
    if "folds" in arrays and ((arrays["folds"] >= 0) != (arrays["fit"] == 1)).any():
        raise AlignmentError(f"{peer!r} sent folds that are not those of the rows to fit")
    if "probes" in arrays and not (arrays["fit"][arrays["probes"] > 0] == 1).all():
        raise AlignmentError(f"{peer!r} sent folds of interaction probes for rows that are not fitted")


def fit_request(message: Message, organization: str) -> FitRequest:
    """A message of kind ``fit`` as the learner's request."""
    fields, weight = message.fields, message.arrays.get("sample_weight")
    target, residual = fields.get("target", "residual"), message.arrays["residual"]
    about = (organization,), weight, fields["track"], fields["part"], target
    return FitRequest(fields["round"], residual, *about)


def predict_request(message: Message, organization: str) -> PredictRequest:
    """A message of kind ``predict`` or ``revisit`` as the learner's request."""
    return PredictRequest(tuple(message.fields["rounds"]), (organization,), message.fields["track"])
