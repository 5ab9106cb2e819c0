"""The private track: once learning is over, the label holder refits what counts, with its true labels.

A regularised linear model on the fitted values of all rounds, with the label holder's own model
(``own_model``) or without it, takes from each what it is worth on the true labels. The values of a row come
from learnings that did not see its noisy label (the folds of the task's cross-validation) or, where the local
models do not memorise labels, from the task itself. All are compared on folds that they were not fitted on.
Where the best does not beat the label holder's own model beyond chance, that one predicts alone; where there
is none, the public model does. Nothing of it leaves: it costs no epsilon, and requests for predictions stay
the same.

What remains is plain numbers: an intercept, and for each fitted value how much it adds to each output.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

from gal.core.closings import ClosingModel, Replies
from gal.core.guards.sentinel_fold import memorizers
from gal.core.line_search import ExactSearch, Line, mean_loss
from gal.core.losses import AbsoluteError, BinaryLogLoss, Huber, Loss, MultinomialLogLoss, SquaredError
from gal.core.passes import added_by_name, added_to
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
"""From the strongest: of squared coefficients, where the fitted values of a row have about length 1 together.
"""

FOLDS = 5
"""Of a task without a cross-validation."""
SURE = 2.0
"""Standard errors by which a refit has to beat what predicts without it: penalty, share and what it is
fitted to were chosen on the same rows.
"""
FITTED_ENTRIES = 2**24
"""Numbers in the tables that are fitted, 128 MiB: of more rows some are drawn, all would change little."""
ENOUGH = 500
"""Rows that were never sent on which alone a refit is done. With fewer, half a point of accuracy was lost on
two small tables, and hardly anything gained where somebody memorises.
"""
NEGLIGIBLE = 1e-10
"""Directions in which the squares of fitted values add up to less than this, beside the widest, say nothing.
"""
MOST_AXES = 500
"""Of more directions the widest are taken: what many rounds for many classes say is alike."""
CLEARLY = 1.25
"""So much more must in-sample values bring than honest ones: where models memorise, they vary more."""
FREE = 10.0
"""How large the own model's outputs are beside a row of fitted values, which has length 1: a penalty hardly
holds them back."""
LEFT_OUT = 0.0
"""The same where they are left out. Of several classes each output counts for each, and what is fitted to few
rows so freely spoils what the others say; where those say nearly all, the own model is not needed. One output
spoils nothing: there more to choose from was worse on fresh splits of BreastCancer and QSAR."""


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

    @property
    def predicting_loss(self) -> float:
        """Of what predicts."""
        return self.stacked_loss if self.used else self.alone_loss

    @property
    def words(self) -> str:
        """What predicts, and by how much it is better."""
        losses = f"loss {self.stacked_loss:.4g} with them, {self.alone_loss:.4g} with your own model alone"
        if self.used:
            return f"The answers of this task help: {losses}, on rows that the models did not see."
        return (
            f"The answers of this task do not help beyond chance ({losses}, on rows that the models did not "
            "see): your own model predicts alone. Nobody else can see that."
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
        if self.own is not None and own_output is not None:
            parts.append(own_output @ self.own.matrix)
        return np.asarray(sum(parts) + np.asarray(self.intercept))

    @property
    def own_closing(self) -> ClosingModel | None:
        """The stacker of its own model: no plain numbers, so it is kept beside them."""
        return None if self.own is None else self.own.ensemble.closing

    def with_closing(self, closing: ClosingModel | None) -> PrivateRefit:
        """The same with the stacker that was kept."""
        if self.own is None or closing is None:
            return self
        own = replace(self.own, ensemble=replace(self.own.ensemble, closing=closing))
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


Linear = tuple[Floats, Floats]
"""Weights (columns, K) and intercept (K,): outputs are ``table @ weights + intercept``."""


@dataclass(frozen=True)
class _Here:
    """The rows that are fitted and compared on."""

    y: Floats
    loss: Loss
    base: Floats
    """What predicts without the refit (n, K), by learnings that did not see the row."""
    folds: Rows
    """The fold that each of these rows is in."""
    rows: Rows
    """Their places among all rows of the task."""

    def output(self, replies: Replies, features: Sequence[Feature]) -> Floats:
        """Every feature of one learning, of these rows: (rows, features * K)."""
        made = np.zeros((len(self.rows), len(features), self.loss.n_outputs))
        for place, feature in enumerate(features):
            for (t, name), count in feature(replies).items():
                made[:, place] += count * replies[1][t][name][self.rows]
        return made.reshape(len(self.rows), -1)


Counts = Mapping[tuple[int, str], float]
"""By round (from 0) and organization: how much of its fitted values is in a feature."""
Feature = Callable[[Replies], Counts]
"""A sum of fitted values, of any learning."""


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
    """What predicts, fitted to the true ``labels``, of a usual loss.

    ``ensemble`` is the task's own, all rounds of which are asked for predictions, and ``fitted`` the values
    of these rounds. ``own``: the label holder's own model, where there is one. ``summed``: predictions come
    as one sum of everybody's rounds, as the public model counts them, and so only such sums are used here.
    None where the public model is as good, or nothing can be learned: no rounds, another loss, too few rows.
    """
    judged, folds, first = ensemble.judged, task.rows.parts, task.first_output
    rng, without = np.random.default_rng(task.seed), tuple[str, ...]()
    whole: Replies = (ensemble.coefficients, fitted)
    if summed:
        whole = added(whole)
    public, left_out, rows = added_to(task.first_of(), *whole), [whole] * FOLDS, never_sent(task)
    if judged is None or folds is None:
        folds = rng.permutation(len(labels.y)) % FOLDS
    else:
        rows, public = None, judged.stages[-1]
        left_out = [((), ()) if one is None else (one.coefficients, one.fitted) for one in judged.reached]
        left_out = [added(one) for one in left_out] if summed else left_out
        holder, rounds = ensemble.label_holder, len(ensemble.rounds)
        others = sorted({name for counts in ensemble.coefficients for name in counts} - {holder})
        without = memorizers(others, holder, labels.loss, labels.y, judged, rounds)
    base = public if own is None else own.output
    rows = np.arange(len(labels.y)) if rows is None else rows
    return stacked(labels, base, folds, rows, left_out, whole, first[0], own, without=without, rng=rng)


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

    ``base`` (n, K) is what predicts without it, of which ``folds`` (n,) did not see a row; ``without`` names
    organizations that only memorise.
    """
    y, loss, coefficients, fitted = labels.y, labels.loss, *whole
    asked = sorted({name for counts in coefficients for name in counts} - set(without))
    values = [_single(t, name) for t, said in enumerate(fitted) for name in asked if name in said]
    if not values or not isinstance(loss, NUMBERS + CLASSES):
        return None
    crossed = any(one is not whole for one in left_out)
    width = len(values) * loss.n_outputs * (len(left_out) + 2 if crossed else 1)
    if len(rows) > FITTED_ENTRIES // width:
        rows = np.sort(rng.choice(rows, max(FITTED_ENTRIES // width, 2 * FOLDS), replace=False))
    # Every part of a cross-validation has to leave something to learn.
    few = len(rows) < 2 * FOLDS
    if not isinstance(loss, NUMBERS):
        few |= int((np.bincount(y[rows, 0].astype(np.intp)) > 1).sum()) < 2
    if few:
        return None
    here = _Here(y[rows], loss, base[rows], folds[rows], rows)
    several = loss.n_outputs > 1 and isinstance(loss, CLASSES)
    sizes = (LEFT_OUT,) if own is None else (FREE, LEFT_OUT) if several else (FREE,)
    last = here.output(whole, values)
    tables = [here.output(one, values) if crossed else last for one in left_out]
    best = min((_fitted(here, values, tables, last, free) for free in sizes), key=lambda one: one.loss)
    if crossed:
        stages = {2**power for power in range(len(fitted).bit_length())} & set(range(1, len(fitted)))
        sums = [_summed(stage, name) for stage in sorted(stages | {len(fitted)}) for name in asked]
        unseen = [(values, tables), (sums, [here.output(one, sums) for one in left_out])]
        honest = [_unseen(here, features, made, free) for free in sizes for features, made in unseen]
        found = min(honest, key=lambda one: one.loss)
        best = best if best.gain > CLEARLY * found.gain else found
    return best.as_numbers(whole, first, own)


def _single(t: int, name: str) -> Feature:
    """A fitted value by itself: what linear models say in a round is alike in all folds."""
    return lambda replies: {(t, name): 1.0} if t < len(replies[1]) and name in replies[1][t] else {}


def _summed(stage: int, name: str) -> Feature:
    """An organization's first rounds, as the public model counts them."""
    return lambda replies: {(t, name): one[name] for t, one in enumerate(replies[0][:stage]) if name in one}


def added(replies: Replies) -> Replies:
    """All rounds as one: everybody's fitted values, times what they count; nothing where there are none."""
    totals = added_by_name(*replies)
    together = {name: total.astype(np.float32) for name, total in sorted(totals.items())}
    return ([dict.fromkeys(together, 1.0)], [together]) if totals else ([], [])


def never_sent(task: Task) -> Rows | None:
    """Rows of which no residual left, where labels have noise and there are enough of them.

    Of the others an organization may memorise what it was sent: noise or not, that fits the true labels of
    these rows, and says nothing of new ones. None: all rows have to do, since there are too few of these (or
    models that move, with which it was not tried).
    """
    rest = np.flatnonzero(~task.rows.is_fit)
    tried = task.release is None and not task.moving
    return rest if tried and len(rest) >= ENOUGH else None


@dataclass(frozen=True)
class _Scaled:
    """How a table of features and the base's outputs become what is fitted.

    Columns are divided so that a row has about length 1: halfway (the geometric mean of both scales) between
    columns as they are, whose sizes tell how much an organization found in a round, and columns of the same
    size, a little better than the latter with four kinds of local models. They are fitted in orthogonal
    directions, often far fewer: with a penalty on squares that is the same.
    """

    middle: Floats
    scale: Floats
    axes: Floats
    own_middle: Floats
    own_scale: Floats

    @classmethod
    def of(cls, table: Floats, own: Floats, y: Floats, loss: Loss, free: float) -> _Scaled:
        middle, spread = table.mean(axis=0), table.std(axis=0)
        typical = float(np.sqrt(np.mean(spread**2))) or 1.0
        scale = np.sqrt(spread * typical)
        scale[spread <= 1e-9 * typical] = np.inf  # constant: whatever it says, the intercept says it as well
        rough = float(np.sqrt(np.mean(np.square(spread / scale)))) or 1.0
        scale = scale * rough * np.sqrt(len(spread))
        scaled, (n, columns) = (table - middle) / scale, table.shape
        squares, vectors = np.linalg.eigh(scaled.T @ scaled if columns <= n else scaled @ scaled.T)
        squares, vectors = squares[-MOST_AXES:], vectors[:, -MOST_AXES:]
        kept = squares > NEGLIGIBLE * squares[-1]
        axes = vectors[:, kept] if columns <= n else scaled.T @ vectors[:, kept] / np.sqrt(squares[kept])
        spread = _own_spread(own, y, loss)
        own_scale = np.where(spread > 0, spread, np.inf) / free if free else np.full_like(spread, np.inf)
        return cls(middle, scale, np.asarray(axes), own.mean(axis=0), own_scale)

    def inputs(self, table: Floats, own: Floats) -> Floats:
        others = (table - self.middle) / self.scale @ self.axes
        return np.hstack([others, (own - self.own_middle) / self.own_scale])


def _own_spread(own: Floats, y: Floats, loss: Loss) -> Floats:
    """How far the own model's outputs (n, K) vary, (K,); 0 where they tell nothing.

    Outputs of classes have one unit, and so one spread. That of a rare class varies little, and by which
    learning a row was left out of as much as by what the row is: by its own spread it would count for as
    much as the others. That of a public class that no row has says only which learning it comes from.
    """
    spread = own.std(axis=0)
    if loss.n_outputs == 1 or not isinstance(loss, CLASSES):
        return np.asarray(spread)
    rows = np.bincount(y[:, 0].astype(np.intp), minlength=loss.n_outputs)
    return np.where(rows > 0, np.sqrt(np.mean(spread[rows > 0] ** 2)), 0.0)


@dataclass(frozen=True)
class _Found:
    """A fit, how far to follow it from the base, and what that is worth."""

    features: Sequence[Feature]
    scaled: _Scaled
    model: Linear
    share: float
    base_loss: float
    loss: float
    helps: bool
    """Whether it is better than the base by more than chance explains."""

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
        own_weights = share * self.model[0][width:] / scaled.own_scale[:, None]
        intercept = share * self.model[1] - scaled.middle @ weights - scaled.own_middle @ own_weights
        by_round: list[dict[str, Floats]] = [{} for _ in whole[1]]

        def add(t: int, name: str, matrix: Floats) -> None:
            by_round[t][name] = by_round[t].get(name, 0.0) + matrix

        for index, feature in enumerate(self.features):
            matrix = weights[index * n_outputs : (index + 1) * n_outputs]
            for (t, name), count in feature(whole).items():
                add(t, name, count * matrix)
        if own is not None:
            part = OwnPart(own.ensemble, eye + own_weights, self.base_loss, self.loss, self.helps)
            return PrivateRefit(tuple(map(float, intercept)), tuple(by_round), part)
        for t, counts in enumerate(whole[0]):
            for name, count in counts.items():
                add(t, name, count * eye)
        return PrivateRefit(tuple(map(float, intercept + (1 - share) * first)), tuple(by_round))


def _unseen(here: _Here, features: Sequence[Feature], tables: Sequence[Floats], free: float) -> _Found:
    """Fitted to values of learnings that did not see the row: for models that memorise labels."""
    honest = np.empty_like(tables[0])
    for fold, table in enumerate(tables):
        honest[here.folds == fold] = table[here.folds == fold]
    return _fitted(here, features, [honest] * len(tables), honest, free)


def _fitted(
    here: _Here, features: Sequence[Feature], tables: Sequence[Floats], last: Floats, free: float
) -> _Found:
    """Fitted to the table ``last``: to values of the task itself, which have seen the row, for models that do
    not memorise, such as linear ones, whose rounds differ from fold to fold. What that is worth is judged in
    every fold with the values of the learning without it, of which the others' rows are in-sample as well.
    """
    y, loss, base, folds = here.y, here.loss, here.base, list[tuple[NDArray[np.bool_], Floats]]()
    for fold, table in enumerate(tables):
        mask = here.folds == fold
        if mask.any():
            scaled = _Scaled.of(table[~mask], base[~mask], y[~mask], loss, free)
            folds.append((mask, scaled.inputs(table, base)))
    best, best_loss, made = 0.0, np.inf, base
    for penalty in PENALTIES:
        outputs = np.empty_like(base)
        for mask, inputs in folds:
            weights, intercept = _fit_linear(y[~mask], loss, inputs[~mask], penalty, max_iter=100)
            outputs[mask] = inputs[mask] @ weights + intercept
        value = mean_loss(loss, y, outputs)
        if not value < best_loss:
            break  # weaker ones only overfit more, and take longest
        best, best_loss, made = penalty, value, outputs
    line = Line(loss, y, base, made - base)
    share = float(np.clip(ExactSearch()(line), 0.0, 1.0))
    gains = loss.value(y, base) - loss.value(y, base + share * (made - base))
    helps = bool(share > 0 and gains.mean() > SURE * float(gains.std()) / np.sqrt(len(gains)))
    scaled = _Scaled.of(last, base, y, loss, free)
    model = _fit_linear(y, loss, scaled.inputs(last, base), best)
    return _Found(features, scaled, model, share, line.value(0.0), line.value(share), helps)


def _fit_linear(y: Floats, loss: Loss, table: Floats, penalty: float, max_iter: int = 300) -> Linear:
    """The linear model with this penalty."""
    if isinstance(loss, NUMBERS):
        ridge = Ridge(penalty).fit(table, y)
        return ridge.coef_.reshape(y.shape[1], -1).T, np.asarray(ridge.intercept_).reshape(-1)
    codes = y[:, 0].astype(np.intp)
    classes, few = np.unique(codes), np.log(2 * len(codes))
    if len(classes) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # nearly there is near enough
            model = LogisticRegression(C=1 / penalty, max_iter=max_iter).fit(table, codes)
        weights, intercept = model.coef_.T, np.asarray(model.intercept_)
    else:  # all rows of the others are left out: they get less than half a row's share
        weights, intercept = np.zeros((table.shape[1], 1)), np.array([few if classes[0] else -few])
    if loss.n_outputs == 1:
        return weights, intercept
    if len(classes) == 2:
        weights, intercept = np.hstack([-weights / 2, weights / 2]), np.array([-1, 1]) * intercept / 2
    elif len(classes) == 1:
        intercept = np.zeros(1)
    # A class without a row gets a constant that stays below half a row's share.
    every = np.zeros((len(weights), loss.n_outputs)), np.full(loss.n_outputs, -few)
    every[0][:, classes], every[1][classes] = weights, intercept
    return every
