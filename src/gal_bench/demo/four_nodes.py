"""The demo: four organizations as processes of their own learn over mutual TLS; one is killed and comes back.

It does what people would do with the command ``gal``, one command after another, each sandboxed in
the folder of its organization.
"""

from __future__ import annotations

import csv
import json
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from signal import SIGSTOP
from subprocess import Popen
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.errors import InvalidInputError, NodeError
from gal_bench.demo.confined import NOTES
from gal_bench.demo.kill import Killed, RoundPrinter, kill_and_restart, wait_until
from gal_bench.demo.processes import LOG, Processes, Say

if TYPE_CHECKING:
    from gal_bench.demo.demo_checks import Revealed

PARTS = {
    "clinic": ["age", "sex", "bp"],
    "insurer": ["bmi"],
    "lab": ["s1", "s2", "s3", "s4"],
    "hospital": ["s5", "s6"],
}
"""Who holds which columns; the first wants to predict."""

HOLDER, TASK, LABEL, ROW_ID = "clinic", "progression", "progression", "patient"
VICTIM = "lab"
ROUNDS = 8
NEW = 110
"""Patients that are not learned, only predicted."""
UNKNOWN_TO_VICTIM = 12
"""Patients whom one organization does not know; some of them new ones."""
REPORT = "demo-report.html"
"""The page that the demo writes."""


@dataclass(frozen=True)
class Patients:
    """The data set as it is spread over the organizations."""

    table: pd.DataFrame
    """All columns, index: patient."""
    y: NDArray[np.float64]
    learned: NDArray[np.intp]
    new: NDArray[np.intp]
    known: Mapping[str, NDArray[np.intp]]
    """By organization: positions of its patients, in its own order."""

    def rows_of(self, name: str) -> pd.DataFrame:
        """What one organization holds; the label holder also has labels, of the learned patients."""
        rows = self.table.iloc[self.known[name]][PARTS[name]]
        return rows.assign(**{LABEL: self.y[self.known[name]]}) if name == HOLDER else rows


@dataclass(frozen=True)
class Left:
    """What left one organization, by kind of message, from its audit log."""

    messages: Mapping[str, int]
    n_bytes: Mapping[str, int]
    to: Sequence[str]
    entries: int
    """Of the whole log, whose chain of hashes was verified."""


@dataclass(frozen=True)
class Separated:
    """Whether processes could look into the folders of other organizations."""

    by: str
    """"landlock", or "nothing" where the kernel cannot."""
    tried: int
    refused: int


@dataclass(frozen=True)
class DemoFacts:
    """What the demo found; scores are R2 on patients that were not learned."""

    alone: float
    assisted: float
    pooled: float
    gain: tuple[float, float]
    """95 % interval of what assistance adds to the score."""
    pooled_model: str
    metric: str
    learned_rows: int
    predicted_rows: int
    degraded_rows: int
    unknown_rows: Mapping[str, int]
    """By organization: learned patients whom it does not know."""
    rounds: int
    rounds_learned: int
    seconds: float
    learning_seconds: float
    bytes: Mapping[str, int]
    """``sent`` and ``received`` by the label holder, for everything."""
    contributions: Mapping[str, Any]
    """As ``gal learn --json`` has them."""
    left: Mapping[str, Left]
    killed: Killed | None
    missed: Mapping[str, list[int]]
    identical: bool
    """Whether ensemble and predictions equal those of one process, bit for bit."""
    revealed: Revealed
    separated: Separated
    folder: str | None
    report: str
    """The HTML page."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def spread_patients() -> Patients:
    """442 real patients of scikit-learn's diabetes data: who knows whom, and who is only predicted."""
    from sklearn.datasets import load_diabetes

    columns, target = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    table = columns.set_axis(pd.Index(np.arange(len(columns)) + 1001, name=ROW_ID))
    rng = np.random.default_rng(0)
    order = rng.permutation(len(table))
    new, learned = np.sort(order[:NEW]), np.sort(order[NEW:])
    everybody = np.arange(len(table))
    unknown = rng.choice(everybody, UNKNOWN_TO_VICTIM, replace=False)
    known = {name: rng.permutation(everybody) for name in PARTS}
    known[VICTIM] = rng.permutation(np.setdiff1d(everybody, unknown))
    return Patients(table, target.to_numpy(dtype=np.float64), learned, new, known | {HOLDER: learned})


def run_demo(
    folder: Path, program: Sequence[str], report: Path, *, kept: bool = False, say: Say
) -> DemoFacts:
    """Everything, in this empty folder; ``program`` runs a command of gal sandboxed in
    the folder of an organization. The page is written to ``report``.
    """
    from gal_bench.demo.demo_report import write_demo_report

    started = time.perf_counter()
    patients = spread_patients()
    homes = {name: folder / name for name in PARTS}
    with Processes(program, homes) as processes:
        _make_nodes(processes, patients, say)
        say("Nodes start. Three join the task (gal serve, gal invite, gal join).")
        serving = {name: processes.start(name, "serve", "--level", "warning") for name in PARTS}
        _invite(processes)
        learned, killed = _learn_with_a_kill(processes, serving, say)
        predictions, facts = _predict(processes, patients, say)
        say("Nodes stop. Audit logs (gal audit) and all claims are verified.")
        processes.end(list(serving.values()))
        printed = processes.together({name: [["audit", "--json"]] for name in PARTS})
        audits = {name: json.loads(one[0]) for name, one in printed.items()}
    judged = _judge(patients, homes[HOLDER], predictions)
    found = DemoFacts(
        **judged,
        metric="r2",
        learned_rows=learned["n_rows"],
        predicted_rows=facts["n_rows"],
        degraded_rows=facts["degraded"],
        unknown_rows={name: count for name, count in learned["unknown_rows"].items() if count},
        rounds=learned["rounds"],
        rounds_learned=learned["rounds_learned"],
        seconds=time.perf_counter() - started,
        learning_seconds=learned["seconds"],
        bytes=_traffic(audits[HOLDER]),
        contributions=learned["contributions"],
        left={name: what_left(audit) for name, audit in audits.items()},
        killed=killed,
        missed=learned["missed"],
        separated=_separated(homes.values()),
        folder=str(folder) if kept else None,
        report=str(report),
    )
    write_demo_report(found, learned, homes[HOLDER], report)
    return found


def check_empty(folder: Path) -> None:
    """Whether the demo can put its things here."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(
            f"{str(folder)!r} is not an empty folder: name one that is, or that is not there"
        )


# Before learning


def _make_nodes(processes: Processes, patients: Patients, say: Say) -> None:
    """Each organization gets its folder and data, makes its own key, and takes in
    the cards of those it works with.
    """
    say("Four organizations exchange cards of their keys (gal init, gal cards).")
    for name, home in processes.homes.items():
        home.mkdir(mode=0o700, parents=True)
        patients.rows_of(name).to_csv(home / "rows.csv")
    new = patients.table.iloc[patients.new][PARTS[HOLDER]]
    new.to_csv(processes.homes[HOLDER] / "new.csv")
    listen = f"127.0.0.1:{_free_port()}"
    own = {name: ["init", name, "--home", ".", "--data", "rows.csv", "--row-id", ROW_ID] for name in PARTS}
    own[HOLDER] += ["--label", LABEL, "--listen", listen]
    processes.together({name: [command] for name, command in own.items()})
    others = [name for name in PARTS if name != HOLDER]
    for name in others:
        _carry(processes, f"{name}.card", name, [HOLDER])
    _carry(processes, f"{HOLDER}.card", HOLDER, others)
    adding = {name: [["cards", "add", f"received/{HOLDER}.card"]] for name in others}
    adding[HOLDER] = [["cards", "add", f"received/{name}.card"] for name in others]
    processes.together(adding)


def _invite(processes: Processes) -> None:
    others = [name for name in PARTS if name != HOLDER]
    purpose = "How will a patient's diabetes progress within a year?"
    processes.run(HOLDER, "invite", TASK, *others, "--rounds", str(ROUNDS), "--purpose", purpose)
    _carry(processes, f"{TASK}.invitation", HOLDER, others)
    processes.together({name: [["join", f"received/{TASK}.invitation", "--yes"]] for name in others})


def _carry(processes: Processes, file: str, sender: str, receivers: Sequence[str]) -> None:
    """Take a file from one organization to others, as mail would."""
    for name in receivers:
        place = processes.homes[name] / "received"
        place.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(processes.homes[sender] / file, place)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


# Learning, with a kill


def _learn_with_a_kill(
    processes: Processes, serving: dict[str, Popen[str]], say: Say
) -> tuple[dict[str, Any], Killed | None]:
    """Learn; meanwhile one organization is killed in the middle of a round, and started again."""
    home = processes.homes[HOLDER]
    wait_until(lambda: (home / "control.json").exists(), serving, processes)
    say(f"The {HOLDER} learns (gal learn). First the nodes agree on the rows.")
    # A process that does not run answers nothing: the label holder waits for it in the round that follows.
    rounds = RoundPrinter(say, lambda: processes.signal(serving[VICTIM], SIGSTOP))
    with ThreadPoolExecutor(1) as pool:
        learning = pool.submit(_learn, home, rounds)
        try:
            killed = kill_and_restart(processes, serving, (HOLDER, VICTIM), rounds, say)
            learned = learning.result()
        except BaseException:
            processes.kill_all()  # the pool waits for its thread, and that for the node
            raise
    if learned["rounds"] < learned["rounds_learned"]:
        say(f"  The model keeps {learned['rounds']} rounds: later ones did not help validation rows.")
    return learned, killed


def _learn(home: Path, rounds: RoundPrinter) -> dict[str, Any]:
    """Ask the running node to learn, as ``gal learn`` does, and pass on what happens."""
    from gal.node.runtime.control import ask_node, running_node

    try:
        with running_node(home) as connection:
            if connection is None:
                raise NodeError(f"the node of {HOLDER} takes no commands: look at {LOG} in its folder")
            patience = {"join": 60.0, "deadline": 600.0, "quorum": 0}
            asked = {"task": TASK, "resume": False, "anew": False, "patience": patience}
            learned: dict[str, Any] = ask_node(connection, "learn", asked, rounds)
            return learned
    finally:
        rounds.end()


# After learning


def _predict(processes: Processes, patients: Patients, say: Say) -> tuple[dict[int, float], dict[str, Any]]:
    """Predictions by patient, and what the command says of them."""
    say(f"The {HOLDER} predicts {len(patients.new)} new patients (gal predict).")
    printed = processes.run(HOLDER, "predict", TASK, "new.csv", "--out", "predictions.csv", "--json")
    with (processes.homes[HOLDER] / "predictions.csv").open(newline="", encoding="utf-8") as file:
        # Not with pandas: by its default some numbers come out one bit off.
        found = {int(row[ROW_ID]): float(row["prediction"]) for row in csv.DictReader(file)}
    return found, json.loads(printed)


def _judge(patients: Patients, home: Path, predictions: Mapping[int, float]) -> dict[str, Any]:
    """Scores on the new patients, whether one process computes the same, and what attacks find."""
    from threadpoolctl import threadpool_limits

    from gal.evaluate.metrics import r2
    from gal_bench.demo.demo_checks import InOneProcess, baseline_predictions, gain_interval, revealed

    order = [*(name for name in PARTS if name != HOLDER), HOLDER]
    tables = {name: patients.table.iloc[np.sort(patients.known[name])][PARTS[name]] for name in order}
    tables[HOLDER] = patients.table[PARTS[HOLDER]]
    ids = patients.table.index.to_numpy()
    learned, y, truth = ids[patients.learned], patients.y[patients.learned], patients.y[patients.new]
    with threadpool_limits(1):
        again = InOneProcess(tables)
        ensemble, output = again.run(learned, y, ids[patients.new], ROUNDS)
        alone, pooled, pooled_model = baseline_predictions(
            patients.table, patients.y, PARTS, patients.learned, patients.new, ROUNDS
        )
        found = revealed(again, learned, y, HOLDER)
    assisted = np.array([predictions[patient] for patient in ids[patients.new].tolist()])
    outputs = {"alone": alone, "assisted": assisted, "pooled": pooled}
    return {
        **{name: r2(truth, one) for name, one in outputs.items()},
        "gain": gain_interval(truth, alone, assisted),
        "pooled_model": pooled_model,
        "identical": _learned_ensemble(home) == ensemble and bool((assisted == output).all()),
        "revealed": found,
    }


def _learned_ensemble(home: Path) -> Any:
    from gal.core.state import ensemble_of
    from gal.node.store.state import State

    state = State(home)
    try:
        record = state.find_task(TASK, "label holder")
        learned = state.learned_version(record.id, record.active)
    finally:
        state.close()
    return None if learned is None or learned.outcome is None else ensemble_of(learned.outcome.ensemble)


def what_left(audit: Mapping[str, Any]) -> Left:
    """What left an organization, from what ``gal audit --json`` says."""
    out = [one for one in audit["summary"] if one["direction"] == "out"]
    messages: dict[str, int] = {}
    n_bytes: dict[str, int] = {}
    for one in out:
        messages[one["kind"]] = messages.get(one["kind"], 0) + one["messages"]
        n_bytes[one["kind"]] = n_bytes.get(one["kind"], 0) + one["n_bytes"]
    return Left(messages, n_bytes, sorted({one["peer"] for one in out}), audit["n"])


def _traffic(audit: Mapping[str, Any]) -> dict[str, int]:
    named = {"out": "sent", "in": "received"}
    return {
        said: sum(one["n_bytes"] for one in audit["summary"] if one["direction"] == direction)
        for direction, said in named.items()
    }


def _separated(homes: Any) -> Separated:
    """What the processes noted when they tried to look into other folders."""
    notes = [
        json.loads(line) for home in homes for line in (home / NOTES).read_text(encoding="utf-8").splitlines()
    ]
    tried = sum(len(one["tried"]) for one in notes)
    closed = all(one["closed"] for one in notes)
    return Separated(
        "landlock" if closed else "nothing", tried, tried - sum(len(one["reached"]) for one in notes)
    )
