"""Fits on a Dask cluster against one process: seconds of each round, and the memory of the node that asks.

    python benchmarks/cluster.py --rows 2000000 --columns 20 --workers 2

A scheduler and the workers are started on this machine, so the cores are the same ones; what is measured is
what the node has to hold. "One process" is the same model on the same parts, without a cluster.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gal.models.parted import PART_ROWS, PartColumn, open_parts, write_parts

WAYS = ("one process", "cluster")


def write_views(folder: Path, n_rows: int, n_columns: int) -> None:
    """Rows in parts, and a residual; never all of them in memory."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    residual = np.lib.format.open_memmap(folder / "residual.npy", "w+", np.float32, (n_rows, 1))

    def tables() -> Any:
        for start in range(0, n_rows, PART_ROWS):
            rows = rng.normal(size=(min(PART_ROWS, n_rows - start), n_columns))
            signal_ = np.sin(rows[:, 0]) + rows[:, 1] * rows[:, 2] + 0.5 * rng.normal(size=len(rows))
            residual[start : start + len(rows), 0] = signal_
            yield pa.table({str(j): rows[:, j] for j in range(n_columns)})

    write_parts(folder / "parts", [PartColumn(str(j)) for j in range(n_columns)], tables())
    residual.flush()


def measure(way: str, folder: Path, scheduler: str, rounds: int) -> None:
    """What a node does in some rounds: fit the residual, and say what it is fitted to; printed as JSON."""
    from gal.models.cluster import ClusterModel

    model = ClusterModel(scheduler if way == "cluster" else None)
    view = model.prepare(open_parts(folder / "parts"))
    residual, seconds, digests = np.load(folder / "residual.npy"), [], set()
    for _ in range(rounds):
        started = time.perf_counter()
        said = model.fit(view, residual).predict(view)
        seconds.append(time.perf_counter() - started)
        digests.add(hashlib.sha256(said.tobytes()).hexdigest()[:12])
    r2 = 1 - np.mean((said - residual) ** 2) / np.var(residual)
    facts = {"seconds": seconds, "digests": sorted(digests), "r2": float(r2), **memory()}
    print(json.dumps(facts))


def memory() -> dict[str, float]:
    """MB of this process: at most, and at the end without pages of files."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    anonymous = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
    return {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "anonymous": anonymous / 1024}


def started(*words: str) -> subprocess.Popen[bytes]:
    """A process of the cluster, with a group of its own: a worker has a nanny."""
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-m", "dask", *words], start_new_session=True, **quiet)


def main() -> None:
    """Make the data, start the cluster, measure both ways, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=3, metavar=("WAY", "FOLDER", "SCHEDULER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], Path(options.measure[1]), options.measure[2], options.rounds)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_views(folder, options.rows, options.columns)
        place = ("--scheduler-file", str(folder / "scheduler.json"), "--host", "127.0.0.1", "--no-dashboard")
        cluster = [started("scheduler", *place, "--port", "0")]
        cluster += [started("worker", *place, "--nthreads", "1") for _ in range(options.workers)]
        try:
            while not (folder / "scheduler.json").exists():
                time.sleep(0.1)
            address = json.loads((folder / "scheduler.json").read_text(encoding="utf-8"))["address"]
            print(f"{options.rows:,} rows x {options.columns} columns, {options.workers} workers")
            print(f"{'':12} {'peak MB':>8} {'own MB':>8} {'R2':>7}  seconds of rounds, digests of models")
            for way in WAYS:
                words = [
                    sys.executable,
                    __file__,
                    "--rounds",
                    str(options.rounds),
                    "--measure",
                    way,
                    name,
                    address,
                ]
                done = subprocess.run(words, capture_output=True, check=True, text=True)
                facts = json.loads(done.stdout.splitlines()[-1])
                seconds = " ".join(f"{one:.1f}" for one in facts["seconds"])
                print(
                    f"{way:12} {facts['peak']:8.0f} {facts['anonymous']:8.0f} {facts['r2']:7.4f}  {seconds}  "
                    f"{' '.join(facts['digests'])}"
                )
        finally:
            for one in cluster:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()


if __name__ == "__main__":
    main()
