"""How learning grows over nodes, each organization a process of its own on this machine: a report, printed.

    python benchmarks/growth_nodes.py organizations --counts 2 4 8 16    # 50,000 rows each
    python benchmarks/growth_nodes.py rows --rows 1000000 10000000       # 4 organizations
    python benchmarks/growth_nodes.py predict --rows 1000000 10000000    # a file of ids, answers to a file
    python benchmarks/growth_nodes.py message --rows 10000000            # one residual between two processes

Over mutual TLS on loopback: every organization runs ``gal serve``, the label holder's node runs in a process
of its own for each point. Four columns each, made up with a seed; linear local models, squared error, no
closing model. Seconds of a round are medians without the first, in which workers start and views are opened.
The slowest fit is the most that one organization's local model took in a round; the label holder's fits twice
in each, with the others and alone. CPU seconds are of a round after the first, of the label holder's node
(the benchmark runs in it: what it takes to look at memory is not counted), of the other nodes together and of
all workers together, fits included: they say what is left where cores are shared. Memory is of one
organization's node and worker together: memory of their own (anonymous), the most until the first round is
over and the most in those that follow, and the same with the pages of files that they map, which the system
may take back (libraries that both have mapped count twice). A message that both have mapped counts once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gal.node.admin.init import init_node
from gal.node.admin.membership import invite, join, read_terms
from gal.node.holder.label_holder import LabelHolder
from gal.node.journal.logs import open_log
from gal.node.runtime.node import Node
from gal.node.store.files import map_file
from gal.node.work.pipe import receive_piece, send_piece
from gal.protocol import Assembler, Message, encode, split
from gal.transport import CardFolder, card_of
from node_parts.memory import Watch, held, with_children
from node_parts.network import LEAN, free_port, serving, toml_of

OWN, TASK, COLUMNS = "org-00", "outcome", 4
MODEL = LEAN
LABELLED = 100_000
"""Rows that are learned from where many are predicted."""


def make_homes(root: Path, rows: int, organizations: int, rounds: int, labelled: int) -> list[str]:
    """Homes with a Parquet file each, cards exchanged, one task that all have joined; their names.

    Only the first ``labelled`` rows have a label.
    """
    names, port = [f"org-{number:02d}" for number in range(organizations)], free_port()
    label = np.random.default_rng(0).standard_normal(rows)
    identities = {}
    for number, name in enumerate(names):
        rng = np.random.default_rng(100 + number)
        order = rng.permutation(rows)
        table = {"id": pa.array(order + 1_000)}
        for column in range(COLUMNS):
            table[f"x{column}"] = pa.array(label[order] + rng.standard_normal(rows) * (2 + column))
        own: dict[str, Any] = {}
        if name == OWN:
            table["label"] = pa.array(label[order], mask=order >= labelled)
            own = {"label": "label", "bind": f"127.0.0.1:{port}"}
        (root / name).mkdir(mode=0o700)
        pq.write_table(pa.table(table), root / name / "rows.parquet")
        identities[name] = init_node(root / name, name, source="rows.parquet", row_id="id", **own)
        _configure(root / name, rows)
    for name in names[1:]:
        CardFolder(root / name / "cards").add(card_of(identities[OWN], f"127.0.0.1:{port}"))
        CardFolder(root / OWN / "cards").add(card_of(identities[name]))
    options = {"rounds": rounds, "min_rate": None, "patience": None, "closing": False}
    invite(root / OWN, TASK, names[1:], root / "task", options=options, kind="regression")
    for name in names[1:]:
        join(root / name, *read_terms(root / name, root / "task"))
    return names


def _configure(home: Path, rows: int) -> None:
    """A lean model; and as many rows a day are predicted as there are: by default it is a million."""
    text = (home / "node.toml").read_text(encoding="utf-8")
    before, _, after = text.partition("[model]\n")
    model = "".join(f"{key} = {toml_of(value)}\n" for key, value in MODEL.items())
    after = after.partition("\n")[2]  # its line "use"
    allowed = f"[policy]\npredictions_per_day = {max(rows, 1_000_000)}\n"
    after = after.replace("[policy]\n", allowed)
    (home / "node.toml").write_text(f"{before}[model]\n{model}{after}", encoding="utf-8")


class Running:
    """Homes whose nodes run; the label holder's in this process."""

    def __init__(
        self, rows: int, organizations: int, rounds: int, stack: ExitStack, labelled: int | None = None
    ) -> None:
        self.rows = rows
        self.root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gal-growth-")))
        self.names = make_homes(
            self.root, rows, organizations, rounds, rows if labelled is None else labelled
        )
        self.node = stack.enter_context(Node(self.root / OWN, log=open_log(self.root / OWN, "warning")))
        self.holder = LabelHolder(self.node)
        stack.callback(self.holder.close)
        self.processes = [stack.enter_context(serving(self.root / name)) for name in self.names[1:]]
        task, assistants = self.node.state.find_task(TASK).id, self.node.assistants
        if not assistants.wait_for(lambda: len(assistants.present(task)) == organizations - 1, 600):
            raise SystemExit("not all organizations have connected")

    def learn(self, first: Callable[[], object] = lambda: None) -> tuple[list[float], list[float]]:
        """Seconds of the rounds, and of the slowest organization's local fits in each; ``first`` is called
        after the first.
        """
        times: list[float] = []
        own: list[tuple[int, float]] = []
        log = self.node.service.log
        plain = log.info

        def info(event: str, /, **fields: Any) -> None:
            if event == "fitted":
                own.append((fields["round"], fields["seconds"]))
            plain(event, **fields)

        log.info = info  # type: ignore[method-assign]

        def told(event: Mapping[str, Any]) -> None:
            if event["event"] == "round":
                times.append(time.perf_counter())
                if len(times) == 1:
                    first()

        self.holder.learn(TASK, on_event=told, stopping=threading.Event())
        fits = [_by_round(own), *(_by_round(self._fits(name)) for name in self.names[1:])]
        slowest = [max(one.get(t, 0.0) for one in fits) for t in range(2, len(times) + 1)]
        return list(np.diff(times)), slowest

    def _fits(self, name: str) -> list[tuple[int, float]]:
        lines = (self.root / name / "log").read_text(encoding="utf-8").splitlines()
        said = [json.loads(line) for line in lines if line.startswith("{")]
        return [(one["round"], one["seconds"]) for one in said if one.get("event") == "fitted"]


def _by_round(fits: Sequence[tuple[int, float]]) -> dict[int, float]:
    """What the local model took in each round: the label holder's fits twice, with the others and alone."""
    found: dict[int, float] = {}
    for number, seconds in fits:
        found[number] = found.get(number, 0.0) + seconds
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """What these processes have used of a core."""
    fields = [
        Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split() for pid in pids
    ]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def learned(rows: int, organizations: int, rounds: int) -> dict[str, float]:
    """What one point takes."""
    with ExitStack() as stack:
        run = Running(rows, organizations, rounds, stack)
        nodes, pid = [one.pid for one in run.processes], run.processes[0].pid
        idle = held(with_children(pid))
        marks: list[tuple[float, float, float]] = []

        with (
            Watch(lambda: with_children(pid), "RssAnon:") as own,
            Watch(lambda: with_children(pid), "RssFile:") as files,
        ):

            def used() -> tuple[float, float, float]:
                workers = [one for node in (os.getpid(), *nodes) for one in with_children(node)[1:]]
                fitting = cpu_seconds([one for one in workers if one not in nodes])
                return time.process_time() - own.cpu - files.cpu, cpu_seconds(nodes), fitting

            def first() -> None:
                marks.extend([used(), (own.since, files.since, 0.0)])
                own.mark()
                files.mark()

            seconds, fits = run.learn(first)
            spent = np.subtract(used(), marks[0]) / max(len(seconds), 1)
        beyond = [one - fit for one, fit in zip(seconds, fits, strict=True)]
    view, residual = 8 * rows * COLUMNS, 4 * rows
    return {
        "round": float(np.median(seconds)),
        "slowest fit": float(np.median(fits)),
        "beyond": float(np.median(beyond)),
        "CPU s a round: label holder's node": spent[0],
        "organizations' nodes": spent[1],
        "all workers": spent[2],
        "idle MB": idle / 1e6,
        "MB at the beginning": marks[1][0] / 1e6,
        "with files": (marks[1][0] + marks[1][1]) / 1e6,
        "MB in rounds": own.since / 1e6,
        "with files ": (own.since + files.since) / 1e6,
        "allowed MB": (2 * view + residual) / 1e6 + 100,
    }


def predicted(rows: int, organizations: int) -> dict[str, float]:
    """Predict every row by its id, into a file, with what was learned from a few of them."""
    with ExitStack() as stack:
        run = Running(rows, organizations, 2, stack, labelled=min(rows, LABELLED))
        run.learn()
        ids = pa.table({"id": pa.array(np.random.default_rng(3).permutation(rows) + 1_000)})
        pq.write_table(ids, run.root / "ask.parquet")
        del ids
        nodes, pid = [one.pid for one in run.processes], run.processes[0].pid

        def own_worker() -> list[int]:
            return [one for one in with_children(os.getpid())[1:] if one not in nodes]

        watched = [(lambda: with_children(pid)), (lambda: [os.getpid()]), own_worker]
        before, watches = (
            [held(one(), "RssAnon:") for one in watched],
            [Watch(one, "RssAnon:") for one in watched],
        )
        for watch in watches:
            stack.enter_context(watch)
        started, used = time.perf_counter(), time.process_time()
        facts = run.holder.predict_file(TASK, run.root / "ask.parquet", run.root / "out.csv", seconds=600.0)
        seconds, cpu = time.perf_counter() - started, time.process_time() - used
        assert facts["n_rows"] == rows, facts
        assert facts["degraded"] == 0, facts
        most = [watch.most for watch in watches]
    return {
        "seconds": seconds,
        "rows a second": rows / seconds,
        "CPU s of the label holder's node": cpu,
        "MB of an organization": most[0] / 1e6,
        "more than before": (most[0] - before[0]) / 1e6,
        "MB of the label holder's node": most[1] / 1e6,
        "more than before ": (most[1] - before[1]) / 1e6,
        "MB of her worker": most[2] / 1e6,
    }


def handed(rows: int) -> dict[str, float]:
    """Milliseconds of CPU time, the least of five, that the message of a residual takes at one organization
    besides the network: put together of its frames, handed to another process, and an answer taken from its
    file for the way back.
    """
    residual = np.random.default_rng(0).standard_normal((rows, 1)).astype(np.float32)
    fields = {"rows": f"sha256:{'0' * 64}", "track": "assisted", "round": 1, "part": None}
    data = encode(Message("fit", "0" * 32, 1, "1.0", fields, {"residual": residual}))
    frames = list(split(data))

    def put_together() -> Any:
        assembler = Assembler(1 << 40)
        return [assembler.add(frame) for frame in frames][-1]

    def hand_over(message: Any) -> Any:
        here, there = Pipe()
        sending = threading.Thread(target=send_piece, args=(here, {}, message))
        sending.start()
        came = receive_piece(there)
        sending.join()
        return came

    came = put_together()
    with tempfile.TemporaryDirectory(prefix="gal-growth-") as folder:
        answer = Path(folder) / "answer.arrow"
        answer.write_bytes(data)
        steps: dict[str, Callable[[], object]] = {
            "put together": put_together,
            "handed over as it came": lambda: hand_over(came),
            "handed over as it was made": lambda: hand_over(data),
            "answer taken": lambda: sum(map(len, split(map_file(answer)))),
        }
        return {name: 1e3 * _least_cpu(step) for name, step in steps.items()}


def _least_cpu(step: Callable[[], object], times: int = 5) -> float:
    found = []
    for _ in range(times):
        started = time.process_time()
        step()
        found.append(time.process_time() - started)
    return min(found)


def in_a_process(what: str, *numbers: int) -> dict[str, float]:
    """One point in an interpreter of its own."""
    command = [sys.executable, __file__, "point", "--point", json.dumps([what, *numbers])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def table(name: str, sizes: Sequence[int], found: Sequence[Mapping[str, float]]) -> str:
    """A table, and the exponent of each column."""
    columns = list(found[0])
    lines = [f"| {name} | {' | '.join(columns)} |", "|---:" * (len(columns) + 1) + "|"]
    for size, one in zip(sizes, found, strict=True):
        lines.append(f"| {size:,} | {' | '.join(f'{one[key]:,.3g}' for key in columns)} |")
    if len(sizes) > 1:
        slopes = {
            key: math.log(found[-1][key] / found[-2][key]) / math.log(sizes[-1] / sizes[-2])
            for key in columns
            if found[-2][key] > 0 and found[-1][key] > 0
        }
        lines += ["", "Exponents, last two: " + ", ".join(f"{key} {one:.2f}" for key, one in slopes.items())]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("organizations", "rows", "predict", "message", "point"))
    parser.add_argument("--counts", type=int, nargs="+", default=[2, 4, 8, 16], help="of organizations")
    parser.add_argument("--rows", type=int, nargs="+", help="default: 50,000, or 100,000 and 1,000,000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--point", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.part == "point":
        what, *numbers = json.loads(chosen.point)
        points: dict[str, Callable[..., dict[str, float]]] = {
            "learned": learned,
            "predicted": predicted,
            "handed": handed,
        }
        print(json.dumps(points[what](*numbers)))
        return
    rows = chosen.rows or ([50_000] if chosen.part == "organizations" else [100_000, 1_000_000])
    if chosen.part == "organizations":
        found = [in_a_process("learned", rows[0], count, chosen.rounds) for count in chosen.counts]
        print(table("organizations", chosen.counts, found))
    elif chosen.part == "rows":
        print(table("rows", rows, [in_a_process("learned", one, 4, chosen.rounds) for one in rows]))
    elif chosen.part == "message":
        print(table("rows", rows, [in_a_process("handed", one) for one in rows]))
    else:
        print(table("rows", rows, [in_a_process("predicted", one, 2) for one in rows]))


if __name__ == "__main__":
    main()
