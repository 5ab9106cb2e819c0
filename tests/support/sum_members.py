"""Members of secure sums without a network, and a hostile label holder's requests.

A test sends each step of a sum to each member by hand, in any order and with any content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.alignment import row_digest
from gal.node.assistant.service import Service
from gal.node.config.aggregation_messages import (
    aggregation_group,
    begin_content,
    fit_sum_content,
    learning_content,
    message_to_member,
    prediction_content,
    read_member,
    residual_content,
)
from gal.node.config.configuration import read_configuration
from gal.node.config.invitations import Invited, TaskTerms
from gal.node.config.requests import IncomingRequest, fit_request
from gal.node.store.activity import Activity
from gal.node.store.state import State, TaskRecord
from gal.protocol import Message, decode, digest, encode, prepare
from gal.secure_aggregation.collector import Collector
from gal.secure_aggregation.masking import fit_unit
from gal.secure_aggregation.messages import (
    KeysRequest,
    Masked,
    MaskedRequest,
    Offer,
    Opening,
    OpeningRequest,
    SealedShares,
    SharesRequest,
    SumRequest,
)
from gal.transport import CardFolder, card_of, save_identity
from small_groups import identity
from small_network import WorkerHere, quiet

N, HOLDER = 40, "clinic"
IDS = np.arange(N, dtype=np.int64)
TASK, PLAIN_TASK = "a" * 32, "b" * 32


class SumMember:
    """One organization: its folder, its cards, and its replies."""

    def __init__(self, home: Path, name: str, others: Sequence[str], known: int = N) -> None:
        home.mkdir(parents=True)
        self.name, self.home = name, home
        rng = np.random.default_rng(len(name) + ord(name[0]))
        X = rng.normal(size=(N, 2))[:known]
        pd.DataFrame({"id": IDS[:known], "a": X[:, 0], "b": X[:, 1]}).to_csv(home / "rows.csv", index=False)
        (home / "node.toml").write_text(
            f'name = "{name}"\n[data]\nsource = "rows.csv"\nrow_id = "id"\n[model]\nuse = "linear"\n'
        )
        save_identity(identity(name), home)
        (home / "cards").mkdir()
        self.cards, self.replies = CardFolder(home / "cards"), dict[str, Message]()
        for other in (HOLDER, *others):
            self.cards.add(card_of(identity(other)))
        self.start()

    def start(self) -> None:
        """Start, or restart after a stop: only the state on the disk is kept."""
        self.state = State(self.home)
        self.metrics = Activity()
        configuration = read_configuration(self.home)
        worker: Any = WorkerHere(configuration)
        self.service = Service(configuration, self.state, worker, quiet(), self.metrics)

    def stop(self) -> None:
        """End."""
        self.state.close()

    def answer(self, message: Message) -> Message:
        """Its reply, or RefusedError."""
        encoded = prepare(message)
        request = IncomingRequest(HOLDER, encoded.message, encoded.data, encoded.digest)
        self.replies[request.digest] = self.service.answer(request).message
        return self.replies[request.digest]


class ByHand:
    """All steps of sums, requested of these members one by one."""

    def __init__(self, root: Path, names: Sequence[str], drop_outs: int = 0, **known: int) -> None:
        self.terms = TaskTerms(
            task=TASK,
            name="risk",
            label_holder=HOLDER,
            fingerprint=identity(HOLDER).fingerprint,
            organizations=tuple(Invited(name=one, fingerprint=identity(one).fingerprint) for one in names),
            outputs=1,
            rounds=3,
            secure_aggregation="sums",
            drop_outs=drop_outs,
        )
        self.group, self.began = aggregation_group(self.terms), dict[str, str]()
        self.members = {
            name: SumMember(root / name, name, [one for one in names if one != name], known.get(name, N))
            for name in names
        }
        for name in names:
            self.join(name, self.terms)
            self.begin(name)

    def join(self, name: str, terms: TaskTerms) -> None:
        """Terms that an operator has accepted."""
        record = TaskRecord(terms.task, terms.name, "organization", HOLDER, terms)
        self.members[name].state.add_task(record)

    def beginning(
        self, name: str, task: str = TASK, version: int = 1, fit: Any = None, **other: Any
    ) -> Message:
        """A request to begin a version with all rows; ``other`` fields replace its own."""
        fields = {
            "terms": self.terms.digest,
            "organization": name,
            "kind": "integer",
            "method": "plain",
            "secret": "",
            "n_outputs": 1,
            "rounds": 3,
            "seed": 0,
        }
        roles = np.ones(N, dtype=np.uint8) if fit is None else np.asarray(fit, dtype=np.uint8)
        arrays: dict[str, Any] = {"integers": IDS, "fit": roles}
        return Message("begin", task, version, "begin", fields | other, arrays)

    def begin(self, name: str, task: str = TASK, **how: Any) -> Message:
        """Begin a version."""
        begin = self.beginning(name, task, **how)
        begun = self.members[name].answer(begin)
        self.began[name] = begin_content(begin, begun.arrays["known"] == 1)
        return begun

    # Requests that a sum follows

    def residual(
        self,
        round: int = 1,
        seed: int = 0,
        rows: int = N,
        task: str = TASK,
        *,
        version: int = 1,
        size: float = 1.0,
    ) -> Message:
        """A residual to fit, so many times as large as usual."""
        values = (size * np.random.default_rng(seed).normal(size=(rows, 1))).astype(np.float32)
        known = row_digest(IDS[:rows], "integer", "plain")
        fields = {"rows": known, "round": round, "track": "assisted", "part": None}
        return Message("fit", task, version, f"fit {round}", fields, {"residual": values})

    def total(
        self,
        ids: NDArray[np.int64],
        rates: Sequence[float] = (0.5,),
        name: str = "total",
        *,
        version: int = 1,
    ) -> Message:
        """Rows to predict with the first rounds."""
        fields: dict[str, Any] = {"kind": "integer", "method": "plain", "secret": "", "track": "assisted"}
        fields |= {"rounds": list(range(1, len(rates) + 1)), "rates": list(rates)}
        return Message("total", TASK, version, name, fields, {"integers": ids})

    # Steps

    def _ask(
        self,
        name: str,
        request: SumRequest,
        about: Mapping[str, Any] | None = None,
        rows: Any = None,
        **other: Any,
    ) -> Any:
        kind, number, fields, arrays = message_to_member(self.group, request, about or {}, rows)
        message = Message(kind, TASK, 1, f"{kind} {number}", fields | other, arrays)
        certificate = identity(name).certificate
        return read_member(self.group, name, certificate, request, self.members[name].answer(message))

    def keys(self, name: str, number: int) -> Offer:
        """A member's keys."""
        offer: Offer = self._ask(name, KeysRequest(number))
        return offer

    def share(self, name: str, number: int, offers: Sequence[Offer]) -> SealedShares:
        """A member's shares for those who made these offers."""
        shares: SealedShares = self._ask(name, SharesRequest(number, tuple(offers)))
        return shares

    def ready(self, number: int, names: Sequence[str] | None = None) -> Collector:
        """Keys and shares of a sum, exchanged among these members."""
        collector = Collector(self.group, number)
        for name in names or self.group.names:
            collector.take_offer(self.keys(name, number))
        for name in names or self.group.names:
            collector.take_shares(self.share(name, number, collector.offers()))
        return collector

    def masked(
        self, name: str, collector: Collector, question: Message, rows: Any = None, **other: Any
    ) -> Masked:
        """A member's masked reply to an earlier request; ``other`` fields replace its own."""
        chosen = IDS[:0] if rows is None else question.arrays["integers"][rows == 1]
        if question.kind == "fit":
            request = fit_request(question, name)
            residual = residual_content(question.fields["rows"], request)
            learned = learning_content(self.began[name], [digest(encode(question))])
            content = fit_sum_content(residual, learned)
            unit, n = fit_unit(request), len(request.residual)
        else:
            n, found = len(chosen), self.members[name].replies[digest(encode(question))].fields
            rows_asked, unit = row_digest(chosen, "integer", "plain"), found["unit"]
            content = prediction_content(question, rows_asked, (n, 1), found["learned"])
        ask = collector.ask(content, (n, 1), unit)
        final = MaskedRequest(ask, collector.boxes_for(name))
        chosen_rows = None if rows is None else np.asarray(rows)
        masked: Masked = self._ask(name, final, {"of": digest(encode(question))}, chosen_rows, **other)
        return masked

    def open(self, name: str, number: int, there: Sequence[str], dropped: Sequence[str] = ()) -> Opening:
        """A member's help to open the sum of those that are there."""
        opening: Opening = self._ask(name, OpeningRequest(number, tuple(there), tuple(dropped)))
        return opening

    def fitted(self, name: str, round: int = 1) -> NDArray[Any]:
        """A member's own fitted values."""
        member = self.members[name]
        known = member.state.answer(TASK, 1, "assisted", round, -1)
        assert known is not None
        return decode((member.state.folder(TASK, 1) / known.answer).read_bytes()).arrays["fitted"]

    def close(self) -> None:
        """End all of them."""
        for member in self.members.values():
            member.stop()
