"""Any torch network as a local model, under the same contract as a scikit-learn regressor."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass, fields
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gal.core.local_losses import LocalLoss
from gal.core.local_losses import local_loss as find_local_loss
from gal.errors import InvalidInputError, MissingExtraError, StoredModelError
from gal.models.deep.networks import Body, Inputs, Network, make_network
from gal.models.deep.training import (
    Trainer,
    Training,
    find_device,
    outputs_of,
    residual_objective,
    seeded,
)
from gal.models.deep.views import TensorView, to_device

Floats = NDArray[np.float32]
PREDICTED_AT_ONCE = 8192


@dataclass(eq=False, repr=False)
class DeepModel(Training, MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Training, prediction and storage that all deep models share."""

    on_all_cores: ClassVar[bool] = True

    network: str | Body | Network = "auto"
    _: KW_ONLY
    local_loss: str | LocalLoss = "l2"
    device: str = "auto"
    random_state: Any = None

    def prepare(self, view: Any) -> TensorView:
        """The view on the device that computes; what is there already stays as it is."""
        device = find_device(self.device)
        return to_device(view, device, self.dtype(device))

    def _training(self) -> Training:
        """The options alone: a trainer must not hold the fitted model."""
        return Training(**{one.name: getattr(self, one.name) for one in fields(Training)})

    def _target(self, y: Any, view: TensorView) -> Tensor:
        """The residual (n, K) on the device."""
        target = np.atleast_1d(np.asarray(y, dtype=np.float32))
        if len(view) == 0:
            raise InvalidInputError("no rows to learn from")
        if len(target) != len(view) or target.ndim > 2:
            raise InvalidInputError(f"expected a residual for {len(view)} rows, got shape {target.shape}")
        if not np.isfinite(target).all():
            raise InvalidInputError("the residual has NaN or infinite values")
        return torch.from_numpy(np.ascontiguousarray(target.reshape(len(target), -1))).to(view.device)

    def _trained(
        self,
        start: nn.Module,
        view: TensorView,
        target: Tensor,
        weight: Tensor | None,
        seed: int,
        shares: Tensor | None = None,
        slowness: float = 1.0,
    ) -> nn.Module:
        """The network after training, by a trainer that stays with the view for the next round.

        ``shares`` (K,) is how much each output counts, ``slowness`` the body's share of the learning rate.
        """
        key = (self._recipe(), target.shape[1], weight is None)

        def make() -> tuple[Trainer, Tensor | None]:
            own, counted = copy.deepcopy(start), None if shares is None else torch.zeros_like(shares)
            objective = residual_objective(find_local_loss(self.local_loss), counted)
            trainer = Trainer(
                *(own, view, target.shape[1], objective, self._training()),
                weighted=weight is not None,
                slow=None if shares is None else own.body,
                stochastic=callable(self.network),
            )
            return trainer, counted

        trainer, counted = view.lend(key, make)
        if counted is not None:
            counted.copy_(shares)
        trainer.slowness.fill_(slowness)
        trainer.fit(start.state_dict(), target, weight, seed)
        # The trainer's own network keeps its address for the next round: the result is copied out of it.
        start.load_state_dict(trainer.module.state_dict())
        view.hand_back(key, (trainer, counted))
        return start.eval()

    def _recipe(self) -> Any:
        """Models with the same recipe can use the same trainer, one after another.

        It holds functions themselves: another one may later have the same name and address.
        """
        parameters = self.get_params(deep=False).items()
        return tuple((name, _alike(value)) for name, value in parameters if name != "random_state")

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _outputs(self, module: nn.Module, X: Any) -> NDArray[np.float32]:
        """The network's outputs for these rows, in float32."""
        device = find_device(self.device)
        dtype = self.dtype(device)
        view = to_device(X, device, dtype, self.inputs_)
        if len(view) == 0:
            raise InvalidInputError("no rows to predict")

        return np.asarray(outputs_of(module, view, dtype, PREDICTED_AT_ONCE).numpy())

    def __getstate__(self) -> dict[str, Any]:
        """Networks are kept as safetensors: nothing in them can run."""
        state: dict[str, Any] = dict(super().__getstate__())
        module = state.pop("module_", None)
        if module is not None:
            state["stored_network"] = to_bytes(module)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        stored = state.pop("stored_network", None)
        super().__setstate__(state)
        if stored is not None:
            device = find_device(self.device)
            with seeded(device, 0):
                module = self._module()
            from_bytes(module, stored)
            self.module_ = module.eval()

    def _module(self) -> nn.Module:
        """A network of the right size with fresh parameters, on the default device."""
        raise NotImplementedError


class TorchModel(DeepModel):
    """A network that is trained anew in every round.

    ``network``: "auto" (by the kind of view: residual_cnn, lstm or mlp), a name, or a function that gets
    ``Inputs`` and the number of outputs and returns an ``nn.Module``. Views are tables, images (n, channels,
    height, width), :class:`~gal.models.sequences.Sequences` or any array (n, ...). ``schedule`` is how the
    learning rate moves: cosine, linear or constant. ``device="auto"`` takes the GPU where there is one, and
    there computes in bfloat16 by default (``precision``).

    >>> images = np.random.default_rng(0).normal(size=(40, 1, 8, 8))
    >>> model = TorchModel(epochs=2, device="cpu", random_state=0).fit(images, images.mean(axis=(1, 2, 3)))
    >>> model.predict(images).shape
    (40,)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train a fresh network on ``y`` (n,) or (n, K)."""
        view, seed = self.prepare(X), self._seed()
        target, weight = self._target(y, view), row_weight(sample_weight, view)
        self.inputs_: Inputs = view.inputs
        self.n_outputs_ = int(target.shape[1])
        self._single_output = np.ndim(y) == 1
        with seeded(view.device, seed):
            fresh = self._module()
        self.module_ = self._trained(fresh, view, target, weight, seed)
        return self

    def predict(self, X: Any) -> Floats:
        """The fitted values: (n,) or (n, K), as ``y`` was."""
        check_is_fitted(self, "module_")
        values = self._outputs(self.module_, X)
        return values[:, 0] if self._single_output else values

    def _module(self) -> nn.Module:
        return make_network(self.network, self.inputs_, self.n_outputs_)  # type: ignore[arg-type]


def _alike(value: Any) -> Any:
    """A key that is equal for equal values, also for copies of a partial."""
    if isinstance(value, partial):
        options = tuple((name, _alike(one)) for name, one in sorted(value.keywords.items()))
        return _alike(value.func), tuple(map(_alike, value.args)), options
    return value if callable(value) else repr(value)


def row_weight(sample_weight: Any, view: TensorView) -> Tensor | None:
    """Weights of the rows with a mean of 1, on the device."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float32)
    if (
        weight.shape != (len(view),)
        or not np.isfinite(weight).all()
        or (weight < 0).any()
        or not weight.any()
    ):
        raise InvalidInputError(f"sample_weight must be {len(view)} finite numbers >= 0, not all 0")
    return torch.from_numpy(weight / weight.mean()).to(view.device)


def to_bytes(module: nn.Module) -> bytes:
    """All parameters and running statistics."""
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise MissingExtraError("deep", "safetensors", "storing networks") from error
    # Copies: layers may share their weights, and safetensors wants every tensor for itself.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in module.state_dict().items()}
    return bytes(save(tensors))


def from_bytes(module: nn.Module, stored: bytes) -> None:
    """Put stored numbers into a network of the same make."""
    try:
        from safetensors.torch import load
    except ImportError as error:
        raise MissingExtraError("deep", "safetensors", "reading stored networks") from error
    try:
        tensors = load(stored)
        with torch.no_grad():
            module.load_state_dict(tensors)
    except Exception as error:
        raise StoredModelError(
            f"the stored network does not fit the network that is made for it: {error}"
        ) from error
