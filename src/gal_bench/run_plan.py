"""Runs a plan of ``gal bench --plan`` on a machine with a source checkout, numpy,
scipy, scikit-learn and torch.

    PYTHONPATH=src python -m gal_bench.run_plan plan.json outcomes.json --data-dir DATA --seconds 540

After every run the outcomes are written anew, so that a kill costs one run; started again, it goes on. Then
``gal bench TABLE --take outcomes.json`` puts them into the tables.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gal.errors import GALError, InvalidInputError
from gal_bench.cache import fingerprint
from gal_bench.cells import Cell, Outcome, Sources
from gal_bench.plans import Plan, Record, read_plan, read_records, write_records
from gal_bench.run_cell import run_to_the_end

Runner = Callable[[Cell, Sources], Outcome]
Say = Callable[[str], None]
EXIT_FAILED, EXIT_INVALID, EXIT_INTERRUPTED = 3, 2, 130
"""As those of the command line."""


@dataclass(frozen=True)
class RunLimits:
    """When to stop."""

    seconds: float = float("inf")
    clock: Callable[[], float] = time.perf_counter


def run_plan(
    plan: Plan,
    path: Path,
    sources: Sources,
    *,
    again: bool = False,
    limits: RunLimits | None = None,
    run: Runner = run_to_the_end,
    say: Say = lambda line: None,  # noqa: ARG005
) -> dict[str, Record]:
    """Run what is not in the outcomes file yet, in order; failed runs count as run, unless ``again``.

    Stops before a run that took longer, in another run of its data set, than the seconds that are left.
    """
    limits = limits or RunLimits()
    ends = limits.clock() + limits.seconds
    _check_sources(plan)
    records = read_records(path) if path.exists() else {}
    left = {name: cell for name, cell in plan.cells.items() if _is_left(records.get(name), again)}
    say(f"{len(left)} runs to do, {len(plan.cells) - len(left)} done before")
    for done, (name, cell) in enumerate(left.items()):
        if limits.clock() + longest(records.values(), cell.dataset) > ends:
            say(f"stopped: {len(left) - done} runs are left, and the next would not fit into the time")
            break
        records[name] = _run_one(cell, sources, run, limits.clock)
        write_records(records, path)
        say(f"{done + 1} of {len(left)}: {record_words(cell, records[name])}")
        if "CUDA error" in records[name].error:
            say("stopped: after a CUDA error nothing more can be run in this process; start it again")
            break
    return records


def _check_sources(plan: Plan) -> None:
    here = fingerprint(deep=True)
    if plan.fingerprint != here:
        raise InvalidInputError(
            f"the plan is for other sources (fingerprint {plan.fingerprint}, here {here}): outcomes would "
            "not be taken; "
            "bring the sources that it was made with, or make a new plan"
        )


def _is_left(record: Record | None, again: bool) -> bool:
    return record is None or (again and record.outcome is None)


def longest(records: Iterable[Record], dataset: str) -> float:
    """Seconds of the longest run of this data set so far; 0 where there was none."""
    return max((one.seconds for one in records if one.cell.get("dataset") == dataset), default=0.0)


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


def record_words(cell: Cell, record: Record) -> str:
    """One line: what was run, what came out, how long it took, on what."""
    if record.outcome is None:
        return f"{cell.words}: failed after {record.seconds:.1f} s: {record.error}"
    outcome = Outcome(**record.outcome)
    device = f", {outcome.device}" if outcome.device else ""
    return f"{cell.words}: {outcome.metric} {outcome.final:.4g}, {record.seconds:.1f} s{device}"


def main(words: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    given = _parser().parse_args(words)
    sources = Sources(given.data_dir)
    try:
        plan = read_plan(given.plan)
        limits = RunLimits(given.seconds)
        records = run_plan(plan, given.outcomes, sources, again=given.again, limits=limits, say=_print)
    except KeyboardInterrupt:
        _print("interrupted: what was finished is in the outcomes file")
        return EXIT_INTERRUPTED
    except GALError as error:
        _print(f"error: {error}")
        return EXIT_INVALID
    return _summary(plan, records)


def _summary(plan: Plan, records: Mapping[str, Record]) -> int:
    found = [records[name] for name in plan.cells if name in records]
    failed = sum(record.outcome is None for record in found)
    _print(
        f"{len(found) - failed} of {len(plan.cells)} runs have outcomes"
        + (f", {failed} failed" * bool(failed))
    )
    return EXIT_FAILED if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("gal_bench.run_plan", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("plan", type=Path, help="the file that gal bench --plan wrote")
    parser.add_argument("outcomes", type=Path, help="where outcomes are written, and where it goes on")
    parser.add_argument("--data-dir", type=Path, help="folder with the data sets; default: GAL_DATA")
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="start no run that would likely end later than this",
    )
    parser.add_argument("--again", action="store_true", help="try failed runs again")
    return parser


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
