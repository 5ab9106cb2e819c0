"""Where a node waits: each round's requests go out, replies are awaited, and the
step is closed in one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from gal.core.replies import Reply
from gal.core.requests import FitRequest, Request
from gal.errors import NodeError, TaskError
from gal.node.holder.assistants import Pending
from gal.node.holder.learning.beginning import Beginning
from gal.node.holder.learning.open_version import OpenVersion
from gal.node.holder.learning.replies import Replies
from gal.node.holder.shared_rows import is_probe
from gal.node.store.stored_replies import StoredReply

Pendings = Mapping[tuple[int, str], Pending]
"""By place of the request in its step, and organization."""


class Rounds:
    """Carries steps, which are lists of requests, to the organizations of a version."""

    def __init__(self, version: OpenVersion, beginning: Beginning) -> None:
        self._version, self._beginning, self._gathering = version, beginning, version.gathering
        self._replies = Replies(version, beginning.shared)
        self._own = ThreadPoolExecutor(1, thread_name_prefix="own fits")

    def close(self) -> None:
        """Ask nobody any more."""
        self._own.shutdown(wait=False, cancel_futures=True)

    def step(self, step: int, requests: Sequence[Request]) -> list[dict[str, Reply]]:
        """One round trip: every organization's values for each request, or what went wrong there."""
        version = self._version
        if not version.replies.is_closed(step):
            self._ask(step, requests)
        values = self._replies.values(step, requests)
        self._replies.next_step()
        return values

    def _ask(self, step: int, requests: Sequence[Request]) -> None:
        """Ask everybody who has not yet answered, wait, and close the step."""
        version, assistants = self._version, self._version.node.assistants
        self._beginning.begin_late()
        names = set(self._beginning.shared) & {version.own_name, *version.others}
        own: list[Future[None]] = []
        pendings: dict[tuple[int, str], Pending] = {}
        try:
            for place, name, encoded in self._replies.wanted(step, requests, names):
                if name == version.own_name:
                    own.append(self._own.submit(self._replies.ask_own, step, place, encoded))
                    own[-1].add_done_callback(lambda done: assistants.notify())  # noqa: ARG005
                else:
                    keep = self._replies.keeper(step, place, name, encoded, requests[place])
                    pendings[place, name] = assistants.post(name, encoded, keep)
            self._await(requests, own, pendings)
        finally:
            assistants.give_up(pendings.values())
        self._close(step, requests, pendings)

    def _await(self, requests: Sequence[Request], own: Sequence[Future[None]], pendings: Pendings) -> None:
        """Wait for everybody who is there or may soon be back; for the others only as long."""
        gathering = self._gathering

        def waited_for() -> set[str]:
            here, others = gathering.present(), set(self._version.others) - gathering.declining()
            still = {name for (_, name), one in pendings.items() if not one.done.is_set()}
            return {
                name for name in still if (name not in gathering.absent or name in here) and name in others
            }

        def broken() -> bool:  # what came cannot be kept here: no use to wait for more
            kept = all(not one.done() or one.exception() is None for one in own)
            return not kept or any(one.problem for one in pendings.values())

        def own_done() -> bool:
            return all(one.done() for one in own)

        def ready() -> bool:
            return broken() or (own_done() and not waited_for())

        gathering.watcher.asking(_what(requests), gathering.patience.deadline)
        gathering.wait(ready, 1.0)
        if not ready():
            gathering.report_waiting(_what(requests), sorted(waited_for()), gathering.patience.deadline)
        gathering.wait(ready, gathering.patience.deadline - 1.0)
        while not own_done():  # her own organization is waited for: a deadline is for others
            gathering.wait(own_done, 60.0)
        for one in own:
            one.result()

    def _close(self, step: int, requests: Sequence[Request], pendings: Pendings) -> None:
        """The step is over: who has not answered is missed, for good; too few,
        and learning waits for people.
        """
        version, stored = self._version, self._version.replies.of(step)
        answered = {one.organization for one in stored if one.file}
        broken = [one for one in pendings.values() if one.problem]
        if broken:
            raise NodeError(f"{broken[0].problem}. Then: gal learn {version.record.name} --resume")
        silent = {name: self._why_missed(name) for _, name in pendings if name not in answered}
        silent |= {
            one.organization: one.problem
            for one in stored
            if one.problem and one.organization not in answered
        }
        needed = min(self._gathering.quorum, len(self._beginning.shared))
        if (
            len(answered) < needed and len(requests[0].organizations) > 1 and not is_probe(requests[0])
        ):  # nobody has to
            raise self._too_few_answered(step, requests, len(answered), silent)
        self._gathering.absent = {
            name for name in version.others if name not in answered and self._gathering.is_given_up(name)
        }
        missed = [
            StoredReply(place, name, "", None, None, self._why_missed(name))
            for place, request in enumerate(requests)
            for name in request.organizations
            if name != version.own_name
        ]
        version.replies.close(step, missed)

    def _too_few_answered(
        self, step: int, requests: Sequence[Request], n_answered: int, silent: Mapping[str, str]
    ) -> TaskError:
        gathering, task = self._gathering, self._version.record.name
        return TaskError(
            f"step {step} ({_what(requests)}): {n_answered} of {gathering.n_organizations} organizations "
            "answered, the quorum is "
            f"{gathering.quorum}. {'; '.join(f'{name} {why}' for name, why in sorted(silent.items()))}. "
            "What came is kept: "
            f"gal learn {task} --resume, with --quorum {max(n_answered, 1)} if these are enough; or go on "
            "without: "
            f"gal remove {task} NAME"
        )

    def _why_missed(self, name: str) -> str:
        status = self._version.state.members(self._version.record.id).get(name, "not invited")
        if status != "invited":
            return f"has {status}"
        if name not in self._beginning.shared:
            refused = self._beginning.refused.get(name)
            return self._gathering.why_away(name) if refused is None else f"refused to begin: {refused}"
        if name in self._gathering.declining():
            return "is connected and takes part no more"
        return f"did not answer within {self._gathering.patience.deadline:g} s"


def _what(requests: Sequence[Request]) -> str:
    first = requests[0]
    if isinstance(first, FitRequest):
        if is_probe(first):
            return "for interaction probes"
        ahead = "" if first.part is None else " of the part that is learned first"
        return f"for round {first.round}{ahead}"
    return "for what moving models say of all rounds"
