"""Whether the time that an answer takes tells who is known to an organization. A report; nothing passes.

    OMP_NUM_THREADS=1 python benchmarks/answer_times.py                  # 1,000 asks of each, some minutes
    python benchmarks/answer_times.py --asks 200 --sources folder        # less of it
    python benchmarks/answer_times.py --sources postgresql               # in one of its own

A label holder who keeps to no rule asks a real node (over TLS, with its process that computes) about one id
after another, of which it knows every other one, and takes the time. ``predict`` is by keyed hashes, about
rows that no exchange has named: the answer says of both that they are not known. ``begin`` is about one plain
id, and refused in the same words. Under ``psi`` both are about ids that no exchange has had, and refused.
Limits of the day are lifted, so that there is enough to compare.

Printed are the medians in milliseconds, and how often a known id took longer than an unknown one: 0.5 is
guessing, and the error beside it that of chance. ``learned``: ids of which the node may speak, and does.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import queue
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from gal.alignment import RowIds, secret_digest, tokens
from gal.node.admin import membership
from gal.node.agreement.invitations import Invited, TaskTerms, write_invitation
from gal.node.journal.logs import Log
from gal.node.runtime.node import Node
from gal.protocol import Message, prepare
from gal.transport import CardFolder, Identity, Listener, Stream, card_of, make_identity, save_identity

SECRET = b"which the two of them share"
SUPPORT = Path(__file__).parents[1] / "tests" / "support"
CASES = (("predict", "hashed"), ("begin", "plain"), ("predict", "psi"), ("begin", "psi"))
N_LEARNED, N_ROWS, UNKNOWN = 60, 20_000, 10**9
POLICY = """[policy]
unknown_ids_per_day = 1_000_000_000
small_predictions_per_day = 1_000_000_000
refused_begins_per_day = 1_000_000_000
refusals_per_day = 1_000_000_000
messages_per_day = 1_000_000_000
"""


def organization(home: Path, source: str, server: Any) -> Identity:
    """An organization with its rows in a file, or in a folder of them or a database, where they stay."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(N_ROWS, 2)), columns=["a", "b"]).assign(id=np.arange(N_ROWS))
    (home / "cards").mkdir(mode=0o700, parents=True)
    named = {"file": "rows.csv", "folder": "rows"}.get(source, "")
    if source == "folder":
        (home / "rows").mkdir()
        rows.to_parquet(home / "rows" / "part.parquet", index=False)
    elif source == "postgresql":
        named = f'{server.uri}"\ntable = "rows"\npassword_file = "password'
        put_in_database(rows, server, home / "password")
    else:
        rows.to_csv(home / "rows.csv", index=False)
    (home / "secret").write_bytes(SECRET)
    (home / "node.toml").write_text(
        f'name = "lab"\n[data]\nsource = "{named}"\nrow_id = "id"\nsecret_file = "secret"\n'
        f'[model]\nuse = "linear"\n{POLICY}'
    )
    identity = make_identity("lab")
    save_identity(identity, home)
    return identity


def put_in_database(rows: pd.DataFrame, server: Any, password: Path) -> None:
    """The rows in a table with an index of their ids, and a file with the password to it."""
    import pyarrow as pa

    from postgresql import PASSWORD

    server.put("rows", pa.Table.from_pandas(rows, preserve_index=False))
    password.write_text(PASSWORD)


class Asker:
    """The label holder's end of the stream."""

    def __init__(self, stream: Stream, task: str, terms: TaskTerms) -> None:
        self._stream, self._task, self._terms, self._n = stream, task, terms, 0

    def ask(self, message: Message) -> tuple[Message, float]:
        """The answer to a message, and milliseconds."""
        made = prepare(message)
        began = time.perf_counter()
        self._stream.send(made)
        while True:
            answer = self._stream.receive().message
            if answer.fields.get("answers") == made.digest:
                return answer, 1000 * (time.perf_counter() - began)

    def about(self, kind: str, ids: Any, **fields: Any) -> Message:
        """A request about these ids."""
        self._n += 1
        named = RowIds("integer", np.asarray(ids, dtype=np.int64))
        hashed = self._terms.alignment == "hashed"
        said = {"kind": "integer", "method": self._terms.alignment, "secret": ""}
        arrays: dict[str, Any] = {"integers": named.values}
        if hashed:
            said["secret"] = secret_digest(SECRET)
            arrays = {"hashes": tokens(named, "hashed", SECRET)}
        if kind == "begin":
            arrays["fit"] = np.ones(len(named), dtype=np.uint8)
        return Message(kind, self._task, 1, f"{kind} {self._n}", said | fields, arrays)

    def begin(self, ids: Any) -> Message:
        """A request to begin with these ids."""
        agreed = {"terms": self._terms.digest, "n_outputs": 1, "rounds": 1}
        return self.about("begin", ids, organization="lab", seed=0, **agreed)

    def learn(self) -> None:
        """Have it learn from the first rows, with a residual of random numbers."""
        begun, _ = self.ask(self.begin(np.arange(N_LEARNED)))
        residual = np.random.default_rng(1).normal(size=(N_LEARNED, 1)).astype(np.float32)
        said = {"rows": begun.fields["rows"], "round": 1, "track": "assisted", "part": None}
        self.ask(Message("fit", self._task, 1, "fit", said, {"residual": residual}))

    def one(self, kind: str, one: int) -> float:
        """Milliseconds that an answer about one id takes."""
        if kind == "begin":
            return self.ask(self.begin([one]))[1]
        return self.ask(self.about(kind, [one], track="assisted", rounds=[1]))[1]


@contextmanager
def asking(root: Path, source: str, alignment: str, server: Any) -> Iterator[Asker]:
    """A label holder to whom the organization's node has dialed."""
    home = root / "lab"
    lab, holder, came = organization(home, source, server), make_identity("clinic"), queue.Queue[Stream]()
    cards = CardFolder(root / "cards")
    cards.add(card_of(lab))

    def on_stream(stream: Stream) -> None:
        came.put(stream)
        done.get()

    done: queue.Queue[None] = queue.Queue()
    with Listener(
        "127.0.0.1:0",
        holder,
        cards,
        on_stream=on_stream,
        on_refused=lambda fingerprint, why: None,  # noqa: ARG005
        largest=10**6,
        software="a benchmark",
    ) as listening:
        CardFolder(home / "cards").add(card_of(holder, f"127.0.0.1:{listening.port}"))
        said: dict[str, Any] = {
            "task": "a" * 32,
            "name": "timed",
            "label_holder": "clinic",
            "alignment": alignment,
        }
        invited = (Invited(name="lab", fingerprint=lab.fingerprint),)
        said |= {"fingerprint": holder.fingerprint, "organizations": invited, "outputs": 1, "rounds": 1}
        terms = TaskTerms.model_validate(said)
        write_invitation(terms, holder, home / "timed")
        membership.join(home, *membership.read_terms(home, home / "timed"))
        quiet = logging.Logger("quiet")
        quiet.addHandler(logging.NullHandler())
        with Node(home, log=Log(quiet)):
            try:
                yield Asker(came.get(timeout=60), terms.task, terms)
            finally:
                done.put(None)


def times(asker: Asker, kind: str, n_asks: int, groups: dict[str, int]) -> dict[str, list[float]]:
    """Milliseconds by group of ids (the first of each is given), asked in turns, in an order that changes."""
    rng = np.random.default_rng(2)
    found: dict[str, list[float]] = {name: [] for name in groups}
    for number in range(n_asks + 20):  # the first ones are not counted
        for name in rng.permutation(list(groups)):
            step = number % (N_LEARNED if name == "learned" else n_asks)
            took = asker.one(kind, groups[str(name)] + step)
            if number >= 20:
                found[str(name)].append(took)
    return found


def longer(known: list[float], unknown: list[float]) -> tuple[float, float]:
    """How often a known id took longer than an unknown one, and by how much that varies by chance."""
    ranks = rankdata([*known, *unknown])[: len(known)]
    n, m = len(known), len(unknown)
    return (float(ranks.sum()) - n * (n + 1) / 2) / (n * m), math.sqrt((n + m + 1) / (12 * n * m))


def case(kind: str, alignment: str, source: str, n_asks: int, server: Any) -> dict[str, float]:
    """What times of one kind of question tell of one kind of source."""
    groups = {"known": N_LEARNED, "unknown": UNKNOWN}
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as root,
        asking(Path(root), source, alignment, server) as asker,
    ):
        if alignment == "hashed":
            asker.learn()
            groups["learned"] = 0
        found = times(asker, kind, n_asks, groups)
    share, error = longer(found["known"], found["unknown"])
    medians = {f"{name} ms": round(float(np.median(one)), 2) for name, one in found.items()}
    return medians | {"longer": round(share, 3), "error": round(error, 3)}


def started_database() -> Any:
    """A PostgreSQL of its own, for as long as it is entered."""
    sys.path.insert(0, str(SUPPORT))
    from ports import free_port
    from postgresql import PostgreSQL

    return PostgreSQL(free_port())


def main() -> None:
    """Print the table."""
    kinds = ["file", "folder", "postgresql"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--asks", type=int, default=1000)
    parser.add_argument("--sources", nargs="+", default=kinds[:2], choices=kinds)
    parser.add_argument("--alignments", nargs="+", default=["hashed", "plain", "psi"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = {}
    with ExitStack() as stack:
        server = stack.enter_context(started_database()) if "postgresql" in options.sources else None
        for source in options.sources:
            for kind, alignment in [one for one in CASES if one[1] in options.alignments]:
                name = f"{kind}, {alignment}, {source}"
                rows[name] = case(kind, alignment, source, options.asks, server)
    if options.json:
        print(json.dumps(rows))
        return
    for name, one in rows.items():
        print(f"{name:27}", "  ".join(f"{what} {value}" for what, value in one.items()))


if __name__ == "__main__":
    main()
