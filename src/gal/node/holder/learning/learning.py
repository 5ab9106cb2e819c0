"""Learning over nodes: Algorithm 1, driven by `Rounds`, whose log of steps is what resumes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from gal.core.passes import on_one_thread
from gal.core.pipeline import learn
from gal.core.replies import Reply
from gal.core.requests import PredictRequest, Request
from gal.core.state import Ensemble, Progress
from gal.node.holder.learning.beginning import Beginning
from gal.node.holder.learning.gathering import OpenVersion
from gal.node.holder.learning.replies import read_values
from gal.node.holder.learning.rounds import Rounds
from gal.node.holder.shared_rows import SharedRows
from gal.node.journal.activity import sayable_loss
from gal.node.journal.failures import describe_failure
from gal.privacy.own_model import OwnModel, learn_own
from gal.protocol import prepare

Found = TypeVar("Found")


def _driven(
    steps: Generator[Any, Any, Found], ask: Callable[[int, Sequence[Request]], list[dict[str, Reply]]]
) -> Found:
    """What the engine has found at the end, when each of its steps was asked."""
    steps = on_one_thread(steps)
    try:
        requests = next(steps)
        for step in count(1):
            requests = steps.send(ask(step, requests))
    except StopIteration as end:
        found: Found = end.value
    return found


class Learning:
    """Drives the learning stage of one version over its organizations."""

    def __init__(self, version: OpenVersion) -> None:
        self.version = version
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
        """Learn to the end; LearningInterruptedError where it is stopped: what was done is kept."""
        self._beginning.begin()
        rounds = Rounds(self.version, self._beginning)

        def ask(step: int, requests: Sequence[Request]) -> list[dict[str, Reply]]:
            replies = rounds.step(step, requests)
            self._note(requests, replies)
            return replies

        try:
            ensemble = _driven(learn(self.version.task, on_round=self._report_round), ask)
        finally:
            self._beginning.close()
            rounds.close()
        return rounds.concluded(ensemble)

    def own_model(self) -> OwnModel | None:
        """The label holder's own model under a privacy guarantee, from the true labels; None without one.

        It is asked of its own organization only, after the end, and nothing of it leaves this machine. What
        its organization has answered is kept with its models, so that what resumes gets the same.
        """
        version, own = self.version, self.version.own_name
        if own not in self.shared:
            return None

        def answer(number: str, request: Request) -> Reply:
            shared = self.shared[own]
            asked = shared.message(request, version.task, version.record.id, version.number, number)
            try:
                message = version.ask_own(prepare(asked)).message
            except Exception as error:
                return RuntimeError(describe_failure(error, own).inside)
            return read_values(message, shared, request, version.task)

        def ask(step: int, requests: Sequence[Request]) -> list[dict[str, Reply]]:
            return [{own: answer(f"own {step}.{place}", one)} for place, one in enumerate(requests)]

        return _driven(learn_own(version.task, version.labels), ask)

    def _note(self, requests: Sequence[Request], replies: Sequence[Mapping[str, Reply]]) -> None:
        for request, values in zip(requests, replies, strict=True):
            if isinstance(request, PredictRequest) and request.track == "assisted":
                self.moved = values

    def _report_round(self, progress: Progress) -> None:
        self.reached, done = progress, progress.rounds[-1]
        self.version.report(
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
