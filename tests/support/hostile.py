"""A label holder and an organization that run, and a peer with a known card who keeps to no rule.

``clinic`` holds labels, ``lab`` assists; both are real nodes in the test's process. ``mallory`` is known to
both, and only what a test makes of it: it dials the clinic as an organization (:func:`dialed`), and listens
as a label holder for the lab (:func:`listening`).
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import gal
import loopback
import small_network
from gal.alignment import row_digest
from gal.core.state import Ensemble
from gal.errors import InvalidMessageError, NodeError
from gal.node.admin import membership as registering
from gal.node.config.invitations import Invited, TaskTerms, write_invitation
from gal.protocol import Message, encode, prepare, split
from gal.protocol.codec import HEADER
from gal.transport import CardFolder, Received, Stream, load_identity
from loopback import Organization
from patience import LONGEST

USED: dict[str, Any] = {"cross_validation": 0}
"""Mallory replies with half of its residual: a cross-validation would find that, and not use it."""
N_ROWS = 60
ZERO_DIGEST = "sha256:" + "0" * 64


class Peer:
    """One end of a stream in the hands of a test: reads everything at once, sends whatever it is given."""

    def __init__(self, stream: Stream, on_message: Callable[[Received], None] | None = None) -> None:
        self.stream, self.on_message = stream, on_message
        self.inbox: list[Message] = []
        self.ended: NodeError | None = None
        self._changed = threading.Condition()

    def read(self) -> None:
        """Until the stream ends."""
        while True:
            try:
                received = self.stream.receive()
            except InvalidMessageError:
                raise AssertionError("a node sent what is no message") from None
            except NodeError as error:
                with self._changed:
                    self.ended = error
                    self._changed.notify_all()
                return
            with self._changed:
                self.inbox.append(received.message)
                self._changed.notify_all()
            if self.on_message is not None:
                self.on_message(received)

    def send(self, message: Message) -> str:
        """Send a valid message; its digest."""
        return self.stream.send(prepare(message)).digest

    def send_bytes(self, data: Any) -> None:
        """Send bytes as a message, valid or not, in valid frames."""
        for frame in split(data):
            self.send_frame(frame)

    def send_frame(self, frame: bytes) -> None:
        """Send a frame, valid or not."""
        assert self.stream.outgoing.put(frame), f"the stream has ended: {self.ended}"

    def wait_for(
        self, wanted: Callable[[Message], bool], what: str, *, seen: int = 0, seconds: float = LONGEST
    ) -> Message:
        """The first such message that has come or comes, after the first ``seen`` ones."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                for message in self.inbox[seen:]:
                    if wanted(message):
                        return message
                seen = len(self.inbox)
                assert self.ended is None, f"waiting for {what}, the stream ended: {self.ended}"
                assert self._changed.wait(end - time.monotonic()) or time.monotonic() < end, f"no {what}"

    def wait_for_end(self, seconds: float = LONGEST) -> NodeError:
        """Why the stream has ended."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.ended is not None, seconds), "the stream goes on"
        assert self.ended is not None
        return self.ended

    def ask(self, message: Message) -> Message:
        """Send a request and wait for what answers it."""
        seen, digest = len(self.inbox), self.send(message)
        return self.wait_for(
            lambda one: one.fields.get("answers") == digest, f"answer to {message.kind}", seen=seen
        )

    def refused(self, message: Message) -> str:
        """Send a request that must be refused; the code of the refusal."""
        answer = self.ask(message)
        assert answer.kind == "refusal", f"{message.kind} was answered with {answer.kind}"
        return str(answer.fields["code"])

    def refused_bytes(self, data: Any) -> str:
        """Send bytes that must be refused; the code of the next refusal."""
        seen = len(self.inbox)
        self.send_bytes(data)
        return str(self.wait_for(lambda one: one.kind == "refusal", "refusal", seen=seen).fields["code"])


@contextmanager
def dialed(
    who: Organization, holder: Organization, on_message: Callable[[Received], None] | None = None
) -> Iterator[Peer]:
    """The hostile organization's stream to a label holder."""
    stream = loopback.dialed(who, holder.card)
    peer = Peer(stream, on_message)
    thread = threading.Thread(target=peer.read, daemon=True)
    thread.start()
    try:
        yield peer
    finally:
        stream.close()
        thread.join(LONGEST)


@contextmanager
def listening(who: Organization) -> Iterator[queue.Queue[Peer]]:
    """The hostile label holder's port; every organization that comes is put into the queue."""
    came: queue.Queue[Peer] = queue.Queue()

    def on_stream(stream: Stream) -> None:
        peer = Peer(stream)
        came.put(peer)
        peer.read()

    with loopback.listening(who, on_stream, bind=str(who.address)):
        yield came


class Network(small_network.Network):
    """Nodes of the clinic and the lab, and mallory's folder."""

    def __init__(self, root: Path, lab_model: str, more: Mapping[str, str]) -> None:
        names = ("clinic", "lab", "mallory")
        tables = small_network.numbers(N_ROWS, organizations=names, linear=True)
        super().__init__(root, tables, holders=("clinic", "mallory"), models={"lab": lab_model}, more=more)
        self.clinic, self.lab, self.mallory = map(self._organization, names)

    def _organization(self, name: str) -> Organization:
        home = self.root / name
        identity, cards = load_identity(home, name), CardFolder(home / "cards")
        return Organization(identity, cards, home=home, address=self.address(name))

    def offer(self, task: str, *organizations: Organization, **options: Any) -> TaskTerms:
        """The clinic opens a task; the lab joins it if it is invited, mallory never by itself."""
        names = [one.name for one in organizations]
        joins = [name for name in names if name in self.nodes]
        terms = self.invite(task, organizations=names, join=joins, **{"rounds": 2} | options).terms
        assert isinstance(terms, TaskTerms)
        return terms

    def learned(self, task: str, **how: Any) -> Ensemble:
        """Learn a version of a task of the clinic's to its end."""
        version = int(self.learn(task, **how)["version"])
        return self.ensemble(self.nodes["clinic"].state.find_task(task), version)

    def expected(self, *names: str) -> Ensemble:
        """The same learning without a network."""
        members = [one for one in self.members() if one.name in names]
        y = self.tables["clinic"][small_network.LABEL].to_numpy()
        return gal.learn(y, members, rounds=2, kind="regression", label_holder="clinic")

    def refusals(self, node: str, since: int = 0) -> list[str]:
        """Codes of what a node refused, in order."""
        found = [one for one in self.audited(node) if one.kind == "refused" and one.seq > since]
        return [one.note.partition(":")[0] for one in found]

    def mark(self, node: str) -> int:
        """The number of the newest entry of a node's audit log."""
        newest = self.nodes[node].records.audit.entries(limit=1)
        return newest[0].seq if newest else 0


@contextmanager
def network(root: Path, *, lab_model: str = small_network.LINEAR, **more: str) -> Iterator[Network]:
    """A running clinic and lab, and mallory, whom both know; ``more``: by name, lines of node.toml."""
    made = Network(root, lab_model, more)
    try:
        made.start("clinic", "lab")
        yield made
    finally:
        made.stop()


# An organization that answers by hand


Twist = Callable[[Message, Message], Sequence[Message]]
"""From a request and the honest answer to it: what is sent instead."""


def honestly(request: Message, answer: Message) -> Sequence[Message]:
    """No twist."""
    return [answer]


@contextmanager
def assisting(
    network: Network,
    terms: TaskTerms,
    twist: Twist = honestly,
    *,
    blind: Callable[[Message], bytes] = lambda request: b"",
    moving: bool = False,
) -> Iterator[Peer]:
    """Mallory takes part in a task of the clinic's, and answers with a twist; ``blind``
    makes the bytes of such steps.
    """

    def answer(received: Received) -> None:
        made = _honest(received.message, received.digest, blind)
        for one in [] if made is None else twist(received.message, made):
            peer.send(one)

    with dialed(network.mallory, network.clinic, on_message=answer) as peer:
        peer.send(joined(terms, moving=moving))
        yield peer


def _honest(request: Message, digest: str, blind: Callable[[Message], bytes]) -> Message | None:
    """What an honest organization that knows all rows answers; its model says the same of every row."""
    fields: dict[str, Any] = {"answers": digest}
    arrays: dict[str, Any]
    about = request.task, request.version, request.request
    if request.kind == "blind":
        return Message("blinded", *about, fields, {"bytes": np.frombuffer(blind(request), dtype=np.uint8)})
    if request.kind == "begin":
        ids = request.arrays["integers"]
        said = {"rows": row_digest(ids, "integer", "plain"), "n_rows": len(ids)}
        return Message("begun", *about, fields | said, {"known": np.ones(len(ids), dtype=np.uint8)})
    if request.kind == "fit":
        said = {"rows": request.fields["rows"], "round": request.fields["round"]}
        half = request.arrays["residual"] * np.float32(0.5)
        values = np.resize(half, (N_ROWS, half.shape[1]))  # where a part is left out, of all rows, too
        return Message("fitted", *about, fields | said, {"fitted": values})
    if request.kind == "predict":
        ids = request.arrays["integers"]
        arrays = {
            "known": np.ones(len(ids), dtype=np.uint8),
            "values": np.ones((len(request.fields["rounds"]), len(ids), 1), dtype=np.float32),
        }
        return Message("predicted", *about, fields | {"rows": row_digest(ids, "integer", "plain")}, arrays)
    if request.kind == "revisit":
        shape = len(request.fields["rounds"]), N_ROWS, 1
        arrays = {"known": np.ones(N_ROWS, dtype=np.uint8), "values": np.ones(shape, dtype=np.float32)}
        return Message("predicted", *about, fields | {"rows": request.fields["rows"]}, arrays)
    return Message("done", *about, fields) if request.kind == "end" else None


# A label holder that writes its requests by hand


@dataclass(frozen=True)
class Asker:
    """A task of mallory's own, and its requests; every part of them can be changed."""

    terms: TaskTerms
    ids: NDArray[np.int64]

    def begin(self, version: int = 1, arrays: Mapping[str, Any] | None = None, **fields: Any) -> Message:
        """A request to begin a version."""
        said = {
            "terms": self.terms.digest,
            "organization": "lab",
            "kind": "integer",
            "method": self.terms.alignment,
            "secret": "",
            "n_outputs": self.terms.outputs,
            "rounds": self.terms.rounds,
            "seed": 0,
        }
        given: dict[str, Any] = {"integers": self.ids, "fit": np.ones(len(self.ids), dtype=np.uint8)}
        kept = {name: array for name, array in (given | dict(arrays or {})).items() if array is not None}
        return Message("begin", self.terms.task, version, "begin", said | fields, kept)

    @property
    def rows(self) -> str:
        """The digest of the rows, all of which are known."""
        return row_digest(self.ids, "integer", self.terms.alignment)

    def fit(
        self, round: int = 1, version: int = 1, *, residual: Any = None, weight: Any = None, **fields: Any
    ) -> Message:
        """A request to fit a residual."""
        said = {"rows": self.rows, "round": round, "track": "assisted", "part": None} | fields
        if residual is None:
            residual = np.random.default_rng(round).normal(size=(len(self.ids), self.terms.outputs))
        arrays = {"residual": np.asarray(residual, dtype=np.float32)}
        if weight is not None:
            arrays["sample_weight"] = np.asarray(weight, dtype=np.float64)
        return Message("fit", self.terms.task, version, f"fit {round}", said, arrays)

    def predict(self, ids: Any = None, version: int = 1, request: str = "predict", **fields: Any) -> Message:
        """A request to predict rows."""
        said = {
            "kind": "integer",
            "method": self.terms.alignment,
            "secret": "",
            "track": "assisted",
            "rounds": [1],
        }
        asked = self.ids if ids is None else np.asarray(ids, dtype=np.int64)
        return Message("predict", self.terms.task, version, request, said | fields, {"integers": asked})

    def revisit(self, version: int = 1, **fields: Any) -> Message:
        """A request for what models say now."""
        said = {"rows": self.rows, "track": "assisted", "rounds": [1]} | fields
        return Message("revisit", self.terms.task, version, "revisit", said)

    def blind(
        self, step: str, exchange: str = "ab" * 16, content: bytes | None = None, n: int = 30
    ) -> Message:
        """A step of a private set intersection."""
        said = {"step": step, "kind": "integer", "exchange": exchange, "n_rows": n}
        arrays = {} if content is None else {"bytes": np.frombuffer(content, dtype=np.uint8)}
        return Message("blind", self.terms.task, 1, f"blind {step}", said, arrays)

    def end(self, version: int = 1, kept: int = 1) -> Message:
        """The end of a version."""
        return Message("end", self.terms.task, version, "end", {"kept": kept})


def asker(
    network: Network, name: str, *, who: Organization | None = None, join: bool = True, **terms: Any
) -> Asker:
    """A task of mallory's (or of ``who``) that the lab joins, by an invitation like any other."""
    holder, lab = who or network.mallory, network.lab
    made = TaskTerms.model_validate(
        {
            "task": os.urandom(16).hex(),
            "name": name,
            "label_holder": holder.name,
            "fingerprint": holder.identity.fingerprint,
            "organizations": (Invited(name="lab", fingerprint=lab.identity.fingerprint),),
            "outputs": 1,
            "rounds": 3,
        }
        | terms
    )
    if join:
        path = network.root / f"{holder.name}-{name}.invitation"
        write_invitation(made, holder.identity, path)
        registering.join(lab.home, *registering.read_terms(lab.home, path))
    return Asker(made, np.arange(N_ROWS, dtype=np.int64) + 1000)


def joined(terms: TaskTerms, *, moving: bool = False) -> Message:
    """What an organization says of a task that it takes part in."""
    return Message(
        "joined", fields={"tasks": [{"task": terms.task, "terms": terms.digest, "moving": moving}]}
    )


# Bytes that no node makes


def raw(header: Any, arrays: Mapping[str, pa.Array] | None = None, **writing: Any) -> pa.Buffer:
    """An Arrow stream of one batch with any header (JSON, or bytes as they are) and any columns."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    columns = dict(arrays or {})
    schema = pa.schema([pa.field(name, one.type) for name, one in columns.items()], metadata={HEADER: text})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, **writing) as writer:
        writer.write_batch(pa.record_batch(list(columns.values()), schema=schema))
    return sink.getvalue()


def opened(message: Message) -> tuple[dict[str, Any], dict[str, pa.Array]]:
    """Header and columns of a valid message, to be changed and put together again by :func:`raw`."""
    reader = pa.ipc.open_stream(encode(message))
    batch = reader.read_next_batch()
    header = json.loads(reader.schema.metadata[HEADER])
    return header, dict(zip(reader.schema.names, batch.columns, strict=True))


def files_below(folder: Path) -> set[str]:
    """All files of a folder tree, relative to it."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
