"""An organization's own rows, found by tokens or in a private set intersection."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gal.alignment import Index, RowIds, check_distinct, check_same_kind, secret_digest, tokens
from gal.errors import AlignmentError, RefusedError
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.requests import requested_tokens, secret_of
from gal.node.source.data import (
    Kind,
    Table,
    read_rows,
    read_some,
    read_source,
    source_ids,
    source_stamp,
    stamp_of,
    streamed_features,
)
from gal.node.store.row_index import forgotten_stamp
from gal.protocol import Message, decode, digest, encode

LARGE = 100_000_000
"""Bytes of a table beyond which it is dropped once its view is stored."""

EXCHANGES_KEPT = 4
"""Open private set intersections of one peer."""

Found = tuple[Table, NDArray[np.intp], NDArray[Any]]
"""A table, the position of each requested row in it (-1: unknown), and the requested tokens."""


class OwnRows:
    """All rows of this organization and their positions."""

    def __init__(self, configuration: NodeConfiguration) -> None:
        self._configuration, self._name = configuration, configuration.name
        self._lock = threading.Lock()
        self._table: tuple[Any, Table] | None = None
        self._indices: dict[tuple[Any, str], Index] = {}
        self._ids: tuple[Any, RowIds, Index] | None = None
        self._holders: dict[Any, Any] = {}

    @property
    def is_streamed(self) -> bool:
        """Whether the source is a database or a lake: streamed to learn, queried by id to predict."""
        return self._configuration.data is not None and self._configuration.data.is_streamed

    def facts(self) -> dict[str, Any]:
        """The features, and the number of rows where it is known without reading."""
        if self.is_streamed:
            return {"n_rows": None, "features": list(streamed_features(self._configuration))}
        table = self.table()
        return {"n_rows": len(table.ids), "features": list(table.features)}

    def table(self) -> Table:
        """All rows, read again when the source has changed."""
        with self._lock:
            stamp = stamp_of(self._configuration), forgotten_stamp(self._configuration.home)
            if self._table is None or self._table[0] != stamp:
                # Without a stamp, such as that of a query, changes are not noticed.
                self._table = stamp, read_source(self._configuration)
                self._indices.clear()
                give_back_memory()
            return self._table[1]

    def drop_large_table(self) -> None:
        """Drop a large table after session setup; a prediction reads it again."""
        with self._lock:
            if self._table is not None and self._table[1].columns.nbytes > LARGE:
                self._table = None
                self._indices.clear()

    def known_rows(
        self,
        message: Message,
        peer: str,
        kinds: Mapping[str, Kind] | None = None,
    ) -> Found:
        """Find the requested rows; the table of a streamed source has no others, with these ``kinds``."""
        method, requested = message.fields["method"], self._requested(message, peer)
        if not self.is_streamed:
            table = self.table()
            self._check_kind(table.ids, message, peer)
            with self._lock:
                key = id(table), method
                if key not in self._indices:
                    self._indices[key] = Index(self._tokens(table.ids, method))
                index = self._indices[key]
            return table, index.positions(requested), requested
        wanted = RowIds(message.fields["kind"], requested)
        if method == "hashed":  # only own ids can be recognized by their hashes
            with self._lock:
                stamp = source_stamp(self._configuration), forgotten_stamp(self._configuration.home)
                if self._ids is None or stamp[0] is None or self._ids[0] != stamp:
                    own = source_ids(self._configuration).ids
                    self._ids = stamp, own, Index(self._tokens(own, "hashed"))
                _, ids, index = self._ids
            found = index.positions(requested)
            wanted = ids.take(found[found >= 0])
        table = read_rows(self._configuration, wanted, kinds)
        if len(table) == 0:
            self._check_kind(read_some(self._configuration, 1).ids, message, peer)
            return table, np.full(len(requested), -1, dtype=np.intp), requested
        self._check_kind(table.ids, message, peer)
        return table, Index(self._tokens(table.ids, method)).positions(requested), requested

    def rows_to_learn(self, message: Message, peer: str) -> Found:
        """`known_rows`, with an error for repeated rows."""
        found = self.known_rows(message, peer)
        with alignment_refusals():
            check_distinct(found[2])
        return found

    def _requested(self, message: Message, peer: str) -> NDArray[Any]:
        """The tokens in a message; a refusal where the secrets for keyed hashes differ."""
        requested = requested_tokens(message, peer)
        hashed = message.fields["method"] == "hashed"
        if hashed and secret_digest(secret_of(self._configuration)) != message.fields["secret"]:
            raise RefusedError(
                "alignment",
                f"{peer!r} and organization {self._name!r} have different secrets for keyed hashes: compare "
                "the files named by data.secret_file",
            )
        return requested

    def _tokens(self, ids: RowIds, method: str) -> NDArray[Any]:
        return tokens(ids, method, secret_of(self._configuration) if method == "hashed" else None)

    def _check_kind(self, ids: RowIds, message: Message, peer: str) -> None:
        with alignment_refusals():
            check_same_kind(ids, message.fields["kind"], self._name, peer)

    def intersect(self, data: bytes, peer: str) -> bytes:
        """One step of a private set intersection, whose key serves one exchange."""
        from gal.alignment.psi import Holder

        message = decode(data)
        fields = message.fields
        table = source_ids(self._configuration) if self.is_streamed else self.table()
        self._check_kind(table.ids, message, peer)
        key = peer, message.task, fields["exchange"]
        if fields["step"] == "setup":
            holder = Holder(table.ids)
            with self._lock:
                # For each label holder, so that it cannot end exchanges of another.
                begun = [one for one in self._holders if one[0] == peer and one != key]
                for one in begun[: max(0, len(begun) + 1 - EXCHANGES_KEPT)]:
                    del self._holders[one]
                self._holders[key] = holder
            made = holder.setup(fields["n_rows"])
        else:
            with self._lock:
                known: Holder | None = self._holders.get(key)
            if known is None or "bytes" not in message.arrays:
                raise RefusedError("alignment", "unknown private set intersection: begin it again")
            made = known.respond(message.arrays["bytes"].tobytes())
        answers, arrays = {"answers": digest(data)}, {"bytes": np.frombuffer(made, dtype=np.uint8)}
        about = message.task, message.version, message.request
        return bytes(encode(Message("blinded", *about, answers, arrays)))


def give_back_memory() -> None:
    """Return free memory to the operating system; with the worker's settings also that of NumPy."""
    pa.default_memory_pool().release_unused()


@contextmanager
def alignment_refusals() -> Iterator[None]:
    """Turn alignment errors into refusals, which both organizations may see."""
    try:
        yield
    except AlignmentError as error:
        raise RefusedError("alignment", str(error)) from error
