"""How fast networks of several organizations train side by side on one GPU, and what bounds them.

    PYTHONPATH=src python benchmarks/deep_speed.py            # on a machine with a GPU

Eight organizations with the paper's CNN on random patches of CIFAR-10's size (50,000 x 3 x 16 x 8), batches of
512, ten outputs. Prints the milliseconds of a step one by one and side by side, how many kernels a step has
and how long they take, and which share of the GPU's own speed (a large matrix product, a large copy, both
measured here) the arithmetic and the memory traffic of a step come to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from gal.models.deep import TorchModel
from gal.models.deep.side_by_side import SideBySide
from gal.models.deep.training import Trainer, on_stream, record

ROWS, BATCH, OUTPUTS, ORGANIZATIONS = 50_000, 512, 10, 8
SHAPE = (3, 16, 8)
WIDTHS = (64, 128, 256, 512)


def main() -> None:
    torch.backends.cudnn.benchmark = True
    tera_flops, tera_bytes = ceilings()
    trainers = made()
    together = step_seconds(trainers)
    alone = step_seconds(trainers[:1])
    kernels, busy = kernels_of(trainers[:1])
    flops, moved = ORGANIZATIONS * step_flops(), ORGANIZATIONS * step_bytes()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"measured ceilings: {tera_flops:.0f} TFLOP/s in bfloat16, {tera_bytes:.2f} TB/s")
    print(
        f"one organization, one step: {1e3 * alone:.3f} ms; {kernels:.0f} kernels that take {1e3 * busy:.3f} ms"
    )
    print(
        f"{ORGANIZATIONS} side by side, one step: {1e3 * together:.3f} ms, {alone * ORGANIZATIONS / together:.1f} x"
    )
    print(f"  = {1e6 * together / (ORGANIZATIONS * kernels):.2f} us per kernel")
    print(f"100 epochs: {100 * together * -(-ROWS // BATCH):.1f} s")
    print(
        f"arithmetic: {flops / 1e9:.0f} GFLOP a step, {flops / together / 1e12 / tera_flops:.1%} of the ceiling"
    )
    print(
        f"memory: at least {moved / 1e9:.2f} GB a step, {moved / together / 1e12 / tera_bytes:.1%} of the ceiling"
    )


def ceilings() -> tuple[float, float]:
    """TFLOP/s of a large product in bfloat16, and TB/s of a large copy (read and written)."""
    one = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    product = seconds(lambda: one @ one, 20)
    large = torch.randn(2**29, device="cuda")
    target = torch.empty_like(large)
    copy = seconds(lambda: target.copy_(large), 20)
    return 2 * 8192**3 / product / 1e12, 8 * 2**29 / copy / 1e12


def made() -> list[Trainer]:
    """Trainers of all organizations after one short fit."""
    rng = np.random.default_rng(0)
    residual = rng.normal(size=(ROWS, OUTPUTS)).astype(np.float32)
    models = [TorchModel(epochs=1, batch_size=BATCH, random_state=seed) for seed in range(ORGANIZATIONS)]
    views = [model.prepare(rng.normal(size=(ROWS, *SHAPE)).astype(np.float32)) for model in models]
    with SideBySide() as together:
        together([partial(model.fit, view, residual) for model, view in zip(models, views, strict=True)])
    return sorted((trainer for view in views for kept in view.idle() for trainer in kept), key=id)


def step_seconds(trainers: list[Trainer]) -> float:
    """Of one recorded step of these trainers, side by side."""
    with on_stream(trainers[0].stream):
        graph = record(trainers)

        def start_again() -> None:
            for one in trainers:
                one.done.zero_()

        start_again()
        first = seconds(graph.replay, 20)
        start_again()
        return min(first, seconds(graph.replay, 60))


def kernels_of(trainers: list[Trainer]) -> tuple[float, float]:
    """How many kernels a step has, and the seconds that they take one after another."""
    with on_stream(trainers[0].stream):
        graph = record(trainers)
        trainers[0].done.zero_()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(10):
                graph.replay()
            torch.cuda.synchronize()
    rows = [one for one in found.key_averages() if one.self_device_time_total > 0]
    return sum(one.count for one in rows) / 10, sum(one.self_device_time_total for one in rows) / 10 / 1e6


def seconds(work: Callable[[], object], times: int) -> float:
    """Of one call, warmed up."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / times


def step_flops() -> float:
    """Multiplications and additions of one organization's step: forward, and twice as many backward."""
    channels, pixels, total = SHAPE[0], SHAPE[1] * SHAPE[2], 0
    for width in WIDTHS:
        total += 2 * 9 * channels * width * pixels
        channels, pixels = width, pixels // 4
    return 3.0 * BATCH * total


def step_bytes() -> float:
    """The fewest bytes of one organization's step: every convolution's result passes memory about nine times.

    Written once, read for its statistics, read to normalise and pool, read twice on the way back, its gradient
    written once and read twice, and the input of the next layer written and read at a quarter of the size.
    """
    pixels, total = SHAPE[1] * SHAPE[2], 0
    for width in WIDTHS:
        total += 9 * 2 * width * pixels
        pixels //= 4
    return float(BATCH * total)


if __name__ == "__main__":
    main()
