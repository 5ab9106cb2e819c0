"""What a version tells of the labels is drawn once, kept, and charged, before anything is sent.

Under a label mechanism the noisy labels lie in the folder of the version that drew them, before the first
message, and stay there until the task is forgotten: what resumes, and every later version, uses them again,
which tells nobody anything new.
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
from gal.core.requests import Release, Track
from gal.core.state import Ensemble, Floats, Floats32, Progress
from gal.core.task import Task
from gal.engine.labels import Labels
from gal.engine.options import Options
from gal.errors import BudgetSpentError, PrivacyError
from gal.node.holder.holder_node import HolderNode
from gal.node.holder.labels.label_privacy import (
    check_allowed,
    label_budget,
    privacy_of,
    subject_of,
)
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
from gal.secrecy.terms import from_sums

Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

DRAW = b"gal draw"
DRAWN = "noisy-labels.arrow"
"""In the folder of a version: the noisy labels that were drawn for it."""


def write_arrow(path: Path, table: pa.Table, *, durably: bool = False) -> None:
    """A table as a file, whole or not at all."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    write_whole(path, sink.getvalue(), durably=durably)


def read_arrow(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.py_buffer(path.read_bytes())).read_all()


class Recalled:
    """Noise that was drawn before: gives back these noisy values (n,), whatever the labels are."""

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
    """Noisy labels as one version drew them: key of the row and noisy label, each (n,).

    A row keeps its noisy label when its true one is corrected later: new noise for changed labels only would
    show which ones were changed. What is learned in the private refit is the label of today.
    """

    keys: Integers
    noisy: Floats
    draw: str
    """Names the draw in the ledger: one that was lost and is drawn again costs again."""

    def write(self, path: Path) -> None:
        """Keep them; they are on the disk when this returns."""
        table = pa.table({"keys": self.keys, "noisy": self.noisy})
        write_arrow(path, table.replace_schema_metadata({DRAW: self.draw.encode()}), durably=True)

    @staticmethod
    def read(path: Path) -> Drawn:
        try:
            table = read_arrow(path)
            keys, noisy = (table.column(name).to_numpy() for name in ("keys", "noisy"))
            return Drawn(keys, noisy, table.schema.metadata[DRAW].decode())
        except (OSError, KeyError, TypeError, pa.ArrowException) as error:
            raise PrivacyError(
                f"the noisy labels in {path} are damaged ({error}), and new ones would cost again: bring the "
                "file back from a backup, or open a new task"
            ) from error

    def places_of(self, keys: Integers) -> tuple[Bools, NDArray[np.intp]]:
        """Which rows (n,) have a draw, and where it is."""
        if len(self.keys) == 0:
            return np.zeros(len(keys), dtype=np.bool_), np.zeros(len(keys), dtype=np.intp)
        order = np.argsort(self.keys, kind="stable")
        at = order[np.minimum(np.searchsorted(self.keys[order], keys), len(order) - 1)]
        return self.keys[at] == keys, at


@dataclass(frozen=True)
class KeptRelease:
    """Noised residuals that are on the disk before they are used: what resumes sends the same again."""

    folder: Path
    made: Release
    parts: int = 0
    """Of a cross-validation, whose releases are paid for too."""

    @property
    def takes_scaled(self) -> bool:
        """Whether residuals are scaled before; after, for one with a guarantee."""
        return self.made.takes_scaled

    def __call__(self, residual: Any, round: int, track: Track, part: int | None) -> Any:
        """The release of this round (n, K): the one that was drawn before, if there is one."""
        if track != "assisted" or (part is not None and part >= self.parts):
            raise PrivacyError(
                "a release was asked for that is not paid for: only the rounds of the task itself are, and "
                f"{self.parts} parts of a cross-validation"
            )
        name = f"release-{round}.f8" if part is None else f"release-{round}-{part}.f8"
        path, shape = self.folder / name, np.shape(residual)
        if path.exists():
            kept = np.fromfile(path, dtype="<f8")
            if kept.size != math.prod(shape):
                raise PrivacyError(
                    f"the release of round {round} in {path} is damaged, and another would cost again: "
                    "learn a new version (--anew)"
                )
            return kept.reshape(shape)
        noised = np.ascontiguousarray(self.made(residual, round, track, part), dtype="<f8")
        write_whole(path, noised.data, durably=True)
        return noised


def fitted_values(
    reached: Progress | None, moved: Mapping[str, Any], ensemble: Ensemble
) -> list[dict[str, Floats32]]:
    """What was predicted of all rows in each round that is used; ``moved``: by shared-body models."""
    if reached is None:
        return []
    asked = set(ensemble.asked())
    return [
        {
            name: np.asarray(moved[name][index] if name in moved else kept[name], dtype=np.float32)
            for name in done.mean_fitted  # who took part in the round, as it counts in the end
            if name in asked
        }
        for index, (done, kept) in enumerate(
            zip(ensemble.rounds[: ensemble.n_rounds], reached.fitted, strict=False)
        )
    ]


def refit_facts(
    task: Task,
    labels: Labels,
    reached: Progress | None,
    moved: Mapping[str, Any],
    ensemble: Ensemble,
    own: OwnModel | None = None,
) -> dict[str, Any]:
    """What counts, refitted to the true labels (n, 1): for the version's own facts, never sent."""
    fitted = fitted_values(reached, moved, ensemble)
    if not any(fitted):
        return {"private_refit": None}
    public = np.broadcast_to(task.first_output, (len(labels.y), ensemble.n_outputs)).copy()
    for counts, values in zip(ensemble.coefficients, fitted, strict=True):
        for name, count in counts.items():
            public += count * values[name]
    losses = {"public_true_loss": _mean_loss(labels, public)}
    try:
        summed = from_sums(ensemble)
        found = refit_privately(task, labels, ensemble, fitted, own, summed=summed)
    except Exception as error:  # what others see of the end must not depend on the true labels
        return {"private_refit": None, "refit_problem": f"{type(error).__name__}: {error}"}
    if found is None:
        return losses | {"private_refit": None}
    if found.own is None:
        rounds = added((ensemble.coefficients, fitted))[1] if summed else fitted
        losses["private_true_loss"] = _mean_loss(labels, found.output(rounds))
    else:
        losses["private_true_loss"] = found.own.predicting_loss
    return losses | {"private_refit": found.to_json(), "refit_words": found.words}


def _mean_loss(labels: Labels, output: Floats) -> float:
    return float(labels.loss.value(labels.y, output).mean())


class LabelGuard:
    """Draws, keeps and charges what a version tells of the labels; what it has not let through is not sent.

    ``noise`` makes the source of noise; default: the operating system's entropy. One that is not secure is
    refused.
    """

    def __init__(self, node: HolderNode, noise: Callable[[], NoiseSource] | None = None) -> None:
        self.node = node
        self.noise: Callable[[], NoiseSource] = SystemNoise if noise is None else noise

    def protect(
        self, record: TaskRecord, version: int, ids: RowIds, labels: Labels, peers: Sequence[str]
    ) -> Protected:
        """What learning may see of these labels; charged when this returns, however often it is called."""
        privacy, options = privacy_of(record.options), Options(**record.options["options"])
        disclosure = _Disclosure(self.node, record, version, tuple(sorted(peers)), row_keys(ids.values))
        made = privacy.made()
        try:
            check_allowed(self.node.configuration, privacy, record.name)
            if made is None:
                disclosure.charge_labels(version, "as they are", Event("none", 0.0), disclosure.keys)
                return protect(None, labels, options, seed=0)
            noisy = made.drawing_from(Recalled(self._noisy(made, disclosure, labels)))
            if made.columns is None:
                return protect(noisy, labels, options, seed=0)
            # Where columns are protected, residuals get fresh noise.
            seen = protect(noisy, labels, options, seed=0, fresh=self._source())
            parts = parts_at_most(options, len(labels.y))
            disclosure.charge_columns(made.columns.event(options.usual_rounds, parts))
            assert seen.release is not None
            return replace(seen, release=KeptRelease(disclosure.folder, seen.release, parts))
        except PrivacyError as error:
            why = "budget spent" if isinstance(error, BudgetSpentError) else "refused"
            disclosure.note("not charged", f"{why}: {error}"[:500], subject_of(self.node.configuration))
            raise

    def _noisy(self, made: LabelMechanism, disclosure: _Disclosure, labels: Labels) -> Floats:
        """The noisy copy (n,): as drawn before for rows that were there, drawn now and kept for others."""
        noisy, since = np.empty(len(labels.y)), np.zeros(len(labels.y), dtype=np.int64)
        earlier = disclosure.drawn()
        draws = {version: drawn.draw for version, drawn in earlier.items()}
        for version, drawn in sorted(earlier.items(), reverse=True):
            there, at = drawn.places_of(disclosure.keys)
            there &= since == 0
            noisy[there], since[there] = drawn.noisy[at[there]], version
        new, mine = since == 0, disclosure.version
        if new.any():
            part = Labels(labels.y[new], labels.loss, labels.classes)
            noisy[new], since[new] = made.noisy(part, self._source()).y[:, 0], mine
            draw, kept = draws.setdefault(mine, uuid4().hex), since == mine
            Drawn(disclosure.keys[kept], noisy[kept], draw).write(disclosure.home / str(mine) / DRAWN)
        for version in np.unique(since).tolist():
            disclosure.charge_labels(version, draws[version], made.event, disclosure.keys[since == version])
        return noisy

    def _source(self) -> NoiseSource:
        source = self.noise()
        if source.secure is not True:
            raise PrivacyError(
                f"{type(source).__name__} is no secure source of noise: whoever knows its seed takes the "
                "noise off again. A node takes the operating system's entropy only; nothing was sent"
            )
        return source


@dataclass(frozen=True)
class _Disclosure:
    """To whom a version of a task tells of which rows."""

    node: HolderNode
    record: TaskRecord
    version: int
    peers: tuple[str, ...]
    keys: Integers
    """Of its rows in their order, (n,)."""

    @property
    def folder(self) -> Path:
        return self.node.state.folder(self.record.id, self.version, "label holder")

    @property
    def home(self) -> Path:
        return self.folder.parents[1]

    def drawn(self) -> dict[int, Drawn]:
        """By version: the noisy labels that were drawn for it; none of a later one."""
        found = {int(path.parent.name): path for path in self.home.glob(f"*/{DRAWN}")}
        return {version: Drawn.read(path) for version, path in found.items() if version <= self.version}

    def charge_labels(self, version: int, draw: str, event: Event, keys: Integers) -> None:
        """Charge these rows with what was drawn for a version; the same draw again costs nothing."""
        configuration = self.node.configuration
        again = "" if version == self.version else f", as in version {version}: costs nothing more"
        subject, budget = subject_of(configuration), label_budget(configuration)
        self._charge(f"version {version}/{draw}", subject, event, keys, budget, again)

    def charge_columns(self, event: Event) -> None:
        """Charge all rows with what the residuals of this version tell of the answers about them."""
        path = self.folder / "draw"  # releases that are lost, and drawn again, cost again
        if not path.exists():
            write_whole(path, uuid4().hex.encode(), durably=True)
        key = f"version {self.version}/{path.read_text(encoding='ascii')}"
        self._charge(key, COLUMNS, event, self.keys, self.node.configuration.privacy.column_budget)

    def _charge(
        self, key: str, subject: str, event: Event, keys: Integers, budget: Budget | None, more: str = ""
    ) -> None:
        charge = Charge(f"{self.record.id}/{key}", subject, self.record.name, self.peers, event)
        self.node.ledger.charge(charge, keys, budget)
        times = f", {event.count} times" if event.count > 1 else ""
        what = f"{event.mechanism} {event.parameter:g}{times}"
        if event.mechanism == "none":
            what = "no privacy (no bound)"
        self.note("charged", f"{what} for {len(keys)} rows, to {', '.join(self.peers)}{more}", subject)

    def note(self, kind: str, said: str, subject: str) -> None:
        about, audit = f"{subject}: {said}", self.node.records.audit
        audit.append("own", kind, task=self.record.id, version=self.version, note=about)
