"""Deep runs on another machine: a plan says what is to be run there, a folder brings the outcomes back.

    PYTHONPATH=src python -m gal_bench.run_plan plan.json cache --data-dir DATA

runs a plan of ``gal bench --plan``, with a source checkout, numpy, scipy, scikit-learn and torch. Every run
leaves a file in the folder ``cache``, so a kill costs one run; started again, it resumes. Copied to
``results/cache``, these files are what ``gal bench TABLE`` shows. A file's name is a digest of its cell and
of the sources: outcomes of other sources are not found.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from gal.errors import GALError, InvalidInputError
from gal_bench.cache import Cache, replace_text
from gal_bench.cells import Cell, Sources, run_to_the_end

EXIT_FAILED, EXIT_INVALID, EXIT_INTERRUPTED = 3, 2, 130
"""As those of the command line."""


def write_plan(cells: Iterable[Cell], path: Path) -> None:
    """Write these cells down for another machine."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps([cell.to_json() for cell in cells], indent=1))
    except OSError as error:
        raise InvalidInputError(f"{str(path)!r} cannot be written: {error}") from error


def read_plan(path: Path) -> list[Cell]:
    """What ``write_plan`` wrote."""
    try:
        return [Cell.from_json(one) for one in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"{str(path)!r} is no plan: expected a file that gal bench --plan wrote with this version "
            f"({error!r})"
        ) from error


def run_plan(cells: Sequence[Cell], cache: Cache, sources: Sources) -> list[Cell]:
    """Run what is not in the cache yet, in order; returns the runs that failed."""
    left = [cell for cell in cells if cache.get(cell) is None]
    _print(f"{len(left)} runs to do, {len(cells) - len(left)} done before")
    failed = []
    for number, cell in enumerate(left, start=1):
        started = time.perf_counter()
        try:
            outcome = run_to_the_end(cell, sources)
        except Exception as error:
            failed.append(cell)
            if not isinstance(error, GALError):
                traceback.print_exc()  # nobody expected it, so whoever reads the log needs the place
            said = f"failed: {type(error).__name__}: {error}"
        else:
            cache.put(cell, outcome)
            said = f"{outcome.metric} {outcome.final:.4g} on {outcome.device}"
        _print(f"{number} of {len(left)}, {time.perf_counter() - started:.1f} s: {cell.words}: {said}")
        if "CUDA error" in said:
            _print("stopped: after a CUDA error nothing more can be run in this process; start it again")
            break
    return failed


def main(words: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser("gal_bench.run_plan", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("plan", type=Path, help="the file that gal bench --plan wrote")
    parser.add_argument("cache", type=Path, help="folder for outcomes; what is there is not run again")
    parser.add_argument("--data-dir", type=Path, help="folder with the data sets; default: GAL_DATA")
    given = parser.parse_args(words)
    try:
        failed = run_plan(read_plan(given.plan), Cache(given.cache), Sources(given.data_dir))
    except KeyboardInterrupt:
        _print("interrupted: finished runs are in the folder")
        return EXIT_INTERRUPTED
    except GALError as error:
        _print(f"error: {error}")
        return EXIT_INVALID
    _print(f"{len(failed)} runs failed")
    return EXIT_FAILED if failed else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
