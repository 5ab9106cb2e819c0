"""Private set intersection: the label holder learns which of its ids an
organization knows, and no other id of it.

Both sides blind the ids with keys of their own (points of an elliptic curve, library openmined.psi).
What travels are points of 33 bytes, one after another: a message is checked before the library sees it,
and nothing else of the library's formats is taken from a peer (a Bloom filter with many hash functions
would keep it busy for hours).
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
    """The organization's side of one exchange. It has a fresh key: make a new one for each exchange.

    It answers one request. Who could ask again with other ids could try out all ids there are.
    """

    def __init__(self, ids: RowIds) -> None:
        self._ids = ids
        self._psi = _library()
        self._server = self._psi.server.CreateWithNewKey(True)
        self._n_client: int | None = None
        self._answered: tuple[bytes, bytes] | None = None

    def setup(self, n_client: int) -> bytes:
        """All own ids, blinded and sorted, so that neither an id nor the order of rows can be seen.

        ``n_client`` is how many ids the label holder will ask about; no request of another size is answered.
        """
        if n_client < 1:
            raise AlignmentError(f"the label holder asks about {n_client} ids, expected at least 1")
        self._n_client = n_client
        raw = self._psi.DataStructure.RAW  # the only one without false positives
        message = self._server.CreateSetupMessage(1e-9, n_client, _names(self._ids), raw)
        return b"".join(sorted(message.raw.encrypted_elements))

    def respond(self, request: bytes) -> bytes:
        """The label holder's blinded ids, blinded once more, in their order."""
        if self._answered is not None and self._answered[0] == request:
            return self._answered[1]
        if self._answered is not None or self._n_client is None:
            why = "before its setup" if self._n_client is None else "a second time, with other ids"
            raise AlignmentError(f"a private set intersection was asked {why}; start a new exchange")
        points = _points(request, "request", self._n_client)
        message = self._psi.Request(reveal_intersection=True, encrypted_elements=points)
        response = _tried("request", lambda: self._server.ProcessRequest(message))
        answer = b"".join(response.encrypted_elements)
        self._answered = (request, answer)
        return answer


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
        # The library looks for points in a sorted list; it finds too few, without a word, in another.
        whole = self._psi.ServerSetup()
        whole.raw.encrypted_elements.extend(sorted(set(theirs)))
        answer = self._psi.Response(encrypted_elements=_points(response, "response", len(self._ids)))
        found = np.array(
            _tried("response", lambda: self._client.GetIntersection(whole, answer)), dtype=np.intp
        )
        return np.sort(found)


def _library() -> Any:
    try:
        return importlib.import_module("private_set_intersection.python")
    except ImportError as error:
        raise MissingExtraError("psi", "openmined.psi", "private set intersection") from error


def _names(ids: RowIds) -> list[str]:
    """Ids as the text that is blinded; the integer 7 is not the text "7"."""
    return [f"{ids.kind} {one}" for one in ids.values]


def _points(data: bytes, what: str, expected: int | None = None) -> list[bytes]:
    """The points in a message, or an error where it cannot be a list of so many."""
    count, rest = divmod(len(data), POINT)
    if rest or count == 0 or (expected is not None and count != expected):
        wanted = "points" if expected is None else f"{expected} points"
        raise InvalidMessageError(
            f"private set intersection: the {what} has {len(data)} bytes, expected {wanted} of {POINT} "
            "bytes each"
        )
    return [bytes(data[start : start + POINT]) for start in range(0, len(data), POINT)]


def _tried(what: str, call: Any) -> Any:
    """What the library makes of a peer's points; it says so where one of them is not on the curve."""
    try:
        return call()
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise InvalidMessageError(f"private set intersection: the {what} cannot be used: {first}") from error
