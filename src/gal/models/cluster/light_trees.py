"""``ClusterLightGBM``: LightGBM's trees on a Dask cluster, with the same promises as ``ClusterTrees``."""

from __future__ import annotations

from typing import Any, ClassVar

from gal.extras import require
from gal.models.cluster.trees import TreesOnCluster
from gal.models.parted import PartColumn


class ClusterLightGBM(TreesOnCluster):
    """LightGBM's boosted trees, fitted by the workers of a Dask cluster or in this process.

    Options are LightGBM's; ``scheduler``, ``shards``, ``attempts`` and ``patience`` are those of
    ``ClusterTrees``, and so is what they promise: the model depends on the shards alone, bit for bit.
    """

    whole: ClassVar[dict[str, int]] = {**TreesOnCluster.whole, "num_leaves": 2, "min_child_samples": 0}

    def __init__(
        self,
        scheduler: str | None = None,
        *,
        n_estimators: int = 20,
        num_leaves: int = 31,
        learning_rate: float = 0.3,
        min_child_samples: int = 20,
        reg_lambda: float = 1.0,
        subsample: float = 1.0,
        max_bin: int = 255,
        shards: int = 8,
        attempts: int = 3,
        patience: float = 600.0,
        random_state: int | None = None,
    ) -> None:
        require("lightgbm", "LightGBM's trees")
        self.scheduler = scheduler
        self.n_estimators, self.num_leaves, self.learning_rate = n_estimators, num_leaves, learning_rate
        self.min_child_samples, self.reg_lambda = min_child_samples, reg_lambda
        self.subsample, self.max_bin, self.shards = subsample, max_bin, shards
        self.attempts, self.patience = attempts, patience
        self.random_state = random_state

    def _plan(self, columns: tuple[PartColumn, ...]) -> Any:
        from gal.models.cluster.light_members import LightPlan

        parameters = {
            "objective": "regression",
            "boost_from_average": False,
            "num_leaves": self.num_leaves,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.min_child_samples,
            "lambda_l2": self.reg_lambda,
            "bagging_fraction": self.subsample,
            "bagging_freq": 0 if self.subsample == 1 else 1,
            "max_bin": self.max_bin,
            "feature_pre_filter": False,
            "pre_partition": True,
            "seed": 0 if self.random_state is None else int(self.random_state) % (1 << 31),
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        categories = tuple(
            place
            for place, one in enumerate(columns)
            if one.categories is not None and len(one.categories) <= self.max_bin
        )
        return LightPlan(parameters, self.n_estimators, categories)

    def _said_of_part(self) -> Any:
        from gal.models.cluster.light_members import light_said_of_part

        return light_said_of_part

    def _said_of(self, raw: bytes, rows: Any) -> Any:
        from gal.models.cluster.light_members import light_said_of

        return light_said_of(raw, rows)
