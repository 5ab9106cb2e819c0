"""Late fusion and assisted learning: F^T = F^0 + sum of coefficient * fitted model.

In late fusion every organization learns the labels on its own columns, and only outputs are combined. In
Assisted Learning (AL) organizations go one after another, and each fits what the previous ones left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state

from gal.core.line_search import mean_loss
from gal.core.outcome import Ended, TaskOutcome
from gal.core.requests import FitRequest
from gal.core.rows import all_rows
from gal.core.state import ByName, Ensemble, Round
from gal.core.steps import broadcast
from gal.core.task import Task, local_seed
from gal.errors import GALError, InvalidOptionError, LocalModelError
from gal.learner.drivers import IN_PROCESS, Driver, Traffic, ask, drive_learning
from gal.learner.organization import Organization
from gal.models import PaperLinear
from gal.models.paper_linear import batches, initial_parameters

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
NAN = float("nan")


def finished_ensemble(
    task: Task,
    first: Floats,
    coefficients: Sequence[Mapping[str, float]],
    means: Sequence[Mapping[str, tuple[float, ...]]],
    losses: Sequence[float],
    rate: float = 1.0,
) -> Ensemble:
    """All rounds together, from F^0 = ``first`` on: by round how much fitted values count (``rate`` times the
    weights), their means, and the train loss.
    """
    begin = np.broadcast_to(first, (task.rows.n, task.loss.n_outputs))
    rounds = [
        Round(
            round=number,
            weights=ByName({name: counts.get(name, 0.0) / rate for name in task.organizations}),
            rate=rate,
            scale=1.0,
            train_loss=loss,
            validation_loss=NAN,
            mean_fitted=ByName(mean),
        )
        for number, (counts, mean, loss) in enumerate(zip(coefficients, means, losses, strict=True), start=1)
    ]
    before = train_loss(task, begin)
    return Ensemble(
        organizations=task.organizations,
        label_holder=task.label_holder,
        initial=tuple(map(float, first[0])) if len(first) == 1 else None,
        n_outputs=task.loss.n_outputs,
        coefficients=tuple(ByName(counts) for counts in coefficients),
        rounds=tuple(rounds),
        initial_train_loss=before,
        initial_validation_loss=NAN,
        train_loss=rounds[-1].train_loss if rounds else before,
        outcome=TaskOutcome(Ended.ROUNDS, len(rounds)),
    )


def train_loss(task: Task, output: Floats) -> float:
    """Mean loss over all rows."""
    return mean_loss(task.loss, task.y, output, task.sample_weight)


# --- assisted learning


def learn_assisted(
    task: Task,
    members: Mapping[str, Organization],
    *,
    order: Sequence[str],
    rate: float = 1.0,
    last_only: bool = False,
    driver: Driver = IN_PROCESS,
    traffic: Traffic | None = None,
) -> Ensemble:
    """AL with organizations whose views have any shape; ``gal.predict`` takes the ensemble.

    In a round organizations go one after another in this ``order``. Each gets the pseudo-residual of
    the current output and fits it; the output moves at once, by ``rate`` times what it fitted. The task's
    weights, line search, validation and stopping are not used, and every row is fitted.

    ``last_only`` is the authors' script. Within a round each organization overwrites what the one before did,
    so only the last one's fit counts; and gradients add up, so that the residual it gets is M times the true
    one. The others get no request, as they would change nothing. A squared error (not the paper's preset)
    overshoots by M - 1 in every round: with more than two organizations it diverges.
    """
    if not np.isfinite(rate) or rate <= 0:
        raise InvalidOptionError(f"rate must be a number above 0, got {rate!r}")
    if moving := [name for name, one in members.items() if one.stateful]:
        raise InvalidOptionError(
            f"the models of {', '.join(moving)} move, and assisted learning has no weights or rates to find "
            "anew for what they say after the last round: give these organizations other local models"
        )
    task = replace(task, rows=all_rows(task.rows.n))
    traffic, times = traffic or Traffic(), len(task.organizations) if last_only else 1
    for one in members.values():
        one.models.clear()
    output: Floats = np.broadcast_to(task.first_output, (task.rows.n, task.loss.n_outputs))  # F^0
    coefficients, means, losses = [], [], []
    for t in range(1, task.rounds + 1):
        counts, mean = {}, {}
        for name in order[-1:] if last_only else order:
            found = broadcast(task, output, t, "assisted")
            # Sent with unit size whatever it is multiplied by.
            residual = found.residual if task.scale_residual else found.residual * times
            request = FitRequest(t, residual, (name,), task.sample_weight)
            fitted = ask(task, {name: members[name]}, driver, [request])[0][name]
            if isinstance(fitted, GALError):
                raise fitted
            if not np.isfinite(fitted).all():
                raise LocalModelError(f"organization {name!r}, round {t}: fitted values are NaN or infinite")
            if name != task.label_holder:
                traffic.trips += 1
                traffic.count(request, 1, [fitted])
            counts[name] = float(rate) * found.scale * (times if task.scale_residual else 1)
            output = output + counts[name] * fitted
            mean[name] = tuple(map(float, np.average(fitted, axis=0, weights=task.sample_weight)))
        coefficients.append(counts)
        means.append(mean)
        losses.append(train_loss(task, output))
    for one in members.values():
        one.release()
    return finished_ensemble(task, task.first_output, coefficients, means, losses, float(rate))


# --- late fusion


def learn_late(task: Task, members: Mapping[str, Organization], share: float) -> Ensemble:
    """Late fusion by GAL with one organization each; what each adds to F^0 counts ``share``."""
    single = {name: drive_learning(task.only(name), {name: members[name]}) for name in task.organizations}
    if any(one.outcome is not None and one.outcome.ended.on_request for one in single.values()):
        raise KeyboardInterrupt
    coefficients, means = [], []
    for index in range(max(one.n_rounds for one in single.values())):
        # Organizations that validated fewer rounds take no part in the later ones.
        counts = {
            name: share * one.coefficients[index][name]
            for name, one in single.items()
            if index < one.n_rounds and name in one.coefficients[index]
        }
        coefficients.append(counts)
        means.append({name: single[name].rounds[index].mean_fitted[name] for name in counts})
    return finished_ensemble(task, task.first_output, coefficients, means, [NAN] * len(coefficients))


@dataclass(frozen=True)
class Layer:
    """A linear map of standardized columns; the last of its ``parameters`` (K, d + 1) are biases."""

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
        """The gradient of the mean overarching loss of these rows."""
        pull = task.loss.pseudo_residual(task.y[rows], self.output(rows))
        return np.asarray(-(pull.T @ self.inputs[rows]) / len(pull), dtype=np.float32)


def learn_layers(task: Task, members: Mapping[str, Organization], share: float) -> Ensemble:
    """Late fusion as the authors train it: one linear layer per organization that counts ``share``.

    All layers have one optimizer. Each follows the gradient of its own loss on the true labels, but gradients
    are clipped over the parameters of all layers together. With M layers of about the same gradient each
    moves 1/sqrt(M) as far as it would alone, and none starts from F^0: labels far from 0 are never reached.
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
