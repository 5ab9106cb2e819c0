"""FedTree's vertical mode: boosted trees over divided columns, all parties in one process.

In a process of its own: its library writes to standard output, and ends where something is wrong.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from gal.errors import GALError
from gal.evaluate.metrics import log_loss
from gal_bench.peers.encoding import codes_of, judges
from gal_bench.peers.methods import RATE, Said
from gal_bench.peers.tables import PeerTable

TREES = (20, 40, 60, 80, 100)
"""It does not stop early: rows to stop on say which of these numbers of trees predict."""
LONGEST = 900.0
"""Seconds that learning may take."""

Floats = NDArray[np.float64]


def fedtree_vertical(table: PeerTable, seed: int) -> Said:
    """Nothing is encrypted; what would move between organizations is not counted, since nothing does."""
    if table.n_classes > 2:
        raise GALError("FedTree's probabilities of several classes are not compared here")
    fit, stop = judges(table.y, seed)
    codes = codes_of(table, [name for columns in table.organizations.values() for name in columns])
    low = np.nanmin(codes.train, axis=0) - 1  # zeros are gaps to it
    rows, test = (np.nan_to_num(part - low, nan=0.0) for part in (codes.train, codes.test))
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    facts = (len(table.organizations), seed)
    parts = (rows[fit], table.y[fit], rows[stop], table.y[stop], test)
    worker = spawn.Process(target=_work, args=(facts, parts, there), daemon=True)
    worker.start()
    there.close()
    try:
        if not here.poll(LONGEST):
            raise GALError(f"FedTree said nothing for {LONGEST:g} s")
        said = here.recv()
        worker.join(10)
    finally:
        worker.terminate()
        worker.join(10)
    if isinstance(said, str):
        raise GALError(said)
    return said, 0


def _work(
    facts: tuple[int, int],
    parts: tuple[Floats, NDArray[np.int64], Floats, NDArray[np.int64], Floats],
    end: Connection,
) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        from fedtree import FLClassifier
    except (ImportError, OSError) as error:  # the second where a library of the system is missing
        end.send(f"FedTree cannot be loaded ({error}): pip install fedtree, apt-get install libntl44")
        return
    (n_parties, seed), (rows, y, judging, y_judging, test) = facts, parts
    divided = {"mode": "vertical", "partition_mode": "vertical", "n_parties": n_parties}
    model = FLClassifier(
        n_trees=max(TREES),
        learning_rate=RATE,
        gamma=0,
        verbose=0,
        seed=seed,
        objective="binary:logistic",
        **divided,
    )
    model.fit(rows, y)

    def said(part: Floats, trees: int) -> Floats:
        model.n_trees = trees
        return np.asarray(FLClassifier.predict_proba(model, part))  # which it replaces by what it found

    best = min(TREES, key=lambda trees: log_loss(y_judging, said(judging, trees)))
    end.send(said(test, best))
