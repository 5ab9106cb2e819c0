"""Training a network: rows stay on the device, and a GPU replays one captured step.

Batches are drawn and augmented on the device, so that no step waits for Python. A ``Trainer`` keeps network,
rows and optimizer at fixed addresses, so that one capture serves all rounds of a task.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from gal.core.local_losses import HuberLoss, LocalLoss, PowerLoss
from gal.errors import InvalidOptionError, LocalModelError, UnsupportedLocalLossError
from gal.models.deep.views import Augmentation, ManyViews, TensorView
from gal.warnings import GALWarning

Objective = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""The mean loss of outputs (n, K), given targets and row weights (n,) or None."""

EXCLUSIVE = RLock()
"""One thread at a time makes networks (torch has one random generator) or captures a step."""
SCHEDULES = ("constant", "cosine", "linear")
WARM_UP = 0.1
"""Share of all steps in which the learning rate rises; a constant one has no warm-up."""


def _is_number(value: Any, least: float) -> bool:
    return isinstance(value, int | float | np.number) and bool(least <= value < np.inf)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and bool(value >= 1)


TINY = np.finfo(float).tiny
RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "epochs": (_is_count, "a whole number of at least 1"),
    "batch_size": (_is_count, "a whole number of at least 1"),
    "optimizer": (lambda one: one in {"sgd", "adam"}, "sgd or adam"),
    "schedule": (lambda one: one in SCHEDULES, f"one of {', '.join(SCHEDULES)}"),
    "precision": (lambda one: one in {"auto", "float32", "bfloat16"}, "auto, float32 or bfloat16"),
    "learning_rate": (lambda one: _is_number(one, TINY), "above 0"),
    "momentum": (lambda one: _is_number(one, 0.0) and one < 1, "at least 0 and below 1"),
    "weight_decay": (lambda one: _is_number(one, 0.0), "at least 0"),
    "clip_norm": (lambda one: one is None or _is_number(one, TINY), "None or above 0"),
    "augment": (lambda one: one is None or hasattr(one, "batch"), "None or such as ShiftAndFlip()"),
}
"""Checks of the options, and their description in errors."""


@dataclass(kw_only=True)
class Training:
    """The options of training a network."""

    epochs: int = 10
    batch_size: int = 512
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "cosine"
    clip_norm: float | None = 1.0
    augment: Augmentation | None = None
    precision: str = "auto"

    def check(self) -> None:
        """An error where an option is out of its range."""
        for name, (right, expected) in RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not right(value):
                raise InvalidOptionError(f"{name} must be {expected}, got {value!r}")

    def rates(self, steps: int) -> NDArrayFloat:
        """The learning rate of each of so many steps."""
        done = np.arange(steps) / steps
        if self.schedule == "constant":
            return np.full(steps, self.learning_rate)
        fall = (1 + np.cos(np.pi * done)) / 2 if self.schedule == "cosine" else 1 - done
        rise = np.minimum(1.0, (np.arange(steps) + 1) / max(1.0, WARM_UP * steps))
        return np.asarray(self.learning_rate * fall * rise)

    def dtype(self, device: torch.device) -> torch.dtype:
        """The type of most computations: bfloat16 on a GPU unless ``precision`` is float32."""
        half = self.precision == "bfloat16" or (self.precision == "auto" and device.type == "cuda")
        return torch.bfloat16 if half else torch.float32


NDArrayFloat = np.ndarray[Any, np.dtype[np.float64]]


def find_device(device: str) -> torch.device:
    """ "auto": the GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
        if found.type == "meta":
            raise RuntimeError("it computes nothing")
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InvalidOptionError(
            f"device {device!r} cannot be used here: {error}; use 'auto' or 'cpu'"
        ) from error
    return found


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Random numbers from this seed inside the block; generators outside are left as they were."""
    gpus = [device] if device.type == "cuda" else []
    here = device == torch.get_default_device()  # naming it again slows every call of torch
    with EXCLUSIVE, torch.random.fork_rng(devices=gpus), nullcontext() if here else device:
        torch.random.default_generator.manual_seed(seed)
        if gpus:
            torch.cuda.manual_seed(seed)
        yield


def mixed(device: torch.device, dtype: torch.dtype) -> Any:
    """Matrix products and convolutions in ``dtype`` inside."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype, cache_enabled=False)


def residual_objective(loss: LocalLoss, shares: Tensor | None = None) -> Objective:
    """The local loss as an objective; ``shares`` (K,) is how much each output counts, by default 1/K."""
    sizes = _sizes(loss)

    def objective(output: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        if weight is None and shares is None and isinstance(loss, PowerLoss) and loss.q == 2:
            return nn.functional.mse_loss(output, target)  # the fastest way
        errors = sizes(output - target)
        per_row = errors.mean(dim=1) if shares is None else errors @ shares
        return (per_row if weight is None else per_row * weight).mean()

    return objective


def _sizes(loss: LocalLoss) -> Callable[[Tensor], Tensor]:
    """The loss of each entry of an error."""
    if isinstance(loss, PowerLoss):
        power = loss.q
        if power == 2:
            return lambda error: error.square()
        return lambda error: error.abs() if power == 1 else error.abs().pow(power)
    if isinstance(loss, HuberLoss):
        delta = loss.delta
        return lambda error: nn.functional.huber_loss(
            error, torch.zeros_like(error), reduction="none", delta=delta
        )
    raise UnsupportedLocalLossError(
        f"a network cannot minimize the local loss {loss.name!r}: choose l1, l1.5, l2, l4, huber or a "
        "PowerLoss"
    )


def _draws(module: nn.Module) -> bool:
    """Whether the network has layers that draw at random in training."""
    return any(
        isinstance(one, nn.modules.dropout._DropoutNd) or getattr(one, "dropout", 0)
        for one in module.modules()
    )


class Optimizer:
    """SGD with momentum, or Adam, with torch's fused kernels on a GPU.

    By torch's functional API: the classes of ``torch.optim`` import torch's compiler, which takes seconds in
    every process. All state has fixed addresses, so that a captured step can be replayed from zero.
    """

    def __init__(self, parameters: list[Tensor], training: Training) -> None:
        self.parameters, self.training, self.adam = parameters, training, training.optimizer == "adam"
        self.moments = [[torch.zeros_like(one) for one in parameters] for _ in range(1 + self.adam)]
        self.steps = [torch.zeros((), device=one.device) for one in parameters]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, rate: Tensor, divide_by: Tensor | None = None) -> None:
        """One step at this learning rate, with gradients divided by a number (on a GPU only)."""
        training, parameters = self.training, self.parameters
        # A parameter without a gradient affects no output: only its decay moves it.
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
        how: dict[str, Any] = {"weight_decay": training.weight_decay, "maximize": False, "foreach": False}
        how |= {"lr": rate if rate.is_cuda else float(rate), "fused": rate.is_cuda, "grad_scale": divide_by}
        if self.adam:
            betas: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": False}
            adam(parameters, gradients, *self.moments, [], self.steps, **betas, **how)
            return
        momentum, nesterov = training.momentum, training.momentum > 0 and training.schedule != "constant"
        sgd(parameters, gradients, *self.moments, momentum=momentum, dampening=0.0, nesterov=nesterov, **how)

    def reset(self) -> None:
        """Start over, as before the first step."""
        for one in (self.steps, *self.moments):
            torch._foreach_zero_(one)


class Trainer:
    """One network with its rows and its optimizer, at fixed places of one device."""

    def __init__(
        self,
        module: nn.Module,
        view: TensorView | ManyViews,
        target_width: int,
        objective: Objective,
        training: Training,
        *,
        weighted: bool = False,
        slow: nn.Module | None = None,
        stochastic: bool = False,
    ) -> None:
        training.check()
        self.module, self.objective, self.training = module, objective, training
        self.view = view if isinstance(view, ManyViews) else view.bare()
        device, n = view.device, len(view)
        self.device = device
        self.batch_size = min(training.batch_size, n)
        self.steps = math.ceil(n / self.batch_size)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.target = torch.zeros((n, *([target_width] if target_width else [])), device=device)
        self.weight = torch.ones(n, device=device) if weighted else None
        total = self.steps * training.epochs
        self.order = torch.zeros((total, self.batch_size), dtype=torch.int64, device=device)
        n_draws = 0 if training.augment is None else training.augment.n_draws
        self.draws = torch.zeros((total, self.batch_size, n_draws), device=device)
        self.rates = torch.as_tensor(training.rates(total), dtype=torch.float32, device=device)
        self.done = torch.zeros(1, dtype=torch.int64, device=device)
        for layer in module.modules():
            if isinstance(layer, nn.RNNBase):
                layer.flatten_parameters()  # copies of a network lose the one piece of memory that it wants
        self.parameters = [one for one in module.parameters() if one.requires_grad]
        self.stochastic = stochastic or _draws(module)
        """Whether the network may draw random numbers in training, from torch's one generator."""
        self.slowness = torch.ones((), device=device)
        gentle = set() if slow is None else set(slow.parameters())
        parts = {
            slowly: [one for one in self.parameters if (one in gentle) == slowly] for slowly in (False, True)
        }
        self.optimizers = {slowly: Optimizer(part, training) for slowly, part in parts.items() if part}
        """Of the parameters with the full learning rate, and of the slow ones (True)."""
        self.graph: Any = None
        """The captured step of a GPU, from the first fit on."""
        self.can_capture = self.stream is not None

    def fit(self, start: Mapping[str, Tensor], target: Tensor, weight: Tensor | None, seed: int) -> None:
        """Train from the parameters ``start`` on; afterwards ``module`` has the result."""
        reset = partial(self._reset, start, target, weight)
        with on_stream(self.stream):
            reset()
            self._shuffle(torch.Generator(self.device).manual_seed(seed))
        with seeded(self.device, seed) if self.stochastic else nullcontext():
            if self.can_capture and self.graph is None:
                self._capture(reset)
            with on_stream(self.stream):
                for _ in range(len(self.rates)):
                    if self.graph is None:
                        self._step()
                    else:
                        self.graph.replay()
        if not all(bool(torch.isfinite(one).all()) for one in self.parameters):
            raise LocalModelError(
                f"training diverged: the network became infinite or NaN within {self.training.epochs} epochs "
                f"at the learning rate {self.training.learning_rate:g}; lower learning_rate, or set clip_norm"
            )

    def _reset(self, start: Mapping[str, Tensor], target: Tensor, weight: Tensor | None) -> None:
        """Set parameters, targets, weights and optimizers to the start of a fit."""
        with torch.no_grad():
            for name, value in self.module.state_dict().items():
                value.copy_(start[name])
            self.target.copy_(target.view_as(self.target))
            if self.weight is not None and weight is not None:
                self.weight.copy_(weight)
        for optimizer in self.optimizers.values():
            optimizer.reset()
        self.module.train()
        self.done.zero_()

    def _shuffle(self, chance: torch.Generator) -> None:
        """Draw an order of rows per epoch; its first rows fill up the last batch."""
        n, size = len(self.view), self.steps * self.batch_size
        for epoch in self.order.view(self.training.epochs, size):
            order = torch.randperm(n, generator=chance, device=self.device)
            epoch[:n] = order
            epoch[n:] = order[: size - n]
        if self.draws.numel():
            self.draws.uniform_(generator=chance)

    def _step(self) -> None:
        """One optimizer step on one batch; a captured CUDA graph replays it."""
        training, rows = self.training, self.order.index_select(0, self.done)[0]
        if training.augment is None:
            inputs = self.view.batch(rows)
        else:
            draws = self.draws.index_select(0, self.done)[0]
            views = self.view.views if isinstance(self.view, ManyViews) else [self.view]
            inputs = tuple(one for view in views for one in training.augment.batch(view, rows, draws))
        with mixed(self.device, training.dtype(self.device)):
            output = self.module(*inputs)
        weight = None if self.weight is None else self.weight.index_select(0, rows)
        for one in self.parameters:
            one.grad = None
        self.objective(output.float(), self.target.index_select(0, rows), weight).backward()
        divide_by = None
        if training.clip_norm is not None and self.stream is None:
            nn.utils.clip_grad_norm_(self.parameters, training.clip_norm)
        elif training.clip_norm is not None:  # the optimizer's kernel divides: one pass over gradients less
            norms = torch._foreach_norm([one.grad for one in self.parameters])
            divide_by = (torch.linalg.vector_norm(torch.stack(norms)) / training.clip_norm).clamp(min=1.0)
        rate = self.rates.index_select(0, self.done)[0]
        for slowly, optimizer in self.optimizers.items():
            optimizer.step(rate * self.slowness if slowly else rate, divide_by)
        self.done.add_(1)

    def _capture(self, reset: Callable[[], None]) -> None:
        """Capture one step as a graph; a warning for a network that cannot be captured."""
        try:
            # cuDNN chooses its kernels: its benchmark mode took seconds and found no faster ones.
            with EXCLUSIVE, on_stream(self.stream):
                for _ in range(3):  # every library chooses its kernels
                    self.done.zero_()
                    self._step()
                reset()
            with EXCLUSIVE, on_stream(self.stream):
                graph = torch.cuda.CUDAGraph()
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    self._step()
                except BaseException:
                    with suppress(RuntimeError):
                        graph.capture_end()  # without it the stream would stay unusable
                    raise
                graph.capture_end()
            self.graph = graph
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            warnings.warn(
                f"a training step of this network cannot be captured, so its training is slower: {error}",
                GALWarning,
                stacklevel=2,
            )
            self.can_capture = False
            with on_stream(self.stream):
                reset()


@contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    """Work on this stream, if any, after all earlier work of the device; synchronized at the end."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()


def outputs_of(
    module: nn.Module, view: TensorView | ManyViews, dtype: torch.dtype, batch_size: int
) -> Tensor:
    """Outputs (n, ...) of all rows, in float32."""
    module.eval()
    parts = []
    stream = torch.cuda.Stream(view.device) if view.device.type == "cuda" else None
    with on_stream(stream), torch.no_grad(), mixed(view.device, dtype):
        for start in range(0, len(view), batch_size):
            parts.append(module(*view.stretch(start, start + batch_size)).float())
        return torch.cat(parts).cpu()
