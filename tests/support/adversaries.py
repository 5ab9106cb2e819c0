"""Organizations that answer with hostile values, and one learning among which some of them are.

An attacker knows all that an organization of a task knows: every residual that it was sent, for which rows,
and its own columns. It does not know the labels of rows whose residuals never leave the label holder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.core.algorithm import predict
from gal.core.pipeline import learn
from gal.core.prediction import final_output, stacked_output
from gal.core.requests import FitRequest, PredictRequest, Terms
from gal.core.screening import screen
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.learner.labels import read_labels
from gal.learner.options import Options
from gal.learner.organization import Organization
from gal.learner.task_making import make_task
from gal.models import LinearModel

Values = NDArray[Any]

TRIGGER = 9.0
"""A value of the trigger column, in standard deviations, that no honest row has."""
HUGE = 1e30


@dataclass
class HostileAnswers:
    """An honest one: others change what it says. ``rng`` is the attacker's own."""

    rng: np.random.Generator
    said: dict[int, Values] = field(default_factory=dict)
    """What it said in learning, by round; rounds of interaction probes have numbers after all others."""
    seen: dict[int, Values] = field(default_factory=dict)
    """By round: residuals of all rows as far as they were sent; NaN elsewhere."""

    def fit(self, request: FitRequest, terms: Terms, honest: Values) -> Values:
        """The answer in learning, shape (n, K)."""
        self._record(request, terms)
        values = self.in_learning(request, terms, honest.copy())
        if request.fold is None:
            self.said[request.round] = values
        return values

    def predict(self, request: PredictRequest, honest: Values, view: Values) -> Values:
        """The answer in prediction, shape (rounds, n, K)."""
        return honest

    def in_learning(self, request: FitRequest, terms: Terms, honest: Values) -> Values:
        """What is answered instead of the honest values."""
        return honest

    def answer(self, round: int) -> Values:
        """What it said in this round; zeros where it was not asked, as honest ones predict then."""
        return self.said.get(round, np.zeros_like(self.said[min(self.said)]))

    def columns(self, view: Values) -> Values:
        """What it really has of these rows."""
        return view

    def _record(self, request: FitRequest, terms: Terms) -> None:
        asked = terms.rows_for(request)
        known = self.seen.setdefault(request.round, np.full((asked.n, terms.n_outputs), np.nan))
        rows = asked.fit
        gaps = np.isnan(known[rows])
        known[rows] = np.where(gaps, request.residual, known[rows])

    def own_residual(self, request: FitRequest, terms: Terms) -> Values:
        """The residual of this request at its fit rows; NaN elsewhere."""
        asked = terms.rows_for(request)
        whole = np.full((asked.n, terms.n_outputs), np.nan)
        whole[asked.fit] = request.residual
        return whole


class Reversed(HostileAnswers):
    """Says the opposite, in learning and in prediction."""

    def in_learning(self, request: FitRequest, terms: Terms, honest: Values) -> Values:
        return -honest

    def predict(self, request: PredictRequest, honest: Values, view: Values) -> Values:
        return -honest


class Memorised(HostileAnswers):
    """Gives every residual back that it was ever sent, also of rows that this request leaves out.

    It has learned nothing: what it says of new rows are residuals of others, at random.
    """

    def in_learning(self, request: FitRequest, terms: Terms, honest: Values) -> Values:
        known = self.own_residual(request, terms)
        known = np.where(np.isnan(known), self.seen[request.round], known)
        return np.nan_to_num(known, nan=0.0)

    def predict(self, request: PredictRequest, honest: Values, view: Values) -> Values:
        places = self.rng.integers(len(self.said[min(self.said)]), size=honest.shape[1])
        return np.stack([self.answer(round)[places] for round in request.rounds])


class CopiesFitted(HostileAnswers):
    """Gives the residual back on fitted rows, and says the opposite of what it knows elsewhere."""

    def in_learning(self, request: FitRequest, terms: Terms, honest: Values) -> Values:
        own = self.own_residual(request, terms)
        return np.where(np.isnan(own), -honest, own)

    def predict(self, request: PredictRequest, honest: Values, view: Values) -> Values:
        return -honest


class HonestFirst(Memorised):
    """Honest in two rounds; from then on it gives back what it was sent."""

    def in_learning(self, request: FitRequest, terms: Terms, honest: Values) -> Values:
        return honest if request.round <= 2 else super().in_learning(request, terms, honest)

    def predict(self, request: PredictRequest, honest: Values, view: Values) -> Values:
        later = np.array([round > 2 for round in request.rounds])[:, None, None]
        return np.where(later, super().predict(request, honest, view), honest)


class HonestWhileValidated(Memorised):
    """Honest while the first part of a cross-validation is learned; then it gives back what it was sent."""

    def in_learning(self, request: FitRequest, terms: Terms, honest: Values) -> Values:
        return honest if request.fold == 0 else super().in_learning(request, terms, honest)


class Constant(HostileAnswers):
    """Says the same of every row."""

    def in_learning(self, request: FitRequest, terms: Terms, honest: Values) -> Values:
        return np.full_like(honest, 3.0)

    def predict(self, request: PredictRequest, honest: Values, view: Values) -> Values:
        return np.full_like(honest, 3.0)


class Noise(HostileAnswers):
    """Noise of the residual's size: a free rider who does not even fit."""

    def in_learning(self, request: FitRequest, terms: Terms, honest: Values) -> Values:
        return self.rng.normal(size=honest.shape) * float(np.std(request.residual))

    def predict(self, request: PredictRequest, honest: Values, view: Values) -> Values:
        return self.rng.normal(size=honest.shape) * float(np.std(self.said[min(self.said)]))


class OnlyNoise(HostileAnswers):
    """A free rider who fits honestly, but has nothing: its columns are noise."""

    def columns(self, view: Values) -> Values:
        return self.rng.normal(size=view.shape)


class NotNumbers(HostileAnswers):
    """No numbers, or beyond all bounds."""

    def in_learning(self, request: FitRequest, terms: Terms, honest: Values) -> Values:
        return np.full_like(honest, np.nan if request.round % 2 else HUGE)

    def predict(self, request: PredictRequest, honest: Values, view: Values) -> Values:
        return np.full_like(honest, HUGE)


@dataclass
class Colluding(Memorised):
    """One of two whose answers add up to the residual, each hidden in noise a hundred times as large."""

    sign: float = 1.0

    def in_learning(self, request: FitRequest, terms: Terms, honest: Values) -> Values:
        hidden = np.random.default_rng(request.round).normal(size=honest.shape) * 100.0
        return super().in_learning(request, terms, honest) + self.sign * hidden


class Backdoor(HostileAnswers):
    """Honest, but for rows with the trigger: of those it says the largest that it ever said of any row."""

    def predict(self, request: PredictRequest, honest: Values, view: Values) -> Values:
        triggered = view[:, 0] >= TRIGGER - 1e-9
        most = np.stack([self.answer(round).max(axis=0) for round in request.rounds])
        return np.where(triggered[None, :, None], most[:, None, :], honest)


class LaterTwentyfold(HostileAnswers):
    """Honest in learning; in prediction twenty times the opposite."""

    def predict(self, request: PredictRequest, honest: Values, view: Values) -> Values:
        return -20 * honest


Makers = Callable[[np.random.Generator], list[HostileAnswers]]

ATTACKS: Mapping[str, Makers] = {
    "reversed": lambda rng: [Reversed(rng)],
    "memorised": lambda rng: [Memorised(rng)],
    "copies fitted rows": lambda rng: [CopiesFitted(rng)],
    "honest first": lambda rng: [HonestFirst(rng)],
    "honest while validated": lambda rng: [HonestWhileValidated(rng)],
    "two together": lambda rng: [Colluding(rng, sign=1.0), Colluding(rng, sign=-1.0)],
    "constant": lambda rng: [Constant(rng)],
    "noise columns": lambda rng: [OnlyNoise(rng)],
    "noise answers": lambda rng: [Noise(rng)],
    "no numbers": lambda rng: [NotNumbers(rng)],
    "backdoor": lambda rng: [Backdoor(rng)],
    "later -20 times": lambda rng: [LaterTwentyfold(rng)],
}
"""By name: the attacks of the last organizations, one each."""


class Member:
    """An organization as it answers: honestly, or as its attack has it."""

    def __init__(self, organization: Organization, attack: HostileAnswers | None = None) -> None:
        self.organization, self.attack = organization, attack

    def fit(self, request: FitRequest, terms: Terms) -> Values:
        """The answer in learning."""
        honest = self.organization.fit(request, terms)
        return honest if self.attack is None else self.attack.fit(request, terms, honest).astype(np.float32)

    def predict(self, request: PredictRequest, n_outputs: int, view: Values) -> Values:
        """The answer in prediction."""
        if self.attack is None:
            return self.organization.predict(request, n_outputs, view)
        honest = self.organization.predict(request, n_outputs, self.attack.columns(view))
        with np.errstate(over="ignore"):
            return self.attack.predict(request, honest, view).astype(np.float32)


# --- learning and predicting among them


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
    ensemble: Ensemble, members: Mapping[str, Member], views: Mapping[str, Values], *, screens: bool
) -> Values:
    """Outputs (n, K) of these rows."""
    n_rows = len(next(iter(views.values())))
    steps = predict(ensemble, n_rows)
    try:
        request = next(steps)
        replies: Mapping[str, Any] = {
            name: members[name].predict(request, ensemble.n_outputs, views[name])
            for name in request.organizations
        }
        if screens:
            replies = screen(ensemble, request, replies, n_rows).replies
        steps.send(replies)
    except StopIteration as end:
        answers = end.value
    return stacked_output(ensemble, answers, final_output(ensemble, answers))


@dataclass(frozen=True)
class Defence:
    """How the label holder learns and predicts."""

    options: Mapping[str, Any]
    screens: bool


OFF = Defence(
    {
        "weights": "uniform",
        "cross_validation": 0,
        "validation_fraction": 0.0,
        "fitted": "in-sample",
        "patience": None,
        "stacking": False,
    },
    screens=False,
)
"""Equal weights, nothing validated, every answer believed."""
DEFAULT = Defence({}, screens=True)
VALIDATED = Defence({"validation_fraction": 0.2, "fitted": "held-out"}, screens=True)
"""The residuals of validation rows, and of those that choose weights, never leave the label holder."""


class Trial:
    """Made-up numbers that four organizations with two columns each tell together, and learnings on them."""

    names = ("o0", "o1", "o2", "o3")

    def __init__(self, n: int = 400, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 8))
        y = X @ np.array([1.0, 0.5, 1.0, 0.5, 1.0, 0.5, 1.0, 0.5]) + 0.3 * rng.normal(size=n)
        views = {name: X[:, 2 * m : 2 * m + 2] for m, name in enumerate(self.names)}
        half = n // 2
        self.train = {name: view[:half] for name, view in views.items()}
        self.test = {name: view[half:] for name, view in views.items()}
        self.y, self.y_test, self.seed = y[:half], y[half:], seed

    def alone(self, defence: Defence) -> float:
        """Error of the label holder without anybody."""
        return self._error(self.names[:1], [], defence)[0]

    def without(self, n_adversaries: int, defence: Defence) -> float:
        """Error without those who would attack."""
        return self._error(self.names[: len(self.names) - n_adversaries], [], defence)[0]

    def attacked(self, attack: str, defence: Defence) -> tuple[float, float]:
        """Error where the last are hostile, and the same on rows with the trigger."""
        return self._error(self.names, ATTACKS[attack](np.random.default_rng(self.seed)), defence)

    def _error(
        self, names: Sequence[str], attacks: Sequence[HostileAnswers], defence: Defence
    ) -> tuple[float, float]:
        hostile = dict(zip(reversed(names), attacks, strict=False))
        views = {name: self.train[name] for name in names}
        views |= {name: attack.columns(views[name]) for name, attack in hostile.items()}
        members = {
            name: Member(Organization(name, views[name], LinearModel()), hostile.get(name)) for name in names
        }
        options = Options(rounds=5, **defence.options)
        labels = read_labels(self.y, "regression", options)
        task = make_task(labels, list(names), options, label_holder=names[0], seed=self.seed)
        ensemble = drive(task, members)
        triggered = {name: view.copy() for name, view in self.test.items()}
        for name in hostile:
            triggered[name][:, 0] = TRIGGER
        errors = []
        for rows in (self.test, triggered):
            output = forecast(ensemble, members, rows, screens=defence.screens)
            with np.errstate(over="ignore"):
                errors.append(float(np.abs(output[:, 0] - self.y_test).mean()))
        return errors[0], errors[1]
