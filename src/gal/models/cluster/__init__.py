"""Local models that fit on a cluster of the organization's own: Dask with XGBoost, extra ``dask``."""

from gal.extras import require as _require

_require("dask", "a local model on a cluster")

from gal.models.cluster.trees import ClusterTrees  # noqa: E402

__all__ = ["ClusterTrees"]
