"""What nodes cost beyond the local fits: seconds, bytes, memory. A report,
printed; nothing here passes or fails.

    python benchmarks/nodes.py                         # all: a quarter of an hour, 12 GB of memory and disk
    python benchmarks/nodes.py rounds --rows 200000    # one part of it

Four organizations on this machine, each a process of its own, over mutual TLS: three run ``gal serve``, the
label holder's node runs here. Views are made up, with a seed; rows lie in another order at each, and what is
learned from them is rounds alone: neither interaction probes nor a stacker.

- rounds: seconds of a learning round, of the slowest local fit in it (where it ran), and what is left;
- bytes: on the wire, per round, organization and direction, counted by a relay between the two;
- predict: milliseconds of one row, through the page (JSON over HTTP, one connection) and without it;
- sums: what a round with secure aggregation takes beside one without and the same weights: seconds, bytes of
  messages, and milliseconds of one row;
- memory: the most that node and worker of an organization held together, as a multiple of its view.

With fewer cores than organizations the fits share them: each takes longer, and so does all else.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gal.alignment import RowIds
from gal.core.pipeline import learn
from gal.node.label_holder.learning import learning
from gal.node.runtime.node import Node
from gal.node.runtime.web.live_page import node_page
from gal.node.store.files import ensure_token
from node_parts.memory import Watch, held, kilobytes, with_children
from node_parts.network import LEAN, OTHERS, TASK, Scene, network

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

    log.info = info
    try:
        yield seconds
    finally:
        log.info = before


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


SAME = {"weights": "uniform", "cross_validation": 0, "validation_fraction": 0.0}
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
    for secure_aggregation in ("none", "sums"):
        scene = Scene(rows, model=LEAN, rounds=rounds, secure_aggregation=secure_aggregation, options=SAME)
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
        found[secure_aggregation] = {"exchange": exchange, "alone": alone, "work": work, **moved}
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


def predict_report(scene: Scene, requests: int = 300) -> dict[str, Any]:
    """Milliseconds for one row, drawn anew each time."""
    with network(scene) as net:
        net.learn()
        ids = np.random.default_rng(7).integers(1_000, 1_000 + scene.rows, requests + 20).tolist()
        record = net.node.state.find_task(TASK)

        def straight(row: int) -> None:
            found = net.holder.predictor.predict(record, RowIds("integer", np.array([row])))
            assert not found.degraded.any(), found.missing

        alone = _times(straight, ids)
        said = list[str]()
        with node_page(net.node, net.holder, "127.0.0.1:0", said.append):
            token = ensure_token(net.node.configuration.home)
            with _client(int(said[0].rpartition(":")[2].strip("/")), token) as one:
                through = _times(one, ids)
    return {
        "model": scene.model["use"],
        "rows": scene.rows,
        "endpoint p50": _percentile(through, 50),
        "endpoint p95": _percentile(through, 95),
        "without endpoint p50": _percentile(alone, 50),
        "without endpoint p95": _percentile(alone, 95),
    }


@contextmanager
def _client(port: int, token: str) -> Iterator[Callable[[int], None]]:
    """Asks for one row at a time over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {token}"}

    def ask(row: int) -> None:
        connection.request("POST", "/v1/predict", json.dumps({"ids": [row]}), headers)
        said = json.loads(connection.getresponse().read())
        assert said["degraded"] == 0, said

    with closing(connection):
        yield ask


def _times(ask: Callable[[int], object], ids: Sequence[int], warm: int = 20) -> list[float]:
    seconds = []
    for row in ids:
        started = time.perf_counter()
        ask(row)
        seconds.append(time.perf_counter() - started)
    return seconds[warm:]


# Memory


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
        peaks = [kilobytes(Path(f"/proc/{one}/status"), "VmHWM:") for one in with_children(pid)]
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


# The report


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
