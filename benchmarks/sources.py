"""What it costs to learn and to predict from data where it lies: CPU time and memory, by kind of source.

``python benchmarks/sources.py`` starts a PostgreSQL of its own (Debian: apt-get install postgresql), and
writes a folder of Parquet files. Each is read in a process of its own: a label holder asks for four rows in
five, then for a single one. Memory is that of the process itself (RssAnon); pages of the view's file are not
counted, the operating system takes them back whenever it likes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

PART = 250_000
"""Rows that are made, and written, at once."""


def parts(rows: int, columns: int) -> Iterator[Any]:
    """The made-up table, part by part."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    for start in range(0, rows, PART):
        ids = np.arange(start, min(start + PART, rows))
        yield pa.table({"id": ids} | {f"x{j}": rng.normal(size=len(ids)) for j in range(columns)})


def write_folder(place: Path, rows: int, columns: int) -> None:
    """The table as a folder of Parquet files."""
    import pyarrow.parquet as pq

    (place / "lake").mkdir()
    for number, part in enumerate(parts(rows, columns)):
        pq.write_table(part, place / "lake" / f"part-{number:05d}.parquet")


def write_database(server: Any, rows: int, columns: int) -> None:
    """The table in PostgreSQL, with an index of its ids."""
    with server.connect() as connection, connection.cursor() as cursor:
        for number, part in enumerate(parts(rows, columns)):
            cursor.adbc_ingest("rows", part, mode="append" if number else "create")
        cursor.execute("ALTER TABLE rows ADD PRIMARY KEY (id)")
        cursor.execute("ANALYZE rows")


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """The most anonymous memory of this process meanwhile, in MB; left in a list when it is over."""
    found, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            now = next((float(line.split()[1]) / 1000 for line in lines if line.startswith("RssAnon")), 0.0)
            found[0] = max(found[0], now)

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        over.set()
        watching.join()


def begin_message(rows: int) -> bytes:
    """A label holder's question for four rows in five, in an order of her own."""
    from gal.alignment import RowIds
    from gal.node.agreement.request_arrays import token_arrays
    from gal.protocol import Message, encode

    ids = np.random.default_rng(1).permutation(rows)[: max(rows * 4 // 5, 1)]
    fields = {"kind": "integer", "method": "plain", "secret": "", "terms": "sha256:" + "0" * 64}
    fields |= {"organization": "lab", "n_outputs": 1, "rounds": 1, "seed": 0}  # type: ignore[dict-item]
    arrays = token_arrays(RowIds("integer", ids), "plain", None) | {"fit": np.ones(len(ids), dtype=np.uint8)}
    return bytes(encode(Message("begin", "a" * 32, 1, "begin", fields, arrays)))


def measure(home: Path, rows: int) -> dict[str, float]:
    """In a process of its own: what a beginning and predictions of one row cost."""
    from gal.alignment import RowIds
    from gal.node.config.configuration import read_configuration
    from gal.node.source.data import read_rows
    from gal.node.work.local_work import LocalWork

    work, message = LocalWork(read_configuration(home)), begin_message(rows)
    (home / "version").mkdir()
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    with peak_memory() as most:
        aligned = work.begin(message, home / "version", "clinic", own=True)
    after, seconds = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - started
    assert aligned.n_rows == max(rows * 4 // 5, 1)
    one = RowIds("integer", np.array([rows // 2]))
    started = time.perf_counter()
    for _ in range(10):
        assert len(read_rows(work.configuration, one)) == 1
    return {
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "seconds": seconds,
        "memory": most[0],
        "one_row": (time.perf_counter() - started) / 10,
    }


def in_own_process(home: Path, rows: int) -> dict[str, float]:
    """`measure` in a process with a worker's settings."""
    command = [sys.executable, __file__, "--measure", str(home), "--rows", str(rows)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"},
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def configure(home: Path, source: str, more: str = "") -> Path:
    """A node whose rows are there."""
    home.mkdir()
    (home / "node.toml").write_text(f'name = "lab"\n[data]\nsource = "{source}"\nrow_id = "id"\n{more}')
    return home


def main() -> None:
    """Print a line for each kind of source."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--rows", type=int, default=5_000_000)
    reading.add_argument("--columns", type=int, default=20)
    reading.add_argument("--kinds", nargs="+", default=["folder", "postgresql"])
    reading.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = reading.parse_args()
    if given.measure is not None:
        print(json.dumps(measure(given.measure, given.rows)))
        return
    print(f"{given.rows:,} rows x {given.columns} columns, four rows in five asked for")
    place = Path(tempfile.mkdtemp(prefix="gal-sources-"))
    try:
        for kind in given.kinds:
            found = {"folder": _folder, "postgresql": _postgresql}[kind](place, given.rows, given.columns)
            print(
                f"{kind:12s} beginning {found['cpu']:6.1f} CPU-s {found['seconds']:6.1f} s "
                f"{found['memory']:6.0f} MB, one row {1000 * found['one_row']:6.0f} ms",
                flush=True,
            )
    finally:
        shutil.rmtree(place)


def _folder(place: Path, rows: int, columns: int) -> dict[str, float]:
    write_folder(place, rows, columns)
    return in_own_process(configure(place / "of-folder", str(place / "lake")), rows)


def _postgresql(place: Path, rows: int, columns: int) -> dict[str, float]:
    from ports import free_port
    from postgresql import PASSWORD, PostgreSQL

    with PostgreSQL(free_port()) as server:
        write_database(server, rows, columns)
        home = configure(place / "of-postgresql", server.uri, 'table = "rows"\npassword_file = "password"\n')
        (home / "password").write_text(PASSWORD)
        return in_own_process(home, rows)


if __name__ == "__main__":
    main()
