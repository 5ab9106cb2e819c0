"""XGBoost's own vertical mode: columns split among processes, which meet at its federated server."""

from __future__ import annotations

import multiprocessing
import socket
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import GALError
from gal_bench.peers.counting import CountingRelay
from gal_bench.peers.encoding import codes_of, judges
from gal_bench.peers.methods import PATIENCE, RATE, Said
from gal_bench.peers.tables import PeerTable

STEPS = 300
LONGEST = 300.0
"""Seconds that a worker may take."""

Floats = NDArray[np.float64]


def xgboost_vertical(table: PeerTable, seed: int) -> Said:
    """One process per organization and the server; the label holder has the first rank."""
    fit, stop = judges(table.y, seed)
    spawn = multiprocessing.get_context("spawn")
    port = _free_port()
    server = spawn.Process(target=_serve, args=(len(table.organizations), port), daemon=True)
    server.start()
    relay = CountingRelay(port)
    workers, ends = [], []
    for rank, columns in enumerate(table.organizations.values()):
        codes, (here, there) = codes_of(table, columns), spawn.Pipe(duplex=False)
        labels = table.y if rank == 0 else None
        facts = (rank, len(table.organizations), relay.port, table.n_classes, seed)
        parts = (codes.train[fit], codes.train[stop], codes.test)
        kept = None if labels is None else (labels[fit], labels[stop])
        workers.append(spawn.Process(target=_work, args=(facts, parts, kept, there), daemon=True))
        ends.append(here)
    for worker in workers:
        worker.start()
    try:
        if not ends[0].poll(LONGEST):
            raise GALError(f"XGBoost's vertical mode said nothing for {LONGEST:g} s")
        said = ends[0].recv()
        for worker in workers:
            worker.join(10)
    finally:
        relay.close()
        for process in (*workers, server):
            process.terminate()
            process.join(10)
    return said, relay.count


def _serve(n_workers: int, port: int) -> None:
    from xgboost.federated import run_federated_server

    run_federated_server(n_workers=n_workers, port=port)


def _work(
    facts: tuple[int, int, int, int, int],
    parts: tuple[Floats, Floats, Floats],
    labels: tuple[Any, Any] | None,
    end: Connection,
) -> None:
    import xgboost as xgb
    from xgboost.core import DataSplitMode

    rank, size, port, n_classes, seed = facts
    met = {
        "dmlc_communicator": "federated",
        "federated_server_address": f"localhost:{port}",
        "federated_world_size": size,
        "federated_rank": rank,
    }
    two = n_classes == 2
    how: dict[str, Any] = {"eta": RATE, "nthread": 1, "seed": seed, "tree_method": "hist"}
    how |= {"objective": "binary:logistic" if two else "multi:softprob"}
    how |= {"eval_metric": "logloss" if two else "mlogloss"} | ({} if two else {"num_class": n_classes})
    with xgb.collective.CommunicatorContext(**met):
        fit, stop, test = (
            xgb.DMatrix(
                part,
                label=None if labels is None or place == 2 else labels[place],
                data_split_mode=DataSplitMode.COL,
                nthread=1,
            )
            for place, part in enumerate(parts)
        )
        evaluated = [(stop, "stop")]
        model = xgb.train(
            how, fit, STEPS, evals=evaluated, early_stopping_rounds=PATIENCE, verbose_eval=False
        )
        said = np.asarray(
            model.predict(test, iteration_range=(0, model.best_iteration + 1)), dtype=np.float64
        )
    if rank == 0:
        end.send(np.column_stack([1 - said, said]) if two else said)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
