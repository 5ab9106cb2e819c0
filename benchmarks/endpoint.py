"""What ``gal predict --listen`` does in a second, and how long one row takes. A report; nothing passes or
fails.

    python benchmarks/endpoint.py                  # 20,000 rows, 50 clients
    python benchmarks/endpoint.py --model tabular --clients 200
    python benchmarks/endpoint.py --beside ../before    # in turns with the code of another checkout

Four organizations on this machine over mutual TLS, all of them real processes: three run ``gal serve``, the
label holder runs ``gal predict TASK --listen``. This process only asks, over plain sockets, so that what it
takes of a core is small and is printed with the rest. First one client asks for one row after another, then
many clients do at the same time. Beside seconds there is CPU time, by role of the process: of a busy machine
that is the better figure. At the end, what each node holds, without the process that computes for it.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import gal
from gal.node.web.token import FILE as TOKEN_FILE
from node_parts.memory import held
from node_parts.network import OTHERS, OWN, TASK, Network, Scene, serving
from nodes import table

TICKS = os.sysconf("SC_CLK_TCK")
STARTING = 120.0
SOURCES = Path(gal.__file__).parent.parent


@contextmanager
def endpoint(home: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """``gal predict TASK --listen`` as a process that ends with the block, and its port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    command = [sys.executable, "-c", "from gal.cli.app import main; main()", "predict", TASK]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{port}", "--home", str(home)], stdout=log, stderr=log
        )
    try:
        yield process, port
    finally:
        process.terminate()
        process.wait(30)


@dataclass
class Client:
    """One connection that asks for one row after another."""

    port: int
    token: str
    rows: Iterator[int]
    line: socket.socket = field(init=False)
    seconds: list[float] = field(default_factory=list)
    degraded: int = 0
    _asked: float = 0.0
    _came: bytes = b""

    def connect(self) -> None:
        """Open the connection."""
        self.line = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> None:
        """Send a request for the next row."""
        body = json.dumps({"ids": [next(self.rows)]})
        head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
        self._asked, self._came = time.perf_counter(), b""
        self.line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())

    def is_answered(self) -> bool:
        """Take what has come; whether that is the whole answer."""
        self._came += self.line.recv(1 << 16)
        head, _, body = self._came.partition(b"\r\n\r\n")
        announced = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if not announced or len(body) < int(announced):
            return False
        self.seconds.append(time.perf_counter() - self._asked)
        try:
            said = json.loads(body)
        except ValueError:
            raise SystemExit(f"the endpoint answered {self._came.decode(errors='replace')}") from None
        if "degraded" not in said:
            raise SystemExit(f"the endpoint answered {said}")
        self.degraded += int(said["degraded"])
        return True


def ask_all(clients: Sequence[Client], each: int) -> float:
    """Let every client ask so often, each again as soon as it is answered; seconds of all together."""
    with selectors.DefaultSelector() as ready:
        for one in clients:
            one.connect()
            ready.register(one.line, selectors.EVENT_READ, one)
        left = {id(one): each for one in clients}
        started = time.perf_counter()
        for one in clients:
            one.ask()
        while any(left.values()):
            for key, _ in ready.select(60):
                one = key.data
                if one.is_answered():
                    left[id(one)] -= 1
                    if left[id(one)]:
                        one.ask()
        seconds = time.perf_counter() - started
    for one in clients:
        one.line.close()
    return seconds


def cpu_of(processes: Mapping[str, int]) -> dict[str, float]:
    """Seconds of CPU time by role: of a node, and of the process that computes for it."""
    found: dict[str, float] = {}
    for name, pid in processes.items():
        role = "label holder" if name == OWN else "organizations"
        workers = [
            int(one)
            for path in Path(f"/proc/{pid}/task").glob("*/children")
            for one in path.read_text().split()
        ]
        found[role] = found.get(role, 0.0) + _cpu(pid)
        found[f"workers of {role}"] = found.get(f"workers of {role}", 0.0) + sum(map(_cpu, workers))
    found["who asks"] = time.process_time()
    return found


def _cpu(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def measured(
    port: int, token: str, n_rows: int, clients: int, each: int, processes: Mapping[str, int]
) -> dict[str, Any]:
    """Milliseconds of a row, rows a second, and milliseconds of CPU time for each row, by role."""
    rng = np.random.default_rng(clients)
    crowd = [
        Client(port, token, iter(rng.integers(1_000, 1_000 + n_rows, each).tolist())) for _ in range(clients)
    ]
    before = cpu_of(processes)
    seconds = ask_all(crowd, each)
    after = cpu_of(processes)
    took = 1e3 * np.concatenate([one.seconds for one in crowd])
    who = f"{clients} client{'s' if clients > 1 else ''}"
    return {
        f"{who}: rows a second": clients * each / seconds,
        f"{who}: p50, ms": float(np.percentile(took, 50)),
        f"{who}: p95, ms": float(np.percentile(took, 95)),
        f"{who}: p99, ms": float(np.percentile(took, 99)),
        f"{who}: degraded rows": sum(one.degraded for one in crowd),
        f"{who}: CPU ms a row": sum(after[role] - before[role] for role in after) * 1e3 / (clients * each),
    } | {
        f"{who}: CPU ms a row, {role}": (after[role] - before[role]) * 1e3 / (clients * each)
        for role in after
    }


@dataclass
class Serving:
    """Four nodes that run, one of them with an endpoint."""

    port: int
    token: str
    processes: dict[str, int]

    @classmethod
    def started(cls, scene: Scene, root: Path, sources: Path, stack: ExitStack) -> Serving:
        """Nodes that run the code in ``sources`` until the stack ends; what
        ``root`` has not learned yet is learned first.
        """
        if not (root / OWN).exists():
            root.mkdir(exist_ok=True)
            with ExitStack() as learning:
                Network(scene, root, learning).learn()
        os.environ["PYTHONPATH"] = str(sources)
        others = {name: stack.enter_context(serving(root / name)) for name in OTHERS}
        own, port = stack.enter_context(endpoint(root / OWN))
        token = (root / OWN / TOKEN_FILE).read_text(encoding="utf-8").strip()
        wait_for_all(port, token, own, root / OWN / "log")
        made = cls(port, token, {name: one.pid for name, one in (others | {OWN: own}).items()})
        made.measured(scene.rows, 1, 100)  # warm
        made.measured(scene.rows, 50, 2)
        return made

    def measured(self, n_rows: int, clients: int, each: int) -> dict[str, Any]:
        """See `measured`."""
        return measured(self.port, self.token, n_rows, clients, each, self.processes)

    def memory(self) -> dict[str, float]:
        """MB that the label holder's node holds, and the largest of the organizations'."""
        nodes = {name: held([pid], "Rss:") / 1e6 for name, pid in self.processes.items()}
        own = nodes.pop(OWN)
        return {"MB of the label holder's node": own, "MB of an organization's node": max(nodes.values())}


def report(scene: Scene, clients: int, single: int, each: int, folder: Path | None) -> dict[str, Any]:
    """Learn, start the endpoint, and ask it: alone, and in a crowd."""
    with ExitStack() as stack:
        made = None if folder else stack.enter_context(tempfile.TemporaryDirectory(prefix="gal-endpoint-"))
        nodes = Serving.started(scene, folder or Path(made or ""), SOURCES, stack)
        load = os.getloadavg()[0]
        return (
            {"model": scene.model["use"], "rows": scene.rows, "load of the machine": load}
            | nodes.measured(scene.rows, 1, single)
            | nodes.measured(scene.rows, clients, each)
            | nodes.memory()
        )


def compare(scene: Scene, clients: int, single: int, each: int, beside: Path, turns: int) -> dict[str, Any]:
    """The same for this code and that of another checkout, in turns: medians over these turns."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gal-endpoint-")))
        versions = {"this": SOURCES, "beside": beside / "src"}
        learn_there(scene, beside, root / "beside")
        nodes = {
            name: Serving.started(scene, root / name, sources, stack) for name, sources in versions.items()
        }
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in nodes}
        for turn in range(turns):
            for name in sorted(nodes, reverse=turn % 2 == 1):
                alone = nodes[name].measured(scene.rows, 1, max(1, single // turns))
                crowd = nodes[name].measured(scene.rows, clients, max(1, each // turns))
                found[name].append(alone | crowd)
        load = os.getloadavg()[0]
        for name, one in nodes.items():
            found[name][-1] |= one.memory()
    return {"model": scene.model["use"], "rows": scene.rows, "load of the machine": load} | {
        f"{name}, {what}": float(np.median([one[what] for one in found[name] if what in one]))
        for what in found["this"][-1]
        for name in found
    }


def learn_there(scene: Scene, checkout: Path, folder: Path) -> None:
    """Have another checkout learn with its own code: older code need not read what newer code has kept."""
    script = [sys.executable, str(checkout / "benchmarks" / "endpoint.py"), "--folder", str(folder)]
    words = ["--rows", str(scene.rows), "--model", scene.model["use"]]
    little = ["--clients", "1", "--single", "1", "--each", "1"]
    folder.mkdir()
    subprocess.run(
        [*script, *words, *little],
        env=os.environ | {"PYTHONPATH": str(checkout / "src")},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def wait_for_all(port: int, token: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the endpoint answers and every organization is connected."""
    until = time.monotonic() + STARTING
    while time.monotonic() < until and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
                head = f"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                line.sendall(f"{head}Connection: close\r\n\r\n".encode())
                said = b"".join(iter(lambda: line.recv(1 << 16), b""))
            if len(json.loads(said.partition(b"\r\n\r\n")[2]).get("connected", [])) == len(OTHERS):
                return
        except (OSError, ValueError):
            pass
        time.sleep(0.2)
    raise SystemExit(f"the endpoint did not start, or not all have connected: {log.read_text()[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000, help="of the table")
    parser.add_argument("--model", default="linear")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--single", type=int, default=500, help="requests of the client that asks alone")
    parser.add_argument("--each", type=int, default=60, help="requests of each of many clients")
    parser.add_argument("--folder", type=Path, help="with the homes of an earlier run; made, and kept")
    parser.add_argument("--beside", type=Path, help="another checkout, asked in turns with this one")
    parser.add_argument("--turns", type=int, default=10, help="in which requests are shared out, beside")
    arguments = parser.parse_args()
    scene = Scene(arguments.rows, model={"use": arguments.model}, rounds=10)
    asked = (scene, arguments.clients, arguments.single, arguments.each)
    if arguments.beside is None:
        print(table(report(*asked, arguments.folder)))
    else:
        print(table(compare(*asked, arguments.beside, arguments.turns)))


if __name__ == "__main__":
    main()
