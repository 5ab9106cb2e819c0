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
from typing import TYPE_CHECKING, Any
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
from gal.errors import BudgetSpentError, GALError, PrivacyError
from gal.node.holder.holder_node import HolderNode
from gal.node.holder.labels.label_privacy import (
    LabelPrivacy,
    check_allowed,
    label_budget,
    privacy_of,
    subject_of,
)
from gal.node.store.files import write_whole
from gal.node.store.state import TaskRecord
from gal.privacy.accounting import Event
from gal.privacy.ledger import Charge, row_keys
from gal.privacy.mechanisms.columns import SUBJECT as COLUMNS
from gal.privacy.mechanisms.contract import LabelMechanism
from gal.privacy.noise import NoiseSource, SystemNoise
from gal.privacy.own_model import OwnModel
from gal.privacy.protection import Protected, parts_at_most, protect
from gal.privacy.refit import added, refit_privately
from gal.secrecy.terms import from_sums

if TYPE_CHECKING:
    from gal.privacy.leakage import Transcript

Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

MEASURED_ROWS = 2000
"""Attacks look at so many rows at most."""
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
    """Read it back."""
    return pa.ipc.open_file(pa.py_buffer(path.read_bytes())).read_all()


class Recalled:
    """Noise that was drawn before: gives back these noisy values (n,), whatever the labels are."""

    secure = True

    def __init__(self, noisy: Floats) -> None:
        self._noisy = noisy

    def randomised_response(self, codes: Any, n_classes: int, keep: float) -> NDArray[np.intp]:  # noqa: ARG002
        """The noisy codes (n,)."""
        return self._noisy.astype(np.intp)

    def laplace(self, values: Floats, scale: float) -> Floats:  # noqa: ARG002
        """The noisy values, shape (n, 1)."""
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
        """Read them back."""
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
    """What was said of all rows in each round that is used, by those who are asked again in prediction.

    Of models that move, what they say after the last round (``moved``).
    """
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
    """The private track: what counts, refitted to the true labels (n, 1), with the label holder's own model
    where there is one; for the version's own facts, never sent.
    """
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
    except (
        Exception
    ) as error:  # whatever it is: what others see of the end must not depend on the true labels
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


def transcript_of(task: Task) -> Transcript:
    """An empty transcript of a task; of many rows it keeps a sample of those that are sent."""
    from gal.privacy.leakage import Transcript

    sent = task.rows.fit
    if len(sent) > MEASURED_ROWS:
        sent = np.random.default_rng(task.seed).choice(sent, MEASURED_ROWS, replace=False)
    return Transcript(roles=task.rows, rows=sent)


def leak_facts(transcript: Transcript, task: Task, labels: Labels, privacy: LabelPrivacy) -> dict[str, Any]:
    """What attacks on the messages of a version find out about the true labels (n, 1), as plain data."""
    from gal.privacy.leakage import measure_leakage

    made, classes = privacy.made(), labels.classes
    report = measure_leakage(
        transcript,
        labels.y[:, 0] if classes is None else labels.y[:, 0].astype(np.intp),
        label_holder=task.label_holder,
        privacy=made,
        classes=None if classes is None else range(len(classes)),
        loss=labels.loss if made is None else None,
        seed=task.seed,
    )
    return _as_seen_from_here(report.to_json())


def _as_seen_from_here(facts: dict[str, Any]) -> dict[str, Any]:
    """The same without what was not measured: she has none of the others' columns,
    so nothing says what these tell.
    """
    attacks = [one for one in facts.get("attacks", []) if not one["name"].startswith("own features")]
    for one in attacks:
        one["ordinary"]["without"] = one["canaries"]["without"] = None
    if not any(one["ordinary"]["with"]["of"] for one in attacks) or facts["verdict"].startswith("EVERY"):
        return facts | {"attacks": attacks}
    best = max(attacks, key=lambda one: float(one["ordinary"]["with"]["share"] or 0.0))
    share, bound = best["ordinary"]["with"], facts["bound"]
    said = (
        f"The strongest attack ({best['name']}) was right about {share['share']:.1%} ({share['low']:.1%} to "
        f"{share['high']:.1%}) of these rows."
    )
    if bound is not None:
        said += (
            f" The guarantee allows {bound:.1%} on average for rows whose classes were all equally likely "
            "before; where columns or the share of a class tell something, guesses are better without any "
            "message."
        )
    said += (
        " gal leakage FILE --target COLUMN tries it on rows with random labels, where only messages count."
    )
    return facts | {"attacks": attacks, "verdict": said}


class LabelGuard:
    """Draws, keeps and charges what a version tells of the labels; what it has not let through is not sent.

    ``noise`` makes the source of noise; default: the operating system's entropy. One
    that is not secure is refused.
    """

    def __init__(self, node: HolderNode, noise: Callable[[], NoiseSource] | None = None) -> None:
        self.node = node
        self.noise: Callable[[], NoiseSource] = SystemNoise if noise is None else noise

    def protect(
        self,
        record: TaskRecord,
        version: int,
        ids: RowIds,
        labels: Labels,
        peers: Sequence[str],
    ) -> Protected:
        """What learning may see of these true labels; charged when this returns, and the
        same however often it is called.
        """
        privacy, options = privacy_of(record.options), Options(**record.options["options"])
        disclosure = _Disclosure(self.node, record, version, tuple(sorted(peers)), row_keys(ids.values))
        made = privacy.made()
        try:
            check_allowed(self.node.configuration, privacy, record.name)
            if made is not None:
                return self._on_labels(made, disclosure, labels, options)
            disclosure.charge(version, "as they are", Event("none", 0.0), disclosure.keys)
            return protect(None, labels, options, seed=0)
        except PrivacyError as error:
            disclosure.refused(error)
            raise

    def _on_labels(
        self, made: LabelMechanism, disclosure: _Disclosure, labels: Labels, options: Options
    ) -> Protected:
        """The noisy copy of the labels and, where columns are protected, residuals with fresh noise."""
        noisy = made.drawing_from(Recalled(self._noisy(made, disclosure, labels)))
        if made.columns is None:
            return protect(noisy, labels, options, seed=0)
        seen = protect(noisy, labels, options, seed=0, fresh=self._source())
        parts = parts_at_most(options, len(labels.y))
        disclosure.charge_columns(made.columns.event(options.usual_rounds, parts))
        assert seen.release is not None
        return replace(seen, release=KeptRelease(disclosure.folder, seen.release, parts))

    def _noisy(self, made: LabelMechanism, disclosure: _Disclosure, labels: Labels) -> Floats:
        """The noisy copy (n,) of the labels: as drawn before for rows that were there,
        drawn now and kept for others.
        """
        noisy, since = np.empty(len(labels.y)), np.zeros(len(labels.y), dtype=np.int64)
        earlier = disclosure.drawn()
        draws = {version: drawn.draw for version, drawn in earlier.items()}
        for version, drawn in sorted(earlier.items(), reverse=True):
            there, at = drawn.places_of(disclosure.keys)
            there &= since == 0
            noisy[there], since[there] = drawn.noisy[at[there]], version
        new = since == 0
        if new.any():
            part = Labels(labels.y[new], labels.loss, labels.classes)
            noisy[new], since[new] = made.noisy(part, self._source()).y[:, 0], disclosure.version
            mine = since == disclosure.version
            draw = draws.setdefault(disclosure.version, uuid4().hex)
            Drawn(disclosure.keys[mine], noisy[mine], draw).write(
                disclosure.home / str(disclosure.version) / DRAWN
            )
        for version in np.unique(since).tolist():
            disclosure.charge(version, draws[version], made.event, disclosure.keys[since == version])
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
        """Where the files of this version lie until it is finished."""
        return self.node.state.folder(self.record.id, self.version, "label holder")

    @property
    def home(self) -> Path:
        """Where the files of the task lie."""
        return self.folder.parents[1]

    def drawn(self) -> dict[int, Drawn]:
        """By version: the noisy labels that were drawn for it; none of a later one."""
        found = {int(path.parent.name): path for path in self.home.glob(f"*/{DRAWN}")}
        return {version: Drawn.read(path) for version, path in found.items() if version <= self.version}

    def releases(self) -> str:
        """Names the releases of this version, beside which it lies: if they are lost,
        and drawn again, they cost again.
        """
        path = self.folder / "draw"
        if not path.exists():
            write_whole(path, uuid4().hex.encode(), durably=True)
        return path.read_text(encoding="ascii")

    def charge(self, version: int, draw: str, event: Event, keys: Integers) -> None:
        """Charge these rows with what was drawn for a version of this task; the
        same draw again costs nothing.
        """
        configuration = self.node.configuration
        charge = Charge(
            f"{self.record.id}/version {version}/{draw}",
            subject_of(configuration),
            self.record.name,
            self.peers,
            event,
        )
        self.node.ledger.charge(charge, keys, label_budget(configuration))
        again = "" if version == self.version else f", as in version {version}: costs nothing more"
        self._note(
            "charged", f"{_event_in_words(event)} for {len(keys)} rows, to {', '.join(self.peers)}{again}"
        )

    def charge_columns(self, event: Event) -> None:
        """Charge all rows with what the residuals of this version tell of the answers about them."""
        key = f"{self.record.id}/version {self.version}/{self.releases()}"
        charge = Charge(key, COLUMNS, self.record.name, self.peers, event)
        self.node.ledger.charge(charge, self.keys, self.node.configuration.privacy.column_budget)
        said = f"{_event_in_words(event)} for {len(self.keys)} rows, to {', '.join(self.peers)}"
        self._note("charged", said, COLUMNS)

    def refused(self, error: GALError) -> None:
        """Write down that nothing was sent, and why."""
        why = "budget spent" if isinstance(error, BudgetSpentError) else "refused"
        self._note("not charged", f"{why}: {error}"[:500])

    def _note(self, kind: str, note: str, subject: str | None = None) -> None:
        subject = subject_of(self.node.configuration) if subject is None else subject
        self.node.records.audit.append(
            "own", kind, task=self.record.id, version=self.version, note=f"{subject}: {note}"
        )


def _event_in_words(event: Event) -> str:
    if event.mechanism == "none":
        return "no privacy (no bound)"
    times = f", {event.count} times" if event.count > 1 else ""
    return f"{event.mechanism} {event.parameter:g}{times}"
