"""What the label holder makes of answers to crossed residuals, once all have come.

A model of her own sees F^T, what each organization added to it, and every crossed answer, as it is and with
its sign taken back. It is followed as far as the validation rows say, and only where what it gains there is
more than chance: the output is ``closed + share * (model - closed)`` in link space.

Where no crossed residual was heard it sees the answers to random targets instead, and is followed less far
than validation rows say, the less the fewer they are.

For two classes a network on all answers, of the rounds and of those, is followed from there: where validation
rows gain by more than chance, and less far than they say. (For several classes and for numbers the closing
model has one.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from gal.core.following import believed_share, certain_share
from gal.core.interactions.crossed_answers import Answered, CrossedModel, Crossings
from gal.core.line_search import Line
from gal.core.losses import BinaryLogLoss, Loss, SquaredError
from gal.core.requests import FitRequest, Request
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.engine.stacking import said
from gal.engine.told_labels import tells_of_labels
from gal.models.answer_network import AnswerNetwork

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

TREES, TREES_OF_NUMBERS = 60, 40
FIRST_TREES, HINTED = 10, 0.5
"""With so many trees of each kind validation rows choose which one grows to its end; none does where they
lower the loss by less than so many standard errors."""
LOOKED_AT, MOST_LOOKED_AT = 0.5, 64
"""What share of the columns a split looks at, and how many at most: with 26 classes there are thousands."""

LEAVES = (20, 3)
"""Fewest rows in a leaf: where labels are noisy many, where they are not few; validation rows choose."""

LEAVES_OF_RANDOM = (10, 40)
"""The same for a forest on answers to random targets: half of its trees have the one, half the other."""

FAR_AHEAD = 0.3
"""Where assistance saves so much of the label holder's loss, what a network would save of it alone is not
looked for: on the tables that were looked at up to a hundredth."""

NOTHING = Crossings((), {}, {})
"""Of a model that needs no answer beyond the rounds."""


@dataclass(frozen=True)
class CrossedForest:
    """A fitted model and how far it is followed; a `CrossedModel`."""

    model: Any
    """A forest; None where only the network is followed."""
    crossings: Crossings
    share: float
    """How far the forest is followed; where there is none, the network."""
    validation_loss: float
    loss: Loss
    network: AnswerNetwork | None = None
    """A second model, for two classes; None where there is none, as in files of before."""
    network_share: float = 0.0
    """How far it is followed from where the forest led."""

    def output(
        self,
        closed: Floats,
        output: Floats,
        parts: Mapping[str, Floats],
        answers: Mapping[Answered, Floats32],
        used: Sequence[Mapping[str, Floats32]],
    ) -> Floats:
        """The closed output of these rows moved towards the forest, and on towards the network."""
        if self.model is not None:
            table = self.crossings.features(output, parts, answers)
            closed = closed + self.share * (said(self.model, self.loss, table) - closed)
        if self.network is None:
            return closed
        own = _log_odds(self.network, [*used, *_by_round(self.crossings, answers)])
        return closed + self.network_share * (own - closed)


def _by_round(crossings: Crossings, answers: Mapping[Answered, Floats32]) -> list[dict[str, Floats32]]:
    """Answers beyond the rounds, like those of the rounds."""
    needed = crossings.answered
    return [{name: answers[one, name] for one, name in needed if one == round} for round in crossings.rounds]


def _log_odds(network: AnswerNetwork, answers: Sequence[Mapping[str, Floats32]]) -> Floats:
    """What a network of two classes says of each row, shape (n, 1)."""
    said = network.output(answers)
    return said[:, 1:] - said[:, :1]


@dataclass(frozen=True)
class PublicCrossing:
    """Which crossed answers are asked for, by a noisy copy of the labels alone: the
    private refit makes something of them.
    """

    crossings: Crossings
    share: float = 0.0
    validation_loss: float = float("nan")

    def output(
        self,
        closed: Floats,
        output: Floats,  # noqa: ARG002
        parts: Mapping[str, Floats],  # noqa: ARG002
        answers: Mapping[Answered, Floats32],  # noqa: ARG002
        used: Sequence[Mapping[str, Floats32]],  # noqa: ARG002
    ) -> Floats:
        """The public output stays what it was."""
        return closed


class FurtherAnswers:
    """Keeps the answers of rounds beyond the task's, for a private refit: pass it as ``on_message``."""

    def __init__(self, then: Any = None, *, keeps: bool = True) -> None:
        """``then`` is told everything, too; ``keeps``: whether there will be a refit."""
        self.then, self.keeps = then, keeps
        self.said: dict[Answered, Floats32] = {}

    def __call__(self, requests: Sequence[Request], replies: Sequence[Mapping[str, Any]]) -> None:
        """Note one round trip."""
        if self.then is not None:
            self.then(requests, replies)
        for request, answers in zip(requests, replies, strict=True) if self.keeps else ():
            if isinstance(request, FitRequest) and request.target != "residual":
                self.said |= {
                    (request.round, name): np.asarray(values, dtype=np.float32)
                    for name, values in answers.items()
                    if isinstance(values, np.ndarray)
                }

    def added(
        self, ensemble: Ensemble, fitted: Sequence[Mapping[str, Floats32]]
    ) -> tuple[list[Mapping[str, Floats32]], list[Mapping[str, float]]]:
        """The answers of rounds that are used, crossed ones as one round more, and what counts how much."""
        rounds, counts = list(fitted), list(ensemble.coefficients)
        if ensemble.crossing is None:
            return rounds, counts
        parts: dict[str, Floats] = {}
        for values, weights in zip(rounds, counts, strict=True):
            for name, weight in weights.items():
                parts[name] = parts.get(name, 0.0) + weight * values[name].astype(np.float64)
        products = ensemble.crossing.crossings.products(parts, self.said)
        return [*rounds, products], [*counts, dict.fromkeys(products, 0.0)]


@dataclass(frozen=True)
class Interactions:
    """How crossed residuals are asked for and learned from: `LearnsCrossed`."""

    signs: int = 12
    most_pairs: int | None = None
    """Of the signs, for what two know together; None: all."""
    n_jobs: int | None = None
    """Cores that the forest is fitted with. What is learned does not depend on them."""
    coarse: bool = False
    """Where no crossed residual is heard, the forest sees the answers to random targets."""
    private: bool = False
    """Labels are a noisy copy: what is heard is asked for in prediction, and the private refit uses it."""

    @property
    def pairs(self) -> int:
        """How many signs are for what two organizations know together."""
        return self.signs if self.most_pairs is None else self.most_pairs

    def __call__(
        self,
        task: Task,
        crossings: Crossings,
        closed: Floats,
        output: Floats,
        parts: Mapping[str, Floats],
        answers: Mapping[Answered, Floats32],
        used: Sequence[Mapping[str, Floats32]],
    ) -> CrossedForest | PublicCrossing | None:
        """Fit it on all rows but the validation rows, which decide its share; None where it has none."""
        if self.private:
            return PublicCrossing(crossings)
        found = self._followed(task, crossings, crossings.features(output, parts, answers), closed)
        if task.closing is None or not isinstance(task.loss, BinaryLogLoss):
            return found
        if found is None:
            return _network_alone(task, closed, used)
        moved = found.output(closed, output, parts, answers, used)
        return _with_network(task, found, moved, [*used, *_by_round(crossings, answers)])

    def alone(
        self,
        task: Task,
        closed: Floats,
        used: Sequence[Mapping[str, Floats32]],
        helped: CrossedModel,
    ) -> CrossedForest | None:
        """A network, where assistance has one and is not far ahead."""
        if not isinstance(helped, CrossedForest) or helped.network is None:
            return None
        judges, weight = task.rows.validation, task.sample_weight
        losses = task.loss.value(task.y[judges], closed[judges])
        own = float(np.average(losses, weights=None if weight is None else weight[judges]))
        is_far = helped.validation_loss < (1 - FAR_AHEAD) * own
        return None if is_far else _network_alone(task, closed, used)

    def _followed(
        self, task: Task, crossings: Crossings, table: Floats32, closed: Floats
    ) -> CrossedForest | None:
        """A forest on what is seen of each row, as far as validation rows follow it."""
        crossed = bool(crossings.vectors)
        model = self._chosen(task, table, closed) if crossed else self._of_both_kinds(task, table)
        if model is None:
            return None
        line = _toward(task, model, table, closed)
        share = certain_share(line) if crossed else believed_share(line)
        return CrossedForest(model, crossings, share, line.value(share), task.loss) if share > 0 else None

    def betrays(self, task: Task, said: Sequence[Floats32]) -> bool:
        """Looked at where labels are 0 and 1, and no noisy copy."""
        return self.coarse and tells_of_labels(task, said)

    def _chosen(self, task: Task, table: Floats32, closed: Floats) -> Any:
        """Trees of the kind whose first ones lower the loss on validation rows most; None where none do."""
        trees = TREES_OF_NUMBERS if isinstance(task.loss, SquaredError) else TREES
        found: list[tuple[float, Any]] = []
        for leaf in LEAVES:
            first = self._grown(task, table, self._unfitted(task, table, leaf), FIRST_TREES)
            line = _toward(task, first, table, closed)
            share = certain_share(line, HINTED)
            found += [(line.value(share), first)] if share > 0 else []
        return self._grown(task, table, min(found, key=lambda one: one[0])[1], trees) if found else None

    def _of_both_kinds(self, task: Task, table: Floats32) -> Any:
        """Half of the trees have small leaves, half large ones."""
        model, more = (
            self._grown(task, table, self._unfitted(task, table, leaf, turn), TREES // 2)
            for turn, leaf in enumerate(LEAVES_OF_RANDOM)
        )
        model.estimators_ = [*model.estimators_, *more.estimators_]
        return model.set_params(n_estimators=len(model.estimators_))

    def _unfitted(self, task: Task, table: Floats32, leaf: int, turn: int = 0) -> Any:
        """Another one at every ``turn``."""
        forest = ExtraTreesRegressor if isinstance(task.loss, SquaredError) else ExtraTreesClassifier
        return forest(
            max_features=min(LOOKED_AT, MOST_LOOKED_AT / table.shape[1]),
            min_samples_leaf=leaf,
            random_state=task.seed + turn,
        )

    def _grown(self, task: Task, table: Floats32, forest: Any, trees: int) -> Any:
        """With so many trees, on all rows but the validation rows."""
        rest = np.setdiff1d(np.arange(task.rows.n), task.rows.validation)
        weight, target = task.sample_weight, task.y if task.y.shape[1] > 1 else task.y[:, 0]
        if trees > len(getattr(forest, "estimators_", ())):
            forest.set_params(n_estimators=trees, warm_start=True, n_jobs=self.n_jobs)
            forest.fit(table[rest], target[rest], None if weight is None else weight[rest])
        # Several cores add trees up in the order in which they come.
        return forest.set_params(n_jobs=None, warm_start=False)


def _toward(task: Task, model: Any, table: Floats32, closed: Floats) -> Line:
    """From where the validation rows are to where this model sees them."""
    judges, weight = task.rows.validation, task.sample_weight
    toward = said(model, task.loss, table[judges]) - closed[judges]
    return Line(task.loss, task.y[judges], closed[judges], toward, None if weight is None else weight[judges])


def _network_alone(
    task: Task, closed: Floats, used: Sequence[Mapping[str, Floats32]]
) -> CrossedForest | None:
    """A network on the answers of the rounds: nobody is asked for anything beyond them."""
    return _with_network(task, CrossedForest(None, NOTHING, 0.0, np.inf, task.loss), closed, used)


def _with_network(
    task: Task, found: CrossedForest, moved: Floats, answers: Sequence[Mapping[str, Floats32]]
) -> CrossedForest | None:
    """The same followed by a network on all answers, as far as validation rows are believed."""
    rest = np.setdiff1d(np.arange(task.rows.n), task.rows.validation)
    judges, weight = task.rows.validation, task.sample_weight
    alone = found.model is None
    network = AnswerNetwork.fit(
        [{name: values[rest] for name, values in said.items()} for said in answers],
        task.y[rest, 0].astype(np.intp),
        2,
        None if weight is None else weight[rest],
        task.seed,
        len(found.crossings.rounds),
    )
    if network is None:
        return None if alone else found
    said = _log_odds(network, [{name: values[judges] for name, values in one.items()} for one in answers])
    heard = None if weight is None else weight[judges]
    line = Line(task.loss, task.y[judges], moved[judges], said - moved[judges], heard)
    share = min(believed_share(line), certain_share(line))
    if not share:
        return None if alone else found
    return replace(
        found,
        share=share if alone else found.share,
        validation_loss=line.value(share),
        network=network,
        network_share=share,
    )
