"""What an organization computes: aligning rows, fitting residuals, predicting.
It runs in a process of its own.

Requests come as the bytes that arrived, answers go out as the bytes that will be sent.
Nothing here knows of the network.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gal.alignment import check_overlap, row_digest
from gal.core.requests import FitRequest, Terms
from gal.engine.organization import Organization, predict_locally
from gal.models.adapters import is_moving
from gal.models.parted import takes_parts
from gal.models.registry import make_model
from gal.node.agreement.effective_rows import check_folds
from gal.node.agreement.request_arrays import (
    asked_tokens,
    check_roles,
    fit_request,
    predict_request,
    shared_rows,
)
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.policy import PolicyLimits
from gal.node.source.data import Table, check_kinds, read_like, view_of_table
from gal.node.source.told_columns import model_for, remember_columns
from gal.node.store.files import map_file, write_whole
from gal.node.store.views import load_view
from gal.node.work.answer_noise import ROWS, answer_noise, key_bytes
from gal.node.work.found_rows import save_rows
from gal.node.work.learned_rows import Changes, LearnedRows, remember_rows
from gal.node.work.own_rows import OwnRows, alignment_refusals, check_exchanged, give_back_memory
from gal.node.work.pipe import PredictedRows
from gal.node.work.stored_models import StoredModels
from gal.protocol import Message, decode, digest, encode
from gal.storage import save_models

if TYPE_CHECKING:
    from gal.privacy.mechanisms.answers import AnswerNoise
    from gal.privacy.noise import NoiseSource

Bools = NDArray[np.bool_]
Data = bytes
OwnTable = tuple[Table, NDArray[np.intp], NDArray[Any]]
KEPT = 4
"""So many versions stay in memory."""


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


class LocalWork:
    """One organization's own data and model, and what it does with requests."""

    def __init__(self, configuration: NodeConfiguration, source: NoiseSource | None = None) -> None:
        """``source`` of noise; None: the operating system's entropy. One that can be repeated is refused."""
        self.configuration = configuration
        self._source, self._noises = source, dict[tuple[Any, ...], "AnswerNoise"]()
        self.limits = PolicyLimits(configuration.name, configuration.policy)
        self._lock = threading.Lock()
        self.rows = OwnRows(configuration)
        self._versions: dict[Path, tuple[Organization, Terms]] = {}
        self._models = StoredModels(configuration)
        self._learned = LearnedRows()

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

    def begin(self, data: Data, folder: Path, peer: str, *, own: bool, keys: bool = False) -> Aligned:
        """Find the rows, keep a view of those that are known, and answer which they are.

        ``keys``: leave the ledger's keys of these rows in a file, for answers that are charged.
        """
        message = decode(data)
        table, positions, asked = self.rows.rows_to_learn(message, peer)
        known = positions >= 0
        with alignment_refusals():
            check_roles(message.arrays, len(asked), peer)
            if own:
                check_overlap(int(known.sum()), len(asked), self.configuration.name, peer)
        if not own:  # one answer for few known rows and for none: it must not tell who is known here
            self.limits.check_begin(int(known.sum()), message.version)
            check_exchanged(message, known, self.configuration.name)
        saved = save_rows(table, positions, folder / "view", parts=takes_parts(self.new_model()))
        remember_columns(folder, tuple(saved.kinds), saved.dates)
        remember_rows(saved.ids, saved.view, tuple(saved.kinds), folder)
        answer = encode(
            Message(
                "begun",
                message.task,
                message.version,
                message.request,
                {
                    "answers": digest(data),
                    "rows": row_digest(
                        asked if known.all() else asked[known],
                        message.fields["kind"],
                        message.fields["method"],
                    ),
                    "n_rows": int(known.sum()),
                },
                {"known": known.astype(np.uint8)},
            )
        )
        left = write_whole(folder / ROWS, key_bytes(saved.ids)) if keys else None
        write_whole(folder / "begin.arrow", data)
        write_whole(folder / "begun.arrow", answer)
        with self._lock:
            self._versions.pop(folder, None)
        self.rows.let_go_of_large()  # rounds need the view only
        return Aligned(bytes(answer), int(known.sum()), dict(saved.kinds), left)

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
        begin, begun = (decode(map_file(folder / f"{name}.arrow")) for name in ("begin", "begun"))
        known = begun.arrays["known"] == 1
        rows = shared_rows(begin.arrays, known)
        rows = replace(rows, search=rows.fit, validation=rows.fit[:0])
        give_back_memory()  # what aligning the rows took
        chosen, fields = self.configuration.model, begin.fields
        view = load_view(folder / "view")
        model = model_for(self.configuration, view, folder)
        organization = Organization(fields["organization"], view, model, local_loss=chosen.local_loss)
        return organization, Terms(rows, fields["n_outputs"], fields["rounds"], fields["seed"])

    def fit(
        self,
        data: Data,
        folder: Path,
        answer: str | None,
        model: str | None,
        previous: tuple[str, str] | None,
        noise: Mapping[str, Any] | None = None,
        known: str | None = None,
        *,
        own: bool = True,
    ) -> FittedFile:
        """Fit the residual of a request; leaves the answer and the model in files, each unless it is None.

        ``known`` is the digest of the request, if it was taken; ``own``: of this node itself.
        """
        message = decode(data)
        organization, terms = self.version(folder)
        request = fit_request(message, organization.name)
        if not own:
            looked_at = request.residual, request.sample_weight, request.round
            check_folds(self.limits, terms.rows_for(request), *looked_at)
        self._go_on_from(organization, request, folder, previous)
        started = time.perf_counter()
        values = organization.fit(request, terms)
        seconds = time.perf_counter() - started
        model_digest, answer_digest = None, None
        if model is not None:
            model_digest = _save_models(organization, request, folder / model)
        if answer is not None:
            asked = digest(data) if known is None else known
            answer_digest = write_whole(folder / answer, self._fitted(asked, message, values, noise))
        return FittedFile(answer_digest, model_digest, organization.moves, seconds)

    def _fitted(
        self, asked: str, message: Message, values: NDArray[Any], noise: Mapping[str, Any] | None
    ) -> Any:
        fields = {
            "answers": asked,
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
            found = self._models.read(folder, [previous])
            organization.models.update(
                {key: models for key, models in found.items() if key[0] == request.track}
            )

    # Prediction

    def _changes(self, table: Table, folder: Path) -> Changes:
        """How the rows of today differ from those learned from; at least those asked for."""
        if self.rows.stay_where_they_are:
            return self._learned.changes_so_far(table, folder)
        return self._learned.changes(table, folder)

    def predict(
        self,
        message: Message,
        folder: Path,
        models: Sequence[tuple[str, str]],
        *,
        peer: str,
        rows: str | None,
        n_outputs: int,
        organization: str,
        kinds: Mapping[str, Any],
        noise: Mapping[str, Any] | None = None,
        own_rows: OwnTable | None = None,
    ) -> PredictedRows:
        """Values of all rounds asked for; ``rows`` is a file of own columns that stand in for the source.

        ``organization`` is what the label holder calls this one, ``own_rows`` what `OwnRows.known_rows` found
        for the message.
        """
        keys, changes = b"", Changes()
        if rows is None:
            table, positions, asked = own_rows or self.rows.known_rows(message, peer, kinds)
            known, changes = positions >= 0, self._changes(table, folder)
            if noise is not None:
                keys = key_bytes(table.ids.values[positions[known]])
            check_kinds(table, kinds)
            view = view_of_table(table, positions[known]) if known.any() else None
        else:
            view = view_of_table(read_like(self.configuration, Path(rows), kinds))
            asked = asked_tokens(message, peer)
            known = np.ones(len(asked), dtype=np.bool_)
        request = predict_request(message, organization)
        values = np.zeros((len(request.rounds), 0, n_outputs), dtype=np.float32)
        if view is not None:
            values = predict_locally(
                organization, view, self._models.read(folder, models), request, n_outputs
            )
        order = row_digest(asked[known], message.fields["kind"], message.fields["method"])
        sent = self._for_others(values, noise)
        return PredictedRows(sent, known.astype(np.uint8), order, keys, bool(changes), changes.said())

    def revisit(
        self,
        data: Data,
        folder: Path,
        models: Sequence[tuple[str, str]],
        noise: Mapping[str, Any] | None = None,
    ) -> bytes:
        """What the models say now of the task's own rows."""
        message = decode(data)
        organization, terms = self.version(folder)
        organization.models.clear()
        organization.models.update(self._models.read(folder, models))
        values = organization.revisit(predict_request(message, organization.name), terms)
        arrays: dict[str, NDArray[Any]] = {
            "known": np.ones(values.shape[1], dtype=np.uint8),
            "values": self._for_others(values, noise),
        }
        fields = {"answers": digest(data), "rows": message.fields["rows"]}
        answer = Message("predicted", message.task, message.version, message.request, fields, arrays)
        return bytes(encode(answer))

    def forget(self, folder: Path) -> None:
        """Let go of everything of a task (its folder) that is still in memory."""
        with self._lock:
            self._versions = {
                path: one for path, one in self._versions.items() if folder not in (path, *path.parents)
            }
        self._learned.forget(folder)
        self._models.forget(folder)


def _save_models(organization: Organization, request: FitRequest, path: Path) -> str:
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
