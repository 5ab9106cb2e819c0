"""What an organization does where its answers leave as sums: thin over ``gal.secure_aggregation.member``.

A fit or a prediction is computed and stays here; what leaves is a number that says it is done, and then, in a
sum that the organization has checked, its values under masks. Keys are in memory only: after a restart the
label holder begins a new sum. What the organization has helped with is on its disk before the help leaves.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.alignment import row_digest
from gal.errors import IdentityError, InvalidMessageError, InvalidReplyError, RefusedError
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.requests import IncomingRequest, asked_tokens, fit_request
from gal.node.config.sum_messages import (
    begin_content,
    box_array,
    check_members,
    circle_of,
    fit_sum_content,
    known_keys,
    learning_content,
    named_in,
    offer_arrays,
    opening_arrays,
    own_secret,
    prediction_content,
    read_ask,
    read_offers,
    read_own_boxes,
    residual_content,
)
from gal.node.store.logs import Log
from gal.node.store.state import State, TaskRecord
from gal.protocol import Encoded, Message, prepare
from gal.secure_aggregation.masking import added_rounds, fit_unit, prediction_unit, sha256_of
from gal.secure_aggregation.member import CircleMember
from gal.secure_aggregation.messages import Circle, Offer, plain_bytes
from gal.secure_aggregation.record import Claim, DiskRecord
from gal.transport import CardFolder, load_identity

Floats = NDArray[np.floating[Any]]
KEPT, SAID = 32, 8
"""So many questions wait for their sums, and so many masked answers for who asks again."""
UNITS = "units of residuals"
"""Under what the record has in what units the residuals were that were fitted, by digest of the request."""
CHOSEN = "rows of a prediction in its sum"
"""Under what the record has which rows of a request are added up, by digest of the request."""
NAMED = "rows are named by"
"""Under what the record has how a label holder names rows where some members may drop out."""

RATES = "rates of a prediction"
"""Under what the record has with which rates a version's rounds are added up."""
SINGLE = frozenset({"predict", "revisit"})
"""Requests whose answers would be single ones."""


@dataclass(frozen=True)
class Computed:
    """What was asked for and computed, and waits for its sum."""

    values: Callable[[], Floats]
    """All of them, shape (n, K)."""
    unit: float
    content: str = ""
    """Of a residual, and how it was to be fitted."""
    residual: str = ""
    """The digest of a residual, of which there is one sum, however it is to be fitted."""
    learned: str = ""
    """Of a prediction: the digest of what its rounds were learned from."""
    asked: Message | None = None
    """Of a prediction: the request."""
    known: NDArray[np.bool_] | None = None
    """Of its rows: which are known here."""
    round: int = 0
    """Of a residual."""


class SumAnswers:
    """An organization's part in the sums of all tasks that it has joined."""

    def __init__(self, configuration: NodeConfiguration, state: State, log: Log) -> None:
        self._name, self._home = configuration.name, configuration.home
        self._state, self._log = state, log
        self._cards = CardFolder(configuration.home / "cards")
        self._members: dict[str, CircleMember] = {}
        self._questions: OrderedDict[tuple[str, str], Computed] = OrderedDict()
        self._said: OrderedDict[str, Encoded] = OrderedDict()
        self._lock = threading.Lock()

    def check_allowed(self, asked: IncomingRequest, task: TaskRecord) -> None:
        """Whether a request may be answered at all: single answers do not leave, sums only where agreed."""
        summed, kind = task.terms.secrecy == "sums", asked.message.kind
        if summed and kind in SINGLE and not asked.own:
            raise RefusedError(
                "sums-only",
                f"{self._name} answers in {task.name!r} in sums only, as was agreed: {kind} asks for single "
                "answers",
            )
        if summed and kind == "begin" and not asked.own:
            # Seeds follow from the name: under another one it would get another answer of this one alone.
            said = asked.message.fields["organization"]
            agreed = named_in(circle_of(task.terms), load_identity(self._home, self._name)).name
            if said != agreed:
                raise RefusedError(
                    "other-terms",
                    f"{self._name} agreed to answer in {task.name!r} as {agreed!r}, and is called {said!r}: "
                    "begin with the names that are in the terms",
                )
        if kind in self.handlers and (asked.own or not summed):
            raise RefusedError("other-terms", f"the terms of {task.name!r} have no sums at {self._name}")

    def check_fit(self, task: TaskRecord, moving: bool) -> None:
        """Whether an answer follows from what it is said to: the residual, and how the version began."""
        if moving:
            raise RefusedError(
                "sums-only",
                f"the local model of {self._name} moves: its answers depend on earlier rounds, and cannot be "
                f"added up in {task.name!r}. Its operator must choose a model that stands still",
            )

    def began(self, asked: IncomingRequest, task: TaskRecord, begun: Message) -> str:
        """The digest of how a version began, to be kept with it."""
        summed = task.terms.secrecy == "sums" and not asked.own
        return begin_content(asked.message, begun.arrays["known"] == 1) if summed else ""

    @property
    def handlers(self) -> Mapping[str, Callable[[IncomingRequest, TaskRecord], Encoded]]:
        """By kind of request."""
        return {"keys": self.offer, "share": self.share, "sum": self.answer, "open": self.open}

    # Questions

    def keep_fit(self, asked: IncomingRequest, fitted: Callable[[], Floats]) -> Encoded:
        """A residual was fitted; only that is said. ``fitted`` reads the values when a sum asks for them."""
        request = fit_request(asked.message, self._name)
        residual = residual_content(asked.message.fields["rows"], request)
        unit = fit_unit(request)
        content = fit_sum_content(residual, learning_content(self._began(asked.message), [asked.digest]))
        if request.part is None:
            DiskRecord(self._state.path).settle([Claim(UNITS, asked.digest, repr(unit))])
        self._keep(asked, Computed(fitted, unit, content, residual, round=request.round))
        return prepare(asked.reply("done"))

    def _began(self, message: Message) -> str:
        version = self._state.version(message.task, message.version)
        return "" if version is None else version.began

    def _learned(self, message: Message) -> tuple[str, float]:
        """What the rounds of a prediction were learned from, and what their sum is written in."""
        track, rounds = message.fields["track"], message.fields["rounds"]
        answers = self._state.answers(message.task, message.version, "track = ? AND part = -1", (track,))
        found = {one.round: one.request for one in answers}
        requests = [found.get(one, "") for one in rounds]
        units = [float(one or 1.0) for one in DiskRecord(self._state.path).values(UNITS, requests)]
        learned = learning_content(self._began(message), requests)
        return learned, prediction_unit(message.fields["rates"], units)

    def keep_prediction(self, asked: IncomingRequest, predicted: Message) -> Encoded:
        """Rows were predicted: their rounds are added up here, and only which rows are known is said."""
        total = added_rounds(asked.message.fields["rates"], predicted.arrays["values"])
        known = predicted.arrays["known"] == 1
        learned, unit = self._learned(asked.message)
        self._keep(asked, Computed(lambda: total, unit, learned=learned, asked=asked.message, known=known))
        fields = {"rows": predicted.fields["rows"], "learned": learned, "unit": unit}
        return prepare(asked.reply("found", fields, {"known": predicted.arrays["known"]}))

    def check_total(self, asked: IncomingRequest) -> None:
        """Whether every round has a rate, and the one that it had before."""
        settle_rates(self._name, asked.message, DiskRecord(self._state.path))

    def _keep(self, asked: IncomingRequest, question: Computed) -> None:
        task = asked.message.task
        with self._lock:
            for key, one in list(self._questions.items()):  # a label holder is done with earlier rounds
                if key[0] == task and one.round and question.round and one.round != question.round:
                    del self._questions[key]
            self._questions[task, asked.digest] = question
            while len(self._questions) > KEPT:
                self._questions.popitem(last=False)

    # Sums

    def offer(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """Keys for some sums."""
        with self._lock:
            member = self._member(asked, task)
            offers = [member.offer(number) for number in asked.message.fields["numbers"]]
        return prepare(asked.reply("offers", arrays=offer_arrays(offers)))

    def share(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """Shares of the secrets of these sums, sealed for each of the others."""
        message = asked.message
        numbers, members = message.fields["numbers"], message.fields["members"]
        with self._lock:
            member = self._member(asked, task)
            offers = self._offers(member.circle, message)
            shares = [member.share(number, offers[number]) for number in numbers]
        boxes = box_array(member.circle, shares, members)
        return prepare(asked.reply("shares", arrays={"boxes": boxes}))

    def answer(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """The values of a question under masks; the same again, where the very same is asked again."""
        with self._lock:
            member = self._member(asked, task)
            if asked.digest in self._said:
                return self._said[asked.digest]
            question = self._questions.get((task.id, asked.message.fields["of"]))
            if question is None:
                raise RefusedError(
                    "number",
                    f"{self._name} has nothing computed for {asked.message.fields['of']} (it is gone after a "
                    "restart): ask for that again, then for a new sum",
                )
            values, content, rows, also = self._read(question, asked, member.circle)
            ask, boxes = read_ask(asked.message), read_own_boxes(member.circle, asked.message)
            how: dict[str, Any] = {"content": content, "unit": question.unit, "once": question.residual}
            try:
                masked = member.answer(ask, boxes, values, rows=rows, also=also, **how)
            except InvalidReplyError as error:
                raise RefusedError("not-finite", f"{self._name}: {error}") from error
            except InvalidMessageError as error:  # it names who sealed them, and nothing of ours
                raise RefusedError("shares", f"{self._name}: {error}") from error
            said = prepare(asked.reply("masked", arrays={"values": masked.values.view(np.int32)}))
            self._said[asked.digest] = said
            while len(self._said) > SAID:
                self._said.popitem(last=False)
            return said

    def open(self, asked: IncomingRequest, task: TaskRecord) -> Encoded:
        """Help to open a sum; that is on record when this returns."""
        fields = asked.message.fields
        with self._lock:
            member = self._member(asked, task)
            opening = member.open(fields["number"], fields["members"])
        if opening.keys:
            self._log.warning("dropped out of a sum", task=task.name, organizations=", ".join(opening.keys))
        return prepare(asked.reply("opened", arrays=opening_arrays(member.circle, opening)))

    # Reading

    def _member(self, asked: IncomingRequest, task: TaskRecord) -> CircleMember:
        """This organization in the circle of a task: all members' cards are here, now. Holds the lock."""
        circle = circle_of(task.terms)
        if asked.message.fields["circle"] != circle.digest:
            raise RefusedError(
                "circle", f"{self._name} agreed to another circle in {task.name!r}: send a new invitation"
            )
        identity = load_identity(self._home, self._name)
        check_members(task.terms, self._cards, identity.fingerprint)
        if task.id not in self._members or self._members[task.id].circle != circle:
            record, holder = DiskRecord(self._state.path), f"sums for {task.label_holder}"
            # A row is opened with the same members for ever; under another name it would be another row.
            # Where nobody may drop out, every sum is of all members.
            named = [Claim(holder, NAMED, task.terms.alignment)] if circle.drop_outs else []
            for differing in record.settle(named):
                raise RefusedError(
                    "circle",
                    f"{task.label_holder} names rows to {self._name} by {differing.value} ids where members "
                    f"may drop out, and not by {task.terms.alignment} ones as in {task.name!r}: invite with "
                    "the same --align",
                )
            own, known, secret = named_in(circle, identity), known_keys(self._cards), own_secret(identity)
            self._members[task.id] = CircleMember(own, circle, known, record, holder=holder, secret=secret)
        return self._members[task.id]

    def _offers(self, circle: Circle, message: Message) -> dict[int, list[Offer]]:
        """By sum: the keys of all members; their certificates are those of the cards."""
        numbers, members = message.fields["numbers"], message.fields["members"]
        keys, signatures = message.arrays["keys"], message.arrays["signatures"]
        if len(keys) != len(members) or len(signatures) != len(members):
            raise InvalidMessageError(f"keys of {len(keys)} members came, {len(members)} are named")
        found: dict[int, list[Offer]] = {number: [] for number in numbers}
        for name, key, signature in zip(members, keys, signatures, strict=True):
            for offer in read_offers(circle, name, numbers, self._certificate(circle, name), key, signature):
                found[offer.number].append(offer)
        return found

    def _certificate(self, circle: Circle, name: str) -> bytes:
        expected = circle.members.get(name, "")
        identity = load_identity(self._home, self._name)
        if expected == identity.fingerprint:
            return identity.certificate
        known = self._cards.by_fingerprint(expected)
        if known is None:
            raise IdentityError(f"there is no card of {name!r} ({expected or 'not in this circle'}) here")
        return known[1].certificate

    def _read(
        self, question: Computed, asked: IncomingRequest, circle: Circle
    ) -> tuple[Floats, str, list[str], list[Claim]]:
        """Values, their content as this organization has seen it, keys of rows to predict, and what is
        claimed with them.
        """
        request, known = question.asked, question.known
        if request is None or known is None:
            return question.values(), question.content, [], []
        chosen = asked.message.arrays.get("rows", known.astype(np.uint8)) == 1
        if chosen.shape != known.shape or (chosen & ~known).any():
            raise RefusedError(
                "other-rows", f"{self._name} does not know all rows that are to be added up: nothing was sent"
            )
        record = DiskRecord(self._state.path)
        # A request is charged once: the same rows are added up in all its sums. By other and other rows of it
        # the label holder could find, at no cost, the one whose answer this organization cannot write.
        also = Claim(CHOSEN, asked.message.fields["of"], sha256_of(np.packbits(chosen).tobytes()))
        if record.value(also.scope, also.key) not in (None, also.value):
            raise RefusedError(
                "other-rows",
                f"{self._name} has added up other rows of this request: ask for a prediction of these rows "
                "alone",
            )
        tokens = asked_tokens(request, asked.peer)[chosen]
        values = question.values()[chosen[known]]
        order = row_digest(tokens, request.fields["kind"], request.fields["method"])
        brief = tokens.ndim > 1 and not circle.drop_outs  # what is on record keeps its words, which take long
        named = [one.tobytes() for one in tokens] if brief else tokens
        rows = [sha256_of(f"{circle.digest} {one}".encode()) for one in named]
        return values, prediction_content(request, order, values.shape, question.learned), rows, [also]


def settle_rates(name: str, total: Message, record: DiskRecord) -> None:
    """An error where there is no rate for each round, or where the version's rounds had other ones before.

    Rates are fixed when a version has learned. With others the label holder would get the sum of each round
    by itself; with many that differ little, the same answers, rounded again and again.
    """
    rounds, rates = total.fields["rounds"], total.fields["rates"]
    if len(rounds) != len(rates):
        raise RefusedError("wrong-shape", f"{len(rounds)} rounds and {len(rates)} rates to add them with")
    version = f"{total.task} {total.version} {total.fields['track']}"
    digest = sha256_of(plain_bytes([rounds, rates]))
    if record.settle([Claim(RATES, version, digest)]):
        raise RefusedError(
            "content",
            f"{name} has added up the rounds of version {total.version} with other rates: predict with those "
            "of this version, or learn a new one",
        )
