"""Local models, which organizations fit to residuals, and adapters that make any regressor one.

Networks (``TorchModel``, ``SharedBodyModel``) are in ``gal.models.deep``, which needs the extra ``deep``;
``ClusterModel``, which fits on a Dask cluster, is in ``gal.models.cluster``.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from gal.on_demand import on_demand as _on_demand

if _TYPE_CHECKING:
    from gal.models.adapters import PerOutput, StatefulModel, as_local_model, set_seed, supports_sample_weight
    from gal.models.checks import check_local_model, iter_local_model_checks
    from gal.models.linear import LinearModel
    from gal.models.local_losses import with_local_loss
    from gal.models.paper_linear import PaperLinear
    from gal.models.parted import PartedView, View, takes_parts
    from gal.models.sequences import Sequences
    from gal.models.tabular import TabularModel, default_model, takes_missing_values

__all__ = [
    "LinearModel",
    "PaperLinear",
    "PartedView",
    "PerOutput",
    "Sequences",
    "StatefulModel",
    "TabularModel",
    "View",
    "as_local_model",
    "check_local_model",
    "default_model",
    "iter_local_model_checks",
    "set_seed",
    "supports_sample_weight",
    "takes_missing_values",
    "takes_parts",
    "with_local_loss",
]

__getattr__, __dir__ = _on_demand(
    __name__,
    globals(),
    {
        "LinearModel": "linear",
        "StatefulModel": "adapters",
        "PaperLinear": "paper_linear",
        "PartedView": "parted",
        "PerOutput": "adapters",
        "Sequences": "sequences",
        "TabularModel": "tabular",
        "View": "parted",
        "as_local_model": "adapters",
        "check_local_model": "checks",
        "default_model": "tabular",
        "iter_local_model_checks": "checks",
        "set_seed": "adapters",
        "supports_sample_weight": "adapters",
        "takes_missing_values": "tabular",
        "takes_parts": "parted",
        "with_local_loss": "local_losses",
    },
)
