"""One learning with adversaries among the organizations, and how well it then predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.algorithm import learn, predict
from gal.core.guards.plausible import Outside, screen
from gal.core.prediction import closed_output, final_output
from gal.core.requests import FitRequest
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.engine.labels import Labels, read_labels
from gal.engine.options import Options
from gal.engine.organization import Organization
from gal.engine.task_making import LARGE, make_task
from gal.models import LinearModel, TabularModel
from gal_bench.adversaries.hostile_answers import ATTACKS, TRIGGER, HostileAnswers, Member
from gal_bench.data.splits import Split

Floats = NDArray[np.float64]

ROUNDS = 5
MODELS = {"linear": LinearModel, "default": TabularModel}


@dataclass(frozen=True)
class Defence:
    """How the label holder learns and predicts."""

    options: Mapping[str, Any]
    outside: Outside
    probes: bool = True
    """Whether interaction probes follow the rounds on large tables, as the figures were measured."""


OFF = Defence(
    {
        "weights": "uniform",
        "cross_validation": 0,
        "validation_fraction": 0.0,
        "fitted": "in-sample",
        "patience": None,
        "closing": False,
    },
    "keep",
    probes=False,
)
DEFAULT = Defence({}, "missing")
VALIDATED = Defence({"validation_fraction": 0.2, "fitted": "held-out", "held_out_fraction": 0.2}, "missing")
DEFENCES = {"off": OFF, "default": DEFAULT, "validation rows": VALIDATED}
"""Off: equal weights, nothing validated, every answer believed. Validation rows: their residuals, and
those of the rows that choose weights, never leave the label holder.
"""


@dataclass(frozen=True)
class Score:
    """How well test rows are predicted."""

    clean: float
    """Accuracy, or mean absolute deviation."""
    triggered: float
    """The same on the test rows once they carry the trigger; NaN where nobody has one."""


class Trial:
    """The rows of one split, and learnings on them."""

    def __init__(self, split: Split, model: str, seed: int) -> None:
        self.split, self.model, self.seed = split, model, seed
        self.names = list(split.organizations)
        self.train = {
            name: split.X_train[columns].to_numpy(float) for name, columns in split.organizations.items()
        }
        self.test = {
            name: split.X_test[columns].to_numpy(float) for name, columns in split.organizations.items()
        }

    def alone(self, defence: Defence) -> Score:
        """The label holder without anybody."""
        return self._score(self.names[:1], [], defence)

    def without(self, n_adversaries: int, defence: Defence) -> Score:
        """All but those who would attack."""
        return self._score(self.names[: len(self.names) - n_adversaries], [], defence)

    def attacked(self, attack: str, defence: Defence) -> Score:
        """All, the last of them hostile."""
        return self._score(self.names, ATTACKS[attack](np.random.default_rng(self.seed)), defence)

    def _score(self, names: Sequence[str], attacks: Sequence[HostileAnswers], defence: Defence) -> Score:
        hostile = dict(zip(reversed(names), attacks, strict=False))
        views = {name: self.train[name] for name in names}
        views |= {name: attack.columns(views[name]) for name, attack in hostile.items()}
        members = {
            name: Member(Organization(name, views[name], MODELS[self.model]()), hostile.get(name))
            for name in names
        }
        probed = defence.probes and len(names) > 1 and len(self.split.y_train) >= LARGE
        options = Options(rounds=ROUNDS, interactions=probed, **defence.options)
        labels = read_labels(
            self.split.y_train, "classification" if self.split.classes else "regression", options
        )
        task = make_task(labels, list(names), options, label_holder=names[0], seed=self.seed)
        ensemble = drive(task, members)
        clean = self._quality(labels, forecast(ensemble, members, self.test, defence.outside))
        if not attacks:
            return Score(clean, float("nan"))
        triggered = dict(self.test)
        for name in hostile:
            triggered[name] = triggered[name].copy()
            triggered[name][:, 0] = TRIGGER
        return Score(clean, self._quality(labels, forecast(ensemble, members, triggered, defence.outside)))

    def _quality(self, labels: Labels, output: Floats) -> float:
        y = self.split.y_test
        if labels.classes is None:
            with np.errstate(over="ignore"):
                return float(np.abs(output[:, 0] - y).mean())
        probability = labels.loss.inverse_link(output)
        said = np.asarray(labels.classes)[probability.argmax(axis=1)]
        return float((said == y).mean())


def drive(task: Task, members: Mapping[str, Member]) -> Ensemble:
    """Algorithm 1 with these members."""
    steps = learn(task)
    requests = next(steps)
    try:
        while True:
            replies = [
                {name: members[name].fit(one, task.terms) for name in one.organizations}
                for one in requests
                if isinstance(one, FitRequest)
            ]
            requests = steps.send(replies)  # type: ignore[arg-type]
    except StopIteration as end:
        found: Ensemble = end.value
    return found


def forecast(
    ensemble: Ensemble, members: Mapping[str, Member], views: Mapping[str, Floats], outside: Outside
) -> Floats:
    """Outputs (n, K) of these rows."""
    n_rows = len(next(iter(views.values())))
    steps = predict(ensemble, n_rows)
    try:
        request = next(steps)
        replies: Mapping[str, Any] = {
            name: members[name].predict(request, ensemble.n_outputs, views[name])
            for name in request.organizations
        }
        if outside != "keep":
            replies = screen(ensemble, request, replies, n_rows, outside).replies
        steps.send(replies)
    except StopIteration as end:
        answers = end.value
    return closed_output(ensemble, answers, final_output(ensemble, answers))
