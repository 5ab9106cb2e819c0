"""Deep runs on another machine: a plan says what is to be run there, its outcomes are taken back here.

    PYTHONPATH=src python -m gal_bench.run_plan plan.json outcomes.json --data-dir DATA --seconds 540

runs a plan of ``gal bench --plan``, with a source checkout, numpy, scipy, scikit-learn and torch. After every
run the outcomes are written anew, so that a kill costs one run; started again, it goes on. Then ``gal bench
TABLE --take outcomes.json`` puts them into the tables. A run is known by the name of its file in the cache,
which is a digest of its cell and of the sources: outcomes of other sources do not fit.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gal.errors import GALError, InvalidInputError
from gal_bench.cache import Cache, fingerprint, replace_text
from gal_bench.cells import Cell, Outcome, Sources, run_to_the_end

Runner = Callable[[Cell, Sources], Outcome]
Say = Callable[[str], None]
EXIT_FAILED, EXIT_INVALID, EXIT_INTERRUPTED = 3, 2, 130
"""As those of the command line."""


@dataclass(frozen=True)
class Plan:
    """What is to be run, in order."""

    fingerprint: str
    """Of the sources that the plan is for."""
    cells: dict[str, Cell]
    """By the name of their file in the cache."""


@dataclass(frozen=True)
class Record:
    """What came of a run: an outcome, or an error."""

    cell: dict[str, Any]
    fingerprint: str
    """Of the sources that ran."""
    seconds: float
    """All of it, with reading the data."""
    outcome: dict[str, Any] | None = None
    error: str = ""

    def words(self, cell: Cell) -> str:
        """One line: what was run, what came out, how long it took, on what."""
        if self.outcome is None:
            return f"{cell.words}: failed after {self.seconds:.1f} s: {self.error}"
        outcome = Outcome(**self.outcome)
        device = f", {outcome.device}" if outcome.device else ""
        return f"{cell.words}: {outcome.metric} {outcome.final:.4g}, {self.seconds:.1f} s{device}"


# --- files


def write_plan(cells: Iterable[Cell], cache: Cache, path: Path) -> None:
    """Write these cells down for another machine."""
    runs = [{"file": cache.path(cell).name, "words": cell.words, "cell": cell.to_json()} for cell in cells]
    _write(path, {"fingerprint": fingerprint(deep=True), "runs": runs})


def read_plan(path: Path) -> Plan:
    """What ``write_plan`` wrote."""
    content = _read(path)
    try:
        cells = {str(run["file"]): Cell.from_json(run["cell"]) for run in content["runs"]}
        return Plan(str(content["fingerprint"]), cells)
    except (KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{str(path)!r} is no plan: expected a file that gal bench --plan wrote with this version "
            f"({error!r})"
        ) from error


def read_records(path: Path) -> dict[str, Record]:
    """What came of the runs, by the name of the file in the cache."""
    content = _read(path)
    try:
        return {name: Record(**record) for name, record in content["runs"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"{str(path)!r} holds no outcomes: expected a file that gal_bench.run_plan wrote ({error!r})"
        ) from error


def _write(path: Path, content: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(content, indent=1))
    except OSError as error:
        raise InvalidInputError(f"{str(path)!r} cannot be written: {error}") from error


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{str(path)!r} cannot be read as JSON: {error}") from error


# --- back here


def take(path: Path, cache: Cache) -> tuple[int, list[str]]:
    """Put the outcomes of runs elsewhere into the cache; how many, and why others do not fit."""
    taken, refused = 0, []
    for name, record in read_records(path).items():
        try:
            cache.put(*_checked(name, record, cache))
        except ValueError as error:
            refused.append(str(error))
        else:
            taken += 1
    return taken, refused


def _checked(name: str, record: Record, cache: Cache) -> tuple[Cell, Outcome]:
    """The cell and its outcome; a ValueError says why they cannot be taken."""
    try:
        cell = Cell.from_json(record.cell)
        words, here = cell.words, fingerprint(deep=cell.deep)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: its cell cannot be read ({error!r})") from error
    if record.outcome is None:
        raise ValueError(f"{words}: it failed there: {record.error}")
    if record.fingerprint != here:
        raise ValueError(
            f"{words}: it was run with other sources (fingerprint {record.fingerprint}, here {here}): make "
            "a new plan"
        )
    if cache.path(cell).name != name:
        raise ValueError(f"{words}: its cell is not the one that was planned as {name}")
    try:
        outcome = Outcome(**record.outcome)
        finite = bool(outcome.scores) and all(math.isfinite(score) for score in outcome.scores)
    except TypeError as error:
        raise ValueError(f"{words}: its outcome cannot be read ({error})") from error
    if not finite:
        raise ValueError(f"{words}: its scores are not all numbers: {outcome.scores}")
    return cell, outcome


# --- there


def run_plan(
    plan: Plan,
    path: Path,
    sources: Sources,
    *,
    again: bool = False,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
    run: Runner = run_to_the_end,
    say: Say = lambda line: None,  # noqa: ARG005
) -> dict[str, Record]:
    """Run what is not in the outcomes file yet, in order; failed runs count as run, unless ``again``.

    Stops before a run that took longer, in another run of its data set, than the seconds that are left.
    """
    ends, here = clock() + seconds, fingerprint(deep=True)
    if plan.fingerprint != here:
        raise InvalidInputError(
            f"the plan is for other sources (fingerprint {plan.fingerprint}, here {here}): outcomes would "
            "not be taken; bring the sources that it was made with, or make a new plan"
        )
    records = read_records(path) if path.exists() else {}
    done = {name for name, one in records.items() if not (again and one.outcome is None)}
    left = {name: cell for name, cell in plan.cells.items() if name not in done}
    say(f"{len(left)} runs to do, {len(plan.cells) - len(left)} done before")
    for number, (name, cell) in enumerate(left.items()):
        longest = max(
            (one.seconds for one in records.values() if one.cell["dataset"] == cell.dataset), default=0
        )
        if clock() + longest > ends:
            say(f"stopped: {len(left) - number} runs are left, and the next would not fit into the time")
            break
        records[name] = _run_one(cell, sources, run, clock)
        _write(path, {"runs": {one: asdict(record) for one, record in records.items()}})
        say(f"{number + 1} of {len(left)}: {records[name].words(cell)}")
        if "CUDA error" in records[name].error:
            say("stopped: after a CUDA error nothing more can be run in this process; start it again")
            break
    return records


def _run_one(cell: Cell, sources: Sources, run: Runner, clock: Callable[[], float]) -> Record:
    """An error of one run is written down and leaves the others alone."""
    started, outcome, error = clock(), None, ""
    try:
        outcome = run(cell, sources).to_json()
    except Exception as problem:
        if not isinstance(problem, GALError):
            traceback.print_exc()  # nobody expected it, so whoever reads the log needs the place
        error = f"{type(problem).__name__}: {problem}"
    return Record(cell.to_json(), fingerprint(deep=True), clock() - started, outcome, error)


def main(words: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser("gal_bench.run_plan", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("plan", type=Path, help="the file that gal bench --plan wrote")
    parser.add_argument("outcomes", type=Path, help="where outcomes are written, and where it goes on")
    parser.add_argument("--data-dir", type=Path, help="folder with the data sets; default: GAL_DATA")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="start no run that would likely end later than this"
    )
    parser.add_argument("--again", action="store_true", help="try failed runs again")
    given = parser.parse_args(words)
    how = {"again": given.again, "seconds": given.seconds}
    try:
        plan = read_plan(given.plan)
        records = run_plan(plan, given.outcomes, Sources(given.data_dir), **how, say=_print)
    except KeyboardInterrupt:
        _print("interrupted: what was finished is in the outcomes file")
        return EXIT_INTERRUPTED
    except GALError as error:
        _print(f"error: {error}")
        return EXIT_INVALID
    found = [records[name] for name in plan.cells if name in records]
    failed = sum(record.outcome is None for record in found)
    said = f"{len(found) - failed} of {len(plan.cells)} runs have outcomes"
    _print(said + (f", {failed} failed" if failed else ""))
    return EXIT_FAILED if failed else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
