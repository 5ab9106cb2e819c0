"""What a default fit costs beside one that may use one thread only, on an idle machine and on a busy one.

    python benchmarks/threads.py                      # 1,500, 20,000 and 100,000 rows, four busy loops
    python benchmarks/threads.py --rows 1500 --loops 2

Each fit is of a fresh process: the table of ``cost.py`` with ten columns, two classes, two organizations, all
defaults. Ratios are of the medians of ``--times`` processes, default over one thread, which take turns. Start
it on a machine that does nothing else; the last line wants two free cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

NAMES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ONE_THREAD = dict.fromkeys(NAMES, "1")
FIT = """
import sys, time
sys.path.insert(0, {folder!r})
from cost import Job, make_table
from gal import GALClassifier
X, y = make_table(Job({rows}))
model = GALClassifier({{"bank": slice(0, 5), "shop": slice(5, 10)}}, n_jobs={n_jobs}, random_state=0)
cpu, wall = time.process_time(), time.perf_counter()
model.fit(X, y)
print(time.process_time() - cpu, time.perf_counter() - wall)
"""


def fit(rows: int, limits: Mapping[str, str], n_jobs: int | None = None) -> tuple[float, float]:
    """CPU seconds and seconds of one fit in a process of its own."""
    code = FIT.format(folder=os.path.dirname(os.path.abspath(__file__)), rows=rows, n_jobs=n_jobs)
    free = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", code], env=free | dict(limits), check=True, stdout=subprocess.PIPE, text=True
    )
    cpu, wall = map(float, done.stdout.split())
    return cpu, wall


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that only count, beside."""
    beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for one in beside:
            one.kill()
            one.wait()


def compare(rows: int, times: int, loops: int, aim: float) -> None:
    """A line: default over one thread, in CPU seconds and in seconds."""
    with busy(loops):
        taken = np.array([[fit(rows, {}), fit(rows, ONE_THREAD)] for _ in range(times)])
    (cpu, wall), (cpu_of_one, wall_of_one) = np.median(taken, axis=0)
    where = f"{loops} busy loops" if loops else "idle"
    print(
        f"  {rows:9,} rows, {where:12s}  CPU {cpu / cpu_of_one:5.2f} x, time {wall / wall_of_one:5.2f} x "
        f"(aim {aim:g})   {cpu:.2f} CPU s, {wall:.2f} s beside {cpu_of_one:.2f} CPU s, {wall_of_one:.2f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_500, 20_000, 100_000])
    parser.add_argument(
        "--loops", type=int, default=4, help="processes that only count, beside the busy fits"
    )
    parser.add_argument("--times", type=int, default=5, help="processes, of which the median counts")
    given = parser.parse_args()
    print("default over one thread")
    for rows in given.rows:
        compare(rows, given.times, 0, 1.05)
        compare(rows, given.times, given.loops, 1.3)
    rows = given.rows[-1]
    walls = np.median([[fit(rows, {}, jobs)[1] for jobs in (1, 2)] for _ in range(given.times)], axis=0)
    print(f"two jobs, {rows:,} rows, idle: {walls[0] / walls[1]:.2f} x as fast as one (aim 1.6)")


if __name__ == "__main__":
    main()
