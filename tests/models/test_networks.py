"""The networks that come with GAL: the paper's, layer by layer, and what they make of odd rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

import torch
from torch import nn

from gal.models.deep import Inputs, cnn_body, lstm_body, mlp_body
from gal.models.deep.networks import count_features, make_network
from tensors import assert_close

IMAGES = Inputs("images", (3, 8, 8))
WIDTHS = (64, 128, 256, 512)


@pytest.fixture(autouse=True)
def seeded_torch() -> Any:
    """Parameters drawn in these tests are the same in every run; what was before comes back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def layers(module: Any, kind: Any) -> list[Any]:
    return [one for one in module.modules() if isinstance(one, kind)]


def numbers(module: Any) -> int:
    return sum(one.numel() for one in module.parameters())


# --- the paper's CNN


def test_the_cnn_has_the_layers_of_the_paper() -> None:
    body = cnn_body(IMAGES)
    convolutions, norms = layers(body, nn.Conv2d), layers(body, nn.BatchNorm2d)
    assert [tuple(one.weight.shape) for one in convolutions] == [
        (64, 3, 3, 3),
        (128, 64, 3, 3),
        (256, 128, 3, 3),
        (512, 256, 3, 3),
    ]
    assert all(one.padding == (1, 1) and one.stride == (1, 1) for one in convolutions)
    assert [one.num_features for one in norms] == list(WIDTHS)
    assert numbers(body) == 9 * (3 * 64 + 64 * 128 + 128 * 256 + 256 * 512) + 2 * sum(WIDTHS) == 1_551_936
    assert count_features(body, IMAGES) == 512
    assert numbers(make_network("cnn", IMAGES, 10)) == 1_551_936 + 512 * 10 + 10


def plain_cnn(channels: int, widths: tuple[int, ...], *, bias: bool) -> Any:
    """Convolution, BatchNorm, ReLU, MaxPool one after another, as the paper writes them."""
    parts: list[Any] = []
    for index, width in enumerate(widths):
        parts += [nn.Conv2d(channels, width, 3, padding=1, bias=bias), nn.BatchNorm2d(width), nn.ReLU()]
        if index < len(widths) - 1:
            parts.append(nn.MaxPool2d(2, ceil_mode=True))
        channels = width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def with_the_same_numbers(body: Any, plain: Any) -> None:
    """Weights, and factors of BatchNorm of both signs, so that the order of norm and pooling could matter."""
    with torch.no_grad():
        for kind in (nn.Conv2d, nn.BatchNorm2d):
            for one, other in zip(layers(body, kind), layers(plain, kind), strict=True):
                if kind is nn.BatchNorm2d:
                    one.weight.normal_()
                    one.bias.normal_()
                    other.bias.copy_(one.bias)
                elif other.bias is not None:
                    other.bias.normal_()
                other.weight.copy_(one.weight)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [(8, 8), (7, 5), (1, 1)])
def test_the_cheaper_order_is_the_same_function(bias: bool, size: tuple[int, int]) -> None:
    widths = (4, 6, 8, 10)
    body, plain = cnn_body(Inputs("images", (2, *size)), widths=widths), plain_cnn(2, widths, bias=bias)
    with_the_same_numbers(body.double(), plain.double())
    images = torch.randn(16, 2, *size, dtype=torch.float64)
    one, other = images.clone().requires_grad_(), images.clone().requires_grad_()
    features, expected = body.train()(one), plain.train()(other)
    assert_close(features, expected)
    pull = torch.randn_like(expected)
    (features * pull).sum().backward()
    (expected * pull).sum().backward()
    assert_close(one.grad, other.grad)
    for kind in (nn.Conv2d, nn.BatchNorm2d):
        for mine, its in zip(layers(body, kind), layers(plain, kind), strict=True):
            assert_close(mine.weight.grad, its.weight.grad)
    if not bias:  # running means differ by what a bias adds, which is subtracted again only in the long run
        assert_close(body.eval()(images), plain.eval()(images))


# --- the LSTM


def seen(body: Any, values: Any, lengths: Any) -> Any:
    with torch.no_grad():
        return body(torch.as_tensor(values), torch.as_tensor(lengths)).numpy()


def test_the_lstm_says_its_state_after_the_last_step() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 5, 3)).astype(np.float32)
    lengths = np.array([5, 1, 0, 3, 2, 4])
    body = lstm_body(Inputs("sequences", (5, 3)), hidden=4)
    outputs = seen(body, values, lengths)
    for row, length in enumerate(lengths):
        if length == 0:
            np.testing.assert_array_equal(outputs[row], 0)
            continue
        with torch.no_grad():
            _, (state, _) = body.lstm(torch.as_tensor(values[row : row + 1, :length]))
        np.testing.assert_allclose(outputs[row], state[0, 0].numpy(), rtol=1e-5, atol=1e-6)


# --- tables


def test_the_table_network_standardises_columns_itself() -> None:
    body = mlp_body(Inputs("table", (2,)), hidden=4)
    rng = np.random.default_rng(0)
    columns = torch.as_tensor(rng.normal(size=(64, 2)), dtype=torch.float32)
    shifted = columns * torch.tensor([1e4, 1e-1]) + torch.tensor([1e5, -3.0])
    assert_close(body.train()(columns), body.train()(shifted), rtol=1e-2, atol=1e-2)
