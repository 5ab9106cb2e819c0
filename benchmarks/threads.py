"""A default fit beside the same fit with one thread, on an idle and on a busy machine.

Every fit runs in a fresh process: two organizations with four columns each, all defaults. Beside the second
half run ``--busy`` processes that only count. Printed are the lowest CPU seconds and seconds of ``--times``
fits, and their ratios.

    python benchmarks/threads.py
    python benchmarks/threads.py --rows 1500 20000 --times 5 --busy 8
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def fit(rows: int) -> None:
    """One fit in this process; prints its CPU seconds and seconds."""
    import numpy as np

    from gal import GALRegressor

    X = np.random.default_rng(0).normal(size=(rows, 8))
    y = X[:, 0] + X[:, 1] * X[:, 4] + np.sin(X[:, 5]) + np.random.default_rng(1).normal(size=rows)
    model = GALRegressor({"bank": slice(0, 4), "shop": slice(4, 8)}, random_state=0)
    began, cpu = time.perf_counter(), time.process_time()
    model.fit(X, y)
    print(time.process_time() - cpu, time.perf_counter() - began)


def measured(rows: int, times: int, *, one_thread: bool) -> tuple[float, float]:
    """The lowest CPU seconds and seconds of so many fits in fresh processes."""
    environment = {name: value for name, value in os.environ.items() if name not in LIMITS}
    if one_thread:
        environment |= dict.fromkeys(LIMITS, "1")
    command = [sys.executable, __file__, "--fit", str(rows)]
    found = []
    for _ in range(times):
        printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        found.append([float(word) for word in printed.split()])
    return min(cpu for cpu, _ in found), min(seconds for _, seconds in found)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Beside so many processes that only count."""
    beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in beside:
            one.kill()
            one.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_500, 20_000, 100_000])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--busy", type=int, default=4)
    parser.add_argument("--fit", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit:
        fit(given.fit)
        return
    print("rows      beside    default: CPU s, s    one thread: CPU s, s    ratio: CPU, time")
    for processes in (0, given.busy):
        with busy(processes):
            for rows in given.rows:
                cpu, seconds = measured(rows, given.times, one_thread=False)
                cpu_one, seconds_one = measured(rows, given.times, one_thread=True)
                taken = f"{cpu:13.2f} {seconds:6.2f} {cpu_one:15.2f} {seconds_one:6.2f}"
                ratios = f"{cpu / cpu_one:16.2f} {seconds / seconds_one:6.2f}"
                print(f"{rows:<9,} {processes} busy {taken} {ratios}", flush=True)


if __name__ == "__main__":
    main()
