"""Late fusion as the authors train it: one linear layer per organization, all in one optimiser.

Each layer follows the gradient of its own loss on the true labels, but gradients are clipped over the
parameters of all layers together. With M layers of about the same gradient each moves 1/sqrt(M) as far
as it would alone, and none starts from F^0: labels far from 0 are never reached. That is reproduced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state

from gal.core.state import Ensemble
from gal.core.task import Task, local_seed
from gal.errors import LocalModelError
from gal.learner.organization import Organization
from gal.models import PaperLinear
from gal.models.paper_linear import batches, initial_parameters
from gal_bench.baselines.ensembles import finished_ensemble, train_loss

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
        seed = model.random_state
        rng = check_random_state(local_seed(task.seed, organization.name, 1) if seed is None else seed)
        self.parameters = initial_parameters(rng, task.loss.n_outputs, X.shape[1], model.init_features)
        self.velocity = np.zeros_like(self.parameters)

    def output(self, rows: Any = slice(None)) -> Floats:
        """F_m of these rows."""
        with np.errstate(invalid="ignore"):  # some BLAS set this flag for lanes that they do not use
            return np.asarray(self.inputs[rows] @ self.parameters.T, dtype=np.float64)

    def gradient(self, task: Task, rows: Any) -> Singles:
        """Of the mean overarching loss of these rows."""
        pull = task.loss.pseudo_residual(task.y[rows], self.output(rows))
        return np.asarray(-(pull.T @ self.inputs[rows]) / len(pull), dtype=np.float32)


def learn_layers(task: Task, members: Mapping[str, Organization], share: float) -> Ensemble:
    """Layers that count ``share`` each.

    A round is an epoch, and what a layer gained in it is a layer again: the rounds add up. The label
    holder's ``PaperLinear`` sets epochs, rates and batches for all; its local loss is not used.
    """
    sgd: PaperLinear = members[str(task.label_holder)].model
    layers = {name: _Trainee(one, task) for name, one in members.items()}
    rng = np.random.RandomState(task.seed)
    last = {name: np.zeros(layer.parameters.shape) for name, layer in layers.items()}
    means, losses = [], []
    for epoch in range(1, sgd.epochs + 1):
        rate = sgd.learning_rate / (10 if epoch > sgd.drop_epoch else 1)
        for rows in batches(rng, task.rows.n, sgd.batch_size):
            gradients = {name: layer.gradient(task, rows) for name, layer in layers.items()}
            norm = float(np.sqrt(sum(float(np.vdot(one, one)) for one in gradients.values())))
            clipped = np.float32(min(1.0, sgd.clip_norm / (norm + 1e-6)))
            for name, layer in layers.items():
                layer.velocity *= sgd.momentum
                layer.velocity += clipped * gradients[name] + sgd.weight_decay * layer.parameters
                layer.parameters = layer.parameters - rate * layer.velocity
        mean = {}
        for name, layer in layers.items():
            gained = layer.parameters.astype(np.float64) - last[name]
            last[name] = layer.parameters.astype(np.float64)
            step: Any = Layer(layer.center, layer.scale, gained)
            members[name].models["assisted", epoch] = (step,)
            mean[name] = tuple(map(float, gained @ layer.inputs.mean(axis=0, dtype=np.float64)))
        means.append(mean)
        losses.append(train_loss(task, share * np.sum([layer.output() for layer in layers.values()], axis=0)))
    nothing = np.zeros((1, task.loss.n_outputs))
    return finished_ensemble(task, nothing, [dict.fromkeys(layers, share)] * len(means), means, losses)
