# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"
"""BatchNorm, MaxPool and ReLU as one layer; on a GPU in training as three kernels instead of nine.

These layers only move numbers: each pass over them costs as much as the convolution between them. The fused
kernels read the convolution's result once for its statistics and once to normalise, pool and cut it; going
back they find the winner of each window again instead of having stored it. Elsewhere (CPU, float32, odd
sizes, no Triton) torch's own layers do the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

try:
    import triton
    import triton.language as tl
except ImportError:  # comes with torch for GPUs
    triton = None

CHUNK = 256
"""Rows (pixels of all images of a batch) whose sums one program takes."""
ROWS, COLUMNS = 32, 64
"""Of the blocks in which programs work."""


class NormPoolReLU(nn.BatchNorm2d):
    """BatchNorm, then the largest of each two by two pixels where ``pool``, then ReLU."""

    def __init__(self, width: int, *, pool: bool) -> None:
        super().__init__(width)
        self.pool = pool

    def forward(self, images: Tensor) -> Tensor:
        if self.training and can_fuse(images, pool=self.pool):
            with torch.autocast("cuda", enabled=False):
                fused: Tensor = _Fused.apply(images, self.weight, self.bias, self)
            return fused
        if self.training and images.numel() == images.shape[1]:  # one number per channel has no spread
            normed = nn.functional.batch_norm(
                images, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        else:
            normed = super().forward(images)
        if self.pool:
            normed = nn.functional.max_pool2d(normed, 2, ceil_mode=True)
        return torch.relu(normed)


def can_fuse(images: Tensor, *, pool: bool) -> bool:
    """Whether the kernels are made for this: bfloat16 images on a GPU, channels last, even sizes."""
    _, channels, height, width = images.shape
    even = not pool or (height % 2 == 0 and width % 2 == 0)
    return (
        triton is not None
        and images.is_cuda
        and images.dtype == torch.bfloat16
        and even
        and channels % COLUMNS == 0
        and images.is_contiguous(memory_format=torch.channels_last)
        and images.numel() < 2**31
    )


class _Fused(torch.autograd.Function):
    """Images (n, channels, height, width) with channels last in memory, in and out."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, layer: NormPoolReLU) -> Tensor:
        n, channels, height, width = images.shape
        rows = n * height * width
        chunks = triton.cdiv(rows, CHUNK)
        blocks = channels // COLUMNS
        partial = torch.empty((2, chunks, channels), device=images.device)
        facts = torch.empty((4, channels), device=images.device)  # mean, 1 / spread, factor, shift
        _sum_squares[(chunks, blocks)](images, partial, rows, channels, chunks, CHUNK, ROWS, COLUMNS)
        _statistics[(blocks,)](
            *(partial, weight, bias, layer.running_mean, layer.running_var, facts),
            *(rows, channels, chunks, layer.eps, layer.momentum, ROWS, COLUMNS),
        )
        shape = (n, channels, height // 2, width // 2) if layer.pool else tuple(images.shape)
        out = torch.empty(shape, dtype=images.dtype, device=images.device, memory_format=torch.channels_last)
        windows = out.numel() // channels
        grid = (triton.cdiv(windows, ROWS), blocks)
        _normalise[grid](images, facts, out, windows, channels, width, layer.pool, ROWS, COLUMNS)
        ctx.save_for_backward(images, facts)
        ctx.pool = layer.pool
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        images, facts = ctx.saved_tensors
        n, channels, height, width = images.shape
        rows = n * height * width
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        windows = gradient.numel() // channels
        chunks, blocks = triton.cdiv(windows, CHUNK), channels // COLUMNS
        partial = torch.empty((2, chunks, channels), device=images.device)
        sums = torch.empty((2, channels), device=images.device)  # of the bias, of the weight
        _sum_gradients[(chunks, blocks)](
            *(images, gradient, facts, partial, windows, channels, width, chunks),
            *(ctx.pool, CHUNK, ROWS, COLUMNS),
        )
        _add_up[(blocks,)](partial, sums, channels, chunks, ROWS, COLUMNS)
        back = torch.empty_like(images)
        _go_back[(triton.cdiv(windows, ROWS), blocks)](
            *(images, gradient, facts, sums, back, windows, rows, channels, width),
            *(ctx.pool, ROWS, COLUMNS),
        )
        return back, sums[1], sums[0], None


if triton is not None:
    # Numbers that only bound loops and masks: one compiled kernel serves all of their values.
    general = triton.jit(do_not_specialize=["rows", "chunks", "windows", "width"])

    @general
    def _sum_squares(
        images,
        partial,
        rows,
        channels,
        chunks,
        CHUNK: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        chunk, block = tl.program_id(0), tl.program_id(1)
        columns = block * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros((COLUMNS,), tl.float32)
        squares = tl.zeros((COLUMNS,), tl.float32)
        for start in range(0, CHUNK, ROWS):
            row = chunk * CHUNK + start + tl.arange(0, ROWS)
            places = row[:, None] * channels + columns[None, :]
            values = tl.load(images + places, mask=(row < rows)[:, None], other=0.0).to(tl.float32)
            total += tl.sum(values, 0)
            squares += tl.sum(values * values, 0)
        tl.store(partial + chunk * channels + columns, total)
        tl.store(partial + (chunks + chunk) * channels + columns, squares)

    @general
    def _statistics(
        partial,
        weight,
        bias,
        running_mean,
        running_var,
        facts,
        rows,
        channels,
        chunks,
        eps,
        momentum,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros((COLUMNS,), tl.float32)
        squares = tl.zeros((COLUMNS,), tl.float32)
        for start in range(0, chunks, ROWS):
            chunk = start + tl.arange(0, ROWS)
            places = chunk[:, None] * channels + columns[None, :]
            known = (chunk < chunks)[:, None]
            total += tl.sum(tl.load(partial + places, mask=known, other=0.0), 0)
            squares += tl.sum(tl.load(partial + chunks * channels + places, mask=known, other=0.0), 0)
        mean = total / rows
        variance = tl.maximum(squares / rows - mean * mean, 0.0)
        inverse = 1.0 / tl.sqrt(variance + eps)
        factor = tl.load(weight + columns) * inverse
        tl.store(facts + columns, mean)
        tl.store(facts + channels + columns, inverse)
        tl.store(facts + 2 * channels + columns, factor)
        tl.store(facts + 3 * channels + columns, tl.load(bias + columns) - mean * factor)
        old_mean = tl.load(running_mean + columns)
        old_var = tl.load(running_var + columns)
        unbiased = variance * (rows / tl.maximum(rows - 1.0, 1.0))
        tl.store(running_mean + columns, old_mean + momentum * (mean - old_mean))
        tl.store(running_var + columns, old_var + momentum * (unbiased - old_var))

    @triton.jit
    def _corner(window, width, POOL: tl.constexpr):
        """The first pixel of a window."""
        if POOL:
            half = width // 2
            return (window // half) * 2 * width + (window % half) * 2
        else:
            return window

    @general
    def _normalise(
        images,
        facts,
        out,
        windows,
        channels,
        width,
        POOL: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        window = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        known = (window < windows)[:, None]
        factor = tl.load(facts + 2 * channels + columns)[None, :]
        shift = tl.load(facts + 3 * channels + columns)[None, :]
        places = _corner(window, width, POOL)[:, None] * channels + columns[None, :]
        best = tl.load(images + places, mask=known, other=0.0).to(tl.float32) * factor + shift
        if POOL:
            for step in tl.static_range(1, 4):
                there = images + places + ((step % 2) + (step // 2) * width) * channels
                best = tl.maximum(best, tl.load(there, mask=known, other=0.0).to(tl.float32) * factor + shift)
        best = tl.maximum(best, 0.0)
        tl.store(out + window[:, None] * channels + columns[None, :], best.to(tl.bfloat16), mask=known)

    @triton.jit
    def _winner(images, places, known, factor, shift, width, channels, POOL: tl.constexpr):
        """Which pixel of each window is the largest (the first of equal ones), its
        raw value, and its normed one.
        """
        raw = tl.load(images + places, mask=known, other=0.0).to(tl.float32)
        best = raw * factor + shift
        which = tl.zeros_like(best)
        if POOL:
            for step in tl.static_range(1, 4):
                there = images + places + ((step % 2) + (step // 2) * width) * channels
                value = tl.load(there, mask=known, other=0.0).to(tl.float32)
                normed = value * factor + shift
                larger = normed > best
                which = tl.where(larger, step * 1.0, which)
                raw = tl.where(larger, value, raw)
                best = tl.where(larger, normed, best)
        return which, raw, best

    @general
    def _sum_gradients(
        images,
        gradient,
        facts,
        partial,
        windows,
        channels,
        width,
        chunks,
        POOL: tl.constexpr,
        CHUNK: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        chunk, block = tl.program_id(0), tl.program_id(1)
        columns = block * COLUMNS + tl.arange(0, COLUMNS)
        mean = tl.load(facts + columns)[None, :]
        inverse = tl.load(facts + channels + columns)[None, :]
        factor = tl.load(facts + 2 * channels + columns)[None, :]
        shift = tl.load(facts + 3 * channels + columns)[None, :]
        of_bias = tl.zeros((COLUMNS,), tl.float32)
        of_weight = tl.zeros((COLUMNS,), tl.float32)
        for start in range(0, CHUNK, ROWS):
            window = chunk * CHUNK + start + tl.arange(0, ROWS)
            known = (window < windows)[:, None]
            places = _corner(window, width, POOL)[:, None] * channels + columns[None, :]
            _, raw, best = _winner(images, places, known, factor, shift, width, channels, POOL)
            there = window[:, None] * channels + columns[None, :]
            pull = tl.load(gradient + there, mask=known, other=0.0).to(tl.float32)
            pull = tl.where(best > 0.0, pull, 0.0)
            of_bias += tl.sum(pull, 0)
            of_weight += tl.sum(pull * (raw - mean) * inverse, 0)
        tl.store(partial + chunk * channels + columns, of_bias)
        tl.store(partial + (chunks + chunk) * channels + columns, of_weight)

    @general
    def _add_up(partial, sums, channels, chunks, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        first = tl.zeros((COLUMNS,), tl.float32)
        second = tl.zeros((COLUMNS,), tl.float32)
        for start in range(0, chunks, ROWS):
            chunk = start + tl.arange(0, ROWS)
            places = chunk[:, None] * channels + columns[None, :]
            known = (chunk < chunks)[:, None]
            first += tl.sum(tl.load(partial + places, mask=known, other=0.0), 0)
            second += tl.sum(tl.load(partial + chunks * channels + places, mask=known, other=0.0), 0)
        tl.store(sums + columns, first)
        tl.store(sums + channels + columns, second)

    @general
    def _go_back(
        images,
        gradient,
        facts,
        sums,
        back,
        windows,
        rows,
        channels,
        width,
        POOL: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        window = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        known = (window < windows)[:, None]
        mean = tl.load(facts + columns)[None, :]
        inverse = tl.load(facts + channels + columns)[None, :]
        factor = tl.load(facts + 2 * channels + columns)[None, :]
        shift = tl.load(facts + 3 * channels + columns)[None, :]
        of_bias = tl.load(sums + columns)[None, :] / rows
        of_weight = tl.load(sums + channels + columns)[None, :] / rows
        places = _corner(window, width, POOL)[:, None] * channels + columns[None, :]
        which, _, best = _winner(images, places, known, factor, shift, width, channels, POOL)
        there = window[:, None] * channels + columns[None, :]
        pull = tl.load(gradient + there, mask=known, other=0.0).to(tl.float32)
        pull = tl.where(best > 0.0, pull, 0.0)
        for step in tl.static_range(0, 4 if POOL else 1):
            place = places + ((step % 2) + (step // 2) * width) * channels
            value = tl.load(images + place, mask=known, other=0.0).to(tl.float32)
            own = tl.where(which == step * 1.0, pull, 0.0)
            result = factor * (own - of_bias - (value - mean) * inverse * of_weight)
            tl.store(back + place, result.to(tl.bfloat16), mask=known)
