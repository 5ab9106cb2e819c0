"""Commands of the worker process: aligning rows, fitting residuals, predicting.

Public methods of `LocalWork` are the commands, except ``version``, ``noise`` and ``new_model``. A request is
the bytes that arrived; a result is facts, and the bytes to be sent.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment import check_overlap, row_digest
from gal.core.requests import FitRequest, Terms
from gal.core.rows import all_rows
from gal.learner.organization import Organization, predict_locally
from gal.models.adapters import is_stateful
from gal.models.parted import takes_parts
from gal.models.registry import make_model
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.policy import PolicyLimits
from gal.node.config.requests import (
    check_roles,
    fit_request,
    predict_request,
    requested_tokens,
)
from gal.node.source.data import check_kinds, part_columns, read_like, view_in_parts, view_of_table
from gal.node.store.files import write_whole
from gal.node.store.row_index import LEARNED, RowIndex
from gal.node.store.views import load_view, save_parts, save_view
from gal.node.worker.allowance import ALLOWANCE
from gal.node.worker.answer_noise import ROWS, answer_noise, key_bytes
from gal.node.worker.open_versions import OpenVersions, model_of_view, store_columns
from gal.node.worker.own_rows import OwnRows, alignment_refusals
from gal.node.worker.worker import PredictedRows, Result
from gal.protocol import Message, decode, digest, encode
from gal.storage import save_models

if TYPE_CHECKING:
    from gal.privacy.mechanisms.answers import AnswerNoise
    from gal.privacy.noise import NoiseSource

Noise = Mapping[str, Any] | None
Folder = Path | str


class LocalWork:
    """One organization's own data and model, which handle requests."""

    def __init__(self, configuration: NodeConfiguration, source: NoiseSource | None = None) -> None:
        """``source`` of noise; None: the operating system. One that can be repeated is refused."""
        self.configuration = configuration
        self._source, self._noises = source, dict[tuple[Any, ...], "AnswerNoise"]()
        self.limits = PolicyLimits(configuration.name, configuration.policy)
        self._lock = threading.Lock()
        self.own_rows = OwnRows(configuration)
        self.version = OpenVersions(configuration)

    def new_model(self) -> Any:
        """An unfitted local model, as node.toml names it."""
        chosen = self.configuration.model
        return make_model(self.configuration.name, chosen.use, chosen.options)

    def noise(self, facts: Noise) -> AnswerNoise | None:
        """The noise on replies with these facts; None: none."""
        if facts is None:
            return None
        from gal.privacy.noise import SystemNoise

        with self._lock:
            key = tuple(sorted(facts.items()))
            if key not in self._noises:
                self._noises[key] = answer_noise(facts, self._source or SystemNoise())
            return self._noises[key]

    def _limited(self, own: bool) -> AbstractContextManager[None]:
        """The limits of a request of others; own requests have none."""
        policy = self.configuration.policy
        limits = (0, 0) if own else (policy.fit_cpu_seconds, policy.fit_memory)
        return ALLOWANCE.granted(*limits)

    def describe(self, data: bytes) -> Result:  # noqa: ARG002
        """Whether the local model is stateful."""
        return {"moving": is_stateful(self.new_model())}, b""

    def attempt(self, data: bytes, view: Folder) -> Result:  # noqa: ARG002
        """Fit the local model to a file of rows; whether it returns a finite number for each."""
        name, rows = self.configuration.name, load_view(Path(view))
        with self._limited(own=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = model_of_view(self.configuration, rows, (), ())
            organization = Organization(name, rows, model, local_loss=self.configuration.model.local_loss)
            residual = np.random.default_rng(0).normal(size=(len(rows), 1)).astype(np.float32)
            terms = Terms(all_rows(len(rows)), n_outputs=1, rounds=1, seed=0)
            fitted = organization.fit(FitRequest(1, residual, (name,)), terms)
        fits = fitted.shape == residual.shape and bool(np.isfinite(fitted).all())
        return {"fits": fits, "shape": fitted.shape}, b""

    def signs(self, data: bytes, view: Folder, names: Sequence[str]) -> Result:  # noqa: ARG002
        """Fit the local model as interaction probes would; what sign bits reveal of each column."""
        from gal.privacy.leakage.own_signs import rehearse_signs

        rows, chosen = load_view(Path(view)), self.configuration
        with self._limited(own=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = model_of_view(chosen, rows, names, ())
            organization = Organization(chosen.name, rows, model, local_loss=chosen.model.local_loss)
            return {"columns": rehearse_signs(organization, rows, names)}, b""

    def rows(self, data: bytes) -> Result:  # noqa: ARG002
        """The features of the source, which is read."""
        return self.own_rows.facts(), b""

    def intersect(self, data: bytes, peer: str) -> Result:
        """One step of a private set intersection."""
        with ALLOWANCE.granted(0, 0):
            return {}, self.own_rows.intersect(data, peer)

    def begin(self, data: bytes, folder: Folder, peer: str, *, own: bool, keys: bool = False) -> Result:
        """Align rows, store the view of those that are known, and reply which they are.

        ``keys``: store the ledger's keys of these rows in a file for replies with noise; the facts have its
        digest.
        """
        message, folder = decode(data), Path(folder)
        with ALLOWANCE.granted(0, 0):  # the source is as large as it is
            table, positions, requested = self.own_rows.rows_to_learn(message, peer)
            known, there = positions >= 0, positions[positions >= 0]
            with alignment_refusals():
                check_roles(message.arrays, len(requested), peer)
                if own:
                    check_overlap(len(there), len(requested), self.configuration.name, peer)
            if not own:  # the same refusal for few known rows and for none, as it must not reveal ids
                self.limits.check_begin(len(there))
                # Rows after a private set intersection are known to both; others would be guesses.
                if message.fields["method"] == "psi" and not known.all():
                    raise self.limits.refusal("psi")
            if takes_parts(self.new_model()):
                save_parts(part_columns(table), view_in_parts(table, there), folder / "view")
            else:
                save_view(view_of_table(table, there), folder / "view")
            store_columns(folder, table.features, table.dates)
            (folder / LEARNED).unlink(missing_ok=True)  # with the key of an earlier try
            RowIndex(folder / LEARNED).add(table.ids.values[there])
            kind, method = message.fields["kind"], message.fields["method"]
            order = row_digest(requested if known.all() else requested[known], kind, method)
            fields, arrays = {"rows": order, "n_rows": len(there)}, {"known": known.astype(np.uint8)}
            reply = bytes(_answer("begun", message, digest(data), fields, arrays))
            left = write_whole(folder / ROWS, key_bytes(table.ids.values[there])) if keys else None
            write_whole(folder / "begin.arrow", data)
            write_whole(folder / "begun.arrow", reply)
        self.version.forget()
        self.own_rows.drop_large_table()  # rounds need the view only
        return {"n_rows": len(there), "kinds": dict(table.kinds), "keys": left}, reply

    # Rounds

    def fit(
        self,
        data: bytes,
        folder: Folder,
        answer: str | None,
        model: str | None,
        previous: Sequence[str] | None,
        *,
        own: bool = True,
        noise: Noise = None,
        known: str | None = None,
    ) -> Result:
        """Fit the residual of a request; store the reply and the model in files, unless these are None.

        ``previous``: file and digest of the model of the round before; ``known``: the digest of the request
        if computed. Facts: digests of both files, whether the model is stateful, seconds of the fit alone.
        """
        folder = Path(folder)
        organization, terms = self.version(folder)  # reading and importing is not part of the fit
        self.noise(noise)
        with self._limited(own):
            message = decode(data)
            request = fit_request(message, organization.name)
            if not own:
                looked_at = request.residual, request.sample_weight, request.round
                self.limits.check_folds(terms.rows_for(request), *looked_at)
            if organization.stateful:  # it continues from its last stored round, not from memory
                stored = {} if previous is None else self.version.models(folder, [(previous[0], previous[1])])
                for key in [key for key in organization.models if key[0] == request.track]:
                    del organization.models[key]
                organization.models.update(
                    {key: one for key, one in stored.items() if key[0] == request.track}
                )
            started = time.perf_counter()
            values = organization.fit(request, terms)
            facts: dict[str, Any] = {
                "seconds": time.perf_counter() - started,
                "moving": organization.stateful,
            }
            facts |= {"answer_digest": None, "model_digest": None}
            if model is not None:
                facts["model_digest"] = _save_models(
                    organization, request.track, request.round, folder / model
                )
            if answer is not None:
                fields = {name: message.fields[name] for name in ("rows", "round")}
                arrays = {"fitted": self._for_others(values, noise)}
                content = _answer("fitted", message, known or digest(data), fields, arrays)
                facts["answer_digest"] = write_whole(folder / answer, content)
        return facts, b""

    def _for_others(self, values: NDArray[Any], noise: Noise) -> NDArray[np.float32]:
        """Values with noise, if any, as float32."""
        added = self.noise(noise)
        noisy = values if added is None else added(values)
        return np.ascontiguousarray(noisy, dtype=np.float32)

    # Prediction

    def predict(
        self,
        data: bytes,
        folder: Folder,
        models: Sequence[tuple[str, str]],
        *,
        own: bool,
        peer: str,
        rows: str | None,
        n_outputs: int,
        organization: str,
        kinds: Mapping[str, Any],
        noise: Noise = None,
        keyed: bool = False,
    ) -> Result:
        """Predict all requested rounds; the result is `PredictedRows`, packed.

        ``rows``: a file with own columns in place of the source; ``organization``: this one's name at the
        label holder.
        """
        message, folder = decode(data), Path(folder)
        if rows is None:
            with ALLOWANCE.granted(0, 0):  # reading the source is not part of it
                table, positions, requested = self.own_rows.known_rows(message, peer, kinds)
        with self._limited(own):
            keys = b""
            if rows is None:
                known = positions >= 0
                if keyed:
                    keys = key_bytes(table.ids.values[positions[known]])
                check_kinds(table, kinds)
                view = view_of_table(table, positions[known]) if known.any() else None
            else:
                view = view_of_table(read_like(self.configuration, Path(rows), kinds))
                requested = requested_tokens(message, peer)
                known = np.ones(len(requested), dtype=np.bool_)
            request = predict_request(message, organization)
            values = np.zeros((len(request.rounds), 0, n_outputs), dtype=np.float32)
            if view is not None:
                stored = self.version.models(folder, models)
                values = predict_locally(organization, view, stored, request, n_outputs)
            order = row_digest(requested[known], message.fields["kind"], message.fields["method"])
            sent = self._for_others(values, noise)
            return PredictedRows(sent, known.astype(np.uint8), order, keys).packed()

    def revisit(
        self,
        data: bytes,
        folder: Folder,
        models: Sequence[tuple[str, str]],
        *,
        own: bool = True,
        noise: Noise = None,
    ) -> Result:
        """Re-evaluate stateful models on the rows of the version."""
        folder = Path(folder)
        organization, terms = self.version(folder)
        with self._limited(own):
            message = decode(data)
            organization.models.clear()
            organization.models.update(self.version.models(folder, models))
            values = organization.revisit(predict_request(message, organization.name), terms)
            everybody = np.ones(values.shape[1], dtype=np.uint8)
            arrays: dict[str, NDArray[Any]] = {"known": everybody, "values": self._for_others(values, noise)}
            fields = {"rows": message.fields["rows"]}
            return {}, bytes(_answer("predicted", message, digest(data), fields, arrays))

    # Forgetting

    def forget(self, data: bytes) -> Result:  # noqa: ARG002
        """Drop versions and models from memory, as files of one were deleted."""
        self.version.forget()
        return {}, b""


def _answer(
    kind: str, request: Message, known: str, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> Any:
    """The reply to a request, whose digest is ``known``."""
    complete = {"answers": known, **fields}
    return encode(Message(kind, request.task, request.version, request.request, complete, arrays))


def _save_models(organization: Organization, track: Any, round: int, path: Path) -> str:
    """Store the models of this round, or of all rounds if stateful; their digest."""
    wanted = {
        key: models
        for key, models in organization.models.items()
        if key[0] == track and (organization.stateful or key[1] == round)
    }
    save_models(path, organization.name, wanted)
    if not organization.stateful:  # models of past rounds are on the disk
        organization.models.clear()
    return digest(path.read_bytes())
