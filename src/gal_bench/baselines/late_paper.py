"""Late fusion as the authors train it: one linear layer per organization, all in one optimiser.

Each layer follows the gradient of its own loss on the true labels, but gradients are clipped over the
parameters of all layers together. With M layers of about the same gradient each moves 1/sqrt(M) as far
as it would alone, and none starts from F^0: labels far from 0 are never reached. That is reproduced.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state

from gal.core.state import Ensemble
from gal.core.task import Task, local_seed
from gal.engine.organization import Organization
from gal.errors import LocalModelError
from gal.models import PaperLinear
from gal.models.paper_linear import batches, initial_parameters
from gal_bench.baselines.ensembles import baseline_round, finished_ensemble, train_loss

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


@dataclass(frozen=True)
class Layer:
    """A linear map of standardised columns; the last of its ``parameters`` (K, d + 1) are biases."""

    center: Floats
    scale: Floats
    parameters: Floats

    def predict(self, X: Any) -> Floats:
        """Outputs, shape (n, K)."""
        inputs = (np.asarray(X, dtype=np.float64) - self.center) / self.scale
        return np.asarray(inputs @ self.parameters[:, :-1].T + self.parameters[:, -1])


class _Trainee:
    """One organization's layer while it is trained."""

    def __init__(self, organization: Organization, task: Task) -> None:
        model = organization.model
        try:
            X = check_array(organization.view, dtype=np.float64)
        except ValueError as error:
            raise LocalModelError(
                f"organization {organization.name!r}: PaperLinear failed: {error}"
            ) from error
        self.center, self.scale = model._moments(X, np.ones(len(X)))
        inputs = ((X - self.center) / self.scale).astype(np.float32)
        self.inputs: Singles = np.column_stack([inputs, np.ones(len(X), dtype=np.float32)])
        seed = (
            local_seed(task.seed, organization.name, 1) if model.random_state is None else model.random_state
        )
        self.parameters = initial_parameters(
            check_random_state(seed), task.loss.n_outputs, X.shape[1], model.init_features
        )
        self.velocity = np.zeros_like(self.parameters)

    @property
    def output(self) -> Floats:
        """F_m of all rows."""
        return self._output(self.inputs)

    def _output(self, inputs: Singles) -> Floats:
        with np.errstate(invalid="ignore"):  # some BLAS set this flag for lanes that they do not use
            return np.asarray(inputs @ self.parameters.T, dtype=np.float64)

    def gradient(self, task: Task, rows: Any) -> Singles:
        """Of the mean overarching loss of these rows."""
        inputs = self.inputs[rows]
        output = self._output(inputs)
        pull = task.loss.pseudo_residual(task.y[rows], output)
        if task.sample_weight is not None:
            pull = pull * task.sample_weight[rows, None] / task.sample_weight[rows].mean()
        return np.asarray(-(pull.T @ inputs) / len(inputs), dtype=np.float32)

    def move(self, gradient: Singles, rate: float, sgd: PaperLinear) -> None:
        """One step of SGD with momentum and weight decay."""
        self.velocity *= sgd.momentum
        self.velocity += gradient + sgd.weight_decay * self.parameters
        self.parameters = self.parameters - rate * self.velocity


def learn_layers(
    task: Task, members: Mapping[str, Organization], share: float
) -> tuple[Ensemble, list[float]]:
    """Layers that count ``share`` each, and the seconds of each epoch.

    A round is an epoch, and what a layer gained in it is a layer again: the rounds add up. The label
    holder's ``PaperLinear`` sets epochs, rates and batches for all; its local loss is not used.
    """
    sgd: PaperLinear = members[str(task.label_holder)].model
    layers = {name: _Trainee(one, task) for name, one in members.items()}
    rng = np.random.RandomState(task.seed)
    last = {name: np.zeros(layer.parameters.shape) for name, layer in layers.items()}
    counts = dict.fromkeys(layers, share)
    rounds, seconds = [], []
    for epoch in range(1, sgd.epochs + 1):
        began = time.perf_counter()
        rate = sgd.learning_rate / (10 if epoch > sgd.drop_epoch else 1)
        for rows in batches(rng, task.rows.n, sgd.batch_size):
            _step(task, layers, rows, rate, sgd)
        means = {}
        for name, layer in layers.items():
            gained = layer.parameters.astype(np.float64) - last[name]
            last[name] = layer.parameters.astype(np.float64)
            step: Any = Layer(layer.center, layer.scale, gained)
            members[name].models["assisted", epoch] = (step,)
            means[name] = tuple(map(float, gained @ layer.inputs.mean(axis=0, dtype=np.float64)))
        output = share * np.sum([layer.output for layer in layers.values()], axis=0)
        rounds.append(baseline_round(task, epoch, counts, means, train_loss(task, output)))
        seconds.append(time.perf_counter() - began)
    nothing = np.zeros((1, task.loss.n_outputs))
    return finished_ensemble(task, nothing, [counts] * len(rounds), rounds), seconds


def _step(task: Task, layers: Mapping[str, _Trainee], rows: Any, rate: float, sgd: PaperLinear) -> None:
    """Every layer moves along its own gradient; one clipping for all of them."""
    gradients = {name: layer.gradient(task, rows) for name, layer in layers.items()}
    norm = float(np.sqrt(sum(float(np.vdot(one, one)) for one in gradients.values())))
    clipped = np.float32(min(1.0, sgd.clip_norm / (norm + 1e-6)))
    for name, layer in layers.items():
        layer.move(clipped * gradients[name], rate, sgd)
