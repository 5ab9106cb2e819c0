"""Learning over nodes: carries the requests of Algorithm 1 to the
organizations, round by round, and survives.

Every reply is on the disk before it counts, and a step (one list of requests) is closed in one
transaction that says whose replies count. Learning again from the closed steps gives the same numbers,
so that resuming is simply that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from gal.core.algorithm import learn
from gal.core.passes import on_one_thread
from gal.core.replies import Reply
from gal.core.requests import PredictRequest, Request
from gal.core.state import Ensemble, Progress
from gal.node.holder.learning.beginning import Beginning
from gal.node.holder.learning.open_version import OpenVersion
from gal.node.holder.learning.rounds import Rounds
from gal.node.holder.shared_rows import SharedRows
from gal.node.journal.activity import sayable_loss

if TYPE_CHECKING:
    from gal.privacy.leakage.transcript import Transcript


class Learning:
    """Drives the learning stage of one version over its organizations."""

    def __init__(self, version: OpenVersion, transcript: Transcript | None = None) -> None:
        """``transcript`` collects what was sent and what came back, for who
        wants to know what it gives away.
        """
        self.version, self.transcript = version, transcript
        self.reached: Progress | None = None
        """After the last finished round."""
        self.moved: Mapping[str, Reply] = {}
        """By organization whose model moves: what it says of all rounds after the last one."""
        self._beginning = Beginning(version)

    @property
    def shared(self) -> Mapping[str, SharedRows]:
        """By organization that has begun: the rows that it knows."""
        return self._beginning.shared

    def run(self) -> Ensemble:
        """Learn to the end; LearningInterruptedError where it is stopped,
        and what was done so far is kept.
        """
        self._beginning.begin()
        rounds = Rounds(self.version, self._beginning)
        steps = on_one_thread(learn(self.version.task, on_round=self._report_round))
        try:
            requests = next(steps)
            for step in count(1):
                replies = rounds.step(step, requests)
                self._note(requests, replies)
                requests = steps.send(list(replies))
        except StopIteration as end:
            ensemble: Ensemble = end.value
        finally:
            self._beginning.close()
            rounds.close()
        return rounds.concluded(ensemble)

    def _note(self, requests: Sequence[Request], replies: Sequence[Mapping[str, Reply]]) -> None:
        if self.transcript is not None:
            self.transcript(requests, replies)
        for request, values in zip(requests, replies, strict=True):
            if isinstance(request, PredictRequest) and request.track == "assisted":
                self.moved = values

    def _report_round(self, progress: Progress) -> None:
        self.reached, done = progress, progress.rounds[-1]
        if self.transcript is not None:
            self.transcript.note(progress)
        self.version.gathering.report(
            "round",
            round=done.round,
            rounds=self.version.task.rounds,
            loss=self.version.task.loss.name,
            train_loss=done.train_loss,
            validation_loss=sayable_loss(done.validation_loss),
            initial={
                "train_loss": sayable_loss(progress.initial_train_loss),
                "validation_loss": sayable_loss(progress.initial_validation_loss),
            },
            rate=done.rate,
            weights=dict(done.weights),
            missed=dict(done.left_out),
        )
