"""The demo: four processes learn over mutual TLS; one is killed and resumes.

It runs the command ``gal`` step by step, as people would, each command sandboxed in the folder of its
organization.
"""

from __future__ import annotations

import csv
import json
import shutil
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from signal import SIGKILL
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
"""The columns of each organization; the first wants to predict."""
HOLDER, TASK, LABEL, ROW_ID = "clinic", "progression", "progression", "patient"
OTHERS = [name for name in PARTS if name != HOLDER]
VICTIM = "lab"
ROUNDS = 8
NEW = 110
"""Patients that are not learned, only predicted."""
REPORT = "demo-report.html"
"""The page that the demo writes."""
AWAY = 0.5
"""Seconds without a round between the kill and the restart, so that the others are seen to wait."""
PATIENCE = 180.0
"""Seconds after which the demo gives up waiting for what should take a few."""
BAR = 20
"""Letters of the bar that stands for the loss before round 1."""


@dataclass(frozen=True)
class Patients:
    """The data set as it is spread over the organizations."""

    table: pd.DataFrame
    """All columns, index: patient."""
    y: NDArray[np.float64]
    learned: NDArray[np.intp]
    new: NDArray[np.intp]

    def rows_of(self, name: str) -> pd.DataFrame:
        """What one organization holds, in its own order; the label holder also has labels, of the learned
        patients.
        """
        if name == HOLDER:
            return self.table.iloc[self.learned][PARTS[name]].assign(**{LABEL: self.y[self.learned]})
        order = np.random.default_rng(list(PARTS).index(name)).permutation(len(self.table))
        return self.table.iloc[order][PARTS[name]]


@dataclass(frozen=True)
class DemoFacts:
    """The results of the demo; scores are R2 on patients that were not learned."""

    alone: float
    assisted: float
    pooled: float
    gain: tuple[float, float]
    """95 % interval of what assistance adds to the score."""
    pooled_model: str
    learned_rows: int
    predicted_rows: int
    rounds: int
    rounds_learned: int
    seconds: float
    contributions: Mapping[str, Any]
    """As ``gal learn --json`` has them."""
    left: Mapping[str, Mapping[str, Any]]
    """By organization what left it, from its audit log: messages and n_bytes by kind, to whom, entries."""
    killed: Mapping[str, Any] | None
    missed: Mapping[str, list[int]]
    identical: bool
    """Whether ensemble and predictions equal those of one process, bit for bit."""
    revealed: Mapping[str, int]
    """As ``checks.revealed`` has it."""
    separated: Mapping[str, Any]
    """Whether processes could look into the folders of others: by "landlock" or "nothing", tried, refused."""
    folder: str | None
    report: str
    """The HTML page."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def spread_patients() -> Patients:
    """442 real patients of scikit-learn's diabetes data: who is learned, and who is only predicted."""
    from sklearn.datasets import load_diabetes

    columns, target = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    table = columns.set_axis(pd.Index(np.arange(len(columns)) + 1001, name=ROW_ID))
    order = np.random.default_rng(0).permutation(len(table))
    return Patients(table, target.to_numpy(dtype=np.float64), np.sort(order[NEW:]), np.sort(order[:NEW]))


def run_demo(
    folder: Path, program: Sequence[str], report: Path, *, kept: bool = False, say: Say
) -> DemoFacts:
    """Everything, in this empty folder; ``program`` runs a command of gal sandboxed in
    the folder of an organization. The page is written to ``report``.
    """
    started = time.perf_counter()
    patients = spread_patients()
    homes = {name: folder / name for name in PARTS}
    with Processes(program, homes) as processes:
        _make_nodes(processes, patients, say)
        say("Nodes start. Three join the task (gal serve, gal invite, gal join).")
        serving = {name: processes.start(name, "serve", "--level", "warning") for name in PARTS}
        purpose = "How will a patient's diabetes progress within a year?"
        processes.run(HOLDER, "invite", TASK, *OTHERS, "--rounds", str(ROUNDS), "--purpose", purpose)
        _carry(processes, f"{TASK}.invitation", HOLDER, OTHERS)
        processes.together({name: [["join", f"received/{TASK}.invitation", "--yes"]] for name in OTHERS})
        learned, killed = _learn_with_a_kill(processes, serving, say)
        say(f"The {HOLDER} predicts {len(patients.new)} new patients (gal predict).")
        processes.run(HOLDER, "predict", TASK, "new.csv", "--out", "predictions.csv")
        say("Nodes stop. Audit logs (gal audit) and all claims are verified.")
        processes.end(list(serving.values()))
        printed = processes.together({name: [["audit", "--json"]] for name in PARTS})
    found = DemoFacts(
        **_scored(patients, homes[HOLDER]),
        learned_rows=learned["n_rows"],
        predicted_rows=len(patients.new),
        rounds=learned["rounds"],
        rounds_learned=learned["rounds_learned"],
        seconds=time.perf_counter() - started,
        contributions=learned["contributions"],
        left={name: outgoing_messages(json.loads(one)) for name, [one] in printed.items()},
        killed=killed,
        missed=learned["missed"],
        separated=_separated(homes),
        folder=str(folder) if kept else None,
        report=str(report),
    )
    _write_report(found, learned, homes[HOLDER], report)
    return found


def check_empty(folder: Path) -> None:
    """An error where the folder of the demo is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(
            f"{str(folder)!r} is not an empty folder: name one that is, or that is not there"
        )


def _make_nodes(processes: Processes, patients: Patients, say: Say) -> None:
    """Each organization gets its folder and data, makes its own key, and takes in
    the cards of those it works with.
    """
    say("Four organizations exchange cards of their keys (gal init, gal cards).")
    for name, home in processes.homes.items():
        home.mkdir(mode=0o700, parents=True)
        patients.rows_of(name).to_csv(home / "rows.csv")
    patients.table.iloc[patients.new][PARTS[HOLDER]].to_csv(processes.homes[HOLDER] / "new.csv")
    own = {name: ["init", name, "--home", ".", "--data", "rows.csv", "--row-id", ROW_ID] for name in PARTS}
    with socket.create_server(("127.0.0.1", 0)) as free:
        own[HOLDER] += ["--label", LABEL, "--listen", f"127.0.0.1:{free.getsockname()[1]}"]
    processes.together({name: [command] for name, command in own.items()})
    for name in OTHERS:
        _carry(processes, f"{name}.card", name, [HOLDER])
    _carry(processes, f"{HOLDER}.card", HOLDER, OTHERS)
    adding = {name: [["cards", "add", f"received/{HOLDER}.card"]] for name in OTHERS}
    adding[HOLDER] = [["cards", "add", f"received/{name}.card"] for name in OTHERS]
    processes.together(adding)


def _carry(processes: Processes, file: str, sender: str, receivers: Sequence[str]) -> None:
    """Take a file from one organization to others, as mail would."""
    for name in receivers:
        place = processes.homes[name] / "received"
        place.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(processes.homes[sender] / file, place)


# Learning, with a kill


def _learn_with_a_kill(
    processes: Processes, serving: dict[str, Popen[str]], say: Say
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Learn; meanwhile one organization is killed and restarted. Returns facts of both."""
    home, killed = processes.homes[HOLDER], threading.Event()
    wait_until(lambda: (home / "control.sock").exists(), serving, processes)
    say(f"The {HOLDER} learns (gal learn). First the nodes agree on the rows.")

    def kill() -> None:
        processes.signal(serving[VICTIM], SIGKILL)
        killed.set()

    rounds = RoundPrinter(say, kill)
    with ThreadPoolExecutor(1) as pool:
        learning = pool.submit(_learn, home, rounds)
        try:
            while not (killed.wait(0.05) or learning.done()):
                pass
            restarted = _restart(processes, serving, rounds, say) if killed.is_set() else None
            learned = learning.result()
        except BaseException:
            processes.kill_all()  # the pool waits for its thread, and that for the node
            raise
    if learned["rounds"] < learned["rounds_learned"]:
        say(f"  The model keeps {learned['rounds']} rounds: later ones did not help validation rows.")
    return learned, restarted


def _restart(
    processes: Processes, serving: dict[str, Popen[str]], rounds: RoundPrinter, say: Say
) -> dict[str, Any]:
    """Start the killed node again: who it was, after which round, how long it was away."""
    gone, home, last = time.perf_counter(), processes.homes[VICTIM], 0
    while rounds.last > last:  # events of earlier rounds come late on a busy machine
        last = rounds.last
        time.sleep(AWAY)
    say(f"The {VICTIM}'s node is killed after round {last} (kill -9). The {HOLDER} waits.")
    joined = _times_joined(home)
    serving[VICTIM] = processes.start(VICTIM, "serve", "--level", "warning")
    wait_until(lambda: _times_joined(home) > joined, serving, processes)
    away = time.perf_counter() - gone
    say(f"The {VICTIM}'s node is started again (gal serve). It resumes after {away:.1f} s.")
    return {"organization": VICTIM, "round": last, "seconds_away": away}


def _times_joined(home: Path) -> int:
    """By its audit log, read only: the node may be in the middle of writing."""
    query = "SELECT count(*) FROM audit WHERE direction = 'out' AND kind = 'joined'"
    address = f"{(home / 'state.sqlite').as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=5)) as records:
        return int(records.execute(query).fetchone()[0])


def wait_until(happened: Callable[[], bool], serving: Mapping[str, Popen[str]], processes: Processes) -> None:
    """Wait; a node that ended instead is an error, with its last words."""
    until = time.monotonic() + PATIENCE
    while not happened():
        for name, process in serving.items():
            if process.poll() is not None:
                lines = (processes.homes[name] / LOG).read_text(encoding="utf-8").strip().splitlines()
                raise NodeError(f"the node of {name} ended: {' '.join(lines[-3:])}")
        if time.monotonic() > until:
            raise NodeError(f"the nodes were not ready within {PATIENCE:g} s: look at {LOG} in their folders")
        time.sleep(0.05)


def _learn(home: Path, on_event: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Ask the running node to learn, as ``gal learn`` does, and pass on what happens."""
    from gal.node.runtime.control import ask_node, running_node

    with running_node(home) as connection:
        if connection is None:
            raise NodeError(f"the node of {HOLDER} takes no commands: look at {LOG} in its folder")
        patience = {"join": 60.0, "deadline": 600.0, "quorum": 0}
        command = {"task": TASK, "anew": False, "patience": patience}
        learned: dict[str, Any] = ask_node(connection, "learn", command, on_event)
        return learned


class RoundPrinter:
    """Prints the result of each round. ``kill`` is called after round 1."""

    def __init__(self, say: Say, kill: Callable[[], None]) -> None:
        self._say, self._kill = say, kill
        self.last = 0
        """The last round that was printed."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """One event of the label holder's learning; only rounds are printed."""
        if event["event"] != "round":
            return
        share = event["train_loss"] / event["initial"]["train_loss"]
        if event["round"] == 1:
            self._say(described(0, 1.0))
        self._say(described(event["round"], share))
        self.last = event["round"]
        if event["round"] == 1:
            self._kill()


def described(round: int, share: float) -> str:
    """A round's loss as a share of the loss before round 1, as a number and as a bar.

    >>> print(described(0, 1.0))
      round 0: loss 100.0 % ████████████████████ (mean squared error)
    >>> print(described(2, 0.25))
      round 2: loss  25.0 % █████
    """
    unit = "" if round else " (mean squared error)"
    return f"  round {round}: loss {100 * share:5.1f} % {'█' * int(BAR * share + 0.5)}{unit}"


# After learning


def _scored(patients: Patients, home: Path) -> dict[str, Any]:
    """Scores on the new patients, whether one process computes the same, and what attacks find."""
    from threadpoolctl import threadpool_limits

    from gal.evaluate.metrics import r2
    from gal_bench.demo.checks import InOneProcess, baseline_predictions, gain_interval, revealed

    with (home / "predictions.csv").open(newline="", encoding="utf-8") as file:
        # Not with pandas: by its default some numbers come out one bit off.
        predicted = {int(row[ROW_ID]): float(row["prediction"]) for row in csv.DictReader(file)}
    assisted = np.array([predicted[patient] for patient in patients.table.index[patients.new]])
    y, truth = patients.y[patients.learned], patients.y[patients.new]
    with threadpool_limits(1):
        again = InOneProcess({name: patients.table[PARTS[name]] for name in (*OTHERS, HOLDER)})
        ensemble, output = again.run(patients.learned, y, patients.new, ROUNDS)
        alone, pooled, pooled_model = baseline_predictions(
            patients.table, patients.y, PARTS, patients.learned, patients.new, ROUNDS
        )
        found = revealed(again, patients.learned, y)
    return {
        **{"alone": r2(truth, alone), "assisted": r2(truth, assisted), "pooled": r2(truth, pooled)},
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


def outgoing_messages(audit: Mapping[str, Any]) -> dict[str, Any]:
    """The messages that left an organization, from the output of ``gal audit --json``."""
    out = [one for one in audit["summary"] if one["direction"] == "out"]
    found: dict[str, Any] = {"messages": {}, "n_bytes": {}, "to": sorted({one["peer"] for one in out})}
    for one in out:
        for what in ("messages", "n_bytes"):
            found[what][one["kind"]] = found[what].get(one["kind"], 0) + one[what]
    return found | {"entries": audit["n"]}


def _separated(homes: Mapping[str, Path]) -> dict[str, Any]:
    """The notes of the processes on their tries to read other folders."""
    texts = [(home / NOTES).read_text(encoding="utf-8") for home in homes.values()]
    notes = [json.loads(line) for text in texts for line in text.splitlines()]
    tried = sum(one["tried"] for one in notes)
    by = "landlock" if all(one["closed"] for one in notes) else "nothing"
    return {"by": by, "tried": tried, "refused": tried - sum(len(one["reached"]) for one in notes)}


def _write_report(found: DemoFacts, learned: Mapping[str, Any], home: Path, path: Path) -> None:
    """Write the report of the version that was learned; its answer is about the new patients."""
    from gal.cli.versions import report_of_version
    from gal.evaluate.reporting.facts import PRIVACY
    from gal.evaluate.reporting.writing import write_report

    facts = report_of_version(home, learned, {learned["version"]: learned})
    low, high = found.gain
    page = replace(
        facts,
        title=f"The demo: did assistance help the {HOLDER}?",
        question=f"The demo: did assistance help the {HOLDER} to predict {TASK}?",
        answer=(
            f"{'Yes' if low > 0 else 'No clear difference'}: with assistance, R² on {found.predicted_rows} "
            f"new patients is {found.assisted:.3f} instead of {found.alone:.3f}, a gain of "
            f"{found.assisted - found.alone:.3f} (95 % confidence: {low:.3f} to {high:.3f})."
        ),
        verdict="helps" if low > 0 else "hurts" if high < 0 else "unclear",
        more=[
            f"A pooled model ({found.pooled_model}) reaches {found.pooled:.3f}.",
            f"In cross-validation: {facts.answer}",
            *facts.more,
        ],
        sections={**facts.sections, PRIVACY: [learned["privacy"]["words"], *reveals(found)]},
    )
    write_report(page, path)


def reveals(found: DemoFacts) -> list[str]:
    """The leaks of plain residuals and fitted values, as measured by attacks."""
    revealed = found.revealed

    def of(what: str) -> str:
        every = revealed[f"of_{what}"]
        return f"all {every}" if revealed[what] == every else f"{revealed[what]} of {every}"

    return [
        f"Residuals: a partner that knows two labels can work out {of('labels')} labels.",
        f"Fitted values: the {HOLDER} can work out {of('columns')} columns of its partners.",
        f"It must know {revealed['known_rows']} patients for that. How to limit this: README.md, 'Privacy'.",
    ]
