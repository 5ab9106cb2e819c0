"""LightGBM's own integration with Dask: whether the same fit gives the same model, and on other workers.

    python benchmarks/lightgbm_dask.py --workers 2 3

Prints a digest of the trees for every fit, each asked for as deterministic as LightGBM can be.
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
    trees = model.booster_.model_to_string().split("parameters:")[0]
    error = np.mean((model.booster_.predict(rows) - target) ** 2) / np.var(target)
    print(
        f"{where:12} trees {hashlib.sha256(trees.encode()).hexdigest()[:12]}  R2 {1 - error:.4f}", flush=True
    )


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

    warnings.filterwarnings("ignore")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(options.rows, 6))
    target = np.sin(rows[:, 0]) + rows[:, 1] * rows[:, 2]
    told("one process", lightgbm.LGBMRegressor(**OPTIONS).fit(rows, target), rows, target)
    part = max(1, options.rows // 6)
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


if __name__ == "__main__":
    main()
