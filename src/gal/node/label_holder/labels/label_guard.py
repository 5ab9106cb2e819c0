"""The noise on labels: drawn once, stored, and charged before anything is sent.

Noisy labels stay in the task's folder until the task is forgotten, so that a later version reveals nothing
new. A row keeps its noisy label when its true one is corrected, because new noise would show the correction;
the private refit uses the current labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gal.alignment import RowIds
from gal.core.passes import added_to
from gal.core.requests import Release, Track
from gal.core.state import Ensemble, Floats, Floats32, Progress
from gal.core.task import Task
from gal.errors import BudgetSpentError, PrivacyError
from gal.learner.labels import Labels
from gal.learner.options import Options
from gal.node.label_holder.holder_node import HOLDER, HolderNode
from gal.node.label_holder.labels.label_privacy import check_allowed, privacy_of, subject_of
from gal.node.store.files import write_whole
from gal.node.store.state import TaskRecord
from gal.privacy.accounting import Event
from gal.privacy.ledger import Budget, Charge, row_keys
from gal.privacy.mechanisms.columns import SUBJECT as COLUMNS
from gal.privacy.mechanisms.contract import LabelMechanism
from gal.privacy.noise import NoiseSource, SystemNoise
from gal.privacy.own_model import OwnModel
from gal.privacy.protection import Protected, parts_at_most, protect
from gal.privacy.refit import added, refit_privately
from gal.secure_aggregation.terms import from_sums

Integers = NDArray[np.int64]

DRAWN = "noisy-labels.arrow"
"""In the folder of a task: key of the row, noisy label, and its draw."""


def write_arrow(path: Path, table: pa.Table, *, durably: bool = False) -> None:
    """A table as a file, whole or not at all."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    write_whole(path, sink.getvalue(), durably=durably)


def read_arrow(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.py_buffer(path.read_bytes())).read_all()


class Recalled:
    """Noise from an earlier draw: returns these noisy values (n,) for any labels."""

    secure = True

    def __init__(self, noisy: Floats) -> None:
        self._noisy = noisy

    def randomised_response(self, codes: Any, n_classes: int, keep: float) -> NDArray[np.intp]:  # noqa: ARG002
        return self._noisy.astype(np.intp)

    def laplace(self, values: Floats, scale: float) -> Floats:  # noqa: ARG002
        return self._noisy.reshape(values.shape)

    gaussian = laplace


@dataclass(frozen=True)
class Drawn:
    """Noisy labels of a task's rows: key of the row, noisy label, and the name of the draw, each (n,).

    The ledger charges a draw by its name: a second draw costs again.
    """

    keys: Integers
    noisy: Floats
    draws: NDArray[np.object_]

    def write(self, path: Path) -> None:
        """Store them; they are on the disk when this returns."""
        columns = {"keys": self.keys, "noisy": self.noisy, "draws": self.draws}
        write_arrow(path, pa.table(columns), durably=True)

    @staticmethod
    def read(path: Path) -> Drawn:
        if not path.exists():
            return Drawn(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0, dtype=object))
        try:
            table = read_arrow(path)
            return Drawn(*(table.column(name).to_numpy() for name in ("keys", "noisy", "draws")))
        except (OSError, KeyError, pa.ArrowException) as error:
            raise PrivacyError(
                f"the noisy labels in {path} are damaged ({error}), and a new draw would cost again: bring "
                "the file back from a backup, or open a new task"
            ) from error

    def of(self, keys: Integers) -> Drawn:
        """The noisy labels of these rows, in their order; all of them are here."""
        order = np.argsort(self.keys)
        places = order[np.searchsorted(self.keys[order], keys)]
        return Drawn(keys, self.noisy[places], self.draws[places])


@dataclass(frozen=True)
class KeptRelease:
    """A mechanism output that is stored before it is used: a resumed version sends the same again."""

    folder: Path
    made: Release
    folds: int
    """Cross-validation folds, whose outputs are charged, too."""

    @property
    def takes_scaled(self) -> bool:
        """Whether residuals are scaled before the noise."""
        return self.made.takes_scaled

    def __call__(self, residual: Any, round: int, track: Track, fold: int | None) -> Any:
        """The output of this round (n, K): the stored one, if there is one."""
        if track != "assisted" or (fold is not None and fold >= self.folds):
            raise PrivacyError(
                "a mechanism output was requested that is not charged: charged are the rounds of the task, "
                f"and {self.folds} cross-validation folds"
            )
        path = self.folder / (f"release-{round}.f8" if fold is None else f"release-{round}-{fold}.f8")
        if path.exists():
            kept, shape = np.fromfile(path, dtype="<f8"), np.shape(residual)
            if kept.size != math.prod(shape):
                raise PrivacyError(
                    f"the mechanism output of round {round} in {path} is damaged, and another would cost "
                    "again: learn a new version (--anew)"
                )
            return kept.reshape(shape)
        noised = np.ascontiguousarray(self.made(residual, round, track, fold), dtype="<f8")
        write_whole(path, noised.data, durably=True)
        return noised


class LabelGuard:
    """Draws, stores and charges the noise of a version; only its outputs are sent.

    ``noise`` makes the source of noise, which must be secure; default: the operating system's entropy.
    """

    def __init__(self, node: HolderNode, noise: Callable[[], NoiseSource] = SystemNoise) -> None:
        self.node, self.noise = node, noise

    def protect(
        self, record: TaskRecord, version: int, ids: RowIds, labels: Labels, peers: Sequence[str]
    ) -> Protected:
        """The visible form of these labels; charged once, at the first call, before it returns."""
        configuration, folder = self.node.configuration, self.node.state.folder(record.id, version, HOLDER)
        privacy, options = privacy_of(record.options), Options(**record.options["options"])
        subject, budget = subject_of(configuration), configuration.privacy.label_budget
        made, keys = privacy.made(), row_keys(ids.values)

        def charge(key: str, subject: str, event: Event, rows: Integers, budget: Budget | None) -> None:
            """Charge these rows; the same key again costs nothing."""
            to = tuple(sorted(peers))
            self.node.ledger.charge(
                Charge(f"{record.id}/{key}", subject, record.name, to, event), rows, budget
            )
            times = f", {event.count} times" if event.count > 1 else ""
            what = f"{event.mechanism} {event.parameter:g}{times}" if made else "no privacy (no bound)"
            note("charged", f"{subject}: {what} for {len(rows)} rows, to {', '.join(to)}")

        def note(kind: str, text: str) -> None:
            self.node.records.audit.append("own", kind, task=record.id, version=version, note=text)

        try:
            check_allowed(configuration, privacy, record.name)
            if made is None:
                charge(f"version {version}/as they are", subject, Event("none", 0.0), keys, budget)
                return protect(None, labels, options, seed=0)
            drawn = self._drawn(made, folder.parents[1] / DRAWN, keys, labels)
            for draw in sorted(set(drawn.draws)):
                charge(f"draw {draw}", subject, made.event, keys[drawn.draws == draw], budget)
            noisy = made.drawing_from(Recalled(drawn.noisy))
            if made.columns is None:
                return protect(noisy, labels, options, seed=0)
            # Column privacy: fresh noise on each residual. A lost output that is drawn again costs again.
            seen = protect(noisy, labels, options, seed=0, fresh=self._source())
            parts, draw = parts_at_most(options, len(labels.y)), folder / "draw"
            if not draw.exists():
                write_whole(draw, uuid4().hex.encode(), durably=True)
            key, event = draw.read_text(encoding="ascii"), made.columns.event(options.usual_rounds, parts)
            charge(f"version {version}/{key}", COLUMNS, event, keys, configuration.privacy.column_budget)
            assert seen.release is not None
            return replace(seen, release=KeptRelease(folder, seen.release, parts))
        except PrivacyError as error:
            why = "budget spent" if isinstance(error, BudgetSpentError) else "refused"
            note("not charged", f"{subject}: {why}: {error}"[:500])
            raise

    def _drawn(self, made: LabelMechanism, path: Path, keys: Integers, labels: Labels) -> Drawn:
        """The noisy labels: stored ones for known rows, drawn and stored now for others."""
        before = Drawn.read(path)
        new = ~np.isin(keys, before.keys)
        if not new.any():
            return before.of(keys)
        some = Labels(labels.y[new], labels.loss, labels.classes)
        noisy = made.noisy(some, self._source()).y[:, 0]
        draws = np.full(len(noisy), uuid4().hex, dtype=object)
        drawn = Drawn(
            np.concatenate([before.keys, keys[new]]),
            np.concatenate([before.noisy, noisy]),
            np.concatenate([before.draws, draws]),
        )
        drawn.write(path)
        return drawn.of(keys)

    def _source(self) -> NoiseSource:
        source = self.noise()
        if source.secure is not True:
            raise PrivacyError(
                f"{type(source).__name__} is no secure source of noise: its seed would take the noise off "
                "again. A node uses the operating system's entropy only; nothing was sent"
            )
        return source


def refit_facts(
    task: Task,
    labels: Labels,
    reached: Progress | None,
    stateful: Mapping[str, Any],
    ensemble: Ensemble,
    own: OwnModel | None = None,
) -> dict[str, Any]:
    """The private refit to the true labels (n, 1), for the version's own facts; never sent.

    ``stateful``: values of all rounds, re-evaluated by shared-body models after the last one.
    """
    rounds = (
        () if reached is None else zip(ensemble.rounds[: ensemble.n_rounds], reached.fitted, strict=False)
    )
    used = set(ensemble.requested())
    fitted: list[dict[str, Floats32]] = [
        {
            name: np.asarray(stateful[name][index] if name in stateful else kept[name], dtype=np.float32)
            for name in done.mean_fitted
            if name in used
        }
        for index, (done, kept) in enumerate(rounds)
    ]
    if not any(fitted):
        return {"private_refit": None}
    public = added_to(task.first_of(), ensemble.coefficients, fitted)

    def loss_of(output: Floats) -> float:
        return float(labels.loss.value(labels.y, output).mean())

    losses, summed = {"public_true_loss": loss_of(public)}, from_sums(ensemble)
    try:
        found = refit_privately(task, labels, ensemble, fitted, own, summed=summed)
    except Exception as error:  # the visible end of a version must not depend on the true labels
        return {"private_refit": None, "refit_problem": f"{type(error).__name__}: {error}"}
    if found is None:
        return losses | {"private_refit": None}
    if found.own is None:
        together = added((ensemble.coefficients, fitted))[1] if summed else fitted
        losses["private_true_loss"] = loss_of(found.output(together))
    else:
        losses["private_true_loss"] = found.own.predicting_loss
    return losses | {"private_refit": found.to_json(), "refit_words": found.words}
