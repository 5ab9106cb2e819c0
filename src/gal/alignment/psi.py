"""Private set intersection: the label holder learns which ids an organization shares, no others.

Both sides blind the ids with keys of their own (points of an elliptic curve, library openmined.psi). Messages
are lists of points of 33 bytes, checked before the library reads them: its own formats would let a peer
occupy it for hours.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment.ids import RowIds
from gal.errors import AlignmentError, InvalidMessageError, MissingExtraError

POINT = 33
"""Bytes of a point of the curve P-256, compressed."""


class Holder:
    """The organization's side of one exchange, with a fresh key.

    It replies to one request: with more requests the label holder could try out all ids.
    """

    def __init__(self, ids: RowIds) -> None:
        self._ids = ids
        self._psi = _library()
        self._server = self._psi.server.CreateWithNewKey(True)
        self._n_client: int | None = None
        self._replied: tuple[bytes, bytes] | None = None

    def setup(self, n_client: int) -> bytes:
        """All own ids, blinded and sorted, so that neither ids nor the order of rows are visible.

        ``n_client`` is the number of ids of the label holder; requests of another size are refused.
        """
        if n_client < 1:
            raise AlignmentError(f"the label holder has {n_client} ids, expected at least 1")
        self._n_client = n_client
        raw = self._psi.DataStructure.RAW  # the only one without false positives
        message = self._server.CreateSetupMessage(1e-9, n_client, _names(self._ids), raw)
        return b"".join(sorted(message.raw.encrypted_elements))

    def respond(self, request: bytes) -> bytes:
        """The label holder's blinded ids, blinded once more, in their order."""
        if self._replied is not None and self._replied[0] == request:
            return self._replied[1]
        if self._replied is not None or self._n_client is None:
            why = "before its setup" if self._n_client is None else "a second time, with other ids"
            raise AlignmentError(f"a private set intersection was requested {why}; start a new exchange")
        points = _points(request, "request", self._n_client)
        message = self._psi.Request(reveal_intersection=True, encrypted_elements=points)
        response = _tried("request", lambda: self._server.ProcessRequest(message))
        reply = b"".join(response.encrypted_elements)
        self._replied = (request, reply)
        return reply


class Asker:
    """The label holder's side of one exchange with one organization. It has a fresh key."""

    def __init__(self, ids: RowIds) -> None:
        self._ids = ids
        self._psi = _library()
        self._client = self._psi.client.CreateWithNewKey(True)

    def request(self) -> bytes:
        """Own ids, blinded, in their order."""
        return b"".join(self._client.CreateRequest(_names(self._ids)).encrypted_elements)

    def shared(self, setup: bytes, response: bytes) -> NDArray[np.intp]:
        """Positions of the own ids that the organization has as well, rising."""
        theirs = _points(setup, "setup")
        # The library searches a sorted list; in another order it finds too few, without an error.
        whole = self._psi.ServerSetup()
        whole.raw.encrypted_elements.extend(sorted(set(theirs)))
        reply = self._psi.Response(encrypted_elements=_points(response, "response", len(self._ids)))
        found = np.array(
            _tried("response", lambda: self._client.GetIntersection(whole, reply)), dtype=np.intp
        )
        return np.sort(found)


def _library() -> Any:
    try:
        return importlib.import_module("private_set_intersection.python")
    except ImportError as error:
        raise MissingExtraError("psi", "openmined.psi", "private set intersection") from error


def _names(ids: RowIds) -> list[str]:
    """Ids as text to blind; the integer 7 differs from the text "7"."""
    return [f"{ids.kind} {one}" for one in ids.values]


def _points(data: bytes, subject: str, expected: int | None = None) -> list[bytes]:
    """The points in a message, or an error where it is no list of that many."""
    count, rest = divmod(len(data), POINT)
    if rest or count == 0 or (expected is not None and count != expected):
        wanted = "points" if expected is None else f"{expected} points"
        raise InvalidMessageError(
            f"private set intersection: the {subject} has {len(data)} bytes, expected {wanted} of {POINT} "
            "bytes each"
        )
    return [bytes(data[start : start + POINT]) for start in range(0, len(data), POINT)]


def _tried(subject: str, call: Any) -> Any:
    """A call of the library; a point outside of the curve becomes an error about the peer."""
    try:
        return call()
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise InvalidMessageError(
            f"private set intersection: the {subject} cannot be used: {first}"
        ) from error
