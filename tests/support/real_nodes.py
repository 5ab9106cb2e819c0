"""A small network of real processes: a label holder and organizations, started,
killed, stopped and brought back.

Beside it stands what must come out: the ensemble that ``gal.learn`` finds in
this process from the same views.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import gal
from forked import Forked
from gal import Organization
from gal.assembling import grouped
from gal.core.state import Ensemble, ensemble_of, plain
from gal.errors import NodeError
from gal.models import LinearModel
from gal.node.admin.init import init_node
from gal.node.admin.membership import invite, join, read_terms
from gal.node.label_holder.learning.open_version import Patience
from gal.node.runtime.control import do, running_node
from gal.node.store.audit import AuditLog
from gal.node.store.logs import open_log
from gal.node.store.state import State
from gal.transport import CardFolder, read_card
from patience import LONGEST, patient, until
from ports import free_port

HOLDER, TASK = "clinic", "risk"
PROGRAM = [sys.executable, "-c", "from gal.cli import main; main()"]

PACED_MODEL = """
from pathlib import Path
import time
from gal.models import LinearModel

class Paced(LinearModel):
    "A linear model whose n-th fit waits until a file allows n of them."
    fits = 0

    def __init__(self, gate=""):
        super().__init__()
        self.gate = gate

    def fit(self, X, y, sample_weight=None):
        Paced.fits += 1
        while int(Path(self.gate).read_text() or "0") < Paced.fits:
            time.sleep(0.01)
        return super().fit(X, y, sample_weight)
"""


@dataclass
class Running:
    """A process, and the file that it writes to."""

    name: str
    process: Forked
    output: Path
    mark: Path
    """There once it has died where it was to die."""
    doom: str = ""

    def said(self) -> str:
        """All that it has written so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def end(self, seconds: float = LONGEST) -> int:
        """Wait for its end; its exit status."""
        return self.process.wait(seconds)

    @property
    def died(self) -> bool:
        """Whether it, or the process that computes for it, was killed at the chosen point."""
        return self.mark.exists()


@dataclass
class Network:
    """Homes of a label holder and organizations under one folder, and the processes that run there.

    Every organization has two columns of its own about the same rows; the label depends on all of them.
    """

    root: Path
    organizations: Sequence[str] = ("lab", "hospital")
    rounds: int = 4
    n_rows: int = 80
    paced: Sequence[str] = ()
    """Organizations whose fits wait until ``allow`` lets them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """How the label holder learns, besides the number of rounds."""
    running: dict[str, Running] = field(default_factory=dict)
    started: list[Running] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "paced_model.py").write_text(PACED_MODEL, encoding="utf-8")
        self.port = free_port()
        for place, name in enumerate(self.names):
            rows = self.tables[name]  # in another order at each
            rows = rows if name == HOLDER else rows.sample(frac=1, random_state=place)
            rows.to_csv(self.root / f"{name}.csv", index=False)
            self._found(name)
        for name in self.organizations:
            CardFolder(self.home(HOLDER) / "cards").add(read_card(self.home(name) / f"{name}.card"))
            CardFolder(self.home(name) / "cards").add(read_card(self.home(HOLDER) / f"{HOLDER}.card"))
        self.invite()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.started:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGCONT)
                one.process.kill()
            one.process.wait(LONGEST)
        for state in self._states.values():
            state.close()

    # What everybody has

    @property
    def names(self) -> list[str]:
        """The label holder and the organizations."""
        return [HOLDER, *self.organizations]

    def home(self, name: str) -> Path:
        """The folder of an organization."""
        return self.root / name

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """By organization: its rows, all in one order; the label depends on all columns."""
        noise, ids = np.random.default_rng(99).normal(size=self.n_rows), 1000 + np.arange(self.n_rows)
        parts = [
            np.random.default_rng(place).normal(size=(self.n_rows, 2)) for place in range(len(self.names))
        ]
        made = {
            name: pd.DataFrame({"row": ids, "a": part[:, 0], "b": part[:, 1]}).round(6)
            for name, part in zip(self.names, parts, strict=True)
        }
        total = sum((place + 1) * table["a"] for place, table in enumerate(made.values()))
        made[HOLDER]["y"] = (total + noise).round(6)
        return made

    def view(self, name: str) -> NDArray[np.float64]:
        """The columns of an organization, shape (n, 2)."""
        return self.tables[name][["a", "b"]].to_numpy()

    def _found(self, name: str) -> None:
        address = f"127.0.0.1:{self.port}" if name == HOLDER else None
        label = "y" if name == HOLDER else None
        source = str(self.root / f"{name}.csv")
        init_node(self.home(name), name, source=source, row_id="row", label=label, bind=address)
        listen = f'[listen]\nbind = "{address}"\naddress = "{address}"\n' if address else ""
        data = f'[data]\nsource = "../{name}.csv"\nrow_id = "row"\n' + ('label = "y"\n' if label else "")
        model = '[model]\nuse = "linear"\n'
        if name in self.paced:
            self.allow(name, 0)
            model = '[model]\nuse = "paced_model:Paced"\ntrusted = ["paced_model.Paced"]\n'
            model += f'options = {{gate = "{self.home(name) / "gate"}"}}\n'
        (self.home(name) / "node.toml").write_text(
            f'name = "{name}"\n{data}{model}{listen}', encoding="utf-8"
        )

    def allow(self, name: str, n_fits: int = 10**6) -> None:
        """Let a paced organization do so many fits, counted since its process began."""
        draft = self.home(name) / "gate.new"  # in the home folder: the process that fits reads nothing else
        draft.write_text(str(n_fits), encoding="ascii")
        draft.replace(self.home(name) / "gate")

    def invite(self, task: str = TASK) -> None:
        """Open a task, and have everybody join it."""
        path = self.root / f"{task}.invitation"
        options = {"rounds": self.rounds, "loss": "auto", **self.options}
        invite(
            self.home(HOLDER),
            task,
            list(self.organizations),
            path,
            kind="regression",
            alignment="plain",
            seed=0,
            purpose="",
            options=options,
        )
        for name in self.organizations:
            join(self.home(name), *read_terms(self.home(name), path))

    # Processes

    def start(self, name: str, *command: str, doom: str = "", **environment: str) -> Running:
        """Run gal in an organization's home; ``doom`` and the environment are those of process_faults.py."""
        number = len(self.started)
        output, mark = self.root / f"{number}-{name}.log", self.home(name) / f"{number}.dead"
        told = {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        if doom:
            told |= {"GAL_DOOM": doom, "GAL_DOOM_MARK": str(mark)}
        kept = {key: value for key, value in os.environ.items() if not key.startswith("GAL_")}
        with output.open("ab") as said:
            process = Forked(
                [*PROGRAM, *command, "--home", str(self.home(name))],
                cwd=self.root,
                env=kept | told | environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        one = Running(name, process, output, mark, doom)
        self.started.append(one)
        return one

    def serve(self, *names: str, doom: str = "", **environment: str) -> None:
        """Run these nodes until they are ended, and wait until they take commands."""
        for name in names:
            self.running[name] = self.start(name, "serve", "--level", "debug", doom=doom, **environment)
        for name in names:
            until(lambda name=name: self.serves(name), f"the node of {name} to start")  # type: ignore[misc]

    def serves(self, name: str) -> bool:
        """Whether an organization's node takes commands (or has ended meanwhile)."""
        if self.running[name].process.poll() is not None:
            return True
        with running_node(self.home(name)) as connection:
            return connection is not None

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to an organization's node, and wait for its end; the exit status."""
        one = self.running[name]
        one.process.send_signal(number)
        return one.end()

    def dead(self) -> list[str]:
        """Whose nodes have ended."""
        return [name for name, one in self.running.items() if one.process.poll() is not None]

    # Learning and what comes of it

    def ask(self, what: str, **arguments: Any) -> Any:
        """Have the label holder's running node do something, over its control socket as commands do."""
        try:
            return do(
                self.home(HOLDER),
                what,
                {"task": TASK} | arguments,
                on_event=self.events.append,
                stopping=threading.Event(),
                log=open_log(self.home(HOLDER), "error"),
            )
        except NodeError as error:
            if "the node ended" not in str(error) or HOLDER not in self.running:
                raise
            one = self.running[HOLDER]
            raise NodeError(
                f"{error}; its status is {one.process.poll()}, it said: {one.said()[-3000:]}"
            ) from error

    @cached_property
    def events(self) -> list[Mapping[str, Any]]:
        """The events that the label holder saw while its node learned."""
        return []

    def learn(self, *, anew: bool = False, **patience: float) -> dict[str, Any]:
        """Learn a version with the running node of the label holder; the facts."""
        said = vars(Patience(**{"deadline": LONGEST} | patience))  # type: ignore[arg-type]
        facts: dict[str, Any] = self.ask("learn", anew=anew, patience=said)
        return facts

    def missed(self) -> dict[int, Mapping[str, str]]:
        """By round, as far as the label holder was told: who was missed, and why."""
        return {one["round"]: one["missed"] for one in self.events if one["event"] == "round"}

    def until_round(self, round: int) -> None:
        """Wait until the label holder was told of a round."""
        until(lambda: round in self.missed(), f"round {round}")

    def beside(self, work: Callable[[], Any]) -> Beside:
        """Do something in a thread, to disturb it meanwhile."""
        return Beside(work)

    def state(self, name: str) -> State:
        """The memory of a node, from outside; opened once, however often one looks."""
        if name not in self._states:
            self._states[name] = State(self.home(name))
        return self._states[name]

    @cached_property
    def _states(self) -> dict[str, State]:
        return {}

    def task_id(self) -> str:
        """The id of the task."""
        return self.state(HOLDER).find_task(TASK).id

    def answered(self, name: str, version: int = 1) -> list[int]:
        """Rounds that an organization has answered."""
        found = self.state(name).answers(self.task_id(), version, "track = ? AND part < 0", ("assisted",))
        return [one.round for one in found]

    def ensemble(self, version: int = 1) -> Ensemble:
        """What the label holder has learned."""
        learned = self.state(HOLDER).learned_version(self.task_id(), version)
        assert learned is not None
        assert learned.outcome is not None
        assert learned.status == "finished"
        return ensemble_of(learned.outcome.ensemble)

    def members(self) -> list[Organization]:
        """The same organizations in this process."""
        return [Organization(name, self.view(name), LinearModel()) for name in self.names]

    def expected(self) -> tuple[Ensemble, NDArray[np.float64]]:
        """What an undisturbed learning in this process finds, and its output for all rows, shape (n,)."""
        members = self.members()
        y = self.tables[HOLDER]["y"].to_numpy()
        ensemble = gal.learn(y, members, rounds=self.rounds, kind="regression", **grouped(self.options))
        return ensemble, gal.predict(ensemble, members).output[:, 0]

    def predictions(self, **more: Any) -> dict[str, Any]:
        """The label holder's predictions for its own rows."""
        chosen = {"out": None, "version": None, "seconds": patient(20.0), "join": patient(20.0)} | more
        found: dict[str, Any] = self.ask("predict", rows=str(self.root / f"{HOLDER}.csv"), **chosen)
        return found

    def check_same(self, version: int = 1) -> None:
        """The final model and its predictions are those of the undisturbed run, and nothing counted twice."""
        expected, output = self.expected()
        assert text_of(self.ensemble(version)) == text_of(expected)
        said = self.predictions(version=version)
        assert said["degraded"] == 0
        assert [row["prediction"] for row in said["rows"]] == output.tolist()
        for name in self.names:
            asked = [one.round for one in expected.rounds if name in one.mean_fitted]
            assert self.answered(name, version) == asked, name
        self.check_audits()

    def check_audits(self) -> None:
        """No audit log has a gap; every reply that counted is in it on both sides."""
        logs = {}
        for name in self.names:
            with AuditLog(self.home(name) / "state.sqlite") as audit:
                audit.verify()
                logs[name] = audit.entries()
        came = {
            (one.peer, one.digest) for one in logs[HOLDER] if one.direction == "in" and one.kind == "fitted"
        }
        for name in self.organizations:
            left = {one.digest for one in logs[name] if one.direction == "out" and one.kind == "fitted"}
            assert {digest for peer, digest in came if peer == name} <= left, name


def text_of(ensemble: Ensemble) -> str:
    """An ensemble to the last bit, to be compared; NaN (no validation) is the same as NaN."""
    return json.dumps(plain(ensemble))


class Beside:
    """Something that is done in a thread; ``result`` waits for it, and raises what it raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._found: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._work()
        except BaseException as error:
            self._error = error

    @property
    def goes_on(self) -> bool:
        """Whether it is not done yet."""
        return self._thread.is_alive()

    def result(self, seconds: float = LONGEST) -> Any:
        """What it found."""
        self._thread.join(seconds)
        assert not self.goes_on, f"not done after {seconds:g} s"
        if self._error is not None:
            raise self._error
        return self._found
