"""What an organization computes: aligning rows, fitting residuals, predicting. It runs in a process of its own.

Requests come as the bytes that arrived, answers go out as the bytes that will be sent. Nothing here knows of the network.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gal.alignment import (
    Index,
    check_overlap,
    check_same_kind,
    row_digest,
    secret_digest,
    tokens,
)
from gal.core.requests import FitRequest, Terms
from gal.engine.organization import Organization, predict_locally
from gal.errors import AlignmentError, LocalModelError, RefusedError
from gal.models.adapters import is_moving
from gal.models.registry import make_model
from gal.node.agreement.request_arrays import (
    asked_tokens,
    check_roles,
    fit_request,
    predict_request,
    secret_of,
    shared_rows,
)
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.policy import Limits
from gal.node.source.data import Table, check_kinds, read_like, read_source, stamp_of, view_in_blocks, view_of
from gal.node.store.files import read_whole, write_whole
from gal.node.store.views import load_view, save_view
from gal.node.work.answer_noise import ROWS, answer_noise, key_bytes
from gal.protocol import Message, decode, digest, encode
from gal.storage import load_models, save_models

if TYPE_CHECKING:
    from gal.privacy.answers import AnswerNoise
    from gal.privacy.noise import NoiseSource

Bools = NDArray[np.bool_]
KEPT = 4
"""So many versions stay in memory."""

KEPT_MODELS = 500
"""So many rounds' models stay in memory for predictions."""
LARGE = 100_000_000
"""Bytes of a table that does not stay in memory beside the view that is fitted."""


class Aligned(NamedTuple):
    """The rows of a version that this organization knows."""

    answer: bytes
    n_rows: int
    kinds: dict[str, str]
    """Its columns, and whether each is numbers or text: later rows must have the same."""
    keys: str | None = None
    """The digest of the file with the ledger's keys of these rows, where there is one."""


class FittedFile(NamedTuple):
    """What a fit left on the disk."""

    answer_digest: str | None
    model_digest: str | None
    moving: bool
    seconds: float
    """Of the local fit alone: neither messages nor files."""


class Predicted(NamedTuple):
    """Values of rows, as they will be sent."""

    answer: bytes
    rows: bytes = b""
    """The ledger's keys of the rows that are known, as a file; empty where there is no noise, and nothing to charge."""


class LocalWork:
    """One organization's own data and model, and what it does with requests."""

    def __init__(self, configuration: NodeConfiguration, source: NoiseSource | None = None) -> None:
        """``source`` of noise; None: the operating system's entropy. One that can be repeated is refused."""
        self.configuration = configuration
        self._source, self._noises = source, dict[tuple[Any, ...], "AnswerNoise"]()
        self.limits = Limits(configuration.name, configuration.policy)
        self._lock = threading.Lock()
        self._table: tuple[Any, Table] | None = None
        self._indices: dict[tuple[Any, str], Index] = {}
        self._versions: dict[Path, tuple[Organization, Terms]] = {}
        self._models: dict[tuple[Path, str], Any] = {}
        self._holders: dict[Any, Any] = {}

    def new_model(self) -> Any:
        """An unfitted local model, as node.toml names it."""
        chosen = self.configuration.model
        return make_model(self.configuration.name, chosen.use, chosen.options)

    @property
    def moves(self) -> bool:
        """Whether the local model is one that moves."""
        return is_moving(self.new_model())

    def noise(self, facts: Mapping[str, Any] | None) -> AnswerNoise | None:
        """The noise on answers that the node asks for, and charges; None: none."""
        if facts is None:
            return None
        from gal.privacy.noise import SystemNoise

        with self._lock:
            key = tuple(sorted(facts.items()))
            if key not in self._noises:
                self._noises[key] = answer_noise(facts, self._source or SystemNoise())
            return self._noises[key]

    # Rows

    def table(self) -> Table:
        """All rows, read again when the source has changed."""
        with self._lock:
            stamp = stamp_of(self.configuration)
            if self._table is None or self._table[0] != stamp:
                # A query (no stamp) is asked once; what it reads may change without our seeing it.
                self._table = stamp, read_source(self.configuration)
                self._indices.clear()
                give_back_memory()
            return self._table[1]

    def index(self, method: str) -> tuple[Table, Index]:
        """Where rows are found by their tokens."""
        table = self.table()
        with self._lock:
            key = id(table), method
            if key not in self._indices:
                self._indices[key] = Index(tokens(table.ids, method, self.secret(method)))
            return table, self._indices[key]

    def secret(self, method: str) -> bytes | None:
        """The secret for keyed hashes; None for other methods."""
        return secret_of(self.configuration) if method == "hashed" else None

    def known_rows(self, message: Message, peer: str) -> tuple[Table, NDArray[np.intp], NDArray[Any]]:
        """The table, where each row asked for is in it (-1: unknown), and the tokens asked for."""
        fields = message.fields
        asked = asked_tokens(message, peer)
        secret = self.secret(fields["method"])
        if secret is not None and secret_digest(secret) != fields["secret"]:
            raise RefusedError(
                "alignment",
                f"{peer!r} and organization {self.configuration.name!r} have different secrets for keyed hashes: compare "
                "the files named by data.secret_file",
            )
        table, index = self.index(fields["method"])
        with telling_the_peer():
            check_same_kind(table.ids, fields["kind"], self.configuration.name, peer)
        return table, index.positions(asked), asked

    def begin(self, data: bytes, folder: Path, peer: str, *, own: bool, keys: bool = False) -> Aligned:
        """Find the rows, keep a view of those that are known, and answer which they are.

        ``keys``: leave the ledger's keys of these rows in a file, for answers that are charged.
        """
        message = decode(data)
        table, positions, asked = self.known_rows(message, peer)
        known = positions >= 0
        with telling_the_peer():
            check_roles(message.arrays, len(asked), peer)
            Index(asked)  # refuses a row that is there twice
            check_overlap(int(known.sum()), len(asked), self.configuration.name, peer)
        if not own:
            self.limits.check_begin(int(known.sum()), message.version)
        save_view(view_in_blocks(table, positions[known]), folder / "view")
        answer = encode(
            Message(
                "begun",
                message.task,
                message.version,
                message.request,
                {
                    "answers": digest(data),
                    "rows": row_digest(asked[known], message.fields["kind"], message.fields["method"]),
                    "n_rows": int(known.sum()),
                },
                {"known": known.astype(np.uint8)},
            )
        )
        left = write_whole(folder / ROWS, key_bytes(table.ids.values[positions[known]])) if keys else None
        write_whole(folder / "begin.arrow", data)
        write_whole(folder / "begun.arrow", answer)
        kinds: dict[str, str] = dict(table.kinds)
        del table
        with self._lock:
            self._versions.pop(folder, None)
            self._let_go_of_table()
        return Aligned(bytes(answer), int(known.sum()), kinds, left)

    def _let_go_of_table(self) -> None:
        """Rounds need the view only: a large table is read again when somebody asks for a prediction."""
        if self._table is not None and self._table[1].columns.nbytes > LARGE:
            self._table = None
            self._indices.clear()

    def blind(self, data: bytes, peer: str) -> bytes:
        """One step of a private set intersection; each exchange has a key of its own, and answers once."""
        from gal.alignment.psi import Holder

        message = decode(data)
        fields = message.fields
        table = self.table()
        with telling_the_peer():
            check_same_kind(table.ids, fields["kind"], self.configuration.name, peer)
        key = peer, message.task, fields["exchange"]
        if fields["step"] == "setup":
            holder: Holder | None = Holder(table.ids)
            with self._lock:
                while len(self._holders) >= KEPT:
                    self._holders.pop(next(iter(self._holders)))
                self._holders[key] = holder
            made = self._holders[key].setup(fields["n_rows"])
        else:
            with self._lock:
                holder = self._holders.get(key)
            if holder is None or "bytes" not in message.arrays:
                raise RefusedError(
                    "alignment", "no such private set intersection was begun here: begin it again"
                )
            made = holder.respond(message.arrays["bytes"].tobytes())
        said, arrays = {"answers": digest(data)}, {"bytes": np.frombuffer(made, dtype=np.uint8)}
        return bytes(encode(Message("blinded", message.task, message.version, message.request, said, arrays)))

    # Rounds

    def version(self, folder: Path) -> tuple[Organization, Terms]:
        """The organization as it takes part in a version, from the files of its beginning."""
        with self._lock:
            if folder not in self._versions:
                while len(self._versions) >= KEPT:
                    self._versions.pop(next(iter(self._versions)))
                self._versions[folder] = self._open(folder)
            return self._versions[folder]

    def _open(self, folder: Path) -> tuple[Organization, Terms]:
        begin, begun = (decode((folder / f"{name}.arrow").read_bytes()) for name in ("begin", "begun"))
        known = begun.arrays["known"] == 1
        rows = shared_rows(begin.arrays, known)
        give_back_memory()  # what aligning the rows took
        chosen, fields = self.configuration.model, begin.fields
        organization = Organization(
            fields["organization"], load_view(folder / "view"), self.new_model(), local_loss=chosen.local_loss
        )
        return organization, Terms(rows, fields["n_outputs"], fields["rounds"], fields["seed"])

    def fit(
        self,
        data: bytes,
        folder: Path,
        answer: str | None,
        model: str | None,
        previous: tuple[str, str] | None,
        noise: Mapping[str, Any] | None = None,
    ) -> FittedFile:
        """Fit the residual of a request; leaves the answer and the model in files, each unless it is None."""
        message = decode(data)
        organization, terms = self.version(folder)
        request = fit_request(message, organization.name)
        self._go_on_from(organization, request, folder, previous)
        started = time.perf_counter()
        values = organization.fit(request, terms)
        seconds = time.perf_counter() - started
        model_digest, answer_digest = None, None
        if model is not None:
            model_digest = self._save_models(organization, request, folder / model)
        if answer is not None:
            answer_digest = write_whole(folder / answer, self._fitted(data, message, values, noise))
        return FittedFile(answer_digest, model_digest, organization.moves, seconds)

    def _fitted(
        self, data: bytes, message: Message, values: NDArray[Any], noise: Mapping[str, Any] | None
    ) -> Any:
        fields = {
            "answers": digest(data),
            "rows": message.fields["rows"],
            "round": message.fields["round"],
        }
        arrays = {"fitted": self._for_others(values, noise)}
        return encode(Message("fitted", message.task, message.version, message.request, fields, arrays))

    def _for_others(self, values: NDArray[Any], noise: Mapping[str, Any] | None) -> NDArray[np.float32]:
        """Values as they leave: with noise, where there is any, and rounded."""
        added = self.noise(noise)
        noisy = values if added is None else added(values)
        return np.ascontiguousarray(self.limits.rounded(noisy), dtype=np.float32)

    def _go_on_from(
        self, organization: Organization, request: FitRequest, folder: Path, previous: tuple[str, str] | None
    ) -> None:
        """A moving model goes on from its last stored round, whatever this process remembers."""
        if not organization.moves:
            return
        for key in [key for key in organization.models if key[0] == request.track]:
            del organization.models[key]
        if previous is not None:
            found = self._stored(folder, *previous)
            organization.models.update(
                {key: models for key, models in found.items() if key[0] == request.track}
            )

    def _save_models(self, organization: Organization, request: FitRequest, path: Path) -> str:
        """Write the models of this round (of all rounds so far, where the model moves); their digest."""
        wanted = {
            key: models
            for key, models in organization.models.items()
            if key[0] == request.track and (organization.moves or key[1] == request.round)
        }
        save_models(path, organization.name, wanted)
        if not organization.moves:  # fitted models of past rounds are on the disk: no need to keep them all
            organization.models.clear()
        return digest(path.read_bytes())

    def _stored(self, folder: Path, file: str, expected: str) -> Mapping[tuple[Any, int], Any]:
        """Models in a file, read once."""
        path = folder / file
        with self._lock:
            if (path, expected) in self._models:
                return dict(self._models[path, expected])
        if read_whole(path, expected) is None:
            raise LocalModelError(
                f"organization {self.configuration.name!r}: the stored model {path.name} is missing or damaged"
            )
        found = load_models(path, trusted=self.configuration.model.trusted)
        with self._lock:
            while len(self._models) >= KEPT_MODELS:
                self._models.pop(next(iter(self._models)))
            self._models[path, expected] = found
        return found

    # Prediction

    def predict(
        self,
        data: bytes,
        folder: Path,
        models: Sequence[tuple[str, str]],
        *,
        peer: str,
        rows: str | None,
        n_outputs: int,
        organization: str,
        kinds: Mapping[str, Any],
        noise: Mapping[str, Any] | None = None,
    ) -> Predicted:
        """Values of all rounds asked for; ``rows`` is a file of own columns that stand in for the source.

        ``organization`` is what the label holder calls this one.
        """
        message, keys = decode(data), b""
        if rows is None:
            table, positions, asked = self.known_rows(message, peer)
            known = positions >= 0
            if noise is not None:
                keys = key_bytes(table.ids.values[positions[known]])
            check_kinds(table, kinds)
            view = view_of(table, positions[known]) if known.any() else None
        else:
            view = view_of(read_like(self.configuration, Path(rows), kinds))
            asked = asked_tokens(message, peer)
            known = np.ones(len(asked), dtype=np.bool_)
        request = predict_request(message, organization)
        values = np.zeros((len(request.rounds), 0, n_outputs), dtype=np.float32)
        if view is not None:
            values = predict_locally(organization, view, self._all_stored(folder, models), request, n_outputs)
        order = row_digest(asked[known], message.fields["kind"], message.fields["method"])
        return Predicted(self._predictions(data, message, order, known, values, noise), keys)

    def revisit(
        self,
        data: bytes,
        folder: Path,
        models: Sequence[tuple[str, str]],
        noise: Mapping[str, Any] | None = None,
    ) -> bytes:
        """What the models say now of the task's own rows."""
        message = decode(data)
        organization, terms = self.version(folder)
        organization.models.clear()
        organization.models.update(self._all_stored(folder, models))
        values = organization.revisit(predict_request(message, organization.name), terms)
        known = np.ones(values.shape[1], dtype=np.bool_)
        return self._predictions(data, message, message.fields["rows"], known, values, noise)

    def _all_stored(self, folder: Path, models: Sequence[tuple[str, str]]) -> dict[tuple[Any, int], Any]:
        found: dict[tuple[Any, int], Any] = {}
        for file, expected in dict.fromkeys((file, expected) for file, expected in models):
            found.update(self._stored(folder, file, expected))
        return found

    def _predictions(
        self,
        data: bytes,
        message: Message,
        order: str,
        known: Bools,
        values: NDArray[np.float32],
        noise: Mapping[str, Any] | None,
    ) -> bytes:
        arrays: dict[str, NDArray[Any]] = {
            "known": known.astype(np.uint8),
            "values": self._for_others(values, noise),
        }
        fields = {"answers": digest(data), "rows": order}
        return bytes(
            encode(Message("predicted", message.task, message.version, message.request, fields, arrays))
        )

    def forget(self, folder: Path) -> None:
        """Let go of everything of a task (its folder) that is still in memory."""
        with self._lock:
            self._versions = {
                path: one for path, one in self._versions.items() if folder not in (path, *path.parents)
            }
            self._models = {key: one for key, one in self._models.items() if folder not in key[0].parents}


def give_back_memory() -> None:
    """Give what is free back to the operating system; with the worker's settings also what is not Arrow's."""
    pa.default_memory_pool().release_unused()


@contextmanager
def telling_the_peer() -> Iterator[None]:
    """What is wrong between two organizations is for both to know; other errors are not told outside."""
    try:
        yield
    except AlignmentError as error:
        raise RefusedError("alignment", str(error)) from error
