"""Fusion of networks that are trained together on the labels, as an upper baseline.

*Intermediate* fusion takes the mean of the features of one body per organization into one shared output
layer; *late* fusion takes the mean of the outputs of one network per organization. Both are trained end to
end, as the authors do it, and need the extra ``deep``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gal.models.deep.networks import Body, Inputs, WithHead, count_features, make_body
from gal.models.deep.training import Objective, Trainer, Training, find_device, outputs_of, seeded
from gal.models.deep.views import ManyViews, to_device

Floats = NDArray[np.float64]
Fusion = Literal["features", "outputs"]


class FusedNetworks:
    """One network per organization, fused, with the labels at hand.

    ``fuse="features"`` is intermediate fusion, ``"outputs"`` late fusion. ``loss`` of numbers, which are
    standardised: "squared_error" or "absolute_error"; classes have the log loss.

    >>> rng = np.random.default_rng(0)
    >>> views = {"bank": rng.normal(size=(60, 2)), "shop": rng.normal(size=(60, 3))}
    >>> y = (views["bank"].sum(axis=1) + views["shop"].sum(axis=1) > 0).astype(int)
    >>> training = Training(epochs=20, batch_size=20)
    >>> model = FusedNetworks("features", classes=True, training=training, device="cpu")
    >>> model.fit(views, y).predict(views).shape
    (60, 2)
    """

    def __init__(
        self,
        fuse: Fusion,
        *,
        classes: bool,
        loss: str = "squared_error",
        network: str | Body = "auto",
        training: Training | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.fuse = fuse
        self.classes = classes
        self.loss = loss
        self.network = network
        self.training = Training() if training is None else training
        self.device = device
        self.random_state = random_state

    def fit(self, views: Mapping[str, Any], y: Any) -> Self:
        """Learn class codes 0, 1, ... or numbers, shape (n,), from all views."""
        self.organizations_ = tuple(views)
        self._device = find_device(self.device)
        many = self._on_device(views, (None,) * len(views))
        labels = np.asarray(y)
        self.inputs_ = tuple(one.inputs for one in many.views)
        self.n_outputs_ = int(labels.max()) + 1 if self.classes else 1
        self.mean_ = 0.0 if self.classes else float(labels.mean())
        self.spread_ = 1.0 if self.classes else float(labels.std()) or 1.0
        target = torch.as_tensor((labels - self.mean_) / self.spread_, dtype=torch.float32).to(self._device)

        with seeded(self._device, self.random_state):
            bodies = [make_body(self.network, one) for one in self.inputs_]
            module = _Fused(bodies, self.inputs_, self.fuse, self.n_outputs_)
        start = {name: value.clone() for name, value in module.state_dict().items()}
        Trainer(module, many, 0, self._objective(), self.training).fit(start, target, None, self.random_state)
        self.module_ = module.eval()
        return self

    def predict(self, views: Mapping[str, Any]) -> Floats:
        """Class probabilities (n, C), or numbers (n,)."""
        many = self._on_device({name: views[name] for name in self.organizations_}, self.inputs_)
        dtype = self.training.dtype(self._device)
        output = outputs_of(self.module_, many, dtype, 4096).double()
        if self.classes:
            return np.asarray(output.softmax(dim=1).numpy())
        return np.asarray(output[:, 0].numpy() * self.spread_ + self.mean_)

    def _on_device(self, views: Mapping[str, Any], known: Sequence[Inputs | None]) -> ManyViews:
        dtype, pairs = self.training.dtype(self._device), zip(views.values(), known, strict=True)
        return ManyViews([to_device(view, self._device, dtype, one) for view, one in pairs])

    def _objective(self) -> Objective:
        if self.classes:
            return lambda output, target, _: nn.functional.cross_entropy(output, target.long())
        distance = nn.functional.l1_loss if self.loss == "absolute_error" else nn.functional.mse_loss
        return lambda output, target, _: distance(output[:, 0], target)


class _Fused(nn.Module):  # type: ignore[misc]
    """Bodies side by side; inputs come one after another, two for sequences."""

    def __init__(
        self, bodies: list[nn.Module], inputs: tuple[Inputs, ...], fuse: Fusion, n_outputs: int
    ) -> None:
        super().__init__()
        self.counts = [2 if one.kind in {"sequences", "codes"} else 1 for one in inputs]
        sizes = [count_features(body, one) for body, one in zip(bodies, inputs, strict=True)]
        self.head: nn.Module | None = None
        if fuse == "outputs":
            bodies = [WithHead(body, size, n_outputs) for body, size in zip(bodies, sizes, strict=True)]
        else:
            # Bodies with fewer features than others get a layer up to the largest, so that a mean exists.
            largest = max(sizes)
            bodies = [
                body if size == largest else WithHead(body, size, largest)
                for body, size in zip(bodies, sizes, strict=True)
            ]
            self.head = nn.Linear(largest, n_outputs)
        self.bodies = nn.ModuleList(bodies)

    def forward(self, *inputs: Tensor) -> Tensor:
        parts, place = [], 0
        for body, count in zip(self.bodies, self.counts, strict=True):
            parts.append(body(*inputs[place : place + count]))
            place += count
        fused = torch.stack([part.float() for part in parts]).mean(dim=0)
        if self.head is None:
            return fused
        with torch.autocast(fused.device.type, enabled=False):
            return self.head(fused)
