"""One run of a deep table: organizations with networks learn on one set of views.

Runs on a GPU where there is one, with numpy, scipy, scikit-learn and torch alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from gal.core.prediction import staged_outputs
from gal.core.state import Ensemble
from gal.errors import MissingDataError
from gal.learner.drivers import Driver, Traffic, by_name, drive_learning, drive_prediction
from gal.learner.labels import class_labels, regression_labels
from gal.learner.options import Options
from gal.learner.organization import Organization
from gal.learner.task_making import make_task
from gal.privacy.mechanisms.paper import PaperInterval, PaperLaplace
from gal_bench.baselines.ensembles import learn_assisted
from gal_bench.baselines.fusion import FusedNetworks
from gal_bench.cells import IMAGE_SETS, Cell, Outcome, Sources
from gal_bench.data.sources import ViewSet
from gal_bench.runs.disturbances import DisturbedModel, half
from gal_bench.runs.local_models import (
    fusion_network,
    fusion_training,
    losses_of_halves,
    models_by_organization,
)
from gal_bench.runs.scoring import frequencies, quality, rounds_of, score, validation_loss

T = TypeVar("T")
FUSION_EPOCHS = 40
"""Of networks that are trained once, on the labels; ten rounds of ten epochs are more."""
HELD_OUT = 0.04
"""Of large sets: share of the rows that find weights and rates, and again of those that choose the number of
rounds; thousands of rows are plenty for so few numbers."""
LARGE = 20_000


def run_deep_cell(cell: Cell, sources: Sources) -> Outcome:
    """Learn and score."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    views = load_views(cell, sources)
    # What is predicted before the first round: class frequencies, or the median.
    constant = (
        frequencies(views.y_train, len(views.y_test))
        if views.classes
        else np.full(len(views.y_test), np.median(views.y_train))
    )
    ensemble: Ensemble | None = None
    if cell.method in {"late", "intermediate"}:
        predictions, facts = _fused(cell, views)
    else:
        ensemble, predictions, facts = _assembled(cell, views)
    facts |= quality(views.metric, views.y_test, [constant, *predictions][-1])
    if torch.cuda.is_available():
        facts["peak_device_memory"] = float(torch.cuda.max_memory_allocated())
    return Outcome(
        metric=views.metric,
        scores=[score(views.metric, views.y_test, one) for one in [constant, *predictions]],
        **rounds_of(ensemble),
        validation_loss=validation_loss(ensemble),
        label_holder=views.label_holder,
        facts=facts,
        device=device_description(),
    )


def device_description() -> str:
    """The device of torch on this machine, with torch's version."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{device}, torch {torch.__version__}"


def load_views(cell: Cell, sources: Sources) -> ViewSet:
    """The rows as the organizations of this cell see them."""
    masked = cell.options.get("preset") == "paper"
    patches = 1 if cell.method == "joint" else cell.organizations
    return _load(cell.dataset, patches, masked, sources.data)


@lru_cache(maxsize=2)
def _load(dataset: str, organizations: int | str, masked: bool, data: Path | None) -> ViewSet:
    if dataset in IMAGE_SETS:
        from gal_bench.data.images import load_images

        return load_images(dataset, int(organizations), data, masked=masked)
    if dataset == "ModelNet40":
        from gal_bench.data.shapes import load_shapes

        return load_shapes(data)
    if dataset.startswith("PhysioNet"):
        from gal_bench.data.physionet import load_physionet

        return load_physionet("mortality" if dataset.endswith("mortality") else "length of stay", data)
    raise MissingDataError(
        f"{dataset} is given out on request only, and is not read here: tables show the paper's figures of it"
    )


@dataclass
class _TimedDriver(Driver):
    """Runs organizations one after another, and notes how long they took."""

    seconds: float = 0.0

    def __call__(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        started = time.perf_counter()
        results = super().__call__(jobs)
        self.seconds += time.perf_counter() - started
        return results


def _assembled(cell: Cell, views: ViewSet) -> tuple[Ensemble, list[NDArray[Any]], dict[str, float]]:
    """GAL and its relatives (alone, joint, assisted learning): the ensemble, predictions of the test rows
    after each round, and facts.
    """
    train, test = (
        {"all": whole}
        if cell.method == "joint"
        else {
            name: view for name, view in parts.items() if cell.method != "alone" or name == views.label_holder
        }
        for parts, whole in ((views.train, views.whole_train), (views.test, views.whole_test))
    )
    models = local_models(cell, views, list(train))
    members = by_name([Organization(name, train[name], model) for name, model in models.items()])
    options = Options(rounds=cell.rounds, stacking=False, **options_of(cell, views))
    labels = (class_labels if views.classes else regression_labels)(views.y_train, options)
    task = make_task(
        labels,
        list(members),
        options,
        label_holder=next(iter(train)),
        label_holder_loss=None,
        stateful=[name for name, one in members.items() if one.stateful],
        tables=all(one.is_table for one in members.values()),
        seed=cell.seed,
    )
    driver, traffic, started = _TimedDriver(), Traffic(), time.perf_counter()
    if cell.method == "assisted_learning":
        rate = cell.options.get("rate", 1.0)
        ensemble = learn_assisted(task, members, order=list(train), rate=rate, driver=driver, traffic=traffic)
    else:
        ensemble = drive_learning(task, members, driver, traffic=traffic)
    _wait()
    seconds, fitting = time.perf_counter() - started, driver.seconds
    answers = drive_prediction(ensemble, members, test, len(views.y_test), driver)
    outputs = [labels.loss.inverse_link(output) for output in staged_outputs(ensemble, answers)]
    facts = {
        "seconds": seconds,
        "fit_seconds": fitting,
        "label_holder_seconds": seconds - fitting,
        "stored_bytes": _stored_bytes(members, ensemble),
        "trips": float(traffic.trips),
        "sent": float(traffic.sent),
        "received": float(traffic.received),
        "revisit_bytes": float(traffic.repeated_request),
    }
    return ensemble, outputs if views.classes else [output[:, 0] for output in outputs], facts


def _fused(cell: Cell, views: ViewSet) -> tuple[list[NDArray[Any]], dict[str, float]]:
    """Networks that are trained together, on the labels."""
    model = FusedNetworks(
        "features" if cell.method == "intermediate" else "outputs",
        classes=views.classes,
        loss="absolute_error",
        network=fusion_network(cell.models[0], cell.dataset),
        training=fusion_training(cell, FUSION_EPOCHS),
        random_state=cell.seed,
    )
    started = time.perf_counter()
    model.fit(views.train, views.y_train)
    _wait()
    return [model.predict(views.test)], {"seconds": time.perf_counter() - started}


def local_models(cell: Cell, views: ViewSet, names: Sequence[str]) -> dict[str, Any]:
    """By organization, as the cell says; disturbed, where it says so."""
    paper = cell.options.get("preset") == "paper"
    models = models_by_organization(cell.models, names, cell.dataset, paper=paper)
    if cell.local_losses:
        for name, loss in losses_of_halves(cell.local_losses, names, classes=views.classes).items():
            models[name].set_params(local_loss=loss)
    if cell.disturbance == "answers":
        noisy = {name: DisturbedModel(models[name], "answers", cell.sigma) for name in half(models)}
        return models | noisy
    if cell.disturbance in {"laplace", "interval"}:
        mechanism = PaperLaplace() if cell.disturbance == "laplace" else PaperInterval()
        how: dict[str, Any] = {"mechanism": mechanism, "seed": cell.seed}
        return {name: DisturbedModel(model, "mechanism", **how) for name, model in models.items()}
    return models


def options_of(cell: Cell, views: ViewSet) -> dict[str, Any]:
    """The engine's options: large sets hold a few rows back, numbers are learned with the paper's loss."""
    options = {name: value for name, value in cell.options.items() if name != "rate"}  # AL's alone
    if options.get("preset") != "paper" and len(views.y_train) >= LARGE:
        options.setdefault("fitted", "held-out")
        options.setdefault("validation_fraction", HELD_OUT)
    if views.metric == "mad":
        options.setdefault("loss", "absolute_error")
    return options


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _stored_bytes(members: Mapping[str, Organization], ensemble: Ensemble) -> float:
    """The stored bytes of the networks of all rounds; a network of several rounds counts once."""
    networks = {
        id(module): module
        for one in members.values()
        for (track, _), fitted in one.models.items()
        if track == ensemble.track
        for model in fitted
        for module in [_network(model)]
        if module is not None
    }
    return float(sum(value.nbytes for module in networks.values() for value in module.state_dict().values()))


def _network(model: Any) -> Any:
    """The network inside of a fitted local model, whatever is wrapped around it."""
    while not hasattr(model, "module_"):
        model = getattr(model, "estimators_", [getattr(model, "model_", None)])[0]
        if model is None:
            return None
    return model.module_
