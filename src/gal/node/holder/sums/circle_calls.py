"""Sums of a circle over the streams of its members: thin over ``gal.secrecy.collector``.

Keys and shares are exchanged for several sums at once, so that most sums take two round trips. Nothing of a
sum is on the disk before it is opened: who is interrupted begins a new one, and gets the same numbers.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gal.errors import GALError, InvalidMessageError, NodeError, RefusedError
from gal.node.agreement.circles import circle_of
from gal.node.agreement.sum_messages import (
    boxes_for_one,
    offer_arrays,
    read_boxes,
    read_masked,
    read_offers,
    read_opening,
)
from gal.node.holder.holder_node import HolderNode
from gal.node.store.state import TaskRecord
from gal.protocol import Encoded, Message, prepare
from gal.secrecy.collector import Collector
from gal.secrecy.member import check_present
from gal.secrecy.messages import Offer
from gal.transport import CardFolder

GONE = frozenset({"number", "order"})
"""Codes of refusals of who has lost its keys, as after a restart: a new sum is all that it takes."""
AT_ONCE = 64
"""Sums at most for which keys are exchanged together."""

Wait = Callable[[Callable[[], set[str]], float], None]
"""Waits until nobody of those that the function names is waited for any more, or the seconds are over."""


class SumFailedError(NodeError):
    """A sum could not be opened; ``by_member`` says what was wrong with whom, where that is known."""

    def __init__(self, why: str, by_member: Mapping[str, str] | None = None, *, again: bool = False) -> None:
        said = "; ".join(f"{name} {problem}" for name, problem in sorted((by_member or {}).items()))
        super().__init__(f"{why}: {said}" if said else why)
        self.by_member, self.again = dict(by_member or {}), again


@dataclass(frozen=True)
class SumQuestion:
    """What a sum is of: a request that all members have had, and what each takes from it by itself."""

    of: str
    content: str
    unit: float
    shape: tuple[int, int]
    round: int = 0
    rows: NDArray[np.bool_] | None = None
    """Of rows to predict: which are added up."""


@dataclass(frozen=True)
class OpenedSum:
    """The sum of these members' answers."""

    total: NDArray[np.float64]
    members: tuple[str, ...]


@dataclass
class _Came:
    """What came back in one round trip, by place of the sum and member."""

    answers: dict[tuple[int, str], Message]
    refused: dict[str, str]
    lost: bool
    """Whether somebody has lost its keys."""


class CircleCalls:
    """Asks the members of one task's circle for sums."""

    def __init__(self, node: HolderNode, record: TaskRecord, version: int, wait: Wait) -> None:
        self.circle = circle_of(record.terms)
        self._assistants, self._wait = node.assistants, wait
        self._task, self._version = record.id, version
        self._cards = CardFolder(node.configuration.home / "cards")
        self._ready: deque[Collector] = deque()
        self._members: tuple[str, ...] = ()
        self._lock = threading.Lock()

    def add_up(
        self,
        questions: Sequence[SumQuestion],
        members: Sequence[str],
        seconds: float,
        *,
        ahead: int = 1,
        all_of_them: bool = False,
    ) -> list[OpenedSum]:
        """One sum for each question, of these members' answers; SumFailedError where one cannot be opened.

        Keys are exchanged for ``ahead`` sums, where there are none left of before. ``all_of_them``: nobody is
        to drop out of these sums, also where that was agreed.
        """
        until = time.monotonic() + seconds
        try:
            check_present(self.circle, tuple(members))
            collectors = self._with_keys(len(questions), tuple(sorted(members)), until, ahead)
            self._answers(collectors, questions, until)
            if all_of_them and any(one.survivors() != tuple(sorted(members)) for one in collectors):
                raise SumFailedError("not everybody has answered in time")
            return self._opened(collectors, until)
        except (RefusedError, InvalidMessageError) as error:
            self._ready.clear()
            raise SumFailedError(str(error)) from error
        except SumFailedError:
            self._ready.clear()
            raise

    # 1 and 2: keys and shares

    def _with_keys(self, count: int, members: tuple[str, ...], until: float, ahead: int) -> list[Collector]:
        with self._lock:
            if members != self._members:
                self._ready.clear()
                self._members = members
            while len(self._ready) < count:
                self._ready.extend(self._exchanged(min(max(ahead, count), AT_ONCE), members, until))
            return [self._ready.popleft() for _ in range(count)]

    def _exchanged(self, count: int, members: tuple[str, ...], until: float) -> list[Collector]:
        numbers = [secrets.randbelow(2**53 - 1) + 1 for _ in range(count)]
        fields = {"circle": self.circle.digest, "numbers": numbers}
        asked = prepare(self._message("keys", numbers[0], fields))
        came = self._trip([dict.fromkeys(members, asked)], "offers", until)
        self._check(came, "keys could not be exchanged")
        collectors = {number: Collector(self.circle, number) for number in numbers}
        offers: dict[str, list[Offer]] = {}
        for (_, name), message in sorted(came.answers.items()):
            arrays = message.arrays
            offers[name] = read_offers(
                self.circle, name, numbers, self._certificate(name), arrays["keys"], arrays["signatures"]
            )
            for offer in offers[name]:
                collectors[offer.number].take_offer(offer)
        there = [offer.name for offer in collectors[numbers[0]].offers()]
        made = [offer_arrays(offers[name]) for name in there]
        arrays = {name: np.stack([one[name] for one in made]) for name in ("keys", "signatures")}
        asked = prepare(self._message("share", numbers[0], fields | {"members": there}, arrays))
        came = self._trip([dict.fromkeys(there, asked)], "shares", until)
        self._check(came, "shares could not be exchanged")
        for (_, name), message in came.answers.items():
            for shares in read_boxes(self.circle, name, numbers, there, message.arrays["boxes"]):
                collectors[shares.number].take_shares(shares)
        return list(collectors.values())

    def _certificate(self, name: str) -> bytes:
        known = self._cards.by_fingerprint(self.circle.members[name])
        if known is None:
            raise RefusedError("circle", f"there is no card of {name} ({self.circle.members[name]}) any more")
        return known[1].certificate

    # 3: answers

    def _answers(
        self, collectors: Sequence[Collector], questions: Sequence[SumQuestion], until: float
    ) -> None:
        requests = [
            self._asked(collector, question)
            for collector, question in zip(collectors, questions, strict=True)
        ]
        came = self._trip(requests, "masked", until)
        self._check(came, "answers did not come")
        for (place, name), message in came.answers.items():
            collector = collectors[place]
            try:
                collector.take_masked(read_masked(name, collector.number, message))
            except GALError as error:
                raise SumFailedError("an answer cannot be used", {name: str(error)}) from error

    def _asked(self, collector: Collector, question: SumQuestion) -> dict[str, Encoded]:
        ask = collector.ask(question.content, question.shape, question.unit)
        fields = {
            "circle": self.circle.digest,
            "number": ask.number,
            "members": list(ask.members),
            "of": question.of,
            "content": ask.content,
            "unit": ask.unit,
            "shape": list(ask.shape),
            "round": question.round,
        }
        rows = {} if question.rows is None else {"rows": question.rows.astype(np.uint8)}
        return {
            name: prepare(
                self._message(
                    "sum",
                    ask.number,
                    fields,
                    {"boxes": boxes_for_one(self.circle, collector.boxes_for(name), ask.members), **rows},
                )
            )
            for name in ask.members
        }

    # 4: opening

    def _opened(self, collectors: Sequence[Collector], until: float) -> list[OpenedSum]:
        there = [collector.survivors() for collector in collectors]
        requests = []
        for collector, names in zip(collectors, there, strict=True):
            fields = {"circle": self.circle.digest, "number": collector.number, "members": list(names)}
            requests.append(dict.fromkeys(names, prepare(self._message("open", collector.number, fields))))
        came = self._trip(requests, "opened", until)
        if came.lost:
            self._check(came, "it could not be opened")
        for (place, name), message in came.answers.items():
            collector = collectors[place]
            opening = read_opening(
                self.circle, name, collector.number, there[place], collector.dropped(), message
            )
            collector.take_opening(opening)
        try:
            return [OpenedSum(one.total(), names) for one, names in zip(collectors, there, strict=True)]
        except RefusedError as error:  # too few have helped
            raise SumFailedError(str(error), came.refused) from error

    # Round trips

    def _message(
        self,
        kind: str,
        number: int,
        fields: Mapping[str, object],
        arrays: Mapping[str, NDArray[np.uint8]] | None = None,
    ) -> Message:
        return Message(kind, self._task, self._version, f"{kind} {number}", fields, arrays or {})

    def _trip(self, requests: Sequence[Mapping[str, Encoded]], expected: str, until: float) -> _Came:
        """Ask everybody at once, one mapping by member for each sum."""
        pendings = [self._assistants.post_together(one) for one in requests]
        every = [(place, name, one) for place, by in enumerate(pendings) for name, one in by.items()]

        def waiting() -> set[str]:
            return {name for _, name, one in every if not one.done.is_set()}

        try:
            self._wait(waiting, max(0.0, until - time.monotonic()))
        finally:
            self._assistants.give_up([one for _, _, one in every])
        came = _Came({}, {}, lost=False)
        for place, name, pending in every:
            if pending.answer is None:
                continue
            message = pending.answer.message
            if message.kind == expected:
                came.answers[place, name] = message
            elif message.kind == "refusal":
                came.refused[name] = f"refused ({message.fields['code']}): {message.fields['message']}"
                came.lost |= message.fields["code"] in GONE
            else:
                came.refused[name] = f"answered with {message.kind}"
        return came

    def _check(self, came: _Came, what: str) -> None:
        """Who refuses is not somebody who dropped out: it is there, and may be asked again."""
        if came.refused:
            raise SumFailedError(what, came.refused, again=came.lost)
