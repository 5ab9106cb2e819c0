"""The stacker: the label holder's model on all fitted values, learned after the rounds.

F^T adds fitted values up, so it cannot express joint effects of columns of different organizations. At no
further request, a small network (better on noisy labels) and a forest (better on clear ones) learn from the
fitted values, and validation rows choose the weight of each: a `Blend`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor

from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss, SquaredError
from gal.core.passes import added_by_name, added_to
from gal.core.stackers import Replies
from gal.core.task import Task
from gal.errors import InvalidOptionError, LocalModelError
from gal.models.tabular.histogram_trees import Boosted

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Rows = NDArray[np.intp]

HIDDEN, EPOCHS, LEARNING_RATE = 32, 12, 0.03
BATCHES, LARGEST_BATCH = 20, 1_000
"""Of the network: an epoch has so many batches of at most so many rows."""

FARTHEST = 10.0
"""Standard deviations beyond which the network sees no difference."""

FINE, COARSE = 1, 10
LEAVES = {True: (FINE,), False: (FINE, COARSE)}
"""Fewest rows in a leaf of a forest, by whether there is one output; trials choose among them."""

TRIAL = 6, 5_000
"""Trees of a forest, and the rows that they see at most, that say whether more are worth growing."""

TREES, MORE_TREES, ROWS = 25, 60, 30_000
"""Trees of a forest, and the rows that it sees; more trees where classes are clear and rows are fewer."""

CLEAR = 0.02
"""A forest sees all rows where its trial lowers the loss by such a share: labels are clear."""

NETWORK_ROWS = 50_000
"""Rows that the network sees."""

NETWORK_GAINS, FOREST_GAINS = 1.0, 2.0
"""Standard errors by which a model must lower the loss of validation rows; a forest costs more."""

SPREAD = 1.0
"""Standard deviation of the weights of a blend about F^T alone, before any row is looked at."""


@dataclass(frozen=True, eq=False)
class Features:
    """What models of the stacker see of some rows."""

    output: Floats
    """F^T, or the output of the stacker before; shape (n, K)."""
    table: Floats32
    """What forests see."""
    sums: Floats32
    """What the network sees."""

    @staticmethod
    def of_rounds(
        output: Floats, answers: Sequence[Mapping[str, Floats32]], coefficients: Sequence[Mapping[str, float]]
    ) -> Features:
        """Beside F^T every fitted value by round and organization, or what each organization adds up to."""
        parts = added_by_name(coefficients, answers)
        pairs = zip(answers, coefficients, strict=True)
        every = [values[name] for values, counts in pairs for name in sorted(counts)]
        sums = np.concatenate([output, *(parts[name] for name in sorted(parts))], axis=1)
        return Features(output, np.concatenate([_finite(output), *every], axis=1), _finite(sums))

    @staticmethod
    def of_probes(output: Floats, table: Floats32) -> Features:
        """Replies to interaction probes, as a table (n, any width)."""
        return Features(output, table, np.concatenate([_finite(output), table], axis=1))


def _finite(numbers: Floats) -> Floats32:
    """Whatever an organization predicts, models get finite numbers."""
    largest = np.finfo(np.float32).max
    return np.clip(numbers, -largest, largest).astype(np.float32)


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


@dataclass(frozen=True, eq=False)
class SmallNetwork:
    """A network of scikit-learn's with one hidden layer, as far as prediction needs it."""

    center: Floats
    scale: Floats
    """Mean and standard deviation of each column."""
    first: tuple[Any, Any]
    last: tuple[Any, Any]
    """Weights and intercepts of both layers."""

    def predict(self, sums: Floats32) -> Floats:
        """Its output (n, K)."""
        hidden = np.maximum(_standardised(sums, self.center, self.scale) @ self.first[0] + self.first[1], 0.0)
        return np.asarray(hidden @ self.last[0] + self.last[1], dtype=np.float64)


def _standardised(sums: Floats32, center: Floats, scale: Floats) -> Floats32:
    return np.clip((sums - center) / scale, -FARTHEST, FARTHEST).astype(np.float32)


@dataclass(frozen=True)
class Blend:
    """How much F^T and each model count, as validation rows choose."""

    weights: Floats
    """Of F^T first. Classes: each at least 0, in link space; numbers: they add up to 1."""
    losses: Floats
    """Of the blend, by row."""
    counts: Floats
    """How much each row counts; they add up to 1."""

    @staticmethod
    def of(loss: Loss, y: Floats, outputs: Sequence[Floats], sample_weight: Floats | None) -> Blend:
        """The most likely weights, where before any row they are spread about those of F^T alone."""
        counts = np.full(len(y), 1 / len(y)) if sample_weight is None else shares(sample_weight)
        base, first = outputs[0], np.eye(len(outputs))[0]
        before = float(loss.value(y, base) @ counts)
        if len(outputs) == 1 or not before > 0:
            return Blend(first, loss.value(y, base), counts)
        numbers = isinstance(loss, SquaredError)
        pieces = [one - base for one in outputs[1:]] if numbers else list(outputs)
        fixed, start = (base, np.zeros(len(pieces))) if numbers else (0.0, first)
        spread = SPREAD**2 / float(np.square(counts).sum())
        unit = before if numbers else 1.0

        def objective(weights: Floats) -> tuple[float, Floats]:
            output = fixed + sum(w * one for w, one in zip(weights, pieces, strict=True))
            pull = loss.pseudo_residual(y, output) * counts[:, None]
            slope = np.array([-np.vdot(pull, one) for one in pieces])
            away = (weights - start) / spread
            value = float(loss.value(y, output) @ counts) / unit + 0.5 * float(away @ (weights - start))
            return value, slope / unit + away

        bounds = [(0.0, 1.0 if numbers else None)] * len(pieces)
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        weights = np.r_[1 - found.sum(), found] if numbers else found
        return Blend(weights, loss.value(y, blended(weights, outputs)), counts)

    @property
    def loss(self) -> float:
        """Mean loss."""
        return float(self.losses @ self.counts)

    def gain(self, other: Blend) -> tuple[float, float]:
        """By what share its loss is below another one's, and by how many standard errors."""
        gains = other.losses - self.losses
        gain = float(gains @ self.counts)
        error = float(np.sqrt(np.square((gains - gain) * self.counts).sum()))
        return (gain / other.loss, gain / error) if error > 0 < other.loss else (0.0, 0.0)


def shares(weight: Floats) -> Floats:
    """Weights of rows that add up to 1."""
    total = float(weight.sum())
    return weight / total if total > 0 else np.full(len(weight), 1 / max(len(weight), 1))


def blended(weights: Sequence[float] | Floats, outputs: Sequence[Floats]) -> Floats:
    """The weighted sum of outputs."""
    return np.asarray(sum(weight * one for weight, one in zip(weights, outputs, strict=True)))


@dataclass(frozen=True)
class Stacker:
    """Fitted models and their blend with F^T; a ``gal.core.stackers.StackerModel``."""

    models: tuple[Any, ...]
    """Each a `SmallNetwork` or a forest of scikit-learn's; in earlier files also a `Boosted`."""
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

    def _blended(self, features: Features) -> Floats:
        return blended(
            self.weights, [features.output, *(predicted(one, self.loss, features) for one in self.models)]
        )


def stackable(loss: Loss) -> bool:
    """Whether the stacker knows this loss."""
    return isinstance(loss, BinaryLogLoss | MultinomialLogLoss | SquaredError)


def check_stacking(stacking: Any, loss: Loss, *, validated: bool) -> None:
    """InvalidOptionError, before the first round, where the requested stacker is not possible."""
    if stacking is not True:
        return
    if not stackable(loss):
        raise InvalidOptionError(f"no stacker is known for the loss {loss.name}: use stacking=False")
    if not validated:
        raise InvalidOptionError(
            "the stacker needs validation rows, which small tables have only on request: "
            "pass validation_fraction=0.1, or leave stacking at 'auto'"
        )


@dataclass(frozen=True)
class Stacking:
    """How a task's stacker is learned: the ``gal.core.stackers.StackerLearner`` of all ways into GAL."""

    n_jobs: int | None = None
    """Cores that forests are fitted with. What is learned does not depend on them."""

    def __call__(
        self,
        task: Task,
        coefficients: Sequence[Mapping[str, float]],
        fitted: Sequence[Mapping[str, Floats32]],
    ) -> Stacker | None:
        """Models of all rows but the validation rows, one after another where it gains there beyond chance;
        None where none does.
        """
        return self._learned(StackerInput.in_rounds(task, coefficients, fitted))

    def of_table(self, task: Task, output: Floats, table: Floats32) -> Stacker | None:
        """The same from a table of the task's rows (n, any width), blended with another output than F^T."""
        return self._learned(StackerInput(task, lambda rows: Features.of_probes(output[rows], table[rows])))

    def _learned(self, received: StackerInput) -> Stacker | None:
        task, loss, models = received.task, received.task.loss, list[Any]()
        rest = np.setdiff1d(np.arange(task.rows.n), task.rows.validation, assume_unique=True)
        features = received.features(task.rows.validation)
        outputs = [features.output]
        alone = blend = self._blend(task, outputs)

        def tried(model: Any) -> tuple[float, float, Floats]:
            output = predicted(model, loss, features)
            return *self._blend(task, [*outputs, output]).gain(blend), output

        if len({name for counts in received.coefficients for name in counts}) != 1:  # else F^T is all of it
            network = self._network(received, rest)
            _, errors, output = tried(network)
            if errors > NETWORK_GAINS:
                models.append(network)
                outputs.append(output)
                blend = self._blend(task, outputs)
        one = loss.n_outputs == 1
        trials = {leaf: tried(self._forest(received, rest, leaf, *TRIAL)) for leaf in LEAVES[one]}
        leaf = max(trials, key=lambda leaf: trials[leaf][0])
        gain, errors, _ = trials[leaf]
        if errors > FOREST_GAINS:
            clear = leaf == FINE and gain > CLEAR
            trees = MORE_TREES if clear and not one and len(rest) <= ROWS else TREES
            models.append(self._forest(received, rest, leaf, trees, len(rest) if clear else ROWS))
            outputs.append(predicted(models[-1], loss, features))
            blend = self._blend(task, outputs)
        return _stacked(models, alone, blend, received) if models else None

    def cross_validated(
        self,
        task: Task,
        left_out: Sequence[Replies],
        coefficients: Sequence[Mapping[str, float]],
        fitted: Sequence[Mapping[str, Floats32]],
    ) -> tuple[Stacker, Floats] | None:
        """Models of each fold choose the blend on the rows that they did not see; then models of all rows
        take their place. Also the blended output (n, K) of every row by models that did not see it.
        """

        def fitted_to(received: StackerInput, rows: Rows) -> list[Any]:
            forests = (self._forest(received, rows, leaf, TREES, ROWS) for leaf in (FINE, COARSE))
            return [self._network(received, rows), *forests]

        outputs = np.empty((4, task.rows.n, task.loss.n_outputs))
        for part, replies in enumerate(left_out):
            fold, received = task.rows.without(part), StackerInput.in_rounds(task, *replies)
            features = received.features(fold.validation)
            predictions = [predicted(one, task.loss, features) for one in fitted_to(received, fold.fit)]
            outputs[:, fold.validation] = [features.output, *predictions]
        every = list(outputs)
        alone, blend = (Blend.of(task.loss, task.y, some, task.sample_weight) for some in (every[:1], every))
        if not blend.gain(alone)[1] > FOREST_GAINS:
            return None
        received = StackerInput.in_rounds(task, coefficients, fitted)
        models = fitted_to(received, np.arange(task.rows.n))
        return _stacked(models, alone, blend, received), blended(blend.weights, every)

    def _blend(self, task: Task, outputs: Sequence[Floats]) -> Blend:
        validation, weight = task.rows.validation, task.sample_weight
        return Blend.of(
            task.loss, task.y[validation], outputs, None if weight is None else weight[validation]
        )

    def _network(self, received: StackerInput, rows: Rows) -> SmallNetwork:
        """A network on these rows, or so many of them: of classes, or of the numbers that F^T leaves over."""
        task, rows = received.task, _some(rows, NETWORK_ROWS, received.task.seed)
        seen, y = received.features(rows), task.y[rows]
        sums = seen.sums.astype(np.float64)
        center, scale = sums.mean(axis=0), sums.std(axis=0)
        scale[scale == 0] = 1.0
        numbers = isinstance(task.loss, SquaredError)
        weight = None if task.sample_weight is None else len(rows) * shares(task.sample_weight[rows])
        standard = _standardised(seen.sums, center, scale)
        if numbers:
            target = y - seen.output
            unit = float(np.sqrt(np.mean(target**2))) or 1.0
            target = target / unit
        else:  # an average row of each class, so that none is missing
            unit, classes = 1.0, np.arange(max(2, task.loss.n_outputs))
            target = np.concatenate([y[:, 0], classes])
            standard = np.concatenate([standard, np.zeros((len(classes), standard.shape[1]), np.float32)])
            weight = None if weight is None else np.concatenate([weight, np.ones(len(classes))])
        model = (MLPRegressor if numbers else MLPClassifier)(
            hidden_layer_sizes=(HIDDEN,),
            batch_size=min(LARGEST_BATCH, -(-len(standard) // BATCHES)),
            learning_rate_init=LEARNING_RATE,
            max_iter=EPOCHS,
            random_state=task.seed,
        )
        with _stacker_failures(), catch_warnings():
            simplefilter("ignore", ConvergenceWarning)
            model.fit(standard, target[:, 0] if numbers and target.shape[1] == 1 else target, weight)
        first, last = zip(model.coefs_, model.intercepts_, strict=True)
        return SmallNetwork(center, scale, first, (unit * last[0], unit * last[1]))

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
        with _stacker_failures():
            forest.fit(received.features(rows).table, target[rows], weight)
        return forest.set_params(n_jobs=None)  # several cores add trees up in the order in which they come


def _some(rows: Rows, most: int, seed: int) -> Rows:
    """All of these rows, or so many of them."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng([seed, most]).choice(rows, most, replace=False))


def _stacked(models: Sequence[Any], alone: Blend, blend: Blend, received: StackerInput) -> Stacker:
    weights, gain = tuple(map(float, blend.weights)), alone.loss - blend.loss
    coefficients = tuple(dict(one) for one in received.coefficients)
    return Stacker(tuple(models), weights, coefficients, blend.loss, received.task.loss, gain)


@contextmanager
def _stacker_failures() -> Iterator[None]:
    """A failure of the stacker is named as such."""
    try:
        yield
    except Exception as error:
        raise LocalModelError(f"the stacker failed: {error}. stacking=False learns without it") from error


def predicted(model: Any, loss: Loss, features: Features) -> Floats:
    """What a model makes of rows, in link space, shape (n, K)."""
    if isinstance(model, SmallNetwork):
        output = model.predict(features.sums)
        return features.output + output if isinstance(loss, SquaredError) else output
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
    # As with one more tree of equal class probabilities: a forest's 0 and 1 are not certainties.
    probability = (len(trees) * probability + 1 / probability.shape[1]) / (len(trees) + 1)
    logs = np.log(probability)
    return logs[:, 1:] - logs[:, :1] if loss.n_outputs == 1 else logs - logs.mean(axis=1, keepdims=True)
