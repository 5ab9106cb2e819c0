"""Local models: what an organization fits to the residual, and how any regressor becomes one."""

from gal.models.adapters import PerOutput, as_local_model, set_seed, supports_sample_weight
from gal.models.checks import check_local_model, iter_local_model_checks
from gal.models.linear import LinearModel
from gal.models.local_losses import ReweightedRegressor, with_local_loss
from gal.models.paper_linear import PaperLinear

__all__ = [
    "LinearModel",
    "PaperLinear",
    "PerOutput",
    "ReweightedRegressor",
    "as_local_model",
    "check_local_model",
    "iter_local_model_checks",
    "set_seed",
    "supports_sample_weight",
    "with_local_loss",
]
