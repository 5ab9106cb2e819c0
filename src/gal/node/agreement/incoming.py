"""A request on its way to an organization: one of another's label holder, or of the node's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from gal.protocol import Encoded, Message


class IncomingRequest(NamedTuple):
    """A request as it arrived, decoded once."""

    peer: str
    message: Message
    data: Any
    digest: str
    own: bool = False
    rows: str | None = None
    """Only for own predictions: a file with the own columns of the rows."""

    @staticmethod
    def to_oneself(name: str, encoded: Encoded, rows: str | None = None) -> IncomingRequest:
        """What a label holder asks its own organization: it takes the same way, without a network."""
        return IncomingRequest(name, encoded.message, encoded.data, encoded.digest, True, rows)

    def reply(
        self, kind: str, fields: Mapping[str, Any] | None = None, arrays: Mapping[str, Any] | None = None
    ) -> Message:
        """The message that answers this request."""
        asked, said = self.message, {"answers": self.digest, **(fields or {})}
        return Message(kind, asked.task, asked.version, asked.request, said, arrays or {})


class Answering(Protocol):
    """An organization that answers requests: all that a label holder knows of its own."""

    def answer(self, asked: IncomingRequest) -> Encoded:
        """The answer, ready to be sent; RefusedError or WorkFailedError where there is none."""

    def predict_own(self, asked: IncomingRequest) -> Message:
        """The answer to a request of the node to itself, about rows to predict."""
