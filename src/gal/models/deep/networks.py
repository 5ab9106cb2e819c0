"""The networks of GAL: the paper's CNN and LSTM, two residual CNNs, one for tables.

A *body* turns inputs into features (n, features); a linear layer on top makes the outputs. ``BODIES`` has
them by name, and ``"auto"`` takes the one for the kind of view.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gal.errors import InvalidOptionError

Kind = Literal["table", "images", "sequences", "codes", "other"]


@dataclass(frozen=True)
class Inputs:
    """The input of a network: the kind of view and the shape of one row."""

    kind: Kind
    shape: tuple[int, ...]
    """(d,), (channels, height, width), (steps, d) of sequences, (steps,) of codes, or any other."""
    n_codes: int = 0
    """Codes are 0 ... n_codes - 1."""


Body = Callable[[Inputs], Any]
"""Makes an ``nn.Module`` that turns inputs of this kind into features (n, features)."""
Network = Callable[[Inputs, int], Any]
"""Makes an ``nn.Module`` with so many outputs. Sequences come as two arguments, values and lengths."""


def _pooling() -> list[nn.Module]:
    """Global average pooling: (n, channels, height, width) to (n, channels)."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def cnn_body(inputs: Inputs, *, widths: tuple[int, ...] = (64, 128, 256, 512)) -> nn.Module:
    """The paper's: four times convolution, BatchNorm, ReLU; MaxPool after the first three."""
    _expect(inputs, "images")
    layers: list[nn.Module] = []
    channels = inputs.shape[0]
    for index, width in enumerate(widths):
        layers += _block(channels, width, pool=index < len(widths) - 1)
        channels = width
    return nn.Sequential(*layers, *_pooling())


class _Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions around which the input also passes unchanged."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(*_block(width, width), *_block(width, width))

    def forward(self, images: Tensor) -> Tensor:
        return images + self.inner(images)


def wide_cnn_body(inputs: Inputs, *, widths: tuple[int, ...] = (64, 128, 256)) -> nn.Module:
    """A deeper one: each block is a convolution, MaxPool where rows are still large, and a residual pair."""
    _expect(inputs, "images")
    layers: list[nn.Module] = _block(inputs.shape[0], widths[0])
    channels = widths[0]
    for width in widths:
        layers += [*_block(channels, width, pool=True), _Residual(width)]
        channels = width
    return nn.Sequential(*layers, *_pooling())


def residual_cnn_body(inputs: Inputs, *, width: int = 128) -> nn.Module:
    """Keeps the full resolution for one more layer than the paper's; a residual pair at each smaller one."""
    _expect(inputs, "images")
    return nn.Sequential(
        *_block(inputs.shape[0], 64),
        *_block(64, width, pool=True),
        _Residual(width),
        *_block(width, width, pool=True),
        _Residual(width),
        *_pooling(),
    )


class NormPoolReLU(nn.BatchNorm2d):  # type: ignore[misc]
    """BatchNorm, then the largest of each two by two pixels where ``pool``, then ReLU."""

    def __init__(self, width: int, *, pool: bool) -> None:
        super().__init__(width)
        self.pool = pool

    def forward(self, images: Tensor) -> Tensor:
        if self.training and images.numel() == images.shape[1]:  # one number per channel has no spread
            normed = nn.functional.batch_norm(
                images, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        else:
            normed = super().forward(images)
        if self.pool:
            normed = nn.functional.max_pool2d(normed, 2, ceil_mode=True)
        return torch.relu(normed)


def _block(channels: int, width: int, *, pool: bool = False) -> list[nn.Module]:
    """Convolution, BatchNorm, ReLU, pooling, in a cheaper order of the same function.

    BatchNorm subtracts a convolution's bias again, so there is none; the largest of four is the same before
    and after ReLU, so that comes last, where it has a quarter of the numbers.
    """
    return [nn.Conv2d(channels, width, 3, padding=1, bias=False), NormPoolReLU(width, pool=pool)]


class _LSTM(nn.Module):  # type: ignore[misc]
    """The state after a row's last step; zeros for a row without steps."""

    def __init__(self, inputs: Inputs, hidden: int, embedding: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(inputs.n_codes, embedding) if inputs.kind == "codes" else None
        self.lstm = nn.LSTM(
            embedding if inputs.kind == "codes" else inputs.shape[1], hidden, batch_first=True
        )

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        if self.embedding is not None:
            known = values.clamp(max=self.embedding.num_embeddings - 1)
            steps = self.embedding(torch.where(known == values, values, 0))
        else:
            steps = torch.nan_to_num(values)
        with torch.autocast(steps.device.type, enabled=False):  # its weights are one block of float32
            states, _ = self.lstm(steps.float())
        last = (lengths - 1).clamp(min=0)
        chosen = states.gather(1, last[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]
        return chosen * (lengths > 0)[:, None]


def lstm_body(inputs: Inputs, *, hidden: int = 128, embedding: int = 32) -> nn.Module:
    """The paper's for time series; whole-number codes (ICD-9) are embedded first."""
    _expect(inputs, "sequences", "codes")
    return _LSTM(inputs, hidden, embedding)


def mlp_body(inputs: Inputs, *, hidden: int = 64) -> nn.Module:
    """A body for tables: a layer that standardizes columns, then two hidden layers."""
    _expect(inputs, "table", "other", "images")
    size = math.prod(inputs.shape)
    return nn.Sequential(
        nn.Flatten(),
        _Standardised(size),
        nn.Linear(size, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
    )


class _Standardised(nn.Module):  # type: ignore[misc]
    """Columns standardised by the moments of training; a batch of one row has none."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(size, affine=False)

    def forward(self, columns: Tensor) -> Tensor:
        if self.training and len(columns) == 1:
            return columns - columns
        return self.norm(columns)


BODIES: dict[str, Body] = {
    "cnn": cnn_body,
    "residual_cnn": residual_cnn_body,
    "wide_cnn": wide_cnn_body,
    "lstm": lstm_body,
    "mlp": mlp_body,
}
STANDARD: dict[Kind, str] = {
    "table": "mlp",
    "images": "residual_cnn",
    "sequences": "lstm",
    "codes": "lstm",
    "other": "mlp",
}
"""The bodies of "auto"."""


class WithHead(nn.Module):  # type: ignore[misc]
    """A body and the linear layer on its features, which is computed in float32."""

    def __init__(self, body: nn.Module, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(n_features, n_outputs)

    def forward(self, *inputs: Tensor) -> Tensor:
        features = self.body(*inputs)
        with torch.autocast(features.device.type, enabled=False):
            return self.head(features.float())


def make_network(network: str | Network, inputs: Inputs, n_outputs: int) -> nn.Module:
    """A network with fresh parameters: of this name, or made by a user's function."""
    if callable(network):
        module = _made(network(inputs, n_outputs), inputs)
        shape = _returned_shape(module, inputs)
        if shape != (2, n_outputs):
            raise InvalidOptionError(
                f"a network must return outputs of shape (rows, {n_outputs}), got {shape} for two rows"
            )
        return module
    body = make_body(network, inputs)
    return _made(WithHead(body, count_features(body, inputs), n_outputs), inputs)


def make_body(body: str | Body, inputs: Inputs) -> nn.Module:
    """A body with fresh parameters: of this name, or made by a user's function."""
    return _made((body if callable(body) else BODIES[_known(body, inputs)])(inputs), inputs)


def _made(module: Any, inputs: Inputs) -> nn.Module:
    """Images have their channels last in memory."""
    if not isinstance(module, nn.Module):
        raise InvalidOptionError(f"a network must be an nn.Module, got {type(module).__name__}")
    return module.to(memory_format=torch.channels_last) if inputs.kind == "images" else module


def _known(name: str, inputs: Inputs) -> str:
    """The name of one of our bodies; "auto" is that for the kind of view."""
    found = STANDARD[inputs.kind] if name == "auto" else name
    if found not in BODIES:
        raise InvalidOptionError(f"unknown network {name!r}: choose auto, {', '.join(BODIES)} or a function")
    return found


def count_features(body: nn.Module, inputs: Inputs) -> int:
    """The number of features of the body."""
    shape = _returned_shape(body, inputs)
    if len(shape) != 2 or shape[0] != 2:
        raise InvalidOptionError(
            f"a body must return features of shape (rows, features), got {shape} for two rows"
        )
    return shape[1]


def _returned_shape(module: nn.Module, inputs: Inputs) -> tuple[int, ...]:
    """The output's shape for two rows of zeros (on the meta device torch would import for seconds)."""
    example: tuple[Tensor, ...] = (torch.zeros(2, *inputs.shape),)
    if inputs.kind in {"sequences", "codes"}:
        values = example[0].long() if inputs.kind == "codes" else example[0]
        example = (values, torch.ones(2, dtype=torch.int64))
    module.eval()
    with torch.no_grad():
        returned = module(*example)
    module.train()
    return tuple(int(length) for length in returned.shape)


def _expect(inputs: Inputs, *kinds: Kind) -> None:
    if inputs.kind not in kinds:
        raise InvalidOptionError(
            f"this network takes {' or '.join(kinds)}, the view is of the kind {inputs.kind!r} with rows of "
            f"shape {inputs.shape}"
        )
