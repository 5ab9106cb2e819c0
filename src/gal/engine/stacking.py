"""The closing model: what the label holder makes of all that she received, once the rounds are over.

F^T adds the fitted values up, so it has no word for what columns of different organizations say
*together*. But the label holder holds every fitted value of every round, and gets the same numbers
again for prediction: a model of her own on them can hear it. It costs no request and no byte, and
nobody else learns of it. It takes part as far as the validation rows say: the output is
``F^T + share * (closing - F^T)`` in link space. Once they have said all they can, it is fitted on them too.

For several classes and for numbers it is a forest and a network. The leaves of several classes are pure, so
that the forest is right more often than it says: validation rows also find how much more certain it may be.
For numbers they choose between coarse trees and fine ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import clone, is_classifier
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from gal.core.closings import ClosingModel, Replies
from gal.core.following import believed_share, certain_share
from gal.core.line_search import ExactSearch, Line
from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss, SquaredError
from gal.core.task import Task
from gal.errors import InvalidOptionError, LocalModelError
from gal.models.adapters import fit_weighted, set_seed, supports_sample_weight
from gal.models.answer_network import AnswerNetwork
from gal.models.grown_forests import ask_forest, grow_forest

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

TREES, TREES_OF_TWO, TREES_OF_NUMBERS = 50, 25, 25
"""Of the forest, and for two classes and for numbers of each of its halves: validation rows judge the first,
the second grows on all rows. For two classes 50 trees that are grown anew were no better
(``benchmarks/choices.py``); for several classes they were."""

LEAF_OF_TWO = 10
"""Rows in a leaf for two classes. On rows kept apart of the training rows, 10 instead of 2 had the lower log
loss on both splits of credit default (.4363, .4320 against .4365, .4336), the higher on Adult (.2850
against .2845), and took a tenth less time in all."""

DRAWN, LEAF_OF_DRAWN = 0.25, 3
"""For two classes the first trees see so much of the rows each, with so many rows in a leaf: as many leaves
as without, and a tree takes a third of the time."""

LOOKED_AT, LEAF_OF_NUMBERS, DRAWN_OF_NUMBERS = 1 / 3, 5, 0.5
"""For numbers coarse trees look at so much of the columns in a split and have so many rows in a leaf, at
least; fine ones look at all columns, end where a leaf has one row, and see so much of the rows each."""

MUCH = 0.4
"""Where the first trees of two classes are followed so far, all grow anew on all rows: where labels are clear
that is better. Else the others are like the first (``benchmarks/choices.py``)."""

LEAF_OF_SEVERAL = 1
"""Rows in a leaf for several classes: pure leaves are right more often, and how certain that makes the forest
is what validation rows say."""

FIRST_TREES = 10
"""With so many trees validation rows say whether the others are worth growing."""

MORE, LITTLE = 5, 0.02
"""All trees and a network are expected to bring no more than so many times what the first trees bring; where
that is less than this share of what is missing to the rival, it does not matter. (On ten tables they brought
up to 5.4 times as much of one organization's answers, that where the first trees brought a thousandth.)"""

SMALLEST_SHARE = 0.01
"""A closing model with less to say is left out."""

SMALLEST_OF_NETWORK = 0.05
"""A network with less to say is not worth another fit."""

BEYOND_CHANCE = 2.0
"""Standard errors that a cross-validated closing model has to gain: the rows that judge chose its shares."""


@dataclass(frozen=True)
class Closing:
    """A fitted closing model and how far it is followed; a ``gal.core.closings.ClosingModel``."""

    model: Any
    """None where only the network is followed."""
    share: float
    """How far the model is followed; where there is none, the network."""
    validation_loss: float
    """Of the output with it, on the validation rows; a little flattering, since they chose the share."""
    loss: Loss
    """The task's loss: in its link space the model speaks."""
    sharpness: float = 1.0
    """How much more certain than it says the model is taken to be."""
    network: AnswerNetwork | None = None
    """A second model, not for two classes; None where there is none, as in files of before."""
    network_share: float = 0.0
    """How far it is followed from where the first one led."""

    def output(self, output: Floats, answers: Sequence[Mapping[str, Floats32]]) -> Floats:
        """F^T of these rows moved towards the closing model; ``answers`` by round and organization."""
        closed = output
        if self.model is not None:
            own = self.sharpness * said(self.model, self.loss, features(output, answers))
            closed = output + self.share * (own - output)
        if self.network is None:
            return closed
        return closed + self.network_share * (self.network.output(answers) - closed)


def closes(loss: Loss) -> bool:
    """Whether a closing model is known for this loss."""
    return isinstance(loss, BinaryLogLoss | MultinomialLogLoss | SquaredError)


def check_closing(closing: Any, loss: Loss, *, validated: bool) -> None:
    """Say now, not after the last round, that the closing model asked for is not possible."""
    if isinstance(closing, str) or closing is False:
        return
    if not closes(loss):
        raise InvalidOptionError(f"no closing model is known for the loss {loss.name}: use closing=False")
    if not validated:
        raise InvalidOptionError(
            "a closing model needs validation rows, which small tables have only on request: "
            "pass validation_fraction=0.1, or leave closing at 'auto'"
        )
    if closing is not True and is_classifier(closing) == isinstance(loss, SquaredError):
        kind = "a regressor" if isinstance(loss, SquaredError) else "a classifier with predict_proba"
        raise InvalidOptionError(f"closing must be {kind} here, got {closing!r}")
    if closing is not True and is_classifier(closing) and not hasattr(closing, "predict_proba"):
        raise InvalidOptionError(f"closing must be a classifier with predict_proba here, got {closing!r}")


@dataclass(frozen=True)
class Stacking:
    """How a task's closing model is learned: the ``gal.core.closings.LearnsClosing`` of all ways into GAL."""

    given: Any = None
    """A model of the user's own; None: a forest."""
    n_jobs: int | None = None
    """Cores that the forest is fitted with. What is learned does not depend on them."""

    def __call__(
        self,
        task: Task,
        coefficients: Sequence[Mapping[str, float]],
        fitted: Sequence[Mapping[str, Floats32]],
        rival: float | None = None,
    ) -> Closing | None:
        """Fit it on all rows but the validation rows, which decide its share; None where it has none.

        Of a forest the first trees may be judged before the others grow: where these would not be followed,
        or change little beside what is missing to the ``rival``, no more is fitted. For two classes they also
        say whether trees need all rows.
        """
        received = KeptReplies(task, coefficients, fitted)
        is_rest = np.ones(task.rows.n, dtype=np.bool_)
        is_rest[task.rows.validation] = False
        rest = np.flatnonzero(is_rest)
        table = received.table(rest)
        if self.given is not None:
            return self._judged(self._fitted(received, rest, table, task.seed), received)[0]
        two, trees, model = isinstance(task.loss, BinaryLogLoss), self._unfitted(task.loss).n_estimators, None
        numbers = isinstance(task.loss, SquaredError)
        if trees > FIRST_TREES and (rival is not None or two or numbers):
            model, found, before = self._first_trees(received, rest, table)
            if _settled(task.loss, found, before, rival):
                return found
            if two and found is not None and found.share >= MUCH:
                model = None
        found, _ = self._judged(self._fitted(received, rest, table, task.seed, trees, model), received)
        return _with_network(found, received, rest) if self._has_network(task.loss) else found

    def _first_trees(
        self, received: KeptReplies, rest: NDArray[np.intp], table: Floats32
    ) -> tuple[Any, Closing | None, float]:
        """The first trees, what validation rows make of them, and their loss without. For numbers of both
        kinds, those that lower the loss more.
        """
        loss = received.task.loss
        kinds = (False, True) if isinstance(loss, SquaredError) else (isinstance(loss, BinaryLogLoss),)
        begun = [
            self._fitted(
                received, rest, table, received.task.seed, FIRST_TREES, self._unfitted(loss, drawn=one)
            )
            for one in kinds
        ]
        judged = [(model, *self._judged(model, received)) for model in begun]
        return min(judged, key=lambda one: one[2] if one[1] is None else one[1].validation_loss)

    def _judged(self, model: Any, received: KeptReplies) -> tuple[Closing | None, float]:
        """How far validation rows follow this model, and their loss without it."""
        task, judges = received.task, received.task.rows.validation
        output, y = received.output[judges], task.y[judges]
        heard = None if task.sample_weight is None else task.sample_weight[judges]
        own = self._said(model, received, judges)
        several = self.given is None and isinstance(task.loss, MultinomialLogLoss)
        sharpness = _sharpness(task.loss, y, output, own, heard) if several else 1.0
        line = Line(task.loss, y, output, sharpness * own - output, heard)
        share = float(np.clip(ExactSearch()(line), 0.0, 1.0))
        loss, before = line.value(share), line.value(0.0)
        if share < SMALLEST_SHARE or not loss < before:
            return None, before
        return Closing(model, share, loss, task.loss, sharpness), before

    def whole(
        self,
        closing: ClosingModel,
        task: Task,
        coefficients: Sequence[Mapping[str, float]],
        fitted: Sequence[Mapping[str, Floats32]],
    ) -> Closing:
        """Fit it once more, on the validation rows too; its shares and loss stay what they found.

        For two classes and for numbers a forest keeps the trees that were judged, and grows as many more.
        """
        joins = self._joins(task.loss)
        rows, received = np.arange(task.rows.n), KeptReplies(task, coefficients, fitted)
        if not isinstance(closing, Closing):
            model = self._fitted(received, rows, received.table(rows), task.seed)
            return Closing(model, closing.share, closing.validation_loss, task.loss)
        network = None if closing.network is None else _network(received, rows)
        if closing.model is None:
            return replace(closing, network=network)
        begun = self._unfitted(task.loss, drawn=joins and closing.model.bootstrap)
        model = self._fitted(received, rows, received.table(rows), task.seed + joins, begun=begun)
        if joins:
            model = _together(closing.model, model)
        return replace(closing, model=model, network=network)

    def cross_validated(
        self,
        task: Task,
        left_out: Sequence[Replies],
        coefficients: Sequence[Mapping[str, float]],
        fitted: Sequence[Mapping[str, Floats32]],
    ) -> tuple[Closing, Floats] | None:
        """One for each part, fitted on the others' rows, then one of all rows; all are followed as far as the
        parts say on average. None where a part finds no forest, or all together gain no more than chance
        does. For numbers trees are fine where they are in every part.
        """
        parts = [replace(task, rows=task.rows.without(part)) for part in range(task.rows.n_parts)]
        found = [self(part, *replies) for part, replies in zip(parts, left_out, strict=True)]
        closings = [one for one in found if one is not None and one.model is not None]
        if not closings or len(closings) < len(found):
            return None
        shape = task.rows.n, task.loss.n_outputs
        output, closed = np.empty(shape), np.empty(shape)
        for part, closing, replies in zip(parts, closings, left_out, strict=True):
            received, rows = KeptReplies(part, *replies), part.rows.validation
            output[rows] = received.output[rows]
            closed[rows] = _alike(closing, closings).output(output[rows], received.answers(rows))
        gains = task.loss.value(task.y, output) - task.loss.value(task.y, closed)
        if not gains.mean() > BEYOND_CHANCE * gains.std() / np.sqrt(len(gains)):
            return None
        received, every = KeptReplies(task, coefficients, fitted), np.arange(task.rows.n)
        table = received.table(every)
        joins = self._joins(task.loss)
        drawn = joins and all(one.model.bootstrap for one in closings)
        model, *more = (
            self._fitted(received, every, table, seed, begun=self._unfitted(task.loss, drawn=drawn))
            for seed in range(task.seed, task.seed + 1 + joins)
        )
        if joins:
            model = _together(model, *more)
        last = _alike(closings[0], closings)
        network = None if last.network is None else _network(received, every)
        value = float(task.loss.value(task.y, closed).mean())
        return replace(last, model=model, network=network, validation_loss=value), closed

    def _has_network(self, loss: Loss) -> bool:
        """Whether a network may follow the forest. (Two classes have one after crossed residuals.)"""
        return self.given is None and isinstance(loss, MultinomialLogLoss | SquaredError)

    def _joins(self, loss: Loss) -> bool:
        """Whether the forest has two halves."""
        return self.given is None and isinstance(loss, BinaryLogLoss | SquaredError)

    def _fitted(
        self,
        received: KeptReplies,
        rows: NDArray[np.intp],
        table: Floats32,
        seed: int,
        trees: int | None = None,
        begun: Any = None,
    ) -> Any:
        """A model of these rows; the same one for the same rows and seed.

        ``trees``: of a forest, only so many; ``begun``: one to fit, whose first trees may be grown already.
        """
        task, model = received.task, self._unfitted(received.task.loss) if begun is None else begun
        set_seed(model, seed)
        if trees is not None:
            model.set_params(n_estimators=trees, warm_start=True, n_jobs=self.n_jobs)
        weight, target = task.sample_weight, task.y if task.y.shape[1] > 1 else task.y[:, 0]
        heard = None if weight is None or not supports_sample_weight(model) else _of_mean_one(weight[rows])
        plain = self.given is None and self.n_jobs is None and isinstance(model, ExtraTreesRegressor)
        with _whose_failure(model):
            if plain and heard is None and target.ndim == 1:
                grow_forest(model, table, target[rows])
            else:
                fit_weighted(model, table, target[rows], heard)
        if self.given is None:
            # Several cores add trees up in the order in which they come: never the same bits.
            model.set_params(n_jobs=None, warm_start=False)
        return model

    def _said(self, model: Any, received: KeptReplies, rows: NDArray[np.intp]) -> Floats:
        with _whose_failure(model):
            return said(model, received.task.loss, received.table(rows))

    def _unfitted(self, loss: Loss, *, drawn: bool = False) -> Any:
        """A user's model, or a forest. For two classes it fits 0 and 1 as numbers: the trees are those of a
        classifier, in less time. ``drawn``: its trees see some of the rows only; for numbers, the fine ones.
        """
        if self.given is not None:
            return clone(self.given)
        if isinstance(loss, SquaredError):
            return ExtraTreesRegressor(
                TREES_OF_NUMBERS,
                max_features=1.0 if drawn else LOOKED_AT,
                min_samples_leaf=1 if drawn else LEAF_OF_NUMBERS,
                bootstrap=drawn,
                max_samples=DRAWN_OF_NUMBERS if drawn else None,
                n_jobs=self.n_jobs,
            )
        if isinstance(loss, MultinomialLogLoss):
            return ExtraTreesClassifier(TREES, min_samples_leaf=LEAF_OF_SEVERAL, n_jobs=self.n_jobs)
        return ExtraTreesRegressor(
            TREES_OF_TWO,
            max_features="sqrt",
            min_samples_leaf=LEAF_OF_DRAWN if drawn else LEAF_OF_TWO,
            bootstrap=drawn,
            max_samples=DRAWN if drawn else None,
            n_jobs=self.n_jobs,
        )


def _of_mean_one(weight: Floats) -> Floats:
    """Weights as they compare: a forest takes a share of their sum for a number of rows."""
    mean = float(weight.mean())
    return weight / mean if mean > 0 else weight


def _settled(loss: Loss, found: Closing | None, before: float, rival: float | None) -> bool:
    """Whether the first trees say enough: for two classes that they have no share (for several classes more
    trees often had one), or that all trees would hardly change what is missing to the rival. What is missing
    is the gain by assistance: it must not look larger than it is.
    """
    if found is None:
        return isinstance(loss, BinaryLogLoss)
    brought = before - found.validation_loss
    return rival is not None and MORE * brought < LITTLE * (found.validation_loss - rival)


def _sharpness(loss: Loss, y: Floats, output: Floats, own: Floats, weight: Floats | None) -> float:
    """How much more certain than it says a forest may be, as these rows see it beside F^T.

    The loss is convex in how much F^T counts, from 0 to 1, and how much the forest does. Every row is also
    heard, all together as much as one row, as one of any class: few rows that are all right prove no
    certainty.
    """
    n = len(y)
    doubted = (y + np.arange(n)[:, None]) % loss.n_outputs
    counts = np.ones(n) if weight is None else weight / weight.mean()
    labels, both = np.concatenate([y, doubted]), np.concatenate([counts, np.full(n, 1 / n)]) / (n + 1)
    sums, forest = np.concatenate([output, output]), np.concatenate([own, own])

    def judged(shares: Floats) -> tuple[float, Floats]:
        together = shares[0] * sums + shares[1] * forest
        slope = -loss.pseudo_residual(labels, together) * both[:, None]
        return float(loss.value(labels, together) @ both), np.array(
            [(slope * sums).sum(), (slope * forest).sum()]
        )

    found = minimize(judged, [0.5, 0.5], jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0), (0.0, None)]).x
    return float(found[1] / (1 - found[0])) if found[0] < 1 - SMALLEST_SHARE else 1.0


def _network(received: KeptReplies, rows: NDArray[np.intp]) -> AnswerNetwork | None:
    """One that is fitted to these rows."""
    task, answers = received.task, received.answers(rows)
    weight = None if task.sample_weight is None else task.sample_weight[rows]
    if isinstance(task.loss, SquaredError):
        return AnswerNetwork.fit_numbers(answers, task.y[rows], weight, task.seed)
    labels = task.y[rows, 0].astype(np.intp)
    return AnswerNetwork.fit(answers, labels, task.loss.n_outputs, weight, task.seed)


def _with_network(closing: Closing | None, received: KeptReplies, rows: NDArray[np.intp]) -> Closing | None:
    """The same followed by a network of these rows, as far as the validation rows say."""
    task, judges = received.task, received.task.rows.validation
    network = _network(received, rows)
    if network is None:
        return closing
    heard = None if task.sample_weight is None else task.sample_weight[judges]
    answers, output = received.answers(judges), received.output[judges]
    closed = output if closing is None else closing.output(output, answers)
    line = Line(task.loss, task.y[judges], closed, network.output(answers) - closed, heard)
    share = certain_share(line)
    if not isinstance(task.loss, SquaredError):
        share = min(share, believed_share(line))
    if share < SMALLEST_OF_NETWORK:
        return closing
    loss = line.value(share)
    first = Closing(None, share, loss, task.loss) if closing is None else closing
    return replace(first, validation_loss=loss, network=network, network_share=share)


def _alike(closing: Closing, among: Sequence[Closing]) -> Closing:
    """One of these, followed as far as all of them are on average."""
    networks = all(one.network is not None for one in among)
    return replace(
        closing,
        share=float(np.mean([one.share for one in among])),
        sharpness=float(np.mean([one.sharpness for one in among])),
        network=closing.network if networks else None,
        network_share=float(np.mean([one.network_share for one in among])) if networks else 0.0,
    )


def _together(judged: Any, more: Any) -> Any:
    """One forest of the trees of two."""
    more.estimators_ = [*judged.estimators_, *more.estimators_]
    return more.set_params(n_estimators=len(more.estimators_))


@dataclass(frozen=True, eq=False)
class KeptReplies:
    """All that the label holder received in the rounds that are used."""

    task: Task
    coefficients: Sequence[Mapping[str, float]]
    fitted: Sequence[Mapping[str, Floats32]]

    @cached_property
    def output(self) -> Floats:
        """F^T of all rows, shape (n, K)."""
        shape = self.task.rows.n, self.task.loss.n_outputs
        output = np.broadcast_to(self.task.first_output, shape).copy()
        for values, counts in zip(self.fitted, self.coefficients, strict=True):
            for name, count in counts.items():
                output += count * values[name].astype(np.float64)
        return output

    def answers(self, rows: NDArray[np.intp]) -> list[dict[str, Floats32]]:
        """Those that count, of these rows."""
        return [
            {name: values[name][rows] for name in counts}
            for values, counts in zip(self.fitted, self.coefficients, strict=True)
        ]

    def table(self, rows: NDArray[np.intp]) -> Floats32:
        """What the closing model sees of these rows."""
        return features(self.output[rows], self.answers(rows))


@contextmanager
def _whose_failure(model: Any) -> Iterator[None]:
    """Whatever goes wrong in the closing model is said to be its."""
    try:
        yield
    except Exception as error:
        raise LocalModelError(
            f"the closing model {type(model).__name__} failed: {error}. closing=False learns without it; "
            "over nodes: gal learn TASK --resume --no-closing"
        ) from error


def features(output: Floats, answers: Sequence[Mapping[str, Floats32]]) -> Floats32:
    """What the closing model sees of each row: F^T and every fitted value, shape (n, K + all)."""
    largest = np.finfo(np.float32).max  # whatever somebody answers, the model gets finite numbers
    columns = [np.clip(output, -largest, largest).astype(np.float32)]
    columns += [values[name] for values in answers for name in sorted(values)]
    return np.concatenate(columns, axis=1)


def said(model: Any, loss: Loss, table: Floats32) -> Floats:
    """The closing model's output in link space, shape (n, K)."""
    if isinstance(loss, SquaredError):
        return np.asarray(model.predict(table), dtype=np.float64).reshape(len(table), -1)
    probability = np.zeros((len(table), max(loss.n_outputs, 2)))
    if hasattr(model, "predict_proba"):
        probability[:, model.classes_.astype(int)] = model.predict_proba(table)
    else:  # a forest of two classes
        probability[:, 1] = np.clip(ask_forest(model, table), 0.0, 1.0)
        probability[:, 0] = 1.0 - probability[:, 1]
    # As if one tree more had said "all classes alike": a forest's 0 and 1 are not certainties.
    trees = float(getattr(model, "n_estimators", TREES))
    probability = (trees * probability + 1 / probability.shape[1]) / (trees + 1)
    logs = np.log(probability)
    return logs[:, 1:] - logs[:, :1] if loss.n_outputs == 1 else logs - logs.mean(axis=1, keepdims=True)
