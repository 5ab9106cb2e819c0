"""How fast networks of several organizations train side by side on one GPU, and what bounds them.

    PYTHONPATH=src python benchmarks/deep_speed.py            # on a machine with a GPU

Eight organizations with the paper's CNN (or ``--network residual_cnn``) on random patches of CIFAR-10's size
(50,000 x 3 x 16 x 8), batches of 512, ten outputs. Prints the milliseconds of a step one by one and side by
side, how many kernels a step has and how long they take, and which share of the GPU's own speed (a large
matrix product, a large copy, both measured here) the arithmetic and the memory traffic of a step come to.
Without a GPU it only times plain steps, one organization after another, and wants few rows: ``--rows 64
--batch 16 --organizations 2``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from gal.models.deep import Inputs, TorchModel
from gal.models.deep.networks import make_network
from gal.models.deep.side_by_side import SideBySide
from gal.models.deep.training import Trainer, on_stream, record

OUTPUTS = 10
SHAPE = (3, 16, 8)


@dataclass(frozen=True)
class Scene:
    """Who trains on how much."""

    rows: int = 50_000
    batch: int = 512
    organizations: int = 8
    network: str = "cnn"

    @property
    def steps(self) -> int:
        """Of one epoch."""
        return -(-self.rows // self.batch)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("rows", "batch", "organizations"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Scene, name))
    parser.add_argument("--network", choices=["cnn", "residual_cnn", "wide_cnn"], default=Scene.network)
    scene = Scene(**vars(parser.parse_args()))
    if scene.steps < 2:
        parser.error("--rows must be more than --batch: a step is timed after one that warms up")
    trainers = made(scene)
    together, alone = step_seconds(trainers), step_seconds(trainers[:1])
    lines = report(scene, together, alone)
    if trainers[0].stream is not None:
        lines = with_bounds(lines, scene, kernels_of(trainers[:1]), together)
    print(*lines, sep="\n")


def report(scene: Scene, together: float, alone: float) -> list[str]:
    """What every machine can tell: where it ran, one step of one
    organization and of all, a hundred epochs.
    """
    gpu, n = torch.cuda.is_available(), scene.organizations
    return [
        f"{torch.cuda.get_device_name() if gpu else 'no GPU'}, torch {torch.__version__}",
        f"one organization, one step: {1e3 * alone:.3f} ms",
        f"{n} {'side by side' if gpu else 'one by one'}, one step: {1e3 * together:.3f} ms, "
        f"{alone * n / together:.1f} x",
        f"100 epochs: {100 * together * scene.steps:.1f} s",
    ]


def with_bounds(lines: list[str], scene: Scene, counted: tuple[float, float], together: float) -> list[str]:
    """The report with kernels, arithmetic and memory traffic beside what the GPU can do."""
    (tera_flops, tera_bytes), (kernels, busy), n = ceilings(), counted, scene.organizations
    flops, moved = n * step_flops(scene), n * step_bytes(scene)
    where, alone, all_of_them, epochs = lines
    return [
        where,
        f"measured ceilings: {tera_flops:.0f} TFLOP/s in bfloat16, {tera_bytes:.2f} TB/s",
        f"{alone}; {kernels:.0f} kernels that take {1e3 * busy:.3f} ms",
        all_of_them,
        f"  = {1e6 * together / (n * kernels):.2f} us per kernel",
        epochs,
        f"arithmetic: {flops / 1e9:.0f} GFLOP a step, {flops / together / 1e12 / tera_flops:.1%} of the "
        "ceiling",
        f"memory: at least {moved / 1e9:.2f} GB a step, {moved / together / 1e12 / tera_bytes:.1%} of the "
        "ceiling",
    ]


def ceilings() -> tuple[float, float]:
    """TFLOP/s of a large product in bfloat16, and TB/s of a large copy (read and written)."""
    one = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    product = seconds(lambda: one @ one, 20)
    large = torch.randn(2**29, device="cuda")
    target = torch.empty_like(large)
    copy = seconds(lambda: target.copy_(large), 20)
    return 2 * 8192**3 / product / 1e12, 8 * 2**29 / copy / 1e12


def made(scene: Scene) -> list[Trainer]:
    """Trainers of all organizations after one short fit, put where their next one starts."""
    rng = np.random.default_rng(0)
    residual = rng.normal(size=(scene.rows, OUTPUTS)).astype(np.float32)
    models = [
        TorchModel(scene.network, epochs=1, batch_size=scene.batch, random_state=seed)
        for seed in range(scene.organizations)
    ]
    views = [model.prepare(rng.normal(size=(scene.rows, *SHAPE)).astype(np.float32)) for model in models]
    with SideBySide() as together:
        together([partial(model.fit, view, residual) for model, view in zip(models, views, strict=True)])
    trainers = sorted((trainer for view in views for kept in view.idle() for trainer in kept), key=id)
    for one in trainers:  # at rest they do not know where to start from
        learned = {name: value.clone() for name, value in one.module.state_dict().items()}
        one.begin(learned, one.target.clone(), None, seed=0)
    return trainers


def step_seconds(trainers: list[Trainer]) -> float:
    """Of one step of these trainers: recorded and side by side on a GPU, plain and one by one without."""
    if trainers[0].stream is None:
        return steps_timed(trainers, partial(step_each, trainers))
    with on_stream(trainers[0].stream):
        return steps_timed(trainers, record(trainers).replay)


def step_each(trainers: list[Trainer]) -> None:
    """One step of each, one by one."""
    for one in trainers:
        one.step()


def steps_timed(trainers: list[Trainer], step: Callable[[], object]) -> float:
    """Seconds of one step, the better of two times; each begins with the first batch."""
    at_hand = len(trainers[0].rates)
    found = []
    for wanted in (20, 60):
        for one in trainers:
            one.done.zero_()
        warm = min(3, at_hand // 2)
        found.append(seconds(step, min(wanted, at_hand - warm), warm))
    return min(found)


def kernels_of(trainers: list[Trainer]) -> tuple[float, float]:
    """How many kernels a step has, and the seconds that they take one after another."""
    with on_stream(trainers[0].stream):
        graph = record(trainers)
        trainers[0].done.zero_()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(10):
                graph.replay()
            torch.cuda.synchronize()
    rows: list[Any] = [one for one in found.key_averages() if one.self_device_time_total > 0]
    return sum(one.count for one in rows) / 10, sum(one.self_device_time_total for one in rows) / 10 / 1e6


def seconds(work: Callable[[], object], times: int, warm: int = 3) -> float:
    """Of one call, warmed up."""
    for _ in range(warm):
        work()
    finish()
    started = time.perf_counter()
    for _ in range(times):
        work()
    finish()
    return (time.perf_counter() - started) / times


def finish() -> None:
    """Wait for what the GPU still does."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def convolutions(network: str) -> list[tuple[int, int, int]]:
    """Of each convolution: numbers of channels in and out, and of pixels."""
    found: list[tuple[int, int, int]] = []
    module = make_network(network, Inputs("images", SHAPE), OUTPUTS).eval()
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(
                lambda one, _, out: found.append((one.in_channels, one.out_channels, out[0, 0].numel()))
            )
    with torch.no_grad():
        module(torch.zeros(1, *SHAPE))
    return found


def step_flops(scene: Scene) -> float:
    """Multiplications and additions of one organization's step: forward, and twice as many backward."""
    forward = sum(
        2 * 9 * inward * outward * pixels for inward, outward, pixels in convolutions(scene.network)
    )
    return 3.0 * scene.batch * forward


def step_bytes(scene: Scene) -> float:
    """The fewest bytes of one organization's step: every convolution's result passes memory about nine times.

    Written once, read for its statistics, read to normalise and pool, read twice on the way
    back, its gradient written once and read twice, and the input of the next layer written and
    read at a quarter of the size.
    """
    passed = sum(9 * 2 * outward * pixels for _, outward, pixels in convolutions(scene.network))
    return float(scene.batch * passed)


if __name__ == "__main__":
    main()
