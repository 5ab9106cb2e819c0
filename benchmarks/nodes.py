"""What nodes cost beyond the local fits: seconds, bytes, memory. A report,
printed; nothing here passes or fails.

    python benchmarks/nodes.py                         # all: a quarter of an hour, 12 GB of memory and disk
    python benchmarks/nodes.py rounds --rows 200000    # one part of it

Four organizations on this machine, each a process of its own, over mutual TLS: three run ``gal serve``, the
label holder's node runs here. Views are made up, with a seed; rows lie in another order at each.

- rounds: seconds of a learning round, of the slowest local fit in it (where it ran), and what is left;
- bytes: on the wire, per round, organization and direction, counted by a relay between the two;
- predict: milliseconds of one row, through the JSON endpoint (HTTP, one connection) and without it;
- sums: what a round with ``secrecy = "sums"`` takes beside one with answers and the same weights: seconds,
  bytes of messages, and milliseconds of one row;
- memory: the most that node and worker of an organization held together, as a multiple of its view;
- covertype: accuracy on a fifth of the rows of UCI's Covertype (found through GAL_DATA), over nodes and in
  one process: a
  tenth of the table by default, ``--rows 581012`` takes all of it.

With fewer cores than organizations the fits share them: each takes longer, and so does all else.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gal import Organization, predict
from gal import learn as learn_in_process
from gal.alignment import RowIds
from gal.core.algorithm import learn
from gal.node.admin.init import init_node
from gal.node.admin.membership import invite, join, read_terms
from gal.node.holder.label_holder import LabelHolder
from gal.node.holder.learning import learning
from gal.node.journal.logs import open_log
from gal.node.runtime.node import Node
from gal.node.web.endpoint import Endpoint
from gal.node.web.token import ensure_token
from gal.transport import CardFolder, card_of
from gal_bench.data.datasets import load as load_dataset

OWN, OTHERS = "clinic", ("hospital", "insurer", "lab")
TASK = "outcome"
LEAN = {"use": "sklearn.linear_model:Ridge", "options": "{ copy_X = false, solver = 'cholesky' }"}
"""A local model that takes next to no time and memory of its own."""


# The network


@dataclass(frozen=True)
class Scene:
    """What is measured: rows, columns of each organization, local model and rounds."""

    rows: int
    columns: int = 4
    model: Mapping[str, str] = field(default_factory=lambda: {"use": "linear"})
    rounds: int = 6
    secrecy: str = "none"
    options: Mapping[str, Any] = field(default_factory=dict)


class Network:
    """Four organizations that run, and a task that all have joined."""

    def __init__(
        self,
        scene: Scene,
        root: Path,
        stack: ExitStack,
        *,
        relayed: bool = False,
        tables: Mapping[str, pa.Table] | None = None,
    ) -> None:
        """``tables``: real rows by organization, learned as classes with all defaults."""
        self.scene, self.root, self.tables = scene, root, tables
        self.relays: dict[str, Relay] = {}
        port = _free_port()
        make_sources(scene, root, tables)
        self._found(port, stack, relayed)
        self._invite()
        self.node = stack.enter_context(Node(root / OWN, log=open_log(root / OWN, "warning")))
        self.processes = {name: stack.enter_context(serving(root / name)) for name in OTHERS}
        self.holder = LabelHolder(self.node)
        stack.callback(self.holder.close)
        record = self.node.state.find_task(TASK)
        if not self.node.assistants.wait_for(
            lambda: len(self.node.assistants.present(record.id)) == len(OTHERS), 120
        ):
            raise SystemExit("not all organizations have connected; their logs are gone with the folder")

    def _found(self, port: int, stack: ExitStack, relayed: bool) -> None:
        """Homes, keys and cards; behind a relay, every organization dials another port."""
        identities = {}
        for name in (OWN, *OTHERS):
            home = self.root / name
            own: Any = {"label": "label", "bind": f"127.0.0.1:{port}"} if name == OWN else {}
            identities[name] = init_node(home, name, source="rows.parquet", row_id="id", **own)
            text = (home / "node.toml").read_text(encoding="utf-8")
            model = "".join(f"{key} = {_toml(value)}\n" for key, value in self.scene.model.items())
            before, _, after = text.partition("[model]\n")
            after = after.partition("\n")[2]  # its line "use"
            (home / "node.toml").write_text(f"{before}[model]\n{model}{after}", encoding="utf-8")
        for name in OTHERS:
            if relayed:
                self.relays[name] = stack.enter_context(Relay(port))
            dialed = self.relays[name].port if relayed else port
            CardFolder(self.root / name / "cards").add(card_of(identities[OWN], f"127.0.0.1:{dialed}"))
            CardFolder(self.root / OWN / "cards").add(card_of(identities[name]))
            if self.scene.secrecy == "sums":
                for other in set(OTHERS) - {name}:
                    CardFolder(self.root / name / "cards").add(card_of(identities[other]))

    def _invite(self) -> None:
        path = self.root / "task.invitation"
        options = {"rounds": self.scene.rounds} | (
            {"min_rate": None, "patience": None, "closing": False} if self.tables is None else {}
        )
        kind = "regression" if self.tables is None else "classification"
        options |= self.scene.options
        invite(self.root / OWN, TASK, OTHERS, path, options=options, kind=kind, secrecy=self.scene.secrecy)
        for name in OTHERS:
            join(self.root / name, *read_terms(self.root / name, path))

    def learn(self, on_round: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """Learn a version."""

        def told(event: Mapping[str, Any]) -> None:
            if event["event"] == "round":
                on_round()

        said = self.holder.learn(
            TASK,
            on_event=told,
            stopping=threading.Event(),
        )
        return dict(said)

    def fit_seconds(self) -> dict[int, dict[str, float]]:
        """By round and organization: seconds of the local fits, as the organizations log them."""
        found: dict[int, dict[str, float]] = {}
        for name in OTHERS:
            for line in (self.root / name / "log").read_text(encoding="utf-8").splitlines():
                said = json.loads(line) if line.startswith("{") else {}
                if said.get("event") == "fitted":
                    by_name = found.setdefault(said["round"], {})
                    by_name[name] = by_name.get(name, 0.0) + said["seconds"]
        return found


@contextmanager
def network(
    scene: Scene, *, relayed: bool = False, tables: Mapping[str, pa.Table] | None = None
) -> Iterator[Network]:
    """A network in a folder that is gone afterwards."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gal-nodes-")))
        yield Network(scene, root, stack, relayed=relayed, tables=tables)


def make_sources(scene: Scene, root: Path, tables: Mapping[str, pa.Table] | None = None) -> None:
    """A Parquet file for each organization: the same rows in another order,
    columns that say a part of the label.
    """
    for name, one in (tables or {}).items():
        (root / name).mkdir(mode=0o700)
        pq.write_table(one, root / name / "rows.parquet")
    if tables is not None:
        return
    label = np.random.default_rng(0).standard_normal(scene.rows)
    for number, name in enumerate((OWN, *OTHERS)):
        rng = np.random.default_rng(100 + number)
        order = rng.permutation(scene.rows)
        columns = {"id": pa.array(order + 1_000)}
        for j in range(scene.columns):
            columns[f"x{j}"] = pa.array(label[order] + rng.standard_normal(scene.rows) * (2 + j))
        if name == OWN:
            columns["label"] = pa.array(label[order])
        (root / name).mkdir(mode=0o700)
        pq.write_table(pa.table(columns), root / name / "rows.parquet")


@contextmanager
def serving(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``gal serve`` as a process that ends with the block."""
    command = [sys.executable, "-c", "from gal.cli.app import main; main()", "serve", "--log", "json"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--home", str(home)], stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


class Relay:
    """A port that passes everything on to another, in a thread, and counts the bytes."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.to_label_holder, self.from_label_holder = 0, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, selectors.DefaultSelector() as ready:
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in ready.select():
                    source: Any = key.fileobj
                    data = source.recv(1 << 18)
                    if not data:
                        return
                    key.data.sendall(data)
                    if source is near:
                        self.to_label_holder += len(data)
                    else:
                        self.from_label_holder += len(data)


# Rounds


@dataclass
class TimedSteps:
    """The generator of Algorithm 1 with a clock: when it was given replies, and when it asked again."""

    steps: Any
    given: list[float] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)

    def __next__(self) -> Any:
        requests = next(self.steps)
        self.asked.append(time.perf_counter())
        return requests

    def send(self, replies: Any) -> Any:
        """Replies in, requests out."""
        self.given.append(time.perf_counter())
        try:
            return self.steps.send(replies)
        finally:
            self.asked.append(time.perf_counter())


@contextmanager
def timed_steps() -> Iterator[list[TimedSteps]]:
    """Clocks of the learnings in this block."""
    made: list[TimedSteps] = []

    def timed(*arguments: Any, **options: Any) -> TimedSteps:
        made.append(TimedSteps(learn(*arguments, **options)))
        return made[-1]

    vars(learning)["learn"] = timed
    try:
        yield made
    finally:
        vars(learning)["learn"] = learn


@contextmanager
def own_fits(node: Node) -> Iterator[list[float]]:
    """Seconds of the label holder's own fits in this block, one after another."""
    seconds: list[float] = []
    log = node.service.log
    before = log.info

    def info(event: str, /, **fields: Any) -> None:
        if event == "fitted":
            seconds.append(fields["seconds"])
        before(event, **fields)

    log.info = info  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        log.info = before  # type: ignore[method-assign]


def rounds_report(scene: Scene) -> dict[str, Any]:
    """Seconds of rounds, without the first, in which views are opened; medians, and the slowest."""
    with network(scene) as net, timed_steps() as clocks, own_fits(net.node) as own:
        started = time.perf_counter()
        net.learn()
        whole = time.perf_counter() - started
        fits = net.fit_seconds()
    clock = clocks[0]
    n_rounds = min(len(fits), len(clock.given))
    own_by_round = np.asarray(own[: len(own) // n_rounds * n_rounds]).reshape(n_rounds, -1).sum(axis=1)
    slowest = np.array([max(*fits[t + 1].values(), own_by_round[t]) for t in range(n_rounds)])
    exchange = np.array([clock.given[t] - clock.asked[t] for t in range(n_rounds)])
    engine = np.array([clock.asked[t + 1] - clock.given[t] for t in range(n_rounds)])
    chosen = slice(1, None)
    return {
        "model": scene.model["use"],
        "rows": scene.rows,
        "rounds": n_rounds - 1,
        "round": _median((exchange + engine)[chosen]),
        "slowest fit": _median(slowest[chosen]),
        "engine": _median(engine[chosen]),
        "overhead": _median((exchange - slowest)[chosen]),
        "overhead, slowest round": float((exchange - slowest)[chosen].max()),
        "overhead and engine": _median((exchange + engine - slowest)[chosen]),
        "first round's overhead": float((exchange - slowest)[0]),
        "seconds before round 1": clock.asked[0] - started,
        "whole": whole,
    }


# Bytes


def bytes_report(scene: Scene) -> dict[str, Any]:
    """Bytes of a round on the wire, the largest of all organizations and rounds, against 4 N K."""
    counts: list[list[tuple[int, int]]] = []
    with network(scene, relayed=True) as net:

        def count() -> None:
            time.sleep(0.2)  # what is still in the relay
            counts.append([(one.from_label_holder, one.to_label_holder) for one in net.relays.values()])

        net.learn(count)
    # (rounds, organizations, directions): from the end of one round to the end of the next
    each = np.diff(np.array(counts), axis=0)
    plain = 4 * scene.rows
    return {
        "rows": scene.rows,
        "4 N K": plain,
        "to an organization": int(each[..., 0].max()),
        "to an organization / 4 N K": float(each[..., 0].max() / plain),
        "from an organization": int(each[..., 1].max()),
        "from an organization / 4 N K": float(each[..., 1].max() / plain),
    }


# Sums


SAME = {"weights": "uniform", "interactions": "off", "cross_validation": 0, "validation_fraction": 0.0}
"""What sums leave of the options."""
BEGINNING = frozenset({"hello", "welcome", "joined", "begin", "begun", "end"})
"""Messages that no round has."""


def cpu_seconds(pid: int) -> float:
    """CPU seconds that a process, its worker not counted, has used so far."""
    facts = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")


def sums_report(rows: int, rounds: int = 6) -> dict[str, Any]:
    """What sums cost beside answers, with the same weights: seconds of a round and bytes of the messages.

    Keys are exchanged for all rounds at once, in the first: seconds are medians of the others, bytes those of
    all rounds. CPU seconds of a round, of who computes for sums, hardly depend on what else a machine does.
    """
    found = {}
    for secrecy in ("none", "sums"):
        scene = Scene(rows, model=LEAN, rounds=rounds, secrecy=secrecy, options=SAME)
        with network(scene) as net, timed_steps() as clocks:
            used: list[tuple[float, ...]] = []
            pids = [one.pid for one in net.processes.values()]
            net.learn(lambda: used.append((time.process_time(), *map(cpu_seconds, pids))))  # noqa: B023
            work = np.diff(np.array(used), axis=0).mean(axis=0)
            totals = [one for one in net.node.records.audit.summary() if one.kind not in BEGINNING]
            moved = {way: sum(one.n_bytes for one in totals if one.direction == way) for way in ("in", "out")}
            row = RowIds("integer", np.array([1_000]))
            record = net.node.state.find_task(TASK)
            alone = _times(lambda _: net.holder.predictor.predict(record, row), range(60))  # noqa: B023
        clock = clocks[0]
        exchange = np.diff([clock.asked[:rounds], clock.given[:rounds]], axis=0)[0]
        found[secrecy] = {"exchange": exchange, "alone": alone, "work": work, **moved}
    plain, sums = found["none"], found["sums"]
    return {
        "rows": rows,
        "round with answers": _median(plain["exchange"][1:]),
        "round with sums": _median(sums["exchange"][1:]),
        "beyond answers": _median(sums["exchange"][1:]) - _median(plain["exchange"][1:]),
        "first round with sums": float(sums["exchange"][0]),
        "CPU of the label holder beyond answers": float(sums["work"][0] - plain["work"][0]),
        "CPU of an organization beyond answers": float(sums["work"][1:].max() - plain["work"][1:].max()),
        "bytes back, x of answers": sums["in"] / plain["in"],
        "bytes both ways, x of answers": (sums["in"] + sums["out"]) / (plain["in"] + plain["out"]),
        "one row with answers, ms": _percentile(plain["alone"], 50),
        "one row with sums, ms": _percentile(sums["alone"], 50),
    }


# Prediction


def predict_report(scene: Scene, requests: int = 300, clients: int = 500) -> dict[str, Any]:
    """Milliseconds for one row, drawn anew each time; and many clients at once, each
    asking for one row after another.
    """
    with network(scene) as net:
        net.learn()
        ids = np.random.default_rng(7).integers(1_000, 1_000 + scene.rows, requests + 20).tolist()
        record = net.node.state.find_task(TASK)

        def straight(row: int) -> None:
            found = net.holder.predictor.predict(record, RowIds("integer", np.array([row])))
            assert not found.degraded.any(), found.missing

        alone = _times(straight, ids)
        with Endpoint(net.holder, TASK, "127.0.0.1:0") as endpoint:
            token = ensure_token(net.node.configuration.home)
            through = _times(_client(endpoint.port, token), ids)
            crowd = crowd_of(endpoint.port, token, ids, clients)
    return {
        "model": scene.model["use"],
        "rows": scene.rows,
        "endpoint p50": _percentile(through, 50),
        "endpoint p95": _percentile(through, 95),
        "without endpoint p50": _percentile(alone, 50),
        "without endpoint p95": _percentile(alone, 95),
        **crowd,
    }


def _client(port: int, token: str) -> Callable[[int], None]:
    """Asks for one row at a time over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {token}"}

    def ask(row: int) -> None:
        connection.request("POST", "/predict", json.dumps({"ids": [row]}), headers)
        said = json.loads(connection.getresponse().read())
        assert said["degraded"] == 0, said

    return ask


def crowd_of(port: int, token: str, ids: Sequence[int], clients: int, each: int = 5) -> dict[str, Any]:
    """Rows a second and errors with so many clients, who all connect at once;
    they are threads of this process.
    """
    failed: list[str] = []
    ready = threading.Barrier(clients + 1)

    def ask(place: int) -> None:
        one = _client(port, token)
        ready.wait()
        for number in range(each):
            try:
                one(ids[(place * each + number) % len(ids)])
            except Exception as error:
                failed.append(repr(error))

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(clients)]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    return {"clients": clients, "rows a second": clients * each / seconds, "errors": len(failed)}


def _times(ask: Callable[[int], object], ids: Sequence[int], warm: int = 20) -> list[float]:
    seconds = []
    for row in ids:
        started = time.perf_counter()
        ask(row)
        seconds.append(time.perf_counter() - started)
    return seconds[warm:]


# Memory


class Watch:
    """Looks at the memory of processes every few milliseconds; keeps the most that they held together.

    Without ``of`` that is proportional set size: the system walks through all pages for it, which takes tens
    of milliseconds where there are gigabytes. ``Rss...`` of ``/proc/PID/status`` are counters, read at once.
    """

    def __init__(self, pids: Callable[[], Sequence[int]], of: str = "Pss:") -> None:
        self._pids, self._of, self._ending = pids, of, threading.Event()
        self.most = self.since = 0
        """Since the beginning, and since ``mark``."""
        self.cpu = 0.0
        """Seconds of a core that looking has taken."""
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def mark(self) -> None:
        """Another stretch begins."""
        self.since = 0

    def _look(self) -> None:
        while not self._ending.wait(0.02):
            now = held(self._pids(), self._of)
            self.most, self.since = max(self.most, now), max(self.since, now)
            self.cpu = time.thread_time()


def held(pids: Sequence[int], of: str = "Pss:") -> int:
    """Bytes of proportional set size: a page that several processes share is divided among them; with
    ``Rss:`` it counts whole. ``RssAnon:`` is memory of no file, and once what a node and its worker share (a
    message); ``RssFile:`` the pages of files that are mapped.
    """
    if of == "RssAnon:":
        return held(pids, "RssAnon") + max((held([pid], "RssShmem") for pid in pids), default=0)
    file = "status" if of.startswith("RssAnon") or of[:4] in ("RssF", "RssS") else "smaps_rollup"
    return sum(_kilobytes(Path(f"/proc/{pid}/{file}"), of) for pid in pids)


def _kilobytes(path: Path, name: str) -> int:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:  # it has just ended
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def with_children(pid: int) -> list[int]:
    """A process and the processes it has started."""
    try:
        threads = [Path(f"/proc/{pid}/task/{one}/children") for one in os.listdir(f"/proc/{pid}/task")]
        text = " ".join(path.read_text(encoding="ascii") for path in threads if path.exists())
    except OSError:
        return [pid]
    return [pid, *map(int, text.split())]


def memory_report(scene: Scene) -> dict[str, Any]:
    """Of one organization, node and worker: idle, at most while it learns, and at most while it predicts."""
    with network(scene) as net:
        pid = net.processes[OTHERS[0]].pid
        time.sleep(2)
        idle = held(with_children(pid))
        with Watch(lambda: with_children(pid)) as learned:
            net.learn()
        with Watch(lambda: with_children(pid)) as predicted:
            net.holder.predictor.predict(
                net.node.state.find_task(TASK), RowIds("integer", np.arange(1_000, 1_100)), seconds=120
            )
        peaks = [_kilobytes(Path(f"/proc/{one}/status"), "VmHWM:") for one in with_children(pid)]
    view, message = 8 * scene.rows * scene.columns, 4 * scene.rows
    return {
        "model": scene.model["use"],
        "rows": scene.rows,
        "columns": scene.columns,
        "MB of the view": view / 1e6,
        "MB of a message": message / 1e6,
        "MB idle": idle / 1e6,
        "MB learning": learned.most / 1e6,
        "MB predicting": predicted.most / 1e6,
        "MB of both processes' own peaks (VmHWM)": sum(peaks) / 1e6,
        "learning / (3 views + message)": learned.most / (3 * view + message),
        "without what it holds idle": (learned.most - idle) / (3 * view + message),
    }


# Covertype


def covertype(rows: int) -> tuple[dict[str, pa.Table], NDArray[np.int64], NDArray[np.int64]]:
    """Rows by organization, each in another order; ids of those without a label, which are
    to be predicted; their labels.
    """
    found = load_dataset("Covertype")
    assert found.partition is not None
    chosen = np.sort(np.random.default_rng(0).permutation(len(found.y))[:rows])
    test = np.random.default_rng(1).random(len(chosen)) < 0.2
    X, y, ids = found.X.iloc[chosen], found.y[chosen], np.arange(len(chosen)) + 1_000
    tables = {}
    for number, (name, columns) in enumerate(zip((OWN, *OTHERS), found.partition.values(), strict=True)):
        order = np.random.default_rng(100 + number).permutation(len(chosen))
        held = {"id": pa.array(ids[order])} | {
            one: pa.array(X[one].to_numpy(dtype=np.float64)[order]) for one in columns
        }
        if name == OWN:
            held["label"] = pa.array(y[order], mask=test[order])
        tables[name] = pa.table(held)
    return tables, ids[test], y[test]


def covertype_report(scene: Scene) -> dict[str, Any]:
    """How many test rows are right, over nodes and in one process, with the closing model and without."""
    tables, asked, truth = covertype(scene.rows)
    started = time.perf_counter()
    with network(scene, tables=tables) as net:
        facts = net.learn()
        learned = time.perf_counter() - started
        record = net.node.state.find_task(TASK)
        over_nodes = net.holder.predictor.predict(record, RowIds("integer", asked), seconds=600.0).output
    ensemble, members, views = _in_one_process(scene, tables, asked)
    here = predict(ensemble, members, views).output
    sums = predict(replace(ensemble, closing=None), members, views).output

    def right(output: NDArray[np.float64]) -> float:
        return float((output.argmax(axis=1) == truth).mean())

    return {
        "rows": scene.rows,
        "test rows": len(truth),
        "rounds": facts["rounds"],
        "share of the closing model": float("nan") if facts["closing"] is None else facts["closing"],
        "accuracy over nodes": right(over_nodes),
        "accuracy in one process": right(here),
        "accuracy without the closing model": right(sums),
        "same bits": str(over_nodes.tobytes() == here.tobytes()),
        "seconds over nodes": learned,
    }


def _in_one_process(
    scene: Scene, tables: Mapping[str, pa.Table], asked: NDArray[np.int64]
) -> tuple[Any, Any, Any]:
    """What is learned from the same rows without nodes, the organizations, and
    their views of the rows to predict.
    """
    own = tables[OWN]
    labelled = own.filter(own["label"].is_valid())
    order = labelled["id"].to_numpy()
    members, views = [], {}
    for name, one in tables.items():
        columns = np.column_stack(
            [one[key].to_numpy() for key in one.column_names if key not in {"id", "label"}]
        )
        place = np.argsort(one["id"].to_numpy())
        at = place[order - 1_000]
        members.append(Organization(name, np.ascontiguousarray(columns[at])))
        views[name] = np.ascontiguousarray(columns[place[asked - 1_000]])
    y = labelled["label"].to_numpy()
    ensemble = learn_in_process(y, members, kind="classification", rounds=scene.rounds, label_holder=OWN)
    return ensemble, members, views


# The report


def _toml(value: str) -> str:
    return value if value.startswith("{") else json.dumps(value)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _median(values: Any) -> float:
    return float(np.median(values))


def _percentile(seconds: Sequence[float], percent: int) -> float:
    return 1e3 * float(np.percentile(seconds, percent))


def parts(rows: Sequence[int] | None) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    """By name: what can be measured."""
    many = list(rows or (200_000, 5_000_000))
    return {
        "rounds": lambda: [rounds_report(Scene(one, model=LEAN)) for one in many],
        "bytes": lambda: [bytes_report(Scene(one, rounds=3)) for one in rows or (100_000, 1_000_000)],
        "predict": lambda: [
            predict_report(Scene((rows or (200_000,))[0], model={"use": model}, rounds=10))
            for model in ("linear", "tabular")
        ],
        "sums": lambda: [sums_report(one) for one in rows or (2_000, 20_000, 200_000)],
        "memory": lambda: [memory_report(Scene(many[-1], 10, LEAN, rounds=3))],
        "covertype": lambda: [
            covertype_report(Scene(one, model={"use": "tabular"}, rounds=10)) for one in rows or (58_101,)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", help=f"some of {', '.join(parts(None))}; all by default")
    parser.add_argument("--rows", type=int, nargs="+", help="instead of the sizes that each part has")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if unknown := set(arguments.part) - set(parts(None)):  # choices would refuse an empty list on Python 3.11
        parser.error(f"there is no part {', '.join(sorted(unknown))}: choose from {', '.join(parts(None))}")
    found: dict[str, list[dict[str, Any]]] = {}
    for name in arguments.part or parts(None):
        found[name] = parts(arguments.rows)[name]()
        if not arguments.json:
            print(f"{name}", flush=True)
            for report in found[name]:
                print(table(report), end="\n\n", flush=True)
    if arguments.json:
        print(json.dumps(found, indent=2))


def table(report: Mapping[str, Any]) -> str:
    """One line per figure."""
    return "\n".join(
        f"  {name:42s} "
        f"{f'{value:.4g}' if isinstance(value, float) else f'{value:,}' if isinstance(value, int) else value}"
        for name, value in report.items()
    )


if __name__ == "__main__":
    main()
