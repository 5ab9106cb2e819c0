"""The demo: four organizations as processes of their own learn over mutual TLS; one is killed and comes back.

It does what people would do with the command ``gal``, one command after another, each shut in to
the folder of its organization.
"""

from __future__ import annotations

import csv
import json
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.errors import InvalidInputError, NodeError
from gal_bench.demo.confined import NOTES
from gal_bench.demo.processes import LOG, Processes, Say

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
LATE = 5
"""From this round on the demo is less choosy about when exactly it kills."""
AWAY = 0.5
"""Seconds between the kill and the new start, so that the others are seen to wait."""
PATIENCE = 180.0
"""Seconds after which the demo gives up waiting for what should take a few."""


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
class Killed:
    """Who was killed, in the middle of what, and how long it was away."""

    organization: str
    round: int
    fits_asked: int
    fits_done: int
    seconds_away: float


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
    contributions: Mapping[str, float]
    left: Mapping[str, Left]
    killed: Killed | None
    missed: Mapping[str, list[int]]
    identical: bool
    """Whether ensemble and predictions equal those of one process, bit for bit."""
    separated: Separated
    folder: str | None

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
    strangers = rng.choice(everybody, UNKNOWN_TO_VICTIM, replace=False)
    known = {name: rng.permutation(everybody) for name in PARTS}
    known[VICTIM] = rng.permutation(np.setdiff1d(everybody, strangers))
    return Patients(table, target.to_numpy(dtype=np.float64), learned, new, known | {HOLDER: learned})


def run_demo(folder: Path, program: Sequence[str], *, kept: bool = False, say: Say) -> DemoFacts:
    """Everything, in this empty folder; ``program`` runs a command of gal shut in to
    the folder of an organization.
    """
    started = time.perf_counter()
    patients = spread_patients()
    homes = {name: folder / name for name in PARTS}
    with Processes(program, homes) as processes:
        _make_nodes(processes, patients, say)
        say("four nodes start: gal serve")
        serving = {name: processes.start(name, "serve", "--level", "warning") for name in PARTS}
        _invite(processes, say)
        learned, killed = _learn_with_a_kill(processes, serving, say)
        predictions, facts = _predict(processes, patients, say)
        say("the nodes end; reading and verifying their audit logs: gal audit")
        processes.end(list(serving.values()))
        printed = processes.together({name: [["audit", "--json"]] for name in PARTS})
        audits = {name: json.loads(one[0]) for name, one in printed.items()}
    say("checking: the same in one process, alone, pooled")
    judged = _judge(patients, homes[HOLDER], predictions)
    return DemoFacts(
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
    )


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
    say("four organizations make their keys: gal init")
    for name, home in processes.homes.items():
        home.mkdir(mode=0o700, parents=True)
        patients.rows_of(name).to_csv(home / "rows.csv")
    new = patients.table.iloc[patients.new][PARTS[HOLDER]]
    new.to_csv(processes.homes[HOLDER] / "new.csv")
    listen = f"127.0.0.1:{_free_port()}"
    own = {name: ["init", name, "--home", ".", "--data", "rows.csv", "--row-id", ROW_ID] for name in PARTS}
    own[HOLDER] += ["--label", LABEL, "--listen", listen]
    processes.together({name: [command] for name, command in own.items()})
    say("they hand each other their cards: gal cards add")
    others = [name for name in PARTS if name != HOLDER]
    for name in others:
        _carry(processes, f"{name}.card", name, [HOLDER])
    _carry(processes, f"{HOLDER}.card", HOLDER, others)
    adding = {name: [["cards", "add", f"received/{HOLDER}.card"]] for name in others}
    adding[HOLDER] = [["cards", "add", f"received/{name}.card"] for name in others]
    processes.together(adding)


def _invite(processes: Processes, say: Say) -> None:
    say(f"{HOLDER} asks the others for help, they read the terms and accept: gal invite, gal join")
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
    """Learn; meanwhile one organization is killed in the middle of a fit, and started again."""
    _wait_until(lambda: (processes.homes[HOLDER] / "control.json").exists(), serving, processes)
    command = ["learn", TASK, "--json"]
    say(f"{HOLDER} learns: gal learn {TASK} (waits until the others have connected)")
    learning = processes.begin(HOLDER, *command)
    killed: list[Killed] = []

    def meanwhile() -> None:
        found = _kill_in_a_fit(processes, serving[VICTIM], learning)
        if found is None:
            return
        say(
            f"kill -9 {VICTIM}, in round {found.round}, with {found.fits_done} of {found.fits_asked} fits "
            f"done; {HOLDER} waits for it"
        )
        gone = time.perf_counter()
        time.sleep(AWAY)
        before = _count(processes.homes[VICTIM], "direction = 'out' AND kind = 'joined'")
        serving[VICTIM] = processes.start(VICTIM, "serve", "--level", "warning")
        say(f"{VICTIM} starts again: gal serve")
        _wait_until(
            lambda: _count(processes.homes[VICTIM], "direction = 'out' AND kind = 'joined'") > before,
            serving,
            processes,
        )
        away = time.perf_counter() - gone
        say(f"{VICTIM} is back after {away:.1f} s and goes on where it was")
        killed.append(Killed(VICTIM, found.round, found.fits_asked, found.fits_done, away))

    printed = _beside(
        meanwhile, lambda: processes.finish(HOLDER, learning, command, lambda line: say(f"  {line}"))
    )
    return json.loads(printed), killed[0] if killed else None


def _beside(meanwhile: Callable[[], None], work: Callable[[], str]) -> str:
    """The result of the work, in a thread of its own, while something else happens here."""
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    try:
        job = pool.submit(work)
        meanwhile()
        return job.result()
    finally:
        pool.shutdown(wait=False)


@dataclass(frozen=True)
class _Round:
    """How far an organization is: the round it was last asked about, and its fits of that."""

    round: int
    fits_asked: int
    fits_done: int

    @property
    def in_a_fit(self) -> bool:
        """Whether some fits of a round after the first are done and others are not;
        late in the learning, any will do.
        """
        least = 1 if self.round < LATE else 0
        return self.round >= 2 and least <= self.fits_done < self.fits_asked


def _kill_in_a_fit(processes: Processes, victim: Popen[str], learning: Popen[str]) -> _Round | None:
    """Kill when it has been asked for fits of round 2 or later and has not answered them all.

    It is stopped first, and looked at once more: what a process that does not run has not
    done, it has not done when it dies.
    """
    home = processes.homes[VICTIM]
    while learning.poll() is None:
        if _progress(home).in_a_fit:
            processes.signal(victim, signal.SIGSTOP)
            found = _progress(home)
            if found.in_a_fit:
                processes.signal(victim, signal.SIGKILL)
                return found
            processes.signal(victim, signal.SIGCONT)
        time.sleep(0.001)
    return None


def _progress(home: Path) -> _Round:
    asked = _rows(
        home, "SELECT round, count(*) FROM audit WHERE direction = 'in' AND kind = 'fit' GROUP BY round"
    )
    if not asked:
        return _Round(0, 0, 0)
    last, count = max(asked)
    [(done,)] = _rows(home, f"SELECT count(*) FROM answers WHERE round = {int(last)}") or [(0,)]
    return _Round(last, count, done)


def _count(home: Path, where: str) -> int:
    [(count,)] = _rows(home, f"SELECT count(*) FROM audit WHERE {where}") or [(0,)]
    return int(count)


def _rows(home: Path, query: str) -> list[Any]:
    """What the records of a node say, read only: it may run, or be stopped in the middle of writing."""
    try:
        with closing(
            sqlite3.connect(f"{(home / 'state.sqlite').as_uri()}?mode=ro", uri=True, timeout=5)
        ) as records:
            return records.execute(query).fetchall()
    except sqlite3.OperationalError:  # not there yet
        return []


def _wait_until(
    happened: Callable[[], bool], serving: Mapping[str, Popen[str]], processes: Processes
) -> None:
    """Wait; a node that ended instead is an error, with the last it said."""
    until = time.monotonic() + PATIENCE
    while not happened():
        for name, process in serving.items():
            if process.poll() is not None:
                said = (processes.homes[name] / LOG).read_text(encoding="utf-8").strip().splitlines()
                raise NodeError(f"the node of {name} ended: {' '.join(said[-3:])}")
        if time.monotonic() > until:
            raise NodeError(
                f"the nodes did not get ready within {PATIENCE:g} s: look at {LOG} in their folders"
            )
        time.sleep(0.05)


# After learning


def _predict(processes: Processes, patients: Patients, say: Say) -> tuple[dict[int, float], dict[str, Any]]:
    """Predictions by patient, and what the command says of them."""
    say(
        f"{HOLDER} predicts {len(patients.new)} patients that nobody learned from: gal predict {TASK} new.csv"
    )
    printed = processes.run(HOLDER, "predict", TASK, "new.csv", "--out", "predictions.csv", "--json")
    with (processes.homes[HOLDER] / "predictions.csv").open(newline="", encoding="utf-8") as file:
        # Not with pandas: by its default some numbers come out one bit off.
        found = {int(row[ROW_ID]): float(row["prediction"]) for row in csv.DictReader(file)}
    return found, json.loads(printed)


def _judge(patients: Patients, home: Path, predictions: Mapping[int, float]) -> dict[str, Any]:
    """Scores on the new patients, and whether one process computes the same."""
    from threadpoolctl import threadpool_limits

    from gal.evaluate.metrics import r2
    from gal_bench.demo.demo_checks import InOneProcess, left_out_scores

    order = [*(name for name in PARTS if name != HOLDER), HOLDER]
    tables = {name: patients.table.iloc[np.sort(patients.known[name])][PARTS[name]] for name in order}
    tables[HOLDER] = patients.table[PARTS[HOLDER]]
    ids = patients.table.index.to_numpy()
    with threadpool_limits(1):
        ensemble, output = InOneProcess(tables).run(
            ids[patients.learned], patients.y[patients.learned], ids[patients.new], ROUNDS
        )
        alone, pooled, pooled_model = left_out_scores(
            patients.table, patients.y, PARTS, patients.learned, patients.new, ROUNDS
        )
    said = np.array([predictions[patient] for patient in ids[patients.new].tolist()])
    return {
        "alone": alone,
        "assisted": r2(patients.y[patients.new], said),
        "pooled": pooled,
        "pooled_model": pooled_model,
        "identical": _learned_ensemble(home) == ensemble and bool((said == output).all()),
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
