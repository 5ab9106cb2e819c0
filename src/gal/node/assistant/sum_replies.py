"""Secure aggregation at an organization: requests checked, and given to ``gal.secure_aggregation.member``.

Keys are in memory only, so that a restarted organization needs a new sum. What it helps to open is on its
disk before the help leaves.
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
from gal.node.config.aggregation_messages import (
    aggregation_group,
    begin_content,
    box_array,
    check_members,
    fit_sum_content,
    known_keys,
    learning_content,
    named_in,
    offer_arrays,
    opening_arrays,
    own_secret,
    prediction_content,
    read_ask,
    read_offer,
    read_own_boxes,
    residual_content,
    sum_number,
)
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.requests import IncomingRequest, fit_request, requested_tokens
from gal.node.store.logs import Log
from gal.node.store.state import State, TaskRecord
from gal.protocol import Encoded, Message, prepare
from gal.secure_aggregation.masking import added_rounds, fit_unit, prediction_unit, sha256_of
from gal.secure_aggregation.member import GroupMember
from gal.secure_aggregation.messages import Group, Offer, plain_bytes
from gal.secure_aggregation.record import Claim, DiskRecord
from gal.transport import CardFolder, load_identity

Floats = NDArray[np.floating[Any]]
MOST_COMPUTED, MOST_MASKED = 32, 8
"""Computed values that wait for their sums, and masked replies kept for repeated requests."""
# Scopes of claims on the record.
UNITS = "units of residuals"
"""The units of a fitted residual, by digest of the request."""
CHOSEN = "rows of a prediction in its sum"
"""The rows of a request that are added up, by digest of the request."""
NAMED = "rows are named by"
"""How a label holder names rows, where members may drop out."""
RATES = "rates of a prediction"


@dataclass(frozen=True)
class Computed:
    """Values that were computed for a request, and wait for their sum."""

    values: Callable[[], Floats]
    """All of them, shape (n, K)."""
    unit: float
    content: str = ""
    """Of a fit: the digest of the residual and of how it was to be fitted."""
    residual: str = ""
    """The digest of the residual alone: it has one sum, however it is to be fitted."""
    learned: str = ""
    """Of a prediction: the digest of what its rounds were learned from."""
    request: Message | None = None
    known: NDArray[np.bool_] | None = None
    """Of a prediction: the rows that are known here."""
    round: int = 0
    charge: Callable[[], None] = lambda: None
    """Charges one sum about each of the rows, where sums have noise."""


class SumReplies:
    """An organization's part in the secure aggregation of all tasks that it has joined."""

    def __init__(self, configuration: NodeConfiguration, state: State, log: Log) -> None:
        self._name, self._home = configuration.name, configuration.home
        self._state, self._log = state, log
        self._cards = CardFolder(configuration.home / "cards")
        self._members: dict[str, GroupMember] = {}
        self._computed: OrderedDict[tuple[str, str], Computed] = OrderedDict()
        self._masked: OrderedDict[str, Encoded] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def handlers(self) -> Mapping[str, Callable[[IncomingRequest, TaskRecord], Encoded]]:
        """By kind of request."""
        return {"keys": self.offer, "share": self.share, "sum": self.answer, "open": self.open}

    @property
    def record(self) -> DiskRecord:
        """The claims of this organization."""
        return DiskRecord(self._state.path)

    def check_allowed(self, request: IncomingRequest, task: TaskRecord) -> None:
        """Single values do not leave where the terms have secure aggregation, and sums only there."""
        aggregated, kind = task.terms.secure_aggregation == "sums", request.message.kind
        if kind in self.handlers and (request.own or not aggregated):
            raise RefusedError("other-terms", f"the terms of {task.name!r} have no sums at {self._name}")
        if not aggregated or request.own:
            return
        if kind in {"predict", "revisit"}:
            raise RefusedError(
                "sums-only",
                f"{self._name} agreed to secure aggregation in {task.name!r}: {kind} requests the values of "
                "one organization",
            )
        if kind == "begin":
            # Seeds follow from the name: under another one its fitted values alone would differ.
            named = request.message.fields["organization"]
            agreed = named_in(aggregation_group(task.terms), load_identity(self._home, self._name)).name
            if named != agreed:
                raise RefusedError(
                    "other-terms",
                    f"{self._name} is {agreed!r} in the terms of {task.name!r}, and the request names it "
                    f"{named!r}: begin with the names in the terms",
                )

    def check_model(self, task: TaskRecord, stateful: bool) -> None:
        """Whether fitted values follow from the residual and the session setup alone."""
        if stateful:
            raise RefusedError(
                "sums-only",
                f"the local model of {self._name} is stateful: its values depend on earlier rounds, and "
                f"cannot be added up in {task.name!r}. Its operator must choose a stateless model",
            )

    def began(self, request: IncomingRequest, task: TaskRecord, begun: Message) -> str:
        """The digest of how a version began, stored with it; empty without secure aggregation."""
        aggregated = task.terms.secure_aggregation == "sums" and not request.own
        return begin_content(request.message, begun.arrays["known"] == 1) if aggregated else ""

    def _began(self, message: Message) -> str:
        version = self._state.version(message.task, message.version)
        return "" if version is None else version.began

    # Values

    def keep_fit(
        self, request: IncomingRequest, fitted: Callable[[], Floats], charge: Callable[[], None]
    ) -> Encoded:
        """Keep fitted values for their sum; ``fitted`` reads them then. The reply only says "done"."""
        engine = fit_request(request.message, self._name)
        residual, unit = residual_content(request.message.fields["rows"], engine), fit_unit(engine)
        learned = learning_content(self._began(request.message), [request.digest])
        if engine.fold is None:
            self.record.settle([Claim(UNITS, request.digest, repr(unit))])
        content = fit_sum_content(residual, learned)
        self._keep(request, Computed(fitted, unit, content, residual, round=engine.round, charge=charge))
        return prepare(request.reply("done"))

    def keep_prediction(
        self, request: IncomingRequest, predicted: Message, charge: Callable[[], None]
    ) -> Encoded:
        """Add up the rounds and keep the total for its sum; the reply only names the known rows."""
        message = request.message
        track, rounds, rates = (message.fields[name] for name in ("track", "rounds", "rates"))
        stored = self._state.answers(message.task, message.version, "track = ? AND part = -1", (track,))
        by_round = {one.round: one.request for one in stored}
        requests = [by_round.get(one, "") for one in rounds]
        unit = prediction_unit(rates, [float(one or 1.0) for one in self.record.values(UNITS, requests)])
        learned = learning_content(self._began(message), requests)
        total, known = added_rounds(rates, predicted.arrays["values"]), predicted.arrays["known"] == 1
        how: dict[str, Any] = {"learned": learned, "request": message, "known": known, "charge": charge}
        self._keep(request, Computed(lambda: total, unit, **how))
        fields = {"rows": predicted.fields["rows"], "learned": learned, "unit": unit}
        return prepare(request.reply("found", fields, {"known": predicted.arrays["known"]}))

    def _keep(self, request: IncomingRequest, computed: Computed) -> None:
        task = request.message.task
        with self._lock:
            for key, one in list(self._computed.items()):  # a new round ends the earlier ones
                if key[0] == task and one.round and computed.round and one.round != computed.round:
                    del self._computed[key]
            self._computed[task, request.digest] = computed
            while len(self._computed) > MOST_COMPUTED:
                self._computed.popitem(last=False)

    # Sums

    def offer(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        """Keys for a sum."""
        with self._lock:
            offer = self._member(request, task).offer(sum_number(request.message))
        return prepare(request.reply("offers", arrays=offer_arrays(offer)))

    def share(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        """Shares of the secrets of a sum, sealed for each of the others."""
        message = request.message
        with self._lock:
            member = self._member(request, task)
            shares = member.share(sum_number(message), self._offers(member.group, message))
        boxes = box_array(member.group, shares, message.fields["members"])
        return prepare(request.reply("shares", arrays={"boxes": boxes}))

    def answer(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        """The masked values for one sum; the same again for a repeated request."""
        with self._lock:
            member = self._member(request, task)
            if request.digest in self._masked:
                return self._masked[request.digest]
            computed = self._computed.get((task.id, request.message.fields["of"]))
            if computed is None:
                raise RefusedError(
                    "number",
                    f"{self._name} has no values for {request.message.fields['of']} (a restart loses them): "
                    "repeat that request, then begin a new sum",
                )
            values, content, rows, also = self._read(computed, request, member.group)
            ask, boxes = read_ask(request.message), read_own_boxes(member.group, request.message)
            how: dict[str, Any] = {"content": content, "unit": computed.unit, "once": computed.residual}
            computed.charge()  # on the disk before anything leaves; a sum that fails later has cost as well
            try:
                masked = member.answer(ask, boxes, values, rows=rows, also=also, **how)
            except InvalidReplyError as error:
                raise RefusedError("not-finite", f"{self._name}: {error}") from error
            except InvalidMessageError as error:  # it names the sealing member, and no value of ours
                raise RefusedError("shares", f"{self._name}: {error}") from error
            reply = prepare(request.reply("masked", arrays={"values": masked.values.view(np.int32)}))
            self._masked[request.digest] = reply
            while len(self._masked) > MOST_MASKED:
                self._masked.popitem(last=False)
            return reply

    def open(self, request: IncomingRequest, task: TaskRecord) -> Encoded:
        """Help to open a sum; on record when this returns."""
        fields = request.message.fields
        with self._lock:
            member = self._member(request, task)
            opening = member.open(fields["number"], fields["members"])
        if opening.keys:
            self._log.warning("dropped out of a sum", task=task.name, organizations=", ".join(opening.keys))
        return prepare(request.reply("opened", arrays=opening_arrays(member.group, opening)))

    # Reading

    def _member(self, request: IncomingRequest, task: TaskRecord) -> GroupMember:
        """This organization in a task's aggregation group; all members' cards are here. Holds the lock."""
        group = aggregation_group(task.terms)
        if request.message.fields["circle"] != group.digest:
            raise RefusedError(
                "circle",
                f"{self._name} agreed to another aggregation group in {task.name!r}: send a new invitation",
            )
        identity = load_identity(self._home, self._name)
        check_members(task.terms, self._cards, identity.fingerprint)
        if task.id not in self._members or self._members[task.id].group != group:
            record, holder = self.record, f"sums for {task.label_holder}"
            # A row is opened with the same members for ever, and under another name it would be another row.
            # Where no member may drop out, every sum is of all members.
            named = [Claim(holder, NAMED, task.terms.alignment)] if group.drop_outs else []
            for differing in record.settle(named):
                raise RefusedError(
                    "circle",
                    f"{task.label_holder} names rows to {self._name} by {differing.value} ids where members "
                    f"may drop out, and not by {task.terms.alignment} ones as in {task.name!r}: invite with "
                    "the same --align",
                )
            own, known, secret = named_in(group, identity), known_keys(self._cards), own_secret(identity)
            self._members[task.id] = GroupMember(own, group, known, record, holder=holder, secret=secret)
        return self._members[task.id]

    def _offers(self, group: Group, message: Message) -> list[Offer]:
        """The keys of all members, with the certificates of their cards."""
        number, members = sum_number(message), message.fields["members"]
        keys, signatures = message.arrays["keys"], message.arrays["signatures"]
        if len(keys) != len(members) or len(signatures) != len(members):
            raise InvalidMessageError(f"a request names {len(members)} members, with keys of {len(keys)}")
        identity, offers = load_identity(self._home, self._name), list[Offer]()
        for name, key, signature in zip(members, keys, signatures, strict=True):
            expected, certificate = group.members.get(name, ""), identity.certificate
            if expected != identity.fingerprint:
                known = self._cards.by_fingerprint(expected)
                if known is None:
                    where = expected or "not in this aggregation group"
                    raise IdentityError(f"there is no card of {name!r} ({where}) here")
                certificate = known[1].certificate
            offers.append(read_offer(group, name, number, certificate, key, signature))
        return offers

    def _read(
        self, computed: Computed, request: IncomingRequest, group: Group
    ) -> tuple[Floats, str, list[str], list[Claim]]:
        """The values of a sum, their content as this organization knows it, keys of predicted rows, and the
        claims that go with them.
        """
        message, known = computed.request, computed.known
        if message is None or known is None:
            return computed.values(), computed.content, [], []
        chosen = request.message.arrays.get("rows", known.astype(np.uint8)) == 1
        if chosen.shape != known.shape or (chosen & ~known).any():
            raise RefusedError(
                "other-rows", f"{self._name} does not know all rows that are to be added up: nothing was sent"
            )
        # A request is charged once, and so the same rows are added up in all its sums. With different rows
        # the label holder could find, at no cost, the one whose value this organization cannot write.
        also = Claim(CHOSEN, request.message.fields["of"], sha256_of(np.packbits(chosen).tobytes()))
        if self.record.value(also.scope, also.key) not in (None, also.value):
            raise RefusedError(
                "other-rows",
                f"{self._name} has added up other rows of this request: predict these rows in a new request",
            )
        tokens = requested_tokens(message, request.peer)[chosen]
        values = computed.values()[chosen[known]]
        order = row_digest(tokens, message.fields["kind"], message.fields["method"])
        exact = tokens.ndim > 1 and not group.drop_outs  # records of groups with drop-outs keep their form
        named = [one.tobytes() for one in tokens] if exact else tokens
        rows = [sha256_of(f"{group.digest} {one}".encode()) for one in named]
        return values, prediction_content(message, order, values.shape, computed.learned), rows, [also]


def check_rates(record: DiskRecord, message: Message, name: str) -> None:
    """Whether there is a rate for each round, and the version's rounds had no other rates before.

    Rates are fixed when a version has learned. With others a label holder would get the sum of each round;
    with many that differ little, the same values rounded again and again.
    """
    rounds, rates = message.fields["rounds"], message.fields["rates"]
    if len(rounds) != len(rates):
        raise RefusedError("wrong-shape", f"{len(rounds)} rounds and {len(rates)} rates to add them with")
    version = f"{message.task} {message.version} {message.fields['track']}"
    if record.settle([Claim(RATES, version, sha256_of(plain_bytes([rounds, rates])))]):
        raise RefusedError(
            "content",
            f"{name} has added up the rounds of version {message.version} with other rates: predict with "
            "those of this version, or learn a new one",
        )
