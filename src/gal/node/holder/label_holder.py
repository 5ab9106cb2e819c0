"""What a label holder does with her node: learn, predict, compare versions. Arguments and results are plain data.

The same whether she is asked on the command line, or by one that speaks to the running node.
"""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gal.core.state import Ensemble, plain
from gal.errors import GALError, InvalidInputError, InvalidOptionError, LearningInterruptedError, TaskError
from gal.node.holder.label_guard import LabelGuard, leak_facts, refit_facts, transcript_of
from gal.node.holder.label_privacy import privacy_facts, privacy_of
from gal.node.holder.labelled_tasks import (
    VersionFiles,
    check_terms,
    in_order_of_ids,
    learning_task,
    read_labelled,
    true_labels,
)
from gal.node.holder.predicting import NodePrediction, Predictor
from gal.node.holder.rounds import Learning, Patience
from gal.node.holder.version_facts import version_facts
from gal.node.runtime.node import Node
from gal.node.source.data import columns_in, labels_of, read_ids
from gal.node.store.state import Role, TaskRecord
from gal.protocol import Message, prepare

Event = Callable[[Mapping[str, Any]], None]
HOLDER: Role = "label holder"


class LabelHolder:
    """A label holder's work with one running node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.predictor = Predictor(node.state, node.service, node.assistants)
        self.guard = LabelGuard(node)
        self._learning = threading.Lock()
        self._tidy()

    def _tidy(self) -> None:
        """Delete what a crash after the end of a version left of it: its labels and replies."""
        state = self.node.state
        for record in state.tasks(HOLDER):
            for version, facts in state.versions(record.id, HOLDER).items():
                if facts["status"] != "begun":
                    self._drop_files(record, version)

    def _drop_files(self, record: TaskRecord, version: int) -> None:
        self.node.state.drop_replies(record.id, version)
        for path in self.node.state.folder(record.id, version, HOLDER).iterdir():
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Predict no more."""
        self.predictor.close()

    # Learning

    def learn(
        self,
        task: str,
        *,
        resume: bool = False,
        anew: bool = False,
        patience: Patience | None = None,
        measure_leak: bool = False,
        on_event: Event,
        stopping: threading.Event,
    ) -> dict[str, Any]:
        """Learn a new version of a task, or go on with one that was interrupted; what was found.

        ``measure_leak``: attack what was sent when it is over, and tell how much that gave away.
        """
        record = self.node.state.find_task(task, HOLDER)
        if not self._learning.acquire(blocking=False):
            raise TaskError("this node is learning already: wait until it is done")
        try:
            patience = patience or Patience()
            self._check_quorum(record, patience)
            opened = self._resumed if resume else self._opened
            version = opened(record, anew, patience, on_event, stopping)
            started = time.perf_counter()
            try:
                learning = self._prepare(record, version, patience, on_event, stopping)
            except BaseException:
                if not resume:  # nothing was sent, and nothing is there to resume
                    self._drop_files(record, version)
                raise
            if not resume:
                self._begin(learning)
            if measure_leak:
                learning.transcript = transcript_of(learning.task)
            ensemble = learning.run()
            facts = self._finish(learning, ensemble, time.perf_counter() - started)
            return facts | self._measured(learning)
        finally:
            self._learning.release()

    def _check_quorum(self, record: TaskRecord, patience: Patience) -> None:
        members = [one for one, status in self.node.state.members(record.id).items() if status == "invited"]
        if patience.quorum > len(members) + 1:
            raise InvalidOptionError(
                f"--quorum {patience.quorum} can never be reached: {record.name!r} has {len(members) + 1} organizations, your own included"
            )

    def _resumed(self, record: TaskRecord, *_: Any) -> int:
        """The version to go on with."""
        open_ones = self._interrupted(record)
        if not open_ones:
            raise TaskError(
                f"there is nothing to resume of {record.name!r}: gal learn {record.name} starts a new version"
            )
        return open_ones[-1]

    def _interrupted(self, record: TaskRecord) -> list[int]:
        versions = self.node.state.versions(record.id, HOLDER)
        return [number for number, facts in versions.items() if facts["status"] == "begun"]

    def _opened(
        self,
        record: TaskRecord,
        anew: bool,
        patience: Patience,
        on_event: Event,
        stopping: threading.Event,
    ) -> int:
        """A new version, whose rows are read and kept; it has begun once its privacy is paid for."""
        open_ones = self._interrupted(record)
        if open_ones and not anew:
            raise TaskError(
                f"version {open_ones[-1]} of {record.name!r} was interrupted: go on with gal learn {record.name} --resume, or give "
                "it up with --anew"
            )
        for number in open_ones:
            self._abandon(record, number)
        version = max(self.node.state.versions(record.id, HOLDER), default=0) + 1
        moving = self._moving(record, patience, on_event, stopping)
        rows = read_labelled(self.node.configuration)
        if privacy_of(record.options).mechanism != "none":
            rows = in_order_of_ids(rows)
        check_terms(self.node.configuration, record, rows, moving)
        folder = self.node.state.folder(record.id, version, HOLDER)
        members = self.node.state.members(record.id)
        invited = [name for name, status in members.items() if status == "invited"]
        VersionFiles(folder).write(rows, [*invited, self.node.name], moving)
        return version

    def _moving(
        self, record: TaskRecord, patience: Patience, on_event: Event, stopping: threading.Event
    ) -> list[str]:
        """Whose models move, once everybody is there or time is up."""
        members = [name for name, status in self.node.state.members(record.id).items() if status == "invited"]

        def missing() -> list[str]:
            return [name for name in members if name not in self.node.assistants.present(record.id)]

        if missing():
            on_event(
                {
                    "event": "waiting",
                    "what": "to connect",
                    "organizations": missing(),
                    "seconds": patience.join,
                }
            )
        self.node.assistants.wait_for(lambda: stopping.is_set() or not missing(), patience.join)
        if stopping.is_set():
            raise LearningInterruptedError(f"learning {record.name!r} was interrupted before it began")
        needed = patience.enough(len(members) + 1)
        if len(members) + 1 - len(missing()) < needed:
            raise TaskError(
                f"not connected after {patience.join:g} s: {', '.join(missing())}; the quorum is {needed} of {len(members) + 1} "
                f"organizations. Are their nodes running (gal serve), and have they joined {record.name!r} (gal join)?"
            )
        own = self.node.worker("describe")[0]["moving"]
        present = self.node.assistants.present(record.id)
        return sorted([name for name in members if present.get(name)] + ([self.node.name] if own else []))

    def _prepare(
        self,
        record: TaskRecord,
        version: int,
        patience: Patience,
        on_event: Event,
        stopping: threading.Event,
    ) -> Learning:
        """Everything that learning needs; what it will tell of the labels is drawn, kept and charged when this returns."""
        node = self.node
        rows, organizations, moving = VersionFiles(node.state.folder(record.id, version, HOLDER)).read()
        labels = true_labels(record.options, rows.y)
        others = [name for name in organizations if name != node.name]
        seen = self.guard.protect(record, version, rows.ids, labels, others)
        task = learning_task(node.configuration, record.options, seen, organizations, moving)
        return Learning(
            record,
            version,
            task,
            rows,
            labels,
            node.state,
            node.service,
            node.assistants,
            patience,
            on_event,
            stopping,
        )

    def _begin(self, learning: Learning) -> None:
        """From here on the version can be resumed."""
        privacy = privacy_facts(
            self.node.ledger, self.node.configuration, privacy_of(learning.record.options)
        )
        facts = {
            "n_rows": len(learning.rows.ids),
            "n_without_label": learning.rows.n_without,
            "started": _now(),
            "privacy": privacy,
        }
        self.node.state.put_version(learning.record.id, learning.version, "begun", facts, HOLDER)
        learning.on_event({"event": "privacy"} | privacy)

    def _finish(self, learning: Learning, ensemble: Ensemble, seconds: float) -> dict[str, Any]:
        """Remember what was learned, and tell everybody that this version is over."""
        record, version, state, labels = learning.record, learning.version, self.node.state, learning.labels
        facts = dict(state.version(record.id, version, HOLDER) or {}) | {
            "status": "finished",
            "ensemble": plain(ensemble),
            "classes": None if labels.classes is None else labels.classes.tolist(),
            "loss": labels.loss.name,
            "finished": _now(),
            "seconds": round(seconds, 3),
            "known_rows": {name: shared.n_known for name, shared in learning.shared.items()},
            "unknown_rows": {name: shared.n_unknown for name, shared in learning.shared.items()},
        }
        private = privacy_of(record.options).mechanism != "none"
        if private:  # told first: when it is told must not depend on the true labels
            self._end(learning, ensemble)
            facts |= refit_facts(learning.task, labels, learning.reached, learning.moved, ensemble)
        state.finish_version(record.id, version, facts)
        if not private:
            self._end(learning, ensemble)
        self._drop_files(record, version)
        return version_facts(record, version, facts)

    def _measured(self, learning: Learning) -> dict[str, Any]:
        """What the messages of a finished version gave away, kept with it; nothing where nobody wanted to know."""
        record, version, state = learning.record, learning.version, self.node.state
        if learning.transcript is None:
            return {}
        learning.on_event({"event": "measuring"})
        try:
            found = leak_facts(
                learning.transcript, learning.task, learning.labels, privacy_of(record.options)
            )
        except GALError as error:  # the version is learned and stays
            found = {"error": f"the leak could not be measured: {error}"}
        facts = dict(state.version(record.id, version, HOLDER) or {}) | {"leak": found}
        state.put_version(record.id, version, "finished", facts, HOLDER)
        return {"leak": found}

    def _end(self, learning: Learning, ensemble: Ensemble) -> None:
        """Tell organizations which rounds are used; one that is not there learns it with the next version."""
        record, version = learning.record, learning.version
        asked = ensemble.asked()
        kept = {name: ensemble.n_rounds if name in asked else 0 for name in learning.shared}
        messages = {
            name: prepare(Message("end", record.id, version, "end", {"kept": count}))
            for name, count in kept.items()
        }
        own = messages.pop(learning.own_name, None)
        if own is not None:
            self.node.service.answer(learning.asked(own))
        here = self.node.assistants.present(record.id)
        pendings = [self.node.assistants.post(name, one) for name, one in messages.items() if name in here]
        self.node.assistants.wait_for(lambda: all(one.done.is_set() for one in pendings), 10.0)
        self.node.assistants.give_up(pendings)

    def _abandon(self, record: TaskRecord, version: int) -> None:
        state = self.node.state
        facts = state.version(record.id, version, HOLDER) or {}
        state.put_version(record.id, version, "abandoned", facts, HOLDER)
        self._drop_files(record, version)

    # Prediction

    def predict_file(
        self,
        task: str,
        rows: Path,
        out: Path | None = None,
        *,
        version: int | None = None,
        seconds: float = 60.0,
        join: float = 30.0,
    ) -> dict[str, Any]:
        """Predict the rows of a file by their ids; writes a CSV file, or returns the predictions."""
        record = self.node.state.find_task(task, HOLDER)
        if (
            out is not None and not out.parent.is_dir()
        ):  # said before anybody is asked, and its budget charged
            raise InvalidInputError(f"there is no folder {str(out.parent)!r} to write {out.name!r} to")
        table, own_rows = self._rows_of(rows)
        found = self.predictor.predict(
            record, table.ids, own_rows=own_rows, version=version, seconds=seconds, join=join
        )
        facts = prediction_facts(found)
        if out is None:
            return facts | {"rows": prediction_rows(table.ids.values.tolist(), found)}
        write_predictions(out, self.node.configuration.data.row_id, table.ids.values.tolist(), found)  # type: ignore[union-attr]
        return facts | {"written": str(out)}

    def _rows_of(self, rows: Path) -> tuple[Any, Path | None]:
        """The rows of a file, and the file itself where it has the label holder's own columns as well."""
        configuration = self.node.configuration
        if configuration.data is None:
            raise InvalidInputError(
                f"organization {configuration.name!r} has no data: add a section [data] to node.toml"
            )
        if not rows.is_file():
            raise InvalidInputError(f"there is no file {str(rows)!r}")
        own = self.node.worker("rows")[0]["features"]
        given = set(columns_in(configuration, rows))
        lacking = [name for name in own if name not in given]
        if lacking and len(lacking) < len(own):
            raise InvalidInputError(
                f"{str(rows)!r} has some of the own columns of {configuration.name!r} and lacks {', '.join(lacking)}: give all of "
                "them, or none (then they are taken from the source)"
            )
        return read_ids(configuration, rows), None if lacking else rows

    # Versions

    def compare(self, task: str, versions: list[int], rows: Path, **waiting: float) -> dict[str, Any]:
        """How well versions predict the labelled rows of a file."""
        record = self.node.state.find_task(task, HOLDER)
        _, own_rows = self._rows_of(rows)
        table = read_ids(self.node.configuration, rows, label=True)
        y = privacy_of(record.options).as_classes(labels_of(table))
        scores = {}
        for version in versions:
            found = self.predictor.predict(record, table.ids, own_rows=own_rows, version=version, **waiting)
            scores[version] = score_of(found, y)
        return {"task": record.name, "n_rows": len(y), "scores": scores}


def score_of(found: NodePrediction, y: Any) -> dict[str, Any]:
    """Accuracy of classes, or R2 of numbers, and how many rows were degraded."""
    said = np.asarray(found.most_probable(), dtype=object if found.classes is not None else np.float64)
    if found.classes is not None:
        return {"accuracy": float(np.mean(said == y)), "degraded": int(found.degraded.sum())}
    spread = float(((y - y.mean()) ** 2).sum())
    error = float(((y - said) ** 2).sum()) / spread if spread else float("nan")
    return {"r2": 1 - error, "degraded": int(found.degraded.sum())}


def prediction_facts(found: NodePrediction) -> dict[str, Any]:
    """What people want to know of a prediction besides the numbers."""
    return {
        "version": found.version,
        "n_rows": len(found.degraded),
        "degraded": int(found.degraded.sum()),
        "missing": dict(found.missing),
        "unknown": dict(found.unknown),
    }


def prediction_rows(ids: list[Any], found: NodePrediction) -> list[dict[str, Any]]:
    """One mapping per row: id, prediction, probabilities where there are classes, and whether it is degraded."""
    said = found.most_probable()
    rows: list[dict[str, Any]] = [
        {"id": one, "prediction": value, "degraded": bool(weak)}
        for one, value, weak in zip(ids, said, found.degraded, strict=True)
    ]
    if found.classes is not None:
        for row, probabilities in zip(rows, found.prediction.tolist(), strict=True):
            row["probabilities"] = dict(zip(map(str, found.classes), probabilities, strict=True))
    return rows


def write_predictions(out: Path, row_id: str, ids: list[Any], found: NodePrediction) -> None:
    """Predictions as a CSV file: written whole or not at all."""
    classes = [] if found.classes is None else [f"probability_{one}" for one in found.classes]
    draft = out.with_name(out.name + ".part")
    try:
        _write_rows(draft, [row_id, "prediction", *classes, "degraded"], ids, found)
        draft.replace(out)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise InvalidInputError(f"{str(out)!r} cannot be written: {error.strerror or error}") from error


def _write_rows(path: Path, header: list[str], ids: list[Any], found: NodePrediction) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for place, (one, value) in enumerate(zip(ids, found.most_probable(), strict=True)):
            more = found.prediction[place].tolist() if found.classes is not None else []
            values = value if isinstance(value, list) else [value]
            writer.writerow([one, *values, *more, int(found.degraded[place])])


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
