"""Four organizations as processes on this machine, and a relay that counts what passes between them."""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gal.node.admin.init import init_node
from gal.node.admin.membership import invite, join, read_terms
from gal.node.label_holder.label_holder import LabelHolder
from gal.node.runtime.node import Node
from gal.node.store.logs import open_log
from gal.transport import CardFolder, card_of

OWN, OTHERS = "clinic", ("hospital", "insurer", "lab")
TASK = "outcome"
LEAN = {"use": "sklearn.linear_model:Ridge", "options": "{ copy_X = false, solver = 'cholesky' }"}
"""A local model that takes next to no time and memory of its own."""

PLAIN: Mapping[str, Any] = {"patience": None, "stacking": False}
"""Where views are made up: all rounds, and nothing else."""


@dataclass(frozen=True)
class Scene:
    """What is measured: rows, columns of each organization, local model and rounds."""

    rows: int
    columns: int = 4
    model: Mapping[str, str] = field(default_factory=lambda: {"use": "linear"})
    rounds: int = 6
    secure_aggregation: str = "none"
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
    ) -> None:
        self.scene, self.root = scene, root
        self.relays: dict[str, Relay] = {}
        port = free_port()
        make_sources(scene, root)
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
            model = "".join(f"{key} = {toml_of(value)}\n" for key, value in self.scene.model.items())
            before, _, after = text.partition("[model]\n")
            after = after.partition("\n")[2]  # its line "use"
            (home / "node.toml").write_text(f"{before}[model]\n{model}{after}", encoding="utf-8")
        for name in OTHERS:
            if relayed:
                self.relays[name] = stack.enter_context(Relay(port))
            dialed = self.relays[name].port if relayed else port
            CardFolder(self.root / name / "cards").add(card_of(identities[OWN], f"127.0.0.1:{dialed}"))
            CardFolder(self.root / OWN / "cards").add(card_of(identities[name]))
            if self.scene.secure_aggregation == "sums":
                for other in set(OTHERS) - {name}:
                    CardFolder(self.root / name / "cards").add(card_of(identities[other]))

    def _invite(self) -> None:
        path = self.root / "task.invitation"
        options = {"rounds": self.scene.rounds, **PLAIN, **self.scene.options}
        invite(
            self.root / OWN,
            TASK,
            OTHERS,
            path,
            options=options,
            kind="regression",
            secure_aggregation=self.scene.secure_aggregation,
        )
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
def network(scene: Scene, *, relayed: bool = False) -> Iterator[Network]:
    """A network in a folder that is gone afterwards."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gal-nodes-")))
        yield Network(scene, root, stack, relayed=relayed)


def make_sources(scene: Scene, root: Path) -> None:
    """A Parquet file for each organization: the same rows in another order,
    columns that say a part of the label.
    """
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


def toml_of(value: str) -> str:
    return value if value.startswith("{") else json.dumps(value)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
