"""Learning and prediction as commands of a label holder's running node, on plain data."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gal.errors import InvalidInputError, TaskError
from gal.node.config.data_source import FILES
from gal.node.label_holder.holder_node import HOLDER, HolderNode, tidy
from gal.node.label_holder.learning.open_version import Event, OpenVersion, Patience

if TYPE_CHECKING:
    from gal.alignment import RowIds
    from gal.node.label_holder.labels.label_guard import LabelGuard
    from gal.node.label_holder.predicting import NodePrediction, Predictor


class LabelHolder:
    """A label holder's work with one running node.

    Modules that compute are imported at their first use: an idle node needs none of them.
    """

    def __init__(self, node: HolderNode) -> None:
        self.node = node
        self._learning, self._making = threading.Lock(), threading.RLock()
        tidy(node.state)

    @cached_property
    def predictor(self) -> Predictor:
        """The predictor of this process; it keeps its models in memory."""
        with self._making:
            if "predictor" in vars(self):  # made by another thread
                return self.predictor
            from gal.node.label_holder.predicting import Predictor

            self.predictor = Predictor(self.node)
            return self.predictor

    @cached_property
    def guard(self) -> LabelGuard:
        from gal.node.label_holder.labels.label_guard import LabelGuard

        return LabelGuard(self.node)

    def close(self) -> None:
        if "predictor" in vars(self):
            self.predictor.close()

    def learn(
        self,
        task: str,
        *,
        anew: bool = False,
        patience: Patience | None = None,
        on_event: Event,
        stopping: threading.Event,
    ) -> dict[str, Any]:
        """Learn a new version of a task, or resume an interrupted one; the version's facts.

        ``anew``: abandon the interrupted one.
        """
        from gal.node.label_holder.learning.learning import Learning

        record, activity = self.node.state.find_task(task, HOLDER), self.node.records.activity
        with self.exclusive_learning(), activity.learning(record.name, record.terms.rounds):
            chosen = patience or Patience()
            version = OpenVersion(self.node, record, 0, chosen, on_event, stopping, watcher=activity)
            return Learning(version, self.guard).run(anew=anew)

    @contextmanager
    def exclusive_learning(self) -> Iterator[None]:
        """Nothing else is learned inside this block; an error where something is."""
        if not self._learning.acquire(blocking=False):
            now, what = self.node.records.activity.facts()["learning"], ""
            if now is not None and now["state"] == "learning":
                done = f", {now['round']} of at most {now['rounds']} rounds are done" if now["round"] else ""
                what = f" {now['task']!r} (version {now['version']}{done})"
            raise TaskError(f"this node is learning{what} already: wait until it is done (gal status)")
        try:
            yield
        finally:
            self._learning.release()

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
        from gal.node.label_holder import predicting as files

        record = self.node.state.find_task(task, HOLDER)
        if out is not None and not out.parent.is_dir():  # before any request is charged
            raise InvalidInputError(f"there is no folder {str(out.parent)!r} to write {out.name!r} to")
        row_ids, own_rows = self._rows_of(rows)
        row_id = self.node.configuration.data.row_id  # type: ignore[union-attr]

        def predict(ids: RowIds) -> NodePrediction:
            how = {"version": version, "seconds": seconds, "join": join}
            return self.predictor.predict(record, ids, own_rows=own_rows, **how)  # type: ignore[arg-type]

        # A file with own columns is read whole, a private set intersection is made once for all rows.
        at_once = out is None or own_rows is not None or record.terms.alignment == "psi"
        if at_once or len(row_ids) <= files.BATCH:
            found = predict(row_ids)
        else:
            found = files.predict_in_batches(row_ids, predict, np.random.default_rng())
        facts, ids = files.prediction_facts(found), row_ids.values.tolist()
        if out is None:
            text = io.StringIO()
            files.write_predictions(text, row_id, ids, found)
            return facts | {"rows": files.prediction_rows(ids, found), "csv": text.getvalue()}
        with files.whole_csv(out) as file:
            files.write_predictions(file, row_id, ids, found)
        return facts | {"written": str(out)}

    def _rows_of(self, rows: Path) -> tuple[RowIds, Path | None]:
        """The ids of a file, and the file itself where it has the label holder's own columns as well."""
        from gal.node.source.data import columns_in, data_of, read_ids

        configuration, row_id = self.node.configuration, data_of(self.node.configuration).row_id
        if not rows.is_file() or rows.suffix.lower() not in FILES:
            raise InvalidInputError(f"there is no file of rows (.csv, .parquet or .xlsx) {str(rows)!r}")
        own = self.node.worker("rows")[0]["features"]
        given = set(columns_in(configuration, rows))
        if row_id not in given:
            raise InvalidInputError(
                f"{str(rows)!r} has no column {row_id!r}, which names a row (row_id in node.toml): add it. "
                f"There are {', '.join(sorted(given)[:30])}"
            )
        lacking = [name for name in own if name not in given]
        if lacking and len(lacking) < len(own):
            raise InvalidInputError(
                f"{str(rows)!r} has some of the own columns of {configuration.name!r} and lacks "
                f"{', '.join(lacking)}: give all of them, or none (then they are taken from the source)"
            )
        return read_ids(configuration, rows).ids, None if lacking else rows
