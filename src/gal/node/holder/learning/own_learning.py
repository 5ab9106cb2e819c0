"""The label holder's own model under a privacy guarantee: asked of her own organization only, after the end.

Nothing of it leaves this machine. What her organization has answered is kept with its models, so that what
resumes gets the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from gal.core.passes import on_one_thread
from gal.core.replies import Reply
from gal.core.requests import Request
from gal.node.holder.learning.learning import Learning
from gal.node.holder.learning.replies import read_values
from gal.node.journal.failures import describe_failure
from gal.node.work.worker import WorkFailedError
from gal.privacy.own_model import OwnModel, learn_own
from gal.protocol import prepare


def own_model(learning: Learning) -> OwnModel | None:
    """Learned from the true labels; None where there is none."""
    version = learning.version
    if version.own_name not in learning.shared:
        return None
    steps = on_one_thread(learn_own(version.task, version.labels))
    try:
        requests = next(steps)
        for step in count(1):
            requests = steps.send(_answers(learning, step, requests))
    except StopIteration as end:
        found: OwnModel | None = end.value
    return found


def _answers(learning: Learning, step: int, requests: Sequence[Request]) -> list[Mapping[str, Reply]]:
    name = learning.version.own_name
    return [{name: _answer(learning, f"own {step}.{place}", one)} for place, one in enumerate(requests)]


def _answer(learning: Learning, number: str, request: Request) -> Reply:
    version = learning.version
    shared = learning.shared[version.own_name]
    asked = shared.message(request, version.task, version.record.id, version.number, number)
    try:
        answer = version.ask_own(prepare(asked)).message
    except WorkFailedError as error:
        return RuntimeError(error.failure.inside)
    except Exception as error:
        return RuntimeError(describe_failure(error, version.own_name).inside)
    return read_values(answer, shared, request, version.task)
