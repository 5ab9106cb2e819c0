"""Neural networks as local models: torch, on a CPU or a GPU. Needs the extra ``deep``."""

from gal.errors import MissingExtraError as _MissingExtraError

try:
    import torch  # noqa: F401
except ImportError as error:
    raise _MissingExtraError("deep", "torch", "deep local models") from error

from gal.models.deep.networks import Inputs, cnn_body, lstm_body, mlp_body, residual_cnn_body, wide_cnn_body
from gal.models.deep.shared_body import SharedBodyModel
from gal.models.deep.torch_model import TorchModel
from gal.models.deep.views import ShiftAndFlip

__all__ = [
    "Inputs",
    "SharedBodyModel",
    "ShiftAndFlip",
    "TorchModel",
    "cnn_body",
    "lstm_body",
    "mlp_body",
    "residual_cnn_body",
    "wide_cnn_body",
]
