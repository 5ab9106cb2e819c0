"""The private track: the label holder fits the stored fitted values to its true labels.

A regularized linear model on the fitted values of all rounds, beside the label holder's own model
(``own_model``) or without it, is compared with that model, or with the public one, on rows that neither saw,
and predicts where it is significantly better. Nothing of it is sent, so it costs no epsilon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax
from sklearn.linear_model import Ridge

from gal.core.line_search import ExactSearch, Line, mean_loss
from gal.core.losses import AbsoluteError, BinaryLogLoss, Huber, Loss, MultinomialLogLoss, SquaredError
from gal.core.memorization import memorizers
from gal.core.passes import added_by_name, added_to
from gal.core.stackers import Replies, StackerModel
from gal.core.state import Ensemble, ensemble_of, plain
from gal.core.task import Task
from gal.learner.labels import Labels
from gal.privacy.own_model import OwnModel
from gal.threads import at_most

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Rows = NDArray[np.intp]

NUMBERS = (SquaredError, AbsoluteError, Huber)
"""Losses of numbers without a link: least squares fits them, and the loss itself compares."""
CLASSES = (BinaryLogLoss, MultinomialLogLoss)
PENALTIES = tuple(10.0**power for power in range(2, -5, -1))
"""On squared coefficients, from the strongest; the fitted values of a row have about length 1 together."""
FOLDS = 5
"""Of a task without a cross-validation."""
SURE = 2.0
"""Standard errors by which a refit has to be better: its penalty, share and
features were chosen on the same rows."""
FITTED_ENTRIES = 2**24
"""Numbers in the tables that are fitted, 128 MiB: of more rows a sample is fitted."""
ENOUGH = 500
"""Rows that were never sent on which alone a refit is done: with fewer, two small tables lost half a point of
accuracy."""
NEGLIGIBLE = 1e-10
"""Directions with a smaller share of the squares than this, beside the widest, are left out."""
MOST_AXES = 500
"""Of more directions the widest are fitted."""
CLEARLY = 1.25
"""In-sample values must gain so much more than held-out ones: where models memorize, they vary more."""
OWN_SIZE = 10.0
"""Size of the own model's outputs beside a row of fitted values, which has length 1: hardly penalized."""
STEPS, EXACT = 200, 1e-6
"""Steps of a fit at most, and the share of the loss below which a further step changes nothing."""


@dataclass(frozen=True, eq=False)
class OwnPart:
    """The label holder's own model as it counts in what predicts."""

    ensemble: Ensemble
    matrix: Floats
    """What each of its K outputs adds to each of the K outputs, (K, K)."""
    alone_loss: float
    """Mean loss of its own model on its rows, each by models that did not see it."""
    stacked_loss: float
    """The same of the refit of both; what decides."""
    used: bool
    """Whether the refit predicts; otherwise its own model alone does."""
    mixed: float = 1.0
    """Of classes: the weight of the refit in the mixture with the own model's probabilities. A row's log loss
    exceeds the own model's by at most -log(1 - mixed)."""

    @property
    def predicting_loss(self) -> float:
        """Of what predicts."""
        return self.stacked_loss if self.used else self.alone_loss

    @property
    def words(self) -> str:
        """What predicts, and by how much it is better."""
        losses = f"loss {self.stacked_loss:.4g} with them, {self.alone_loss:.4g} with your own model alone"
        if self.used:
            return f"The fitted values of this task help: {losses}, on held-out rows."
        return (
            f"The fitted values of this task do not help significantly ({losses}, on held-out rows): your "
            "own model predicts alone. No other organization can see that."
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return vars(self) | {"ensemble": plain(self.ensemble), "matrix": self.matrix.tolist()}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> OwnPart:
        """From what ``to_json`` gave."""
        read = {"ensemble": ensemble_of(facts["ensemble"]), "matrix": np.array(facts["matrix"])}
        return cls(**{**facts, **read})


@dataclass(frozen=True, eq=False)
class PrivateRefit:
    """Coefficients of the stored fitted values, from the true labels: plain numbers."""

    intercept: tuple[float, ...]
    """(K,)"""
    coefficients: tuple[Mapping[str, Floats], ...]
    """By round and organization: what each of its K values adds to each of the K outputs, (K, K)."""
    own: OwnPart | None = None
    """The label holder's own model in it; None: there is none."""

    @at_most(1)
    def output(self, answers: Sequence[Mapping[str, Floats32]], own_output: Floats | None = None) -> Floats:
        """The private output (n, K) in link space; ``answers`` by round and organization, each (n, K).

        ``own_output`` (n, K) is what its own model says, where there is one.
        """
        parts = [
            np.asarray(values[name], dtype=np.float64) @ matrix
            for counts, values in zip(self.coefficients, answers, strict=True)
            for name, matrix in counts.items()
        ]
        if self.own is None or own_output is None:
            return np.asarray(sum(parts) + np.asarray(self.intercept))
        parts.append(own_output @ self.own.matrix)
        return _mixture(own_output, np.asarray(sum(parts) + np.asarray(self.intercept)), self.own.mixed)

    @property
    def own_stacker(self) -> StackerModel | None:
        """The stacker of its own model: no plain numbers, so it is kept beside them."""
        return None if self.own is None else self.own.ensemble.stacker

    def with_stacker(self, stacker: StackerModel | None) -> PrivateRefit:
        """The same with the stacker that was kept."""
        if self.own is None or stacker is None:
            return self
        own = replace(self.own, ensemble=replace(self.own.ensemble, stacker=stacker))
        return replace(self, own=own)

    @property
    def words(self) -> str:
        """What predicts, and by how much it is better."""
        return "" if self.own is None else self.own.words

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        rounds = [{name: matrix.tolist() for name, matrix in counts.items()} for counts in self.coefficients]
        own = None if self.own is None else self.own.to_json()
        return {"intercept": list(self.intercept), "coefficients": rounds, "own": own}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> PrivateRefit:
        """From what ``to_json`` gave."""
        rounds = [{name: np.array(one) for name, one in counts.items()} for counts in facts["coefficients"]]
        own = None if facts["own"] is None else OwnPart.from_json(facts["own"])
        return cls(tuple(facts["intercept"]), tuple(rounds), own)


def _mixture(first: Floats, second: Floats, weight: float) -> Floats:
    """Outputs of the mixture of two models' class probabilities, of which the second has this weight."""
    if weight == 1:
        return second
    if first.shape[1] == 1:  # log-odds of the second of two classes
        two = [np.hstack([np.zeros_like(one), one]) for one in (first, second)]
        mixed = _mixture(two[0], two[1], weight)
        return mixed[:, 1:] - mixed[:, :1]
    logs = np.log(1 - weight) + log_softmax(first, axis=1), np.log(weight) + log_softmax(second, axis=1)
    return np.asarray(np.logaddexp(*logs))


@at_most(1)
def refit_privately(
    task: Task,
    labels: Labels,
    ensemble: Ensemble,
    fitted: Sequence[Mapping[str, Floats32]],
    own: OwnModel | None = None,
    *,
    summed: bool = False,
) -> PrivateRefit | None:
    """The model that predicts, fitted to the true ``labels``; None where the public model is as good.

    Parameters
    ----------
    ensemble, fitted: the task's own, with all rounds, and the fitted values of these rounds.
    own: the label holder's own model, where there is one.
    summed: whether predictions come as one sum over rounds, so that only such sums may be used here.
    """
    cv, folds, first = ensemble.cv, task.rows.cv_folds, task.first_output
    rng, without = np.random.default_rng(task.seed), tuple[str, ...]()
    whole: Replies = (ensemble.coefficients, fitted)
    if summed:
        whole = added(whole)
    public, left_out, rows = added_to(task.first_of(), *whole), [whole] * FOLDS, unsent_rows(task)
    if cv is None or folds is None:
        folds = rng.permutation(len(labels.y)) % FOLDS
    else:
        rows, public = None, cv.stages[-1]
        left_out = [((), ()) if one is None else (one.coefficients, one.fitted) for one in cv.reached]
        left_out = [added(one) for one in left_out] if summed else left_out
        holder, rounds = ensemble.label_holder, len(ensemble.rounds)
        others = sorted({name for counts in ensemble.coefficients for name in counts} - {holder})
        without = memorizers(others, holder, labels.loss, labels.y, cv, rounds)
    base = public if own is None else own.output
    rows = np.arange(len(labels.y)) if rows is None else rows
    return stacked(labels, base, folds, rows, left_out, whole, first[0], own, without=without, rng=rng)


Counts = Mapping[tuple[int, str], float]
"""By round (from 0) and organization: how much of its fitted values is in a feature."""
Feature = Callable[[Replies], Counts]
"""A sum of fitted values, of any learning."""


def stacked(
    labels: Labels,
    base: Floats,
    folds: Rows,
    rows: Rows,
    left_out: Sequence[Replies],
    whole: Replies,
    first: Floats,
    own: OwnModel | None = None,
    *,
    without: Sequence[str] = (),
    rng: np.random.Generator,
) -> PrivateRefit | None:
    """The same from the replies to each fold's learning, and to the task itself (``whole``), on ``rows``.

    ``base`` (n, K) predicts without the refit, by learnings without the row's fold (``folds``, (n,));
    ``without`` names organizations that only memorize.
    """
    y, loss, coefficients, fitted = labels.y, labels.loss, *whole
    names = sorted({name for counts in coefficients for name in counts} - set(without))
    singles = [_single(t, name) for t, found in enumerate(fitted) for name in names if name in found]
    if not singles or not isinstance(loss, NUMBERS + CLASSES):
        return None
    validated = any(one is not whole for one in left_out)
    width = len(singles) * loss.n_outputs * (len(left_out) + 2 if validated else 1)
    if len(rows) > FITTED_ENTRIES // width:
        rows = np.sort(rng.choice(rows, max(FITTED_ENTRIES // width, 2 * FOLDS), replace=False))
    # Every fold has to leave something to learn.
    few = len(rows) < 2 * FOLDS
    if not isinstance(loss, NUMBERS):
        few |= int((np.bincount(y[rows, 0].astype(np.intp)) > 1).sum()) < 2
    if few:
        return None

    def table(replies: Replies, features: Sequence[Feature]) -> Floats:
        """Every feature of one learning, of these rows: (rows, features * K)."""
        made = np.zeros((len(rows), len(features), loss.n_outputs))
        for place, feature in enumerate(features):
            for (t, name), count in feature(replies).items():
                made[:, place] += count * replies[1][t][name][rows]
        return made.reshape(len(rows), -1)

    here = _Rows(y[rows], loss, base[rows], folds[rows], own is not None)
    # Of several classes, the own model's outputs are also left out: fitted to few rows, they can spoil the
    # others. With one output the choice alone was worse, on fresh splits of BreastCancer and QSAR.
    several = loss.n_outputs > 1 and isinstance(loss, CLASSES)
    with_own = (False,) if own is None else (True, False) if several else (True,)
    last = table(whole, singles)
    tables = [table(one, singles) if validated else last for one in left_out]
    best = here.fit(singles, tables, last, with_own)
    if validated:
        stages = {2**power for power in range(len(fitted).bit_length())} & set(range(1, len(fitted)))
        sums = [_summed(stage, name) for stage in sorted(stages | {len(fitted)}) for name in names]
        held_out = [(singles, tables), (sums, [table(one, sums) for one in left_out])]
        found = min((here.fit_held_out(*one, with_own) for one in held_out), key=lambda one: one.loss)
        best = best if best.gain > CLEARLY * found.gain else found
    return best.as_numbers(whole, first, own)


def _single(t: int, name: str) -> Feature:
    """A fitted value by itself: those of linear models are alike in all folds."""
    return lambda replies: {(t, name): 1.0} if t < len(replies[1]) and name in replies[1][t] else {}


def _summed(stage: int, name: str) -> Feature:
    """An organization's first rounds, as the public model counts them."""
    return lambda replies: {(t, name): one[name] for t, one in enumerate(replies[0][:stage]) if name in one}


def added(replies: Replies) -> Replies:
    """All rounds as one: fitted values by organization, times their coefficients."""
    totals = added_by_name(*replies)
    together = {name: total.astype(np.float32) for name, total in sorted(totals.items())}
    return ([dict.fromkeys(together, 1.0)], [together]) if totals else ([], [])


def unsent_rows(task: Task) -> Rows | None:
    """Rows of which no residual was sent; None: all rows, since these are too few or models are stateful.

    Of other rows an organization may memorize what it received, which follows their true labels.
    """
    rest = np.flatnonzero(~task.rows.is_fit)
    tried = task.release is None and not task.stateful
    return rest if tried and len(rest) >= ENOUGH else None


@dataclass(frozen=True)
class _Scaled:
    """How a table of features becomes what is fitted: scaled columns in orthogonal directions.

    A row has about length 1. Columns are divided by the geometric mean of their own and the typical spread:
    a little better than either with four kinds of local models. With a penalty on squares, orthogonal
    directions give the same fit, and are often far fewer.
    """

    middle: Floats
    scale: Floats
    axes: Floats

    @classmethod
    def of(cls, table: Floats) -> _Scaled:
        middle, spread = table.mean(axis=0), table.std(axis=0)
        typical = float(np.sqrt(np.mean(spread**2))) or 1.0
        scale = np.sqrt(spread * typical)
        scale[spread <= 1e-9 * typical] = np.inf  # a constant column, as the intercept is
        rough = float(np.sqrt(np.mean(np.square(spread / scale)))) or 1.0
        scale = scale * rough * np.sqrt(len(spread))
        scaled, (n, columns) = (table - middle) / scale, table.shape
        squares, vectors = np.linalg.eigh(scaled.T @ scaled if columns <= n else scaled @ scaled.T)
        squares, vectors = squares[-MOST_AXES:], vectors[:, -MOST_AXES:]
        kept = squares > NEGLIGIBLE * squares[-1]
        axes = vectors[:, kept] if columns <= n else scaled.T @ vectors[:, kept] / np.sqrt(squares[kept])
        return cls(middle, scale, np.asarray(axes))

    def inputs(self, table: Floats) -> Floats32:
        return np.asarray((table - self.middle) / self.scale @ self.axes, dtype=np.float32)


Linear = tuple[Floats, Floats]
"""Weights (columns, K) and intercept (K,): outputs are ``table @ weights + intercept``."""


@dataclass(frozen=True)
class _Found:
    """A fit, how far it is followed from the base, and its losses."""

    features: Sequence[Feature]
    scaled: _Scaled
    own_scale: Floats
    """Of the base's outputs; infinite where they are left out."""
    model: Linear
    """Of the scaled features and base outputs."""
    middle: Floats
    """Mean of the base's outputs."""
    share: float
    mixed: float
    base_loss: float
    loss: float
    helps: bool
    """Whether it is significantly better than the base."""

    @property
    def gain(self) -> float:
        """By how much it lowers the loss of the base."""
        return self.base_loss - self.loss

    def as_numbers(self, whole: Replies, first: Floats, own: OwnModel | None) -> PrivateRefit | None:
        """How much each fitted value adds, and the base: the own model, or the public one."""
        scaled, n_outputs, share = self.scaled, len(first), self.share if self.helps else 0.0
        if own is None and (share == 0 or not scaled.axes.size):
            return None
        width, eye = scaled.axes.shape[1], (1 - share) * np.eye(n_outputs)
        weights = share * (scaled.axes @ self.model[0][:width]) / scaled.scale[:, None]
        own_weights = share * self.model[0][width:] / self.own_scale[:, None]
        intercept = share * self.model[1] - scaled.middle @ weights - self.middle @ own_weights
        by_round: list[dict[str, Floats]] = [{} for _ in whole[1]]

        def add(t: int, name: str, matrix: Floats) -> None:
            by_round[t][name] = by_round[t].get(name, 0.0) + matrix

        for index, feature in enumerate(self.features):
            matrix = weights[index * n_outputs : (index + 1) * n_outputs]
            for (t, name), count in feature(whole).items():
                add(t, name, count * matrix)
        if own is not None:
            mixed = self.mixed if self.helps else 1.0
            part = OwnPart(own.ensemble, eye + own_weights, self.base_loss, self.loss, self.helps, mixed)
            return PrivateRefit(tuple(map(float, intercept)), tuple(by_round), part)
        for t, counts in enumerate(whole[0]):
            for name, count in counts.items():
                add(t, name, count * eye)
        return PrivateRefit(tuple(map(float, intercept + (1 - share) * first)), tuple(by_round))


@dataclass(frozen=True)
class _Rows:
    """The rows that are fitted and compared on."""

    y: Floats
    loss: Loss
    base: Floats
    """What predicts without the refit (n, K), by learnings that did not see the row."""
    folds: Rows
    is_own: bool
    """Whether the base is the label holder's own model."""

    def fit_held_out(
        self, features: Sequence[Feature], tables: Sequence[Floats], with_own: Sequence[bool]
    ) -> _Found:
        """Fitted to values of learnings that did not see the row: for models that memorize labels."""
        held_out = np.empty_like(tables[0])
        for fold, table in enumerate(tables):
            held_out[self.folds == fold] = table[self.folds == fold]
        return self.fit(features, [held_out] * len(tables), held_out, with_own)

    def fit(
        self, features: Sequence[Feature], tables: Sequence[Floats], last: Floats, with_own: Sequence[bool]
    ) -> _Found:
        """Fitted to the table ``last``, and compared in each fold with the table of the learning without it.

        For models that do not memorize, such as linear ones, whose rounds differ from fold to fold.
        """
        y, loss, base = self.y, self.loss, self.base
        masks = {fold: self.folds == fold for fold in range(len(tables)) if (self.folds == fold).any()}
        inputs = {fold: _Scaled.of(tables[fold][~mask]).inputs(tables[fold]) for fold, mask in masks.items()}
        scaled, found = _Scaled.of(last), list[_Found]()
        for beside in with_own:
            joined = {fold: self._beside(one, ~masks[fold], beside) for fold, one in inputs.items()}
            best, best_loss, made, models = 0.0, np.inf, base, dict[int, Linear]()
            for penalty in PENALTIES:
                outputs = np.empty_like(base)
                for fold, table in joined.items():
                    mask = masks[fold]
                    models[fold] = _fit_linear(y[~mask], loss, table[~mask], penalty, models.get(fold))
                    outputs[mask] = table[mask] @ models[fold][0] + models[fold][1]
                value = mean_loss(loss, y, outputs)
                if not value < best_loss:
                    break  # weaker penalties overfit more
                best, best_loss, made = penalty, value, outputs
            share = float(np.clip(ExactSearch()(Line(loss, y, base, made - base)), 0.0, 1.0))
            mixed = self._mixed_weight(base + share * (made - base))
            predicted = _mixture(base, base + share * (made - base), mixed)
            gains = loss.value(y, base) - loss.value(y, predicted)
            helps = bool(share > 0 and gains.mean() > SURE * float(gains.std()) / np.sqrt(len(gains)))
            every = np.ones(len(y), dtype=np.bool_)
            model = _fit_linear(y, loss, self._beside(scaled.inputs(last), every, beside), best)
            facts = share, mixed, mean_loss(loss, y, base), mean_loss(loss, y, predicted), helps
            scale = self._own_scale(every) if beside else np.full(base.shape[1], np.inf)
            found.append(_Found(features, scaled, scale, model, base.mean(axis=0), *facts))
        return min(found, key=lambda one: one.loss)

    def _mixed_weight(self, output: Floats) -> float:
        """The weight of these held-out outputs in the mixture with the own model's; 1 where there is none.

        It minimizes the log loss of the rows and of one more, whose label the refit gives no probability. So
        it follows the evidence: from n rows it is at most n / (n + 1).
        """
        if not self.is_own or not isinstance(self.loss, CLASSES):
            return 1.0

        def loss(weight: float) -> float:
            mixed = _mixture(self.base, output, weight)
            return float(self.loss.value(self.y, mixed).sum() - np.log(1 - weight))

        return float(minimize_scalar(loss, bounds=(1e-6, 1 - 1e-6), method="bounded").x)

    def _beside(self, inputs: Floats32, rows: NDArray[np.bool_], with_own: bool) -> Floats32:
        """Inputs and the base's outputs, centered and scaled by those of ``rows``; or zeros."""
        own = np.zeros_like(self.base)
        if with_own:
            own = (self.base - self.base[rows].mean(axis=0)) / self._own_scale(rows)
        return np.hstack([inputs, own.astype(np.float32)])

    def _own_scale(self, seen: NDArray[np.bool_]) -> Floats:
        """By what the base's outputs are divided, (K,); infinite where they vary by nothing that counts.

        Outputs of classes have one unit, and so one spread. By its own spread a rare class would count for
        as much as the others, and a class without a row would show only which learning it is from.
        """
        spread = np.asarray(self.base[seen].std(axis=0))
        if self.loss.n_outputs > 1 and isinstance(self.loss, CLASSES):
            rows = np.bincount(self.y[seen, 0].astype(np.intp), minlength=self.loss.n_outputs)
            spread = np.where(rows > 0, np.sqrt(np.mean(spread[rows > 0] ** 2)), 0.0)
        return np.where(spread > 0, spread, np.inf) / OWN_SIZE


def _fit_linear(
    y: Floats, loss: Loss, table: Floats32, penalty: float, start: Linear | None = None
) -> Linear:
    """The linear model of this loss and penalty; ``start`` is one to begin with.

    A class without a row keeps about the share of half a row, with which its intercept begins.
    """
    if isinstance(loss, NUMBERS):
        ridge = Ridge(penalty).fit(table.astype(np.float64), y)
        return ridge.coef_.reshape(y.shape[1], -1).T, np.asarray(ridge.intercept_).reshape(-1)
    n, columns = table.shape
    # In these units the Hessian is about the identity, so that few steps are enough.
    units = np.sqrt(np.append(np.square(table).sum(axis=0) / 4 + penalty, n / 4))[:, None]
    weights, intercept = start or (np.zeros((columns, loss.n_outputs)), loss.initial(y))

    def total(steps: Floats) -> tuple[float, Floats]:
        model = steps.reshape(units.shape[0], -1) / units
        output = table @ model[:-1].astype(np.float32) + model[-1]
        slopes = np.vstack([penalty * model[:-1], np.zeros((1, loss.n_outputs))])
        residual = loss.pseudo_residual(y, output)
        slopes -= np.vstack([table.T @ residual.astype(np.float32), residual.sum(axis=0)])
        # The largest entry of a row's residual is one minus the probability of its label.
        missed = np.minimum(np.abs(residual).max(axis=1), 1 - 1e-15)
        value = penalty / 2 * np.square(model[:-1]).sum() - np.log1p(-missed).sum()
        return float(value), (slopes / units).ravel()

    first = (np.vstack([weights, intercept]) * units).ravel()
    found = minimize(
        total, first, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": EXACT, "gtol": 0}
    )
    model = found.x.reshape(units.shape[0], -1) / units
    return model[:-1], model[-1]
