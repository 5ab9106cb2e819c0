"""Local models that fit on a cluster of the organization's own: Dask or Ray, extras of these names."""

from gal.extras import is_installed as _is_installed
from gal.extras import require as _require

if not (_is_installed("xgboost") and _is_installed("pyarrow")):  # both extras bring them
    _require("dask", "a local model on a cluster")

from gal.models.cluster.light_trees import ClusterLightGBM
from gal.models.cluster.linear import ClusterLinear
from gal.models.cluster.trees import ClusterTrees

__all__ = ["ClusterLightGBM", "ClusterLinear", "ClusterTrees"]
