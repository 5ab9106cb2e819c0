"""LightGBM on Dask: whether the same fit gives the same model, and on other workers.

    python benchmarks/lightgbm_dask.py --workers 2 3 --fits 3

Prints a digest of the trees for every fit: by LightGBM's own integration, asked to be as deterministic as it
can, and by ``ClusterLightGBM``.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import warnings
from typing import Any

import numpy as np

OPTIONS: dict[str, Any] = {"n_estimators": 10, "deterministic": True, "force_row_wise": True, "seed": 1}
OPTIONS |= {"n_jobs": 1, "verbosity": -1}


def told(where: str, model: Any, rows: Any, target: Any) -> None:
    """One line: where it was fitted, which trees they are, how good they are."""
    booster = model.booster_
    trees = (
        booster.tobytes()
        if isinstance(booster, np.ndarray)
        else booster.model_to_string().split("parameters:")[0].encode()
    )
    predicted = model.predict(rows) if isinstance(booster, np.ndarray) else booster.predict(rows)
    error = np.mean((predicted - target) ** 2) / np.var(target)
    print(f"{where:18} trees {hashlib.sha256(trees).hexdigest()[:12]}  R2 {1 - error:.4f}", flush=True)


def main() -> None:
    """Fit in one process, then several times on clusters of processes on this machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--fits", type=int, default=2)
    options = parser.parse_args()
    import dask.array as da
    import lightgbm
    from distributed import Client, LocalCluster

    from gal.models.cluster import ClusterLightGBM
    from gal.models.parted import PartColumn, in_parts

    warnings.filterwarnings("ignore")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(options.rows, 6))
    target = np.sin(rows[:, 0]) + rows[:, 1] * rows[:, 2]
    told("one process", lightgbm.LGBMRegressor(**OPTIONS).fit(rows, target), rows, target)
    part = max(1, options.rows // 6)
    view = in_parts(rows.astype(np.float32), [PartColumn(str(j)) for j in range(6)], part)
    ours = ClusterLightGBM(n_estimators=10, shards=6, random_state=1)
    told("one process, ours", ours.fit(view, target), rows, target)
    parts = da.from_array(rows, chunks=(part, 6)), da.from_array(target, chunks=part)
    loopback: Any = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    for n_workers in options.workers:
        with (
            LocalCluster(n_workers=n_workers, threads_per_worker=1, **loopback) as cluster,
            Client(cluster) as client,
        ):
            for _ in range(options.fits):
                model = lightgbm.DaskLGBMRegressor(client=client, tree_learner="data", **OPTIONS)
                told(f"{n_workers} workers", model.fit(*parts), rows, target)
            for _ in range(options.fits):
                ours = ClusterLightGBM(cluster.scheduler_address, n_estimators=10, shards=6, random_state=1)
                told(f"{n_workers} workers, ours", ours.fit(view, target), rows, target)


if __name__ == "__main__":
    main()
