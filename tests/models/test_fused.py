"""BatchNorm, MaxPool and ReLU as one layer: the kernels give what torch's own layers give."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'gal-learn[deep]'")

from gal.models.deep.fused import NormPoolReLU, can_fuse  # noqa: E402
from tensors import assert_close  # noqa: E402

COMPARISON = """
import contextlib, torch
import gal.models.deep.fused as fused

fused.can_fuse = lambda images, pool: True
torch.autocast = lambda *args, **options: contextlib.nullcontext()
torch.manual_seed(0)
for pool, (height, width), n in ((True, (4, 6), 3), (False, (2, 1), 5), (True, (16, 8), 7)):
    images = torch.randn(n, 64, height, width).to(torch.bfloat16).to(memory_format=torch.channels_last)
    layer, norm = fused.NormPoolReLU(64, pool=pool), torch.nn.BatchNorm2d(64)
    with torch.no_grad():
        layer.weight.normal_(), layer.bias.normal_(), norm.load_state_dict(layer.state_dict())
    here, there = images.clone().requires_grad_(), images.float().requires_grad_()
    expected = norm(there)
    expected = torch.relu(torch.nn.functional.max_pool2d(expected, 2) if pool else expected)
    got = layer(here)
    pull = torch.randn(expected.shape).to(torch.bfloat16)
    got.backward(pull)
    expected.backward(pull.float())
    for one, other, limit in (
        (got, expected, 5e-3),
        (here.grad, there.grad, 5e-3),
        (layer.weight.grad, norm.weight.grad, 1e-5),
        (layer.bias.grad, norm.bias.grad, 1e-5),
        (layer.running_mean, norm.running_mean, 1e-5),
        (layer.running_var, norm.running_var, 1e-5),
    ):
        assert (one.float() - other).norm() <= limit * other.norm(), (pool, height, width, limit)
print("alike")
"""


def test_the_kernels_agree_with_torchs_own_layers() -> None:
    """In Triton's interpreter, which needs no GPU."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("no GPU: triton, which comes with torch for one, is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", COMPARISON], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "alike", done.stderr[-2000:]


def test_elsewhere_torch_does_it() -> None:
    images = torch.randn(4, 64, 4, 4)
    assert not can_fuse(images, pool=True)
    layer = NormPoolReLU(64, pool=True)
    expected = torch.relu(torch.nn.functional.max_pool2d(torch.nn.BatchNorm2d(64)(images), 2))
    assert_close(layer(images), expected)


def test_odd_sizes_keep_their_edges() -> None:
    assert NormPoolReLU(8, pool=True)(torch.randn(2, 8, 5, 7)).shape == (2, 8, 3, 4)
