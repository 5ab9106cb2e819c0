"""The stacker: what the label holder makes of all fitted values once the rounds are over.

F^T adds fitted values up, so it cannot say what columns of different organizations mean together. The label
holder has every fitted value of every round, and gets the same numbers again in prediction. So models of
scikit-learn's learn from them, at no further request: a smooth one, for labels with noise (trees boosted on
what each organization adds to F^T; for several classes a forest with large leaves), and a fine one, for
labels that are clear (a forest with pure leaves). Validation rows choose how much each counts: a `Blend`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from gal.core.blending import Blend, blended, shares
from gal.core.closings import Replies
from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss, SquaredError
from gal.core.passes import added_by_name, added_to
from gal.core.residuals import newton_residual
from gal.core.task import Task
from gal.errors import InvalidOptionError, LocalModelError
from gal.models.tabular.histogram_trees import Boosted

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Rows = NDArray[np.intp]

FINE, COARSE = 1, 10
LEAVES = {True: (FINE,), False: (FINE, COARSE)}
"""Fewest rows in a leaf of a forest, by whether there is one output; trials choose among them."""

TRIAL = {True: (6, 5_000), False: (10, 10_000)}
"""Trees of a forest, and the rows that they see at most, that say whether more are worth growing: for one
output, and for several, where nothing else is boosted.
"""

TREES, MORE_TREES, ROWS = 25, 60, 30_000
"""Trees of a forest that gains, and the rows that it sees. Of fewer rows a forest of several outputs, where
nothing else is boosted, has more trees.
"""

BOOSTED_GAINS, FOREST_GAINS = 1.0, 2.0
"""Standard errors by which a model must lower the loss of validation rows; a forest costs more."""

MORE = 0.04
"""A forest sees all rows where `ROWS` of them lower the loss by such a share more than its trial did."""

BOOSTED_ROWS = 100_000
"""Rows that boosted trees see."""


@dataclass(frozen=True, eq=False)
class Features:
    """What models of the stacker see of some rows."""

    output: Floats
    """F^T, or the output of the stacker before; shape (n, K)."""
    table: Floats32
    """What forests see."""
    sums: Floats
    """What boosted trees see."""

    @staticmethod
    def of_rounds(
        output: Floats, answers: Sequence[Mapping[str, Floats32]], coefficients: Sequence[Mapping[str, float]]
    ) -> Features:
        """Beside F^T every fitted value by round and organization, or what each organization adds up to."""
        largest = np.finfo(np.float32).max  # whatever an organization predicts, models get finite numbers
        columns = [np.clip(output, -largest, largest).astype(np.float32)]
        pairs = zip(answers, coefficients, strict=True)
        columns += [values[name] for values, counts in pairs for name in sorted(counts)]
        parts = added_by_name(coefficients, answers)
        sums = np.concatenate([output, *(parts[name] for name in sorted(parts))], axis=1)
        return Features(output, np.concatenate(columns, axis=1), sums)

    @staticmethod
    def of_probes(output: Floats, table: Floats32) -> Features:
        """Replies to interaction probes, as a table (n, any width)."""
        return Features(output, table, np.concatenate([output, table], axis=1))


@dataclass(frozen=True, eq=False)
class StackerInput:
    """What a stacker learns from."""

    task: Task
    features: Callable[[Rows], Features]
    coefficients: Sequence[Mapping[str, float]] = ()
    """Of the rounds that are used; none where it learns from replies to interaction probes."""

    @staticmethod
    def in_rounds(
        task: Task, coefficients: Sequence[Mapping[str, float]], fitted: Sequence[Mapping[str, Floats32]]
    ) -> StackerInput:
        """All fitted values of the rounds that are used."""

        def features(rows: Rows) -> Features:
            pairs = zip(fitted, coefficients, strict=True)
            answers = [{name: values[name][rows] for name in counts} for values, counts in pairs]
            output = added_to(task.first_of(rows), coefficients, answers)
            return Features.of_rounds(output, answers, coefficients)

        return StackerInput(task, features, coefficients)


@dataclass(frozen=True)
class Closing:
    """Fitted models and their blend with F^T; a ``gal.core.closings.ClosingModel``."""

    models: tuple[Any, ...]
    """Each a `Boosted` or a forest of scikit-learn's."""
    weights: tuple[float, ...]
    """Of F^T, then of each model."""
    coefficients: tuple[Mapping[str, float], ...]
    """How much fitted values count in F^T, by round and organization."""
    validation_loss: float
    loss: Loss
    """The task's loss: the models predict in its link space."""
    gain: float
    """How much the blend lowers the mean loss of validation rows."""

    @property
    def share(self) -> float:
        """The part of all weights that the models have."""
        return float(1 - self.weights[0] / sum(self.weights))

    def output(self, output: Floats, answers: Sequence[Mapping[str, Floats32]]) -> Floats:
        """The blended output (n, K) of rows with this F^T; ``answers`` by round and organization."""
        return self._blended(Features.of_rounds(output, answers, self.coefficients))

    def blended(self, output: Floats, table: Floats32) -> Floats:
        """The same of replies to interaction probes."""
        return self._blended(Features.of_probes(output, table))

    def _blended(self, seen: Features) -> Floats:
        return blended(self.weights, [seen.output, *(predicted(one, self.loss, seen) for one in self.models)])


def closes(loss: Loss) -> bool:
    """Whether the stacker knows this loss."""
    return isinstance(loss, BinaryLogLoss | MultinomialLogLoss | SquaredError)


def check_closing(closing: Any, loss: Loss, *, validated: bool) -> None:
    """Say now, not after the last round, that a stacker that was asked for is not possible."""
    if closing is not True:
        return
    if not closes(loss):
        raise InvalidOptionError(f"no stacker is known for the loss {loss.name}: use closing=False")
    if not validated:
        raise InvalidOptionError(
            "the stacker needs validation rows, which small tables have only on request: "
            "pass validation_fraction=0.1, or leave closing at 'auto'"
        )


@dataclass(frozen=True)
class Stacking:
    """How a task's stacker is learned: the ``gal.core.closings.LearnsClosing`` of all ways into GAL."""

    n_jobs: int | None = None
    """Cores that forests are fitted with. What is learned does not depend on them."""

    def __call__(
        self,
        task: Task,
        coefficients: Sequence[Mapping[str, float]],
        fitted: Sequence[Mapping[str, Floats32]],
    ) -> Closing | None:
        """Models of all rows but the validation rows, one after another where it gains there beyond chance;
        None where none does.
        """
        return self._learned(StackerInput.in_rounds(task, coefficients, fitted))

    def of_table(self, task: Task, output: Floats, table: Floats32) -> Closing | None:
        """The same from a table of the task's rows (n, any width), blended with another output than F^T."""
        return self._learned(StackerInput(task, lambda rows: Features.of_probes(output[rows], table[rows])))

    def _learned(self, received: StackerInput) -> Closing | None:
        task, loss, models = received.task, received.task.loss, list[Any]()
        rest = np.setdiff1d(np.arange(task.rows.n), task.rows.validation, assume_unique=True)
        features = received.features(task.rows.validation)
        outputs = [features.output]
        alone = blend = self._blend(task, outputs)

        def gain(model: Any) -> tuple[float, float]:
            return self._blend(task, [*outputs, predicted(model, loss, features)]).gain(blend)

        def keep(model: Any) -> Blend:
            models.append(model)
            outputs.append(predicted(model, loss, features))
            return self._blend(task, outputs)

        one = loss.n_outputs == 1
        if one and gain(model := self._boosted(received, rest))[1] > BOOSTED_GAINS:
            blend = keep(model)
        trials = {leaf: gain(self._forest(received, rest, leaf, *TRIAL[one])) for leaf in LEAVES[one]}
        leaf = max(trials, key=lambda leaf: trials[leaf][0])
        if trials[leaf][1] > FOREST_GAINS:
            model = self._forest(received, rest, leaf, TREES if one or len(rest) > ROWS else MORE_TREES, ROWS)
            if len(rest) > ROWS and gain(model)[0] > trials[leaf][0] + MORE:
                model = self._forest(received, rest, leaf, TREES, len(rest))
            blend = keep(model)
        return _stacked(models, alone, blend, received) if models else None

    def cross_validated(
        self,
        task: Task,
        left_out: Sequence[Replies],
        coefficients: Sequence[Mapping[str, float]],
        fitted: Sequence[Mapping[str, Floats32]],
    ) -> tuple[Closing, Floats] | None:
        """Forests of each fold choose the blend on the rows that they did not see; then forests of all rows
        take their place. Also the blended output (n, K) of every row by forests that did not see it.
        """
        outputs = np.empty((3, task.rows.n, task.loss.n_outputs))
        for part, replies in enumerate(left_out):
            fold, received = task.rows.without(part), StackerInput.in_rounds(task, *replies)
            forests = [self._forest(received, fold.fit, leaf, TREES, ROWS) for leaf in (FINE, COARSE)]
            features = received.features(fold.validation)
            predictions = [predicted(one, task.loss, features) for one in forests]
            outputs[:, fold.validation] = [features.output, *predictions]
        every = list(outputs)
        alone, blend = (Blend.of(task.loss, task.y, some, task.sample_weight) for some in (every[:1], every))
        if not blend.gain(alone)[1] > FOREST_GAINS:
            return None
        received, rows = StackerInput.in_rounds(task, coefficients, fitted), np.arange(task.rows.n)
        forests = [self._forest(received, rows, leaf, TREES, ROWS) for leaf in (FINE, COARSE)]
        return _stacked(forests, alone, blend, received), blended(blend.weights, every)

    def _blend(self, task: Task, outputs: Sequence[Floats]) -> Blend:
        validation, weight = task.rows.validation, task.sample_weight
        return Blend.of(
            task.loss, task.y[validation], outputs, None if weight is None else weight[validation]
        )

    def _boosted(self, received: StackerInput, rows: Rows) -> Boosted:
        """Trees boosted from F^T; validation rows say how many."""
        task, sets = received.task, list[tuple[Floats, Floats, Floats]]()
        for some in (_some(rows, BOOSTED_ROWS, task.seed), task.rows.validation):
            features = received.features(some)
            residual, curvature = _newton(task.loss, task.y[some], features.output)
            counts = curvature if task.sample_weight is None else curvature * task.sample_weight[some]
            sets.append((features.sums, residual, counts))
        with _whose_failure():
            return Boosted.fit(*sets)

    def _forest(self, received: StackerInput, rows: Rows, leaf: int, trees: int, most: int) -> Any:
        """A forest on these rows, or so many of them; the same for the same rows and seed."""
        task, rows = received.task, _some(rows, most, received.task.seed)
        kind = ExtraTreesClassifier if isinstance(task.loss, MultinomialLogLoss) else ExtraTreesRegressor
        wide = not received.coefficients or isinstance(task.loss, SquaredError)
        forest = kind(
            trees,
            min_samples_leaf=leaf,
            max_features=1 / 3 if wide else "sqrt",
            random_state=task.seed,
            n_jobs=self.n_jobs,
        )
        target = task.y if task.y.shape[1] > 1 else task.y[:, 0]
        weight = None if task.sample_weight is None else len(rows) * shares(task.sample_weight[rows])
        with _whose_failure():
            forest.fit(received.features(rows).table, target[rows], weight)
        return forest.set_params(n_jobs=None)  # several cores add trees up in the order in which they come


def _some(rows: Rows, most: int, seed: int) -> Rows:
    """All of these rows, or so many of them."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng([seed, most]).choice(rows, most, replace=False))


def _newton(loss: Loss, y: Floats, output: Floats) -> tuple[Floats, Floats]:
    """Newton residuals of one output, and the curvature of the loss, by which rows count."""
    if isinstance(loss, BinaryLogLoss):
        residual, curvature = newton_residual(loss, y, output, None)
        return residual[:, 0].astype(np.float64), curvature
    return loss.pseudo_residual(y, output)[:, 0], np.ones(len(y))


def _stacked(models: Sequence[Any], alone: Blend, blend: Blend, received: StackerInput) -> Closing:
    weights, gain = tuple(map(float, blend.weights)), alone.loss - blend.loss
    coefficients = tuple(dict(one) for one in received.coefficients)
    return Closing(tuple(models), weights, coefficients, blend.loss, received.task.loss, gain)


@contextmanager
def _whose_failure() -> Iterator[None]:
    """A failure of the stacker is named as such."""
    try:
        yield
    except Exception as error:
        raise LocalModelError(f"the stacker failed: {error}. closing=False learns without it") from error


def predicted(model: Any, loss: Loss, features: Features) -> Floats:
    """What a model makes of rows, in link space, shape (n, K)."""
    if isinstance(model, Boosted):
        return features.output + model.predict(features.sums)[:, None]
    return forest_output(model, loss, features.table)


def forest_output(forest: Any, loss: Loss, table: Floats32) -> Floats:
    """A forest's output in link space, shape (n, K): the mean of its trees, which are run one by one because
    scikit-learn spends milliseconds around them.
    """
    if table.shape[1] != forest.n_features_in_:
        raise LocalModelError(f"the stacker knows {forest.n_features_in_} columns, got {table.shape[1]}")
    trees = [one.tree_ for one in forest.estimators_]
    mean = sum(np.reshape(tree.predict(table), (len(table), -1)) for tree in trees) / len(trees)
    if isinstance(loss, SquaredError):
        return np.asarray(mean)
    probability = np.zeros((len(table), max(loss.n_outputs, 2)))
    if hasattr(forest, "classes_"):
        probability[:, forest.classes_.astype(int)] = mean
    else:  # of two classes: numbers 0 and 1 have the same trees, in less time
        probability[:, 1:] = np.clip(mean, 0.0, 1.0)
        probability[:, 0] = 1.0 - probability[:, 1]
    # As if one tree more had said "all classes alike": a forest's 0 and 1 are not certainties.
    probability = (len(trees) * probability + 1 / probability.shape[1]) / (len(trees) + 1)
    logs = np.log(probability)
    return logs[:, 1:] - logs[:, :1] if loss.n_outputs == 1 else logs - logs.mean(axis=1, keepdims=True)
